//! The report for people: aligned plain text, conditions first.

use std::fmt::{self, Display, Write as _};

use super::{Conditions, LoadReport};
use crate::gap_check::ArrivalCheck;
use crate::series::SeriesPoint;

impl LoadReport {
    /// The report as aligned plain text.
    pub fn to_table(&self) -> String {
        let mut table = Sheet::default();
        for (label, value) in self.conditions.rows() {
            table.row(label, value);
        }
        table.gap();
        table.result(self);
        table.generator(self);
        match &self.invalid_reason {
            None => table.row("valid", "yes"),
            Some(reason) => table.row("valid", format_args!("NO: {reason}")),
        }
        if let Some(reason) = &self.partial_reason {
            table.row("partial", reason);
        }
        table.agents(self);
        table.series(&self.series);
        table.text
    }
}

impl Conditions {
    /// Label and value of each.
    pub fn rows(&self) -> Vec<(&str, String)> {
        let cores = match self.cores.as_slice() {
            [] => "not pinned".to_owned(),
            cores => format!("cores {cores:?}"),
        };
        let Self { connections, threads, wait, measure_ms, warmup_ms, seed, .. } = self;
        let mut rows = vec![
            ("target", format!("{} over {}", self.target, self.transport)),
            ("workload", self.workload.clone()),
            ("mode", self.mode.clone()),
            ("generator", format!("{connections} connections, {threads} threads, {cores}, {wait}")),
            ("window", format!("{measure_ms} ms after {warmup_ms} ms of warm-up, seed {seed}")),
            ("machine", format!("{}, Linux {}", self.processor, self.kernel)),
        ];
        rows.extend(self.more.iter().map(|(label, value)| (label.as_str(), value.clone())));
        rows
    }
}

impl Display for Sheet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Lines of a label and a value, the values under each other.
#[derive(Debug, Default)]
pub struct Sheet {
    text: String,
}

impl Sheet {
    /// One line.
    pub fn row(&mut self, label: &str, value: impl Display) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "{label:<14} {value}");
    }

    /// An empty line.
    pub fn gap(&mut self) {
        self.text.push('\n');
    }

    /// Lines of another form.
    pub fn push(&mut self, lines: impl Display) {
        let _ = writeln!(self.text, "{lines}");
    }

    fn result(&mut self, report: &LoadReport) {
        if let Some(offered) = report.offered_rps {
            self.row("offered", format_args!("{offered:.0} /s"));
        }
        self.row("achieved", format_args!("{:.0} /s", report.achieved_rps));
        let r = report;
        let latency = quantiles([r.p50_us, r.p90_us, r.p99_us, r.p999_us, r.max_us, r.mean_us]);
        self.row("latency us", latency);
        if let Some(p) = &report.probe {
            let latency = quantiles([p.p50_us, p.p90_us, p.p99_us, p.p999_us, p.max_us, p.mean_us]);
            self.row(
                "probe us",
                format_args!(
                    "{latency} ({} requests on {} connections of its own, {} failed)",
                    p.requests, p.connections, p.failed
                ),
            );
        }
        self.row(
            "requests",
            format_args!(
                "{}, {} errors, {} misses, {} unanswered",
                report.requests, report.errors, report.misses, report.unanswered
            ),
        );
        self.row(
            "verified",
            format_args!("{} responses, {} with wrong bytes", report.verified, report.wrong_bytes),
        );
    }

    fn generator(&mut self, report: &LoadReport) {
        if report.offered_rps.is_some() {
            let (p50, p99) = (report.lag_p50_us, report.lag_p99_us);
            let late = report.late_share * 100.0;
            self.row(
                "lateness us",
                format_args!("p50 {p50:.1}  p99 {p99:.1}, {late:.2} % of the requests too late"),
            );
        }
        if let Some(check) = &report.arrivals {
            self.row("arrivals", describe(check));
        }
        if let Some(cpu) = report.generator_cpu_us_per_request {
            self.row("generator cpu", format_args!("{cpu:.2} us per request"));
        }
    }

    /// One line for each agent.
    fn agents(&mut self, report: &LoadReport) {
        if report.agents.is_empty() {
            return;
        }
        if let Some(bound_us) = report.start_skew_bound_us {
            let count = report.agents.len();
            self.row("agents", format_args!("{count}, started within {bound_us:.1} us"));
        }
        for agent in &report.agents {
            let state = match (&agent.invalid_reason, agent.lost) {
                (Some(reason), true) => reason.clone(),
                (reason, _) => {
                    let valid = if reason.is_none() { "valid" } else { "NOT valid" };
                    format!(
                        "{} connections, achieved {:.0} /s, p99 {:.1} us, lateness p99 {:.1} us, {valid}",
                        agent.connections, agent.achieved_rps, agent.p99_us, agent.lag_p99_us
                    )
                }
            };
            self.row(&format!("  {}", agent.name), format_args!("on {}: {state}", agent.host));
        }
    }

    fn series(&mut self, series: &[SeriesPoint]) {
        if !series.is_empty() {
            self.gap();
        }
        for point in series {
            let us = |latency: Option<f64>| latency.map_or("-".into(), |us| format!("{us:.1}"));
            let offered =
                point.offered_rps.map_or(String::new(), |rps| format!("offered {rps:.0}  "));
            self.row(
                &format!("at {} ms", point.at_ms),
                format_args!(
                    "{offered}achieved {:.0} /s  p50 {}  p99 {} us",
                    point.achieved_rps,
                    us(point.p50_us),
                    us(point.p99_us)
                ),
            );
        }
    }
}

/// Latencies in one line.
fn quantiles([p50, p90, p99, p999, max, mean]: [f64; 6]) -> String {
    format!(
        "p50 {p50:.1}  p90 {p90:.1}  p99 {p99:.1}  p99.9 {p999:.1}  max {max:.1}  mean {mean:.1}"
    )
}

/// The check in words.
fn describe(check: &ArrivalCheck) -> String {
    format!(
        "{} {}: distance {:.4} of {:.4} allowed, {:.4} as meant ({} of {} gaps, known up to {:.2} \
         of one)",
        if check.passed { "are" } else { "are NOT" },
        check.process,
        check.statistic,
        check.critical,
        check.statistic_intended,
        check.sampled,
        check.gaps,
        check.resolution_gaps
    )
}
