//! What the page of metrics says: the names of all families. `docs/metrics.md` and the dashboard are tested against
//! them.

use super::openmetrics::{Family, Kind};

macro_rules! families {
    ($($constant:ident: $kind:ident $name:literal $help:literal;)*) => {
        $(#[doc = $help] pub const $constant: Family =
            Family { name: $name, kind: Kind::$kind, help: $help };)*
        /// All of them, in the order of the page.
        pub const ALL: &[&Family] = &[$(&$constant),*];
    };
}

families! {
    DAEMON: Info "tailplane_daemon" "The daemon: its version.";
    DAEMON_PROBLEMS: Gauge "tailplane_daemon_problems"
        "Things of the machine or of files that do not work; List and Daemon say which.";
    DAEMON_EVENTS: Counter "tailplane_daemon_events" "Events by kind.";
    DAEMON_CONNECTIONS: Gauge "tailplane_daemon_connections" "Open connections by socket.";
    DAEMON_REFUSED: Counter "tailplane_daemon_refused_connections"
        "Connections that were refused or cut off, by socket.";
    DAEMON_LOST_EVENTS: Counter "tailplane_daemon_lost_events"
        "Events that followers were too slow for.";
    SERVICE: Info "tailplane_service" "A service: scheduler, domain, driver, policy.";
    SERVICE_UP: Gauge "tailplane_service_up" "Whether the service answers: 1 or 0.";
    SERVICE_STARTS: Counter "tailplane_service_starts" "Starts by this daemon.";
    SERVICE_PROBLEM: Gauge "tailplane_service_problem"
        "Whether something does not work: 1 or 0; Status says what.";
    SERVICE_MODE: Gauge "tailplane_service_mode"
        "Who decides, by mode: 1 for policy, hand or watch, 0 for the others.";
    SERVICE_SLO: Gauge "tailplane_service_slo_seconds"
        "The objective: the bound on the queueing delay, or of the 99th percentile.";
    SERVICE_THREADS: Gauge "tailplane_service_threads" "Elastic threads by state.";
    SERVICE_CLOCK: Gauge "tailplane_service_clock_hertz" "The clock that was set; 0: Turbo.";
    POLICY_STEP: Gauge "tailplane_policy_step" "The step in force, from 0.";
    POLICY_STEPS: Gauge "tailplane_policy_steps" "Steps of the policy's sequence.";
    LOOP_TURNS: Counter "tailplane_loop_turns" "Turns of the control loop.";
    LOOP_MISSED: Counter "tailplane_loop_missed_turns" "Turns left out, as the daemon was late.";
    LOOP_GRANTS: Counter "tailplane_loop_grants" "Threads granted by the loop.";
    LOOP_PARKS: Counter "tailplane_loop_parks" "Threads parked by the loop.";
    LOOP_MOVED: Counter "tailplane_loop_moved_groups" "Flow groups moved by the loop.";
    LOOP_FAILURES: Counter "tailplane_loop_failures" "Decisions that failed.";
    UNDER_WAY: Gauge "tailplane_requests_under_way" "Requests to the service without an answer yet.";
    BACKGROUND_UP: Gauge "tailplane_background_up" "Whether the background job runs: 1 or 0.";
    BACKGROUND_CPUS: Gauge "tailplane_background_cpus" "Processors that it may use; 0: it is stopped.";
    BACKGROUND_TIME: Counter "tailplane_background_cpu_seconds" "Processor time that it has used.";
    THREAD_PACKETS: Counter "tailplane_thread_packets" "Packets taken.";
    THREAD_BUSY: Counter "tailplane_thread_busy_seconds" "Time in busy cycles.";
    THREAD_IDLE: Counter "tailplane_thread_idle_seconds" "Time without work, asleep or not.";
    THREAD_DELAY: Gauge "tailplane_thread_queueing_delay_seconds"
        "The estimated queueing delay of the latest half second: ceil(Q / B) x iteration time.";
    THREAD_AWAY: Gauge "tailplane_thread_away_seconds"
        "For how long the application has not returned; 0: it is not in it.";
    THREAD_CPU: Gauge "tailplane_thread_cpu" "The processor that it is pinned to.";
    THREAD_GROUPS: Gauge "tailplane_thread_groups" "Flow groups at home.";
    THREAD_CONNECTIONS: Gauge "tailplane_thread_connections" "Connections at home.";
    THREAD_SLEEPS: Counter "tailplane_thread_sleeps" "Times that it slept.";
    THREAD_STEALS: Counter "tailplane_thread_steals" "Turns of others' connections that it ran.";
    THREAD_KICKS: Counter "tailplane_thread_kicks" "Kicks that it sent.";
    THREAD_BORROWED: Counter "tailplane_thread_borrowed"
        "Times that it ran another thread's network layer.";
    THREAD_FORWARDED: Counter "tailplane_thread_forwarded_packets"
        "Packets handed on to their home.";
    THREAD_FORWARD_DROPS: Counter "tailplane_thread_forward_dropped_packets"
        "Packets dropped as the ring towards their home was full.";
    THREAD_EVENTS: Counter "tailplane_thread_events" "Events handed to the application.";
    THREAD_CALLS: Counter "tailplane_thread_calls" "System calls executed.";
    THREAD_STACK: Counter "tailplane_thread_stack"
        "What the TCP/IP stack has counted, by counter: frames, segments, bytes, retransmissions, drops and so on.";
    BATCH: Histogram "tailplane_batch_packets" "Packets of a busy cycle, all threads together.";
    DELAY: Histogram "tailplane_queueing_delay_seconds"
        "Estimated queueing delay of busy cycles, all threads together.";
    GROUP_PACKETS: Counter "tailplane_group_packets" "Packets received by flow group.";
    MIGRATIONS: Counter "tailplane_migrations" "Migrations by outcome: completed, given-up, refused.";
    MIGRATED_GROUPS: Counter "tailplane_migrated_groups" "Flow groups that moved.";
    MIGRATION_DEFERRED: Counter "tailplane_migration_deferred_packets"
        "Packets whose processing a migration deferred.";
    MIGRATION_PHASE: Histogram "tailplane_migration_phase_seconds"
        "Time of a migration by phase: prepare, wait, rpc, deferred, and total.";
    MIGRATION_LONGEST: Gauge "tailplane_migration_longest_seconds" "The longest one, by phase.";
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    fn repository(path: &str) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }

    /// All words of a text that are names of metrics.
    fn names(text: &str) -> BTreeSet<String> {
        let word = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let words = text.split(|c: char| !word(c)).filter(|word| word.starts_with("tailplane_"));
        words.map(str::to_owned).collect()
    }

    /// The family that a sample of this name belongs to.
    fn family_of(name: &str) -> Option<&'static Family> {
        let is = |family: &&&Family| match family.kind {
            Kind::Histogram => ["_bucket", "_count", "_sum"]
                .iter()
                .any(|suffix| name.strip_suffix(suffix) == Some(family.name)),
            kind => name.strip_suffix(kind.suffix()) == Some(family.name),
        };
        ALL.iter().find(is).copied()
    }

    #[test]
    fn names_are_one_each_and_fit_the_format() {
        let all: BTreeSet<&str> = ALL.iter().map(|family| family.name).collect();
        assert_eq!(all.len(), ALL.len());
        for family in ALL {
            assert_eq!(
                family_of(&format!("{}{}", family.name, family.kind.suffix())),
                Some(*family)
            );
            for suffix in ["_total", "_info", "_bucket", "_count", "_sum", "_created"] {
                assert!(!family.name.ends_with(suffix), "{}", family.name);
            }
            assert!(family.help.ends_with('.'), "{}", family.name);
        }
    }

    #[test]
    fn each_family_is_documented_and_nothing_else() {
        let text = repository("docs/metrics.md");
        for family in ALL {
            let row = format!("| `{}` | {} |", family.name, family.kind.as_ref());
            assert!(text.contains(&row), "docs/metrics.md has no row that begins {row}");
            assert!(text.contains(family.help.trim_end_matches('.')), "{}: its help", family.name);
        }
        for name in names(&text) {
            let known = ALL.iter().any(|family| family.name == name) || family_of(&name).is_some();
            assert!(known, "docs/metrics.md speaks of {name}");
        }
    }

    #[test]
    fn the_dashboard_asks_for_what_there_is() {
        let text = repository("dist/grafana/tailplane.json");
        let dashboard: serde_json::Value = serde_json::from_str(&text).expect("JSON");
        let panels = dashboard["panels"].as_array().expect("panels");
        let mut asked = BTreeSet::new();
        for target in panels.iter().filter_map(|panel| panel["targets"].as_array()).flatten() {
            asked.extend(names(target["expr"].as_str().expect("an expression")));
        }
        for name in &asked {
            assert!(family_of(name).is_some(), "no sample is called {name}");
        }
        for wanted in [
            &THREAD_PACKETS,
            &BATCH,
            &DELAY,
            &SERVICE_SLO,
            &SERVICE_THREADS,
            &THREAD_IDLE,
            &THREAD_STEALS,
            &THREAD_KICKS,
            &MIGRATION_PHASE,
            &SERVICE_CLOCK,
            &BACKGROUND_CPUS,
            &BACKGROUND_TIME,
        ] {
            let seen = asked.iter().any(|name| family_of(name) == Some(wanted));
            assert!(seen, "the dashboard does not show {}", wanted.name);
        }
    }
}
