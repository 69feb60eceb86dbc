//! What a figure tells its caller while it runs, and how a caller tells it to stop.
//!
//! A figure says how many steps it will take, then names each one as it begins
//! ([`crate::Recorder::plan`], [`crate::Recorder::step`]). [`Silent`] shows nothing, [`Bar`] a bar with the
//! estimated remaining time.

use std::fmt;
use std::io::Write;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressState, ProgressStyle};

/// Where steps are reported.
pub trait Progress {
    /// A figure begins.
    fn begin(&mut self, _figure: &str) {}
    /// It will take so many steps in all. A later call corrects an earlier one.
    fn plan(&mut self, _steps: u64) {}
    /// A step begins; the one before is done.
    fn step(&mut self, _what: &str) {}
    /// What the step at hand does.
    fn detail(&mut self, _what: &str) {}
    /// A result that stands already.
    fn found(&mut self, _what: &str) {}
    /// The figure has ended: `outcome` is one line.
    fn end(&mut self, _outcome: &str) {}
    /// Whether the run should end at the next step, keeping what was measured.
    fn stop_requested(&self) -> bool {
        false
    }
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {}

/// `90 s`, `12 min`, `3.5 h`: as precise as an estimate is.
pub fn show_duration(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..=99 => format!("{seconds} s"),
        seconds @ 100..=5_999 => format!("{} min", (seconds + 30) / 60),
        seconds => format!("{:.1} h", seconds as f64 / 3_600.0),
    }
}

/// A bar on the terminal (standard error) with the time that is left if the steps to come are as
/// long as those before, and one line as each figure ends; where that is not a terminal, one line
/// for each step, too.
#[derive(Debug, Default)]
pub struct Bar {
    bar: Option<ProgressBar>,
    begun: u64,
    planned: u64,
}

/// How the bar looks: figure, bar, steps, time that passed and that is left, what runs.
const BAR: &str = "{prefix:.bold} [{bar:24}] {pos}/{len} {elapsed} (about {left} left) {wide_msg}";
/// How often its clock moves on while a step takes long.
const BAR_TICK: Duration = Duration::from_millis(500);

impl Bar {
    /// The bar with its length: as planned, or as begun where that is more.
    fn measured(&self) -> Option<&ProgressBar> {
        let bar = self.bar.as_ref()?;
        bar.set_length(self.planned.max(self.begun));
        Some(bar)
    }
}

/// The time that is left where the steps to come take as long as those that are done, on average: a long step has no
/// say in it before it ends. None before the first one has ended.
fn left(elapsed: Duration, done: u64, all: u64) -> Option<Duration> {
    let steps = all.saturating_sub(done) as f64 / done as f64;
    Duration::try_from_secs_f64(elapsed.as_secs_f64() * steps).ok()
}

fn write_left(state: &ProgressState, bar: &mut dyn fmt::Write) {
    let left = left(state.elapsed(), state.pos(), state.len().unwrap_or(0));
    // A bar's text has no place for an error.
    let _ = bar.write_str(&left.map_or("?".to_owned(), show_duration));
}

impl Progress for Bar {
    fn begin(&mut self, figure: &str) {
        let style = ProgressStyle::with_template(BAR)
            .map(|style| style.progress_chars("=> ").with_key("left", write_left))
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(0).with_style(style).with_prefix(figure.to_owned());
        bar.enable_steady_tick(BAR_TICK);
        *self = Self { bar: Some(bar), ..Self::default() };
    }

    fn plan(&mut self, steps: u64) {
        self.planned = steps;
        self.measured();
    }

    fn step(&mut self, what: &str) {
        self.begun += 1;
        if let Some(bar) = self.measured() {
            bar.set_position(self.begun - 1);
        }
        self.detail(what);
    }

    /// In place of the step's name, or, where there is no bar to be seen, a line.
    fn detail(&mut self, what: &str) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
            if bar.is_hidden() {
                // The log may be gone; a report must not fail for that.
                let _ = writeln!(std::io::stderr(), "{}: {what}", bar.prefix());
            }
        }
    }

    /// A line above the bar.
    fn found(&mut self, what: &str) {
        if let Some(bar) = &self.bar {
            // Before the bar is held: it answers nothing then.
            let figure = bar.prefix();
            bar.suspend(|| {
                // As in `detail`.
                let _ = writeln!(std::io::stderr(), "{figure}: {what}");
            });
        }
    }

    fn end(&mut self, outcome: &str) {
        if let Some(bar) = self.bar.take() {
            let figure = bar.prefix();
            bar.finish_and_clear();
            // The terminal may be gone; a report must not fail for that.
            let _ = writeln!(std::io::stderr(), "{figure}: {outcome}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_as_precise_as_estimates() {
        let show = |seconds| show_duration(Duration::from_secs(seconds));
        assert_eq!((show(0), show(99)), ("0 s".to_owned(), "99 s".to_owned()));
        assert_eq!((show(100), show(5_999)), ("2 min".to_owned(), "100 min".to_owned()));
        assert_eq!(show(9_000), "2.5 h");
    }

    #[test]
    fn what_is_left_is_the_mean_of_the_steps_done_for_each_to_come() {
        let after = |seconds, done| left(Duration::from_secs(seconds), done, 45);
        assert_eq!(after(5, 0), None);
        assert_eq!(after(90, 9), Some(Duration::from_secs(360)));
        assert_eq!((after(90, 45), after(90, 50)), (Some(Duration::ZERO), Some(Duration::ZERO)));
    }

    #[test]
    fn a_bar_survives_any_order_of_calls() {
        let mut bar = Bar::default();
        bar.step("before its begin");
        bar.detail("a part of it");
        bar.found("a result");
        bar.end("never begun");
        bar.begin("ix/fig4");
        bar.step("not planned");
        bar.detail("a part of it");
        bar.found("a result");
        bar.plan(0);
        bar.step("more than planned");
        assert_eq!(bar.measured().and_then(ProgressBar::length), Some(2));
        assert!(!bar.stop_requested());
        bar.end("done");
    }
}
