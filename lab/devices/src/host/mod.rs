//! The host's part: the commands.

mod archive;
mod arguments;
mod contents;
mod cpio;
mod fetch;
mod image;
mod machine;
mod modules;
mod paths;
mod runs;
mod script;
mod systemd;
mod table;
mod taps;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail, ensure};
use clap::{Parser, Subcommand};

use crate::boots::{BOOTS, Boot};
use crate::guest::CHECKS;
use contents::Programs;
use paths::Paths;

/// Runs tailplane on the drivers of real NICs, in machines that QEMU emulates.
///
/// QEMU, Debian's kernels and systemd are fetched as packages and unpacked below target/devices; nothing is installed. A boot is
/// a driver, a mode and a kernel: `list` shows all.
#[derive(Debug, Parser)]
#[command(
    name = "tailplane-devices",
    version,
    after_help = "Examples:
  tailplane-devices run --boot igb-zero-copy --short
  tailplane-devices run --json --into docs/results/devices.md
  echo 'ethtool -l dp0; tailplane doctor' | tailplane-devices exec igb-zero-copy
  tailplane-devices shell virtio-copy

In the guest dp0 is the dataplane's NIC, and cl0 the client's, with 10.9.0.1/24 in the namespace c
(`ip netns exec c ping 10.9.0.2`). Emulated processors are a hundred times slower than real ones: no time that is
measured there means anything. virtio-net needs root, for tap devices in a network namespace of their own."
)]
struct Cli {
    #[command(subcommand)]
    action: Action,
}

#[derive(Debug, Subcommand)]
enum Action {
    /// Fetch QEMU, the kernels and systemd; what is there already is not fetched again.
    Fetch {
        /// Look for newer kernels, and a newer QEMU.
        #[arg(long)]
        refresh: bool,
    },
    /// Boot, run the checks, and show a table. The exit status is 1 where a check failed.
    Run(RunArgs),
    /// Show all boots and checks.
    List,
    /// Boot and give a shell on the guest's console; `exit` ends the machine.
    Shell {
        /// The boot's name.
        boot: String,
        #[command(flatten)]
        product: Product,
    },
    /// Boot, run the shell script of the standard input in the guest, and end with its exit status.
    Exec {
        /// The boot's name.
        boot: String,
        /// End the machine after so many seconds.
        #[arg(long, value_name = "N", default_value_t = 300)]
        limit_s: u64,
        #[command(flatten)]
        product: Product,
    },
    #[command(hide = true, name = taps::COMMAND)]
    InTaps {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        program: Vec<OsString>,
    },
}

#[derive(Debug, clap::Args)]
struct RunArgs {
    /// Only these boots, or those whose names begin so; may be repeated.
    #[arg(long, value_name = "NAME")]
    boot: Vec<String>,
    /// Only these checks; may be repeated.
    #[arg(long, value_name = "NAME")]
    check: Vec<String>,
    /// Less traffic, and no schedulers: for a look between two changes.
    #[arg(long)]
    short: bool,
    /// Machines that run at once; by default one more than there are processors, since each waits now and then.
    #[arg(long, value_name = "N")]
    jobs: Option<usize>,
    /// Print what was found as JSON.
    #[arg(long)]
    json: bool,
    /// Write the table to this file, as Markdown.
    #[arg(long, value_name = "FILE")]
    into: Option<PathBuf>,
    #[command(flatten)]
    product: Product,
}

#[derive(Debug, clap::Args)]
struct Product {
    /// The program to try; by default the one that `cargo build --package cli` makes. `tailplane-lab` beside it is
    /// taken along.
    #[arg(long, value_name = "PATH")]
    binary: Option<PathBuf>,
    /// The daemon to try, in boots with systemd; by default `tailplaned` beside that program.
    #[arg(long, value_name = "PATH")]
    daemon: Option<PathBuf>,
}

impl Product {
    fn find(&self) -> anyhow::Result<Programs> {
        let own = std::env::current_exe().unwrap_or_default();
        let product = self.binary.clone().unwrap_or_else(|| own.with_file_name("tailplane"));
        ensure!(
            product.is_file(),
            "no program at '{}'; run `cargo build --package cli`, or name one with --binary",
            product.display()
        );
        let daemon = self.daemon.clone().unwrap_or_else(|| product.with_file_name("tailplaned"));
        let laboratory = Some(product.with_file_name("tailplane-lab"));
        let laboratory = laboratory.filter(|program| program.is_file());
        if laboratory.is_none() {
            eprintln!(
                "devices: no tailplane-lab beside '{}': README's load will not be found in the guest; run \
                 `cargo build --package figures`",
                product.display()
            );
        }
        Ok(Programs { product, laboratory, daemon })
    }
}

/// Runs the command.
///
/// # Errors
/// What could not be fetched, built or booted.
pub fn run() -> anyhow::Result<ExitCode> {
    match Cli::parse().action {
        Action::Fetch { refresh } => {
            fetch::fetch(&Paths::open()?, &BOOTS, refresh)?;
            Ok(ExitCode::SUCCESS)
        }
        Action::Run(args) => {
            let selected = select(&args.boot)?;
            if let Some(unknown) = args.check.iter().find(|name| !is_check(name)) {
                bail!("no check '{unknown}'; `list` shows them");
            }
            let wanted = runs::Wanted {
                boots: selected,
                checks: args.check,
                is_short: args.short,
                programs: args.product.find()?,
                jobs: args.jobs.unwrap_or_else(|| processors() + 1),
            };
            let results = runs::run(&Paths::open()?, &wanted)?;
            if args.json {
                println!("{}", serde_json::to_string_pretty(&results)?);
            } else {
                println!("{}", table::terminal(&results));
            }
            if let Some(file) = args.into {
                std::fs::write(&file, table::markdown(&results))
                    .with_context(|| format!("writing '{}'", file.display()))?;
            }
            Ok(if results.is_clean() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
        }
        Action::List => {
            list();
            Ok(ExitCode::SUCCESS)
        }
        Action::Shell { boot, product } => {
            script::shell(&Paths::open()?, &named(&boot)?, &product.find()?)
        }
        Action::Exec { boot, limit_s, product } => {
            script::exec(&Paths::open()?, &named(&boot)?, &product.find()?, limit_s)
        }
        Action::InTaps { program } => {
            taps::become_program(&program)?;
            Ok(ExitCode::FAILURE)
        }
    }
}

/// Processors that this process may use.
fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

fn is_check(name: &str) -> bool {
    CHECKS.iter().any(|check| check.name == name)
}

fn named(name: &str) -> anyhow::Result<Boot> {
    Boot::named(name).with_context(|| format!("no boot '{name}'; `list` shows them"))
}

/// The boots whose names begin with one of `names`; all where none is named. An exact name means that boot alone.
fn select(names: &[String]) -> anyhow::Result<Vec<Boot>> {
    let mut selected = Vec::new();
    for name in names {
        let exact = Boot::named(name).map(|boot| vec![boot]);
        let begin =
            || BOOTS.into_iter().filter(|boot| boot.name.starts_with(name.as_str())).collect();
        let found: Vec<Boot> = exact.unwrap_or_else(begin);
        ensure!(!found.is_empty(), "no boot '{name}'; `list` shows them");
        selected.extend(found);
    }
    if names.is_empty() {
        selected.extend(BOOTS);
    }
    Ok(selected)
}

fn list() {
    println!("Boots:");
    for boot in BOOTS {
        let (driver, kernel) = (boot.driver.module(), boot.kernel.name);
        println!("  {:<18} {driver:<11} {:<10} Linux {kernel}", boot.name, boot.expected);
    }
    println!("\nChecks, in their order:");
    for check in CHECKS {
        println!("  {:<18} {}", check.name, check.about);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exact_name_selects_one_boot_and_a_beginning_several() {
        let names = |name: &str| -> Vec<&str> {
            select(&[name.to_owned()]).expect("selects").iter().map(|boot| boot.name).collect()
        };
        assert_eq!(names("veth"), ["veth"]);
        assert!(names("igb").len() > 2);
        assert!(select(&["x".to_owned()]).is_err());
        assert_eq!(select(&[]).expect("all").len(), BOOTS.len());
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Cli::command().debug_assert();
    }
}
