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
}

/// Measures each of `contenders` in turn, until all have their windows or the tries are used up.
///
/// # Errors
/// Those of a window.
pub fn in_turn<C, T>(
    contenders: &mut [C],
    plan: Plan,
    mut window: impl FnMut(&mut C) -> Result<(T, Disturbance), WindowError>,
) -> Result<Vec<Kept<T>>, WindowError> {
    struct Taken<T> {
        quiet: Vec<T>,
        loud: Vec<(T, Disturbance)>,
    }
    let mut taken: Vec<Taken<T>> =
        contenders.iter().map(|_| Taken { quiet: Vec::new(), loud: Vec::new() }).collect();
    for _ in 0..plan.tries.max(1) {
        for (contender, taken) in contenders.iter_mut().zip(&mut taken) {
            if taken.quiet.len() >= plan.windows {
                continue;
            }
            thread::sleep(plan.pause);
            let (found, disturbance) = window(contender)?;
            match disturbance.is_quiet(plan.stall_max_ns) {
                true => taken.quiet.push(found),
                false => taken.loud.push((found, disturbance)),
            }
        }
    }
    let kept = |Taken { quiet, loud }: Taken<T>| {
        let discarded = loud.len();
        let disturbed = if quiet.is_empty() { loud.last().map(|last| last.1) } else { None };
        let loud = loud.into_iter().map(|(found, _)| found);
        let found = if quiet.is_empty() { loud.collect() } else { quiet };
        Kept { found, discarded, disturbed }
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
        // In turn while all take part: what drifts meets all alike.
        assert_eq!(order[..6], ["first", "second", "third", "first", "second", "third"]);
        assert_eq!((kept[0].found.len(), kept[0].discarded, kept[0].disturbed), (2, 0, None));
        assert_eq!((kept[1].found.len(), kept[1].discarded, kept[1].disturbed), (2, 2, None));
        assert_eq!((kept[2].found.len(), kept[2].discarded), (5, 5));
        assert_eq!(kept[2].disturbed, Some(loud), "never silently");
        assert_eq!((kept[0].quiet(), kept[2].quiet()), (2, 0));
    }

    #[test]
    fn a_window_that_fails_ends_it() {
        let fail = |_: &mut ()| Err::<((), Disturbance), _>(WindowError::Alone);
        assert_eq!(in_turn(&mut [()], PLAN, fail), Err(WindowError::Alone));
    }
}
