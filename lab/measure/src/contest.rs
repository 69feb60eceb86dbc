//! Windows of several contestants, round by round. Each round gives every contestant one window, in an order that is
//! drawn anew, so that what changes slowly (where the host puts the virtual processors, the neighbours' caches) meets all
//! of them alike and none gains by its place; disturbed windows are repeated, up to a bound.

use std::thread;
use std::time::Duration;

use rand::SeedableRng;
use rand::seq::SliceRandom;
use rand_xoshiro::Xoshiro256PlusPlus;

use crate::disturbance::Disturbance;

/// How often, how patiently.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Plan {
    /// Quiet windows that are wanted of each contestant.
    pub windows: usize,
    /// Windows that are tried for them, disturbed ones included.
    pub tries: usize,
    /// Before each window: the rest of the machine gets its turn.
    pub pause: Duration,
    /// A window that was disturbed more does not count, whichever contestant's it is.
    pub quiet: Disturbance,
    /// Of the order in each round.
    pub seed: u64,
}

/// What one contestant's windows found.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept<T> {
    /// Of the windows that count; where not one was quiet, of all of them.
    pub found: Vec<T>,
    /// The round of each of them.
    pub rounds: Vec<usize>,
    /// Rounds that were held, the same for all contestants.
    pub held: usize,
    /// Windows that were disturbed.
    pub discarded: usize,
    /// The last disturbance, where there was no quiet window: `found` is then what was found under it.
    pub disturbed: Option<Disturbance>,
}

impl<T> Kept<T> {
    /// Windows that count.
    pub fn quiet(&self) -> usize {
        if self.disturbed.is_none() { self.found.len() } else { 0 }
    }

    /// One number of each window.
    pub fn values(&self, of: impl FnMut(&T) -> f64) -> Vec<f64> {
        self.found.iter().map(of).collect()
    }

    /// Windows of this contestant and of `other` that were measured in the same round, one soon after the
    /// other: what they differ by is not the host's doing, which may run at another speed a second later.
    /// Both must come from one [`contest`].
    pub fn paired<'a, U>(&'a self, other: &'a Kept<U>) -> impl Iterator<Item = (&'a T, &'a U)> {
        let mut others = other.rounds.iter().zip(&other.found).peekable();
        self.rounds.iter().zip(&self.found).filter_map(move |(round, found)| {
            while others.next_if(|(other, _)| *other < round).is_some() {}
            others.next_if(|(other, _)| *other == round).map(|(_, other)| (found, other))
        })
    }
}

/// Windows without rounds of their own: each is of the round of its place.
impl<T> From<Vec<T>> for Kept<T> {
    fn from(found: Vec<T>) -> Self {
        let held = found.len();
        Self { rounds: (0..held).collect(), found, held, discarded: 0, disturbed: None }
    }
}

/// `all` in the order that the seed draws: for contestants that are measured once, one after the other.
pub fn shuffled<T>(mut all: Vec<T>, seed: u64) -> Vec<T> {
    all.shuffle(&mut Xoshiro256PlusPlus::seed_from_u64(seed));
    all
}

/// Measures `contestants` round by round, until all have their windows or the tries are used up. All take part to the
/// end, so that each round can compare them.
///
/// # Errors
/// Those of a window.
pub fn contest<C, T, E>(
    contestants: &mut [C],
    plan: Plan,
    mut window: impl FnMut(&mut C) -> Result<(T, Disturbance), E>,
) -> Result<Vec<Kept<T>>, E> {
    let mut random = Xoshiro256PlusPlus::seed_from_u64(plan.seed);
    let mut order: Vec<usize> = (0..contestants.len()).collect();
    let mut taken: Vec<Taken<T>> = order.iter().map(|_| Taken::default()).collect();
    let mut held = 0;
    for round in 0..plan.tries.max(1) {
        order.shuffle(&mut random);
        for &place in &order {
            thread::sleep(plan.pause);
            let (found, disturbance) = window(&mut contestants[place])?;
            taken[place].take(round, found, disturbance, &plan.quiet);
        }
        held = round + 1;
        if taken.iter().all(|taken| taken.quiet.len() >= plan.windows) {
            break;
        }
    }
    Ok(taken.into_iter().map(|taken| taken.kept(held)).collect())
}

/// So many rounds of `contestants`, for the order alone: every window counts.
///
/// # Errors
/// Those of a window.
pub fn rounds<C, T, E>(
    contestants: &mut [C],
    count: usize,
    seed: u64,
    mut window: impl FnMut(&mut C) -> Result<T, E>,
) -> Result<Vec<Kept<T>>, E> {
    let (pause, quiet) = (Duration::ZERO, Disturbance::default());
    let plan = Plan { windows: count, tries: count, pause, quiet, seed };
    contest(contestants, plan, |contestant| Ok((window(contestant)?, quiet)))
}

/// One contestant's windows, each with its round.
struct Taken<T> {
    quiet: Vec<(usize, T)>,
    loud: Vec<(usize, T)>,
    last: Option<Disturbance>,
}

impl<T> Default for Taken<T> {
    fn default() -> Self {
        Self { quiet: Vec::new(), loud: Vec::new(), last: None }
    }
}

impl<T> Taken<T> {
    fn take(&mut self, round: usize, found: T, disturbance: Disturbance, most: &Disturbance) {
        if disturbance.within(most) {
            self.quiet.push((round, found));
        } else {
            self.loud.push((round, found));
            self.last = Some(disturbance);
        }
    }

    fn kept(self, held: usize) -> Kept<T> {
        let Self { quiet, loud, last } = self;
        let discarded = loud.len();
        let (counted, disturbed) = if quiet.is_empty() { (loud, last) } else { (quiet, None) };
        let (rounds, found) = counted.into_iter().unzip();
        Kept { found, rounds, held, discarded, disturbed }
    }
}

/// What the last try of a window found.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tried<T> {
    /// What was found.
    pub found: T,
    /// What disturbed it.
    pub disturbance: Disturbance,
    /// Tries before it, all disturbed and left out.
    pub left_out: usize,
}

/// One window, repeated while more than `most` disturbs it, up to `tries` times; the last try stands, and the caller
/// checks its disturbance.
///
/// # Errors
/// Those of the window.
pub fn until_quiet<T, E>(
    tries: usize,
    most: &Disturbance,
    mut window: impl FnMut() -> Result<(T, Disturbance), E>,
) -> Result<Tried<T>, E> {
    let mut left_out = 0;
    loop {
        let (found, disturbance) = window()?;
        if disturbance.within(most) || left_out + 1 >= tries {
            return Ok(Tried { found, disturbance, left_out });
        }
        left_out += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disturbance::QUIET;

    const PLAN: Plan = Plan { windows: 2, tries: 5, pause: Duration::ZERO, quiet: QUIET, seed: 7 };
    const NONE: Disturbance = Disturbance { ..QUIET };

    fn loud() -> Disturbance {
        Disturbance { switches: 1, ..NONE }
    }

    #[test]
    fn disturbed_windows_are_repeated_and_after_a_bound_shown() {
        let mut calls = [0; 3];
        let kept = contest(&mut [0, 1, 2], PLAN, |&mut which| {
            calls[which] += 1;
            let is_loud = which == 2 || which == 1 && calls[1] < 3;
            Ok::<_, ()>(((which, calls[which]), if is_loud { loud() } else { NONE }))
        })
        .expect("no window failed");
        assert_eq!((kept[0].found.len(), kept[0].discarded, kept[0].disturbed), (5, 0, None));
        assert_eq!((kept[1].found.len(), kept[1].discarded, kept[1].disturbed), (3, 2, None));
        assert_eq!((kept[2].found.len(), kept[2].discarded), (5, 5));
        assert_eq!(kept[2].disturbed, Some(loud()), "never silently");
        assert_eq!((kept[0].quiet(), kept[2].quiet(), kept[0].held), (5, 0, 5));
        let expected = [(3, 3), (4, 4), (5, 5)];
        for (one, other) in [(0, 1), (1, 0)] {
            let pairs = kept[one].paired(&kept[other]).map(|(one, other)| (one.1, other.1));
            assert_eq!(pairs.collect::<Vec<_>>(), expected, "of the same rounds");
        }
    }

    #[test]
    fn a_contest_ends_when_all_have_their_windows_and_none_has_a_place_of_its_own() {
        let (mut order, plan) = (Vec::new(), Plan { windows: 30, tries: 30, ..PLAN });
        let mut run = |seed| {
            order.clear();
            let kept = contest(&mut ["one", "two"], Plan { seed, ..plan }, |name| {
                order.push(*name);
                Ok::<_, ()>(((), NONE))
            });
            assert!(kept.expect("no window failed").iter().all(|kept| kept.found.len() == 30));
            order.clone()
        };
        let first = run(1);
        let led = first.chunks(2).filter(|round| round[0] == "one").count();
        assert!(
            (5..=25).contains(&led) && first.chunks(2).all(|round| round[0] != round[1]),
            "{led}"
        );
        assert_eq!((run(1), run(2) == first), (first.clone(), false), "the seed's order");
        assert_eq!(shuffled(vec![1, 2, 3], 4), shuffled(vec![1, 2, 3], 4));
    }

    #[test]
    fn one_window_is_repeated_until_it_is_quiet() {
        let mut windows = [loud(), NONE, NONE].into_iter();
        let found = until_quiet(3, &QUIET, || windows.next().map(|what| ((), what)).ok_or(()));
        assert_eq!(found, Ok(Tried { found: (), disturbance: NONE, left_out: 1 }));
        assert_eq!(windows.len(), 1);
        let all = until_quiet(3, &QUIET, || Ok::<_, ()>(((), loud())));
        let last = Tried { found: (), disturbance: loud(), left_out: 2 };
        assert_eq!(all, Ok(last), "the last try stands, with its disturbance");
    }

    #[test]
    fn a_window_that_fails_ends_it() {
        let fail = |_: &mut ()| Err::<((), Disturbance), _>("lost");
        assert_eq!(contest(&mut [()], PLAN, fail), Err("lost"));
    }
}
