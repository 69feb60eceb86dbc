//! The checksum against the plain sum of 16-bit words, at every length, alignment and split.

use proptest::prelude::*;
use wire::checksum::{update_u16, update_u32};
use wire::{Sum, complete_checksum, copy_and_sum};

/// RFC 1071 §1, as it says: add 16-bit words, bring the carries back, complement.
fn reference(bytes: &[u8]) -> u16 {
    let mut sum: u64 = 0;
    for pair in bytes.chunks(2) {
        let low = pair.get(1).copied().unwrap_or(0);
        sum += u64::from(u16::from_be_bytes([pair[0], low]));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    !(sum as u16)
}

/// Bytes in which carries are frequent: random ones, and long runs of 0xff and 0x00.
fn payload(max_len: usize) -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 0..max_len),
        prop::collection::vec(
            prop_oneof![8 => Just(0xffu8), 1 => Just(0u8), 1 => any::<u8>()],
            0..max_len
        ),
    ]
}

#[test]
fn rfc_1071_example() {
    let bytes = [0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7];
    assert_eq!(Sum::of(&bytes).finish(), 0x220d);
}

#[test]
fn rfc_1624_example() {
    assert_eq!(update_u16(0xdd2f, 0x5555, 0x3285), 0x0000);
}

#[test]
fn every_length_and_alignment() {
    let buffer: Vec<u8> =
        (0..400u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8 | 0xe0).collect();
    for start in 0..9 {
        for len in 0..=buffer.len() - 9 {
            let bytes = &buffer[start..start + len];
            assert_eq!(Sum::of(bytes).finish(), reference(bytes), "{len} bytes at {start}");
        }
    }
}

#[test]
fn extremes_fold_right() {
    for len in [0, 1, 2, 7, 8, 15, 64, 65, 1460, 65_535] {
        let ones = vec![0xff; len];
        assert_eq!(Sum::of(&ones).finish(), reference(&ones), "{len} bytes of 0xff");
        let zeros = vec![0; len];
        assert_eq!(Sum::of(&zeros).finish(), 0xffff, "{len} bytes of zero");
    }
    assert_eq!(Sum::ZERO.finish(), Sum::default().finish());
    assert!(!Sum::ZERO.is_valid());
}

#[test]
#[should_panic(expected = "out of range")]
fn copy_needs_room() {
    copy_and_sum(&[1, 2, 3], &mut [0; 2]);
}

proptest! {
    #[test]
    fn sum_follows_the_reference(bytes in payload(3000), skip in 0usize..16) {
        let bytes = bytes.get(skip..).unwrap_or(&[]);
        prop_assert_eq!(Sum::of(bytes).finish(), reference(bytes));
    }

    #[test]
    fn copy_and_sum_is_copy_and_sum(
        src in payload(3000),
        from in 0usize..16,
        to in 0usize..16,
        room in 0usize..16,
    ) {
        let src = src.get(from..).unwrap_or(&[]);
        let mut dst = vec![0xa5; to + src.len() + room];
        let sum = copy_and_sum(src, &mut dst[to..]);
        prop_assert_eq!(sum.finish(), Sum::of(src).finish());
        prop_assert_eq!(&dst[to..to + src.len()], src);
        prop_assert!(dst[..to].iter().chain(&dst[to + src.len()..]).all(|byte| *byte == 0xa5));
    }

    #[test]
    fn pieces_add_up(bytes in payload(600), cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6)) {
        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(bytes.len() + 1)).collect();
        cuts.extend([0, bytes.len()]);
        cuts.sort_unstable();
        let sum = cuts.windows(2).fold(Sum::ZERO, |sum, cut| {
            sum.add_at(Sum::of(&bytes[cut[0]..cut[1]]), cut[0])
        });
        prop_assert_eq!(sum.finish(), reference(&bytes));
    }

    #[test]
    fn even_pieces_add_without_offset(words in prop::collection::vec(any::<u16>(), 0..64), last in payload(64)) {
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        let sum = Sum::of(&bytes).add(Sum::of(&last));
        bytes.extend(&last);
        prop_assert_eq!(sum.finish(), reference(&bytes));
    }

    #[test]
    fn fields_count_like_their_bytes(a: u16, b: u32, c: u16) {
        let bytes = [&a.to_be_bytes()[..], &b.to_be_bytes(), &c.to_be_bytes()].concat();
        let sum = Sum::ZERO.add_u16(a).add_u32(b).add_u16(c);
        prop_assert_eq!(sum.finish(), reference(&bytes));
    }

    #[test]
    fn stored_checksum_makes_the_sum_valid(words in prop::collection::vec(any::<u16>(), 1..64), bit in 0usize..16) {
        prop_assume!(words.iter().any(|word| *word != 0));
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_be_bytes()).collect();
        bytes.extend(Sum::of(&bytes).finish().to_be_bytes());
        prop_assert!(Sum::of(&bytes).is_valid());
        bytes[bit / 8] ^= 1 << (bit % 8);
        prop_assert!(!Sum::of(&bytes).is_valid(), "one flipped bit must show");
    }

    #[test]
    fn update_is_like_summing_again(
        words in prop::collection::vec(any::<u16>(), 3..32),
        place: prop::sample::Index,
        new: u16,
        new_wide: u32,
    ) {
        // A header is never all zero; without that, RFC 1624's update may yield the other zero.
        let mut words = words;
        words.push(1);
        let sum_of = |words: &[u16]| {
            reference(&words.iter().flat_map(|word| word.to_be_bytes()).collect::<Vec<u8>>())
        };
        let before = sum_of(&words);
        let place = place.index(words.len() - 2);
        let mut narrow = words.clone();
        let old = core::mem::replace(&mut narrow[place], new);
        prop_assert_eq!(update_u16(before, old, new), sum_of(&narrow));
        let old_wide = u32::from(words[place]) << 16 | u32::from(words[place + 1]);
        words[place] = (new_wide >> 16) as u16;
        words[place + 1] = new_wide as u16;
        prop_assert_eq!(update_u32(before, old_wide, new_wide), sum_of(&words));
    }
}

#[test]
fn a_partial_checksum_is_completed_where_its_field_lies_in_the_frame() {
    // A pseudo-header that sums to 0x1234, before a field at byte 2 of five.
    let mut frame = [9, 9, 0x01, 0x02, 0x12, 0x34, 0x05];
    complete_checksum(&mut frame, 2, 2);
    assert_eq!(frame, [9, 9, 0x01, 0x02, 0xe7, 0xc9, 0x05]);
    // What comes out as zero is stored as ones (RFC 768).
    let mut frame = [0xff, 0xff, 0, 0];
    complete_checksum(&mut frame, 0, 2);
    assert_eq!(frame, [0xff; 4]);
    for (start, offset) in [(0, 3), (3, 0), (4, 0), (5, 0)] {
        let mut frame = [1, 2, 3, 4];
        complete_checksum(&mut frame, start, offset);
        assert_eq!(frame, [1, 2, 3, 4], "{start} and {offset}");
    }
}
