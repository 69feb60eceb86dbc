//! Windows of something beside windows of what it is compared with. A machine whose neighbours come and go runs at one
//! speed now and at another soon after, and a hypervisor has its processors now near each other and now far apart: what
//! was measured meanwhile says what the neighbours cost.

use std::thread;
use std::time::Duration;

/// A window of the reference is quiet that took no more than so many times the best one.
pub const QUIET: f64 = 1.15;
/// And beside which the way between the processors took no more than so many times the shortest one. More than where the
/// two are now hyperthreads of one core and now neighbours, less than where they are far apart.
pub const NEAR: f64 = 2.5;
/// Fewer quiet windows than so many say less than all disturbed ones do.
const FEWEST: usize = 5;
/// Rounds that are held for each that is wanted.
const TRIES: usize = 6;

/// How many rounds.
#[derive(Clone, Copy, Debug)]
pub struct Plan {
    /// With quiet windows of the reference around each other window.
    pub rounds: usize,
    /// After each round: the rest of the machine gets its turn.
    pub pause: Duration,
}

/// A window, and the mean of the windows of the reference right before and after it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pair {
    /// Of the reference.
    pub without: f64,
    /// What it took.
    pub with: f64,
}

impl Pair {
    /// What it took more.
    pub fn more(&self) -> f64 {
        self.with - self.without
    }

    /// The same in percent of the reference.
    pub fn share(&self) -> f64 {
        100.0 * (self.with / self.without - 1.0)
    }
}

/// The windows of one of those that were measured beside the reference.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Beside {
    /// Those that count: between quiet windows of the reference, or all where too few of them were.
    pub pairs: Vec<Pair>,
    /// All of them.
    pub all: Vec<Pair>,
    /// Whether enough were between quiet windows.
    pub is_quiet: bool,
}

impl Beside {
    /// How many windows do not count, in words.
    pub fn left_out(&self) -> String {
        match self.is_quiet {
            true => format!("{} of {}", self.all.len() - self.pairs.len(), self.all.len()),
            false => format!("none (of {}, too many of which were disturbed)", self.all.len()),
        }
    }
}

/// The median; no number where there are no values.
pub fn median(values: &[f64]) -> f64 {
    reproduce::stats::median(values).unwrap_or(f64::NAN)
}

/// The median of what `of` says of each pair.
pub fn median_of(pairs: &[Pair], of: impl FnMut(&Pair) -> f64) -> f64 {
    median(&pairs.iter().map(of).collect::<Vec<f64>>())
}

/// What was found.
#[derive(Clone, Debug, PartialEq)]
pub struct Found<const N: usize> {
    /// The reference: the quiet ones of its windows.
    pub reference: Vec<f64>,
    /// The others.
    pub others: [Beside; N],
}

/// A window of the reference.
#[derive(Clone, Copy)]
struct Reference {
    time: f64,
    /// Between the processors, right after it.
    way: f64,
}

/// One window of the reference, one of the first other, one of the reference, and so on, round by round, until as many
/// rounds as were wanted were quiet for each or the tries are used up. `window` measures: 0 is the reference, 1 the
/// first other. `way` measures how long the way between the processors is.
///
/// # Errors
/// Those of a window, or of the way.
pub fn measure<const N: usize, E>(
    plan: Plan,
    mut window: impl FnMut(usize) -> Result<f64, E>,
    mut way: impl FnMut() -> Result<f64, E>,
) -> Result<Found<N>, E> {
    let (mut references, mut others) = (Vec::new(), [const { Vec::new() }; N]);
    for _ in 0..TRIES * plan.rounds.max(1) {
        references.push(Reference { time: window(0)?, way: way()? });
        for (index, others) in others.iter_mut().enumerate() {
            others.push((references.len() - 1, window(index + 1)?));
            references.push(Reference { time: window(0)?, way: way()? });
        }
        let is_quiet = quiet(&references);
        let enough = |others: &Vec<_>| pairs(&references, others, &is_quiet).len() >= plan.rounds;
        if others.iter().all(enough) {
            break;
        }
        thread::sleep(plan.pause);
    }
    let is_quiet = quiet(&references);
    let others = others.map(|others| {
        let all = pairs(&references, &others, |_| true);
        let quiet = pairs(&references, &others, &is_quiet);
        let is_quiet = quiet.len() >= FEWEST.min(plan.rounds);
        Beside { pairs: if is_quiet { quiet } else { all.clone() }, all, is_quiet }
    });
    let reference = references.iter().filter(|one| is_quiet(one)).map(|one| one.time).collect();
    Ok(Found { reference, others })
}

/// Whether one of these was quiet.
fn quiet(references: &[Reference]) -> impl Fn(&Reference) -> bool + use<> {
    let best = |of: fn(&Reference) -> f64| references.iter().map(of).fold(f64::INFINITY, f64::min);
    let (time, way) = (QUIET * best(|one| one.time), NEAR * best(|one| one.way));
    move |one| one.time <= time && one.way <= way
}

/// Windows, each with the place of the reference's before it, between two that were quiet.
fn pairs(
    references: &[Reference],
    others: &[(usize, f64)],
    is_quiet: impl Fn(&Reference) -> bool,
) -> Vec<Pair> {
    let pair = |&(before, with): &(usize, f64)| {
        let [one, two] = [references.get(before)?, references.get(before + 1)?];
        let without = (one.time + two.time) / 2.0;
        (is_quiet(one) && is_quiet(two)).then_some(Pair { without, with })
    };
    others.iter().filter_map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Windows of a reference that takes what `references` say, one after the other and then the last of them, and of two
    /// others that take 10 and 100 more than that; beside the reference's the way takes what `ways` say.
    fn found(rounds: usize, references: &[f64], ways: &[f64]) -> Found<2> {
        fn next(values: &[f64]) -> impl FnMut() -> f64 {
            let (mut rest, last) = (values.iter().copied(), values[values.len() - 1]);
            move || rest.next().unwrap_or(last)
        }
        let (mut time, mut way, mut last) = (next(references), next(ways), 0.0);
        let window = |which: usize| -> Result<f64, ()> {
            if which == 0 {
                last = time();
            }
            Ok(last + [0.0, 10.0, 100.0][which])
        };
        let plan = Plan { rounds, pause: Duration::ZERO };
        measure(plan, window, || Ok(way())).expect("no window fails")
    }

    fn without(beside: &Beside) -> Vec<f64> {
        beside.pairs.iter().map(|pair| pair.without).collect()
    }

    #[test]
    fn what_is_measured_beside_a_slow_window_does_not_count() {
        // Three windows of the reference to a round. The second round's first is slow, and the third one's last.
        let all = [100.0, 100.0, 100.0, 200.0, 104.0, 100.0, 110.0, 110.0, 116.0, 100.0];
        let Found { reference, others: [one, two] } = found(3, &all, &[130.0]);
        assert_eq!(without(&one), [100.0, 110.0, 100.0]);
        assert_eq!(without(&two), [100.0, 102.0, 100.0]);
        assert_eq!([one.left_out(), two.left_out()], ["1 of 4", "1 of 4"]);
        assert!(reference.iter().all(|time| *time <= 115.0) && reference.len() == 10);
        assert_eq!([Pair::more, Pair::share].map(|of| median_of(&two.pairs, of)), [100.0, 100.0]);
        assert_eq!(one.all[1], Pair { without: 152.0, with: 210.0 });
    }

    #[test]
    fn nor_does_what_is_measured_while_the_processors_are_far_apart() {
        let ways = [70.0, 160.0, 600.0, 130.0];
        let Found { reference, others: [one, two] } = found(2, &[100.0], &ways);
        assert_eq!((without(&one).len(), without(&two).len()), (3, 2));
        assert_eq!([one.left_out(), two.left_out()], ["0 of 3", "1 of 3"]);
        assert_eq!(reference.len(), 8);
    }

    #[test]
    fn tries_come_to_an_end_and_then_all_count() {
        // Each round's first window is slow, and its last: nothing is ever between two quiet ones.
        let slow = [[200.0, 100.0, 200.0]; 40].concat();
        let Found { others: [one, two], .. } = found(5, &slow, &[130.0]);
        assert_eq!((one.all.len(), one.pairs.len()), (30, 30));
        assert_eq!(one.left_out(), "none (of 30, too many of which were disturbed)");
        assert_eq!(two.pairs, two.all);
        // A few quiet ones are not enough, if more were wanted.
        for (quiet, counted) in [(4, 30), (5, 5)] {
            let all = [vec![100.0; 3 * quiet], slow.clone()].concat();
            let Found { others: [one, _], .. } = found(5, &all, &[130.0]);
            assert_eq!(one.pairs.len(), counted, "{quiet} of {}", one.all.len());
        }
    }
}
