//! What a figure found: the JSON that scripts rely on, and that the pages and tables are made of.
//!
//! ```text
//! {"format": 1, "figure": "ix/fig4", "conditions": {…},
//!  "claims": [{"id": "…", "paper": 3.3, "goal": 10.0, "measured": 3.1, "mode": "real", "met": false}],
//!  "series": [{"chart": "latency", "name": "tailplane", "x": {…}, "y": {…}, "points": [{"x": 64, "y": 5.8, …}]}],
//!  "partial": "…", "not_run": "…", "notes": ["…"], "repeats": 5}
//! ```
//!
//! A number is measured or absent (`null`); `met` is `null` where nothing was measured. Results are
//! filled by [`crate::Recorder`], which keeps them consistent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::claims::{Better, Claim, Mode};
use crate::measured::{Measured, REPEATS_MIN};
use crate::number::{Finite, show};

/// Version of the format. It changes when a field changes its meaning or goes away; new fields
/// leave it as it is.
pub const FORMAT: u32 = 1;

/// How an axis divides its length.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scale {
    /// Equal lengths for equal differences.
    #[default]
    Linear,
    /// Equal lengths for equal ratios.
    Log,
    /// One place for each [`Point::label`], in order of appearance: a table's rows.
    Category,
}

/// What stands on an axis.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Axis {
    /// The quantity.
    pub label: String,
    /// Its unit; empty for ratios and counts.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub unit: String,
    /// How it is divided.
    #[serde(default)]
    pub scale: Scale,
    /// Where it starts; from the data where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<Finite>,
    /// Where it ends; from the data where absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<Finite>,
}

impl Axis {
    /// Linear, from zero or the data.
    pub fn linear(label: &str, unit: &str) -> Self {
        Self { label: label.to_owned(), unit: unit.to_owned(), ..Self::default() }
    }

    /// Logarithmic.
    pub fn log(label: &str, unit: &str) -> Self {
        Self { scale: Scale::Log, ..Self::linear(label, unit) }
    }

    /// By the labels of the points.
    pub fn category(label: &str) -> Self {
        Self { scale: Scale::Category, ..Self::linear(label, "") }
    }

    /// With fixed ends; an end that is not a number stays open.
    #[must_use]
    pub fn range(self, low: f64, high: f64) -> Self {
        Self { low: Finite::new(low), high: Finite::new(high), ..self }
    }

    /// Label and unit as one text.
    pub fn title(&self) -> String {
        match self.unit.as_str() {
            "" => self.label.clone(),
            unit => format!("{} ({unit})", self.label),
        }
    }
}

/// Whose number a mark is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum MarkOf {
    /// The paper measured it.
    Paper,
    /// We want to reach it.
    Goal,
    /// A service-level objective.
    Objective,
    /// The wire or the machine allows no more.
    Limit,
}

/// A number to compare with: a vertical line at `x`, a horizontal one at `y`, or a point at both.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mark {
    /// Whose it is.
    pub of: MarkOf,
    /// In words, with the number.
    pub label: String,
    /// Its place along the x axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub x: Option<Finite>,
    /// Its place along the y axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub y: Option<Finite>,
}

impl Mark {
    /// A vertical line. Where `x` is not a number the mark has no place, and is not drawn.
    pub fn vertical(of: MarkOf, x: f64, label: impl Into<String>) -> Self {
        Self { of, label: label.into(), x: Finite::new(x), y: None }
    }

    /// A horizontal line; `y` as in [`Self::vertical`].
    pub fn horizontal(of: MarkOf, y: f64, label: impl Into<String>) -> Self {
        Self { of, label: label.into(), x: None, y: Finite::new(y) }
    }

    /// A point; without a number on either side there is no place for it.
    pub fn point(of: MarkOf, x: f64, y: f64, label: impl Into<String>) -> Self {
        let place = Finite::new(x).zip(Finite::new(y)).unzip();
        Self { of, label: label.into(), x: place.0, y: place.1 }
    }
}

/// One plot: axes, marks, and the series that name it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Chart {
    /// By which series name it; unique in a result.
    pub name: String,
    /// What a reader sees above it.
    pub title: String,
    /// Along the bottom.
    pub x: Axis,
    /// Up the side.
    pub y: Axis,
    /// Numbers to compare with.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub marks: Vec<Mark>,
}

/// Where a series comes from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Measured in this run.
    #[default]
    Measured,
    /// Read from the paper.
    Paper,
    /// Computed by a model.
    Theory,
}

/// Points of one system along one axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Series {
    /// The [`Chart::name`] of the plot that it belongs to.
    pub chart: String,
    /// The system, or what else makes it differ from its neighbours.
    pub name: String,
    /// Where it comes from.
    #[serde(default)]
    pub role: Role,
    /// The chart's x axis.
    pub x: Axis,
    /// The chart's y axis.
    pub y: Axis,
    /// In the order of measurement.
    pub points: Vec<Point>,
    /// Why it was not measured, where it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_run: Option<String>,
}

/// One point of a series.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Point {
    /// Its place; on a category axis its index.
    pub x: Finite,
    /// Its name on a category axis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// The value, or the median of the repeats.
    pub y: Option<Finite>,
    /// Lower end of the spread.
    pub low: Option<Finite>,
    /// Upper end of the spread.
    pub high: Option<Finite>,
    /// Repeats that count.
    pub n: u64,
    /// Repeats that were disturbed and left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub discarded: u64,
    /// Whether it may be used.
    pub valid: bool,
    /// Why not, or what else to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Point {
    pub(crate) fn new(x: Finite, label: Option<String>, measured: &Measured) -> Self {
        Self {
            x,
            label,
            y: measured.value,
            low: measured.low,
            high: measured.high,
            n: measured.n,
            discarded: measured.discarded,
            valid: measured.is_valid(),
            note: measured.remarks(),
        }
    }
}

/// A claim, and what became of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClaimResult {
    /// The claim's name.
    pub id: String,
    /// What the paper measured.
    pub paper: Option<Finite>,
    /// What we want.
    pub goal: Finite,
    /// What was measured, undisturbed.
    pub measured: Option<Finite>,
    /// How it was measured; how it should be, where it was not.
    pub mode: Mode,
    /// Whether the goal is met; absent where nothing was measured.
    pub met: Option<bool>,
    /// Whether the whole spread meets the goal; absent where there is no spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub met_throughout: Option<bool>,
    /// Which way is better.
    pub better: Better,
    /// Whether it is as good as the paper's; absent where either is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub meets_paper: Option<bool>,
    /// The claim in words.
    pub text: String,
    /// Lower end of the spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub low: Option<Finite>,
    /// Upper end of the spread.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub high: Option<Finite>,
    /// Repeats that count.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub n: u64,
    /// Repeats that were disturbed and left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub discarded: u64,
    /// Why it was not measured, where it was not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_run: Option<String>,
    /// What else to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
}

impl ClaimResult {
    /// `claim`, not measured, because of `reason`.
    pub fn not_run(claim: &Claim, reason: impl Into<String>) -> Self {
        Self::of(claim, claim.mode, &Measured::missing(reason))
    }

    /// `claim`, judged by what was measured in `mode`. A disturbed measurement is none.
    pub fn of(claim: &Claim, mode: Mode, measured: &Measured) -> Self {
        let value = measured.value.filter(|_| measured.is_valid());
        // Simulations and models have intervals of their own; on real threads few repeats have none.
        let has_spread = value.is_some() && (mode != Mode::Real || measured.n >= REPEATS_MIN);
        let (low, high) = match has_spread {
            true => (measured.low, measured.high),
            false => (None, None),
        };
        let (mut not_run, mut note) = (None, None);
        if value.is_none() {
            let gave = measured.value().map(|value| format!(" (it gave {})", show(value)));
            not_run = Some(measured.remarks().unwrap_or_default() + &gave.unwrap_or_default());
        } else {
            let other = (mode != claim.mode)
                .then(|| format!("measured in mode {mode}; the claim is of mode {}", claim.mode));
            let notes: Vec<String> = other.into_iter().chain(measured.note.clone()).collect();
            note = (!notes.is_empty()).then(|| notes.join("; "));
        }
        Self {
            id: claim.id.clone(),
            paper: claim.paper,
            goal: claim.goal,
            measured: value,
            mode: if value.is_some() { mode } else { claim.mode },
            met: value.map(|value| claim.judge(value.get())),
            met_throughout: low
                .zip(high)
                .map(|(low, high)| claim.judge(low.get()) && claim.judge(high.get())),
            better: claim.better,
            meets_paper: value.and_then(|value| claim.meets_paper(value.get())),
            text: claim.text.clone(),
            low,
            high,
            n: measured.n,
            discarded: measured.discarded,
            not_run,
            note,
        }
    }

    /// `met`, `not met` or `not run`.
    pub fn verdict(&self) -> &'static str {
        match self.met {
            Some(true) => "met",
            Some(false) => "not met",
            None => "not run",
        }
    }
}

/// Everything that one figure found.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct FigureResult {
    /// Version of this format: [`FORMAT`].
    pub format: u32,
    /// The figure's name, `ix/fig4`.
    pub figure: String,
    /// In words.
    pub title: String,
    /// Where it stands in the papers.
    pub section: String,
    /// What was run, one paragraph.
    pub what: String,
    /// Under which all of this was measured.
    pub conditions: BTreeMap<String, String>,
    /// Judged, in the order of the figure.
    pub claims: Vec<ClaimResult>,
    /// The plots.
    #[serde(default)]
    pub charts: Vec<Chart>,
    /// What stands in them.
    pub series: Vec<Series>,
    /// Why the run ended early; what stands here was measured before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub partial: Option<String>,
    /// Why nothing was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub not_run: Option<String>,
    /// What else to know.
    #[serde(default)]
    pub notes: Vec<String>,
    /// Repeats of each measurement that were asked for.
    pub repeats: u32,
    /// Whether fewer and shorter measurements were asked for.
    #[serde(default)]
    pub quick: bool,
    /// How long the run took, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seconds: Option<Finite>,
}

impl FigureResult {
    /// As JSON, in lines.
    pub fn to_json(&self) -> String {
        // Strings, finite numbers and maps with string keys always serialize.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Whether anything was measured.
    pub fn is_empty(&self) -> bool {
        self.claims.iter().all(|claim| claim.measured.is_none())
            && self.series.iter().all(|series| {
                series.role != Role::Measured || series.points.iter().all(|point| point.y.is_none())
            })
    }

    /// The series of a chart, in order.
    pub fn series_of<'a>(&'a self, chart: &'a Chart) -> impl Iterator<Item = &'a Series> {
        self.series.iter().filter(|series| series.chart == chart.name)
    }
}

/// Several figures, as `reproduce all` writes them.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// Version of this format: [`FORMAT`].
    pub format: u32,
    /// Their results.
    pub figures: Vec<FigureResult>,
}

impl Report {
    /// Of these results.
    pub fn new(figures: Vec<FigureResult>) -> Self {
        Self { format: FORMAT, figures }
    }

    /// As JSON, in lines.
    pub fn to_json(&self) -> String {
        // As in `FigureResult::to_json`.
        serde_json::to_string_pretty(self).unwrap_or_default()
    }
}
