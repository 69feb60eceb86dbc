//! Results and figures as tables for a terminal.

use std::fmt::Write;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use crate::claims::Claims;
use crate::figure::Figure;
use crate::number::{Finite, show, show_or_dash};
use crate::progress::show_duration;
use crate::result::{Chart, ClaimResult, FigureResult, Point, Role, Scale, Series};

/// Longest note that a cell of a table holds; the JSON and the page have all of it.
const NOTE_MAX: usize = 60;

/// The goal with its direction: `≥ 10`, `≤ 200`, `≈ 0.54`.
pub fn goal(claim: &ClaimResult) -> String {
    let sign = sign(claim.better);
    format!("{sign} {}", show(claim.goal.get()))
}

fn sign(better: crate::claims::Better) -> char {
    match better {
        crate::claims::Better::Higher => '≥',
        crate::claims::Better::Lower => '≤',
        crate::claims::Better::Equal => '≈',
    }
}

/// The spread as `low to high`; empty where there is none.
pub(crate) fn spread(low: Option<Finite>, high: Option<Finite>) -> String {
    match (low, high) {
        (Some(low), Some(high)) => format!("{} to {}", show(low.get()), show(high.get())),
        _ => String::new(),
    }
}

/// A point's place along its axis.
pub(crate) fn place(chart: &Chart, point: &Point) -> String {
    match (&point.label, chart.x.scale) {
        (Some(label), Scale::Category) => label.clone(),
        _ => show(point.x.get()),
    }
}

/// Repeats that count, and those that were discarded; nothing for what was not measured here.
pub(crate) fn repeats(series: &Series, point: &Point) -> String {
    if series.role != Role::Measured {
        return String::new();
    }
    match point.discarded {
        0 => point.n.to_string(),
        discarded => format!("{} (+{discarded} discarded)", point.n),
    }
}

/// What a reader should know of a point: that it is disturbed, and its note.
pub(crate) fn remark(point: &Point) -> String {
    let note = point.note.as_deref().unwrap_or_default();
    if !point.valid && point.y.is_some() { format!("disturbed: {note}") } else { note.to_owned() }
}

fn table<const N: usize>(header: [&str; N], numbers: std::ops::Range<usize>) -> Table {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(header);
    for index in numbers {
        if let Some(column) = table.column_mut(index) {
            column.set_cell_alignment(CellAlignment::Right);
        }
    }
    table
}

/// One figure's result: what became of it, its claims, its series, its notes.
pub fn result(result: &FigureResult) -> String {
    let mut text = format!("{}: {} ({})\n", result.figure, result.title, result.section);
    let _ = match (&result.not_run, &result.partial) {
        (Some(reason), _) => writeln!(text, "NOT RUN: {reason}"),
        (None, Some(reason)) => writeln!(text, "PARTIAL: {reason}"),
        (None, None) => Ok(()),
    };
    for chart in &result.charts {
        let _ = write!(text, "{}\n{}\n", chart.title, points(result, chart));
    }
    if !result.claims.is_empty() {
        let _ = writeln!(text, "{}", claims(&result.claims));
    }
    for note in &result.notes {
        let _ = writeln!(text, "note: {note}");
    }
    for (name, value) in &result.conditions {
        let _ = writeln!(text, "  {name:<22} {value}");
    }
    text
}

/// Claims, one a row.
pub fn claims(claims: &[ClaimResult]) -> Table {
    let header = ["claim", "paper", "goal", "measured", "spread", "mode", "verdict"];
    let mut table = table(header, 1..5);
    for claim in claims {
        let verdict = match &claim.not_run {
            Some(reason) => format!("not run: {}", crate::xml::shorten(reason, NOTE_MAX)),
            None => claim.verdict().to_owned(),
        };
        table.add_row([
            claim.id.clone(),
            show_or_dash(claim.paper),
            goal(claim),
            show_or_dash(claim.measured),
            spread(claim.low, claim.high),
            claim.mode.to_string(),
            verdict,
        ]);
    }
    table
}

/// The points of a chart's series, one a row.
fn points(result: &FigureResult, chart: &Chart) -> Table {
    let (x, y) = (chart.x.title(), chart.y.title());
    let mut table = table(["series", x.as_str(), y.as_str(), "spread", "n", "note"], 1..5);
    for series in result.series_of(chart) {
        let mut name = series.name.as_str();
        if let Some(reason) = &series.not_run {
            let reason = format!("not run: {}", crate::xml::shorten(reason, NOTE_MAX));
            table.add_row([name, "", "–", "", "", reason.as_str()]);
            name = "";
        }
        for point in &series.points {
            table.add_row([
                name.to_owned(),
                place(chart, point),
                show_or_dash(point.y),
                spread(point.low, point.high),
                repeats(series, point),
                crate::xml::shorten(&remark(point), NOTE_MAX),
            ]);
            // Once for each series: rows below belong to it.
            name = "";
        }
    }
    table
}

/// All figures, and the claims that none of them fills: for `tailplane reproduce list`.
pub fn list<C: ?Sized>(figures: &[Figure<C>], claims: &Claims) -> String {
    let mut table = table(["figure", "title", "claims", "takes", "quick"], 2..5);
    let seconds = |seconds: u32| show_duration(std::time::Duration::from_secs(seconds.into()));
    for figure in figures {
        table.add_row([
            figure.id.to_owned(),
            format!("{} ({})", figure.title, figure.section),
            figure.claims.len().to_string(),
            seconds(figure.takes.full_s),
            seconds(figure.takes.quick_s),
        ]);
    }
    let mut text = format!("{table}\n");
    let filled = |id: &str| figures.iter().any(|figure| figure.claims.contains(&id));
    let open: Vec<_> = claims.iter().filter(|claim| !filled(&claim.id)).collect();
    if !open.is_empty() {
        let _ = writeln!(text, "claims that no figure fills yet:");
        for claim in open {
            let _ = writeln!(text, "  {} {} {}", claim.id, sign(claim.better), claim.goal.get());
        }
    }
    text
}
