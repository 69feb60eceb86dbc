//! `tailplane doctor`: what this machine can and cannot do, and what each missing piece costs.
//!
//! ```text
//! tailplane doctor            a table
//! tailplane doctor --json     the same for scripts: {"checks": [...], "summary": {...}}
//! tailplane doctor --probe eth0 --probe eth1     and the modes that these devices get, tried
//! ```

use std::process::ExitCode;

use service::doctor::{Report, examine, probe, render};

/// Arguments of `tailplane doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
    /// Try the mode that this interface gets: attach an XDP program that passes every packet, bind a socket to the last
    /// queue, undo both; and write to the RSS table without changing it: reset one that is the default, else set the hash
    /// key that it has. Repeatable.
    ///
    /// A driver may restart the link when a program is attached and when it goes, which takes seconds with some, and
    /// packets of the last queue may be lost while the socket is bound. Only the interfaces that are named are touched.
    /// One that has an XDP program already is refused.
    #[arg(long, value_name = "INTERFACE")]
    pub probe: Vec<String>,
}

/// Runs `tailplane doctor`. The exit status is 0 whatever was found: it is a report, not a gate.
///
/// # Errors
/// An interface could not be probed, or the report not be written as JSON.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let probes = args.probe.iter().map(|interface| probe::checks(interface));
    let probes = probes.collect::<anyhow::Result<Vec<_>>>()?;
    let report = Report::of([examine(&args.probe), probes.concat()].concat());
    if args.json {
        println!("{}", serde_json::to_string_pretty(&report)?);
    } else {
        println!("{}", render::table(&report));
    }
    Ok(ExitCode::SUCCESS)
}
