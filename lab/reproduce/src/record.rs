//! What a figure writes its measurements to, one at a time, so that nothing measured is lost when
//! a later step fails.
//!
//! ```
//! use reproduce::{Axis, Mark, MarkOf, Measured, Recorder};
//! fn latency(recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
//!     let chart = recorder.chart(
//!         "latency",
//!         "One-way latency",
//!         Axis::log("message size", "bytes"),
//!         Axis::linear("latency", "us"),
//!     );
//!     recorder.mark(chart, Mark::horizontal(MarkOf::Paper, 5.8, "IX, 64 B: 5.8 us"));
//!     let ours = recorder.series(chart, "tailplane");
//!     recorder.plan(2);
//!     for bytes in [64.0, 8192.0] {
//!         recorder.step(&format!("{bytes} bytes"))?;
//!         let samples = [5.0 + bytes / 1000.0, 5.1 + bytes / 1000.0]; // measured here
//!         recorder.point(ours, bytes, Measured::samples(&samples));
//!     }
//!     recorder.claim("ix.fig4.one_way_latency_64B_vs_linux_blocking", Measured::single(3.4))?;
//!     Ok(())
//! }
//! # let _ = latency;
//! ```

use std::time::Instant;

use anyhow::bail;

use crate::claims::{Claims, Mode};
use crate::measured::Measured;
use crate::number::Finite;
use crate::progress::Progress;
use crate::result::{Axis, Chart, ClaimResult, FigureResult, Mark, Point, Role, Scale, Series};

/// How a figure is to be run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Options {
    /// Fewer and shorter measurements: for a look, not for a result.
    pub quick: bool,
    /// Repeats of each measurement.
    pub repeats: u32,
    /// All that is drawn at random follows from it.
    pub seed: u64,
}

impl Options {
    /// As results are measured: five repeats.
    pub const FULL: Self = Self { quick: false, repeats: 5, seed: 1 };
    /// For a look: two repeats.
    pub const QUICK: Self = Self { quick: true, repeats: 2, seed: 1 };
}

/// A chart of the recorder that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChartId(usize);

/// A series of the recorder that gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SeriesId(usize);

/// The run was asked to stop; what was measured stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("stopped on request")]
pub struct Stopped;

/// Collects the result of one figure while it runs.
pub struct Recorder<'a> {
    result: FigureResult,
    /// Which of the result's claims the figure has reported.
    reported: Vec<bool>,
    claims: &'a Claims,
    options: Options,
    progress: &'a mut dyn Progress,
    since: Instant,
}

/// Reason of a claim that a run without errors left out.
const NOT_REPORTED: &str = "the figure did not report it";

impl<'a> Recorder<'a> {
    /// For a result without measurements.
    pub(crate) fn new(
        mut result: FigureResult,
        claims: &'a Claims,
        options: Options,
        progress: &'a mut dyn Progress,
    ) -> Self {
        result.conditions.insert("seed".to_owned(), options.seed.to_string());
        let reported = vec![false; result.claims.len()];
        Self { result, reported, claims, options, progress, since: Instant::now() }
    }

    /// How the figure is to be run.
    pub fn options(&self) -> Options {
        self.options
    }

    /// The run will take so many steps; a later call corrects an earlier one.
    pub fn plan(&mut self, steps: u64) {
        self.progress.plan(steps);
    }

    /// A step begins.
    ///
    /// # Errors
    /// The caller wants the run to stop. Hand it on with `?`: what was measured stands.
    pub fn step(&mut self, what: &str) -> Result<(), Stopped> {
        if self.progress.stop_requested() {
            return Err(Stopped);
        }
        self.progress.step(what);
        Ok(())
    }

    /// One of the conditions under which this figure was measured.
    pub fn condition(&mut self, name: &str, value: impl ToString) {
        self.result.conditions.insert(name.to_owned(), value.to_string());
    }

    /// Something that a reader of the result should know.
    pub fn note(&mut self, text: impl Into<String>) {
        self.result.notes.push(text.into());
    }

    /// A plot. With a name that a chart of this result has, that chart.
    pub fn chart(&mut self, name: &str, title: &str, x: Axis, y: Axis) -> ChartId {
        let known = self.result.charts.iter().position(|chart| chart.name == name);
        ChartId(known.unwrap_or_else(|| {
            self.result.charts.push(Chart {
                name: name.to_owned(),
                title: title.to_owned(),
                x,
                y,
                marks: Vec::new(),
            });
            self.result.charts.len() - 1
        }))
    }

    /// A number to compare with.
    ///
    /// # Panics
    /// `chart` is of another recorder.
    pub fn mark(&mut self, chart: ChartId, mark: Mark) {
        if mark.x.is_none() && mark.y.is_none() {
            self.note(format!("mark \"{}\" has no place: left out", mark.label));
            return;
        }
        self.result.charts[chart.0].marks.push(mark);
    }

    /// A series that is measured in this run. A name may stand once in each chart; a second time
    /// it gives the same series.
    ///
    /// # Panics
    /// `chart` is of another recorder.
    pub fn series(&mut self, chart: ChartId, name: &str) -> SeriesId {
        self.series_as(chart, name, Role::Measured)
    }

    /// A series to compare with: of the paper, or of a model.
    ///
    /// # Panics
    /// `chart` is of another recorder.
    pub fn series_as(&mut self, chart: ChartId, name: &str, role: Role) -> SeriesId {
        let chart = &self.result.charts[chart.0];
        let known = self
            .result
            .series
            .iter()
            .position(|series| series.chart == chart.name && series.name == name);
        SeriesId(known.unwrap_or_else(|| {
            self.result.series.push(Series {
                chart: chart.name.clone(),
                name: name.to_owned(),
                role,
                x: chart.x.clone(),
                y: chart.y.clone(),
                points: Vec::new(),
                not_run: None,
            });
            self.result.series.len() - 1
        }))
    }

    /// A point of a series. One whose `x` is not a number is left out, and noted.
    ///
    /// # Panics
    /// `series` is of another recorder.
    pub fn point(&mut self, series: SeriesId, x: f64, measured: Measured) {
        let series = &mut self.result.series[series.0];
        match Finite::new(x) {
            Some(x) => series.points.push(Point::new(x, None, &measured)),
            None => {
                let note = format!("a point of \"{}\" stood at {x}: left out", series.name);
                self.result.notes.push(note);
            }
        }
    }

    /// The point of a series at `label` of its category axis; the same label has the same place
    /// in all series of a chart.
    ///
    /// # Panics
    /// `series` is of another recorder.
    pub fn category(&mut self, series: SeriesId, label: &str, measured: Measured) {
        debug_assert_eq!(self.result.series[series.0].x.scale, Scale::Category);
        let chart = self.result.series[series.0].chart.as_str();
        let points =
            || self.result.series.iter().filter(|of| of.chart == chart).flat_map(|of| &of.points);
        let known = points().find(|point| point.label.as_deref() == Some(label));
        let x = known
            .map(|point| point.x)
            .or_else(|| Finite::new(points().map(|point| point.x.get() + 1.0).fold(0.0, f64::max)));
        if let Some(x) = x {
            let point = Point::new(x, Some(label.to_owned()), &measured);
            self.result.series[series.0].points.push(point);
        }
    }

    /// A measured series of that name with these points, as [`Self::point`].
    pub fn curve<M: Into<Measured>>(
        &mut self,
        chart: ChartId,
        name: &str,
        points: impl IntoIterator<Item = (f64, M)>,
    ) {
        self.curve_as(chart, name, Role::Measured, points);
    }

    /// The same of a series to compare with.
    pub fn curve_as<M: Into<Measured>>(
        &mut self,
        chart: ChartId,
        name: &str,
        role: Role,
        points: impl IntoIterator<Item = (f64, M)>,
    ) {
        let series = self.series_as(chart, name, role);
        for (x, measured) in points {
            self.point(series, x, measured.into());
        }
    }

    /// A series is not measured on this machine, or not in this run.
    ///
    /// # Panics
    /// `series` is of another recorder.
    pub fn series_not_run(&mut self, series: SeriesId, reason: impl Into<String>) {
        self.result.series[series.0].not_run = Some(reason.into());
    }

    /// What was measured for a claim, in the claim's own mode. A later call replaces an earlier one.
    ///
    /// # Errors
    /// The figure does not name this claim.
    pub fn claim(&mut self, id: &str, measured: Measured) -> anyhow::Result<()> {
        let mode = self.claims.get(id).map_or(Mode::Real, |claim| claim.mode);
        self.claim_in(mode, id, measured)
    }

    /// The same, measured in a mode that may not be the claim's own; the result then says so.
    ///
    /// # Errors
    /// As [`Self::claim`].
    pub fn claim_in(&mut self, mode: Mode, id: &str, measured: Measured) -> anyhow::Result<()> {
        let index = self.result.claims.iter().position(|claim| claim.id == id);
        let (Some(index), Some(claim)) = (index, self.claims.get(id)) else {
            let figure = &self.result.figure;
            bail!(
                "figure {figure} reported claim `{id}`, which is not in its list; add it to `claims`"
            );
        };
        self.result.claims[index] = ClaimResult::of(claim, mode, &measured);
        self.reported[index] = true;
        Ok(())
    }

    /// A claim cannot be measured here.
    ///
    /// # Errors
    /// As [`Self::claim`].
    pub fn claim_not_run(&mut self, id: &str, reason: impl Into<String>) -> anyhow::Result<()> {
        self.claim(id, Measured::missing(reason))
    }

    /// The result of a run that ended with `outcome`.
    pub(crate) fn finish(mut self, outcome: anyhow::Result<()>) -> FigureResult {
        self.result.seconds = Finite::new(self.since.elapsed().as_secs_f64());
        let reason = outcome.err().map(|error| format!("{error:#}"));
        for (claim, reported) in self.result.claims.iter_mut().zip(&self.reported) {
            if !reported {
                let reason = reason.clone().unwrap_or_else(|| NOT_REPORTED.to_owned());
                claim.not_run = Some(reason);
            }
        }
        match reason {
            Some(reason) if self.result.is_empty() => self.result.not_run = Some(reason),
            Some(reason) => self.result.partial = Some(reason),
            None => {}
        }
        self.progress.end(&outcome_line(&self.result));
        self.result
    }
}

/// One line for the end of a run.
fn outcome_line(result: &FigureResult) -> String {
    if let Some(reason) = &result.not_run {
        return format!("not run: {reason}");
    }
    let count = |verdict| result.claims.iter().filter(|claim| claim.verdict() == verdict).count();
    let mut line = format!(
        "{} of {} claims met, {} not met, {} not run",
        count("met"),
        result.claims.len(),
        count("not met"),
        count("not run")
    );
    if let Some(reason) = &result.partial {
        line += &format!("; partial: {reason}");
    }
    line
}
