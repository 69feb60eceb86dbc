//! `tailplane lab`: a playground without a NIC.
//!
//! ```text
//! tailplane lab up --queues 4        two namespaces and a veth pair; again: nothing, it is up
//! tailplane lab exec -- ping -c 1 10.77.0.3
//! tailplane lab status               names, addresses, congestion control
//! tailplane lab down                 removes it, and ends what runs inside
//! ```

use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use anyhow::{Context, bail};
use clap::Subcommand;
use comfy_table::{Table, presets};

use service::lab::constants::{DEFAULT_PREFIX, FAIR_CONGESTION_CONTROL};
use service::lab::{self, CongestionControl, Lab, LabConfig, LabError, LabInfo, Lifetime};

/// Arguments of `tailplane lab`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
    /// Which lab, where there are several.
    #[arg(long, global = true, default_value = DEFAULT_PREFIX, value_name = "NAME")]
    pub name: String,
}

/// What to do with the lab.
#[derive(Debug, Subcommand)]
pub enum Action {
    /// Make it. Where it is up with the same number of queues, do nothing.
    Up {
        /// Queue pairs of each end.
        #[arg(long, default_value_t = 1, value_name = "N")]
        queues: u32,
        /// Congestion control of the kernel's stacks inside; "default" leaves the machine's.
        #[arg(long, default_value = FAIR_CONGESTION_CONTROL, value_name = "NAME")]
        congestion_control: String,
        /// The client's kernel speaks IPv6 too, from fd77::1; a dataplane may take fd77::2 (`network.address`).
        #[arg(long)]
        ipv6: bool,
        /// Print what was made as JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run a command in the client's namespace; its exit status is this one's.
    Exec {
        /// The command and its arguments, after `--`.
        #[arg(last = true, required = true, value_name = "COMMAND")]
        command: Vec<String>,
    },
    /// Print what is up. Exit status 1 where nothing is.
    Status {
        /// Print as JSON (`null` where nothing is up).
        #[arg(long)]
        json: bool,
    },
    /// Remove it, and end what runs inside.
    Down,
    /// Wait for the end of standard input, then remove what killed processes have left.
    #[command(hide = true)]
    Guard,
}

/// Runs `tailplane lab`.
///
/// # Errors
/// What the lab could not do.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let name = args.name;
    match args.action {
        Action::Up { queues, congestion_control, ipv6, json } => {
            let congestion_control = match congestion_control.as_str() {
                "default" => CongestionControl::KernelDefault,
                _ => CongestionControl::Named(congestion_control),
            };
            let lifetime = Lifetime::Persistent;
            up(LabConfig { prefix: name, queues, congestion_control, lifetime, ipv6 }, json)
        }
        Action::Exec { command } => exec(&name, &command),
        Action::Status { json } => status(&name, json),
        Action::Guard => {
            lab::guard::keep()?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Down => {
            let found = lab::remove(&name)?;
            println!("lab '{name}' {}", if found { "removed" } else { "was not up" });
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn up(config: LabConfig, json: bool) -> anyhow::Result<ExitCode> {
    let lab = match Lab::attach(&config.prefix) {
        Ok(lab) if lab.queues() == config.queues => lab,
        Ok(lab) => bail!(
            "lab '{0}' is up with {1} queues, not {2}: run `tailplane lab down --name {0}` first",
            config.prefix,
            lab.queues(),
            config.queues
        ),
        Err(LabError::NotUp { .. }) => Lab::create(config).context("cannot make the lab")?,
        Err(error) => return Err(error.into()),
    };
    print(&lab.info()?, json)?;
    Ok(ExitCode::SUCCESS)
}

fn exec(name: &str, command: &[String]) -> anyhow::Result<ExitCode> {
    let lab = Lab::attach(name)?;
    let (program, arguments) = command.split_first().context("no command given")?;
    // This process becomes the command: nothing stays in between to pass signals or status on.
    lab.client().enter()?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot run '{program}' in the lab"))
}

fn status(name: &str, json: bool) -> anyhow::Result<ExitCode> {
    match Lab::attach(name) {
        Ok(lab) => {
            print(&lab.info()?, json)?;
            Ok(ExitCode::SUCCESS)
        }
        Err(LabError::NotUp { .. }) => {
            println!(
                "{}",
                if json { "null".to_owned() } else { format!("lab '{name}' is not up") }
            );
            Ok(ExitCode::FAILURE)
        }
        Err(error) => Err(error.into()),
    }
}

fn print(info: &LabInfo, json: bool) -> anyhow::Result<()> {
    if json {
        println!("{}", serde_json::to_string_pretty(info)?);
        return Ok(());
    }
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_header(["end", "namespace", "interface", "kernel address", "congestion control"]);
    for (end, name) in [(&info.dataplane, "dataplane"), (&info.client, "client")] {
        table.add_row([
            name,
            &end.namespace,
            &end.interface,
            &format!("{}/{}", end.kernel_address, info.subnet_bits),
            &end.congestion_control,
        ]);
    }
    println!("{table}");
    println!(
        "lab '{}' is up: {} queue(s), dataplane address {} (on no kernel interface)",
        info.prefix, info.queues, info.dataplane_address
    );
    println!("run a client in it:  tailplane lab exec --name {} -- COMMAND", info.prefix);
    Ok(())
}
