//! The wheel against a sorted list.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use proptest::prelude::*;

use super::*;

#[derive(Clone, Debug)]
enum Step {
    Set(u32, u64),
    Advance(u64),
}

/// Of a test, at most.
const STEPS: usize = if cfg!(miri) { 40 } else { 300 };

fn cases() -> ProptestConfig {
    ProptestConfig::with_cases(if cfg!(miri) { 3 } else { 256 })
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let delay = prop_oneof![0..70u64, 0..5000u64, 0..300_000u64, 0..HORIZON * 2];
    let step = prop_oneof![
        3 => (0..32u32, delay.clone()).prop_map(|(index, delay)| Step::Set(index, delay)),
        1 => delay.prop_map(Step::Advance),
    ];
    prop::collection::vec(step, 1..STEPS)
}

proptest! {
    #![proptest_config(cases())]

    #[test]
    fn fires_what_a_sorted_list_fires(start in 0..u64::from(u32::MAX) * 4, steps in steps()) {
        let mut wheel = Wheel::new(start);
        // In order of time; several entries may be alike.
        let mut model: BTreeMap<(u64, u32), u32> = BTreeMap::new();
        let mut now = start;
        for step in steps {
            match step {
                Step::Set(index, delay) => {
                    let tick = wheel.insert(index, now + delay);
                    // Never early; late by an eighth at most, and exactly where that is a tick.
                    let when = (now + delay).clamp(now + 1, now + HORIZON - 1);
                    let late = tick.wrapping_sub(when as u32) as u64;
                    prop_assert!(late <= (when - now) / 7, "{delay} ahead, {late} late");
                    *model.entry((when + late, index)).or_default() += 1;
                }
                Step::Advance(by) => {
                    now += by;
                    if let Some((&(first, _), _)) = model.first_key_value() {
                        prop_assert!(wheel.next_due() <= first);
                    }
                    let mut last = 0;
                    let mut announced = None;
                    while let Some(entry) = wheel.pop_expired(now) {
                        if announced.is_some_and(|upcoming: Entry| upcoming.tick == entry.tick) {
                            prop_assert_eq!(announced, Some(entry));
                        }
                        announced = wheel.upcoming().last().copied();
                        let (&(when, index), _) = model
                            .iter()
                            .find(|((when, index), _)| *index == entry.index && *when as u32 == entry.tick)
                            .expect("fired as often as set, at its tick");
                        prop_assert!(when <= now && when >= last, "in order and not early");
                        last = when;
                        match model.get_mut(&(when, index)) {
                            Some(count) if *count > 1 => *count -= 1,
                            _ => drop(model.remove(&(when, index))),
                        }
                    }
                    let next = model.first_key_value();
                    prop_assert!(next.is_none_or(|(&(when, _), _)| when > now), "not late");
                }
            }
        }
    }

    /// A connection that asks for ever other deadlines is asked at each, or before, and sets few entries.
    #[test]
    fn no_deadline_is_missed(delays in prop::collection::vec((0..20_000u64, 0..500u64), 1..STEPS)) {
        let mut wheel = Wheel::new(0);
        let (mut entries, mut now) = (TimerEntries::default(), 0);
        for (delay, pass) in delays {
            // A new deadline, wherever it is; set as a connection does.
            let mut deadline = Some(now + 1 + delay);
            if !entries.covers_about((now + 1 + delay) as u32, now as u32) {
                entries.note(wheel.insert(0, now + 1 + delay));
            }
            now += pass;
            while let Some(entry) = wheel.pop_expired(now) {
                if !entries.take(entry.tick) {
                    continue;
                }
                match deadline {
                    Some(at) if at <= now => deadline = None,
                    Some(at) if !entries.covers_about(at as u32, now as u32) => entries.note(wheel.insert(0, at)),
                    _ => {}
                }
            }
            prop_assert!(deadline.is_none_or(|at| at + 1 + delay / 4 > now), "missed");
        }
    }
}

#[test]
fn an_empty_wheel_is_never_due() {
    let mut wheel = Wheel::new(7);
    assert_eq!(wheel.next_due(), u64::MAX);
    assert_eq!(wheel.pop_expired(1 << 40), None);
    assert_eq!(wheel.upcoming(), []);
}

#[test]
fn blocks_are_used_again() {
    let mut wheel = Wheel::new(0);
    let mut fired = 0;
    let mut bytes = 0;
    let rounds = if cfg!(miri) { 4 } else { 100 };
    for round in 0..rounds {
        for index in 0..1_000 {
            wheel.insert(index, round * 10_000 + 1 + index as u64 * 7);
        }
        while wheel.pop_expired((round + 1) * 10_000).is_some() {
            fired += 1;
        }
        if round == 0 {
            bytes = wheel.bytes();
        }
    }
    assert_eq!(fired, rounds * 1_000);
    assert!(wheel.bytes() <= 2 * bytes, "{} after {bytes}", wheel.bytes());
}

#[test]
fn a_connection_knows_two_entries() {
    let mut entries = TimerEntries::default();
    assert!(!entries.covers(100, 0) && !entries.take(100));
    entries.note(300);
    entries.note(200);
    assert!(entries.covers(200, 0) && !entries.covers(199, 0) && entries.covers(199, 1));
    assert!(entries.covers_about(160, 0) && !entries.covers_about(159, 0));
    // What was due before now is not covered by what fires later.
    assert!(entries.covers_about(200, 200) && !entries.covers_about(199, 199));
    entries.note(100);
    // The one at 300 is forgotten.
    assert!(!entries.take(300) && entries.take(100));
    assert!(entries.covers(200, 0) && entries.take(200) && !entries.take(200));
    entries.note(u32::MAX);
    assert!(entries.covers(3, 0), "ticks wrap");
}

#[test]
fn ticks_round_up() {
    use core::time::Duration;
    assert_eq!(ticks(Duration::ZERO), 1);
    assert_eq!(ticks(Duration::from_nanos(16_384)), 1);
    assert_eq!(ticks(Duration::from_nanos(16_385)), 2);
    assert_eq!(tick_of(Instant::from_nanos(32_767)), 1);
}

#[derive(Clone, Debug)]
enum Move {
    Set(u32, u64),
    Advance(u64),
    Carry,
}

fn moves() -> impl Strategy<Value = Vec<Move>> {
    let delay = prop_oneof![0..70u64, 0..5000u64, 0..300_000u64];
    let step = prop_oneof![
        6 => (0..32u32, delay.clone()).prop_map(|(index, delay)| Move::Set(index, delay)),
        2 => delay.prop_map(Move::Advance),
        1 => Just(Move::Carry),
    ];
    prop::collection::vec(step, 1..STEPS)
}

proptest! {
    #![proptest_config(cases())]

    /// Entries with odd indices are carried from wheel to wheel and back. Every entry fires once, at the
    /// tick at which it would have fired without; one that was carried when it was overdue at the next.
    #[test]
    fn entries_that_are_carried_to_another_wheel_fire_when_they_would_have(
        start in 0..u64::from(u32::MAX) * 4,
        steps in moves(),
    ) {
        let mut wheels = [Wheel::new(start), Wheel::new(start)];
        let mut waiting: Vec<(u32, u32)> = Vec::new();
        let (mut now, mut odd) = (start, 0);
        for step in steps {
            match step {
                Move::Set(index, delay) => {
                    let wheel = if index % 2 == 1 { odd } else { 0 };
                    waiting.push((index, wheels[wheel].insert(index, now + delay)));
                }
                Move::Carry => {
                    let mut carried = Vec::new();
                    wheels[odd].extract(|index| index % 2 == 1, |entry| carried.push(entry));
                    odd = 1 - odd;
                    wheels[odd].advance(now);
                    let due = carried.iter().map(|entry| entry.tick).collect::<Vec<_>>();
                    carried.into_iter().for_each(|entry| wheels[odd].adopt(entry));
                    let next = wheels[odd].next_due();
                    let soon = |&tick: &u32| (next as u32).wrapping_sub(tick) as i32 <= 0;
                    prop_assert!(next <= now + 1 || due.iter().all(soon));
                }
                Move::Advance(by) => {
                    now += by;
                    for wheel in &mut wheels {
                        while let Some(entry) = wheel.pop_expired(now) {
                            let at = waiting.iter().position(|&one| one == (entry.index, entry.tick));
                            waiting.swap_remove(at.expect("set once, fired once"));
                        }
                        wheel.advance(now);
                    }
                    let late = waiting
                        .iter()
                        .find(|(_, tick)| (now as u32).wrapping_sub(*tick) as i32 >= 0);
                    prop_assert_eq!(late, None, "nothing is late");
                }
            }
        }
        now += HORIZON;
        for wheel in &mut wheels {
            while let Some(entry) = wheel.pop_expired(now) {
                let at = waiting.iter().position(|&one| one == (entry.index, entry.tick));
                waiting.swap_remove(at.expect("set once, fired once"));
            }
            prop_assert!(wheel.occupied.iter().all(|&slots| slots == 0));
        }
        prop_assert!(waiting.is_empty(), "everything fires");
    }
}

#[test]
fn an_overdue_entry_that_is_taken_in_fires_at_the_next_tick() {
    let mut wheel = Wheel::new(1_000);
    wheel.adopt(Entry { index: 7, tick: 400 });
    assert_eq!(wheel.next_due(), 1_001);
    assert_eq!(wheel.pop_expired(1_000), None);
    assert_eq!(wheel.pop_expired(1_001), Some(Entry { index: 7, tick: 400 }));
    assert_eq!(wheel.pop_expired(9_999), None);
}
