//! `tailplane reproduce`: the papers' figures and tables, measured here.
//!
//! ```text
//! tailplane reproduce list
//! tailplane reproduce ix/fig4 --quick --json -
//! tailplane reproduce all --html report.html
//! ```

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, anyhow};
use reproduce::{Bar, Claims, FigureResult, Options, Report, Setup, render, select};

use super::{allowed, is_stdout, save, say};
use crate::reproduce::{FIGURES, Testbed};

/// Arguments of `tailplane reproduce`.
///
/// A figure runs what the paper ran, as far as this machine can, and fills the claims of claims.toml
/// that are its own: the paper's figure, our goal, and what was measured here, never anything else.
/// What cannot run here is reported as not run, with the reason.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// A figure (`ix/fig4`), a paper (`ix`), `all`, or `list`.
    #[arg(value_name = "FIGURE")]
    pub figure: String,
    /// Fewer and shorter measurements: for a look, not for a result.
    #[arg(long)]
    pub quick: bool,
    /// Repeats of each measurement, of which the median and the spread are told.
    #[arg(long, value_name = "N")]
    pub repeats: Option<u32>,
    /// Write the result as JSON; `-`: to standard output, and the tables to standard error.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
    /// Write a page with plots.
    #[arg(long, value_name = "FILE")]
    pub html: Option<PathBuf>,
    /// Write the claims as a table into this document, between the two lines that mark its place
    /// (docs/results/measured.md has them). A quick run is for a look: it is never written there.
    #[arg(long, value_name = "FILE", conflicts_with = "quick")]
    pub into: Option<PathBuf>,
    /// Seed of arrivals, keys and choices.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
}

/// Runs `tailplane reproduce`.
///
/// # Errors
/// An unknown figure, or a file that could not be written. What a figure could not measure is in its
/// result.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let claims = Claims::builtin()?;
    if args.figure == "list" {
        print!("{}", render::list(FIGURES, &claims));
        return Ok(ExitCode::SUCCESS);
    }
    let figures = select(FIGURES, &args.figure)?;
    let usual = if args.quick { Options::QUICK } else { Options::FULL };
    let repeats = args.repeats.unwrap_or(usual.repeats);
    allowed("repeats", repeats, 1..=100)?;
    let options = Options { repeats, seed: args.seed, ..usual };
    let mut results: Vec<FigureResult> = Vec::new();
    let mut testbed = Testbed::default();
    for figure in figures {
        let mut bar = Bar::default();
        let mut setup = Setup::new(&claims, options, &mut bar);
        setup.conditions = measure::conditions::here();
        let result = figure.reproduce(&mut testbed, &mut setup)?;
        say(args.json.as_ref(), &render::text(&result));
        results.push(result);
        // After each figure: what was measured is not lost when the next one is interrupted.
        write(&args, &claims, &results)?;
    }
    if let Some(path) = &args.into {
        let document = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read '{}'", path.display()))?;
        let table = render::markdown(&results).map_err(anyhow::Error::msg)?;
        let document = render::into_document(&document, &table)
            .map_err(|fault| anyhow!("'{}' has no place for the table; {fault}", path.display()))?;
        save(path, &document)?;
    }
    if is_stdout(args.json.as_ref()) {
        println!("{}", json(&results));
    }
    let whole = results.iter().all(|result| result.partial.is_none());
    Ok(if whole { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// One figure's result alone, or a report of several.
fn json(results: &[FigureResult]) -> String {
    match results {
        [one] => one.to_json(),
        many => Report::new(many.to_vec()).to_json(),
    }
}

fn write(args: &Args, claims: &Claims, results: &[FigureResult]) -> anyhow::Result<()> {
    if let Some(path) = args.json.as_ref().filter(|path| !is_stdout(Some(path))) {
        save(path, &(json(results) + "\n"))?;
    }
    if let Some(path) = &args.html {
        let title = "tailplane: the papers' figures, measured";
        save(path, &render::page(title, results, Some(claims)))?;
    }
    Ok(())
}
