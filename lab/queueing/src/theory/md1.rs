//! Deterministic service with one server: the distribution of the time before service.
//!
//! The formula of Erlang (1909) and Crommelin (1932) alternates in sign and loses all digits from a
//! load of 0.8 on. This one, Franx's for one server (2001), adds positive numbers only.

/// M/D/1 at one load.
///
/// ```
/// let queue = queueing::theory::Md1::new(0.9);
/// assert!((queue.wait_share(0.0) - 0.1).abs() < 1e-12);
/// let p99 = queue.wait_quantile(0.99);
/// assert!((queue.wait_share(p99) - 0.99).abs() < 1e-9);
/// ```
#[derive(Debug, Clone)]
pub struct Md1 {
    load: f64,
    /// P(N ≤ index).
    at_most: Vec<f64>,
}

/// The load up to which all digits hold.
const LOAD_MAX: f64 = 0.999;
/// The chance of a longer queue at which the distribution is cut off.
const CUT: f64 = 1e-15;
/// A bound of the queue lengths that are looked at: at [`LOAD_MAX`] the cut is at 17,000.
const LENGTHS_MAX: usize = 40_000;
/// Arrivals during one service, from which on their chance is below 1e-30.
const ARRIVALS_MAX: usize = 32;

impl Md1 {
    /// At `load`, which is brought into 0 to 0.999.
    pub fn new(load: f64) -> Self {
        let load = if load > 0.0 { load.min(LOAD_MAX) } else { 0.0 };
        Self { load, at_most: lengths(load) }
    }

    /// P(W ≤ x), the chance that service begins within `x`.
    ///
    /// For x = k - u with u in (0, 1]: the sum over j < k of P(N ≤ k - j), times the chance of j
    /// arrivals during u. For who comes at t begins by t + x when all of those have left who were
    /// there at t - u or came since, and k services fit between. They have if they are k at most,
    /// unless all k came since: the server has then been idle.
    pub fn wait_share(&self, x: f64) -> f64 {
        if x.is_nan() || x < 0.0 {
            return 0.0;
        }
        let whole = x.floor();
        if whole >= self.at_most.len() as f64 {
            return 1.0;
        }
        let (k, u) = (whole as usize + 1, whole + 1.0 - x);
        let expected = self.load * u;
        let mut chance = (-expected).exp();
        let mut share = 0.0;
        for arrivals in 0..k.min(ARRIVALS_MAX) {
            share += chance * self.length_share(k - arrivals);
            chance *= expected / (arrivals + 1) as f64;
        }
        share.min(1.0)
    }

    /// The time before service that the share `share` does not exceed.
    pub fn wait_quantile(&self, share: f64) -> f64 {
        super::root::falls_to(1.0 - share, |x| 1.0 - self.wait_share(x))
    }

    /// The sojourn time that the share `share` does not exceed: the wait, and the service of one.
    pub fn sojourn_quantile(&self, share: f64) -> f64 {
        if share <= 1.0 - self.load { 1.0 } else { 1.0 + self.wait_quantile(share) }
    }

    /// P(N ≤ `length`), requests present, the one in service among them.
    pub fn length_share(&self, length: usize) -> f64 {
        self.at_most.get(length).copied().unwrap_or(1.0)
    }
}

/// P(N ≤ n) for n from zero until it is one.
///
/// As often as the number left behind by a departure goes up past n it comes down past it:
/// P(N = n + 1) a(0) = P(N = 0) A(n) + the sum over i from 1 to n of P(N = i) A(n + 1 - i), where a(m)
/// is the chance of m arrivals during a service and A(m) that of more.
fn lengths(load: f64) -> Vec<f64> {
    // The tails A(m) from their far end, so that small ones keep their digits.
    let mut exactly = vec![(-load).exp()];
    for arrivals in 1..=ARRIVALS_MAX {
        exactly.push(exactly[arrivals - 1] * load / arrivals as f64);
    }
    let mut more = vec![0.0; ARRIVALS_MAX + 1];
    for arrivals in (0..ARRIVALS_MAX).rev() {
        more[arrivals] = more[arrivals + 1] + exactly[arrivals + 1];
    }
    let mut chances = vec![1.0 - load];
    let mut at_most = vec![1.0 - load];
    for length in 0..LENGTHS_MAX {
        let mut up = chances[0] * more.get(length).copied().unwrap_or(0.0);
        let first = (length + 1).saturating_sub(ARRIVALS_MAX).max(1);
        for (index, chance) in chances.iter().enumerate().take(length + 1).skip(first) {
            up += chance * more[length + 1 - index];
        }
        let chance = up / exactly[0];
        chances.push(chance);
        let sum: f64 = at_most[length] + chance;
        at_most.push(sum.min(1.0));
        if chance < CUT * (1.0 - load) {
            break;
        }
    }
    at_most
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Erlang's series, good while x and the load are small.
    fn erlang(load: f64, x: f64) -> f64 {
        let mut sum = 0.0;
        for j in 0..=x.floor() as u32 {
            let factorial: f64 = (1..=j).map(f64::from).product();
            let y = load * (f64::from(j) - x);
            sum += y.powi(j as i32) / factorial * (-y).exp();
        }
        (1.0 - load) * sum
    }

    #[test]
    fn it_is_erlangs_series_where_that_holds() {
        for load in [0.1, 0.3, 0.5, 0.7] {
            let queue = Md1::new(load);
            for step in 0..80 {
                let x = f64::from(step) * 0.1;
                let (found, expected) = (queue.wait_share(x), erlang(load, x));
                assert!((found - expected).abs() < 1e-9, "{load} {x}: {found} {expected}");
            }
        }
    }

    #[test]
    fn it_is_a_distribution_with_pollaczeks_mean_at_any_load() {
        for load in [0.0, 0.2, 0.8, 0.98, 0.999] {
            let queue = Md1::new(load);
            let (step, mut mean, mut last) = (1.0 / 64.0, 0.0, 0.0);
            let mut x = 0.0;
            while last < 1.0 - 1e-9 {
                let share = queue.wait_share(x);
                assert!(share >= last - 1e-12, "{load} {x}");
                // The mean is the area above; from step to step, the trapezium.
                if x > 0.0 {
                    mean += (1.0 - (share + last) / 2.0) * step;
                }
                (last, x) = (share, x + step);
            }
            let expected = load / (2.0 * (1.0 - load));
            assert!((mean - expected).abs() < 1e-3 * expected.max(0.1), "{load}: {mean}");
        }
    }

    #[test]
    fn the_far_tail_falls_at_its_rate() {
        // e^-x per unit of x, where ρ (e^η - 1) = η gives the rate η.
        let load = 0.98;
        let (mut low, mut high) = (1e-6, 1.0);
        for _ in 0..100 {
            let middle: f64 = (low + high) / 2.0;
            if load * middle.exp_m1() < middle { low = middle } else { high = middle }
        }
        let queue = Md1::new(load);
        let ratio = (1.0 - queue.wait_share(301.0)) / (1.0 - queue.wait_share(300.0));
        assert!((ratio.ln() + low).abs() < 1e-4, "{ratio} {low}");
    }

    #[test]
    fn what_is_no_time_or_no_load_is_answered() {
        let queue = Md1::new(f64::NAN);
        assert_eq!((queue.wait_share(0.0), queue.sojourn_quantile(0.99)), (1.0, 1.0));
        let queue = Md1::new(0.5);
        assert_eq!((queue.wait_share(-1.0), queue.wait_share(f64::NAN)), (0.0, 0.0));
        assert_eq!(queue.wait_share(f64::INFINITY), 1.0);
        assert_eq!(queue.sojourn_quantile(0.4), 1.0);
        assert_eq!(Md1::new(2.0).length_share(0), 1.0 - LOAD_MAX);
    }
}
