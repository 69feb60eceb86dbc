//! Windows of an application's requests without an attack beside it and with one, and what the application notices.

use measure::stats::{Interval, Summary, ratio_of_medians};

use super::requests::Window;

/// Windows of either kind without which the suite does not compare them.
pub const WINDOWS_MIN: usize = 10;
/// Standard errors by which the share of slow windows may be higher under attack: chance exceeds it once in 30,000.
const SLOW_ERRORS_MAX: f64 = 4.0;

/// Of the resampling that gives the interval.
const SEED: u64 = 1;

/// The comparison is sequential, as the machine has others on it too: it ends at the first length after which nothing is
/// noticed in all windows so far, and after so many lengths what is noticed is a failure.
pub const LENGTHS_MAX: u32 = 3;

/// Latencies of the second application, quiet and attacked. No window is left out.
pub struct Measured {
    p99_ns: [Vec<f64>; 2],
    slow: [usize; 2],
    ratio_max: f64,
}

impl Measured {
    /// Nothing yet. More than `ratio_max` times the quiet p99 is noticed.
    pub fn new(ratio_max: f64) -> Self {
        Self { p99_ns: [Vec::new(), Vec::new()], slow: [0, 0], ratio_max }
    }

    /// The times of a window of either kind.
    pub fn take(&mut self, attacked: bool, window: Window) {
        let kind = usize::from(attacked);
        self.p99_ns[kind].push(window.p99_ns as f64);
        self.slow[kind] += usize::from(window.slow);
    }

    /// Lower quartile, median, upper quartile.
    pub fn quartiles(&self, attacked: bool) -> [u64; 3] {
        let summary = Summary::of(&self.p99_ns[usize::from(attacked)]);
        summary.map_or([0; 3], |of| [of.q1, of.median, of.q3].map(|ns| ns.round() as u64))
    }

    /// What the second application has noticed; nothing where there are too few windows to say it by.
    pub fn noticed(&self) -> Option<String> {
        if self.p99_ns.iter().any(|windows| windows.len() < WINDOWS_MIN) {
            return None;
        }
        let Interval { value, low, high, .. } = self.ratio();
        if low >= self.ratio_max {
            return Some(format!(
                "the other application's p99 is {value:.2} times as long ({low:.2} to {high:.2})"
            ));
        }
        let [quiet, attacked] = self.windows();
        (self.slow_errors() > SLOW_ERRORS_MAX).then(|| {
            format!(
                "the other application has slow requests in {} of {attacked} windows, {} of {quiet} without the attack",
                self.slow[1], self.slow[0]
            )
        })
    }

    pub fn windows(&self) -> [usize; 2] {
        [self.p99_ns[0].len(), self.p99_ns[1].len()]
    }

    /// By how many standard errors the share of slow windows is higher under attack: the test of two proportions.
    fn slow_errors(&self) -> f64 {
        let [quiet, attacked] = self.windows().map(|windows| windows as f64);
        let [slow_quiet, slow_attacked] = self.slow.map(|slow| slow as f64);
        let share = (slow_quiet + slow_attacked) / (quiet + attacked);
        let error = (share * (1.0 - share) * (1.0 / quiet + 1.0 / attacked)).sqrt();
        let more = slow_attacked / attacked - slow_quiet / quiet;
        // All windows alike: no difference and no error.
        if error == 0.0 { 0.0 } else { more / error }
    }

    /// Windows of each kind with a slow request.
    pub fn slow(&self) -> [usize; 2] {
        self.slow
    }

    /// How many times as long the p99 is under attack, with its interval of 95 %: where the machine's own stalls make that
    /// wide, its lower end is what is known.
    fn ratio(&self) -> Interval {
        let [quiet, attacked] = &self.p99_ns;
        ratio_of_medians(attacked, quiet, SEED).expect("windows of some requests each")
    }
}

#[cfg(test)]
mod tests {
    use super::{Measured, WINDOWS_MIN, Window};

    fn measured(quiet: &[(u64, bool)], attacked: &[(u64, bool)]) -> Measured {
        let mut measured = Measured::new(1.2);
        for (kind, windows) in [(false, quiet), (true, attacked)] {
            for &(p99_ns, slow) in windows {
                measured.take(kind, Window { p99_ns, slow });
            }
        }
        measured
    }

    #[test]
    fn a_stall_in_more_windows_is_noticed_where_the_p99_is_the_same() {
        let windows = |slow: usize| -> Vec<(u64, bool)> {
            (0..60).map(|index| (1_000, index < slow)).collect()
        };
        // The machine's own stalls, alike in both kinds.
        assert_eq!(measured(&windows(20), &windows(28)).noticed(), None);
        let words = measured(&windows(4), &windows(40)).noticed().expect("it stalls its neighbour");
        assert!(words.contains("in 40 of 60 windows, 4 of 60"), "{words}");
        assert!(measured(&windows(0), &windows(60)).noticed().is_some(), "each window is slow");
        assert_eq!(measured(&windows(60), &windows(60)).noticed(), None);
    }

    #[test]
    fn a_longer_p99_is_noticed_where_there_are_windows_enough() {
        let quiet = [(1_000, false); WINDOWS_MIN];
        let words = measured(&quiet, &[(1_200, false); WINDOWS_MIN]).noticed();
        assert!(words.is_some_and(|words| words.contains("1.20 times")));
        assert_eq!(measured(&quiet, &[(1_190, false); WINDOWS_MIN]).noticed(), None);
        assert_eq!(measured(&quiet, &[(9_000, true); WINDOWS_MIN - 1]).noticed(), None);
    }

    #[test]
    fn a_longer_p99_is_noticed_beyond_the_machines_own_stalls_alone() {
        // The machine's stalls make every second window ten times as long, or more by chance.
        let windows = |short: u64, stalled: usize| -> Vec<(u64, bool)> {
            (0..40).map(|index| (if index < stalled { 10_000 } else { short }, false)).collect()
        };
        assert_eq!(measured(&windows(1_000, 19), &windows(1_000, 22)).noticed(), None);
        assert!(measured(&windows(1_000, 10), &windows(1_500, 10)).noticed().is_some());
    }
}
