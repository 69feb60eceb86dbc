//! From how things stand to the page of metrics.

use statseg::layout::{BATCH_BUCKETS, DELAY_BUCKETS, PHASE_BUCKETS};
use statseg::{MigrationTotals, PhaseTotals, bucket_floor};

use super::families as f;
use super::openmetrics::{Buckets, Family, Page};
use crate::status::{Running, ServiceStatus, Snapshot, ThreadStatus};

/// What the sockets' side counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrontCounts {
    /// Open connections to the control socket.
    pub control: u64,
    /// And to the page of metrics.
    pub metrics: u64,
    /// Connections to the control socket that were refused or cut off.
    pub control_refused: u64,
    /// And to the page of metrics.
    pub metrics_refused: u64,
    /// Events that followers were too slow for.
    pub lost_events: u64,
}

/// Samples come of these, each under the name of its service.
type Named<'a, T> = [(&'a str, T)];

/// The whole page.
pub fn render(snapshot: &Snapshot, front: &FrontCounts) -> String {
    let named = snapshot.services.iter().map(|service| (service.name.as_str(), service));
    let all: Vec<(&str, &ServiceStatus)> = named.collect();
    let shown = all.iter().filter_map(|(name, service)| Some((*name, service.running.as_ref()?)));
    // Those that show themselves.
    let running: Vec<(&str, &Running)> = shown.collect();
    let mut page = Page::default();
    daemon(&mut page, snapshot, front);
    services(&mut page, &all, &running);
    control_loop(&mut page, &running);
    threads(&mut page, &running);
    stacks(&mut page, &running);
    histograms(&mut page, &running);
    migrations(&mut page, &running);
    page.end()
}

/// A family with one sample of each that has a value.
fn each<T>(page: &mut Page, family: &Family, of: &Named<'_, T>, value: impl Fn(&T) -> Option<f64>) {
    page.family(family);
    for (name, one) in of {
        if let Some(value) = value(one) {
            page.sample(family, &[("service", name)], value);
        }
    }
}

/// A family with samples that differ in a further label.
fn labelled<T, L: AsRef<str>, V: IntoIterator<Item = (L, f64)>>(
    page: &mut Page,
    family: &Family,
    of: &Named<'_, T>,
    label: &str,
    values: impl Fn(&T) -> V,
) {
    page.family(family);
    for (name, one) in of {
        for (text, value) in values(one) {
            page.sample(family, &[("service", name), (label, text.as_ref())], value);
        }
    }
}

/// As a number: 1 or 0.
fn flag(is: bool) -> f64 {
    f64::from(u8::from(is))
}

fn daemon(page: &mut Page, snapshot: &Snapshot, front: &FrontCounts) {
    page.family(&f::DAEMON);
    page.sample(&f::DAEMON, &[("version", env!("CARGO_PKG_VERSION"))], 1.0);
    page.family(&f::DAEMON_PROBLEMS);
    page.sample(&f::DAEMON_PROBLEMS, &[], snapshot.problems.len() as f64);
    page.family(&f::DAEMON_EVENTS);
    for (kind, count) in &snapshot.events {
        page.sample(&f::DAEMON_EVENTS, &[("kind", kind)], *count as f64);
    }
    let sockets = [
        (&f::DAEMON_CONNECTIONS, front.control, front.metrics),
        (&f::DAEMON_REFUSED, front.control_refused, front.metrics_refused),
    ];
    for (family, control, metrics) in sockets {
        page.family(family);
        page.sample(family, &[("socket", "control")], control as f64);
        page.sample(family, &[("socket", "metrics")], metrics as f64);
    }
    page.family(&f::DAEMON_LOST_EVENTS);
    page.sample(&f::DAEMON_LOST_EVENTS, &[], front.lost_events as f64);
}

fn services(page: &mut Page, services: &Named<'_, &ServiceStatus>, running: &Named<'_, &Running>) {
    page.family(&f::SERVICE);
    for (name, service) in services {
        let Some(running) = &service.running else { continue };
        let labels = [
            ("service", *name),
            ("scheduler", &running.scheduler),
            ("domain", &running.domain),
            ("driver", &running.driver),
            ("policy", service.policy),
        ];
        page.sample(&f::SERVICE, &labels, 1.0);
    }
    each(page, &f::SERVICE_UP, services, |service| Some(flag(service.phase == "up")));
    each(page, &f::SERVICE_STARTS, services, |service| Some(service.starts as f64));
    each(page, &f::SERVICE_PROBLEM, services, |service| Some(flag(service.problem.is_some())));
    labelled(page, &f::SERVICE_MODE, services, "mode", |service| {
        ["policy", "hand", "watch"].map(|mode| (mode, flag(service.mode == mode)))
    });
    each(page, &f::SERVICE_SLO, services, |service| service.slo_us.map(|slo_us| slo_us / 1e6));
    labelled(page, &f::SERVICE_THREADS, running, "state", |running| {
        let count = |state| running.threads.iter().filter(|thread| thread.state == state).count();
        ["starting", "running", "parked", "leaving"].map(|state| (state, count(state) as f64))
    });
    each(page, &f::SERVICE_CLOCK, running, |running| running.clock_hertz.map(|hertz| hertz as f64));
}

fn control_loop(page: &mut Page, running: &Named<'_, &Running>) {
    each(page, &f::POLICY_STEP, running, |running| Some(running.step.as_ref()?.at as f64));
    each(page, &f::POLICY_STEPS, running, |running| Some(running.step.as_ref()?.of as f64));
    each(page, &f::LOOP_TURNS, running, |running| Some(running.totals.turns as f64));
    each(page, &f::LOOP_MISSED, running, |running| Some(running.totals.missed as f64));
    each(page, &f::LOOP_GRANTS, running, |running| Some(running.totals.grants as f64));
    each(page, &f::LOOP_PARKS, running, |running| Some(running.totals.parks as f64));
    each(page, &f::LOOP_MOVED, running, |running| Some(running.totals.moved_groups as f64));
    each(page, &f::LOOP_FAILURES, running, |running| Some(running.totals.failures as f64));
    each(page, &f::UNDER_WAY, running, |running| Some(running.under_way as f64));
    let job = |running: &&Running| running.background.clone();
    each(page, &f::BACKGROUND_UP, running, |running| Some(flag(job(running)?.alive)));
    each(page, &f::BACKGROUND_CPUS, running, |running| Some(job(running)?.cpus.len() as f64));
    each(page, &f::BACKGROUND_TIME, running, |running| Some(job(running)?.cpu_seconds));
}

/// A number of a thread; none where it has none.
type OfThread = fn(&ThreadStatus) -> Option<f64>;

fn threads(page: &mut Page, running: &Named<'_, &Running>) {
    let numbers: [(&Family, OfThread); 16] = [
        (&f::THREAD_PACKETS, |thread| Some(thread.shown.packets as f64)),
        (&f::THREAD_BUSY, |thread| Some(thread.shown.busy_ns as f64 / 1e9)),
        (&f::THREAD_IDLE, |thread| Some(thread.idle_ns as f64 / 1e9)),
        (&f::THREAD_DELAY, |thread| Some(thread.delay_us / 1e6)),
        (&f::THREAD_AWAY, |thread| Some(thread.away_ms as f64 / 1e3)),
        (&f::THREAD_CPU, |thread| Some(thread.cpu? as f64)),
        (&f::THREAD_GROUPS, |thread| Some(f64::from(thread.groups))),
        (&f::THREAD_CONNECTIONS, |thread| Some(thread.connections as f64)),
        (&f::THREAD_SLEEPS, |thread| Some(thread.shown.sleeps as f64)),
        (&f::THREAD_STEALS, |thread| Some(thread.shown.totals.steals as f64)),
        (&f::THREAD_KICKS, |thread| Some(thread.shown.totals.kicks as f64)),
        (&f::THREAD_BORROWED, |thread| Some(thread.shown.totals.borrowed as f64)),
        (&f::THREAD_FORWARDED, |thread| Some(thread.shown.totals.forwarded as f64)),
        (&f::THREAD_FORWARD_DROPS, |thread| Some(thread.shown.totals.forward_drops as f64)),
        (&f::THREAD_EVENTS, |thread| Some(thread.shown.totals.events as f64)),
        (&f::THREAD_CALLS, |thread| Some(thread.shown.totals.calls as f64)),
    ];
    for (family, number) in numbers {
        labelled(page, family, running, "thread", |running| {
            let of = |thread: &ThreadStatus| Some((thread.thread.to_string(), number(thread)?));
            running.threads.iter().filter_map(of).collect::<Vec<_>>()
        });
    }
}

fn stacks(page: &mut Page, running: &Named<'_, &Running>) {
    page.family(&f::THREAD_STACK);
    for (name, running) in running {
        for thread in &running.threads {
            let number = thread.thread.to_string();
            for (place, counter) in &running.stack_names {
                let labels = [("service", *name), ("thread", &number), ("counter", counter)];
                let count = thread.shown.stack.get(*place).copied().unwrap_or_default();
                page.sample(&f::THREAD_STACK, &labels, count as f64);
            }
        }
    }
}

fn histograms(page: &mut Page, running: &Named<'_, &Running>) {
    page.family(&f::BATCH);
    // What bucket n counts is under the floor of the next one.
    let bounds: Vec<f64> = (1..BATCH_BUCKETS).map(|next| bucket_floor(next) as f64 - 1.0).collect();
    for (name, running) in running {
        let counts = sum_of(running, |thread| &thread.shown.batches);
        let packets = running.threads.iter().map(|thread| thread.shown.packets);
        let sum = Some(packets.fold(0, u64::wrapping_add) as f64);
        let buckets = Buckets { bounds: &bounds, counts: &counts, sum };
        page.histogram(&f::BATCH, &[("service", name)], &buckets);
    }
    page.family(&f::DELAY);
    // Delays are counted in whole microseconds.
    let bounds: Vec<f64> = (1..DELAY_BUCKETS).map(|next| bucket_floor(next) as f64 / 1e6).collect();
    for (name, running) in running {
        let counts = sum_of(running, |thread| &thread.shown.delays);
        let buckets = Buckets { bounds: &bounds, counts: &counts, sum: None };
        page.histogram(&f::DELAY, &[("service", name)], &buckets);
    }
    labelled(page, &f::GROUP_PACKETS, running, "group", |running| {
        let packets = running.group_packets.iter().map(|packets| *packets as f64);
        (0..).map(|group: usize| group.to_string()).zip(packets).collect::<Vec<_>>()
    });
}

/// A histogram of all threads together.
fn sum_of<const N: usize>(running: &Running, of: impl Fn(&ThreadStatus) -> &[u64; N]) -> [u64; N] {
    let mut sums = [0u64; N];
    for thread in &running.threads {
        sums.iter_mut().zip(of(thread)).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
    }
    sums
}

fn migrations(page: &mut Page, running: &Named<'_, &Running>) {
    let sums: Vec<(&str, MigrationTotals)> =
        running.iter().map(|(name, running)| (*name, migrations_of(running))).collect();
    labelled(page, &f::MIGRATIONS, &sums, "outcome", |sum| {
        let MigrationTotals { completed, given_up, refused, .. } = *sum;
        [("completed", completed), ("given-up", given_up), ("refused", refused)]
            .map(|(outcome, count)| (outcome, count as f64))
    });
    each(page, &f::MIGRATED_GROUPS, &sums, |sum| Some(sum.groups as f64));
    each(page, &f::MIGRATION_DEFERRED, &sums, |sum| Some(sum.packets as f64));
    page.family(&f::MIGRATION_PHASE);
    // The n-th counts what took less than 2^(n+1) us.
    let bounds: Vec<f64> = (0..PHASE_BUCKETS - 1).map(|n| (2u64 << n) as f64 / 1e6).collect();
    for (name, sum) in &sums {
        for (phase, of) in phases(sum) {
            let sum = Some(of.sum_ns as f64 / 1e9);
            let buckets = Buckets { bounds: &bounds, counts: &of.histogram, sum };
            page.histogram(&f::MIGRATION_PHASE, &[("service", name), ("phase", phase)], &buckets);
        }
    }
    labelled(page, &f::MIGRATION_LONGEST, &sums, "phase", |sum| {
        phases(sum).map(|(phase, of)| (phase, of.max_ns as f64 / 1e9)).collect::<Vec<_>>()
    });
}

fn phases(sum: &MigrationTotals) -> impl Iterator<Item = (&'static str, &PhaseTotals)> {
    let names = ["prepare", "wait", "rpc", "deferred", "total"];
    names.into_iter().zip(sum.phases.iter().chain([&sum.total]))
}

fn migrations_of(running: &Running) -> MigrationTotals {
    let all = running.threads.iter().map(|thread| &thread.shown.migrations);
    all.fold(MigrationTotals::default(), |sum, one| sum.plus(one))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::governor::Facts;
    use crate::manager::Manager;
    use crate::tests::fake::{Directory, Fake, FakeWorld};

    #[test]
    fn the_page_has_every_family_once_and_each_sample_below_its_own() {
        let directory = Directory::new("metrics");
        directory.put("services/kv.toml", "[control]\nslo_us = 500.0\n");
        directory.put("services/wrong.toml", "[");
        let path = |name: &str| directory.path().join(name);
        let config = Config {
            run_directory: path("run"),
            services_directory: path("services"),
            ..Config::default()
        };
        let facts = Facts { topology: None, clocks: None, scaling: control::Scaling::ix() };
        let world = FakeWorld::default();
        let fake = Fake::new("kv", 2, 4);
        world.show("kv", &fake);
        fake.busy(1, 70, 5_000);
        let mut manager = Manager::new(config, facts, world, 0);
        for n in 1..4 {
            manager.turn(n * 10_000_000, 1);
        }
        let snapshot = manager.snapshot(100_000_000);
        let text = render(&snapshot, &FrontCounts { lost_events: 3, ..FrontCounts::default() });
        let mut current = "";
        let mut seen = Vec::new();
        for line in text.lines().filter(|line| *line != "# EOF") {
            if let Some(rest) = line.strip_prefix("# TYPE ") {
                current = rest.split(' ').next().expect("a name");
                seen.push(current);
            } else if !line.starts_with('#') {
                assert!(line.starts_with(current), "{line} is under {current}");
                let value = line.rsplit(' ').next().expect("a value");
                assert!(value.parse::<f64>().is_ok(), "{line}");
            }
        }
        let all: Vec<&str> = f::ALL.iter().map(|family| family.name).collect();
        assert_eq!(seen, all);
        assert!(text.ends_with("# EOF\n"));
        for line in [
            "tailplane_service_up{service=\"kv\"} 1\n",
            "tailplane_service_slo_seconds{service=\"kv\"} 0.0005\n",
            "tailplane_thread_packets_total{service=\"kv\",thread=\"1\"} 70\n",
            "tailplane_batch_packets_bucket{service=\"kv\",le=\"63\"} 0\n",
            "tailplane_batch_packets_bucket{service=\"kv\",le=\"127\"} 1\n",
            "tailplane_batch_packets_sum{service=\"kv\"} 70\n",
            "tailplane_thread_groups{service=\"kv\",thread=\"0\"} 4\n",
            "tailplane_daemon_lost_events_total 3\n",
            "tailplane_daemon_problems 1\n",
            "tailplane_service_mode{service=\"kv\",mode=\"watch\"} 1\n",
        ] {
            assert!(text.contains(line), "{line} is not in:\n{text}");
        }
    }
}
