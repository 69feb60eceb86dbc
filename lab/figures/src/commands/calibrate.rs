//! `tailplane calibrate`: the cost model of this machine, for the multi-core simulator.
//!
//! ```text
//! tailplane calibrate                    half a minute, a table
//! tailplane calibrate --quick --json     a few seconds, for scripts
//! tailplane calibrate -o costs.toml      the constants, to be read and changed
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};
use reproduce::Grid;
use serde_json::json;
use world::calibrate::{Calibration, Effort, calibrate};

use crate::demo::processors::places;

/// Arguments of `tailplane calibrate`.
///
/// Each step of an elastic thread is timed on the `shm` driver, whose other end runs on a second core and
/// stands for a NIC; then what crosses cores, and a server on the kernel's own stack. Windows that
/// something disturbed are thrown away and repeated.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Fewer and shorter windows: for a look.
    #[arg(long)]
    pub quick: bool,
    /// Print as JSON.
    #[arg(long)]
    pub json: bool,
    /// Write the constants to this file, as TOML.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Runs `tailplane calibrate`.
///
/// # Errors
/// Fewer than two processors, or a file that could not be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let (calibration, realtime) = measure(args.quick)?;
    if let Some(path) = &args.output {
        std::fs::write(path, calibration.costs.to_toml())
            .with_context(|| format!("writing the costs to '{}'", path.display()))?;
    }
    if args.json {
        println!("{}", serde_json::to_string_pretty(&as_json(&calibration, realtime))?);
    } else {
        println!("{}", table(&calibration));
        println!("{}", calibration.costs);
    }
    Ok(ExitCode::SUCCESS)
}

/// The constants of this machine, and whether the threads had real-time priority.
///
/// # Errors
/// Fewer than two processors; what the measurement says.
pub fn measure(quick: bool) -> anyhow::Result<(Calibration, bool)> {
    if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        bail!("calibrating needs two processors: one is measured, the other stands for the device");
    }
    let places = places();
    let effort = if quick { Effort::QUICK } else { Effort::FULL };
    let calibration = calibrate(effort, &|side| places.take(side))
        .context("measuring the costs of this machine")?;
    Ok((calibration, places.are_realtime()))
}

fn as_json(calibration: &Calibration, realtime: bool) -> serde_json::Value {
    let priority = if realtime { "real-time in windows" } else { "ordinary" };
    json!({ "costs": calibration.costs, "priority": priority, "found": calibration.found })
}

fn table(calibration: &Calibration) -> Grid {
    let mut table = Grid::new(["measured", "median ns", "least", "greatest", "windows"]);
    for found in &calibration.found {
        let mark = if found.disturbed { " disturbed" } else { "" };
        table.row([
            found.name.clone(),
            format!("{:.1}", found.median_ns),
            format!("{:.1}", found.low_ns),
            format!("{:.1}", found.high_ns),
            format!("{} (+{}){mark}", found.windows, found.discarded),
        ]);
    }
    table.row(["", "", "", "", ""]);
    for (name, ns) in calibration.costs.entries() {
        table.row([name.to_owned(), format!("{ns:.1}")]);
    }
    table
}
