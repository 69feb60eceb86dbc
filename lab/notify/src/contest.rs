//! Several contenders measured in turn, window by window, so that what changes slowly (where the host
//! puts the virtual processors, the neighbours' caches) meets all of them alike; disturbed windows are
//! repeated, up to a bound.

use std::thread;
use std::time::Duration;

use crate::window::{Disturbance, WindowError};

/// How often, how patiently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Plan {
    /// Quiet windows that are wanted of each contender.
    pub windows: usize,
    /// Windows that are tried for them, disturbed ones included.
    pub tries: usize,
    /// Before each window: the rest of the machine gets its turn.
    pub pause: Duration,
    /// A window with a longer stall than this is disturbed, in nanoseconds.
    pub stall_max_ns: u64,
}

/// What one contender's windows found.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept<T> {
    /// Of the windows that count; where not one was quiet, of all of them.
    pub found: Vec<T>,
    /// The round of each of them.
    pub rounds: Vec<usize>,
    /// Rounds that were held, the same for all contenders.
    pub held: usize,
    /// Windows that somebody disturbed.
    pub discarded: usize,
    /// The last disturbance, where there was no quiet window: `found` is then what was found under it.
    pub disturbed: Option<Disturbance>,
}

impl<T> Kept<T> {
    /// Windows that nobody disturbed.
    pub fn quiet(&self) -> usize {
        if self.disturbed.is_none() { self.found.len() } else { 0 }
    }

    /// One number of each window.
    pub fn values(&self, of: impl FnMut(&T) -> f64) -> Vec<f64> {
        self.found.iter().map(of).collect()
    }

    /// The same windows with something else found in each.
    pub fn map<U>(&self, of: impl FnMut(&T) -> U) -> Kept<U> {
        Kept {
            found: self.found.iter().map(of).collect(),
            rounds: self.rounds.clone(),
            held: self.held,
            discarded: self.discarded,
            disturbed: self.disturbed,
        }
    }

    /// These and the windows of another contest of the same contenders, the rounds of which follow. Quiet windows of
    /// either leave no place for loud ones of the other.
    #[must_use]
    pub fn then(mut self, mut next: Self) -> Self {
        next.rounds.iter_mut().for_each(|round| *round += self.held);
        let (held, discarded) = (self.held + next.held, self.discarded + next.discarded);
        match (self.disturbed.is_some(), next.disturbed.is_some()) {
            (false, true) => {}
            (true, false) => self = next,
            _ => {
                self.rounds.extend(next.rounds);
                self.found.extend(next.found);
                self.disturbed = next.disturbed;
            }
        }
        Self { held, discarded, ..self }
    }

    /// Windows of this contender and of `other` that were measured in the same round, one soon after the
    /// other: what they differ by is not the host's doing, which may run at another speed a second later.
    /// Both must come from one [`in_turn`].
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

/// Measures `contenders` in turn, round by round, until all have their windows or the tries are used up.
/// All take part to the end, so that each round can compare them.
///
/// # Errors
/// Those of a window.
pub fn in_turn<C, T>(
    contenders: &mut [C],
    plan: Plan,
    mut window: impl FnMut(&mut C) -> Result<(T, Disturbance), WindowError>,
) -> Result<Vec<Kept<T>>, WindowError> {
    struct Taken<T> {
        quiet: Vec<(usize, T)>,
        loud: Vec<(usize, T)>,
        last: Option<Disturbance>,
    }
    let mut taken: Vec<Taken<T>> = (contenders.iter())
        .map(|_| Taken { quiet: Vec::new(), loud: Vec::new(), last: None })
        .collect();
    let mut held = 0;
    for round in 0..plan.tries.max(1) {
        for (contender, taken) in contenders.iter_mut().zip(&mut taken) {
            thread::sleep(plan.pause);
            let (found, disturbance) = window(contender)?;
            if disturbance.is_quiet(plan.stall_max_ns) {
                taken.quiet.push((round, found));
            } else {
                taken.loud.push((round, found));
                taken.last = Some(disturbance);
            }
        }
        held = round + 1;
        if taken.iter().all(|taken| taken.quiet.len() >= plan.windows) {
            break;
        }
    }
    let kept = |Taken { quiet, loud, last }: Taken<T>| {
        let discarded = loud.len();
        let (counted, disturbed) = if quiet.is_empty() { (loud, last) } else { (quiet, None) };
        let (rounds, found) = counted.into_iter().unzip();
        Kept { found, rounds, held, discarded, disturbed }
    };
    Ok(taken.into_iter().map(kept).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLAN: Plan = Plan { windows: 2, tries: 5, pause: Duration::ZERO, stall_max_ns: 0 };

    #[test]
    fn disturbed_windows_are_repeated_and_after_a_bound_told() {
        let loud = Disturbance { switches: 1, ..Disturbance::default() };
        let (mut calls, mut order) = (0, Vec::new());
        let kept = in_turn(&mut ["first", "second", "third"], PLAN, |name| {
            calls += 1;
            order.push(*name);
            let disturbance = match *name {
                "first" => Disturbance::default(),
                "second" if calls < 6 => loud,
                "second" => Disturbance::default(),
                _ => loud,
            };
            Ok((calls, disturbance))
        })
        .expect("no window failed");
        // In turn: what drifts meets all alike.
        assert_eq!(order, ["first", "second", "third"].repeat(5));
        assert_eq!((kept[0].found.len(), kept[0].discarded, kept[0].disturbed), (5, 0, None));
        assert_eq!((kept[1].found.len(), kept[1].discarded, kept[1].disturbed), (3, 2, None));
        assert_eq!((kept[2].found.len(), kept[2].discarded), (5, 5));
        assert_eq!(kept[2].disturbed, Some(loud), "never silently");
        assert_eq!((kept[0].quiet(), kept[2].quiet()), (5, 0));
        // Calls 5, 8, ... of the second are of the rounds of calls 4, 7, ... of the first.
        let pairs: Vec<(i32, i32)> = kept[0].paired(&kept[1]).map(|(&a, &b)| (a, b)).collect();
        assert_eq!(pairs, [(7, 8), (10, 11), (13, 14)]);
        let pairs: Vec<(i32, i32)> = kept[1].paired(&kept[0]).map(|(&a, &b)| (a, b)).collect();
        assert_eq!(pairs, [(8, 7), (11, 10), (14, 13)]);
    }

    #[test]
    fn a_contest_ends_when_all_have_their_windows() {
        let mut calls = 0;
        let kept = in_turn(&mut [(), ()], PLAN, |()| {
            calls += 1;
            Ok((calls, Disturbance::default()))
        })
        .expect("no window failed");
        assert_eq!((calls, kept[0].rounds.clone()), (4, vec![0, 1]));
    }

    #[test]
    fn windows_of_two_contests_are_put_together() {
        let loud = Some(Disturbance { switches: 1, ..Disturbance::default() });
        // Of five rounds each.
        let kept = |rounds: &[usize], disturbed| Kept {
            found: rounds.to_vec(),
            rounds: rounds.to_vec(),
            held: 5,
            discarded: 5 - rounds.len(),
            disturbed,
        };
        let one = kept(&[0, 3], None).then(kept(&[1, 2], None));
        let other = kept(&[3, 4], None).then(kept(&[2], None));
        assert_eq!((one.rounds.clone(), one.held, one.discarded), (vec![0, 3, 6, 7], 10, 6));
        let pairs: Vec<(usize, usize)> = one.paired(&other).map(|(&a, &b)| (a, b)).collect();
        assert_eq!(pairs, [(3, 3), (2, 2)], "of the same rounds, wherever either was last quiet");
        let none: Vec<usize> = vec![0, 1, 2, 3, 4];
        let first = kept(&[4], None).then(kept(&none, loud));
        let second = kept(&none, loud).then(kept(&[4], None));
        for (one, rounds) in [(&first, vec![4]), (&second, vec![9])] {
            assert_eq!((&one.rounds, one.held, one.disturbed), (&rounds, 10, None));
        }
        let all = kept(&none, loud).then(kept(&none, loud));
        assert_eq!((all.found.len(), all.disturbed), (10, loud), "never silently");
    }

    #[test]
    fn a_window_that_fails_ends_it() {
        let fail = |_: &mut ()| Err::<((), Disturbance), _>(WindowError::Alone);
        assert_eq!(in_turn(&mut [()], PLAN, fail), Err(WindowError::Alone));
    }
}
