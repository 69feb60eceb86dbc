//! Many windows: the search for the highest load within an objective, and the sweep over loads.
//!
//! Whatever ends them early, the points that were measured are kept, and the result says that it is
//! partial and why. A window in which the target did what no other load would change (closed all
//! connections, answered rubbish) ends them, too.

use std::io::{IsTerminal, Write};

use anyhow::bail;
use load::{
    Conditions, Limit, LoadConfig, LoadReport, Mode, Percentile, SearchConfig, SearchResult, Sheet,
    Verdict, judge, throughput_at_slo,
};
use measure::stats::Summary;
use measure::{MedianInterval, REPEATS_FOR_95, median_interval};
use reproduce::Grid;
use serde::Serialize;

use super::super::allowed;
use super::arguments::Args;
use super::carrier::Carrier;
use super::sweep::Sweep;

/// Most repeats.
const REPEATS_MAX: u32 = 100;
/// Repeats of a search unless told otherwise.
const REPEATS_SEARCH: u32 = 3;
/// The chance with which the interval encloses the median.
const LEVEL: f64 = 0.95;
/// How the interval is made, for the result.
const METHOD: &str = "order statistics of the repeats (sign test), distribution-free";

/// What is asked of the latency.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Objective {
    /// The percentile must not exceed this.
    pub us: f64,
    /// Which percentile.
    pub percentile: Percentile,
}

/// Which windows are to be measured.
#[derive(Debug)]
pub(super) struct Plan {
    objective: Option<Objective>,
    /// Loads to sweep; without them, a search.
    sweep: Option<Sweep>,
    search: SearchConfig,
    repeats: u32,
}

impl Plan {
    /// The plan that the arguments ask for; `None` for one window.
    ///
    /// # Errors
    /// Arguments that do not fit together.
    pub fn of(args: &Args) -> anyhow::Result<Option<Self>> {
        if args.slo_us.is_none() && args.sweep.is_none() {
            let given = [(args.svg.is_some(), "svg"), (args.repeats.is_some(), "repeats")];
            if let Some((_, name)) = given.iter().find(|(is_given, _)| *is_given) {
                bail!("`--{name}` needs `--slo-us` or `--sweep`: one window has no curve");
            }
            return Ok(None);
        }
        let usual = if args.sweep.is_some() { 1 } else { REPEATS_SEARCH };
        let repeats = args.repeats.unwrap_or(usual);
        allowed("repeats", repeats, 1..=REPEATS_MAX)?;
        let objective = args.slo_us.map(|us| Objective { us, percentile: args.slo_percentile });
        let search = SearchConfig {
            slo_p99_us: args.slo_us.unwrap_or(f64::MAX),
            percentile: args.slo_percentile,
            start_rps: args.slo_start,
            max_rps: args.slo_max,
            precision: args.slo_precision,
            retries: args.slo_retries,
            ..SearchConfig::default()
        };
        if objective.is_some() {
            search.validate()?;
        }
        Ok(Some(Self { objective, sweep: args.sweep, search, repeats }))
    }
}

/// One window.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Point {
    /// In which repeat, from 1 on.
    pub repeat: u32,
    /// The load that was offered, in requests per second.
    pub offered_rps: f64,
    /// The load that was answered.
    pub achieved_rps: f64,
    /// Percentiles of the latency, in microseconds.
    pub p50_us: f64,
    /// 90th.
    pub p90_us: f64,
    /// 99th.
    pub p99_us: f64,
    /// 99.9th.
    pub p999_us: f64,
    /// The longest.
    pub max_us: f64,
    /// Requests of the window.
    pub requests: u64,
    /// Errors of the run.
    pub errors: u64,
    /// Share of the requests that were sent too late.
    pub late_share: f64,
    /// How it was judged against the objective, where there is one.
    pub verdict: Option<Verdict>,
    /// Whether it may be used.
    pub valid: bool,
    /// Why not.
    pub invalid_reason: Option<String>,
}

/// One search.
#[derive(Clone, Debug, Serialize)]
struct Repeat {
    /// From 1 on.
    repeat: u32,
    /// The highest load that was answered within the objective; `None` where none was.
    throughput_at_slo_rps: Option<f64>,
    /// The load that was offered then.
    offered_rps: Option<f64>,
    /// Why there is no higher one.
    limit: Limit,
    /// Windows that it took.
    windows: usize,
}

/// The least and the greatest of the repeats.
#[derive(Clone, Copy, Debug, Serialize)]
struct Spread {
    min: f64,
    max: f64,
}

/// What a search or a sweep found.
#[derive(Debug, Default, Serialize)]
pub(super) struct Curve {
    /// `search` or `sweep`.
    kind: &'static str,
    /// Under which all of this was measured; the rate is that of the first window.
    pub conditions: Option<Conditions>,
    /// What is asked of the latency.
    pub slo: Option<Objective>,
    /// The median of the repeats' highest loads within the objective.
    pub throughput_at_slo_rps: Option<f64>,
    /// Their least and greatest.
    spread: Option<Spread>,
    /// What encloses the median of all repeats that could have been made.
    confidence: Option<MedianInterval>,
    /// How that was made, or why it was not.
    confidence_note: Option<String>,
    /// Each search.
    repeats: Vec<Repeat>,
    /// Every window, in the order of measurement.
    pub points: Vec<Point>,
    /// The whole report of the highest load within the objective.
    best: Option<LoadReport>,
    /// Whether it may be used.
    valid: bool,
    /// Why not.
    pub invalid_reason: Option<String>,
    /// Whether it ended before its end.
    pub partial: bool,
    /// Why.
    partial_reason: Option<String>,
}

/// Measures what `plan` says of the load `config`, in open loop.
///
/// # Errors
/// What went wrong before anything was measured; later it is in the result.
pub(super) fn measure(
    plan: &Plan,
    config: &LoadConfig,
    carrier: &mut Carrier,
) -> anyhow::Result<Curve> {
    let (points, repeats, bests) = (Vec::new(), Vec::new(), Vec::new());
    let mut measuring =
        Measuring { plan, config, carrier, points, conditions: None, repeats, bests };
    let outcome = (1..=plan.repeats).try_for_each(|repeat| {
        // Another seed, and with it other keys, which must be stored.
        let mut keys_stored = false;
        let mut window = |rps| measuring.window(repeat, rps, &mut keys_stored);
        match plan.sweep {
            Some(sweep) => sweep.loads().try_for_each(|rps| window(rps).map(drop)),
            None => {
                let found = throughput_at_slo(&plan.search, window)?;
                measuring.keep(repeat, found);
                Ok(())
            }
        }
    });
    end_progress();
    let Measuring { points, conditions, repeats, bests, .. } = measuring;
    let failure = match outcome {
        Err(error) if points.is_empty() => return Err(error),
        Err(error) => Some(format!("{error:#}")),
        Ok(()) => None,
    };
    let mut curve = Curve {
        kind: if plan.sweep.is_some() { "sweep" } else { "search" },
        conditions,
        slo: plan.objective,
        repeats,
        points,
        valid: true,
        partial: failure.is_some(),
        partial_reason: failure,
        ..Curve::default()
    };
    match plan.sweep {
        Some(_) => curve.judge_sweep(),
        None => curve.summarize(bests),
    }
    Ok(curve)
}

/// Measures windows and keeps their points.
struct Measuring<'a> {
    plan: &'a Plan,
    config: &'a LoadConfig,
    carrier: &'a mut Carrier,
    points: Vec<Point>,
    conditions: Option<Conditions>,
    repeats: Vec<Repeat>,
    /// The report of each search's highest load within the objective.
    bests: Vec<LoadReport>,
}

impl Measuring<'_> {
    fn window(
        &mut self,
        repeat: u32,
        rps: f64,
        keys_stored: &mut bool,
    ) -> anyhow::Result<LoadReport> {
        let mut load = self.config.clone();
        if let Mode::Open { rps: offered_rps, .. } = &mut load.mode {
            *offered_rps = rps;
        }
        load.seed = self.config.seed.wrapping_add(u64::from(repeat - 1));
        load.keys_stored = *keys_stored;
        let report = self.carrier.window(&load)?;
        *keys_stored = true;
        self.conditions.get_or_insert_with(|| report.conditions.clone());
        let point = self.point(repeat, rps, &report);
        progress(&point, self.plan.repeats);
        self.points.push(point);
        if report.fault.is_some() || report.partial {
            let reason = report.partial_reason.or(report.invalid_reason).unwrap_or_default();
            bail!("at {rps:.0} requests/s: {reason}");
        }
        Ok(report)
    }

    fn point(&self, repeat: u32, rps: f64, report: &LoadReport) -> Point {
        Point {
            repeat,
            offered_rps: rps,
            achieved_rps: report.achieved_rps,
            p50_us: report.p50_us,
            p90_us: report.p90_us,
            p99_us: report.p99_us,
            p999_us: report.p999_us,
            max_us: report.max_us,
            requests: report.requests,
            errors: report.errors,
            late_share: report.late_share,
            verdict: self.plan.objective.map(|_| judge(&self.plan.search, rps, report)),
            valid: report.valid,
            invalid_reason: report.invalid_reason.clone(),
        }
    }

    fn keep(&mut self, repeat: u32, found: SearchResult) {
        self.repeats.push(Repeat {
            repeat,
            throughput_at_slo_rps: found.best.as_ref().map(|best| best.achieved_rps),
            offered_rps: found.throughput_at_slo_rps,
            limit: found.limit,
            windows: found.probes.len(),
        });
        self.bests.extend(found.best);
    }
}

impl Curve {
    /// Why the agents, where there are any, must not think that all went well.
    pub fn failed(&self) -> Option<String> {
        self.partial_reason.clone()
    }

    /// Median, spread and interval of the searches.
    fn summarize(&mut self, mut bests: Vec<LoadReport>) {
        let rates: Vec<f64> =
            self.repeats.iter().filter_map(|repeat| repeat.throughput_at_slo_rps).collect();
        if let Some(summary) = Summary::of(&rates) {
            self.throughput_at_slo_rps = Some(summary.median);
            self.spread = Some(Spread { min: summary.min, max: summary.max });
        }
        self.confidence = median_interval(&rates, LEVEL);
        self.confidence_note = Some(match self.confidence {
            Some(_) => METHOD.to_owned(),
            None => format!(
                "none: {} repeats were measured, a {:.0} % interval needs {REPEATS_FOR_95} \
                 (`--repeats`)",
                rates.len(),
                LEVEL * 100.0
            ),
        });
        bests.sort_by(|a, b| a.achieved_rps.total_cmp(&b.achieved_rps));
        self.best = bests.into_iter().next_back();
        let missed = self.repeats.iter().filter(|repeat| repeat.offered_rps.is_none()).count();
        if missed > 0 {
            let of = self.repeats.len();
            self.invalid(format!("in {missed} of {of} repeats {}", self.never_met()));
        }
        if let Some(reason) = self.partial_reason.clone() {
            self.invalid(reason);
        }
    }

    /// What was found at the lowest load, where none is within the objective.
    fn never_met(&self) -> String {
        let lowest = self
            .points
            .iter()
            .filter(|point| point.verdict != Some(Verdict::Pass))
            .min_by(|a, b| a.offered_rps.total_cmp(&b.offered_rps));
        let (Some(point), Some(slo)) = (lowest, self.slo) else { return String::new() };
        let found = match slo.percentile {
            Percentile::P50 => point.p50_us,
            Percentile::P90 => point.p90_us,
            Percentile::P99 => point.p99_us,
            Percentile::P999 => point.p999_us,
        };
        let (rps, us, percentile) = (point.offered_rps, slo.us, slo.percentile);
        let mut text = format!(
            "the objective was met at no load: at the lowest that was tried, {rps:.0} requests/s, p{percentile} \
             was {found:.1} us, the objective is {us} us"
        );
        match &point.invalid_reason {
            Some(reason) => text += &format!(" ({reason})"),
            None => text += "; raise `--slo-us`, or see with `--sweep` what the service does",
        }
        text
    }

    /// The points of each load that was offered, from the least to the greatest.
    pub fn by_load(&self) -> Vec<Vec<&Point>> {
        let mut points: Vec<&Point> = self.points.iter().collect();
        points.sort_by(|a, b| a.offered_rps.total_cmp(&b.offered_rps));
        points.chunk_by(|a, b| a.offered_rps == b.offered_rps).map(<[_]>::to_vec).collect()
    }

    /// Every load must have a window that may be used.
    fn judge_sweep(&mut self) {
        let loads = self.by_load();
        let bad = |points: &&Vec<&Point>| points.iter().all(|point| !point.valid);
        let count = loads.iter().filter(bad).count();
        let reason = self.points.iter().find_map(|point| point.invalid_reason.clone());
        if let Some(reason) = self.partial_reason.clone() {
            self.invalid(reason);
        } else if let (1.., Some(reason)) = (count, reason) {
            let of = loads.len();
            self.invalid(format!(
                "{count} of {of} loads have no valid window, the first: {reason}"
            ));
        }
    }

    fn invalid(&mut self, reason: String) {
        self.valid = false;
        self.invalid_reason.get_or_insert(reason);
    }

    /// For a person to read.
    pub fn to_table(&self) -> String {
        let mut sheet = Sheet::default();
        let rows = self.conditions.iter().flat_map(Conditions::rows);
        for (label, value) in rows.filter(|(label, _)| *label != "mode") {
            sheet.row(label, value);
        }
        if let Some(slo) = self.slo {
            sheet.row("objective", format!("p{} within {} us", slo.percentile, slo.us));
        }
        sheet.push(self.windows());
        self.found(&mut sheet);
        let invalid = self.points.iter().filter(|point| !point.valid).count();
        if let (1.., Some(point)) = (invalid, self.points.iter().find(|point| !point.valid)) {
            let reason = point.invalid_reason.as_deref().unwrap_or_default();
            let of = self.points.len();
            sheet.row("windows", format!("{invalid} of {of} were invalid, the first: {reason}"));
        }
        match &self.invalid_reason {
            None => sheet.row("valid", "yes"),
            Some(reason) => sheet.row("valid", format!("NO: {reason}")),
        }
        if let Some(reason) = &self.partial_reason {
            sheet.row("partial", reason);
        }
        sheet.to_string()
    }

    /// Every window, one a row.
    fn windows(&self) -> Grid {
        let mut grid = Grid::new([
            "repeat",
            "offered /s",
            "achieved /s",
            "p50 us",
            "p99 us",
            "p99.9 us",
            "verdict",
        ]);
        for p in &self.points {
            let rates = [p.offered_rps, p.achieved_rps].map(|rps| format!("{rps:.0}"));
            let latencies = [p.p50_us, p.p99_us, p.p999_us].map(|us| format!("{us:.1}"));
            let all = [p.repeat.to_string()].into_iter().chain(rates).chain(latencies);
            grid.row(all.chain([verdict(p).to_owned()]));
        }
        grid
    }

    /// Median, limits and interval of the searches.
    fn found(&self, sheet: &mut Sheet) {
        let (Some(median), Some(spread)) = (self.throughput_at_slo_rps, self.spread) else {
            return;
        };
        let (of, min, max) = (self.repeats.len(), spread.min, spread.max);
        sheet.row(
            "within it",
            format!("{median:.0} /s, median of {of} repeats from {min:.0} to {max:.0}"),
        );
        let limits: Vec<&str> = self.repeats.iter().map(|repeat| limit(repeat.limit)).collect();
        sheet.row("limit", limits.join("; "));
        let mut note = self.confidence_note.clone().unwrap_or_default();
        if let Some(c) = self.confidence {
            note = format!("{:.0} to {:.0} /s at {:.1} %, {note}", c.low, c.high, c.level * 100.0);
        }
        sheet.row("confidence", note);
    }
}

const fn limit(limit: Limit) -> &'static str {
    match limit {
        Limit::Service => "the service",
        Limit::Generator => "the generator: the service may carry more",
        Limit::MaxRate => "--slo-max: the service may carry more",
        Limit::MaxRuns => "the number of windows: the service may carry more",
    }
}

/// How a point was judged, in words.
fn verdict(point: &Point) -> &'static str {
    match point.verdict {
        Some(Verdict::Pass) => "within",
        Some(Verdict::TooSlow) => "too slow",
        Some(Verdict::TooFew) => "too few answers",
        None if point.valid => "valid",
        Some(Verdict::Invalid) | None => "invalid",
    }
}

/// A line for each point on standard error: on a terminal always the same one.
fn progress(point: &Point, repeats: u32) {
    let line = format!(
        "tailplane: repeat {} of {repeats}: {:.0} requests/s offered, {:.0} answered, p50 {:.1} p99 \
         {:.1} p99.9 {:.1} us: {}",
        point.repeat,
        point.offered_rps,
        point.achieved_rps,
        point.p50_us,
        point.p99_us,
        point.p999_us,
        verdict(point)
    );
    let mut out = std::io::stderr();
    // Where standard error is gone there is nobody to tell.
    let _ = match out.is_terminal() {
        true => write!(out, "\r\x1b[2K{line}").and_then(|()| out.flush()),
        false => writeln!(out, "{line}"),
    };
}

fn end_progress() {
    if std::io::stderr().is_terminal() {
        eprintln!();
    }
}
