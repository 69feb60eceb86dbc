//! Results as one page that needs nothing but itself: no script, no font, no image from elsewhere.
//!
//! Dark or light as the reader's system is, light when printed; wide tables and plots scroll within
//! themselves, so that the page fits a telephone.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::claims::Claims;
use crate::number::show_or_dash;
use crate::plot;
use crate::progress::show_duration;
use crate::result::{Chart, ClaimResult, FigureResult, Role, Series};
use crate::table::{goal, place, remark, repeats, spread};
use crate::xml::{escape, id};

const STYLE: &str = "\
:root{color-scheme:light dark;--line:#d5d8dd;--soft:#f3f4f6;--met:#15803d;--miss:#b42318;--open:#57606a;--warn:#fff4d6;--warnline:#c98a00}\
@media screen and (prefers-color-scheme:dark){:root{--line:#3a3f47;--soft:#22262c;--met:#5fd38a;--miss:#ff8a7a;--open:#9aa4b2;--warn:#3a2f12;--warnline:#e6b84a}}\
@media print{:root{color-scheme:light;font-size:10.5px}body{max-width:none;padding:0}tr{break-inside:avoid}section{break-before:page}.scroll{overflow:visible}details::details-content{content-visibility:visible;height:auto}}\
*{box-sizing:border-box}\
body{font:1rem/1.5 system-ui,sans-serif;max-width:62rem;margin:0 auto;padding:1.5rem 1rem 4rem;background:Canvas;color:CanvasText}\
h1{font-size:1.7rem;line-height:1.2;margin:0 0 .5rem}h2{font-size:1.3rem;line-height:1.25;margin:0 0 .2rem}h3{font-size:1rem;margin:1.4rem 0 .4rem}\
section{border-top:1px solid var(--line);margin-top:2.5rem;padding-top:1.5rem}\
p{margin:.4rem 0}.soft{color:var(--open)}.what{max-width:46rem}\
.scroll{overflow-x:auto;margin:.4rem 0 .8rem}\
table{border-collapse:collapse;font-size:.9rem;font-variant-numeric:tabular-nums}\
th,td{padding:.28rem .7rem;text-align:right;vertical-align:top;border-bottom:1px solid var(--line)}\
th:first-child,td:first-child{padding-left:.2rem}\
thead th{border-bottom:2px solid var(--line);vertical-align:bottom;font-weight:600}\
th[scope=row],th[scope=rowgroup],.t{text-align:left}th[scope=row],th[scope=rowgroup]{font-weight:400}\
td.n{white-space:nowrap}td.claim{min-width:15rem;text-align:left}.group th{background:var(--soft);text-align:left;font-weight:600}\
code,.id{font:.82em ui-monospace,monospace}.id{color:var(--open);overflow-wrap:anywhere}\
.met,.miss,.open{font-weight:600;white-space:nowrap}.met{color:var(--met)}.miss{color:var(--miss)}.open{color:var(--open)}\
.why{font-size:.85em;font-weight:400;color:var(--open)}td.why{min-width:10rem;text-align:left}\
.banner{border-left:4px solid var(--warnline);background:var(--warn);padding:.5rem .8rem;margin:.8rem 0;overflow-wrap:anywhere}\
.counts{display:flex;flex-wrap:wrap;gap:.4rem 1.6rem;font-size:1.15rem;margin:.6rem 0 1rem}\
details{margin:.4rem 0}summary{cursor:pointer;color:var(--open);font-size:.9rem}figure{margin:1.2rem 0 .4rem;break-inside:avoid}figcaption{font-weight:600;margin-bottom:.3rem}\
figure .scroll>svg{min-width:34rem}\
.narrow{display:none}@media (max-width:40rem){.narrow{display:inline}.wide{display:none}td.claim{min-width:9.5rem}td,th{padding:.28rem .4rem}td.n .why{white-space:normal}}\
dl{display:grid;grid-template-columns:minmax(7rem,max-content) 1fr;gap:.1rem 1rem;font-size:.9rem;margin:.4rem 0}\
dt{color:var(--open)}dd{margin:0;overflow-wrap:anywhere}a{color:inherit}li,p{overflow-wrap:anywhere}";

/// The page of these results. With `claims`, the table at its head names all of them, also those
/// that no result has.
pub fn page(title: &str, results: &[FigureResult], claims: Option<&Claims>) -> String {
    let mut out = String::new();
    let title = escape(title);
    put(
        &mut out,
        format_args!(
            "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"/>\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/>\
             <title>{title}</title><style>{STYLE}{}</style></head><body><h1>{title}</h1>",
            plot::STYLE
        ),
    );
    overall(&mut out, results, claims);
    for result in results {
        section(&mut out, result);
    }
    out + "</body></html>\n"
}

fn put(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a string cannot fail.
    let _ = out.write_fmt(arguments);
}

/// The anchor of a figure's section.
fn anchor(figure: &str) -> String {
    format!("f-{}", id(figure))
}

/// Most points of a plot whose table stands open: the plot shows them.
const OPEN_MAX: usize = 12;
/// Why a claim was not run that no figure of the page fills.
const NO_FIGURE: &str = "no figure here fills it";

/// A claim, and the figure that it is shown with.
type Row<'a> = (ClaimResult, Option<&'a FigureResult>);

/// Every claim once: as measured where it was, in the order of the list.
fn rows<'a>(results: &'a [FigureResult], claims: Option<&Claims>) -> Vec<Row<'a>> {
    let mut rows: Vec<Row<'a>> = Vec::new();
    for result in results {
        for claim in &result.claims {
            match rows.iter_mut().find(|(known, _)| known.id == claim.id) {
                // Two figures may fill one claim: a measured one says more than one not run.
                Some(known) if known.0.measured.is_none() => *known = (claim.clone(), Some(result)),
                Some(_) => {}
                None => rows.push((claim.clone(), Some(result))),
            }
        }
    }
    let Some(claims) = claims else { return by_paper(rows) };
    let mut listed: Vec<Row<'a>> = Vec::new();
    for claim in claims {
        match rows.iter().position(|(row, _)| row.id == claim.id) {
            Some(at) => listed.push(rows.remove(at)),
            None => listed.push((ClaimResult::not_run(claim, NO_FIGURE), None)),
        }
    }
    // What an older list had and this one has not is still shown.
    listed.append(&mut rows);
    by_paper(listed)
}

/// The same rows, those of one paper together, papers in order of appearance.
fn by_paper(rows: Vec<Row<'_>>) -> Vec<Row<'_>> {
    let mut papers: Vec<String> = Vec::new();
    let mut ranked: Vec<(usize, Row<'_>)> = Vec::new();
    for row in rows {
        let rank = papers.iter().position(|known| known == paper(&row.0)).unwrap_or_else(|| {
            papers.push(paper(&row.0).to_owned());
            papers.len() - 1
        });
        ranked.push((rank, row));
    }
    // Stable: within a paper the order of the list stands.
    ranked.sort_by_key(|(rank, _)| *rank);
    ranked.into_iter().map(|(_, row)| row).collect()
}

/// The paper's part of a claim's id.
fn paper(claim: &ClaimResult) -> &str {
    claim.id.split('.').next().unwrap_or_default()
}

/// Counts, and the table of all claims.
fn overall(out: &mut String, results: &[FigureResult], claims: Option<&Claims>) {
    if results.iter().any(|result| result.quick) {
        out.push_str(
            "<p class=\"banner\">Some of this was measured with --quick: for a look, not for a result.</p>",
        );
    }
    let rows = rows(results, claims);
    if rows.is_empty() {
        return;
    }
    let count = |verdict| rows.iter().filter(|(claim, _)| claim.verdict() == verdict).count();
    put(
        out,
        format_args!(
            "<p class=\"counts\"><span>{} claims</span><span class=\"met\">{} met</span>\
             <span class=\"miss\">{} not met</span><span class=\"open\">{} not run</span></p>",
            rows.len(),
            count("met"),
            count("not met"),
            count("not run")
        ),
    );
    begin_table(out, "All claims", &["claim", "paper", "goal", "measured", "mode", "verdict"]);
    let mut group = String::new();
    for (claim, result) in &rows {
        if paper(claim) != group {
            group = paper(claim).to_owned();
            let name = escape(&group);
            put(
                out,
                format_args!(
                    "<tr class=\"group\"><th colspan=\"6\" scope=\"rowgroup\">{name}</th></tr>"
                ),
            );
        }
        claim_row(out, claim, *result);
    }
    out.push_str("</tbody></table></div>");
}

/// Columns of words, which stand at the left.
const TEXTS: [&str; 2] = ["mode", "note"];

/// Opens a table that scrolls within itself, up to its body.
fn begin_table(out: &mut String, label: &str, header: &[&str]) {
    let label = escape(label);
    put(
        out,
        format_args!(
            "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{label}\"><table><thead><tr>"
        ),
    );
    for (index, name) in header.iter().enumerate() {
        let class = match *name {
            // A narrow page has it beside the claim.
            "verdict" => " class=\"t wide\"",
            name if index == 0 || TEXTS.contains(&name) => " class=\"t\"",
            _ => "",
        };
        put(out, format_args!("<th scope=\"col\"{class}>{}</th>", escape(name)));
    }
    out.push_str("</tr></thead><tbody>");
}

/// One claim; with `figure`, a link to where it was measured.
fn claim_row(out: &mut String, claim: &ClaimResult, figure: Option<&FigureResult>) {
    let (class, sign) = match claim.met {
        Some(true) => ("met", "✓ "),
        Some(false) => ("miss", "✗ "),
        None => ("open", ""),
    };
    let mut measured = show_or_dash(claim.measured);
    for line in below_measured(claim) {
        measured += &format!("<br/><span class=\"why\">{line}</span>");
    }
    let verdict = claim.verdict();
    let why = [&claim.not_run, &claim.note];
    let why: String = why
        .into_iter()
        .flatten()
        .map(|why| format!("<br/><span class=\"why\">{}</span>", escape(why)))
        .collect();
    let name = match figure {
        Some(result) => {
            format!("<a href=\"#{}\">{}</a>", anchor(&result.figure), escape(&claim.id))
        }
        None => escape(&claim.id),
    };
    put(
        out,
        format_args!(
            "<tr><td class=\"claim\"><span class=\"narrow {class}\">{sign}{verdict} </span>{}<br/>\
             <span class=\"id\">{name}</span>{why}</td>\
             <td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{measured}</td>\
             <td class=\"t\">{}</td><td class=\"t wide\"><span class=\"{class}\">{sign}{verdict}</span></td></tr>",
            escape(&claim.text),
            show_or_dash(claim.paper),
            goal(claim),
            claim.mode
        ),
    );
}

/// What stands below a measured number: spread, repeats, and those that were left out.
fn below_measured(claim: &ClaimResult) -> Vec<String> {
    if claim.measured.is_none() {
        return Vec::new();
    }
    let mut lines = vec![spread(claim.low, claim.high), format!("n = {}", claim.n)];
    if claim.discarded > 0 {
        lines.push(format!("{} discarded", claim.discarded));
    }
    lines.retain(|line| !line.is_empty());
    lines
}

fn section(out: &mut String, result: &FigureResult) {
    let anchor = anchor(&result.figure);
    let quick = if result.quick { " --quick" } else { "" };
    put(
        out,
        format_args!(
            "<section id=\"{anchor}\"><h2>{}</h2><p class=\"soft\">{} · <code>tailplane reproduce {}{quick}</code></p>\
             <p class=\"what\">{}</p>",
            escape(&result.title),
            escape(&result.section),
            escape(&result.figure),
            escape(&result.what)
        ),
    );
    banner(out, "Not run", result.not_run.as_deref());
    banner(out, "Partial: what stands here was measured before this", result.partial.as_deref());
    for (index, chart) in result.charts.iter().enumerate() {
        one_chart(out, result, chart, &format!("{anchor}-{index}"));
    }
    if !result.claims.is_empty() {
        out.push_str("<h3>Claims</h3>");
        begin_table(out, "Claims", &["claim", "paper", "goal", "measured", "mode", "verdict"]);
        for claim in &result.claims {
            claim_row(out, claim, None);
        }
        out.push_str("</tbody></table></div>");
    }
    if !result.notes.is_empty() {
        out.push_str("<h3>Notes</h3><ul>");
        for note in &result.notes {
            put(out, format_args!("<li>{}</li>", escape(note)));
        }
        out.push_str("</ul>");
    }
    out.push_str("<h3>Conditions</h3>");
    conditions(out, result);
    out.push_str("</section>");
}

fn banner(out: &mut String, what: &str, reason: Option<&str>) {
    if let Some(reason) = reason {
        put(
            out,
            format_args!("<p class=\"banner\"><b>{}.</b> {}</p>", escape(what), escape(reason)),
        );
    }
}

/// A plot, and the table of its points.
fn one_chart(out: &mut String, result: &FigureResult, chart: &Chart, prefix: &str) {
    let series: Vec<&Series> = result.series_of(chart).collect();
    put(
        out,
        format_args!(
            "<figure><figcaption>{}</figcaption><div class=\"scroll\">{}</div></figure>",
            escape(&chart.title),
            plot::svg(chart, &series, prefix)
        ),
    );
    let count: usize = series.iter().map(|series| series.points.len()).sum();
    let open = if count <= OPEN_MAX { " open=\"open\"" } else { "" };
    put(out, format_args!("<details{open}><summary>{count} points</summary>"));
    let (x, y) = (chart.x.title(), chart.y.title());
    let header = ["series", &x, &y, "spread", "n", "note"];
    let mut points = series.iter().flat_map(|series| &series.points);
    let notes = points.any(|point| !remark(point).is_empty());
    begin_table(out, &chart.title, if notes { &header } else { &header[..5] });
    for series in series {
        points_of(out, chart, series, notes);
    }
    out.push_str("</tbody></table></div></details>");
}

/// Rows of a series.
fn points_of(out: &mut String, chart: &Chart, series: &Series, notes: bool) {
    let role = match series.role {
        Role::Measured => "",
        Role::Paper => " <span class=\"why\">(paper)</span>",
        Role::Theory => " <span class=\"why\">(theory)</span>",
    };
    let name = escape(&series.name);
    let reason = match &series.not_run {
        Some(reason) => Some(format!("not run: {}", escape(reason))),
        None if series.points.is_empty() => Some("no points".to_owned()),
        None => None,
    };
    let rows = series.points.len() + usize::from(reason.is_some());
    let mut head = format!("<th scope=\"rowgroup\" rowspan=\"{rows}\">{name}{role}</th>");
    if let Some(reason) = reason {
        let span = if notes { 5 } else { 4 };
        put(out, format_args!("<tr>{head}<td colspan=\"{span}\" class=\"why\">{reason}</td></tr>"));
        head.clear();
    }
    for point in &series.points {
        put(
            out,
            format_args!(
                "<tr>{head}<td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td><td class=\"n\">{}</td>",
                escape(&place(chart, point)),
                show_or_dash(point.y),
                spread(point.low, point.high),
                repeats(series, point),
            ),
        );
        if notes {
            put(out, format_args!("<td class=\"why\">{}</td>", escape(&remark(point))));
        }
        out.push_str("</tr>");
        head.clear();
    }
}

fn conditions(out: &mut String, result: &FigureResult) {
    let mut conditions: BTreeMap<&str, String> =
        result.conditions.iter().map(|(name, value)| (name.as_str(), value.clone())).collect();
    conditions.insert("repeats", result.repeats.to_string());
    if let Some(seconds) = result.seconds {
        // Longer than any run, so that the conversion cannot fail.
        let seconds = seconds.get().clamp(0.0, 1e9);
        let took = std::time::Duration::from_secs_f64(seconds);
        conditions.insert("run took", show_duration(took));
    }
    out.push_str("<dl>");
    for (name, value) in conditions {
        put(out, format_args!("<dt>{}</dt><dd>{}</dd>", escape(name), escape(&value)));
    }
    out.push_str("</dl>");
}
