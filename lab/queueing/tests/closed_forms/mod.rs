//! Closed forms that only tests compare with.

use queueing::theory::erlang_c;

/// M/M/n: the mean time before service begins, C / (n (1 - ρ)).
pub fn mmn_mean_wait(servers: u32, load: f64) -> f64 {
    erlang_c(servers, load) / (f64::from(servers) * (1.0 - load))
}

/// M/G/1/FCFS: the mean time before service begins, ρ E(S²) / (2 (1 - ρ) E(S)) (Pollaczek and
/// Khinchine), with `second_moment` for a mean of one ([`queueing::Law::moment`]).
pub fn mg1_mean_wait(load: f64, second_moment: f64) -> f64 {
    load * second_moment / (2.0 * (1.0 - load))
}

/// M/G/1/PS: the mean sojourn time of requests of the size `size`, x / (1 - ρ), whatever the law.
pub fn mg1_ps_mean_sojourn_of_size(load: f64, size: f64) -> f64 {
    size / (1.0 - load)
}

/// M/G/1/PS: the mean sojourn time of all, 1 / (1 - ρ), whatever the law.
pub fn mg1_ps_mean_sojourn(load: f64) -> f64 {
    mg1_ps_mean_sojourn_of_size(load, 1.0)
}

/// M/G/n/FCFS: the mean time before service begins, *about* (1 + c²) / 2 times M/M/n's (Lee and
/// Longton 1959), with c² = `scv` ([`queueing::Law::scv`]).
///
/// Exact for one server, and for exponential service. Else it is a band to look in, not a value: with
/// many servers and a heavy tail it is wrong by tens of percent.
pub fn lee_longton_mean_wait(servers: u32, load: f64, scv: f64) -> f64 {
    (1.0 + scv) / 2.0 * mmn_mean_wait(servers, load)
}

/// M/M/1: P(T > x) = e^(-(1 - ρ) x). The sojourn time is exponential.
pub fn mm1_sojourn_tail(load: f64, x: f64) -> f64 {
    (-(1.0 - load) * x).exp()
}

/// M/M/1, and M/G/1/PS with any law: P(N = `present`) = (1 - ρ) ρ^present.
pub fn geometric_share(load: f64, present: u32) -> f64 {
    (1.0 - load) * load.powi(present as i32)
}

#[test]
fn the_forms_agree_where_they_meet() {
    use queueing::Law;
    for load in [0.1, 0.5, 0.9] {
        let exponential = mg1_mean_wait(load, Law::Exponential.moment(2));
        assert!((exponential - mmn_mean_wait(1, load)).abs() < 1e-12);
        assert!((mg1_ps_mean_sojourn(load) - 1.0 - exponential).abs() < 1e-12);
        for law in Law::ALL {
            let approximate = lee_longton_mean_wait(1, load, law.scv());
            assert!((approximate / mg1_mean_wait(load, law.moment(2)) - 1.0).abs() < 1e-12);
        }
    }
    assert_eq!(mg1_ps_mean_sojourn_of_size(0.75, 2.0), 8.0);
}

#[test]
fn chances_of_a_length_add_up_to_one() {
    let sum: f64 = (0..1_000).map(|present| geometric_share(0.9, present)).sum();
    assert!((sum - 1.0).abs() < 1e-12);
}
