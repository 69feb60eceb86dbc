//! The wheel against a sorted list.

use alloc::collections::BTreeSet;
use alloc::vec;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

struct Nodes(Vec<TimerLinks>);

impl TimerNodes for Nodes {
    fn links(&mut self, index: u32) -> &mut TimerLinks {
        &mut self.0[index as usize]
    }
}

#[derive(Clone, Debug)]
enum Step {
    Set(u32, u64),
    Remove(u32),
    Advance(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let delay = prop_oneof![0..70u64, 0..5000u64, 0..300_000u64, 0..SPAN * 2];
    let step = prop_oneof![
        (0..32u32, delay.clone()).prop_map(|(index, delay)| Step::Set(index, delay)),
        (0..32u32).prop_map(Step::Remove),
        delay.prop_map(Step::Advance),
    ];
    prop::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn fires_what_a_sorted_list_fires(start in 0..u64::from(u32::MAX) * 4, steps in steps()) {
        let mut wheel = Wheel::new(start);
        let mut nodes = Nodes(vec![TimerLinks::default(); 32]);
        let mut model: BTreeSet<(u64, u32)> = BTreeSet::new();
        let mut now = start;
        for step in steps {
            match step {
                Step::Set(index, delay) => {
                    wheel.remove(&mut nodes, index);
                    model.retain(|&(_, other)| other != index);
                    wheel.insert(&mut nodes, index, now + delay);
                    model.insert(((now + delay).clamp(now + 1, now + HORIZON), index));
                }
                Step::Remove(index) => {
                    wheel.remove(&mut nodes, index);
                    model.retain(|&(_, other)| other != index);
                }
                Step::Advance(by) => {
                    now += by;
                    if let Some(&(first, _)) = model.first() {
                        prop_assert!(wheel.next_due() <= first);
                    }
                    let mut fired = BTreeSet::new();
                    let mut last = 0;
                    while let Some(index) = wheel.pop_expired(&mut nodes, now) {
                        let &(when, _) = model.iter().find(|entry| entry.1 == index)
                            .expect("fired once, and only what is set");
                        prop_assert!(when <= now && when >= last, "in order and not early");
                        last = when;
                        model.remove(&(when, index));
                        fired.insert(index);
                    }
                    prop_assert!(model.first().is_none_or(|&(when, _)| when > now), "not late");
                }
            }
        }
    }
}

#[test]
fn an_empty_wheel_is_never_due() {
    let mut wheel = Wheel::new(7);
    let mut nodes = Nodes(Vec::new());
    assert_eq!(wheel.next_due(), u64::MAX);
    assert_eq!(wheel.pop_expired(&mut nodes, 1 << 40), None);
}

#[test]
fn ticks_round_up() {
    use core::time::Duration;
    assert_eq!(ticks(Duration::ZERO), 1);
    assert_eq!(ticks(Duration::from_nanos(16_384)), 1);
    assert_eq!(ticks(Duration::from_nanos(16_385)), 2);
    assert_eq!(tick_of(Instant::from_nanos(32_767)), 1);
}
