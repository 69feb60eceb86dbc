//! What a figure tells its caller while it runs, and how a caller tells it to stop.
//!
//! A figure says how many steps it will take, then names each one as it begins
//! ([`crate::Recorder::plan`], [`crate::Recorder::step`]). [`Silent`] shows nothing, [`Bar`] a bar with the
//! estimated remaining time, [`Lines`] one line a step, for logs.

use std::io::Write;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};

/// Where steps are reported.
pub trait Progress {
    /// A figure begins.
    fn begin(&mut self, figure: &str);
    /// It will take so many steps in all. A later call corrects an earlier one.
    fn plan(&mut self, steps: u64);
    /// A step begins; the one before is done.
    fn step(&mut self, what: &str);
    /// The figure has ended: `outcome` is one line.
    fn end(&mut self, outcome: &str);
    /// Whether the run should end at the next step, keeping what was measured.
    fn stop_requested(&self) -> bool {
        false
    }
}

/// Shows nothing.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Progress for Silent {
    fn begin(&mut self, _figure: &str) {}
    fn plan(&mut self, _steps: u64) {}
    fn step(&mut self, _what: &str) {}
    fn end(&mut self, _outcome: &str) {}
}

/// Steps done and planned, and the time that the remaining ones need if they are as long as
/// those before them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Eta {
    begun: u64,
    planned: u64,
}

impl Eta {
    /// So many steps in all.
    pub fn plan(&mut self, steps: u64) {
        self.planned = steps;
    }

    /// A step begins.
    pub fn step(&mut self) {
        self.begun += 1;
    }

    /// Steps that are done.
    pub fn done(&self) -> u64 {
        self.begun.saturating_sub(1)
    }

    /// Steps in all: as planned, or as begun where those are more.
    pub fn total(&self) -> u64 {
        self.planned.max(self.begun)
    }

    /// Time that is left, `elapsed` after the first step began; absent before a step is done.
    pub fn remaining(&self, elapsed: Duration) -> Option<Duration> {
        let done = self.done();
        if done == 0 || self.planned < self.begun {
            return None;
        }
        let left = self.total() - done;
        let seconds = elapsed.as_secs_f64() / done as f64 * left as f64;
        Duration::try_from_secs_f64(seconds).ok()
    }
}

/// `90 s`, `12 min`, `3.5 h`: as precise as an estimate is.
pub fn show_duration(duration: Duration) -> String {
    match duration.as_secs() {
        seconds @ 0..=99 => format!("{seconds} s"),
        seconds @ 100..=5_999 => format!("{} min", (seconds + 30) / 60),
        seconds => format!("{:.1} h", seconds as f64 / 3_600.0),
    }
}

/// A bar on the terminal (standard error), and one line as each figure ends; only the latter where
/// that is not a terminal.
#[derive(Debug, Default)]
pub struct Bar {
    bar: Option<ProgressBar>,
    eta: Eta,
    since: Option<Instant>,
}

/// How the bar looks: figure, bar, steps, what runs and what is left.
const BAR: &str = "{prefix:.bold} [{bar:24}] {pos}/{len} {elapsed} {wide_msg}";
/// How often its clock moves on while a step takes long.
const BAR_TICK: Duration = Duration::from_millis(500);

impl Progress for Bar {
    fn begin(&mut self, figure: &str) {
        let style = ProgressStyle::with_template(BAR)
            .map(|style| style.progress_chars("=> "))
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let bar = ProgressBar::new(0).with_style(style).with_prefix(figure.to_owned());
        bar.enable_steady_tick(BAR_TICK);
        *self = Self { bar: Some(bar), eta: Eta::default(), since: None };
    }

    fn plan(&mut self, steps: u64) {
        self.eta.plan(steps);
        if let Some(bar) = &self.bar {
            bar.set_length(self.eta.total());
        }
    }

    fn step(&mut self, what: &str) {
        self.eta.step();
        let since = *self.since.get_or_insert_with(Instant::now);
        let Some(bar) = &self.bar else { return };
        bar.set_length(self.eta.total());
        bar.set_position(self.eta.done());
        bar.set_message(match self.eta.remaining(since.elapsed()) {
            Some(left) => format!("{what}, about {} left", show_duration(left)),
            None => what.to_owned(),
        });
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

/// One line for each step, for logs and pipes.
#[derive(Debug)]
pub struct Lines<W> {
    to: W,
    figure: String,
    eta: Eta,
    since: Option<Instant>,
}

impl<W: Write> Lines<W> {
    /// Lines written to `to`. What cannot be written is dropped: a run must not end for a lost log.
    pub fn new(to: W) -> Self {
        Self { to, figure: String::new(), eta: Eta::default(), since: None }
    }
}

impl<W: Write> Progress for Lines<W> {
    fn begin(&mut self, figure: &str) {
        self.figure = figure.to_owned();
        self.eta = Eta::default();
        self.since = None;
    }

    fn plan(&mut self, steps: u64) {
        self.eta.plan(steps);
    }

    fn step(&mut self, what: &str) {
        self.eta.step();
        let since = *self.since.get_or_insert_with(Instant::now);
        let left = self
            .eta
            .remaining(since.elapsed())
            .map_or_else(String::new, |left| format!(" (about {} left)", show_duration(left)));
        let (at, of) = (self.eta.begun, self.eta.total());
        let _ = writeln!(self.to, "{}: {at}/{of} {what}{left}", self.figure);
    }

    fn end(&mut self, outcome: &str) {
        let _ = writeln!(self.to, "{}: {outcome}", self.figure);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_from_what_is_done() {
        let seconds = Duration::from_secs;
        let mut eta = Eta::default();
        eta.plan(4);
        eta.step();
        assert_eq!(eta.remaining(seconds(9)), None);
        eta.step();
        assert_eq!(eta.remaining(seconds(10)), Some(seconds(30)));
        eta.step();
        eta.step();
        assert_eq!((eta.done(), eta.remaining(seconds(30))), (3, Some(seconds(10))));
        // More steps than planned: no estimate rather than a wrong one.
        eta.step();
        assert_eq!((eta.total(), eta.remaining(seconds(40))), (5, None));
    }

    #[test]
    fn durations_are_as_precise_as_estimates() {
        let show = |seconds| show_duration(Duration::from_secs(seconds));
        assert_eq!((show(0), show(99)), ("0 s".to_owned(), "99 s".to_owned()));
        assert_eq!((show(100), show(5_999)), ("2 min".to_owned(), "100 min".to_owned()));
        assert_eq!(show(9_000), "2.5 h");
    }

    #[test]
    fn lines_name_figure_and_step() {
        let mut text = Vec::new();
        let mut lines = Lines::new(&mut text);
        lines.begin("ix/fig4");
        lines.plan(2);
        lines.step("64 B");
        lines.step("8 KB");
        lines.end("done");
        assert!(!lines.stop_requested());
        let text = String::from_utf8(text).unwrap();
        assert!(text.starts_with("ix/fig4: 1/2 64 B\nix/fig4: 2/2 8 KB (about 0 s left)\n"));
        assert!(text.ends_with("ix/fig4: done\n"));
    }

    #[test]
    fn a_bar_survives_any_order_of_calls() {
        let mut bar = Bar::default();
        bar.step("before its begin");
        bar.end("never begun");
        bar.begin("ix/fig4");
        bar.step("not planned");
        bar.plan(0);
        bar.step("more than planned");
        assert_eq!(bar.eta.total(), 2);
        bar.end("done");
    }
}
