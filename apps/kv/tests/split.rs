//! Wherever a byte stream is cut, the replies are the same bytes.

mod common;

use common::{Conversation, NOW, small_store, stream, talk};
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
    // The name comes too late for a line that is cut in front of it.
    let late = [b"version\r\n".to_vec(), b" ".repeat(2_049), b"get k\r\n".to_vec()].concat();
    for (input, ends_with) in
        [(multiget, "END\r\nVERSION"), (too_long, "VERSION"), (late, "VERSION")]
    {
        let whole = talk(&small_store(), NOW, &input).0;
        assert!(whole.starts_with(ends_with.as_bytes()), "{:?}", String::from_utf8_lossy(&whole));
        for cut in (1..input.len()).step_by(97) {
            assert!(talk_in_pieces(&input, &[cut]) == whole, "cut at {cut}");
        }
    }
}

/// Lines of more keys than are looked at before the first is answered.
#[test]
fn very_long_lines_end_alike_wherever_they_are_cut() {
    let line = |begin: &[u8], end: &[u8]| {
        let set = b"set k 0 0 1\r\nx\r\n".to_vec();
        [set, begin.to_vec(), b"n k ".repeat(20_000), end.to_vec(), b"\r\nversion\r\n".to_vec()]
            .concat()
    };
    let bad = "CLIENT_ERROR bad command line format\r\n";
    let long_key = [b"k".repeat(251), b" k".to_vec()].concat();
    let longer_key = b"k".repeat(3_000);
    for (input, ends_with) in [
        (line(b"get ", b""), "END\r\nVERSION 1."),
        (line(b" gets ", b"k  k "), "END\r\nVERSION 1."),
        (line(b"gat 100 ", b"k"), "END\r\nVERSION 1."),
        (line(b"gats 100 ", &long_key), bad),
        (line(b"get ", &longer_key), bad),
        (line(b"get ", b"k\0k k"), bad),
        (line(&[b"get ", &long_key[..], b" "].concat(), b""), bad),
        (line(&[b"get ", &b"n ".repeat(300)[..], b"k\0k "].concat(), b""), bad),
        (line(&[b"get".to_vec(), b" ".repeat(70_000)].concat(), b"k"), "END\r\nVERSION 1."),
    ] {
        let whole = talk(&small_store(), NOW, &input).0;
        let text = String::from_utf8_lossy(&whole);
        let tail = &text[text.len() - 60.min(text.len())..];
        assert!(tail.contains(ends_with), "{tail:?}");
        assert_eq!(ends_with == bad, text.ends_with(bad), "{tail:?}");
        for cuts in (1..input.len()).step_by(9_973).map(|cut| vec![cut, cut.max(130_000)]) {
            let cuts: Vec<usize> = cuts.into_iter().filter(|cut| *cut < input.len()).collect();
            assert!(talk_in_pieces(&input, &cuts) == whole, "cut at {cuts:?}");
        }
        let ends: Vec<usize> = (1..input.len()).rev().step_by(61).take(600).collect();
        let cuts: Vec<usize> = ends.into_iter().rev().collect();
        assert!(talk_in_pieces(&input, &cuts) == whole, "pieces of 61 B at the end");
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
