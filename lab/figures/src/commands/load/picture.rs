//! A search or a sweep as a picture: p50, p99 and p99.9 over throughput, with the objective, as an
//! SVG file of its own that follows the reader's dark or light setting.
//!
//! The curve itself is drawn by the plotter of `tailplane reproduce`; here it gets a visible title,
//! and the conditions below that.

use measure::stats::Summary;
use reproduce::number::Finite;
use reproduce::plot::{self, STYLE};
use reproduce::result::Point as PlotPoint;
use reproduce::{Axis, Chart, Mark, MarkOf, Role, Series};

use super::curve::{Curve, Point};

/// What stands above; the workload, which may be long, stands among the conditions.
const TITLE_TEXT: &str = "Latency over throughput";
/// Letters of the conditions in one line.
const LINE_LETTERS: usize = 104;
/// Height of a line.
const LINE: usize = 17;
/// Height of the title.
const TITLE: usize = 26;
/// Width of the plotter's pictures, in their own units.
const WIDTH: usize = 720;

/// The picture.
pub(super) fn svg(curve: &Curve) -> String {
    let chart = chart(curve);
    let series = [
        series(curve, "p50", |point| point.p50_us),
        series(curve, "p99", |point| point.p99_us),
        series(curve, "p99.9", |point| point.p999_us),
    ];
    let drawn = plot::svg(&chart, &series.each_ref(), "load");
    frame(&drawn, TITLE_TEXT, &conditions(curve))
}

/// The plot with a visible title and conditions above.
fn frame(drawn: &str, title: &str, conditions: &str) -> String {
    let lines = wrap(conditions, LINE_LETTERS);
    let above = TITLE + lines.len() * LINE + 8;
    let (head, body) = drawn.split_once('>').unwrap_or_default();
    let height = head
        .split_once(&format!("viewBox=\"0 0 {WIDTH} "))
        .and_then(|(_, rest)| rest.split_once('"')?.0.parse::<f64>().ok())
        .unwrap_or(WIDTH as f64);
    let head = head.replace(
        &format!("viewBox=\"0 0 {WIDTH} {height}\""),
        &format!("viewBox=\"0 0 {WIDTH} {}\"", height + above as f64),
    );
    // Title and description for readers that do not see belong to the whole picture.
    let (about, inner) = body.split_once("</desc>").unwrap_or(("", body));
    let mut text = format!(
        "<text x=\"4\" y=\"18\" font-size=\"16\" font-weight=\"600\">{}</text>",
        escape(title)
    );
    for (index, line) in lines.iter().enumerate() {
        let y = TITLE + (index + 1) * LINE - 4;
        text += &format!(
            "<text x=\"4\" y=\"{y}\" font-size=\"12\" class=\"faint\">{}</text>",
            escape(line)
        );
    }
    let inner = inner.strip_suffix("</svg>").unwrap_or(inner);
    let style = format!("<style>:root{{color-scheme:light dark}}{STYLE}</style>");
    format!(
        "{head}>{about}</desc>{style}{text}<g transform=\"translate(0 {above})\">{inner}</g></svg>\n"
    )
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
        title: format!("{TITLE_TEXT}: {workload}"),
        x: Axis::linear("throughput", "requests/s"),
        y: Axis::log("latency", "us"),
        marks,
    }
}

/// One percentile at each load: the median of its windows, from the least to the greatest.
fn series(curve: &Curve, name: &str, of: fn(&Point) -> f64) -> Series {
    let mut loads: Vec<f64> = curve.points.iter().map(|point| point.offered_rps).collect();
    loads.sort_by(f64::total_cmp);
    loads.dedup();
    let points = loads.iter().filter_map(|rps| {
        let all: Vec<&Point> = curve.points.iter().filter(|p| p.offered_rps == *rps).collect();
        let counted: Vec<&Point> = all.iter().copied().filter(|point| point.valid).collect();
        let valid = !counted.is_empty();
        let shown = if valid { &counted } else { &all };
        let summary = |of: &dyn Fn(&Point) -> f64| {
            Summary::of(&shown.iter().map(|point| of(point)).collect::<Vec<_>>())
        };
        let (x, y) = (summary(&|point| point.achieved_rps)?, summary(&of)?);
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

/// Under which it was measured, in a few lines.
fn conditions(curve: &Curve) -> String {
    let Some(c) = &curve.conditions else { return String::new() };
    let repeats = curve.points.iter().map(|point| point.repeat).max().unwrap_or(0);
    let mut text = format!(
        "{}; {} over {}; {} connections, {} threads, {}; windows of {} ms after {} ms; {repeats} repeats, \
         seed {}; {}, Linux {}; tailplane {}",
        c.workload,
        c.target,
        c.transport,
        c.connections,
        c.threads,
        c.wait,
        c.measure_ms,
        c.warmup_ms,
        c.seed,
        c.processor,
        c.kernel,
        env!("CARGO_PKG_VERSION"),
    );
    for (name, value) in &c.more {
        text += &format!("; {name}: {value}");
    }
    text
}

/// `text` in lines of at most `most` letters, broken at blanks.
fn wrap(text: &str, most: usize) -> Vec<String> {
    let mut lines: Vec<String> = Vec::new();
    for word in text.split_whitespace() {
        match lines.last_mut() {
            Some(line) if line.chars().count() + 1 + word.chars().count() <= most => {
                line.push(' ');
                line.push_str(word);
            }
            _ => lines.push(word.chars().take(most).collect()),
        }
    }
    lines
}

/// `text` such that it is only text in XML.
fn escape(text: &str) -> String {
    let clean: String = text.chars().filter(|letter| !letter.is_control()).collect();
    clean.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn title_and_conditions_stand_above_the_plot_in_one_picture() {
        let drawn = "<svg xmlns=\"x\" class=\"plot\" viewBox=\"0 0 720 400\" role=\"img\">\
                     <title id=\"a\">T</title><desc id=\"b\">D</desc><path d=\"M0 0\"/></svg>";
        let framed = frame(drawn, "a < b", &"word ".repeat(60));
        assert_eq!(framed.matches("<svg").count(), 1);
        assert_eq!(framed.matches("</svg>").count(), 1);
        assert!(framed.contains("a &lt; b") && framed.contains("prefers-color-scheme:dark"));
        // Three lines of conditions.
        assert_eq!(framed.matches("class=\"faint\"").count(), 3);
        assert!(framed.contains("viewBox=\"0 0 720 485\""), "{framed}");
        assert!(framed.contains("<g transform=\"translate(0 85)\"><path d=\"M0 0\"/></g></svg>"));
        assert!(framed.contains("<title id=\"a\">T</title><desc id=\"b\">D</desc><style>"));
    }

    #[test]
    fn lines_are_broken_at_blanks() {
        assert_eq!(wrap("aa bb cc", 5), ["aa bb", "cc"]);
        assert_eq!(wrap("aaaaaaaa", 5), ["aaaaa"]);
        assert_eq!(wrap("", 5), Vec::<String>::new());
    }
}
