//! The one renderer: what figures found, as text for a terminal ([`text`]), as Markdown in a document
//! ([`markdown`], [`into_document`]), and as a page ([`page`]) with the plots of [`crate::plot`]. The
//! JSON is [`FigureResult::to_json`].
//!
//! All forms are made of the same tables ([`Grid`]), which show mode, n, spread, and what was left out.
//! The page needs nothing but itself (no script, no font, no image from elsewhere), is dark or light as
//! the reader's system is, and lets wide tables and plots scroll within themselves.

use std::collections::BTreeMap;

use crate::claims::{Better, Claims};
use crate::figure::Figure;
use crate::grid::{Cell, Grid, MET, MISSED, OPEN};
use crate::number::{Finite, show, show_or_dash};
use crate::plot;
use crate::progress::show_duration;
use crate::result::{Chart, ClaimResult, FigureResult, Point, Role, Scale, Series};
use crate::xml::{escape, id};

/// Most series of a category axis that stand beside each other, as columns.
const COLUMNS_MAX: usize = 6;
/// Most points of a plot whose table stands open on the page: the plot shows them.
const OPEN_MAX: usize = 12;
/// Why a claim was not run that no figure of the page fills.
const NO_FIGURE: &str = "no figure here fills it";
/// What a claim is shown with.
const CLAIM_COLUMNS: [&str; 8] =
    ["claim", "paper", "goal", "measured", "spread", "n", "mode", "verdict"];

/// The goal with its direction: `≥ 10`, `≤ 200`, `≈ 0.54`.
fn goal(better: Better, goal: Finite) -> String {
    let sign = match better {
        Better::Higher => '≥',
        Better::Lower => '≤',
        Better::Equal => '≈',
    };
    format!("{sign} {}", show(goal.get()))
}

/// The spread as `low to high`; empty where there is none.
fn spread(low: Option<Finite>, high: Option<Finite>) -> String {
    match (low, high) {
        (Some(low), Some(high)) => format!("{} to {}", show(low.get()), show(high.get())),
        _ => String::new(),
    }
}

/// Repeats that count, and those that were discarded.
fn repeats(n: u64, discarded: u64) -> String {
    match discarded {
        0 => n.to_string(),
        discarded => format!("{n} (+{discarded} discarded)"),
    }
}

/// The same of a point; nothing for what was not measured here.
fn repeats_of(series: &Series, point: &Point) -> String {
    match series.role {
        Role::Measured => repeats(point.n, point.discarded),
        Role::Paper | Role::Theory => String::new(),
    }
}

/// What a reader should know of a point: that it is disturbed, and its note.
fn remark(point: &Point) -> String {
    let note = point.note.as_deref().unwrap_or_default();
    if !point.valid && point.y.is_some() { format!("disturbed: {note}") } else { note.to_owned() }
}

/// The name of a series, and where it comes from unless it was measured.
fn name_of(series: &Series) -> String {
    let from = match series.role {
        Role::Measured => return series.name.clone(),
        Role::Paper => "paper",
        Role::Theory => "theory",
    };
    // Some say so themselves.
    match series.name.contains(from) {
        true => series.name.clone(),
        false => format!("{} ({from})", series.name),
    }
}

/// Why there is nothing to show of a series.
fn reason_of(series: &Series) -> Option<String> {
    match &series.not_run {
        Some(reason) => Some(format!("not run: {reason}")),
        None => series.points.is_empty().then(|| "no points".to_owned()),
    }
}

/// The points of a chart: one a row, or the series of a category axis beside each other.
fn points(chart: &Chart, series: &[&Series]) -> Grid {
    if chart.x.scale == Scale::Category && (1..=COLUMNS_MAX).contains(&series.len()) {
        return beside(chart, series);
    }
    let (x, y) = (chart.x.title(), chart.y.title());
    let mut grid = Grid::new(["series", x.as_str(), y.as_str(), "spread", "n", "note"]);
    for series in series {
        // Once for each series: rows below belong to it.
        let mut name = name_of(series);
        if let Some(reason) = reason_of(series) {
            grid.row([name.as_str(), "", "–", "", "", &reason]);
            name.clear();
        }
        for point in &series.points {
            grid.row([
                std::mem::take(&mut name),
                plot::place_name(chart, point),
                show_or_dash(point.y),
                spread(point.low, point.high),
                repeats_of(series, point),
                remark(point),
            ]);
        }
    }
    grid
}

/// A row for each category, a column for each series; below each number its spread, n and remark.
fn beside(chart: &Chart, series: &[&Series]) -> Grid {
    let head = format!("{}\n{}", chart.x.title(), chart.y.title());
    let names = series.iter().map(|series| match reason_of(series) {
        Some(reason) => format!("{}\n{reason}", name_of(series)),
        None => name_of(series),
    });
    let mut grid = Grid::new(std::iter::once(head).chain(names));
    for category in plot::categories(chart, series) {
        let cell = |series: &&Series| {
            let mut points = series.points.iter();
            let point = points.find(|point| plot::place_name(chart, point) == category);
            point.map_or_else(|| "–".to_owned(), |point| explained(series, point))
        };
        let cells: Vec<String> = series.iter().map(cell).collect();
        grid.row(std::iter::once(category).chain(cells));
    }
    grid
}

/// A number, and below it its spread, n and remark.
fn explained(series: &Series, point: &Point) -> String {
    let repeats = repeats_of(series, point);
    let n = if repeats.is_empty() { repeats } else { format!("n = {repeats}") };
    let mut lines = vec![show_or_dash(point.y), spread(point.low, point.high), n, remark(point)];
    lines.retain(|line| !line.is_empty());
    lines.join("\n")
}

/// One claim, named by `name`. The number is bold where the whole spread keeps the goal.
fn claim_row(name: impl Into<Cell>, claim: &ClaimResult) -> [Cell; 8] {
    let keeps = claim.met == Some(true) && claim.met_throughout == Some(true);
    let (verdict, mut words) = match claim.met {
        Some(true) if claim.met_throughout == Some(false) => {
            (MET, "met, but not by all of the spread".to_owned())
        }
        Some(true) => (MET, claim.verdict().to_owned()),
        Some(false) => (MISSED, claim.verdict().to_owned()),
        None => (OPEN, claim.verdict().to_owned()),
    };
    for why in [&claim.not_run, &claim.note].into_iter().flatten() {
        words += &format!("\n{why}");
    }
    let has_repeats = claim.n > 0 || claim.discarded > 0;
    [
        name.into(),
        show_or_dash(claim.paper).into(),
        goal(claim.better, claim.goal).into(),
        Cell::from(show_or_dash(claim.measured)).bold(keeps),
        spread(claim.low, claim.high).into(),
        if has_repeats { repeats(claim.n, claim.discarded) } else { String::new() }.into(),
        claim.mode.to_string().into(),
        Cell::from(words).judged(verdict),
    ]
}

/// The section of the papers, and in which modes the claims were measured.
fn section_and_modes(result: &FigureResult) -> String {
    let mut modes: Vec<String> = Vec::new();
    for mode in result.claims.iter().map(|claim| claim.mode.to_string()) {
        if !modes.contains(&mode) {
            modes.push(mode);
        }
    }
    match modes.is_empty() {
        true => result.section.clone(),
        false => format!("{}; mode {}", result.section, modes.join(", ")),
    }
}

/// The conditions of a result, its repeats and how long it ran among them.
fn conditions(result: &FigureResult) -> BTreeMap<&str, String> {
    let all = result.conditions.iter();
    let mut all: BTreeMap<&str, String> =
        all.map(|(name, value)| (name.as_str(), value.clone())).collect();
    all.insert("repeats", result.repeats.to_string());
    if let Some(seconds) = result.seconds {
        // Longer than any run, so that the conversion cannot fail.
        let took = std::time::Duration::from_secs_f64(seconds.get().clamp(0.0, 1e9));
        all.insert("run took", show_duration(took));
    }
    all
}

/// One figure's result for a terminal: what became of it, its series, its claims, its notes.
pub fn text(result: &FigureResult) -> String {
    let mut text = format!("{}: {} ({})\n", result.figure, result.title, section_and_modes(result));
    for (what, reason) in [("NOT RUN", &result.not_run), ("PARTIAL", &result.partial)] {
        if let Some(reason) = reason {
            text += &format!("{what}: {reason}\n");
        }
    }
    if result.quick {
        text += "QUICK: measured with --quick; for a look, not for a result\n";
    }
    for chart in &result.charts {
        let series: Vec<&Series> = result.series_of(chart).collect();
        text += &format!("{}\n{}\n", chart.title, points(chart, &series));
    }
    if !result.claims.is_empty() {
        let mut grid = Grid::new(CLAIM_COLUMNS);
        for claim in &result.claims {
            grid.row(claim_row(claim.id.as_str(), claim));
        }
        text += &format!("{grid}\n");
    }
    for note in &result.notes {
        text += &format!("note: {note}\n");
    }
    for (name, value) in conditions(result) {
        text += &format!("  {name:<22} {value}\n");
    }
    text
}

/// All figures, and the claims that none of them fills: for `tailplane reproduce list`.
pub fn list<C: ?Sized>(figures: &[Figure<C>], claims: &Claims) -> String {
    let mut grid = Grid::new(["figure", "title", "claims", "takes", "quick"]);
    let seconds = |seconds: u32| show_duration(std::time::Duration::from_secs(seconds.into()));
    for figure in figures {
        grid.row([
            figure.id.to_owned(),
            format!("{} ({})", figure.title, figure.section),
            figure.claims.len().to_string(),
            seconds(figure.takes.full_s),
            seconds(figure.takes.quick_s),
        ]);
    }
    let mut text = format!("{grid}\n");
    let filled = |id: &str| figures.iter().any(|figure| figure.claims.contains(&id));
    let open: Vec<_> = claims.iter().filter(|claim| !filled(&claim.id)).collect();
    if !open.is_empty() {
        text += "claims that no figure fills yet:\n";
        for claim in open {
            text += &format!("  {} {}\n", claim.id, goal(claim.better, claim.goal));
        }
    }
    text
}

/// Before the table in a document.
pub const BEGIN: &str = "<!-- written by `tailplane reproduce --into` -->";
/// Behind it.
pub const END: &str = "<!-- end of what `tailplane reproduce --into` writes -->";

/// All claims as Markdown, one a row, what was left out, and the conditions that all results share.
///
/// # Errors
/// A result was measured with `--quick`: it is for a look, and never stands in a document.
pub fn markdown(results: &[FigureResult]) -> Result<String, String> {
    if let Some(quick) = results.iter().find(|result| result.quick) {
        return Err(format!(
            "cannot write {} into a document: found a result of `--quick`; measure it without",
            quick.figure
        ));
    }
    let mut grid = Grid::new([&["Figure"], &CLAIM_COLUMNS[..]].concat());
    let mut left_out = String::new();
    for result in results {
        for claim in &result.claims {
            let cells = claim_row(claim.text.as_str(), claim);
            grid.row(std::iter::once(Cell::from(result.figure.as_str())).chain(cells));
        }
        for reason in [&result.not_run, &result.partial].into_iter().flatten() {
            left_out +=
                &format!("\nLeft out of {}: {}.\n", result.figure, reason.replace('\n', " "));
        }
    }
    let shared: Vec<String> =
        shared(results).iter().map(|(name, value)| format!("{name}: {value}")).collect();
    Ok(format!("{}{left_out}\nConditions: {}.\n", grid.markdown(), shared.join("; ")))
}

/// The conditions that all results have, and have alike; dates apart.
fn shared(results: &[FigureResult]) -> BTreeMap<&str, &str> {
    let first = results.iter().take(1).flat_map(|result| &result.conditions);
    let alike = |name: &str, value: &str| {
        let mut all = results.iter();
        all.all(|result| result.conditions.get(name).is_some_and(|found| found == value))
    };
    first
        .map(|(name, value)| (name.as_str(), value.as_str()))
        .filter(|(name, value)| {
            alike(name, value) && !["date", "load average before"].contains(name)
        })
        .collect()
}

/// A document with the table between its marks.
///
/// # Errors
/// What is wrong with the document: one mark of each is wanted, in order.
pub fn into_document(document: &str, table: &str) -> Result<String, String> {
    let wanted = || format!("wanted: one line `{BEGIN}` and below it one line `{END}`");
    let (before, rest) = document.split_once(BEGIN).ok_or_else(wanted)?;
    let (_, after) = rest.split_once(END).ok_or_else(wanted)?;
    if rest.contains(BEGIN) || after.contains(END) || before.contains(END) {
        return Err(wanted());
    }
    Ok(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

/// The rules of a page.
const STYLE: &str = include_str!("page.css");

/// The page of these results. With `claims`, the table at its head names all of them, also those
/// that no result has.
pub fn page(title: &str, results: &[FigureResult], claims: Option<&Claims>) -> String {
    let title = escape(title);
    let mut page = format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"/>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
         <title>{title}</title><style>{STYLE}{}</style></head><body><h1>{title}</h1>{}",
        plot::STYLE,
        overall(results, claims)
    );
    for result in results {
        section(&mut page, result);
    }
    page + "</body></html>\n"
}

/// The anchor of a figure's section.
fn anchor(figure: &str) -> String {
    format!("f-{}", id(figure))
}

/// A claim, and the figure that it is shown with.
type Row<'a> = (ClaimResult, Option<&'a FigureResult>);

/// Every claim once: as measured where it was, those of one paper together, in the order of the list.
fn rows<'a>(results: &'a [FigureResult], claims: Option<&Claims>) -> Vec<Row<'a>> {
    let listed = claims.into_iter().flat_map(Claims::iter);
    let mut rows: Vec<Row<'a>> =
        listed.map(|claim| (ClaimResult::not_run(claim, NO_FIGURE), None)).collect();
    for result in results {
        for claim in &result.claims {
            let row = (claim.clone(), Some(result));
            match rows.iter_mut().find(|(known, _)| known.id == claim.id) {
                // Two figures may fill one claim: a measured one says more than one not run.
                Some(known) if known.0.measured.is_none() => *known = row,
                Some(_) => {}
                None => rows.push(row),
            }
        }
    }
    let papers: Vec<String> = rows.iter().map(|(claim, _)| paper(claim).to_owned()).collect();
    rows.sort_by_key(|(claim, _)| papers.iter().position(|known| known == paper(claim)));
    rows
}

/// The paper's part of a claim's id.
fn paper(claim: &ClaimResult) -> &str {
    claim.id.split('.').next().unwrap_or_default()
}

/// Counts, and the table of all claims.
fn overall(results: &[FigureResult], claims: Option<&Claims>) -> String {
    let mut html = String::new();
    if results.iter().any(|result| result.quick) {
        let look = "Some of this was measured with --quick: for a look, not for a result.";
        html += &format!("<p class=\"banner\">{look}</p>");
    }
    let rows = rows(results, claims);
    if rows.is_empty() {
        return html;
    }
    let count = |verdict| rows.iter().filter(|(claim, _)| claim.verdict() == verdict).count();
    html += &format!(
        "<p class=\"counts\"><span>{} claims</span><span class=\"met\">{} met</span>\
         <span class=\"miss\">{} not met</span><span class=\"open\">{} not run</span></p>",
        rows.len(),
        count("met"),
        count("not met"),
        count("not run")
    );
    let mut grid = Grid::new(CLAIM_COLUMNS);
    let mut group = "";
    for (claim, result) in &rows {
        if paper(claim) != group {
            group = paper(claim);
            grid.row([group]);
        }
        let link = result.map(|result| anchor(&result.figure));
        grid.row(claim_row(in_words(claim).link(link), claim));
    }
    html + &grid.html("All claims")
}

/// A claim in words, and its name.
fn in_words(claim: &ClaimResult) -> Cell {
    format!("{}\n{}", claim.text.replace('\n', " "), claim.id).into()
}

fn section(page: &mut String, result: &FigureResult) {
    let anchor = anchor(&result.figure);
    let quick = if result.quick { " --quick" } else { "" };
    *page += &format!(
        "<section id=\"{anchor}\"><h2>{}</h2><p class=\"soft\">{} · <code>tailplane reproduce {}{quick}</code></p>\
         <p class=\"what\">{}</p>",
        escape(&result.title),
        escape(&section_and_modes(result)),
        escape(&result.figure),
        escape(&result.what)
    );
    let partial = "Partial: what stands here was measured before this";
    for (what, reason) in [("Not run", &result.not_run), (partial, &result.partial)] {
        if let Some(reason) = reason {
            *page += &format!("<p class=\"banner\"><b>{what}.</b> {}</p>", escape(reason));
        }
    }
    for (index, chart) in result.charts.iter().enumerate() {
        *page += &one_chart(result, chart, &format!("{anchor}-{index}"));
    }
    if !result.claims.is_empty() {
        let mut grid = Grid::new(CLAIM_COLUMNS);
        for claim in &result.claims {
            grid.row(claim_row(in_words(claim), claim));
        }
        *page += &format!("<h3>Claims</h3>{}", grid.html("Claims"));
    }
    if !result.notes.is_empty() {
        let notes = result.notes.iter().map(|note| format!("<li>{}</li>", escape(note)));
        *page += &format!("<h3>Notes</h3><ul>{}</ul>", notes.collect::<String>());
    }
    let conditions = conditions(result);
    let pairs = conditions
        .iter()
        .map(|(name, value)| format!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(value)));
    *page += &format!("<h3>Conditions</h3><dl>{}</dl></section>", pairs.collect::<String>());
}

/// A plot, and the table of its points.
fn one_chart(result: &FigureResult, chart: &Chart, prefix: &str) -> String {
    let series: Vec<&Series> = result.series_of(chart).collect();
    let count: usize = series.iter().map(|series| series.points.len()).sum();
    let open = if count <= OPEN_MAX { " open=\"open\"" } else { "" };
    format!(
        "<figure><figcaption>{}</figcaption><div class=\"scroll\">{}</div></figure>\
         <details{open}><summary>{count} points</summary>{}</details>",
        escape(&chart.title),
        plot::svg(chart, &series, prefix),
        points(chart, &series).html(&chart.title)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_stands_between_its_marks() {
        let document = format!("# Title\n{BEGIN}\nold\n{END}\nmore\n");
        let new = into_document(&document, "new\n").expect("marks are there");
        assert_eq!(new, format!("# Title\n{BEGIN}\nnew\n{END}\nmore\n"));
        assert_eq!(into_document(&new, "new\n").expect("again"), new);
        for bad in ["", BEGIN, END, &format!("{END}{BEGIN}"), &format!("{BEGIN}{END}{END}")] {
            assert!(into_document(bad, "").is_err(), "{bad}");
        }
    }
}
