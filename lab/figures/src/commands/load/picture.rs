//! A search or a sweep as a picture: p50, p99 and p99.9 over throughput, with the objective, as an
//! SVG file of its own that follows the reader's dark or light setting.
//!
//! The plotter of `tailplane reproduce` draws it, with title and conditions above.

use measure::stats::Summary;
use reproduce::number::Finite;
use reproduce::plot;
use reproduce::result::Point as PlotPoint;
use reproduce::{Axis, Chart, Mark, MarkOf, Role, Series};

use super::curve::{Curve, Point};

/// The picture.
pub(super) fn svg(curve: &Curve) -> String {
    let chart = chart(curve);
    let series = [
        series(curve, "p50", |point| point.p50_us),
        series(curve, "p99", |point| point.p99_us),
        series(curve, "p99.9", |point| point.p999_us),
    ];
    plot::standalone(&chart, &series.each_ref(), Some(&conditions(curve)))
}

fn chart(curve: &Curve) -> Chart {
    let mut marks = Vec::new();
    if let Some(slo) = curve.slo {
        let label = format!("objective: p{} within {} us", slo.percentile, slo.us);
        marks.push(Mark::horizontal(MarkOf::Objective, slo.us, label));
    }
    if let Some(rps) = curve.throughput_at_slo_rps {
        marks.push(Mark::vertical(MarkOf::Limit, rps, format!("{rps:.0} requests/s within it")));
    }
    let workload = curve.conditions.as_ref().map_or("", |c| &c.workload);
    Chart {
        name: "load".to_owned(),
        title: format!("Latency over throughput: {workload}"),
        x: Axis::linear("throughput", "requests/s"),
        y: Axis::log("latency", "us"),
        marks,
    }
}

/// One percentile at each load: the median of its windows, from the least to the greatest.
fn series(curve: &Curve, name: &str, of: fn(&Point) -> f64) -> Series {
    let points = curve.by_load().into_iter().filter_map(|all| {
        let counted: Vec<&Point> = all.iter().copied().filter(|point| point.valid).collect();
        let valid = !counted.is_empty();
        let shown = if valid { &counted } else { &all };
        let summary = |of: fn(&Point) -> f64| {
            Summary::of(&shown.iter().map(|point| of(point)).collect::<Vec<_>>())
        };
        let (x, y) = (summary(|point| point.achieved_rps)?, summary(of)?);
        let note = shown.iter().find_map(|point| point.invalid_reason.clone());
        Some(PlotPoint {
            x: Finite::new(x.median)?,
            label: None,
            y: Finite::new(y.median),
            low: Finite::new(y.min),
            high: Finite::new(y.max),
            n: counted.len() as u64,
            discarded: (all.len() - counted.len()) as u64,
            valid,
            note,
        })
    });
    let chart = chart(curve);
    Series {
        chart: chart.name,
        name: name.to_owned(),
        role: Role::Measured,
        x: chart.x,
        y: chart.y,
        points: points.collect(),
        not_run: None,
    }
}

/// Under which it was measured, in a few lines. The rate, which changes, stands on the axis.
fn conditions(curve: &Curve) -> String {
    let Some(conditions) = &curve.conditions else { return String::new() };
    let repeats = curve.points.iter().map(|point| point.repeat).max().unwrap_or(0);
    let mut rows = conditions.rows();
    rows.retain(|(label, _)| *label != "mode");
    rows.push(("repeats", repeats.to_string()));
    rows.push(("tailplane", env!("CARGO_PKG_VERSION").to_owned()));
    let rows: Vec<String> = rows.iter().map(|(label, value)| format!("{label}: {value}")).collect();
    rows.join("; ")
}
