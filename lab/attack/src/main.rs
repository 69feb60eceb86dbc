//! What an application in the `process` domain could try, tried: see `tailplane-attack --help`.

mod acts;
mod batches;
mod crowd;
mod dataplanes;
mod joined;
mod lies;
mod suite;
mod tcp;
mod unsafe_os;

use std::io::Write;
use std::process::ExitCode;

use clap::{Args, Parser, Subcommand};
use wire::Ipv4Addr;

/// Attacks dataplanes as applications of the process domain would, and tells what became of them.
///
/// Each attack has a dataplane of its own, with a client, and a second dataplane beside it whose requests are
/// checked and timed while the attacker is stopped and while it is not. An attack passes where the attacked network
/// layer goes on answering, the dataplane ends in order, all memory comes back, and the second application loses
/// nothing and has the same p99. Without a command the suite runs.
///
///   tailplane-attack                            all attacks, a table; status 1 where one fails
///   tailplane-attack suite --only stop          one of them
///   tailplane-attack list                       which there are
///   tailplane-attack batches --seed 7           ten million random batches in one thread
///   tailplane-attack services                   as root, through `tailplane run`, under each scheduler
///   tailplane-attack tcp                        hostile TCP peers, in virtual time: see `tailplane-attack tcp --help`
#[derive(Parser)]
#[command(name = "tailplane-attack", version, verbatim_doc_comment)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
}

#[derive(Args)]
struct SuiteArguments {
    /// One attack (repeat for several); all where none is named.
    #[arg(long)]
    only: Vec<String>,
    /// How long each attack lasts.
    #[arg(long, default_value_t = 3.0)]
    seconds: f64,
    /// What the attackers' choices follow from.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Where the outcomes go as JSON; `-`: to standard output, in place of the table.
    #[arg(long)]
    json: Option<String>,
    /// In this very process, which a dataplane that dies takes along.
    #[arg(long, hide = true)]
    alone: bool,
}

#[derive(Subcommand)]
enum Command {
    /// Runs the attacks and prints a table of what came of them.
    Suite(SuiteArguments),
    Tcp(tcp::TcpArguments),
    /// Names the attacks, each with a line.
    List,
    /// Is the hostile application of one attack; started by a dataplane, with its socket in TAILPLANE_DOMAIN.
    Act {
        /// Which.
        name: String,
        /// What its choices follow from.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Says that it runs anywhere, as schedulers that share want it.
        #[arg(long)]
        anywhere: bool,
        /// The address of its dataplane.
        #[arg(long, default_value_t = crowd::SERVER)]
        server: Ipv4Addr,
        /// The address of the client there.
        #[arg(long, default_value_t = crowd::CLIENT)]
        client: Ipv4Addr,
    },
    /// Attacks services that `tailplane run` starts as root: three users, AF_XDP on a veth pair, a second service beside.
    Services {
        /// One attack (repeat for several); all where none is named.
        #[arg(long)]
        only: Vec<String>,
        /// Under this scheduler alone; `each`: all attacks under all three; `in-turn`: each attack under one of them, the
        /// next attack under the next.
        #[arg(long, default_value = "each")]
        scheduler: String,
        /// How long each attack lasts.
        #[arg(long, default_value_t = 1.0)]
        seconds: f64,
        /// What the attackers' choices follow from.
        #[arg(long, default_value_t = 1)]
        seed: u64,
    },
    /// Random batches of calls, nearly valid to senseless, in one thread: a seed replays them.
    Batches {
        /// How many.
        #[arg(long, default_value_t = 10_000_000)]
        count: u64,
        /// What they follow from.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// One half: `arrays` (each issued call is checked) or `stack` (against connections with a client).
        #[arg(long)]
        only: Option<String>,
    },
}

/// Says something to whoever looks.
fn say(text: &str) {
    // Where nobody listens nobody misses it.
    let _ = writeln!(std::io::stderr(), "tailplane-attack: {text}");
}

fn named(only: &[String]) -> anyhow::Result<Vec<&'static acts::Attack>> {
    match only {
        [] => Ok(acts::ATTACKS.iter().collect()),
        names => names.iter().map(|name| acts::find(name)).collect(),
    }
}

fn run_services(only: &[String], scheduler: &str, seconds: f64, seed: u64) -> anyhow::Result<bool> {
    let all = suite::services::SCHEDULERS;
    let in_turn = |number: usize| vec![all[(number + seed as usize) % all.len()]];
    let mut services = suite::services::Services::new(seconds, seed)?;
    let mut outcomes = Vec::new();
    for (number, attack) in named(only)?.into_iter().enumerate() {
        let schedulers = match scheduler {
            "each" => all.to_vec(),
            "in-turn" => in_turn(number),
            name => match all.iter().find(|known| **known == name) {
                Some(known) => vec![*known],
                None => anyhow::bail!(
                    "cannot attack under '{name}': name each, in-turn, or one of {all:?}"
                ),
            },
        };
        for scheduler in schedulers {
            let outcome = services.run(attack, scheduler)?;
            say(&format!("{}: {}", outcome.attack, outcome.verdict()));
            outcomes.push(outcome);
        }
    }
    suite::print(&outcomes, &mut std::io::stdout().lock())?;
    Ok(outcomes.iter().all(|outcome| outcome.failures.is_empty()))
}

fn run_suite(arguments: &SuiteArguments) -> anyhow::Result<bool> {
    let attacks = named(&arguments.only)?;
    let (seconds, seed) = (arguments.seconds, arguments.seed);
    let mut outcomes = Vec::new();
    for attack in attacks {
        let outcome = match arguments.alone {
            true => suite::Suite::new(seconds, seed)?.run(attack)?,
            false => suite::apart(attack, seconds, seed)?,
        };
        say(&format!("{}: {}", attack.name, outcome.verdict()));
        outcomes.push(outcome);
    }
    let mut out = std::io::stdout().lock();
    if arguments.json.as_deref() == Some("-") {
        serde_json::to_writer_pretty(&mut out, &outcomes)?;
        writeln!(out)?;
    } else {
        suite::print(&outcomes, &mut out)?;
    }
    if let Some(path) = arguments.json.as_deref().filter(|path| *path != "-") {
        std::fs::write(path, serde_json::to_string_pretty(&outcomes)?)?;
    }
    Ok(outcomes.iter().all(|outcome| outcome.failures.is_empty()))
}

fn run() -> anyhow::Result<bool> {
    let standard = || {
        let only = Vec::new();
        Command::Suite(SuiteArguments { only, seconds: 3.0, seed: 1, json: None, alone: false })
    };
    let mut out = std::io::stdout();
    match Arguments::parse().command.unwrap_or_else(standard) {
        Command::Suite(arguments) => return run_suite(&arguments),
        Command::Tcp(arguments) => {
            return match arguments.real {
                Some(seconds) => suite::services::flood::run(seconds, arguments.seed, &mut out),
                None => tcp::run(&arguments),
            };
        }
        Command::Act { name, seed, anywhere, server, client } => {
            acts::perform(&name, acts::Started { seed, anywhere, server, client })?;
        }
        Command::Services { only, scheduler, seconds, seed } => {
            return run_services(&only, &scheduler, seconds, seed);
        }
        Command::List => {
            for attack in acts::ATTACKS {
                writeln!(out, "{:<24} {}", attack.name, attack.what)?;
            }
            for act in dataplanes::ACTS {
                writeln!(out, "dataplane {:<14} {}", act.name, act.what)?;
            }
            tcp::list(&mut out)?;
        }
        Command::Batches { count, seed, only } => {
            for (name, tally) in batches::run(count, seed, only.as_deref())? {
                writeln!(out, "{name}: {tally}")?;
            }
        }
    }
    Ok(true)
}

fn main() -> ExitCode {
    if let Some(code) = dataplanes::as_started() {
        return code;
    }
    match run() {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(error) => {
            say(&format!("{error:#}"));
            ExitCode::from(2)
        }
    }
}
