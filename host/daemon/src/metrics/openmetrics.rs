//! The OpenMetrics text format, version 1.0.0, as far as we write it: gauges, counters, histograms, infos.
//!
//! ```
//! use daemon::metrics::openmetrics::{Family, Kind, Page};
//! const PACKETS: Family = Family { name: "packets", kind: Kind::Counter, help: "Packets taken." };
//! let mut page = Page::default();
//! page.family(&PACKETS);
//! page.sample(&PACKETS, &[("service", "k\"v")], 7.0);
//! assert_eq!(page.end(), "# TYPE packets counter\n# HELP packets Packets taken.\n\
//!                         packets_total{service=\"k\\\"v\"} 7\n# EOF\n");
//! ```

use std::fmt::Write;

/// The format's name in HTTP.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// What kind of numbers a family has; its name is the format's word for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::AsRefStr)]
#[strum(serialize_all = "lowercase")]
pub enum Kind {
    /// They go up and down.
    Gauge,
    /// They only go up, until what counts is started anew.
    Counter,
    /// Counts by size.
    Histogram,
    /// No number: what there is to say stands in the labels.
    Info,
}

impl Kind {
    /// What the names of its samples end with; of histograms, of their buckets.
    pub fn suffix(self) -> &'static str {
        match self {
            Self::Gauge => "",
            Self::Counter => "_total",
            Self::Histogram => "_bucket",
            Self::Info => "_info",
        }
    }
}

/// A metric family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Family {
    /// Its name, without a sample's suffix.
    pub name: &'static str,
    /// Its kind.
    pub kind: Kind,
    /// What it says, for people.
    pub help: &'static str,
}

/// Names and values of labels.
pub type Labels<'a> = [(&'a str, &'a str)];

/// Counts by size: upper bounds, and how many lie in each bucket alone. Beyond the last bound comes the last count.
#[derive(Clone, Debug, PartialEq)]
pub struct Buckets<'a> {
    /// Inclusive upper bounds, ascending: one fewer than counts.
    pub bounds: &'a [f64],
    /// Of each bucket alone.
    pub counts: &'a [u64],
    /// The sum of what was counted, where it is known.
    pub sum: Option<f64>,
}

/// A page that is being written: one family after the other, all samples of each together.
#[derive(Clone, Debug, Default)]
pub struct Page(String);

impl Page {
    /// Begins a family.
    pub fn family(&mut self, family: &Family) {
        let Family { name, kind, help } = family;
        self.line(format_args!(
            "# TYPE {name} {}\n# HELP {name} {}\n",
            kind.as_ref(),
            escape(help)
        ));
    }

    /// A sample of a gauge, a counter or an info.
    pub fn sample(&mut self, family: &Family, labels: &Labels<'_>, value: f64) {
        self.named(family.name, family.kind.suffix(), labels, None, value);
    }

    /// A histogram.
    pub fn histogram(&mut self, family: &Family, labels: &Labels<'_>, buckets: &Buckets<'_>) {
        let mut total = 0u64;
        let bounds = buckets.bounds.iter().copied().chain([f64::INFINITY]);
        for (bound, count) in bounds.zip(buckets.counts) {
            total = total.saturating_add(*count);
            self.named(family.name, "_bucket", labels, Some(bound), total as f64);
        }
        if let Some(sum) = buckets.sum {
            self.named(family.name, "_count", labels, None, total as f64);
            self.named(family.name, "_sum", labels, None, sum);
        }
    }

    fn named(
        &mut self,
        name: &str,
        suffix: &str,
        labels: &Labels<'_>,
        bound: Option<f64>,
        value: f64,
    ) {
        self.line(format_args!("{name}{suffix}"));
        let bound = bound.map(number);
        let bound = bound.as_ref().map(|bound| ("le", bound.as_str()));
        let mut between = '{';
        for (label, text) in labels.iter().copied().chain(bound) {
            self.line(format_args!("{between}{label}=\"{}\"", escape(text)));
            between = ',';
        }
        let close = if between == ',' { "}" } else { "" };
        self.line(format_args!("{close} {}\n", number(value)));
    }

    fn line(&mut self, text: std::fmt::Arguments<'_>) {
        self.0.write_fmt(text).expect("a string takes all that memory has");
    }

    /// The whole page.
    pub fn end(mut self) -> String {
        self.0.push_str("# EOF\n");
        self.0
    }
}

fn number(value: f64) -> String {
    if value == f64::INFINITY {
        "+Inf".to_owned()
    } else if value == f64::NEG_INFINITY {
        "-Inf".to_owned()
    } else {
        format!("{value}")
    }
}

fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('\n', "\\n").replace('"', "\\\"")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn histograms_add_up() {
        const SIZES: Family = Family { name: "sizes", kind: Kind::Histogram, help: "x" };
        let mut page = Page::default();
        let buckets = Buckets { bounds: &[0.5, 2.0], counts: &[1, 2, 4], sum: Some(9.25) };
        page.histogram(&SIZES, &[("a", "b")], &buckets);
        page.histogram(&SIZES, &[], &Buckets { sum: None, ..buckets });
        let expected = "sizes_bucket{a=\"b\",le=\"0.5\"} 1\nsizes_bucket{a=\"b\",le=\"2\"} 3\n\
                        sizes_bucket{a=\"b\",le=\"+Inf\"} 7\nsizes_count{a=\"b\"} 7\nsizes_sum{a=\"b\"} 9.25\n\
                        sizes_bucket{le=\"0.5\"} 1\nsizes_bucket{le=\"2\"} 3\nsizes_bucket{le=\"+Inf\"} 7\n# EOF\n";
        assert_eq!(page.end(), expected);
    }

    #[test]
    fn numbers_are_those_of_the_format() {
        let said = [0.0, 1e21, 1e-9, f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(number);
        assert_eq!(said[0], "0");
        assert_eq!(said[1], "1000000000000000000000");
        assert_eq!(said[2], "0.000000001");
        assert_eq!(said[3..], ["NaN", "+Inf", "-Inf"]);
        assert_eq!(escape("a\\b\n\"c"), "a\\\\b\\n\\\"c");
    }
}
