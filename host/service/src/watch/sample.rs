//! What happened between two readings of a service.

use std::collections::BTreeMap;

use control::metrics::{Reader, ThreadId};
use endpoint::Description;
use serde::Serialize;
use statseg::layout::DELAY_BUCKETS;
use statseg::{MigrationTotals, State, ThreadCounters, bucket_floor};

/// One reading of all that a service shows.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// When it ended, by `CLOCK_MONOTONIC`, in nanoseconds.
    pub at_ns: u64,
    /// By thread.
    pub threads: Vec<ThreadCounters>,
    /// Packets received, by flow group.
    pub groups: Vec<u64>,
    /// By flow group.
    pub homes: Vec<Option<u16>>,
    /// What the counters of the threads' stacks are called, each with its place in `ThreadCounters::stack`.
    pub stack_names: Vec<(usize, &'static str)>,
}

/// One elastic thread, over the time between two readings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ThreadView {
    /// Its number.
    pub thread: u16,
    /// What it is doing.
    pub state: &'static str,
    /// Where it runs; none: where the kernel puts it.
    pub processor: Option<usize>,
    /// Its share of time in cycles that did something, 0 to 1; none where it counted no time.
    pub load: Option<f64>,
    /// Packets taken.
    pub packets_per_s: f64,
    /// Packets of a busy cycle, on average.
    pub batch_packets: f64,
    /// Connections that a busy cycle left waiting for the application, on average.
    pub ready_connections: f64,
    /// IX's estimate, `ceil(Q / B) x iteration time`, and what those take, on average.
    pub queueing_delay_us: f64,
    /// The same for 99 of 100 cycles that took packets: no more than this. None where there was no such cycle.
    pub queueing_delay_p99_us: Option<u64>,
    /// Turns of other threads' connections that it ran.
    pub steals_per_s: f64,
    /// Kicks that it sent.
    pub kicks_per_s: f64,
    /// Times that it slept.
    pub sleeps_per_s: f64,
    /// Packets that it handed on to their homes.
    pub forwarded_per_s: f64,
    /// Connections at home there.
    pub connections: u64,
    /// Flow groups at home there.
    pub flow_groups: usize,
    /// For how long it has been in the application without a return; none: it is not in it.
    pub in_application_ms: Option<f64>,
}

/// A counter of the TCP/IP stack, of all threads together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct CountView {
    /// Since the service began.
    pub total: u64,
    /// Between the readings.
    pub per_s: f64,
}

/// Migrations since the service began.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct MoveView {
    /// Those that are complete.
    pub completed: u64,
    /// Those that were given up or refused.
    pub failed: u64,
    /// Flow groups that moved.
    pub flow_groups: u64,
    /// Connections that moved with them.
    pub connections: u64,
    /// How long one takes, on average, and the longest.
    pub mean_us: f64,
    /// See `mean_us`.
    pub longest_us: f64,
}

/// A service, over the time between two readings.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ServiceView {
    /// Its name.
    pub name: String,
    /// The process that serves its socket.
    pub pid: u32,
    /// Which core runs the application for a connection.
    pub scheduler: String,
    /// What separates dataplane and application.
    pub domain: String,
    /// How frames travel.
    pub driver: String,
    /// Whether flow groups can be moved.
    pub movable: bool,
    /// B.
    pub batch_max: u32,
    /// Over how long.
    pub period_ms: f64,
    /// By thread.
    pub threads: Vec<ThreadView>,
    /// By flow group: its home.
    pub homes: Vec<Option<u16>>,
    /// By flow group: packets received.
    pub group_packets_per_s: Vec<f64>,
    /// Since it began.
    pub migrations: MoveView,
    /// What the TCP/IP stack counts, by the counter's name.
    pub stack: BTreeMap<String, CountView>,
}

impl ServiceView {
    /// What happened between two readings.
    pub fn between(description: &Description, before: &Snapshot, after: &Snapshot) -> Self {
        let period_ns = after.at_ns.saturating_sub(before.at_ns).max(1);
        let per_s = |then: u64, now: u64| now.saturating_sub(then) as f64 * 1e9 / period_ns as f64;
        let pairs = before.threads.iter().zip(&after.threads).enumerate();
        let of = |(number, (then, now)): (usize, (&ThreadCounters, &ThreadCounters))| {
            let thread = number as u16;
            let mut reader = Reader::new(ThreadId(thread), description.batch_max);
            reader.read(before.at_ns, &then.counters(before.at_ns));
            let [was, is] = [then.counters(before.at_ns), now.counters(after.at_ns)];
            let sample = reader.read(after.at_ns, &is);
            let busy_ns = is.busy_ns.saturating_sub(was.busy_ns);
            // The service's own numbers, which may be any.
            let counted_ns = busy_ns.saturating_add(is.idle_ns.saturating_sub(was.idle_ns));
            let since = now.in_application_since_ns;
            ThreadView {
                thread,
                state: now.state.name(),
                processor: now.processor,
                load: (counted_ns > 0).then(|| busy_ns as f64 / counted_ns as f64),
                packets_per_s: per_s(then.packets, now.packets),
                batch_packets: sample.map_or(0.0, |sample| sample.batch_packets),
                ready_connections: sample.map_or(0.0, |sample| sample.ready),
                queueing_delay_us: sample.map_or(0.0, |sample| sample.delay_ns() / 1e3),
                queueing_delay_p99_us: p99(&then.delays, &now.delays),
                steals_per_s: per_s(then.totals.steals, now.totals.steals),
                kicks_per_s: per_s(then.totals.kicks, now.totals.kicks),
                sleeps_per_s: per_s(then.sleeps, now.sleeps),
                forwarded_per_s: per_s(then.totals.forwarded, now.totals.forwarded),
                connections: now.totals.connections,
                flow_groups: after.homes.iter().filter(|home| **home == Some(thread)).count(),
                in_application_ms: (since > 0 && now.state != State::Leaving)
                    .then(|| after.at_ns.saturating_sub(since) as f64 / 1e6),
            }
        };
        let counted = |(place, name): &(usize, &'static str)| {
            let of = |threads: &[ThreadCounters]| {
                let counts = threads.iter().filter_map(|thread| thread.stack.get(*place));
                counts.fold(0, |sum: u64, count| sum.saturating_add(*count))
            };
            let (then, total) = (of(&before.threads), of(&after.threads));
            ((*name).to_owned(), CountView { total, per_s: per_s(then, total) })
        };
        let groups = before.groups.iter().zip(&after.groups);
        Self {
            name: description.name.clone(),
            pid: description.pid,
            scheduler: description.scheduler.clone(),
            domain: description.domain.clone(),
            driver: description.driver.clone(),
            movable: description.movable,
            batch_max: description.batch_max,
            period_ms: period_ns as f64 / 1e6,
            threads: pairs.map(of).collect(),
            homes: after.homes.clone(),
            group_packets_per_s: groups.map(|(then, now)| per_s(*then, *now)).collect(),
            stack: after.stack_names.iter().map(counted).collect(),
            migrations: moves(after.threads.iter().map(|thread| &thread.migrations)),
        }
    }

    /// The worst of the threads' 99th percentiles; none where no packets came.
    pub fn queueing_delay_p99_us(&self) -> Option<u64> {
        self.threads.iter().filter_map(|thread| thread.queueing_delay_p99_us).max()
    }
}

/// The bound under which 99 of 100 are that were counted between two histograms of powers of two.
fn p99(before: &[u64; DELAY_BUCKETS], after: &[u64; DELAY_BUCKETS]) -> Option<u64> {
    let counts = before.iter().zip(after).map(|(then, now)| now.saturating_sub(*then));
    let counts: Vec<u64> = counts.collect();
    let sum = |counts: &[u64]| counts.iter().map(|count| u128::from(*count)).sum::<u128>();
    let (total, mut seen) = (sum(&counts), 0);
    let bucket = counts.iter().position(|count| {
        seen += u128::from(*count);
        total > 0 && seen * 100 >= total * 99
    })?;
    Some(bucket_floor(bucket + 1))
}

fn moves<'a>(all: impl Iterator<Item = &'a MigrationTotals>) -> MoveView {
    let sum = all.fold(MigrationTotals::default(), |sum, one| sum.plus(one));
    let mean_us = match sum.completed {
        0 => 0.0,
        completed => sum.total.sum_ns as f64 / 1e3 / completed as f64,
    };
    MoveView {
        completed: sum.completed,
        failed: sum.given_up.saturating_add(sum.refused),
        flow_groups: sum.groups,
        connections: sum.connections,
        mean_us,
        longest_us: sum.total.max_ns as f64 / 1e3,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use statseg::{Board, Cycle, Totals};

    /// A description of a service with so many threads.
    pub fn described(threads: u16) -> Description {
        Description {
            name: "kv".into(),
            pid: 4_711,
            started_unix_ms: 0,
            config_path: "kv.toml".into(),
            config_text: String::new(),
            threads,
            cpus: vec![None; usize::from(threads)],
            batch_max: 64,
            groups: 128,
            scheduler: "work-conserving".into(),
            domain: "inline".into(),
            driver: "shm".into(),
            steers: false,
            movable: true,
            version: 1,
        }
    }

    /// Two readings a second apart, of two threads: the first is half busy with batches of 32, the second is
    /// parked.
    pub fn two_readings() -> (Snapshot, Snapshot) {
        let words = [statseg::words(), statseg::words()];
        let boards = [Board::over(&words[0]), Board::over(&words[1])];
        boards[0].set_state(State::Running);
        boards[0].set_processor(Some(3));
        boards[1].set_state(State::Parked);
        boards[1].asleep(5_000);
        let read = |at_ns, groups: Vec<u64>, homes| Snapshot {
            at_ns,
            threads: boards.iter().map(Board::snapshot).collect(),
            groups,
            homes,
            stack_names: vec![(0, "malformed"), (2, "tcp_retransmissions")],
        };
        let before = read(1_000_000_000, vec![0; 4], vec![Some(0), Some(0), Some(1), None]);
        for _ in 0..100 {
            boards[0].busy(&Cycle {
                queue_packets: 96,
                taken_packets: 32,
                ready: 3,
                ready_ns: 1_000_000,
                busy_ns: 5_000_000,
                oldest_waiting_ns: 0,
                delay_ns: 10_000_000,
            });
        }
        boards[0].idle(500_000_000);
        boards[0].tell(&Totals { steals: 70, kicks: 4, connections: 12, ..Totals::default() });
        boards[0].tell_stack([0, 900, 6].into_iter());
        boards[1].tell_stack([0, 0, 1].into_iter());
        boards[0].enter_application(1_960_000_000);
        let after = read(2_000_000_000, vec![0, 900, 0, 2_300], vec![Some(0); 4]);
        (before, after)
    }

    #[test]
    fn a_view_is_the_difference_of_two_readings() {
        let (before, after) = two_readings();
        let view = ServiceView::between(&described(2), &before, &after);
        let [busy, parked] = &view.threads[..] else { panic!("two threads") };
        assert_eq!((busy.state, busy.processor, busy.load), ("running", Some(3), Some(0.5)));
        assert_eq!((busy.packets_per_s, busy.batch_packets), (3_200.0, 32.0));
        assert_eq!((busy.ready_connections, busy.queueing_delay_us), (3.0, 11_000.0));
        assert_eq!(busy.queueing_delay_p99_us, Some(16_384));
        assert_eq!((busy.steals_per_s, busy.kicks_per_s, busy.connections), (70.0, 4.0, 12));
        assert_eq!((busy.in_application_ms, busy.flow_groups), (Some(40.0), 4));
        assert_eq!((parked.state, parked.load, parked.processor), ("parked", Some(0.0), None));
        assert_eq!((parked.queueing_delay_p99_us, parked.flow_groups), (None, 0));
        assert_eq!(view.group_packets_per_s, [0.0, 900.0, 0.0, 2_300.0]);
        assert_eq!(view.queueing_delay_p99_us(), Some(16_384));
        let sent_again = CountView { total: 7, per_s: 7.0 };
        assert_eq!(view.stack.get("tcp_retransmissions"), Some(&sent_again));
        assert_eq!((view.stack["malformed"].total, view.stack.len()), (0, 2));
        // A service that was started anew has smaller numbers: none of them is negative.
        let view = ServiceView::between(&described(2), &after, &before);
        assert!(view.threads.iter().all(|thread| thread.packets_per_s == 0.0));
    }

    /// A segment is written by a process that may write any words.
    #[test]
    fn any_words_are_a_view_that_can_be_drawn() {
        use super::super::{events, render, screen::Screen};
        use ratatui::{Terminal, backend::TestBackend};
        let words = [statseg::words(), statseg::words()];
        let read = |at_ns: u64| {
            let threads = words.iter().map(|words| Board::over(words).snapshot()).collect();
            let homes = vec![None, Some(0), Some(1), Some(u16::MAX)];
            let groups = vec![0, u64::MAX, at_ns, 1 << 63];
            let stack_names = vec![(0, "malformed"), (usize::MAX, "nowhere")];
            Snapshot { at_ns, threads, groups, homes, stack_names }
        };
        let mut word = 0x9e37_79b9_7f4a_7c15_u64;
        let (mut before, mut screen) = (read(0), Screen::default());
        for turn in 0..2_000_u64 {
            for place in words.iter().flat_map(|words| words.iter()) {
                word = word.rotate_left(13).wrapping_mul(0x2545_f491_4f6c_dd1d).wrapping_add(turn);
                let odd = [u64::MAX, u64::MAX - 1, 1 << 63, 0, 1, word][(word >> 32) as usize % 6];
                place.store(odd, std::sync::atomic::Ordering::Relaxed);
            }
            let after = read(turn.wrapping_mul(word));
            let view = ServiceView::between(&described(2), &before, &after);
            let text = render::service(&view);
            assert!(!text.chars().any(|c| c.is_control() && c != '\n'), "{text}");
            events::between(&before, &after).into_iter().for_each(|event| screen.note(0.0, event));
            screen.view = Some(view);
            if turn % 100 == 0 {
                let mut terminal = Terminal::new(TestBackend::new(120, 40)).expect("a buffer");
                terminal.draw(|frame| screen.draw(frame)).expect("it is drawn");
            }
            before = after;
        }
    }
}
