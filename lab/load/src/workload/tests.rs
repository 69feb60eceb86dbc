//! Requests, keys and responses; and names of workloads.

use super::*;
use proptest::prelude::*;
use std::sync::OnceLock;

fn workload(config: &WorkloadConfig) -> Workload {
    Workload::new(config, 9).expect("a valid workload")
}

fn bytes_of(workload: &Workload, request: Request) -> Vec<u8> {
    let mut bytes = Vec::new();
    workload.append(request, &mut bytes);
    bytes
}

#[test]
fn requests_are_those_of_the_memcached_protocol() {
    let workload = workload(&WorkloadConfig::Memcached {
        get_share: 0.5,
        keys: 1_000,
        key_size: SizeDistribution::Fixed(6),
        value_size: SizeDistribution::Fixed(12),
    });
    assert_eq!(bytes_of(&workload, Request::get(0)), b"get k00000\r\n");
    assert_eq!(bytes_of(&workload, Request::get(999)), b"get k00999\r\n");
    let mut expected = b"set k00042 0 0 12\r\n".to_vec();
    expected.extend_from_slice(workload.content(Request::get(42)));
    expected.extend_from_slice(b"\r\n");
    assert_eq!(bytes_of(&workload, Request::set(42)), expected);
    assert_ne!(workload.content(Request::get(42)), workload.content(Request::get(43)));
}

#[test]
fn two_workloads_of_one_seed_agree_on_every_value() {
    let (a, b) = (workload(&WorkloadConfig::etc()), workload(&WorkloadConfig::etc()));
    for key in (0..a.keys()).step_by(997) {
        assert_eq!(bytes_of(&a, Request::set(key)), bytes_of(&b, Request::set(key)));
    }
}

#[test]
fn the_share_of_gets_and_the_spread_of_keys_are_as_asked() {
    let config = WorkloadConfig::Memcached {
        get_share: 0.75,
        keys: 10,
        key_size: SizeDistribution::Fixed(2),
        value_size: SizeDistribution::Fixed(1),
    };
    let workload = workload(&config);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    let mut gets = 0;
    let mut per_key = [0u32; 10];
    for _ in 0..100_000 {
        let request = workload.draw(&mut rng);
        gets += u32::from(request.kind == RequestKind::Get);
        per_key[request.key as usize] += 1;
    }
    // Six standard deviations of a binomial.
    assert!((i64::from(gets) - 75_000).abs() < 6 * 137, "{gets} GETs of 100,000");
    assert!(per_key.iter().all(|&n| n.abs_diff(10_000) < 6 * 95), "{per_key:?}");
}

#[test]
fn shares_of_zero_and_one_mean_never_and_always() {
    for (get_share, kind) in [(0.0, RequestKind::Set), (1.0, RequestKind::Get)] {
        let workload = workload(&WorkloadConfig::Memcached {
            get_share,
            keys: 3,
            key_size: SizeDistribution::Fixed(2),
            value_size: SizeDistribution::Fixed(1),
        });
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        assert!((0..10_000).all(|_| workload.draw(&mut rng).kind == kind));
    }
}

#[test]
fn keys_too_short_for_their_number_are_refused() {
    let config = |keys, bytes| WorkloadConfig::Memcached {
        get_share: 1.0,
        keys,
        key_size: SizeDistribution::Fixed(bytes),
        value_size: SizeDistribution::Fixed(1),
    };
    config(10, 2).validate().expect("k0 to k9");
    config(1, 2).validate().expect("k0");
    assert_eq!(
        config(11, 2).validate().expect_err("k10 has three").to_string(),
        "`key_size` is `2`; allowed: sizes from 3 to 250 bytes"
    );
    assert!(WorkloadConfig::named("echo:").is_err());
    assert_eq!(WorkloadConfig::named("echo:64"), Ok(WorkloadConfig::Echo { bytes: 64 }));
}

proptest! {
    #[test]
    fn a_key_is_recognized_and_no_other(a in 0u32..100_000, b in 0u32..100_000) {
        // Drawing 100,000 lengths for every case would take most of the tests' time.
        static ETC: OnceLock<Workload> = OnceLock::new();
        let workload = ETC.get_or_init(|| workload(&WorkloadConfig::etc()));
        let mut name = Vec::new();
        workload.append_key(a, &mut name);
        prop_assert!((20..=70).contains(&name.len()));
        prop_assert_eq!(workload.is_key(b, &name), a == b);
        prop_assert!(workload.is_key(a, &name));
        name.push(b'0');
        prop_assert!(!workload.is_key(a, &name));
    }
}

#[test]
fn spins_carry_the_time_of_their_draw() {
    let times = "bimodal-1:10".parse().expect("service times");
    let workload = workload(&WorkloadConfig::Spin { times });
    let bytes = bytes_of(&workload, Request::spin(0));
    assert_eq!(bytes.len(), 16);
    assert_eq!(bytes[..8], 5_000u64.to_be_bytes());
    assert_eq!(workload.service_ns(Request::spin(u32::MAX)), 55_000);
    assert_ne!(bytes[8..], bytes_of(&workload, Request::spin(1))[8..]);
    let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
    let draws: Vec<_> = (0..100_000).map(|_| workload.draw(&mut rng)).collect();
    let long = draws.iter().filter(|request| workload.service_ns(**request) == 55_000).count();
    // Six standard deviations of a binomial.
    assert!(long.abs_diff(10_000) < 6 * 95, "{long} long ones of 100,000");
    assert_eq!(workload.keys(), 0);
}

#[test]
fn the_service_understands_the_requests() {
    let times = "exponential:25".parse().expect("service times");
    let workload = workload(&WorkloadConfig::Spin { times });
    for draw in (0..1_000u32).map(|n| n.wrapping_mul(0x9E37_79B9)) {
        let request = Request::spin(draw);
        let bytes = bytes_of(&workload, request);
        let frame = spin::Frame::from_bytes(bytes.as_array().expect("16 bytes"));
        assert_eq!(frame.service_ns, workload.service_ns(request));
        assert!(frame.service().is_some());
        assert_eq!(frame.to_bytes(), *bytes);
    }
    assert_eq!(spin::SERVICE_NS_MAX as f64, crate::SERVICE_US_MAX * 1e3);
}
