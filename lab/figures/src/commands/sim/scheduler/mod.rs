//! `tailplane sim scheduler`: which scheduler and which batch bound suit a service, before it is built.
//!
//! ```text
//! tailplane sim scheduler --law bimodal-1 --mean-us 10 --cores 16
//! tailplane sim scheduler --trace times.txt --cores 8 --slo-us 200 --rate 400000
//! tailplane sim scheduler --law exponential --mean-us 5 --cores 4 --costs zero --quick --json -
//! ```
//!
//! `question` checks what was asked, `trace` reads a user's own service times, `candidates` simulates what
//! may be chosen, `recommend` chooses, `report` tells.

mod arguments;
mod candidates;
mod question;
mod recommend;
mod report;
mod trace;

use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressStyle};

pub use arguments::Args;

use super::super::{save, say};
use candidates::Progress;
use question::Question;

/// Runs `tailplane sim scheduler`.
///
/// # Errors
/// What was asked is out of its range, with what is allowed; a file that could not be read or written;
/// costs that could not be measured.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let bar = ProgressBar::new(candidates::steps(args.rate.is_some()));
    bar.set_style(ProgressStyle::with_template("{elapsed:>4} {wide_bar} {pos}/{len} {msg}")?);
    let question = Question::new(&args, || {
        bar.set_message("measuring this machine's costs");
        bar.tick();
    });
    let question = question.inspect_err(|_| bar.finish_and_clear())?;
    let progress: Progress<'_> = &|steps, message| {
        bar.inc(steps);
        bar.set_message(message.to_owned());
    };
    let found = candidates::simulate_all(&question, progress);
    bar.finish_and_clear();
    let found = found?;
    let advice = recommend::advise(&question, &found);
    let text = report::text(&question, &found, advice.as_ref());
    say(args.json.as_ref(), &text);
    if let Some(path) = &args.json {
        save(path, &(report::json(&question, &found, advice.as_ref())? + "\n"))?;
    }
    Ok(ExitCode::SUCCESS)
}
