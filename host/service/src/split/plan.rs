//! Where a service's threads run (`placement = "auto"`), decided by what others use of the processors.
//!
//! Each elastic thread has the processor that others use least: one of its own, unless others use that so much that
//! two elastic threads have it better together on another one. The application's threads have further ones where as many
//! are free (`split`), and else share their elastic threads' (`same-core`). Others come and go: a processor that they
//! begin to use is left at once, and one that they have left is used again when it has been quiet for a while, the
//! longer the more often they have come back.

use std::collections::BTreeMap;

use process::{Place, Placement};
use serde::{Deserialize, Serialize};

/// A processor of which others use as much is not free.
const BUSY: f64 = 0.2;
/// One of which they use as little is.
const FREE: f64 = 0.1;
/// So much less must others use of another processor for an elastic thread to go there. It is little: where an elastic
/// thread runs before all others, they do not get what they would use.
const WORTH_MOVING: f64 = 0.1;
/// Looks for which that must have been so.
const MOVES_AFTER: u32 = 3;
/// Looks for which processors must have been free, before the application's threads go there.
const SPLITS_AFTER: u32 = 5;
/// That doubles with each return, and the looks between two moves of elastic threads with each move, up to so many.
const PATIENCE_MAX: u32 = 600;

/// An elastic thread on the same processor counts as much as so much use by others.
const SHARED: f64 = 0.6;
/// A processor that is idle for less of the time is full.
const NEVER_IDLE: f64 = 0.05;
/// Others that use more of one that is full would use all of it.
const STARVED: f64 = 0.15;
/// Who waits, waits for a processor of which others use as much, where there is one.
const EXPLAINS: f64 = 0.8;

/// What others did since the last look, as shares of 1.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Foreign {
    /// What they used of each processor. Of one that is not named, nothing.
    pub used: BTreeMap<u32, f64>,
    /// For how much of the time each processor had nothing to do.
    pub idle: BTreeMap<u32, f64>,
    /// For how much of the time some of them waited for a processor.
    pub waited: f64,
}

fn of(used: &BTreeMap<u32, f64>, cpu: u32) -> f64 {
    used.get(&cpu).copied().unwrap_or(0.0)
}

/// The processors of one elastic thread and of the application's thread that serves it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pair {
    /// The elastic thread's.
    pub elastic: u32,
    /// The application's thread's: the same, or one of its own.
    pub application: u32,
    /// Whether another elastic thread has the same processor.
    pub is_crowded: bool,
}

impl Pair {
    /// What the application's thread is told.
    pub fn place(self) -> Place {
        let placement = match self.elastic == self.application {
            true => Placement::SameCore,
            false => Placement::Split,
        };
        Place { placement, cpu: Some(self.application), is_crowded: self.is_crowded }
    }
}

/// See the module's comment.
#[derive(Debug)]
pub struct Plan {
    /// Processors that the service may use.
    allowed: Vec<u32>,
    pairs: Vec<Pair>,
    /// Elastic threads whose processor somebody else has chosen.
    fixed: Vec<bool>,
    /// Looks for which enough processors have been free.
    calm: u32,
    /// Looks for which they must be.
    patience: u32,
    /// Looks for which each elastic thread would have had it better elsewhere.
    crowded: Vec<u32>,
    /// Looks before the next elastic thread moves, and what they were after the last one had.
    settles: u32,
    settled_for: u32,
}

impl Plan {
    /// For so many elastic threads, on the processors `chosen` where there is one for each, else on those of `allowed`
    /// that others use least. None where `allowed` names no processor.
    pub fn new(threads: usize, allowed: &[u32], chosen: &[u32], foreign: &Foreign) -> Option<Self> {
        let is_chosen = chosen.len() == threads;
        let mut plan = Self {
            allowed: allowed.to_vec(),
            pairs: Vec::new(),
            fixed: vec![is_chosen; threads],
            calm: 0,
            patience: SPLITS_AFTER,
            crowded: vec![0; threads],
            settles: 0,
            settled_for: 0,
        };
        for thread in 0..threads {
            let cpu = match is_chosen {
                true => chosen.get(thread).copied(),
                false => plan.best(&foreign.used, None),
            }?;
            plan.pairs.push(Pair { elastic: cpu, application: cpu, is_crowded: false });
        }
        plan.see_crowds();
        Some(plan)
    }

    /// Where the threads are to run, in their order.
    pub fn pairs(&self) -> &[Pair] {
        &self.pairs
    }

    /// Somebody else has placed an elastic thread, which stays there from now on.
    pub fn placed(&mut self, thread: usize, cpu: u32) {
        if let (Some(pair), Some(fixed)) = (self.pairs.get_mut(thread), self.fixed.get_mut(thread))
        {
            *fixed = true;
            if pair.application == pair.elastic {
                pair.application = cpu;
            }
            pair.elastic = cpu;
        }
    }

    /// Tells of what others used since the last look. Answers whether threads are to move.
    pub fn look(&mut self, foreign: &Foreign) -> bool {
        let before = self.pairs.clone();
        let wanted = self.wanted(foreign);
        self.settles = self.settles.saturating_sub(1);
        for thread in 0..self.pairs.len() {
            self.move_elastic(thread, &wanted);
        }
        self.place_application(&wanted);
        self.see_crowds();
        self.pairs != before
    }

    /// What others would use of each processor. Where one of our threads keeps them from theirs, they use little of
    /// that, though it is never idle; or next to nothing, and wait.
    fn wanted(&self, foreign: &Foreign) -> BTreeMap<u32, f64> {
        let mut wanted = foreign.used.clone();
        for (cpu, wanted) in &mut wanted {
            let is_full = foreign.idle.get(cpu).is_some_and(|idle| *idle < NEVER_IDLE);
            if is_full && *wanted > STARVED {
                *wanted = 1.0;
            }
        }
        let is_ours =
            |cpu| self.pairs.iter().any(|pair| [pair.elastic, pair.application].contains(&cpu));
        if !wanted.iter().any(|(cpu, used)| !is_ours(*cpu) && *used > EXPLAINS) {
            let ours = wanted.iter_mut().filter(|(cpu, _)| is_ours(**cpu));
            let most = ours.max_by(|a, b| a.1.total_cmp(b.1));
            most.into_iter().for_each(|(_, wanted)| *wanted += foreign.waited);
        }
        wanted
    }

    /// What stands in the way of an elastic thread on a processor, whichever one it is, or one that is there.
    fn cost(&self, wanted: &BTreeMap<u32, f64>, cpu: u32, thread: Option<usize>) -> f64 {
        let others = self.pairs.iter().enumerate().filter(|(at, _)| Some(*at) != thread);
        let there = others.filter(|(_, pair)| pair.elastic == cpu).count();
        of(wanted, cpu) + SHARED * there as f64
    }

    /// The best processor for an elastic thread: of equals the one with the highest number, as devices interrupt the
    /// lowest.
    fn best(&self, wanted: &BTreeMap<u32, f64>, thread: Option<usize>) -> Option<u32> {
        let cost = |cpu: u32| self.cost(wanted, cpu, thread);
        let allowed = self.allowed.iter().copied();
        allowed.min_by(|a, b| cost(*a).total_cmp(&cost(*b)).then(b.cmp(a)))
    }

    /// Moves an elastic thread off a processor that others use, where another is clearly better.
    fn move_elastic(&mut self, thread: usize, wanted: &BTreeMap<u32, f64>) {
        if self.fixed[thread] {
            return;
        }
        let own = self.cost(wanted, self.pairs[thread].elastic, Some(thread));
        let best = self.best(wanted, Some(thread));
        let Some(best) =
            best.filter(|&cpu| self.cost(wanted, cpu, Some(thread)) + WORTH_MOVING < own)
        else {
            self.crowded[thread] = 0;
            return;
        };
        self.crowded[thread] += 1;
        if self.crowded[thread] >= MOVES_AFTER && self.settles == 0 {
            self.crowded[thread] = 0;
            // What was seen was seen before this move; and where others follow, nothing is won by another one.
            self.settled_for = (2 * self.settled_for).clamp(SPLITS_AFTER, PATIENCE_MAX);
            self.settles = self.settled_for;
            self.pairs[thread] = Pair { elastic: best, application: best, is_crowded: false };
        }
    }

    /// Finds out which elastic threads share a processor.
    fn see_crowds(&mut self) {
        let elastic: Vec<u32> = self.pairs.iter().map(|pair| pair.elastic).collect();
        for pair in &mut self.pairs {
            pair.is_crowded = elastic.iter().filter(|cpu| **cpu == pair.elastic).count() > 1;
        }
    }

    /// Gives the application's threads processors of their own where there are enough, and takes them back where
    /// others use them.
    fn place_application(&mut self, wanted: &BTreeMap<u32, f64>) {
        let is_split = |pair: &Pair| pair.application != pair.elastic;
        let was_split = self.pairs.iter().all(is_split);
        let limit = if was_split { BUSY } else { FREE };
        let mut free: Vec<u32> = self.allowed.clone();
        let is_elastic = |cpu| self.pairs.iter().any(|pair| pair.elastic == cpu);
        free.retain(|&cpu| !is_elastic(cpu) && of(wanted, cpu) < limit);
        // A thread stays where it is, if it can.
        let stays =
            |cpu: u32| self.pairs.iter().any(|pair| is_split(pair) && pair.application == cpu);
        free.sort_by_key(|&cpu| !stays(cpu));
        if free.len() < self.pairs.len() {
            if was_split {
                self.patience = (2 * self.patience).min(PATIENCE_MAX);
            }
            self.calm = 0;
            self.pairs.iter_mut().for_each(|pair| pair.application = pair.elastic);
            return;
        }
        self.calm = self.calm.saturating_add(1);
        if was_split {
            if self.calm > PATIENCE_MAX {
                self.patience = SPLITS_AFTER;
            }
        } else if self.calm < self.patience {
            self.pairs.iter_mut().for_each(|pair| pair.application = pair.elastic);
            return;
        }
        let kept: Vec<u32> = self.pairs.iter().map(|pair| pair.application).collect();
        let mut given = Vec::new();
        for (thread, cpu) in kept.iter().enumerate() {
            if free.contains(cpu) && !given.contains(cpu) {
                given.push(*cpu);
            } else {
                let next = free.iter().find(|cpu| !kept.contains(cpu) && !given.contains(cpu));
                let next = next.or_else(|| free.iter().find(|cpu| !given.contains(cpu)));
                given.push(next.copied().unwrap_or(self.pairs[thread].elastic));
            }
        }
        self.pairs.iter_mut().zip(given).for_each(|(pair, cpu)| pair.application = cpu);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn foreign(used: &[f64]) -> Foreign {
        let used = used.iter().enumerate().map(|(cpu, share)| (cpu as u32, *share)).collect();
        Foreign { used, ..Foreign::default() }
    }

    fn pairs(plan: &Plan) -> Vec<(u32, u32)> {
        plan.pairs().iter().map(|pair| (pair.elastic, pair.application)).collect()
    }

    /// Looks until the plan changes; after how many.
    fn until_change(plan: &mut Plan, used: &[f64]) -> Option<u32> {
        (1..=2 * PATIENCE_MAX).find(|_| plan.look(&foreign(used)))
    }

    #[test]
    fn the_application_has_a_processor_of_its_own_as_long_as_nobody_else_uses_it() {
        let mut plan = Plan::new(1, &[0, 1], &[], &foreign(&[0.4, 0.1])).expect("two");
        assert_eq!(pairs(&plan), [(1, 1)], "the quieter one, and the same at first");
        assert_eq!(until_change(&mut plan, &[0.05, 0.02]), Some(SPLITS_AFTER));
        assert_eq!(pairs(&plan), [(1, 0)]);
        assert_eq!(
            plan.pairs()[0].place(),
            Place { placement: Placement::Split, cpu: Some(0), is_crowded: false }
        );
        // A client begins there.
        assert_eq!(until_change(&mut plan, &[0.9, 0.0]), Some(1), "at once");
        assert_eq!(pairs(&plan), [(1, 1)]);
        assert_eq!(
            plan.pairs()[0].place(),
            Place { placement: Placement::SameCore, cpu: Some(1), is_crowded: false }
        );
        assert_eq!(until_change(&mut plan, &[0.9, 0.0]), None, "as long as it stays");
        assert_eq!(
            until_change(&mut plan, &[0.0, 0.0]),
            Some(2 * SPLITS_AFTER),
            "later than before"
        );
    }

    #[test]
    fn one_that_comes_and_goes_is_given_way_to_for_longer_and_longer() {
        let mut plan = Plan::new(1, &[0, 1], &[], &Foreign::default()).expect("two");
        let mut waits = Vec::new();
        for _ in 0..9 {
            waits.push(until_change(&mut plan, &[0.0, 0.0]).expect("it splits"));
            assert_eq!(until_change(&mut plan, &[0.5, 0.0]), Some(1));
        }
        assert_eq!(waits, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
        // Once it has stayed away for long, that is forgotten.
        assert!(until_change(&mut plan, &[0.0, 0.0]).is_some());
        assert_eq!(until_change(&mut plan, &[0.0, 0.0]), None);
        assert_eq!(until_change(&mut plan, &[0.5, 0.0]), Some(1));
        assert_eq!(until_change(&mut plan, &[0.0, 0.0]), Some(2 * SPLITS_AFTER));
    }

    #[test]
    fn an_elastic_thread_leaves_a_processor_that_others_use_for_a_better_one() {
        let mut plan = Plan::new(1, &[0, 1], &[], &Foreign::default()).expect("two");
        assert_eq!(pairs(&plan), [(1, 1)]);
        // A client was put on the same processor.
        assert_eq!(until_change(&mut plan, &[0.0, 0.5]), Some(MOVES_AFTER));
        assert_eq!(pairs(&plan), [(0, 0)]);
        assert_eq!(until_change(&mut plan, &[0.2, 0.9]), None, "there is no better one");
        let mut both = Plan::new(1, &[0, 1], &[], &Foreign::default()).expect("two");
        assert_eq!(until_change(&mut both, &[0.75, 0.8]), None, "not by enough");
    }

    #[test]
    fn one_that_waits_for_a_processor_that_is_kept_from_it_is_given_way_to() {
        let mut plan = Plan::new(1, &[0, 1, 2], &[], &Foreign::default()).expect("three");
        assert!(until_change(&mut plan, &[0.0; 3]).is_some());
        assert_eq!(pairs(&plan), [(2, 0)]);
        // An elastic thread keeps a client from processor 2: it uses next to nothing of it.
        let kept = Foreign { waited: 0.9, ..foreign(&[0.0, 0.0, 0.1]) };
        let elsewhere = Foreign { waited: 0.9, ..foreign(&[0.0, 0.95, 0.1]) };
        assert!(!plan.look(&elsewhere), "who waits, waits for processor 1");
        let moves = (0..MOVES_AFTER).map(|_| plan.look(&kept)).collect::<Vec<_>>();
        assert_eq!(moves, [false, false, true]);
        assert_eq!(pairs(&plan), [(1, 0)]);
    }

    #[test]
    fn others_that_follow_an_elastic_thread_do_not_drive_it_about() {
        let mut plan = Plan::new(1, &[0, 1], &[], &Foreign::default()).expect("two");
        let mut waits = Vec::new();
        for _ in 0..9 {
            let own = plan.pairs()[0].elastic;
            let used = if own == 0 { [0.5, 0.3] } else { [0.3, 0.5] };
            waits.push(until_change(&mut plan, &used).expect("it moves"));
        }
        assert_eq!(waits, [3, 5, 10, 20, 40, 80, 160, 320, 600]);
    }

    #[test]
    fn as_many_processors_as_threads_must_be_free() {
        let mut plan = Plan::new(2, &[0, 1, 2, 3], &[], &Foreign::default()).expect("four");
        assert_eq!(pairs(&plan), [(3, 3), (2, 2)]);
        assert_eq!(until_change(&mut plan, &[0.5, 0.0, 0.0, 0.0]), None, "one is too few");
        assert!(until_change(&mut plan, &[0.0; 4]).is_some());
        let split = pairs(&plan);
        assert!(split == [(3, 0), (2, 1)] || split == [(3, 1), (2, 0)], "{split:?}");
        // Two threads have two processors: they share them with their applications.
        let mut two = Plan::new(2, &[0, 1], &[], &Foreign::default()).expect("two");
        assert_eq!(until_change(&mut two, &[0.0, 0.0]), None);
        assert_eq!(pairs(&two), [(1, 1), (0, 0)]);
        // A client uses one of them up: they have it better together on the other one.
        let idle = BTreeMap::from([(0, 0.1), (1, 0.01)]);
        let client = Foreign { idle, ..foreign(&[0.0, 0.3]) };
        let moves = (0..MOVES_AFTER).map(|_| two.look(&client)).collect::<Vec<_>>();
        assert_eq!((moves, pairs(&two)), (vec![false, false, true], vec![(0, 0), (0, 0)]));
        assert!(two.pairs().iter().all(|pair| pair.is_crowded));
        assert_eq!(until_change(&mut two, &[0.0, 1.0]), None, "as long as it is there");
        assert!(until_change(&mut two, &[0.0, 0.1]).is_some());
        assert!(two.pairs().iter().all(|pair| !pair.is_crowded), "{:?}", two.pairs());
        // More threads than processors share those, too.
        let many = Plan::new(3, &[0, 1], &[], &Foreign::default()).expect("two");
        assert_eq!(pairs(&many), [(1, 1), (0, 0), (1, 1)]);
        assert!(Plan::new(1, &[], &[], &Foreign::default()).is_none());
    }

    #[test]
    fn a_thread_keeps_its_processor_where_another_is_taken_away() {
        let mut plan = Plan::new(2, &[0, 1, 2, 3, 4], &[], &Foreign::default()).expect("five");
        assert!(until_change(&mut plan, &[0.0; 5]).is_some());
        let before = pairs(&plan);
        let taken = before[0].1;
        let mut used = [0.0; 5];
        used[taken as usize] = 0.8;
        assert!(plan.look(&foreign(&used)), "to the one that is left");
        let after = pairs(&plan);
        assert_eq!(after[1], before[1]);
        assert!(after[0].1 != taken && after[0].1 != after[1].1 && after[0].1 < 3, "{after:?}");
    }

    #[test]
    fn what_somebody_else_has_placed_stays() {
        let mut plan = Plan::new(1, &[0, 1], &[0], &Foreign::default()).expect("two");
        assert_eq!(pairs(&plan), [(0, 0)]);
        assert_eq!(until_change(&mut plan, &[0.9, 0.2]), None);
        plan.placed(0, 1);
        plan.placed(7, 1);
        assert_eq!(pairs(&plan), [(1, 1)]);
        assert!(
            until_change(&mut plan, &[0.0, 0.9]).is_some(),
            "the application's thread may move"
        );
        assert_eq!(pairs(&plan), [(1, 0)]);
    }
}
