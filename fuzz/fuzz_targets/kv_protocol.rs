//! The memcached protocol over any bytes, cut anywhere: nothing panics, and the cuts never change
//! the replies. The first bytes of the input say where it is cut.
#![no_main]

#[path = "../../apps/kv/tests/common/conversation.rs"]
#[expect(dead_code, reason = "the tests use more of it")]
mod conversation;

use conversation::Conversation;
use kv::{Flow, Store, StoreConfig, WallTime};

/// Bytes of the input that give the distances of cuts.
const CUTS: usize = 8;

/// The replies to `input`, which comes in pieces of the given lengths in turn.
fn talk(input: &[u8], lengths: &[usize]) -> (Vec<u8>, Flow) {
    let now = WallTime::from_unix_s(1_800_000_000);
    let config = StoreConfig {
        memory_limit_bytes: 8 << 20,
        item_size_max_bytes: 64 << 10,
        shards: 2,
        ..StoreConfig::default()
    };
    let store = Store::new(config, [1, 2]).expect("these settings are possible");
    let mut session = Conversation::new();
    let (mut replies, mut verdict) = (Vec::new(), Flow::Continue);
    let mut rest = input;
    for &length in lengths.iter().cycle() {
        let (piece, later) = rest.split_at(length.clamp(1, rest.len().max(1)).min(rest.len()));
        verdict = session.feed(&store, now, piece, &mut replies);
        rest = later;
        if rest.is_empty() {
            break;
        }
    }
    session.close(&store);
    (replies, verdict)
}

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let Some((cuts, input)) = bytes.split_at_checked(CUTS) else { return };
    let lengths: Vec<usize> = cuts.iter().map(|&cut| 1 + cut as usize).collect();
    let whole = talk(input, &[input.len().max(1)]);
    let pieces = talk(input, &lengths);
    // The counters of `stats` say how often the connection was read from.
    if !input.windows(5).any(|word| word.eq_ignore_ascii_case(b"stats")) {
        assert_eq!(whole, pieces);
    }
});
