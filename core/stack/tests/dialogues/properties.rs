//! Random adversaries: see `chaos`. A failing script is shrunk and printed by proptest.

use proptest::prelude::*;

use crate::chaos::{Step, run};
use crate::{fragment_map, segment_script};

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => prop::collection::vec(any::<u8>(), 0..120).prop_map(Step::Raw),
        2 => (any::<u8>(), any::<u16>(), any::<u8>(), any::<u8>())
            .prop_map(|(kind, at, xor, cut)| Step::Mutated { kind, at, xor, cut }),
        8 => (any::<u8>(), any::<u8>(), -4..4i16, -4..4i16, any::<u8>(), any::<u8>(), any::<u8>())
            .prop_map(|(flow, flags, seq, ack, len, window, options)| {
                Step::Segment { flow, flags, seq, ack, len, window, options }
            }),
        // In order, nothing acknowledged too much: the state machine moves on.
        8 => (any::<u8>(), prop::sample::select(vec![0x10, 0x18, 0x11, 0x10, 0x10]), any::<u8>())
            .prop_map(|(flow, flags, len)| {
                Step::Segment { flow, flags, seq: 0, ack: 0, len, window: 6, options: 1 }
            }),
        4 => (any::<u8>(), any::<u8>(), any::<i16>(), any::<i16>(), any::<u8>())
            .prop_map(|(flow, flags, seq, ack, len)| {
                Step::Segment { flow, flags, seq, ack, len, window: 3, options: 0 }
            }),
        3 => (any::<u8>(), 0..8u8, prop::sample::select(vec![0_i16, 0, 0, 1, -1]), 0..1_600u16)
            .prop_map(|(flow, back, off, mtu)| Step::TooBig { flow, back, off, mtu }),
        6 => (any::<u8>(), any::<u8>(), any::<u16>())
            .prop_map(|(kind, target, amount)| Step::Call { kind, target, amount }),
        2 => (any::<u8>(), any::<u8>()).prop_map(|(scale, amount)| Step::Pass { scale, amount }),
        1 => any::<u8>().prop_map(Step::Switch),
        6 => Just(Step::Batch),
    ]
}

fn script() -> impl Strategy<Value = (u8, Vec<Step>)> {
    (any::<u8>(), prop::collection::vec(step(), 0..200))
}

fn spell(size: u8, steps: &[Step]) -> Vec<u8> {
    let mut bytes = vec![size];
    steps.iter().for_each(|step| step.encode(&mut bytes));
    bytes
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]

    #[test]
    fn plausible_adversaries_change_nothing((size, steps) in script()) {
        run(&spell(size, &steps));
    }

    #[test]
    fn random_bytes_change_nothing(bytes in prop::collection::vec(any::<u8>(), 0..1_500)) {
        run(&bytes);
    }

    #[test]
    fn fragments_make_what_a_map_of_bytes_makes(script in prop::collection::vec(any::<u8>(), 0..1_200)) {
        fragment_map::run(&script);
    }

    #[test]
    fn segments_near_a_connection_keep_its_promises(script in prop::collection::vec(any::<u8>(), 0..1_200)) {
        segment_script::run(&script);
    }

    #[test]
    fn scripts_are_read_as_they_are_spelt((size, steps) in script()) {
        let bytes = spell(size, &steps);
        prop_assert_eq!(Step::decode(&bytes[1..]), steps);
    }
}
