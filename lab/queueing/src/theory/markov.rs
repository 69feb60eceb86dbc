//! Exponential service: one server, and n behind one queue.

use super::root::falls_to;

/// M/M/1: the sojourn time that the share `share` does not exceed, -ln(1 - share) / (1 - ρ).
pub fn mm1_sojourn_quantile(load: f64, share: f64) -> f64 {
    -(1.0 - share).ln() / (1.0 - load)
}

/// M/M/1: the highest load at which the share `share` takes no longer than `bound`,
/// 1 + ln(1 - share) / bound, or zero where there is none.
pub fn mm1_max_load(share: f64, bound: f64) -> f64 {
    (1.0 + (1.0 - share).ln() / bound).max(0.0)
}

/// Erlang's C: the chance that an arrival at M/M/n has to wait.
///
/// From Erlang's B, whose recursion B(k) = a B(k-1) / (k + a B(k-1)) with a = n ρ adds positive
/// numbers only: C = B / (1 - ρ (1 - B)).
pub fn erlang_c(servers: u32, load: f64) -> f64 {
    let offered = f64::from(servers) * load;
    let blocked = (1..=servers).fold(1.0, |blocked, server| {
        let asked = offered * blocked;
        asked / (f64::from(server) + asked)
    });
    blocked / (1.0 - load * (1.0 - blocked))
}

/// M/M/n: P(T > x) = e^-x + C / (1 - θ) (e^(-θ x) - e^-x) with θ = n (1 - ρ), and its limit
/// (1 + C x) e^-x at θ = 1.
pub fn mmn_sojourn_tail(servers: u32, load: f64, x: f64) -> f64 {
    let theta = f64::from(servers) * (1.0 - load);
    let short = (-x).exp();
    let exponent = (1.0 - theta) * x;
    // Near θ = 1 the difference of two like numbers would be divided by nearly nothing.
    let both = if exponent.abs() < 1e-12 {
        x * short
    } else if exponent.abs() < 1.0 {
        x * short * (exponent.exp_m1() / exponent)
    } else {
        ((-theta * x).exp() - short) / (1.0 - theta)
    };
    short + erlang_c(servers, load) * both
}

/// M/M/n: the sojourn time that the share `share` does not exceed, from [`mmn_sojourn_tail`].
pub fn mmn_sojourn_quantile(servers: u32, load: f64, share: f64) -> f64 {
    falls_to(1.0 - share, |x| mmn_sojourn_tail(servers, load, x))
}

/// M/M/n: the highest load at which the share `share` takes no longer than `bound`; zero where there
/// is none.
pub fn mmn_max_load(servers: u32, share: f64, bound: f64) -> f64 {
    // The load that is left over falls as the tail does, from one to zero.
    let tail = |left: f64| {
        if left >= 1.0 { (-bound).exp() } else { mmn_sojourn_tail(servers, 1.0 - left, bound) }
    };
    (1.0 - falls_to(1.0 - share, tail)).max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_loads_of_zygos_section_3_1() {
        assert!((mm1_max_load(0.99, 10.0) - 0.539_483).abs() < 1e-6);
        assert!((mmn_max_load(16, 0.99, 10.0) - 0.967_7).abs() < 1e-4);
        assert_eq!(mm1_max_load(0.99, 4.6), 0.0);
        assert_eq!(mmn_max_load(16, 0.99, 4.6), 0.0);
    }

    #[test]
    fn erlangs_c_is_that_of_the_tables() {
        // M/M/1: ρ. M/M/2: 2ρ²/(1+ρ). M/M/10 at 8 erlang: 0.409; M/M/20 at 16: 0.256.
        assert!((erlang_c(1, 0.7) - 0.7).abs() < 1e-12);
        assert!((erlang_c(2, 0.5) - 1.0 / 3.0).abs() < 1e-12);
        assert!((erlang_c(10, 0.8) - 0.4092).abs() < 1e-4);
        assert!((erlang_c(20, 0.8) - 0.2561).abs() < 1e-4);
        assert!(erlang_c(1_000, 0.999) > 0.9);
    }

    #[test]
    fn the_tail_is_whole_where_its_formula_divides_by_nothing() {
        // θ = 1: load 15/16 of sixteen servers.
        let (c, x) = (erlang_c(16, 0.9375), 5.0f64);
        let limit = (1.0 + c * x) * (-x).exp();
        for load in [0.9375, 0.9375 - 1e-14, 0.9375 + 1e-9, 0.9375 - 1e-6] {
            assert!((mmn_sojourn_tail(16, load, x) / limit - 1.0).abs() < 1e-4, "{load}");
        }
        // And where the two exponentials are far apart.
        assert!(mmn_sojourn_tail(16, 0.01, 1_000.0) == 0.0);
        assert!(mmn_sojourn_tail(16, 0.9999, 1_000.0) > 0.2);
    }

    proptest! {
        #[test]
        fn one_server_is_one_of_many(load in 0.01f64..0.99, x in 0.0f64..50.0) {
            let (one, many) = ((-(1.0 - load) * x).exp(), mmn_sojourn_tail(1, load, x));
            prop_assert!((one - many).abs() < 1e-9, "{} {}", one, many);
        }

        #[test]
        fn tails_fall_and_the_mean_is_their_integral(servers in 1u32..64, load in 0.05f64..0.95) {
            let step = 0.01;
            let (mut last, mut mean) = (1.0f64, 0.0);
            for index in 1..200_000 {
                let tail = mmn_sojourn_tail(servers, load, f64::from(index) * step);
                prop_assert!(tail <= last + 1e-12);
                mean += (tail + last) / 2.0 * step;
                last = tail;
                if tail < 1e-12 { break; }
            }
            let wait = erlang_c(servers, load) / (f64::from(servers) * (1.0 - load));
            let expected = 1.0 + wait;
            prop_assert!((mean / expected - 1.0).abs() < 1e-3, "{} {}", mean, expected);
        }
    }
}
