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

/// The whole page.
pub fn render(snapshot: &Snapshot, front: &FrontCounts) -> String {
    let mut page = Page::default();
    daemon(&mut page, snapshot, front);
    services(&mut page, &snapshot.services);
    control_loop(&mut page, &snapshot.services);
    threads(&mut page, &snapshot.services);
    stacks(&mut page, &snapshot.services);
    histograms(&mut page, &snapshot.services);
    migrations(&mut page, &snapshot.services);
    page.end()
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

/// One sample of each service that has a value.
fn each(
    page: &mut Page,
    family: &Family,
    services: &[ServiceStatus],
    value: impl Fn(&ServiceStatus) -> Option<f64>,
) {
    page.family(family);
    for service in services {
        if let Some(value) = value(service) {
            page.sample(family, &[("service", &service.name)], value);
        }
    }
}

fn services(page: &mut Page, services: &[ServiceStatus]) {
    page.family(&f::SERVICE);
    for (service, running) in running(services) {
        let labels = [
            ("service", service.name.as_str()),
            ("scheduler", &running.scheduler),
            ("domain", &running.domain),
            ("driver", &running.driver),
            ("policy", service.policy),
        ];
        page.sample(&f::SERVICE, &labels, 1.0);
    }
    let one = |is: bool| Some(if is { 1.0 } else { 0.0 });
    each(page, &f::SERVICE_UP, services, |service| one(service.phase == "up"));
    each(page, &f::SERVICE_STARTS, services, |service| Some(service.starts as f64));
    each(page, &f::SERVICE_PROBLEM, services, |service| one(service.problem.is_some()));
    page.family(&f::SERVICE_MODE);
    for service in services {
        for mode in ["policy", "hand", "watch"] {
            let labels = [("service", service.name.as_str()), ("mode", mode)];
            page.sample(&f::SERVICE_MODE, &labels, f64::from(u8::from(service.mode == mode)));
        }
    }
    each(page, &f::SERVICE_SLO, services, |service| service.slo_us.map(|slo_us| slo_us / 1e6));
    page.family(&f::SERVICE_THREADS);
    for (service, running) in running(services) {
        for state in ["starting", "running", "parked", "leaving"] {
            let count = running.threads.iter().filter(|thread| thread.state == state).count();
            let labels = [("service", service.name.as_str()), ("state", state)];
            page.sample(&f::SERVICE_THREADS, &labels, count as f64);
        }
    }
    let hertz = |service: &ServiceStatus| service.running.as_ref()?.clock_hertz;
    each(page, &f::SERVICE_CLOCK, services, |service| hertz(service).map(|hertz| hertz as f64));
}

fn control_loop(page: &mut Page, services: &[ServiceStatus]) {
    let step = |service: &ServiceStatus| service.running.as_ref()?.step.clone();
    each(page, &f::POLICY_STEP, services, |service| Some(step(service)?.at as f64));
    each(page, &f::POLICY_STEPS, services, |service| Some(step(service)?.of as f64));
    let totals: [(&Family, OfRunning); 7] = [
        (&f::LOOP_TURNS, |running| running.totals.turns),
        (&f::LOOP_MISSED, |running| running.totals.missed),
        (&f::LOOP_GRANTS, |running| running.totals.grants),
        (&f::LOOP_PARKS, |running| running.totals.parks),
        (&f::LOOP_MOVED, |running| running.totals.moved_groups),
        (&f::LOOP_FAILURES, |running| running.totals.failures),
        (&f::UNDER_WAY, |running| running.under_way as u64),
    ];
    for (family, total) in totals {
        each(page, family, services, |service| Some(total(service.running.as_ref()?) as f64));
    }
    let job = |service: &ServiceStatus| service.running.as_ref()?.background.clone();
    let alive = |service: &ServiceStatus| Some(f64::from(u8::from(job(service)?.alive)));
    each(page, &f::BACKGROUND_UP, services, alive);
    each(page, &f::BACKGROUND_CPUS, services, |service| Some(job(service)?.cpus.len() as f64));
    each(page, &f::BACKGROUND_TIME, services, |service| Some(job(service)?.cpu_seconds));
}

/// A number of a service that shows itself.
type OfRunning = fn(&Running) -> u64;

/// A number of a thread; none where it has none.
type OfThread = fn(&ThreadStatus) -> Option<f64>;

fn threads(page: &mut Page, services: &[ServiceStatus]) {
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
        page.family(family);
        for (service, running) in running(services) {
            for thread in &running.threads {
                let label = thread.thread.to_string();
                if let Some(value) = number(thread) {
                    page.sample(family, &[("service", &service.name), ("thread", &label)], value);
                }
            }
        }
    }
}

fn stacks(page: &mut Page, services: &[ServiceStatus]) {
    page.family(&f::THREAD_STACK);
    for (service, running) in running(services) {
        for thread in &running.threads {
            let number = thread.thread.to_string();
            for (place, counter) in &running.stack_names {
                let labels =
                    [("service", service.name.as_str()), ("thread", &number), ("counter", counter)];
                let count = thread.shown.stack.get(*place).copied().unwrap_or_default();
                page.sample(&f::THREAD_STACK, &labels, count as f64);
            }
        }
    }
}

fn histograms(page: &mut Page, services: &[ServiceStatus]) {
    page.family(&f::BATCH);
    // What bucket n counts is under the floor of the next one.
    let bounds: Vec<f64> = (1..BATCH_BUCKETS).map(|next| bucket_floor(next) as f64 - 1.0).collect();
    for (service, running) in running(services) {
        let counts = sum_of(running, |thread| &thread.shown.batches);
        let packets = running.threads.iter().map(|thread| thread.shown.packets);
        let sum = Some(packets.fold(0, u64::wrapping_add) as f64);
        let buckets = Buckets { bounds: &bounds, counts: &counts, sum };
        page.histogram(&f::BATCH, &[("service", &service.name)], &buckets);
    }
    page.family(&f::DELAY);
    // Delays are counted in whole microseconds.
    let bounds: Vec<f64> = (1..DELAY_BUCKETS).map(|next| bucket_floor(next) as f64 / 1e6).collect();
    for (service, running) in running(services) {
        let counts = sum_of(running, |thread| &thread.shown.delays);
        let buckets = Buckets { bounds: &bounds, counts: &counts, sum: None };
        page.histogram(&f::DELAY, &[("service", &service.name)], &buckets);
    }
    page.family(&f::GROUP_PACKETS);
    for (service, running) in running(services) {
        for (group, packets) in running.group_packets.iter().enumerate() {
            let labels = [("service", service.name.as_str()), ("group", &group.to_string())];
            page.sample(&f::GROUP_PACKETS, &labels, *packets as f64);
        }
    }
}

/// A histogram of all threads together.
fn sum_of<const N: usize>(running: &Running, of: impl Fn(&ThreadStatus) -> &[u64; N]) -> [u64; N] {
    let mut sums = [0u64; N];
    for thread in &running.threads {
        sums.iter_mut().zip(of(thread)).for_each(|(sum, count)| *sum = sum.saturating_add(*count));
    }
    sums
}

fn migrations(page: &mut Page, services: &[ServiceStatus]) {
    let sums: Vec<(&ServiceStatus, MigrationTotals)> =
        running(services).map(|(service, running)| (service, migrations_of(running))).collect();
    page.family(&f::MIGRATIONS);
    for (service, sum) in &sums {
        let outcomes =
            [("completed", sum.completed), ("given-up", sum.given_up), ("refused", sum.refused)];
        for (outcome, count) in outcomes {
            let labels = [("service", service.name.as_str()), ("outcome", outcome)];
            page.sample(&f::MIGRATIONS, &labels, count as f64);
        }
    }
    page.family(&f::MIGRATED_GROUPS);
    for (service, sum) in &sums {
        page.sample(&f::MIGRATED_GROUPS, &[("service", &service.name)], sum.groups as f64);
    }
    page.family(&f::MIGRATION_DEFERRED);
    for (service, sum) in &sums {
        page.sample(&f::MIGRATION_DEFERRED, &[("service", &service.name)], sum.packets as f64);
    }
    page.family(&f::MIGRATION_PHASE);
    // The n-th counts what took less than 2^(n+1) us.
    let bounds: Vec<f64> = (0..PHASE_BUCKETS - 1).map(|n| (2u64 << n) as f64 / 1e6).collect();
    for (service, sum) in &sums {
        for (phase, of) in phases(sum) {
            let sum = Some(of.sum_ns as f64 / 1e9);
            let buckets = Buckets { bounds: &bounds, counts: &of.histogram, sum };
            let labels = [("service", service.name.as_str()), ("phase", phase)];
            page.histogram(&f::MIGRATION_PHASE, &labels, &buckets);
        }
    }
    page.family(&f::MIGRATION_LONGEST);
    for (service, sum) in &sums {
        for (phase, of) in phases(sum) {
            let labels = [("service", service.name.as_str()), ("phase", phase)];
            page.sample(&f::MIGRATION_LONGEST, &labels, of.max_ns as f64 / 1e9);
        }
    }
}

fn phases(sum: &MigrationTotals) -> impl Iterator<Item = (&'static str, &PhaseTotals)> {
    let names = ["prepare", "wait", "rpc", "deferred", "total"];
    names.into_iter().zip(sum.phases.iter().chain([&sum.total]))
}

fn migrations_of(running: &Running) -> MigrationTotals {
    let mut sum = MigrationTotals::default();
    for thread in &running.threads {
        let of = &thread.shown.migrations;
        sum.completed = sum.completed.saturating_add(of.completed);
        sum.given_up = sum.given_up.saturating_add(of.given_up);
        sum.refused = sum.refused.saturating_add(of.refused);
        sum.groups = sum.groups.saturating_add(of.groups);
        sum.packets = sum.packets.saturating_add(of.packets);
        let all = sum.phases.iter_mut().chain([&mut sum.total]);
        for (sum, of) in all.zip(of.phases.iter().chain([&of.total])) {
            sum.sum_ns = sum.sum_ns.saturating_add(of.sum_ns);
            sum.max_ns = sum.max_ns.max(of.max_ns);
            let both = sum.histogram.iter_mut().zip(&of.histogram);
            both.for_each(|(sum, count)| *sum = sum.saturating_add(*count));
        }
    }
    sum
}

/// Services that show themselves.
fn running(services: &[ServiceStatus]) -> impl Iterator<Item = (&ServiceStatus, &Running)> {
    services.iter().filter_map(|service| Some((service, service.running.as_ref()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::fake::{Directory, Fake, FakeWorld};
    use crate::governor::Facts;
    use crate::manager::Manager;

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
