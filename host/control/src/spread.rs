//! Which flow group belongs to which elastic thread: balanced by measured load, with few moves (IX §4.5).
//!
//! ```
//! use control::metrics::{GroupId, ThreadId};
//! use control::{Spread, spread};
//! // Four equal groups at home on one thread; a second one is granted.
//! let threads = [(ThreadId(0), 1.0), (ThreadId(1), 1.0)];
//! let plan = Spread { threads: &threads, homes: &[ThreadId(0); 4], loads: &[5.0; 4], tolerance: 0.05 };
//! let moves = spread(&plan);
//! assert_eq!(moves.len(), 2);
//! assert!(moves.iter().all(|m| m.from == ThreadId(0) && m.to == ThreadId(1)));
//! ```
//!
//! A migration delays the packets of its groups, so a group moves only where it must (its home goes) or
//! where that takes load from a thread that has too much. IX evens out the *number* of groups; groups differ
//! in load, as connections hash unevenly, and the fullest thread is the one that misses the objective.

use crate::metrics::{GroupId, ThreadId};

/// What is to be spread.
#[derive(Debug, Clone, Copy)]
pub struct Spread<'a> {
    /// The threads that will run, and the speed of each in any one unit, over 0.
    pub threads: &'a [(ThreadId, f64)],
    /// The home of each group, by its number. A thread that is not in `threads` gives all of its groups up.
    pub homes: &'a [ThreadId],
    /// The measured load of each group, in any one unit, not negative.
    pub loads: &'a [f64],
    /// The share by which a thread's load may exceed its part without a move: 0.02 for 2 %.
    pub tolerance: f64,
}

/// One group's migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Move {
    /// Its home until now.
    pub from: ThreadId,
    /// Its home from then on.
    pub to: ThreadId,
    /// Which.
    pub group: GroupId,
}

/// The moves that balance the load: each group at most once, ordered by thread, none where there is no
/// thread. Groups of no load are counted as a thousandth of the average one, so that they spread as well.
pub fn spread(plan: &Spread<'_>) -> Vec<Move> {
    if plan.threads.is_empty() || plan.homes.is_empty() {
        return Vec::new();
    }
    let mut balance = Balance::new(plan);
    balance.settle_homeless();
    balance.even_out();
    let mut moves: Vec<Move> = balance
        .place
        .iter()
        .enumerate()
        .filter_map(|(index, place)| {
            let to = plan.threads[place.expect("every group has a place")].0;
            let (from, group) = (plan.homes[index], GroupId(u16::try_from(index).ok()?));
            (from != to).then_some(Move { from, to, group })
        })
        .collect();
    moves.sort_unstable();
    moves
}

/// The greatest load of a thread over its part of the whole: 1 is perfect balance. 1 where nothing is known.
pub fn imbalance(threads: &[(ThreadId, f64)], homes: &[ThreadId], loads: &[f64]) -> f64 {
    let total: f64 = loads.iter().sum();
    let speed: f64 = threads.iter().map(|thread| thread.1).sum();
    if total <= 0.0 || speed <= 0.0 {
        return 1.0;
    }
    let worst = threads.iter().map(|&(thread, speed)| {
        let at_home = homes.iter().zip(loads).filter(|(home, _)| **home == thread);
        at_home.map(|(_, load)| load).sum::<f64>() / speed
    });
    (worst.fold(0.0, f64::max) * speed / total).max(1.0)
}

struct Balance {
    loads: Vec<f64>,
    /// Of each group: the index of its thread.
    place: Vec<Option<usize>>,
    /// Where it was at the beginning.
    origin: Vec<Option<usize>>,
    speeds: Vec<f64>,
    /// Load over speed, of each thread.
    level: Vec<f64>,
    /// The level above which a thread has too much.
    limit: f64,
}

impl Balance {
    fn new(plan: &Spread<'_>) -> Self {
        let count = plan.homes.len();
        let known = |index: usize| plan.loads.get(index).copied().unwrap_or(0.0).max(0.0);
        let total: f64 = (0..count).map(known).sum();
        let least = if total > 0.0 { total / count as f64 / 1_000.0 } else { 1.0 };
        let loads: Vec<f64> = (0..count).map(|index| known(index).max(least)).collect();
        let place: Vec<Option<usize>> = plan
            .homes
            .iter()
            .map(|home| plan.threads.iter().position(|thread| thread.0 == *home))
            .collect();
        let speeds: Vec<f64> = plan.threads.iter().map(|thread| thread.1.max(1e-9)).collect();
        let mut level = vec![0.0; speeds.len()];
        for (load, place) in loads.iter().zip(&place) {
            if let Some(thread) = *place {
                level[thread] += load / speeds[thread];
            }
        }
        let even = loads.iter().sum::<f64>() / speeds.iter().sum::<f64>();
        let limit = even * (1.0 + plan.tolerance.max(0.0));
        Self { loads, origin: place.clone(), place, speeds, level, limit }
    }

    /// Groups whose home goes: the greatest first, each to the thread that has least with it.
    fn settle_homeless(&mut self) {
        let mut homeless: Vec<usize> =
            (0..self.place.len()).filter(|&group| self.place[group].is_none()).collect();
        homeless.sort_by(|&a, &b| self.loads[b].total_cmp(&self.loads[a]));
        for group in homeless {
            let with = |thread: usize| self.level[thread] + self.loads[group] / self.speeds[thread];
            let all = 0..self.speeds.len();
            let best = all.min_by(|&a, &b| with(a).total_cmp(&with(b))).expect("there is a thread");
            self.put(group, best);
        }
    }

    fn put(&mut self, group: usize, to: usize) {
        if let Some(from) = self.place[group] {
            self.level[from] -= self.loads[group] / self.speeds[from];
        }
        self.level[to] += self.loads[group] / self.speeds[to];
        self.place[group] = Some(to);
    }

    /// Takes from the fullest thread, by one move or else by an exchange, until it is within the tolerance
    /// or nothing helps. Every step lowers the fullest pair's level, and their number is bounded.
    fn even_out(&mut self) {
        for _ in 0..4 * self.place.len() {
            let full = self.extreme(|a, b| a > b);
            if self.level[full] <= self.limit {
                return;
            }
            let Some((group, to)) = self.best_move(full) else {
                match self.best_exchange(full) {
                    Some((out, back, to)) => {
                        self.put(out, to);
                        self.put(back, full);
                        continue;
                    }
                    None => return,
                }
            };
            self.put(group, to);
        }
    }

    fn extreme(&self, better: fn(f64, f64) -> bool) -> usize {
        let pick = |best: usize, thread: usize| {
            if better(self.level[thread], self.level[best]) { thread } else { best }
        };
        (1..self.level.len()).fold(0, pick)
    }

    fn groups_of(&self, thread: usize) -> impl Iterator<Item = usize> + '_ {
        (0..self.place.len()).filter(move |&group| self.place[group] == Some(thread))
    }

    /// The group that, given to the emptiest thread, leaves the fuller of the two lowest. A group that has
    /// moved already costs nothing more, so it goes first where it does as well.
    fn best_move(&self, full: usize) -> Option<(usize, usize)> {
        let to = self.extreme(|a, b| a < b);
        let after = |group: usize| {
            let left = self.level[full] - self.loads[group] / self.speeds[full];
            left.max(self.level[to] + self.loads[group] / self.speeds[to])
        };
        // What lies under the limit is good enough: then fewer moves are better than lower levels.
        let worth = |group: usize| {
            let moved = self.place[group] != self.origin[group];
            (after(group).max(self.even()), !moved)
        };
        let best = self.groups_of(full).min_by(|&a, &b| {
            let ((a, a_new), (b, b_new)) = (worth(a), worth(b));
            a.total_cmp(&b).then(a_new.cmp(&b_new))
        })?;
        (after(best) < self.level[full] * (1.0 - 1e-9)).then_some((best, to))
    }

    fn even(&self) -> f64 {
        self.level.iter().zip(&self.speeds).map(|(level, speed)| level * speed).sum::<f64>()
            / self.speeds.iter().sum::<f64>()
    }

    /// The pair of groups, one of the fullest thread and one of another, whose exchange leaves the fuller of
    /// the two lowest: `(out, back, to)`.
    fn best_exchange(&self, full: usize) -> Option<(usize, usize, usize)> {
        let mut best = None;
        let mut lowest = self.level[full] * (1.0 - 1e-6);
        for to in (0..self.speeds.len()).filter(|&to| to != full) {
            for out in self.groups_of(full) {
                for back in self.groups_of(to) {
                    let more = self.loads[out] - self.loads[back];
                    if more <= 0.0 {
                        continue;
                    }
                    let left = self.level[full] - more / self.speeds[full];
                    let higher = left.max(self.level[to] + more / self.speeds[to]);
                    if higher < lowest {
                        (lowest, best) = (higher, Some((out, back, to)));
                    }
                }
            }
        }
        best
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: ThreadId = ThreadId(0);

    fn applied(homes: &[ThreadId], moves: &[Move]) -> Vec<ThreadId> {
        let mut homes = homes.to_vec();
        for m in moves {
            assert_eq!(
                homes[usize::from(m.group.0)],
                m.from,
                "each group moves once, from its home"
            );
            homes[usize::from(m.group.0)] = m.to;
        }
        homes
    }

    /// The fewest moves after which each thread's level is within `range`; None where nothing reaches it.
    fn fewest(
        threads: &[(ThreadId, f64)],
        homes: &[ThreadId],
        loads: &[f64],
        range: std::ops::RangeInclusive<f64>,
    ) -> Option<usize> {
        let range = range.start() - 1e-9..=range.end() + 1e-9;
        let mut best = None;
        let ways = threads.len().pow(homes.len() as u32);
        for way in 0..ways {
            let (mut rest, mut moves) = (way, 0);
            let mut level = vec![0.0; threads.len()];
            for (group, home) in homes.iter().enumerate() {
                let thread = rest % threads.len();
                rest /= threads.len();
                level[thread] += loads[group] / threads[thread].1;
                moves += usize::from(threads[thread].0 != *home);
            }
            if level.iter().all(|level| range.contains(level)) && best.is_none_or(|b| moves < b) {
                best = Some(moves);
            }
        }
        best
    }

    fn small() -> impl Strategy<Value = (usize, Vec<ThreadId>, Vec<f64>)> {
        (1usize..4, 1usize..8).prop_flat_map(|(threads, groups)| {
            let home = (0u16..4).prop_map(ThreadId);
            (
                Just(threads),
                prop::collection::vec(home, groups),
                prop::collection::vec(1.0f64..10.0, groups),
            )
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(400))]

        /// Equal groups: the result is as even as can be, and no way to get there has fewer moves.
        #[test]
        fn equal_groups_are_spread_with_the_fewest_moves((count, homes, _) in small()) {
            let threads: Vec<_> = (0..count).map(|t| (ThreadId(t as u16), 1.0)).collect();
            let loads = vec![1.0; homes.len()];
            let moves = spread(&Spread { threads: &threads, homes: &homes, loads: &loads, tolerance: 0.0 });
            let after = applied(&homes, &moves);
            let even = (homes.len() / count) as f64..=homes.len().div_ceil(count) as f64;
            for &(thread, _) in &threads {
                let groups = after.iter().filter(|home| **home == thread).count();
                prop_assert!(even.contains(&(groups as f64)));
            }
            prop_assert_eq!(Some(moves.len()), fewest(&threads, &homes, &loads, even));
        }

        /// Unequal ones: against every other way, the fullest thread is at most 4/3 of the best (the
        /// classic bound of the greatest-first rule), and reaching that level takes no way fewer than half.
        #[test]
        fn unequal_groups_are_near_the_best((count, homes, loads) in small()) {
            let threads: Vec<_> = (0..count).map(|t| (ThreadId(t as u16), 1.0)).collect();
            let plan = Spread { threads: &threads, homes: &homes, loads: &loads, tolerance: 0.0 };
            let moves = spread(&plan);
            let after = applied(&homes, &moves);
            let level = |thread: ThreadId| {
                after.iter().zip(&loads).filter(|(h, _)| **h == thread).map(|(_, l)| l).sum::<f64>()
            };
            let worst = threads.iter().map(|t| level(t.0)).fold(0.0, f64::max);
            let mut best = loads.iter().sum::<f64>() / count as f64;
            while fewest(&threads, &homes, &loads, 0.0..=best).is_none() {
                best *= 1.01;
            }
            prop_assert!(worst <= best * 4.0 / 3.0 + 1e-9, "{} against {}", worst, best);
            let least = fewest(&threads, &homes, &loads, 0.0..=worst).expect("it was reached");
            prop_assert!(moves.len() <= 2 * least + 1, "{} moves, {} do", moves.len(), least);
        }

        /// Many groups: whatever the homes, each group ends on a thread that runs, and the balance is good.
        #[test]
        fn many_groups_are_within_a_few_percent(
            count in 1usize..17, seed in any::<u64>(), homes in prop::collection::vec(0u16..16, 128),
        ) {
            let threads: Vec<_> = (0..count).map(|t| (ThreadId(t as u16), 1.0)).collect();
            let homes: Vec<_> = homes.into_iter().map(ThreadId).collect();
            let loads: Vec<f64> = (0..128u64).map(|g| 15.0 + (seed.rotate_left(g as u32) % 12) as f64).collect();
            let plan = Spread { threads: &threads, homes: &homes, loads: &loads, tolerance: 0.02 };
            let after = applied(&homes, &spread(&plan));
            prop_assert!(after.iter().all(|home| usize::from(home.0) < count));
            prop_assert!(imbalance(&threads, &after, &loads) <= 1.03);
            // What is balanced stays as it is.
            let again = Spread { homes: &after, tolerance: 0.03, ..plan };
            prop_assert_eq!(spread(&again), vec![]);
        }
    }

    #[test]
    fn faster_threads_get_more_and_no_thread_gets_nothing_done() {
        let threads = [(A, 1.0), (ThreadId(1), 3.0)];
        let plan = Spread { threads: &threads, homes: &[A; 8], loads: &[1.0; 8], tolerance: 0.0 };
        assert_eq!(spread(&plan).len(), 6);
        assert!(spread(&Spread { threads: &[], ..plan }).is_empty());
        let unknown = Spread { loads: &[], threads: &[(A, 1.0), (ThreadId(1), 1.0)], ..plan };
        assert_eq!(spread(&unknown).len(), 4, "without measurements their number is evened out");
        assert_eq!(imbalance(&threads, &[A; 8], &[0.0; 8]), 1.0);
        assert_eq!(imbalance(&threads, &[A; 4], &[1.0; 4]), 4.0);
    }
}
