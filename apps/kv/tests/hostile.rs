//! Clients that ask for more than they take, that send half a request, and that do both a thousand times;
//! and well-behaved clients beside them.

mod common;
#[path = "common/rig.rs"]
mod rig;

use std::sync::Arc;

use clock::Duration;
use common::{NOW, small_store, stream, talk};
use kv::{KvProtocol, Session, Store, StoreConfig};
use proptest::prelude::*;
use rig::{Rig, SEGMENT_BYTES};
use tailplane::{Flow, OUTPUT_LIMIT_BYTES};

/// A value that is amplified: as memcached counts, the largest there is.
const LARGE: usize = (1 << 20) - 100;
/// What one turn may keep beyond the limit before the connection is charged: a reply, and a receive window.
const ONE_TURN_BYTES: usize = 2 * (OUTPUT_LIMIT_BYTES + rig::RECEIVE_WINDOW_BYTES);
/// Entries of some connections that kept something, until they are looked at.
const ENTRIES_BYTES: usize = 1_000;

fn rig_with(config: StoreConfig) -> (Rig, Arc<Store>) {
    let store = Arc::new(Store::new(config, [3, 5]).expect("these limits are valid"));
    (Rig::new(KvProtocol::new(Arc::clone(&store), NOW)), store)
}

fn rig() -> (Rig, Arc<Store>) {
    rig_with(StoreConfig::default())
}

/// Sends a request on a connection whose peer reads, and expects this reply.
#[track_caller]
fn ask(rig: &mut Rig, number: usize, request: &[u8], reply: &[u8]) {
    rig.peers[number].read.clear();
    rig.peers[number].window = 64 << 20;
    rig.send(number, request);
    let found = &rig.peers[number].read;
    assert!(!rig.peers[number].ended, "the connection was ended");
    assert!(found == reply, "{} bytes of {}", found.len(), reply.len());
}

/// Stores `value` under `key` by connection `number`.
#[track_caller]
fn set(rig: &mut Rig, number: usize, key: &str, value: &[u8]) {
    let request =
        [format!("set {key} 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat();
    ask(rig, number, &request, b"STORED\r\n");
}

fn block(key: &str, value: &[u8]) -> Vec<u8> {
    [format!("VALUE {key} 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat()
}

/// A retrieval of as many keys as a line holds.
fn amplifying_get() -> Vec<u8> {
    let mut line = b"get".to_vec();
    while line.len() + 4 < kv::MULTIGET_WHOLE_BYTES {
        line.extend_from_slice(b" k");
    }
    line.extend_from_slice(b"\r\n");
    line
}

#[test]
fn a_line_of_a_thousand_long_keys_is_answered_and_nothing_is_kept_of_it() {
    let (mut rig, _) = rig();
    let number = rig.open(1 << 20);
    set(&mut rig, number, "k", b"v");
    let keys: String = (0..1_000).map(|key| format!(" {key:0240} k")).collect();
    let reply = [block("k", b"v").repeat(1_000), b"END\r\n".to_vec()].concat();
    for _ in 0..3 {
        ask(&mut rig, number, format!("get{keys}\r\n").as_bytes(), &reply);
    }
    assert_eq!(rig.server.stats().kept_bytes, 0);
}

#[test]
fn a_multiget_keeps_no_more_than_a_limit_for_a_peer_that_does_not_read() {
    let (mut rig, store) = rig();
    let good = rig.open(1 << 20);
    set(&mut rig, good, "k", &vec![b'v'; LARGE]);
    let number = rig.open(64 << 10);
    rig.send(number, format!("get{}\r\n", " k".repeat(200)).as_bytes());
    let kept = rig.server.stats().kept_bytes;
    assert!(kept <= 2 * OUTPUT_LIMIT_BYTES as u64, "{kept} bytes of replies were queued");
    assert_eq!(rig.peers[number].read_bytes, 64 << 10, "what the window takes is sent");
    let stats = store.stats(NOW);
    assert!(stats.connections.kept_bytes <= 4 * OUTPUT_LIMIT_BYTES, "{:?}", stats.connections);
    assert_eq!(stats.pinned_items, 1);
}

#[test]
fn a_thousand_amplifying_gets_stay_within_the_memory_and_others_are_served() {
    let limit = 8 << 20;
    let (mut rig, store) =
        rig_with(StoreConfig { connection_memory_bytes: limit, ..StoreConfig::default() });
    let good = rig.open(64 << 20);
    let (large, small) = (vec![b'v'; LARGE], b"small");
    set(&mut rig, good, "k", &large);
    set(&mut rig, good, "s", small);
    rig.keeps = true;
    let line = amplifying_get();
    let both =
        [block("s", small), block("k", &large), block("s", small), b"END\r\n".to_vec()].concat();
    for attacker in 0..1_000 {
        // Of two, one reads nothing, the other a little.
        let number = rig.open(16 << 10);
        rig.send(number, &line);
        if attacker % 2 == 1 {
            rig.read(number, 5_000);
        }
        if attacker % 10 == 0 {
            ask(&mut rig, good, b"get s\r\n", &[block("s", small), b"END\r\n".to_vec()].concat());
        }
        if attacker % 100 == 0 {
            ask(&mut rig, good, b"get s k s\r\n", &both);
            ask(
                &mut rig,
                good,
                b"mg s v\r\nmg k s\r\n",
                format!("VA 5\r\nsmall\r\nHD s{LARGE}\r\n").as_bytes(),
            );
        }
        let kept = store.connection_memory().stats().kept_bytes;
        assert!(kept <= limit, "{kept} bytes are kept after {attacker} connections");
    }
    let stats = store.connection_memory().stats();
    assert!(stats.highest_bytes <= limit + ONE_TURN_BYTES, "{stats:?}");
    assert!(stats.evicted > 0 && stats.yields >= 1_000, "{stats:?}");
    println!("{stats:?}");
    // Those that are left time out, and with them all that is kept.
    rig.rest(Duration::from_secs(130));
    let stats = store.stats(NOW);
    assert_eq!((stats.connections.kept_bytes, stats.pinned_items), (0, 0), "{stats:?}");
    assert_eq!(stats.connections.evicted + stats.connections.timed_out, 1_000);
    ask(&mut rig, good, b"get s k s\r\n", &both);
}

#[test]
fn a_hundred_thousand_half_lines_stay_within_the_memory_and_others_are_served() {
    let limit = 16 << 20;
    let (mut rig, store) =
        rig_with(StoreConfig { connection_memory_bytes: limit, ..StoreConfig::default() });
    let good = rig.open(1 << 20);
    let half = [b"get ".to_vec(), vec![b'x'; 996]].concat();
    let count = 100_000u32;
    for attacker in 0..count {
        let number = rig.open(1 << 20);
        rig.send(number, &half);
        if attacker % 50 == 0 {
            // A line in two parts needs memory as well.
            rig.send(good, b"set a 0 0 ");
            ask(&mut rig, good, b"5\r\nhello\r\n", b"STORED\r\n");
        }
    }
    let stats = store.connection_memory().stats();
    println!("{stats:?}");
    assert!(stats.highest_bytes <= limit + ONE_TURN_BYTES, "{stats:?}");
    assert!(stats.evicted >= u64::from(count) / 2, "{stats:?}");
    rig.rest(Duration::from_secs(130));
    let stats = store.connection_memory().stats();
    assert_eq!((stats.kept_bytes, stats.evicted + stats.timed_out), (0, u64::from(count)));
    ask(&mut rig, good, b"get a\r\n", b"VALUE a 0 5\r\nhello\r\nEND\r\n");
}

#[test]
fn a_slow_reader_gets_every_byte_of_its_multiget() {
    let (mut rig, store) = rig();
    let good = rig.open(1 << 20);
    let value = |number: usize| vec![b'a' + (number % 26) as u8; 7 + number * number * 90];
    let (mut line, mut expected) = (b"gets".to_vec(), Vec::new());
    for number in 0..60 {
        set(&mut rig, good, &format!("k{number}"), &value(number));
        line.extend_from_slice(format!(" k{number} absent{number}").as_bytes());
        let heading = format!("VALUE k{number} 0 {} ", value(number).len());
        expected.push((heading.into_bytes(), value(number)));
    }
    line.extend_from_slice(b"\r\nmn\r\n");
    let slow = rig.open(1_000);
    rig.send(slow, &line);
    let mut overwritten = 60;
    while !rig.peers[slow].read.ends_with(b"MN\r\n") {
        let before = rig.peers[slow].read_bytes;
        rig.read(slow, 3_000);
        assert!(rig.peers[slow].read_bytes > before, "the reply stops after {before} bytes");
        // The values that are still to come, or come just now, are overwritten: each is whole all the same.
        if before > 900_000 && overwritten > 0 {
            overwritten -= 1;
            set(&mut rig, good, &format!("k{overwritten}"), &value(overwritten));
        }
    }
    let mut rest = &rig.peers[slow].read[..];
    for (heading, value) in expected {
        rest = rest.strip_prefix(&heading[..]).expect("the heading");
        let end = rest.iter().position(|&byte| byte == b'\n').expect("the heading's end");
        rest = rest[end + 1..].strip_prefix(&value[..]).expect("the whole value");
        rest = rest.strip_prefix(b"\r\n").expect("the value's end");
    }
    assert_eq!(rest, b"END\r\nMN\r\n");
    let stats = store.stats(NOW);
    assert!(stats.connections.kept_bytes <= ENTRIES_BYTES, "{stats:?}");
    assert_eq!(stats.pinned_items, 0);
}

#[test]
fn keys_of_one_turn_are_bounded() {
    let (mut rig, store) = rig();
    let number = rig.open(64 << 20);
    // None of them is there: there would be room for all replies.
    let line = [b"get".to_vec(), b" k".repeat(20_000), b"\r\n".to_vec()].concat();
    ask(&mut rig, number, &line, b"END\r\n");
    assert!(store.connection_memory().stats().yields >= 20_000 / 256);
    assert_eq!(store.stats(NOW).counters.cmd_get, 20_000);
    let many = b"mn\r\n".repeat(20_000);
    ask(&mut rig, number, &many, &b"MN\r\n".repeat(20_000));
}

#[test]
fn half_a_request_times_out_and_an_idle_connection_does_not() {
    let (mut rig, store) = rig();
    let [line, value, busy, idle] = [0; 4].map(|_| rig.open(1 << 20));
    let open = |rig: &Rig| [line, value, busy, idle].map(|number| !rig.peers[number].ended);
    rig.send(line, b"get a");
    rig.send(value, b"set a 0 0 100000\r\nhalf of it");
    for _ in 0..11 {
        // One that always has a request in part, but never the same one for long.
        rig.send(busy, b"get a\r\nget ");
        rig.rest(Duration::from_secs(5));
        // A byte now and then does not make a request younger.
        rig.send(line, b"a");
        rig.send(value, b"a");
        rig.send(busy, b"a");
    }
    assert_eq!(open(&rig), [true; 4]);
    rig.send(busy, b"\r\nget ");
    rig.rest(Duration::from_secs(6));
    assert_eq!(open(&rig), [false, false, true, true]);
    assert_eq!(store.stats(NOW).pending_items, 0);
    rig.send(busy, b"a\r\n");
    rig.rest(Duration::from_secs(1_000_000));
    assert_eq!(open(&rig), [false, false, true, true]);
    assert_eq!(store.connection_memory().stats().timed_out, 2);
}

#[test]
fn idle_connections_are_closed_where_that_is_configured() {
    let idle_timeout = Some(Duration::from_secs(300));
    let (mut rig, store) = rig_with(StoreConfig { idle_timeout, ..StoreConfig::default() });
    let [idle, busy] = [0; 2].map(|_| rig.open(1 << 20));
    for _ in 0..29 {
        rig.rest(Duration::from_secs(10));
        // Without an answer, too, it is not idle.
        rig.send(busy, b"delete a noreply\r\n");
        assert!(!rig.peers[idle].ended);
    }
    rig.rest(Duration::from_secs(30));
    assert_eq!((rig.peers[idle].ended, rig.peers[busy].ended), (true, false));
    rig.rest(Duration::from_secs(302));
    assert_eq!((rig.peers[busy].ended, store.connection_memory().stats().idle_closed), (true, 2));
}

#[test]
fn a_value_whose_memory_is_needed_ends_its_slow_reader_and_the_store_goes_on() {
    let config = StoreConfig { memory_limit_bytes: 6 << 20, shards: 1, ..StoreConfig::default() };
    let (mut rig, store) = rig_with(config);
    let good = rig.open(1 << 20);
    // Four readers of as many versions of a value, most of the store.
    let mut readers = Vec::new();
    for version in 0..8u8 {
        set(&mut rig, good, "k", &vec![b'a' + version; LARGE]);
        readers.push(rig.open(1_000));
        rig.send(readers[version as usize], b"get k\r\n");
    }
    for number in 0..40 {
        set(&mut rig, good, &format!("other{number}"), &vec![b'o'; 200_000]);
    }
    for (version, &reader) in (0..8u8).zip(&readers) {
        while !rig.peers[reader].ended && !rig.peers[reader].read.ends_with(b"END\r\n") {
            rig.read(reader, 100_000);
        }
        let expected = [block("k", &vec![b'a' + version; LARGE]), b"END\r\n".to_vec()].concat();
        assert!(expected.starts_with(&rig.peers[reader].read), "version {version} is mixed");
    }
    let stats = store.stats(NOW);
    assert!(stats.counters.reads_lost > 0, "the store is too large for this test");
    assert!(stats.connections.kept_bytes <= ENTRIES_BYTES, "{stats:?}");
    assert_eq!(stats.pinned_items, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn slow_readers_get_the_same_bytes_as_fast_ones(
        seed in any::<u64>(),
        sizes in prop::collection::vec(1usize..3_000, 1..20),
        reads in prop::collection::vec(1u32..40_000, 1..20),
    ) {
        let input = [stream(seed, 120, true), b"quit\r\n".to_vec()].concat();
        let whole = talk(&small_store(), NOW, &input).0;
        let store = Arc::new(small_store());
        let mut rig = Rig::new(KvProtocol::new(Arc::clone(&store), NOW));
        let number = rig.open(0);
        let (mut rest, mut turn) = (&input[..], 0);
        while !rig.peers[number].ended {
            let (piece, behind) = rest.split_at(sizes[turn % sizes.len()].min(rest.len()));
            rest = behind;
            if !piece.is_empty() {
                rig.send(number, piece);
            }
            rig.read(number, reads[turn % reads.len()]);
            turn += 1;
            prop_assert!(turn < 200_000, "the reply does not end");
        }
        prop_assert!(rig.peers[number].read == whole, "{} of {} bytes", rig.peers[number].read.len(), whole.len());
        prop_assert!(store.connection_memory().stats().kept_bytes <= ENTRIES_BYTES);
    }
}

/// Bytes of stored values that one turn may copy, beside what its last command copies: 256 commands' worth.
const TURN_COPIES_BYTES: u64 = 256 * 4_096;

/// Feeds `requests` turn by turn, and `look` at the store behind each. Returns the number of turns.
fn turns(store: &Store, requests: &[u8], out: &mut Vec<u8>, mut look: impl FnMut(u32)) -> u32 {
    let mut session = Session::new();
    let (mut rest, mut turns) = (requests, 0);
    while !rest.is_empty() {
        // What is not taken comes again in the next turn.
        let left = match session.feed(store, NOW, rest, out) {
            Flow::Yield { left } => left,
            flow => {
                assert_eq!(flow, Flow::Continue);
                0
            }
        };
        rest = &rest[rest.len() - left..];
        turns += 1;
        look(turns);
    }
    turns
}

/// `count` commands that copy or overwrite a stored value of `value_len` bytes copy a bounded part in each turn.
#[track_caller]
fn copies_are_bounded(value: &[u8], requests: &[u8], count: u64) {
    let store = Store::new(StoreConfig::default(), [3, 5]).expect("these limits are valid");
    let set = [format!("set k 0 0 {}\r\n", value.len()).as_bytes(), value, b"\r\n"].concat();
    let mut out = Vec::new();
    turns(&store, &set, &mut out, |_| {});
    let copied = || store.stats(NOW).counters.copied_bytes;
    let mut before = copied();
    let begin = before;
    let most = TURN_COPIES_BYTES + value.len() as u64 + 256;
    let turns = turns(&store, requests, &mut out, |turn| {
        let found = copied() - before;
        assert!(found <= most, "turn {turn} copied {found} bytes; at most {most}");
        before += found;
    });
    let all = copied() - begin;
    assert!(all >= count * value.len() as u64, "{all} bytes copied in {turns} turns");
}

#[test]
fn short_appends_to_a_long_value_copy_a_bounded_number_of_bytes_in_a_turn() {
    for value_len in [100_000, LARGE - 10_000] {
        let requests = b"append k 0 0 1 noreply\r\nx\r\nms k 1 MP\r\ny\r\n".repeat(128);
        copies_are_bounded(&vec![b'v'; value_len], &requests, 256);
    }
}

/// A number with spaces behind it, `len` bytes in all.
fn padded_number(number: &[u8], len: usize) -> Vec<u8> {
    [number, &vec![b' '; len - number.len()]].concat()
}

#[test]
fn arithmetic_on_a_long_value_writes_a_bounded_number_of_bytes_in_a_turn() {
    for value_len in [100_000, LARGE] {
        let requests =
            b"incr k 3 noreply\r\ndecr k 1 noreply\r\nma k q\r\nma k MD q\r\n".repeat(64);
        copies_are_bounded(&padded_number(b"1", value_len), &requests, 256);
    }
}

#[test]
fn a_number_in_a_long_value_is_padded_to_its_length() {
    let store = Store::new(StoreConfig::default(), [3, 5]).expect("these limits are valid");
    for value_len in [1, 2, 63, 64, 65, 16_000, 100_000, LARGE] {
        let value = padded_number(b"9", value_len);
        let head = [format!("set k 0 0 {value_len}\r\n").as_bytes(), &value, b"\r\n"].concat();
        let mut out = Vec::new();
        turns(
            &store,
            &[&head[..], b"incr k 91\r\ndecr k 93\r\nget k\r\n"].concat(),
            &mut out,
            |_| {},
        );
        let kept = padded_number(b"7", value_len.max(3));
        let expected = [&b"STORED\r\n100\r\n7\r\n"[..], &block("k", &kept), b"END\r\n"].concat();
        assert!(out == expected, "a value of {value_len} bytes");
    }
}

/// Items that one turn may take out of the store for a flush.
const TURN_PURGES: u64 = 256;

#[test]
fn many_flushes_take_a_bounded_number_of_items_out_in_a_turn() {
    const ITEMS: u64 = 20_000;
    let store = Store::new(StoreConfig::default(), [3, 5]).expect("these limits are valid");
    let mut out = Vec::new();
    for key in 0..ITEMS {
        turns(&store, format!("set {key} 0 0 1 noreply\r\nx\r\n").as_bytes(), &mut out, |_| {});
    }
    let items = || store.stats(NOW).counters.curr_items;
    assert_eq!(items(), ITEMS);
    let mut before = ITEMS;
    let requests = b"set k 0 0 1\r\nx\r\nflush_all\r\nget k 1\r\n".repeat(600);
    turns(&store, &requests, &mut out, |turn| {
        let purged = before.saturating_sub(items());
        assert!(purged <= TURN_PURGES, "turn {turn} took {purged} items out");
        before = items();
    });
    assert!(items() < 600, "{} items are left of {ITEMS}", items());
    assert!(out == b"STORED\r\nOK\r\nEND\r\n".repeat(600), "a flushed item was found");
    assert_eq!(store.stats(NOW).cmd_flush, 600);
}

#[test]
fn commands_that_visit_every_shard_end_the_turn() {
    let store = Store::new(StoreConfig::default(), [3, 5]).expect("these limits are valid");
    for command in [
        "stats",
        "stats items",
        "stats slabs",
        "stats settings",
        "stats reset",
        "flush_all noreply",
        "flush_all 100",
    ] {
        let requests = format!("{command}\r\n").repeat(10);
        assert_eq!(turns(&store, requests.as_bytes(), &mut Vec::new(), |_| {}), 10, "{command}");
    }
}

#[test]
fn what_is_kept_of_a_connection_that_is_reset_is_not_executed() {
    let (mut rig, store) = rig();
    let good = rig.open(1 << 20);
    // A turn ends behind two increments of this.
    set(&mut rig, good, "k", &padded_number(b"1", LARGE));
    let number = rig.open(1 << 20);
    let requests = b"incr k 1 noreply\r\n".repeat(5_000);
    rig.send_and_reset(number, &requests[..40 * SEGMENT_BYTES]);
    // One turn for each segment that came before the reset, and none behind it.
    let incremented = store.stats(NOW).class_totals().incr_hits;
    assert!((1..=2 * 40).contains(&incremented), "{incremented} increments");
    rig.rest(Duration::from_secs(1));
    assert_eq!(store.stats(NOW).class_totals().incr_hits, incremented);
    assert!(store.connection_memory().stats().kept_bytes <= ENTRIES_BYTES);
}
