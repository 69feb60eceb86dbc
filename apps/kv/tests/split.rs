//! Wherever a byte stream is cut, the replies are the same bytes.

mod common;

use common::{NOW, small_store, stream, talk};
use kv::Conversation;
use proptest::prelude::*;

/// Feeds the pieces between `cuts` (in order) to one session.
fn talk_in_pieces(input: &[u8], cuts: &[usize]) -> Vec<u8> {
    let store = small_store();
    let mut session = Conversation::new();
    let mut out = Vec::new();
    let mut from = 0;
    for &to in cuts.iter().chain([&input.len()]) {
        let _ = session.feed(&store, NOW, &input[from..to], &mut out);
        from = to;
    }
    out
}

#[test]
fn every_single_cut_of_a_fixed_stream() {
    let mut input = stream(99, 40, false);
    input.extend_from_slice(
        b"set a 0 0 5\r\nhello\r\nms bWV0YQ== 3 b k Oq c\r\nabc\r\nms m 2 q\r\nxxy\r\nget a m\r\n\
          append a 0 0 3 noreply\r\nxyz\r\ngets a\r\ncas a 0 0 1 1\r\nz\r\nset a 0 0 3\r\nabXX\r\nget a\r\n",
    );
    let whole = talk_in_pieces(&input, &[]);
    assert!(whole.ends_with(b"END\r\n") && whole.len() > 1000, "{} bytes", whole.len());
    for cut in 1..input.len() {
        assert!(talk_in_pieces(&input, &[cut]) == whole, "cut at {cut}");
    }
    let bytewise: Vec<usize> = (1..input.len()).collect();
    assert!(talk_in_pieces(&input, &bytewise) == whole, "byte by byte");
}

#[test]
fn long_lines_end_alike_wherever_they_are_cut() {
    let multiget = [b"get ".to_vec(), b"k1 ".repeat(2000), b"\r\nversion\r\n".to_vec()].concat();
    let too_long =
        [b"version\r\n".to_vec(), b"x".repeat(3000), b"\r\nversion\r\n".to_vec()].concat();
    let much_too_long =
        [b"gets ".to_vec(), b"k ".repeat(40_000), b"\r\nversion\r\n".to_vec()].concat();
    for (input, ends_with_version) in [(multiget, true), (too_long, true), (much_too_long, false)] {
        let whole = talk(&small_store(), NOW, &input).0;
        assert_eq!(whole.starts_with(b"VERSION") || whole.starts_with(b"END"), ends_with_version);
        for cut in (1..input.len()).step_by(97) {
            assert!(talk_in_pieces(&input, &[cut]) == whole, "cut at {cut}");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn random_streams_cut_at_random_points(
        seed in any::<u64>(),
        points in prop::collection::vec(any::<prop::sample::Index>(), 0..60),
    ) {
        let input = stream(seed, 80, true);
        let mut cuts: Vec<usize> = points.iter().map(|point| point.index(input.len())).collect();
        cuts.sort_unstable();
        prop_assert!(talk_in_pieces(&input, &cuts) == talk_in_pieces(&input, &[]));
    }
}
