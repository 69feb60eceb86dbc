//! Initial sequence numbers as a peer sees them (RFC 6528).

use crate::support::{Open, Peer, World, ms};

#[test]
fn differ_by_connection_and_grow_for_one() {
    let mut world = World::new();
    let numbers: Vec<u32> =
        (1..=50).map(|port| Peer::knock(&mut world, port, Open::default()).0.irs.0).collect();
    let mut gaps: Vec<u32> = numbers.windows(2).map(|pair| pair[1].wrapping_sub(pair[0])).collect();
    gaps.sort_unstable();
    gaps.dedup();
    assert_eq!(gaps.len(), 49, "one does not tell the next");
    assert!(gaps.iter().any(|gap| *gap > 1 << 30), "spread over the whole space");

    let mut world = World::new();
    let (first, _) = Peer::knock(&mut world, 9, Open::default());
    world.hear(&first.seg(1, 1).flags("R"));
    world.pass(ms(1_000));
    let (second, _) = Peer::knock(&mut world, 9, Open::default());
    assert_eq!(second.irs - first.irs, 250_000, "M ticks every 4 us");
}
