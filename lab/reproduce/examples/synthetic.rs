//! What a page of results looks like, with numbers that are drawn from a formula and measure
//! nothing:
//!
//! ```text
//! cargo run -p reproduce --example synthetic -- target/synthetic.html target/synthetic.json
//! ```
//!
//! Also a pattern for real figures: each is one constant and one function.

use std::path::Path;
use std::time::SystemTime;

use reproduce::result::Report;
use reproduce::{
    Axis, Bar, Claims, Figure, Mark, MarkOf, Measured, Options, Recorder, Role, Setup, Takes,
    not_run, render, select,
};

/// The caller's own context: here, nothing but a formula's state.
struct Dice(u64);

impl Dice {
    /// Between 0.95 and 1.05.
    fn noise(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        0.95 + (self.0 >> 40) as f64 / f64::from(1 << 24) * 0.1
    }

    fn samples(&mut self, value: f64, repeats: u32) -> Vec<f64> {
        (0..repeats).map(|_| value * self.noise()).collect()
    }
}

const LATENCY: Figure<Dice> = Figure {
    id: "ix/fig4",
    title: "One-way latency and goodput by message size",
    section: "IX (TOCS'16) §5.2, Figure 4",
    what: "Synthetic numbers. One connection sends messages back and forth; half of the round trip \
           is the one-way latency. Both kernel variants are shown: one that blocks, as in the paper, \
           and one that spins.",
    claims: &[
        "ix.fig4.one_way_latency_64B_vs_linux_blocking",
        "ix.fig4.one_way_latency_64B_vs_linux_spinning",
        "ix.fig4.half_bandwidth_message_size_vs_linux",
    ],
    takes: Takes { quick_s: 1, full_s: 1 },
    run: latency,
};

fn latency(dice: &mut Dice, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    recorder.condition("driver", "synthetic");
    let chart = recorder.chart(
        "latency",
        "One-way latency by message size",
        Axis::log("message size", "bytes"),
        Axis::linear("one-way latency", "us"),
    );
    recorder.mark(chart, Mark::point(MarkOf::Paper, 64.0, 5.8, "IX: 5.8 us"));
    recorder.mark(chart, Mark::point(MarkOf::Paper, 64.0, 19.0, "paper's Linux: 19 us"));
    recorder.mark(chart, Mark::horizontal(MarkOf::Goal, 2.0, "goal: 2 us"));
    let systems = [("tailplane", 1.8), ("Linux, spinning", 3.5), ("Linux, blocking", 21.0)];
    let repeats = recorder.options().repeats;
    recorder.plan(3 * 8);
    let mut at_64 = Vec::new();
    for (name, base) in systems {
        let series = recorder.series(chart, name);
        for size in 0..8 {
            let bytes = 64.0 * f64::from(1 << size);
            recorder.step(&format!("{name}, {bytes} B"))?;
            let samples = dice.samples(base + bytes / 2_000.0, repeats);
            if size == 0 {
                at_64.push(samples.clone());
            }
            let mut measured = Measured::samples(&samples);
            if size == 5 && base > 20.0 {
                measured = measured.disturbed("another process used 9 % of a core");
            }
            recorder.point(series, bytes, measured);
        }
    }
    let lwip = recorder.series(chart, "mTCP");
    recorder.series_not_run(lwip, "not built on this machine");
    let seed = recorder.options().seed;
    for (id, kernel) in [
        ("ix.fig4.one_way_latency_64B_vs_linux_blocking", &at_64[2]),
        ("ix.fig4.one_way_latency_64B_vs_linux_spinning", &at_64[1]),
    ] {
        recorder.claim(id, Measured::ratio(kernel, &at_64[0], seed))?;
    }
    recorder.note("Numbers of this page are drawn from a formula.");
    anyhow::bail!("the link went down: reading its state gave <gone> & \"none\"")
}

const SCHEDULERS: Figure<Dice> = Figure {
    id: "zygos/fig6",
    title: "Tail latency over load, exponential service times of 10 us",
    section: "ZygOS (SOSP'17) §6.1, Figure 6",
    what: "Synthetic numbers. Sixteen cores serve 2,752 connections; the load grows until the tail \
           exceeds ten times the mean service time.",
    claims: &["zygos.fig6.efficiency_exp_10us", "zygos.fig6.efficiency_exp_25us"],
    takes: Takes { quick_s: 1, full_s: 1 },
    run: schedulers,
};

fn schedulers(dice: &mut Dice, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let chart = recorder.chart(
        "tail",
        "99th percentile over throughput",
        Axis::linear("throughput", "requests/s"),
        Axis::log("p99 latency", "us"),
    );
    recorder.mark(chart, Mark::horizontal(MarkOf::Objective, 100.0, "objective: 10 x S = 100 us"));
    recorder.mark(chart, Mark::vertical(MarkOf::Paper, 1.16e6, "ZygOS: 75 % of M/G/16"));
    recorder.mark(chart, Mark::vertical(MarkOf::Goal, 1.42e6, "goal: 92 %"));
    let repeats = recorder.options().repeats;
    for (name, role, most) in [
        ("M/G/16/FCFS", Role::Theory, 1.6e6),
        ("work-conserving", Role::Measured, 1.5e6),
        ("run-to-completion, B = 64", Role::Measured, 1.1e6),
    ] {
        let series = recorder.series_as(chart, name, role);
        for step in 1..=12 {
            let load = most * f64::from(step) / 12.5;
            let p99 = 40.0 + 8.0 / (1.0 - load / most);
            let measured = match role {
                Role::Measured => Measured::samples(&dice.samples(p99, repeats)),
                _ => Measured::single(p99),
            };
            recorder.point(series, load, measured);
        }
    }
    let windows = measure::Kept { discarded: 1, ..vec![0.93, 0.94, 0.935].into() };
    recorder.claim("zygos.fig6.efficiency_exp_10us", Measured::windows(&windows, 1, |of| *of))?;
    recorder.claim("zygos.fig6.efficiency_exp_25us", Measured::single(0.91))?;
    Ok(())
}

const TABLE: Figure<Dice> = Figure {
    id: "ix/table3",
    title: "memcached under the two workloads of Facebook",
    section: "IX (TOCS'16) §5.3, Table 3",
    what: "Synthetic numbers. Requests per second at a p99 of less than 500 us.",
    claims: &["ix.table3.etc_rps_at_slo_vs_linux", "ix.table3.usr_rps_at_slo_vs_linux"],
    takes: Takes { quick_s: 1, full_s: 1 },
    run: memcached,
};

fn memcached(dice: &mut Dice, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let chart = recorder.chart(
        "rps",
        "Requests per second at the objective",
        Axis::category("workload"),
        Axis::linear("throughput", "requests/s"),
    );
    recorder.mark(chart, Mark::horizontal(MarkOf::Limit, 750_000.0, "the wire's limit: 750k"));
    let repeats = recorder.options().repeats;
    for (name, etc, usr) in [
        ("tailplane", 480e3, 510e3),
        ("memcached on Linux", 126e3, 128e3),
        ("paper's IX / 10", 418e3, 581e3),
    ] {
        let series = recorder.series(chart, name);
        for (label, value) in [("ETC", etc), ("USR", usr)] {
            recorder.category(series, label, Measured::samples(&dice.samples(value, repeats)));
        }
    }
    recorder.claim("ix.table3.etc_rps_at_slo_vs_linux", Measured::single(3.8))?;
    recorder.claim_not_run("ix.table3.usr_rps_at_slo_vs_linux", "the generator fell behind")?;
    Ok(())
}

const MIGRATION: Figure<Dice> = Figure {
    id: "ix/table5",
    title: "Time that a flow-group migration takes",
    section: "IX (TOCS'16) §5.4, Table 5",
    what: "Flow groups move from one core to another under load.",
    claims: &["ix.table5.migration_total_us_p95_add_core"],
    takes: Takes { quick_s: 1, full_s: 1 },
    run: |_, _| not_run("needs 8 cores; this machine has 2"),
};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let figures = [LATENCY, TABLE, MIGRATION, SCHEDULERS];
    let claims = Claims::builtin()?;
    let mut progress = Bar::default();
    let mut setup = Setup::new(&claims, Options::FULL, &mut progress);
    setup.conditions = measure::conditions::collect(Path::new("/"), "synthetic", SystemTime::now());
    let mut results = Vec::new();
    for figure in select(&figures, "all")? {
        let result = figure.reproduce(&mut Dice(7), &mut setup)?;
        println!("{}", render::text(&result));
        results.push(result);
    }
    if let Some(path) = arguments.next() {
        std::fs::write(
            path,
            render::page("tailplane: synthetic figures", &results, Some(&claims)),
        )?;
    }
    if let Some(path) = arguments.next() {
        std::fs::write(path, Report::new(results).to_json())?;
    }
    Ok(())
}
