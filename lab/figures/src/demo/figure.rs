//! The demo as a figure: what it found, in the record that every figure's text, page and plots are made of.

use load::best_windows;
use reproduce::{Axis, ChartId, Figure, Mark, MarkOf, Measured, Progress, Recorder, Takes};

use super::config::{DemoConfig, SLO_P99_US};
use super::measure;
use super::report::{Churn, Demo, Echo, EchoSystem, KernelClient, System};
use crate::reproduce::testbed::Testbed;

/// The demo, measured.
pub const DEMO: Figure<Testbed> = about(|_, recorder| {
    let mut config = DemoConfig { seed: recorder.options().seed, ..DemoConfig::FULL };
    if recorder.options().quick {
        (config.seconds, config.churn_seconds) = (2.0, 1.0);
    }
    recorder.plan(measure::STEPS);
    let demo = measure::run(&config, &mut Steps(recorder))?;
    record(&demo, recorder);
    Ok(())
});

/// The demo's steps are the figure's.
struct Steps<'a, 'b>(&'a mut Recorder<'b>);

impl Progress for Steps<'_, '_> {
    fn step(&mut self, what: &str) {
        // A stop keeps nothing: no part of the comparison stands alone.
        let _ = self.0.step(what);
    }
}

/// The demo as it was measured before.
pub const MEASURED: Figure<Demo> = about(|demo, recorder| {
    record(demo, recorder);
    Ok(())
});

const fn about<C>(run: fn(&mut C, &mut Recorder<'_>) -> anyhow::Result<()>) -> Figure<C> {
    Figure {
        id: "demo/memcached",
        title: "tailplane beside memcached on the kernel's stack",
        section: "IX (TOCS'16) §5.5, Table 3",
        what: "Our key-value service over AF_XDP and memcached on the kernel's stack: one server core each, the \
               same veth pair, the same open-loop client on our own dataplane; both under a closed-loop client on \
               kernel sockets; and 64-byte echo under that client, both servers spinning.",
        claims: &[],
        takes: Takes { quick_s: 90, full_s: 240 },
        run,
    }
}

/// A row of a table: its label, and what stands there of one system.
type Quantity<T, M = f64> = (&'static str, fn(&T) -> M);

/// A table with a row for each quantity and a column for each system.
fn table(recorder: &mut Recorder<'_>, title: &str, y: Axis) -> ChartId {
    recorder.chart(title, title, Axis::category("quantity"), y)
}

/// Fills the columns of these systems, each with its name, with these quantities.
fn fill<'a, T: 'a, M: Into<Measured>>(
    recorder: &mut Recorder<'_>,
    chart: ChartId,
    all: impl IntoIterator<Item = (&'a str, &'a T)>,
    quantities: &[Quantity<T, M>],
) {
    for (name, one) in all {
        let series = recorder.series(chart, name);
        for (label, value) in quantities {
            recorder.category(series, label, value(one).into());
        }
    }
}

fn record(demo: &Demo, recorder: &mut Recorder<'_>) {
    for (name, value) in &demo.conditions {
        recorder.condition(name, value);
    }
    tail(demo, recorder);
    servers(demo, recorder);
    echo(&demo.echo, recorder);
    ratios(demo, recorder);
}

/// The 99th percentile over throughput, of the windows in which the generator kept up.
fn tail(demo: &Demo, recorder: &mut Recorder<'_>) {
    let (x, y) = (Axis::linear("answered", "requests/s"), Axis::log("p99 latency", "us"));
    let chart = recorder.chart("tail", "99th percentile over throughput", x, y);
    let objective = format!("objective: {SLO_P99_US} us");
    recorder.mark(chart, Mark::horizontal(MarkOf::Objective, SLO_P99_US, objective));
    let rps = demo.bound.reflector_rps;
    recorder.mark(chart, Mark::vertical(MarkOf::Limit, rps, "a bare reflector's frames/s"));
    for system in demo.systems.iter().chain(&demo.variants) {
        let valid = system.points.iter().filter(|point| point.valid);
        let best = best_windows(valid, |point| (point.offered_rps, point.p99_us));
        let points = best.into_iter().map(|point| (point.achieved_rps, point.p99_us));
        recorder.curve(chart, &system.name, points);
        recorder.note(format!("{}: the search was ended by: {}", system.name, system.limit));
        if system.wrong_bytes > 0 {
            recorder
                .note(format!("{}: {} answers with wrong bytes", system.name, system.wrong_bytes));
        }
    }
}

/// Throughput and latency of the key-value servers.
fn servers(demo: &Demo, recorder: &mut Recorder<'_>) {
    let rates = table(recorder, "Requests per second", Axis::linear("rate", "requests/s"));
    let latencies = table(recorder, "Latency", Axis::log("latency", "us"));
    let systems = demo.systems.iter().chain(&demo.variants);
    let systems = systems.map(|system| (&*system.name, system));
    fill(recorder, rates, systems.clone(), &[("p99 < 500 us", |s| s.throughput_at_slo_rps)]);
    let quantities: [Quantity<System>; 5] = [
        ("p50 at that load", |s| s.p50_us),
        ("p99 at that load", |s| s.p99_us),
        ("p99.9 at that load", |s| s.p999_us),
        ("unloaded p50", |s| s.unloaded_p50_us),
        ("unloaded p99", |s| s.unloaded_p99_us),
    ];
    fill(recorder, latencies, systems, &quantities);
    let clients = demo.kernel_client.iter().map(|client| (&*client.name, client));
    fill(recorder, rates, clients.clone(), &[("kernel client, closed loop", |c| c.rps)]);
    let quantities: [Quantity<KernelClient>; 4] = [
        ("kernel client: p50", |c| c.p50_us),
        ("kernel client: p99", |c| c.p99_us),
        ("kernel client: unloaded p50", |c| c.unloaded_p50_us),
        ("kernel client: unloaded p99", |c| c.unloaded_p99_us),
    ];
    fill(recorder, latencies, clients, &quantities);
    for client in &demo.kernel_client {
        recorder.note(format!(
            "{}: {} connections of the kernel client",
            client.name, client.connections
        ));
    }
}

/// 64-byte echo under a kernel client.
fn echo(echo: &Echo, recorder: &mut Recorder<'_>) {
    let rates = table(recorder, "64-byte echo: rates", Axis::log("rate", "1/s"));
    let trips = table(recorder, "64-byte echo: round trip", Axis::linear("round trip", "us"));
    let systems = echo.systems.iter().map(|system| (&*system.name, system));
    let quantities: [Quantity<EchoSystem, Measured>; 2] = [
        ("messages, 32 connections", |s| s.rps_32.clone()),
        ("messages, 1,000 connections", |s| s.rps_1000.clone()),
    ];
    fill(recorder, rates, systems.clone(), &quantities);
    let quantities: [Quantity<EchoSystem, Measured>; 2] =
        [("p50", |s| s.round_trip_p50_us.clone()), ("p99", |s| s.round_trip_p99_us.clone())];
    fill(recorder, trips, systems, &quantities);
    let churn = echo.systems.iter().map(|system| (&*system.name, &system.churn));
    for (name, churn) in churn.chain([("tailplane, our own client", &echo.own_client_churn)]) {
        let quantities: [Quantity<Churn>; 2] = [
            ("connect-request-close, first window", |churn| churn.first_and_last().0),
            ("connect-request-close, last window", |churn| churn.first_and_last().1),
        ];
        fill(recorder, rates, [(name, churn)], &quantities);
        let Churn { errors, cycles, seconds, close, .. } = churn;
        recorder.note(format!(
            "{name}, connect-request-close: {errors} errors in {cycles} cycles of {seconds:.0} s, {close}"
        ));
    }
    if let Some(found) = &echo.sockperf {
        let p50s_us = [&found.tailplane_p50_us, &found.linux_p50_us];
        for (system, p50_us) in echo.systems.iter().zip(p50s_us) {
            let series = recorder.series(trips, &system.name);
            recorder.category(series, "p50 by sockperf", p50_us.clone());
        }
        recorder.note(format!(
            "sockperf: {} rounds count for both, the kernel's with its own server",
            found.rounds
        ));
    }
}

/// Ours over the kernel's, such that more is better.
fn ratios(demo: &Demo, recorder: &mut Recorder<'_>) {
    let chart = table(recorder, "Above 1: tailplane is better", Axis::linear("ratio", ""));
    let quantities: [Quantity<Demo, Measured>; 6] = [
        ("throughput at the objective", |demo| demo.ratio.throughput_at_slo.into()),
        ("unloaded p99", |demo| demo.ratio.unloaded_p99.into()),
        ("echo: round trip p50", |demo| demo.echo.ratio.round_trip_p50.clone()),
        ("echo: messages, 32 connections", |demo| demo.echo.ratio.rps_32.clone()),
        ("echo: messages, 1,000 connections", |demo| demo.echo.ratio.rps_1000.clone()),
        ("throughput over a bare reflector's", |demo| demo.bound.fraction.into()),
    ];
    fill(recorder, chart, [("tailplane over the kernel's stack", demo)], &quantities);
    if let Some(found) = &demo.echo.sockperf {
        let series = recorder.series(chart, "tailplane over the kernel's stack");
        recorder.category(series, "echo: round trip p50 by sockperf", found.ratio.clone());
    }
    recorder
        .note(format!("echo: medians of the ratios of {} paired rounds", demo.echo.ratio.rounds));
    recorder.note(format!("a bare reflector returns {:.0} frames/s", demo.bound.reflector_rps));
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ::measure::Kept;
    use reproduce::{Claims, Options, Setup, Silent, render};

    use super::*;
    use crate::demo::report::{Bound, EchoRatio, Point, Ratio, Sockperf};

    fn system(name: &str, rps: f64) -> System {
        let points = [(rps, 90.0, true), (2.0 * rps, 9_000.0, false)];
        let points = points.map(|(rps, p99_us, valid)| Point {
            offered_rps: rps,
            achieved_rps: rps,
            p50_us: 50.0,
            p99_us,
            valid,
        });
        System {
            name: name.to_owned(),
            throughput_at_slo_rps: rps,
            unloaded_p50_us: 8.0,
            unloaded_p99_us: 13.0,
            p50_us: 50.0,
            p99_us: 326.0,
            p999_us: 480.0,
            limit: "service".to_owned(),
            wrong_bytes: 0,
            points: points.into(),
        }
    }

    /// Ten rounds, one of which was left out.
    fn nine_rounds(value: f64) -> Measured {
        let kept = Kept { discarded: 1, ..Kept::from(vec![value; 9]) };
        Measured::windows(&kept, 1, |value| *value)
    }

    fn demo() -> Demo {
        let churn = Churn {
            cycles_per_s: vec![25_558.0, 25_000.0],
            cycles: 127_000,
            errors: 3,
            seconds: 5.0,
            close: "closed by reset".to_owned(),
        };
        let server = |name: &str| EchoSystem {
            name: name.to_owned(),
            round_trip_p50_us: nine_rounds(11.8),
            round_trip_p99_us: nine_rounds(20.0),
            rps_32: nine_rounds(129_643.0),
            rps_1000: nine_rounds(113_890.0),
            churn: churn.clone(),
        };
        let client = KernelClient {
            name: "tailplane".to_owned(),
            connections: 32,
            rps: 130_950.0,
            p50_us: 200.0,
            p99_us: 300.0,
            unloaded_p50_us: 20.0,
            unloaded_p99_us: 30.0,
        };
        Demo {
            conditions: BTreeMap::from([("driver".to_owned(), "af_xdp, copy".to_owned())]),
            systems: vec![system("tailplane", 317_250.0), system("memcached-linux", 101_025.0)],
            ratio: Ratio { throughput_at_slo: 3.12, unloaded_p99: 15.0 },
            bound: Bound { reflector_rps: 501_855.0, fraction: 0.63 },
            kernel_client: vec![client],
            echo: Echo {
                bytes: 64,
                systems: vec![server("tailplane"), server("linux")],
                ratio: EchoRatio {
                    rounds: 9,
                    round_trip_p50: nine_rounds(1.22),
                    rps_32: nine_rounds(1.32),
                    rps_1000: nine_rounds(1.41),
                },
                sockperf: Some(Sockperf {
                    rounds: 5,
                    tailplane_p50_us: nine_rounds(11.7),
                    linux_p50_us: nine_rounds(19.4),
                    ratio: nine_rounds(1.35),
                    disturbed: String::new(),
                }),
                own_client_churn: churn.clone(),
                disturbed: String::new(),
            },
            variants: vec![system("memcached-linux, unsteered", 90_000.0)],
        }
    }

    #[test]
    fn the_systems_stand_beside_each_other_with_all_that_was_measured() {
        let (claims, mut silent) = (Claims::builtin().expect("well formed"), Silent);
        let mut setup = Setup::new(&claims, Options::FULL, &mut silent);
        let found = MEASURED.reproduce(&mut demo(), &mut setup).expect("it has no claims");
        assert_eq!((&found.partial, &found.not_run), (&None, &None));
        let text = render::text(&found);
        let row = |label: &str| text.lines().find(|line| line.contains(label)).expect(label);
        let p99 = row("p99 < 500 us");
        let [ours, theirs] = ["317,250", "101,025"].map(|rate| p99.find(rate).expect(rate));
        assert!(ours < theirs, "{p99}");
        for part in [
            "unloaded p99",
            "130,950",
            "113,890",
            "p50 by sockperf",
            "connect-request-close, last window",
            "3 errors in 127000 cycles of 5 s, closed by reset",
            "medians of the ratios of 9 paired rounds",
            "9 (+1 discarded)",
            "a bare reflector returns 501855 frames/s",
            "af_xdp, copy",
        ] {
            assert!(text.contains(part), "{part} in {text}");
        }
        // A window in which the generator fell behind is no part of the curve.
        let tail = found.series.iter().filter(|series| series.chart == "tail");
        assert_eq!(tail.map(|series| series.points.len()).collect::<Vec<_>>(), [1, 1, 1]);
        let page = render::page("tailplane demo", &[found], None);
        assert!(page.contains("objective: 500 us"), "{page}");
    }
}
