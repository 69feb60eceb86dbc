//! TCP attacks in virtual time against the real stack, with honest clients beside the attacker.

mod attackers;
pub mod frames;
mod honest;
mod world;

use std::io::Write;

use clap::Args;
use clock::{Duration, Instant};
use measure::stats::nearest;
use reproduce::Grid;
use serde::Serialize;

use attackers::{Attacker, Conduct, OnPath, PEERS, Peers, Spoofed, Ticks};
use honest::Pace;
use world::{Held, Plan, Ran};

/// Attacks one of our stacks over TCP in virtual time, with honest clients beside the attacker.
///
/// The server's one core takes so many nanoseconds for each frame that it receives and sends, and its receive ring drops
/// what it has no room for. Honest clients open connections, and send requests of three segments, in the same run. An
/// attack passes where each honest request is answered, the p99 of requests and of those that open a connection is
/// at most twice that of the same run without the attacker, the answers to the attacker are bounded, and the server
/// holds no more packet memory and connections in the end than before.
///
///   tailplane-attack tcp                          all attacks, a table; status 1 where one fails
///   tailplane-attack tcp --only syn-far-fast      one of them; `tailplane-attack list` names them
///   tailplane-attack tcp --short --json -         fewer frames and requests, as JSON
///   tailplane-attack tcp --real 10                as root: floods of SYNs over a veth pair against `tailplane run`
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct TcpArguments {
    /// One attack (repeat for several); all where none is named.
    #[arg(long)]
    only: Vec<String>,
    /// What all draws follow from: one seed is one run.
    #[arg(long, default_value_t = 1)]
    pub seed: u64,
    /// The floods of SYNs in real time instead, so many seconds each: as root, from a raw socket against `tailplane run`.
    #[arg(long, value_name = "SECONDS", conflicts_with_all = ["only", "json", "short"])]
    pub real: Option<f64>,
    /// Where the outcomes go as JSON; `-`: to standard output, in place of the table.
    #[arg(long)]
    json: Option<String>,
    /// A twentieth of the frames at full speed, and a tenth of the honest requests.
    #[arg(long)]
    short: bool,
}

/// Honest connections at a time.
const LINES: usize = 16;
/// When the attack begins: the server has not spoken with any host before.
const BEGIN: Instant = Instant::from_millis(1_000);
/// How long after it the honest requests begin.
const HEAD_START: Duration = Duration::from_millis(1);
/// From one frame of minimal size to the next on a link of 1 Gb/s. The server's core keeps up with it: beyond that its
/// ring drops honest frames too, whatever the stack does.
const LINK_GAP: Duration = Duration::from_nanos(672);
/// More than this times the quiet p99 fails.
const RATIO_MAX: f64 = 2.0;
/// Answers a second that two ends which do not accept each other's segments may exchange.
const ANSWERS_PER_SECOND: f64 = 4.0;
/// Answers beyond them: the handshake, the request and the end of the attacked connection.
const ANSWERS_FIRST: f64 = 32.0;

/// Connections that the server may have at a time: a backlog of half-open ones, those of attacker, victim and honest
/// clients, and of the last ones those that are ending.
const CONNECTIONS_MAX: u64 = world::BACKLOG as u64 + PEERS + 4 * LINES as u64;

/// How much is sent.
#[derive(Clone, Copy)]
struct Scale {
    /// Frames at full speed.
    frames: u64,
    /// Honest requests, about.
    requests: u32,
}

/// One attack.
struct Attack {
    name: &'static str,
    what: &'static str,
    /// How many frames or connections the attacker begins with, and the time between them.
    ticks: fn(Scale) -> (u64, Duration),
    /// How long honest clients ask where that is longer than the ticks last.
    lasts: Duration,
    attacker: fn(Ticks, u64) -> Box<dyn Attacker>,
    /// Packet memory of the server, in chunks of 2 KiB.
    chunks: u32,
    /// ARP requests for spoofed addresses are answered.
    answers_arp: bool,
    /// Honest segments overtake each other, so that they need memory like the attacker's.
    reorders: bool,
    /// The peers answer also afterwards: the server is to end what it closed by itself.
    goes_on: bool,
    /// Of so many frames of the attacker one may be answered, beyond [`ANSWERS_PER_SECOND`].
    answers: Option<u64>,
}

const FAST: fn(Scale) -> (u64, Duration) = |scale| (scale.frames, LINK_GAP);
const SLOW: fn(Scale) -> (u64, Duration) = |_| (15_000, Duration::from_millis(20));
const CONNECT: fn(Scale) -> (u64, Duration) = |_| (PEERS, LINK_GAP);
const NEAR: fn(Ticks, u64) -> Box<dyn Attacker> =
    |ticks, seed| Box::new(Spoofed::new(ticks, true, seed));
const FAR: fn(Ticks, u64) -> Box<dyn Attacker> =
    |ticks, seed| Box::new(Spoofed::new(ticks, false, seed));
/// What most attacks have in common.
const ATTACK: Attack = Attack {
    name: "",
    what: "",
    ticks: FAST,
    lasts: Duration::ZERO,
    attacker: FAR,
    chunks: 2_048,
    answers_arp: false,
    reorders: false,
    goes_on: false,
    answers: None,
};

const ATTACKS: &[Attack] = &[
    Attack {
        name: "syn-far-fast",
        what: "SYNs from spoofed addresses behind the gateway, at full speed of the link",
        ..ATTACK
    },
    Attack {
        name: "syn-near-fast",
        what: "the same from addresses of the server's network that do not answer ARP",
        attacker: NEAR,
        ..ATTACK
    },
    Attack {
        name: "syn-hop-fast",
        what: "the same from addresses of the server's network that have one link address",
        attacker: NEAR,
        answers_arp: true,
        ..ATTACK
    },
    Attack {
        name: "syn-far-slow",
        what: "SYNs from spoofed addresses behind the gateway, 50 a second for 5 minutes",
        ticks: SLOW,
        ..ATTACK
    },
    Attack {
        name: "syn-near-slow",
        what: "the same from addresses of the server's network that do not answer ARP",
        ticks: SLOW,
        attacker: NEAR,
        ..ATTACK
    },
    Attack {
        name: "syn-hop-slow",
        what: "the same from addresses of the server's network that have one link address",
        ticks: SLOW,
        attacker: NEAR,
        answers_arp: true,
        ..ATTACK
    },
    Attack {
        name: "gap-bytes",
        what: "64 connections send single bytes ahead of one that never comes",
        ticks: |scale| (scale.frames / 4, LINK_GAP),
        lasts: Duration::from_secs(2),
        attacker: |ticks, seed| Box::new(Peers::new(Conduct::Gaps, ticks, seed)),
        reorders: true,
        // Ahead of a gap each connection may hold eight: 64 of them fill what a smaller memory has for that.
        chunks: 4_096,
        ..ATTACK
    },
    Attack {
        name: "unread-replies",
        what: "64 connections ask for 4 MiB each and stop reading, most of them without a word",
        ticks: CONNECT,
        lasts: Duration::from_secs(5),
        attacker: |ticks, seed| Box::new(Peers::new(Conduct::Unread, ticks, seed)),
        ..ATTACK
    },
    Attack {
        name: "closed-windows",
        what: "64 connections that the service closed answer probes of a zero window for an hour",
        ticks: CONNECT,
        lasts: Duration::from_secs(3_600),
        attacker: |ticks, seed| Box::new(Peers::new(Conduct::Closed, ticks, seed)),
        goes_on: true,
        ..ATTACK
    },
    Attack {
        name: "unacceptable",
        what: "1,000 segments a second on a connection that the server cannot accept",
        ticks: |_| (20_000, Duration::from_millis(1)),
        attacker: |ticks, _| Box::new(OnPath::unacceptable(ticks)),
        // Each one with data is acknowledged: its sender repeats it until then.
        answers: Some(2),
        ..ATTACK
    },
    Attack {
        name: "out-of-step",
        what: "two of our stacks have received bytes that the other one never sent",
        ticks: |_| (1, Duration::from_secs(60)),
        attacker: |ticks, _| Box::new(OnPath::splitting(ticks)),
        answers: Some(u64::MAX),
        ..ATTACK
    },
];

/// What came of one attack.
#[derive(Debug, Serialize)]
pub struct Outcome {
    /// Its name, and what it did.
    attack: &'static str,
    what: &'static str,
    /// Honest requests, and those without an answer.
    requests: u64,
    lost: u64,
    /// p99 in nanoseconds of requests on open connections: quiet, attacked.
    p99_ns: [u64; 2],
    /// The same of requests that open one.
    opening_p99_ns: [u64; 2],
    /// Frames of the attacker, and of the server to anything but honest clients.
    sent: u64,
    answers: u64,
    /// The most that the server held, and what it holds in the end beyond what it held at first.
    peak: Held,
    left: Held,
    /// What was not as it has to be; empty: passed.
    failures: Vec<String>,
}

/// Prints the names of the attacks, each with a line.
///
/// # Errors
/// `out` is closed.
pub fn list(out: &mut impl Write) -> std::io::Result<()> {
    ATTACKS.iter().try_for_each(|attack| writeln!(out, "tcp {:<20} {}", attack.name, attack.what))
}

/// Runs the attacks that `arguments` names and prints what came of them. Answers whether all passed.
///
/// # Errors
/// A name that no attack has; the outcomes cannot be written.
pub fn run(arguments: &TcpArguments) -> anyhow::Result<bool> {
    let named = |name: &String| arguments.only.is_empty() || arguments.only.contains(name);
    for name in &arguments.only {
        let names: Vec<_> = ATTACKS.iter().map(|attack| attack.name).collect();
        anyhow::ensure!(
            names.contains(&name.as_str()),
            "cannot attack: found no attack '{name}'; name one of {}",
            names.join(", ")
        );
    }
    let scale = match arguments.short {
        true => Scale { frames: 50_000, requests: 2_000 },
        false => Scale { frames: 1_000_000, requests: 20_000 },
    };
    let attacks = ATTACKS.iter().filter(|attack| named(&attack.name.to_owned()));
    let outcomes: Vec<_> = attacks.map(|attack| attack.run(scale, arguments.seed)).collect();
    let mut out = std::io::stdout().lock();
    match arguments.json.as_deref() {
        Some("-") => writeln!(out, "{}", serde_json::to_string_pretty(&outcomes)?)?,
        path => {
            print(&outcomes, &mut out)?;
            if let Some(path) = path {
                std::fs::write(path, serde_json::to_string_pretty(&outcomes)?)?;
            }
        }
    }
    Ok(outcomes.iter().all(|outcome| outcome.failures.is_empty()))
}

impl Attack {
    /// Runs the honest clients alone, then beside the attacker.
    fn run(&self, scale: Scale, seed: u64) -> Outcome {
        let (left, gap) = (self.ticks)(scale);
        let lasts = self.lasts.max(gap * left as u32);
        let gap_of_a_line = lasts * LINES as u32 / scale.requests;
        let (from, until) = (BEGIN + HEAD_START, BEGIN + HEAD_START + lasts);
        let pace = Pace { lines: LINES, gap: gap_of_a_line, from, until };
        let Self { chunks, reorders, answers_arp, goes_on, .. } = *self;
        let plan = Plan { pace, seed, chunks, reorders, answers_arp, goes_on };
        let quiet = world::run(&plan, None);
        let attacker = (self.attacker)(Ticks { at: BEGIN, gap, left }, seed);
        let attacked = world::run(&plan, Some(attacker));
        self.judge(&quiet, &attacked, lasts)
    }

    fn judge(&self, quiet: &Ran, attacked: &Ran, lasts: Duration) -> Outcome {
        let Ran { honest, sent, answers, from_victim, steps, peak, left } = attacked;
        let mut outcome = Outcome {
            attack: self.name,
            what: self.what,
            requests: honest.asked,
            lost: honest.asked - honest.answered + honest.broken,
            p99_ns: [p99(&quiet.honest.latencies), p99(&honest.latencies)],
            opening_p99_ns: [p99(&quiet.honest.openings), p99(&honest.openings)],
            sent: *sent,
            answers: *answers,
            peak: *peak,
            left: *left,
            failures: Vec::new(),
        };
        let mut fail = |text: String| outcome.failures.push(text);
        if outcome.lost > 0 {
            fail(format!("{} honest requests were lost", outcome.lost));
        }
        for (what, [quiet, attacked]) in
            [("requests", outcome.p99_ns), ("openings", outcome.opening_p99_ns)]
        {
            if attacked as f64 > RATIO_MAX * quiet as f64 || quiet == 0 {
                fail(format!("the p99 of honest {what} went from {quiet} ns to {attacked} ns"));
            }
        }
        if *steps >= world::STEPS_MAX {
            fail(format!("the server came to no rest within {steps} steps"));
        }
        if outcome.left != Held::default() {
            fail(format!("the server still holds {left:?}"));
        }
        if peak.connections > CONNECTIONS_MAX {
            let found = peak.connections;
            fail(format!("the server held {found} connections; allowed: {CONNECTIONS_MAX}"));
        }
        if *sent == 0 {
            fail("nothing was attacked: the attacker sent no frame".to_owned());
        }
        if let Some(share) = self.answers {
            let allowed = ANSWERS_FIRST + ANSWERS_PER_SECOND * lasts.as_secs_f64();
            let (found, allowed) = (answers + from_victim, allowed as u64 + sent / share);
            if found > allowed {
                fail(format!("both ends exchanged {found} frames; allowed: {allowed}"));
            }
        }
        outcome
    }
}

/// The 99th percentile; 0 where there are too few times for one.
fn p99(times: &[u64]) -> u64 {
    let mut sorted = times.to_vec();
    sorted.sort_unstable();
    if sorted.len() < 100 { 0 } else { nearest(&sorted, 0.99) }
}

fn print(outcomes: &[Outcome], out: &mut impl Write) -> std::io::Result<()> {
    let mut table = Grid::new([
        "attack",
        "honest requests",
        "lost",
        "p99 us quiet/attacked",
        "opening p99 us",
        "frames sent",
        "answers",
        "peak chunks",
        "peak connections",
        "left",
        "verdict",
    ]);
    let both = |[quiet, attacked]: [u64; 2]| {
        format!("{:.1}/{:.1}", quiet as f64 / 1e3, attacked as f64 / 1e3)
    };
    for outcome in outcomes {
        table.row([
            outcome.attack.to_owned(),
            outcome.requests.to_string(),
            outcome.lost.to_string(),
            both(outcome.p99_ns),
            both(outcome.opening_p99_ns),
            outcome.sent.to_string(),
            outcome.answers.to_string(),
            outcome.peak.chunks.to_string(),
            outcome.peak.connections.to_string(),
            format!("{} chunks, {} connections", outcome.left.chunks, outcome.left.connections),
            if outcome.failures.is_empty() { "passed" } else { "FAILED" }.to_owned(),
        ]);
    }
    writeln!(out, "{table}")?;
    for outcome in outcomes {
        for failure in &outcome.failures {
            writeln!(out, "{}: {failure}", outcome.attack)?;
        }
    }
    Ok(())
}
