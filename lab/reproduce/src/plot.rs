//! A chart as SVG, written by hand: inline in a page ([`svg`]) or as a file of its own
//! ([`standalone`]). `plotters` has whole pixels only, and neither hints, dashes, slopes nor a dark form.
//!
//! It loads nothing, follows the reader's dark or light setting through CSS variables, tells series
//! apart by shape and dash as well as by colour, and carries title and description for readers that
//! do not see. What cannot be drawn (no value, not positive on a logarithmic axis, beyond a fixed
//! end) is left out, counted, and said below the plot.

use std::fmt::{Display, Write};

use crate::axis::{Ruler, drawable};
use crate::label::{Area, Labels, fit, fit_middle, text_width};
use crate::number::show;
use crate::result::{Chart, Mark, Point, Role, Scale, Series};
use crate::xml::{escape, id, shorten};

/// Width of the picture, in its own units; a page scales it.
const WIDTH: f64 = 720.0;
/// Height of the part that holds the data.
const PLOT_HEIGHT: f64 = 300.0;
/// Above the data, so that the topmost tick's label is not cut.
const TOP: f64 = 14.0;
/// Right of the data, for the half of the last tick's label.
const RIGHT: f64 = 28.0;
/// Height of a line of text.
const LINE: f64 = 20.0;
/// Ticks that an axis aims at.
const TICKS_X: usize = 7;
const TICKS_Y: usize = 6;
/// Colours, shapes and dashes before they repeat.
const STYLES: usize = 8;
/// Widest that the labels of the y axis may be, in characters.
const TICK_CHARS: usize = 14;
/// Slope of long names below a category axis, in degrees.
const SLOPE: f64 = 35.0;
/// Longest that such a name may be.
const SLOPED_MAX: f64 = 150.0;
/// Width of a series' sample in the legend.
const SAMPLE: f64 = 32.0;
/// Letters of the conditions in a line.
const CONDITIONS_CHARS: usize = 104;
/// How far a point reaches around itself.
const POINT_REACH: f64 = 6.0;
/// Series that the legend names; the table beside the plot names all.
const LEGEND_MAX: usize = 24;

/// The rules that [`svg`] needs once in its page; [`standalone`] brings them along.
pub const STYLE: &str = include_str!("plot.css");

/// `chart` with its `series` as an `<svg>` element for a page that has [`STYLE`]. `prefix` makes
/// the names of its parts unique in the page.
pub fn svg(chart: &Chart, series: &[&Series], prefix: &str) -> String {
    Plot::new(chart, series).draw(prefix, "", None)
}

/// The same as a file of its own; with `conditions`, they and the title stand above the plot.
pub fn standalone(chart: &Chart, series: &[&Series], conditions: Option<&str>) -> String {
    let style = format!("<style>:root{{color-scheme:light dark}}{STYLE}</style>");
    Plot::new(chart, series).draw("plot", &style, conditions) + "\n"
}

/// Title and conditions above a plot, and the height that they take.
fn heading(title: &str, conditions: &str) -> (String, f64) {
    let title = escape(&fit(title, WIDTH * 0.8));
    let mut text =
        format!("<text x=\"4\" y=\"18\" font-size=\"16\" font-weight=\"600\">{title}</text>");
    let mut y = 26.0;
    for line in wrap(conditions, CONDITIONS_CHARS) {
        y += 17.0;
        let _ = write!(
            text,
            "<text x=\"4\" y=\"{}\" font-size=\"12\" class=\"faint\">{}</text>",
            y - 4.0,
            escape(&line)
        );
    }
    (text, y + 8.0)
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
            _ => lines.push(shorten(word, most)),
        }
    }
    lines
}

/// A plot whose axes are fixed.
struct Plot<'a> {
    chart: &'a Chart,
    series: &'a [&'a Series],
    x: Ruler,
    y: Ruler,
    area: Area,
    names: Vec<String>,
    /// Height of the labels below the x axis.
    labels_height: f64,
    /// Points and marks that could not be drawn.
    skipped: usize,
    out: String,
}

impl<'a> Plot<'a> {
    fn new(chart: &'a Chart, series: &'a [&'a Series]) -> Self {
        let names = categories(chart, series);
        let points = || series.iter().flat_map(|series| &series.points);
        let marks = || chart.marks.iter();
        // A mark that is a line has a place on one axis only.
        let ys = points()
            .filter(|point| drawable(chart.x.scale, point.x.get()))
            .flat_map(|point| [point.y, point.low, point.high])
            .chain(marks().map(|mark| mark.y))
            .flatten()
            .map(f64::from);
        let bottom = TOP + PLOT_HEIGHT;
        let y = Ruler::new(&chart.y, ys, &[], (bottom, TOP), TICKS_Y);
        let widest =
            y.ticks.iter().map(|tick| text_width(&tick_text(&tick.label))).fold(0.0, f64::max);
        let left = LINE + 12.0 + widest;
        let xs = points()
            .filter(|point| point.y.is_some())
            .map(|point| point.x)
            .chain(marks().filter_map(|mark| mark.x))
            .map(f64::from);
        let x = Ruler::new(&chart.x, xs, &names, (left, WIDTH - RIGHT), TICKS_X);
        let area = Area { left, top: TOP, right: WIDTH - RIGHT, bottom };
        Self {
            chart,
            series,
            x,
            y,
            area,
            names,
            labels_height: 18.0,
            skipped: 0,
            out: String::new(),
        }
    }

    fn draw(mut self, prefix: &str, style: &str, conditions: Option<&str>) -> String {
        self.axes();
        let mut labels = Labels::new(self.area);
        for index in 0..self.series.len() {
            self.one_series(index, &mut labels);
        }
        let chart = self.chart;
        let mut legend: Vec<(String, String)> = Vec::new();
        for mark in &chart.marks {
            self.mark_line(mark, &mut labels);
        }
        for mark in &chart.marks {
            if !self.mark_label(mark, &mut labels) {
                let class = format!("mark {}", mark.of);
                legend.push((
                    format!("<path class=\"{class}\" d=\"M0 0h{}\"/>", SAMPLE - 8.0),
                    mark.label.clone(),
                ));
            }
        }
        if self.series.iter().all(|series| series.points.iter().all(|point| point.y.is_none())) {
            let (x, y) = (f64::midpoint(self.area.left, self.area.right), TOP + PLOT_HEIGHT / 2.0);
            self.text(x, y, "middle", "faint", "nothing was measured");
        }
        let mut height = self.below(legend);
        let mut drawn = self.out;
        if let Some(conditions) = conditions {
            let (text, above) = heading(&chart.title, conditions);
            drawn = format!("{text}<g transform=\"translate(0 {above})\">{drawn}</g>");
            height += above;
        }
        let prefix = id(prefix);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" class=\"plot\" viewBox=\"0 0 {WIDTH} {height}\" \
             role=\"img\" aria-labelledby=\"{prefix}-t {prefix}-d\"><title id=\"{prefix}-t\">{}</title>\
             <desc id=\"{prefix}-d\">{}</desc>{style}{drawn}</svg>",
            escape(&chart.title),
            escape(&description(chart, self.series))
        )
    }

    fn put(&mut self, arguments: std::fmt::Arguments<'_>) {
        // Writing to a string cannot fail.
        let _ = self.out.write_fmt(arguments);
    }

    fn path(&mut self, class: impl Display, outline: std::fmt::Arguments<'_>) {
        self.put(format_args!("<path class=\"{class}\" d=\"{outline}\"/>"));
    }

    fn text(&mut self, x: f64, y: f64, anchor: &str, class: &str, text: &str) {
        let text = escape(text);
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\" class=\"{class}\">{text}</text>"
        ));
    }

    /// Grid, axes, tick labels and titles.
    fn axes(&mut self) {
        let Area { left, top, right, bottom } = self.area;
        for tick in self.y.ticks.clone() {
            if let Some(y) = self.y.place(tick.at) {
                self.path("grid", format_args!("M{left:.1} {y:.1}H{right:.1}"));
                self.text(left - 8.0, y + 4.5, "end", "", &tick_text(&tick.label));
            }
        }
        if self.chart.x.scale == Scale::Category {
            self.category_labels();
        } else {
            self.number_labels();
        }
        self.path("axis", format_args!("M{left:.1} {top:.1}V{bottom:.1}H{right:.1}"));
        let title = fit_middle(&self.chart.x.title(), right - left);
        let y = bottom + self.labels_height + 20.0;
        self.text(f64::midpoint(left, right), y, "middle", "", &title);
        let title = escape(&fit_middle(&self.chart.y.title(), PLOT_HEIGHT));
        let middle = f64::midpoint(top, bottom);
        self.put(format_args!(
            "<text transform=\"translate(14 {middle:.1}) rotate(-90)\" text-anchor=\"middle\">{title}</text>"
        ));
    }

    /// Grid and labels below a linear or logarithmic axis.
    fn number_labels(&mut self) {
        let Area { top, bottom, .. } = self.area;
        let mut free_from = f64::NEG_INFINITY;
        for tick in self.x.ticks.clone() {
            let Some(x) = self.x.place(tick.at) else { continue };
            let label = tick_text(&tick.label);
            let half = text_width(&label) / 2.0;
            self.path("grid", format_args!("M{x:.1} {top:.1}V{bottom:.1}"));
            // A label that would touch its neighbour gives way.
            if x - half > free_from && x + half <= WIDTH {
                self.text(x, bottom + 18.0, "middle", "", &label);
                free_from = x + half + 6.0;
            }
        }
    }

    /// The names below a category axis: level where they fit, else at a slope.
    fn category_labels(&mut self) {
        let bottom = self.area.bottom;
        let level = self.x.slot() - 6.0;
        if self.names.iter().all(|name| text_width(name) <= level) {
            for tick in self.x.ticks.clone() {
                let x = self.x.place_clamped(tick.at);
                self.text(x, bottom + 18.0, "middle", "", &tick.label);
            }
            return;
        }
        // The first name must not leave the picture on the left, nor may any reach too far down.
        let (sine, cosine) = SLOPE.to_radians().sin_cos();
        let room = ((self.area.left + self.x.slot() / 2.0 - 8.0) / cosine).min(SLOPED_MAX);
        let every = (LINE / self.x.slot()).ceil().max(1.0) as usize;
        for tick in self.x.ticks.clone().iter().step_by(every) {
            let x = self.x.place_clamped(tick.at);
            let name = escape(&fit_middle(&tick.label, room));
            let y = bottom + 14.0;
            self.put(format_args!(
                "<text transform=\"translate({x:.1} {y:.1}) rotate(-{SLOPE})\" text-anchor=\"end\">{name}</text>"
            ));
        }
        self.labels_height = 14.0 + room * sine + 4.0;
    }

    /// Line, spread bars and points of a series.
    fn one_series(&mut self, index: usize, labels: &mut Labels) {
        let series = self.series[index];
        let shift = self.shift(index);
        let mut path = String::new();
        let mut joined = false;
        let mut drawn = Vec::new();
        for point in &series.points {
            match self.place(point, shift) {
                Some((x, y)) => {
                    labels.avoid(x, y, POINT_REACH);
                    // Disturbed points are shown, but no line leads through them.
                    if point.valid {
                        let step = if joined { 'L' } else { 'M' };
                        let _ = write!(path, "{step}{x:.1} {y:.1}");
                        joined = true;
                    }
                    drawn.push((point, x, y));
                }
                None => {
                    self.skipped += 1;
                    joined = false;
                }
            }
        }
        let dash = dash(series.role, index);
        self.put(format_args!("<g class=\"s{}\">", index % STYLES));
        // Categories have no order to lead a line through.
        if self.chart.x.scale != Scale::Category && !path.is_empty() {
            self.put(format_args!("<path class=\"line\"{dash} d=\"{path}\"/>"));
            labels.avoid_lines(
                drawn.iter().filter(|(point, ..)| point.valid).map(|&(_, x, y)| (x, y)),
            );
        }
        for (point, x, y) in drawn {
            self.one_point(series, index, point, (x, y));
        }
        self.put(format_args!("</g>"));
    }

    fn one_point(&mut self, series: &Series, index: usize, point: &Point, (x, y): (f64, f64)) {
        self.put(format_args!("<g><title>{}</title>", escape(&hint(self.chart, series, point))));
        if let (Some(low), Some(high)) = (point.low, point.high) {
            let (low, high) = (self.y.place_clamped(low.get()), self.y.place_clamped(high.get()));
            // A bar shorter than its point would only blur it.
            if (low - high).abs() > 2.0 {
                let end = x - 4.0;
                let ends = format_args!("M{end:.1} {low:.1}h8M{end:.1} {high:.1}h8");
                self.path("bar", format_args!("M{x:.1} {low:.1}V{high:.1}{ends}"));
            }
        }
        if !point.valid {
            let (x, y) = (x - 5.0, y - 5.0);
            self.path("bad", format_args!("M{x:.1} {y:.1}l10 10m0 -10l-10 10"));
        } else if series.role == Role::Measured
            || series.points.len() == 1
            || self.chart.x.scale == Scale::Category
        {
            self.path("dot", format_args!("{}", shape(index, x, y)));
        }
        self.put(format_args!("</g>"));
    }

    /// Series stand beside each other within a category.
    fn shift(&self, index: usize) -> f64 {
        if self.chart.x.scale != Scale::Category {
            return 0.0;
        }
        let each = (self.x.slot() / (self.series.len() + 1) as f64).min(22.0);
        (index as f64 - (self.series.len() - 1) as f64 / 2.0) * each
    }

    fn place(&self, point: &Point, shift: f64) -> Option<(f64, f64)> {
        let x = match self.chart.x.scale {
            Scale::Category => {
                let name = place_name(self.chart, point);
                self.names.iter().position(|known| *known == name)? as f64
            }
            _ => point.x.get(),
        };
        Some((self.x.place(x)? + shift, self.y.place(point.y?.get())?))
    }

    fn mark_line(&mut self, mark: &Mark, labels: &mut Labels) {
        let Area { left, top, right, bottom } = self.area;
        let class = format!("mark {}", mark.of);
        let (x, y) = self.mark_place(mark);
        match (mark.x, mark.y, x, y) {
            (Some(_), Some(_), Some(x), Some(y)) => {
                labels.avoid(x, y, POINT_REACH);
                let (left, top, corner) = (x - 7.0, y - 7.0, x - 5.0);
                let cross = format_args!("M{left:.1} {y:.1}h14M{x:.1} {top:.1}v14");
                self.path("mark", format_args!("{cross}M{corner:.1} {y:.1}l5 -5l5 5l-5 5z"));
            }
            (Some(_), None, Some(x), _) => {
                labels.avoid_lines([(x, bottom), (x, top)].into_iter());
                self.path(class, format_args!("M{x:.1} {bottom:.1}V{top:.1}"));
            }
            (None, Some(_), _, Some(y)) => {
                labels.avoid_lines([(left, y), (right, y)].into_iter());
                self.path(class, format_args!("M{left:.1} {y:.1}H{right:.1}"));
            }
            _ => self.skipped += 1,
        }
    }

    fn mark_place(&self, mark: &Mark) -> (Option<f64>, Option<f64>) {
        let x = mark.x.and_then(|x| self.x.place(x.get()));
        (x, mark.y.and_then(|y| self.y.place(y.get())))
    }

    /// Writes the mark's label beside it; `false` where there is no room for it. A mark without a
    /// place needs no label.
    fn mark_label(&mut self, mark: &Mark, labels: &mut Labels) -> bool {
        let Area { left, top, right, .. } = self.area;
        let (x, y) = self.mark_place(mark);
        let candidates: Vec<(f64, f64, &str)> = match (mark.x, mark.y, x, y) {
            (Some(_), Some(_), Some(x), Some(y)) => vec![
                (x + 11.0, y + 4.0, "start"),
                (x - 11.0, y + 4.0, "end"),
                (x, y - 12.0, "middle"),
                (x, y + 21.0, "middle"),
            ],
            (Some(_), None, Some(x), _) => (0..8)
                .flat_map(|row| {
                    let y = top + 13.0 + f64::from(row) * 16.0;
                    [(x + 5.0, y, "start"), (x - 5.0, y, "end")]
                })
                .collect(),
            (None, Some(_), _, Some(y)) => {
                let middle = f64::midpoint(left, right);
                let each =
                    |y| [(right - 4.0, y, "end"), (left + 6.0, y, "start"), (middle, y, "middle")];
                [each(y - 5.0), each(y + 14.0)].concat()
            }
            _ => return true,
        };
        let Some((x, y, anchor)) = labels.choose(&candidates, &mark.label) else { return false };
        self.text(x, y, anchor, "halo", &mark.label);
        true
    }

    /// Legend and remark below the axes; the height of the whole picture.
    fn below(&mut self, marks: Vec<(String, String)>) -> f64 {
        let mut items: Vec<(String, String)> = Vec::new();
        for (index, series) in self.series.iter().enumerate().take(LEGEND_MAX) {
            let name = match &series.not_run {
                Some(reason) => format!("{} – not run: {reason}", series.name),
                None => series.name.clone(),
            };
            items.push((self.sample(index), name));
        }
        if self.series.len() > LEGEND_MAX {
            items.push((String::new(), format!("and {} more", self.series.len() - LEGEND_MAX)));
        }
        items.extend(marks);
        let mut points = self.series.iter().flat_map(|series| &series.points);
        if points.any(|point| point.y.is_some() && !point.valid) {
            let cross = "<path class=\"bad\" d=\"M7 -5l10 10m0 -10l-10 10\"/>".to_owned();
            items.push((cross, "disturbed, not counted".to_owned()));
        }
        let mut y = self.area.bottom + self.labels_height + 20.0 + LINE + 4.0;
        let mut x = self.area.left;
        for (sample, name) in items {
            let name = fit(&name, WIDTH - self.area.left - SAMPLE);
            let width = SAMPLE + text_width(&name) + 18.0;
            if x > self.area.left && x + width > WIDTH {
                (x, y) = (self.area.left, y + LINE);
            }
            let middle = y - 4.5;
            self.put(format_args!("<g transform=\"translate({x:.1} {middle:.1})\">{sample}</g>"));
            self.text(x + SAMPLE, y, "start", "", &name);
            x += width;
        }
        if self.skipped > 0 {
            y += LINE;
            let what = match self.skipped {
                1 => "1 value is".to_owned(),
                count => format!("{count} values are"),
            };
            let remark = what + " not drawn: not measured, or without a place on these axes";
            self.text(self.area.left, y, "start", "faint", &remark);
        }
        (y + 12.0).ceil()
    }

    /// Line and point of a series for the legend, around (0, 0) to (24, 0).
    fn sample(&self, index: usize) -> String {
        let series = self.series[index];
        let category = self.chart.x.scale == Scale::Category;
        let mut sample = format!("<g class=\"s{}\">", index % STYLES);
        if !category {
            let dash = dash(series.role, index);
            let _ = write!(sample, "<path class=\"line\"{dash} d=\"M0 0h24\"/>");
        }
        if category || series.role == Role::Measured {
            let _ = write!(sample, "<path class=\"dot\" d=\"{}\"/>", shape(index, 12.0, 0.0));
        }
        sample + "</g>"
    }
}

/// The names of a category axis, in order of appearance over all series.
pub(crate) fn categories(chart: &Chart, series: &[&Series]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    if chart.x.scale == Scale::Category {
        for name in
            series.iter().flat_map(|series| &series.points).map(|point| place_name(chart, point))
        {
            if !names.contains(&name) {
                names.push(name);
            }
        }
    }
    names
}

/// A point's place along the x axis: its category, or its number.
pub(crate) fn place_name(chart: &Chart, point: &Point) -> String {
    match (&point.label, chart.x.scale) {
        (Some(label), Scale::Category) => label.clone(),
        _ => show(point.x.get()),
    }
}

fn tick_text(label: &str) -> String {
    shorten(label, TICK_CHARS)
}

/// Theory and paper are dashed; measured series differ by dash too, once the shapes repeat.
fn dash(role: Role, index: usize) -> &'static str {
    match (role, index / STYLES) {
        (Role::Paper, _) => " stroke-dasharray=\"7 4\"",
        (Role::Theory, _) => " stroke-dasharray=\"2 3\"",
        (Role::Measured, 0) => "",
        (Role::Measured, _) => " stroke-dasharray=\"12 3\"",
    }
}

/// The outline of a series' points: tells series apart where colours do not.
fn shape(index: usize, x: f64, y: f64) -> String {
    match index % STYLES {
        0 => format!("M{:.1} {y:.1}a4.5 4.5 0 1 0 9 0a4.5 4.5 0 1 0 -9 0z", x - 4.5),
        1 => format!("M{:.1} {:.1}h8v8h-8z", x - 4.0, y - 4.0),
        2 => format!("M{x:.1} {:.1}l5 9h-10z", y - 5.5),
        3 => format!("M{x:.1} {:.1}l5.5 5.5l-5.5 5.5l-5.5 -5.5z", y - 5.5),
        4 => format!("M{x:.1} {:.1}l5 -9h-10z", y + 5.5),
        5 => format!("M{:.1} {:.1}h4v3h3v4h-3v3h-4v-3h-3v-4h3z", x - 2.0, y - 5.0),
        6 => format!("M{:.1} {:.1}h5l3 5l-3 5h-5l-3 -5z", x - 2.5, y - 5.0),
        _ => format!("M{:.1} {:.1}h11v5h-11z", x - 5.5, y - 2.5),
    }
}

/// What a reader sees who points at a point.
fn hint(chart: &Chart, series: &Series, point: &Point) -> String {
    let x = format!("{} {}", place_name(chart, point), chart.x.unit);
    let y = point.y.map_or_else(String::new, |y| show(y.get()));
    let mut hint = format!("{}, {}: {y} {}", series.name, x.trim_end(), chart.y.unit);
    if let (Some(low), Some(high)) = (point.low, point.high) {
        let _ = write!(hint, " ({} to {}, n = {})", show(low.get()), show(high.get()), point.n);
    }
    if let Some(note) = &point.note {
        let _ = write!(hint, "; {note}");
    }
    hint
}

/// The plot in words.
fn description(chart: &Chart, series: &[&Series]) -> String {
    let mut text = format!("{} over {}.", chart.y.title(), chart.x.title());
    for series in series {
        let values = || series.points.iter().filter_map(|point| point.y).map(f64::from);
        let (least, most) =
            values().fold((f64::INFINITY, f64::NEG_INFINITY), |(a, b), y| (a.min(y), b.max(y)));
        let _ = match &series.not_run {
            Some(reason) => write!(text, " {}: not run, {reason}.", series.name),
            None if least > most => write!(text, " {}: nothing measured.", series.name),
            None => write!(
                text,
                " {}: {} points from {} to {}.",
                series.name,
                values().count(),
                show(least),
                show(most)
            ),
        };
    }
    for mark in &chart.marks {
        let _ = write!(text, " {}.", mark.label);
    }
    text
}
