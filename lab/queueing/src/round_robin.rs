//! First come, first served, with a quantum: who is not done in time goes to the tail of the queue.
//!
//! A request is only interrupted for another one that waits: a server whose queue is empty at the
//! end of a quantum begins the next one of the same request, at no cost. Each preemption takes the
//! server its cost, before it serves who comes next.

use std::collections::{BinaryHeap, VecDeque};

use crate::observer::{Departure, Observer};
use crate::station::{Station, Timed};

/// A request, and what it still needs.
#[derive(Debug, Clone, Copy)]
struct Task {
    arrival: f64,
    size: f64,
    left: f64,
}

/// One queue, and servers that take turns.
#[derive(Debug, Clone)]
pub(crate) struct RoundRobin {
    servers: usize,
    quantum: f64,
    cost: f64,
    now: f64,
    waiting: VecDeque<Task>,
    /// By the end of each server's slice, with what its request still needs then.
    running: BinaryHeap<Timed<Task>>,
}

impl RoundRobin {
    pub fn new(servers: u32, quantum: f64, cost: f64) -> Self {
        debug_assert!(quantum > 0.0 && cost >= 0.0);
        let servers = servers.max(1) as usize;
        Self {
            servers,
            quantum,
            cost,
            now: 0.0,
            waiting: VecDeque::with_capacity(64),
            running: BinaryHeap::with_capacity(servers),
        }
    }

    fn serve(&mut self, from: f64, task: Task) {
        debug_assert!(self.running.len() < self.servers);
        let slice = task.left.min(self.quantum);
        let task = Task { left: task.left - slice, ..task };
        self.running.push(Timed { at: from + slice, what: task });
    }

    /// The first slice has ended.
    fn turn<O: Observer>(&mut self, ends: f64, task: Task, observer: &mut O) {
        if task.left > 0.0 {
            match self.waiting.pop_front() {
                Some(next) => {
                    self.waiting.push_back(task);
                    self.serve(ends + self.cost, next);
                }
                None => self.serve(ends, task),
            }
            return;
        }
        observer.departed(&Departure { arrival: task.arrival, departure: ends, size: task.size });
        if let Some(next) = self.waiting.pop_front() {
            self.serve(ends, next);
        }
    }

    fn tell<O: Observer>(&mut self, to: f64, observer: &mut O) {
        observer.span(self.now, to, self.present() as f64, self.running.len() as f64);
        self.now = to;
    }
}

impl Station for RoundRobin {
    #[inline]
    fn advance<O: Observer>(&mut self, to: f64, observer: &mut O) {
        while let Some(&Timed { at, what }) = self.running.peek()
            && at <= to
        {
            // Shown as it was before the slice ended.
            self.tell(at, observer);
            self.running.pop();
            self.turn(at, what, observer);
        }
        if to.is_finite() {
            self.tell(to, observer);
        }
    }

    #[inline]
    fn arrive<O: Observer>(&mut self, now: f64, size: f64, _observer: &mut O) {
        let task = Task { arrival: now, size, left: size };
        if self.running.len() < self.servers {
            debug_assert!(self.waiting.is_empty(), "a server is idle beside a queue");
            self.serve(now, task);
        } else {
            self.waiting.push_back(task);
        }
    }

    fn present(&self) -> usize {
        self.waiting.len() + self.running.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observer::{Tally, Window};

    #[derive(Default)]
    struct Departures(Vec<(f64, f64)>);

    impl Observer for Departures {
        fn departed(&mut self, request: &Departure) {
            self.0.push((request.arrival, request.departure));
        }
    }

    fn departures(mut station: RoundRobin, requests: &[(f64, f64)]) -> Vec<(f64, f64)> {
        let mut found = Departures::default();
        for &(arrival, size) in requests {
            station.advance(arrival, &mut found);
            station.arrive(arrival, size, &mut found);
        }
        station.advance(f64::INFINITY, &mut found);
        assert_eq!(station.present(), 0);
        found.0
    }

    #[test]
    fn the_short_one_overtakes_at_the_end_of_the_quantum() {
        // The long one runs 0 to 2, pays 0.5, and goes on when the short one has left at 3.5.
        let requests = [(0.0, 4.0), (1.0, 1.0)];
        let found = departures(RoundRobin::new(1, 2.0, 0.5), &requests);
        assert_eq!(found, [(1.0, 3.5), (0.0, 5.5)]);
        // Nobody waits: no preemption, no cost.
        assert_eq!(departures(RoundRobin::new(1, 0.25, 0.5), &requests[..1]), [(0.0, 4.0)]);
        assert_eq!(departures(RoundRobin::new(2, 0.25, 0.5), &requests), [(1.0, 2.0), (0.0, 4.0)]);
        // A quantum that nobody exceeds is FCFS.
        assert_eq!(departures(RoundRobin::new(1, 9.0, 0.5), &requests), [(0.0, 4.0), (1.0, 5.0)]);
    }

    #[test]
    fn the_cost_is_the_servers() {
        let mut tally = Tally::new(Window { start: 0.0, end: 10.0 });
        let mut station = RoundRobin::new(1, 2.0, 0.5);
        station.arrive(0.0, 4.0, &mut tally);
        station.advance(1.0, &mut tally);
        station.arrive(1.0, 1.0, &mut tally);
        station.advance(f64::INFINITY, &mut tally);
        assert!((tally.busy_fraction(1) - 0.55).abs() < 1e-12);
        assert!((tally.mean_present() - 0.8).abs() < 1e-12);
    }
}
