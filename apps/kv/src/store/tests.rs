//! The store against a simple model, and what must hold of its memory whatever happens.

use std::collections::HashMap;

use super::item::Kind;
use super::operations::{Arithmetic, Delta, Mode, StoreOutcome, StoreRequest};
use super::pending::{IDLE_LOOKS, PENDING_IDLE_S, Pending};
use super::shard::{KeyHash, Shard};
use super::slab::{CHUNK_MAX_BYTES, Chunk};
use super::unsafe_memory::Memory;
use crate::time::NEVER;

const ITEM_MAX: usize = 200_000;
const SMALL_SHARD_BYTES: usize = 1 << 20;

fn shard() -> Shard {
    let mut memory = Memory::new(SMALL_SHARD_BYTES, 2).expect("memory");
    Shard::new(&mut memory, SMALL_SHARD_BYTES, ITEM_MAX, (0, 1)).expect("room")
}

/// Few hash values, so that buckets and tags collide often.
fn hash(key: &[u8]) -> KeyHash {
    KeyHash(key.iter().fold(7_u64, |hash, &byte| hash * 31 + u64::from(byte)) % 4096)
}

fn request(mode: Mode) -> StoreRequest {
    StoreRequest {
        mode,
        client_flags: 0,
        expires: NEVER,
        cas: 0,
        new_cas: None,
        accept_stale: false,
        key_binary: false,
    }
}

fn set(shard: &mut Shard, key: &[u8], value: &[u8], now: u32) -> StoreOutcome {
    shard.store(hash(key), key, &request(Mode::Set), value, now)
}

fn get(shard: &mut Shard, key: &[u8], now: u32) -> Option<Vec<u8>> {
    let item = shard.find(hash(key), key, now)?;
    shard.bump(item, now);
    let mut value = Vec::new();
    shard.slab.for_value_line(item, usize::MAX, |piece| value.extend_from_slice(piece));
    assert_eq!(value.split_off(value.len() - 2), b"\r\n");
    Some(value)
}

/// Seeded numbers.
struct Rng(u64);

impl Rng {
    fn below(&mut self, limit: usize) -> usize {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % limit
    }
}

/// Counts what is in the pages and compares it with lists, classes and counters.
fn check(shard: &Shard) {
    let slab = &shard.slab;
    let mut used = vec![0_u64; slab.classes().len()];
    let (mut items, mut waiting, mut bytes, mut held_pages) = (0, 0, 0, 0);
    for page in 0..slab.page_count() {
        held_pages += usize::from(slab.page_class(page).is_some());
        let mut nth = 0;
        while let Some(chunk) = slab.chunk_in_page(page, nth) {
            nth += 1;
            match slab.kind(chunk) {
                Kind::Free => continue,
                Kind::Item if slab.flag(chunk, super::item::UNLINKED) => waiting += 1,
                Kind::Item => {
                    items += 1;
                    bytes += slab.item_bytes(chunk) as u64;
                }
                Kind::Continuation(owner) => assert_eq!(slab.kind(owner), Kind::Item),
            }
            used[slab.class_of(chunk)] += 1;
        }
    }
    let listed: u64 = (0..slab.classes().len()).map(|class| shard.lru[class].len()).sum();
    assert_eq!(items, listed, "items in pages and on lists");
    assert_eq!(items, shard.counters.curr_items);
    assert_eq!(bytes, shard.counters.bytes);
    assert_eq!(waiting, shard.pending.len());
    for class in 0..slab.classes().len() {
        let mut item = shard.lru[class].tail();
        let mut oldest = u8::MAX;
        while !item.is_nil() {
            let age = shard.epoch.wrapping_sub(shard.slab.header(item).epoch);
            assert!(age <= oldest, "an item of {age} epochs ago behind one of {oldest}");
            (item, oldest) = (slab.header(item).lru_prev, age);
        }
    }
    for (class, count) in slab.classes().iter().zip(used) {
        assert_eq!(class.used_chunks, count, "chunks of {} bytes", class.chunk_bytes);
    }
    let pages: u32 = slab.classes().iter().map(|class| class.pages).sum();
    assert_eq!(pages as usize, held_pages);
    assert_eq!(pages as usize + slab.free_page_count(), slab.page_count());
    assert!(shard.allocated_bytes() <= SMALL_SHARD_BYTES, "{} bytes", shard.allocated_bytes());
}

#[test]
fn without_eviction_it_is_a_map() {
    for seed in 0..if cfg!(miri) { 1 } else { 20 } {
        let mut rng = Rng(seed);
        let mut shard = shard();
        let mut model: HashMap<Vec<u8>, Vec<u8>> = HashMap::new();
        for step in 0..if cfg!(miri) { 100 } else { 2000 } {
            let key = format!("key-{}", rng.below(30)).into_bytes();
            let long = rng.below(20) == 0;
            let len = rng.below(if long { 20_000 } else { 300 });
            let value: Vec<u8> = (0..len).map(|at| (at + step) as u8).collect();
            match rng.below(8) {
                0 | 1 => {
                    assert!(matches!(set(&mut shard, &key, &value, 1), StoreOutcome::Stored(_)));
                    model.insert(key, value);
                }
                2 => {
                    let stored = shard.store(hash(&key), &key, &request(Mode::Add), &value, 1);
                    assert_eq!(
                        matches!(stored, StoreOutcome::Stored(_)),
                        !model.contains_key(&key)
                    );
                    model.entry(key).or_insert(value);
                }
                3 => {
                    let mode = if step % 2 == 0 { Mode::Append } else { Mode::Prepend };
                    let part = &value[..value.len().min(200)];
                    let stored = shard.store(hash(&key), &key, &request(mode), part, 1);
                    let old = model.get_mut(&key);
                    assert_eq!(matches!(stored, StoreOutcome::Stored(_)), old.is_some());
                    if let Some(old) = old {
                        let at = if mode == Mode::Append { old.len() } else { 0 };
                        old.splice(at..at, part.iter().copied());
                    }
                }
                4 => {
                    let found = shard.find(hash(&key), &key, 1);
                    assert_eq!(found.is_some(), model.remove(&key).is_some());
                    if let Some(item) = found {
                        shard.delete(item);
                    }
                }
                5 => {
                    // A value that arrives in two parts.
                    let cut = rng.below(len + 1);
                    let plain = request(Mode::Set);
                    let ticket =
                        shard.begin(hash(&key), &key, &plain, len, 1).expect("there is room");
                    assert_eq!(
                        get(&mut shard, &key, 1),
                        model.get(&key).cloned(),
                        "not yet stored"
                    );
                    assert!(shard.progress(ticket, 0, &value[..cut], 1));
                    assert!(shard.progress(ticket, cut, &value[cut..], 1));
                    assert!(matches!(
                        shard.finish(ticket, hash(&key), &key, &plain, 1),
                        StoreOutcome::Stored(_)
                    ));
                    assert!(!shard.progress(ticket, 0, b"", 1), "a used ticket is worthless");
                    model.insert(key, value);
                }
                6 if rng.below(200) == 0 => {
                    assert!(shard.flush(1, 1, &mut 1_000));
                    model.clear();
                }
                _ => assert_eq!(get(&mut shard, &key, 1), model.get(&key).cloned()),
            }
        }
        for (key, value) in &model {
            assert_eq!(get(&mut shard, key, 1).as_ref(), Some(value));
        }
        let evicted: u64 = shard.class_counters.iter().map(|class| class.evicted).sum();
        assert_eq!(evicted, 0, "the model has no evictions: use less memory in this test");
        check(&shard);
    }
}

#[test]
fn every_set_succeeds_and_memory_adds_up_under_pressure() {
    // Steps with each limit of sizes, and the fewest evictions that are pressure.
    let (of_a_limit, enough) = if cfg!(miri) { (30, 10) } else { (150, 100) };
    for seed in 0..if cfg!(miri) { 1 } else { 12 } {
        let mut rng = Rng(seed);
        let mut shard = shard();
        let mut tickets = Vec::new();
        for step in 0..20 * of_a_limit {
            let now = 1000 + step / 10;
            // Sizes move from small to large and back, so that pages must change class.
            let limit = [60, 2000, 30_000, 199_000, 300][(step / of_a_limit) as usize % 5];
            let len = rng.below(limit);
            let key = format!("key-{}", rng.below(4000)).into_bytes();
            let value = vec![step as u8; len];
            match rng.below(10) {
                0..=5 => {
                    let stored = set(&mut shard, &key, &value, now);
                    assert!(
                        matches!(stored, StoreOutcome::Stored(_)),
                        "seed {seed} step {step}: {stored:?}"
                    );
                    assert_eq!(get(&mut shard, &key, now), Some(value), "what was just stored");
                }
                6 => {
                    if let Some(ticket) =
                        shard.begin(hash(&key), &key, &request(Mode::Set), len, now)
                    {
                        shard.progress(ticket, 0, &value[..len / 2], now);
                        tickets.push((ticket, key, value, now));
                    }
                }
                7 if !tickets.is_empty() => {
                    let index = rng.below(tickets.len());
                    let (ticket, key, value, began) = tickets.swap_remove(index);
                    let (done, rest) = (value.len() / 2, &value[value.len() / 2..]);
                    let alive = shard.progress(ticket, done, rest, now);
                    let stored = shard.finish(ticket, hash(&key), &key, &request(Mode::Set), now);
                    assert_eq!(
                        matches!(stored, StoreOutcome::Stored(_)),
                        alive,
                        "begun at {began}"
                    );
                    if alive {
                        assert_eq!(get(&mut shard, &key, now), Some(value));
                    }
                }
                8 => {
                    let part = &value[..len.min(500)];
                    let key = format!("key-{}", rng.below(50)).into_bytes();
                    let _ = shard.store(hash(&key), &key, &request(Mode::Append), part, now);
                }
                _ if seed % 2 == 1 => assert!(shard.flush(now, now, &mut 10_000)),
                _ => {
                    let _ = get(&mut shard, &key, now);
                }
            }
            if step % (2 * of_a_limit / 3) == 0 {
                check(&shard);
            }
        }
        let evicted: u64 = shard.class_counters.iter().map(|class| class.evicted).sum();
        assert!(evicted > enough || seed % 2 == 1, "only {evicted} evictions: no pressure");
        assert!(shard.counters.slabs_moved > 0, "no page has changed class");
        check(&shard);
    }
}

#[test]
fn the_least_recently_used_go_first() {
    let mut shard = shard();
    let value = [b'v'; if cfg!(miri) { 4_000 } else { 200 }];
    let name = |index: usize| format!("key-{index:06}").into_bytes();
    let mut stored = 0;
    while shard.class_counters.iter().all(|class| class.evicted == 0) {
        set(&mut shard, &name(stored), &value, 1);
        // This one is used all the time.
        assert!(get(&mut shard, &name(0), 1).is_some(), "after {stored} items");
        stored += 1;
    }
    for index in stored..2 * stored - 10 {
        set(&mut shard, &name(index), &value, 1);
        assert!(get(&mut shard, &name(0), 1).is_some());
    }
    assert!(get(&mut shard, &name(1), 1).is_none(), "the oldest unused one is gone");
    assert!(get(&mut shard, &name(stored / 2), 1).is_none());
    assert!(get(&mut shard, &name(2 * stored - 11), 1).is_some(), "the newest is there");
    check(&shard);
}

#[test]
fn values_that_never_come_do_not_hold_memory() {
    let mut shard = shard();
    let plain = request(Mode::Set);
    let mut tickets = Vec::new();
    for index in 0..100 {
        let key = format!("key-{index}").into_bytes();
        let ticket = shard.begin(hash(&key), &key, &plain, 100_000, 1).expect("there is room");
        assert!(shard.progress(ticket, 0, &[1; 99_999], 1));
        tickets.push(ticket);
    }
    // The later ones have taken the pages of the earlier ones: each new value finds room.
    let alive = shard.pending.len();
    assert!((1..20).contains(&alive), "{alive} values of 100 kB in 1 MiB");
    let later = 1 + PENDING_IDLE_S;
    for index in 0..40 {
        let key = format!("other-{index}").into_bytes();
        assert!(matches!(set(&mut shard, &key, &[1; 100_000], later), StoreOutcome::Stored(_)));
    }
    assert_eq!(shard.pending.len(), 0, "silent clients' values were reclaimed");
    assert_eq!(
        shard.finish(tickets[99], hash(b"key-99"), b"key-99", &plain, later),
        StoreOutcome::OutOfMemory
    );
    check(&shard);
}

#[test]
fn expired_items_are_reclaimed_before_any_is_evicted() {
    let mut shard = shard();
    let brief = StoreRequest { expires: 10, ..request(Mode::Set) };
    // Half of the memory, twice.
    let value = [0; if cfg!(miri) { 5_000 } else { 500 }];
    let items = 500_000 / value.len();
    for index in 0..items {
        let key = format!("brief-{index}").into_bytes();
        shard.store(hash(&key), &key, &brief, &value, 1);
    }
    for index in 0..items {
        let key = format!("long-{index}").into_bytes();
        set(&mut shard, &key, &value, 20);
    }
    let sum = |pick: fn(&crate::ClassCounters) -> u64| -> u64 {
        shard.class_counters.iter().map(pick).sum()
    };
    assert_eq!(sum(|class| class.evicted), 0);
    assert!(sum(|class| class.reclaimed) > 0);
    assert!(sum(|class| class.expired_unfetched) > 0);
    check(&shard);
}

#[test]
fn flushes_hold_for_many_rounds_and_delayed_ones_come_due() {
    let mut shard = shard();
    for round in 0..600 {
        let key = format!("key-{round}").into_bytes();
        set(&mut shard, &key, b"x", 1);
        assert!(shard.flush(0, 1, &mut 2));
        assert_eq!(get(&mut shard, &key, 1), None);
        let earlier = format!("key-{}", round / 2).into_bytes();
        assert_eq!(get(&mut shard, &earlier, 1), None, "an epoch came round again");
    }
    set(&mut shard, b"a", b"x", 1);
    assert!(shard.flush(100, 1, &mut 2));
    assert!(get(&mut shard, b"a", 99).is_some());
    set(&mut shard, b"b", b"y", 100);
    assert!(get(&mut shard, b"b", 100).is_some(), "stored when the flush was due");
    assert_eq!(get(&mut shard, b"a", 100), None);
    check(&shard);
}

#[test]
fn arithmetic_on_a_long_value_walks_its_chunks_once() {
    let mut shard = shard();
    let mut value = vec![b' '; ITEM_MAX - 1_000];
    value[0] = b'1';
    set(&mut shard, b"k", &value, 1);
    let delta = Delta { incr: true, by: 1, cas: None, new_cas: None };
    let before = shard.slab.chain_steps();
    assert!(matches!(shard.arithmetic(hash(b"k"), b"k", &delta, 1), Arithmetic::Done(_, 2)));
    let (steps, chunks) =
        (shard.slab.chain_steps() - before, (value.len() / CHUNK_MAX_BYTES + 1) as u64);
    assert!(steps <= chunks, "{steps} steps along a chain of {chunks} chunks");
}

#[test]
fn a_number_that_goes_on_beyond_what_is_read_of_it_is_refused() {
    let mut shard = shard();
    let delta = Delta { incr: true, by: 1, cas: None, new_cas: None };
    for (blanks, digits, expected) in
        [(0, 20, true), (44, 20, true), (45, 20, false), (60, 5, false), (64, 1, false)]
    {
        let value = [b" ".repeat(blanks), b"1".repeat(digits)].concat();
        set(&mut shard, b"k", &value, 1);
        let outcome = shard.arithmetic(hash(b"k"), b"k", &delta, 1);
        let done = matches!(outcome, Arithmetic::Done(..));
        assert_eq!(done, expected, "{blanks} blanks, {digits} digits: {outcome:?}");
    }
}

#[test]
fn the_look_for_a_silent_client_is_short_however_many_values_wait() {
    let (slots, later) = (if cfg!(miri) { 500 } else { 10_000 }, 1 + PENDING_IDLE_S);
    let silent = slots / 2;
    let mut pending = Pending::default();
    let tickets: Vec<_> = (0..slots).map(|index| pending.insert(Chunk(index.into()), 1)).collect();
    // All but one go on. It is found within a round of looks.
    for &ticket in tickets.iter().filter(|&&ticket| ticket.slot != silent) {
        assert!(pending.get(ticket, later).is_some());
    }
    let looks = (1..).find(|_| pending.idle_slot(later) == Some(silent));
    assert_eq!(looks, Some((silent as usize).div_ceil(IDLE_LOOKS)));
}

#[test]
fn a_value_takes_chunks_as_its_bytes_arrive() {
    let mut shard = shard();
    let (keys, small) = if cfg!(miri) { (300, 4_000) } else { (20_000, 1) };
    for key in 0..keys {
        set(&mut shard, format!("small-{key}").as_bytes(), &b"x".repeat(small), 1);
    }
    let value = Vec::from_iter(0..=u8::MAX).repeat(ITEM_MAX / 256 - 4);
    let plain = request(Mode::Set);
    let mut moved = shard.counters.slabs_moved;
    let mut at_most_one = |shard: &Shard, at: usize| {
        let found = shard.counters.slabs_moved - moved;
        assert!(found <= 1, "{found} pages were emptied for {at} bytes");
        moved += found;
    };
    let ticket = shard.begin(hash(b"k"), b"k", &plain, value.len(), 1).expect("there is room");
    at_most_one(&shard, 0);
    for (nth, part) in value.chunks(1_448).enumerate() {
        assert!(shard.progress(ticket, nth * 1_448, part, 1));
        at_most_one(&shard, nth * 1_448 + part.len());
        if nth % if cfg!(miri) { 100 } else { 10 } == 0 {
            check(&shard);
        }
    }
    let stored = shard.finish(ticket, hash(b"k"), b"k", &plain, 1);
    assert!(matches!(stored, StoreOutcome::Stored(_)), "{stored:?}");
    assert_eq!(get(&mut shard, b"k", 1), Some(value));
    check(&shard);
}
