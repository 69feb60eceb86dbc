//! Segments that are longer than a chunk of packet memory, where the device sends frames of several.

use clock::Duration;
use stack::StackConfig;
use wire::TcpFlags;

use crate::support::{IP_LEN, Open, Peer, Seg, World, config, host, ms, too_big_frame};

/// Bytes of a segment with the most payload, without options.
const MSS: u32 = 8_960;
/// Bytes of the application's buffers: equal parts of a segment with a timestamp.
const PART: u32 = 1_789;
/// Bytes of a segment of five of them.
const LONG: u32 = 5 * PART;
const RTT: Duration = ms(10);

fn jumbo() -> StackConfig {
    let mut config = config();
    config.mtu_bytes = MSS as u16 + 20 + IP_LEN as u16;
    config.frame_chunks = 16;
    config
}

fn open() -> Open {
    Open { mss: Some(MSS as u16), window_scale: Some(4), ..Open::default() }
}

/// A connection whose first segments have been acknowledged, so that its window is larger than what a test sends, and where
/// its stream is.
fn opened(world: &mut World, open: Open) -> (Peer, u32) {
    let (peer, _) = Peer::knock(world, 5, open);
    world.pass(RTT);
    world.hear(&peer.seg(1, 1));
    let mut at = 1;
    for _ in 0..4 {
        world.send(LONG as usize);
        at += LONG;
        world.pass(RTT);
        world.hear(&peer.seg(1, at));
    }
    world.segments();
    world.told();
    (peer, at)
}

fn sizes(segments: &[Seg]) -> Vec<u32> {
    segments.iter().map(|seg| seg.payload.len() as u32).collect()
}

/// Each segment is checked, checksum and bytes, as it is taken from the NIC.
#[track_caller]
fn expect(world: &mut World, peer: &Peer, expected: &[(u32, u32)]) -> Vec<Seg> {
    let texts: Vec<String> =
        expected.iter().map(|(at, len)| format!(". {at}:{}({len}) ack 1", at + len)).collect();
    world.expect(peer, &texts.iter().map(String::as_str).collect::<Vec<_>>())
}

#[test]
fn a_message_leaves_in_segments_of_several_chunks_without_a_copy() {
    for timestamp in [None, Some(7)] {
        let mut world = World::sized(jumbo(), 4096, 1024);
        let peer = Peer::establish(&mut world, 5, Open { timestamp, ..open() });
        world.send(2 * LONG as usize);
        let segments = expect(&mut world, &peer, &[(1, LONG), (1 + LONG, LONG)]);
        let pushed: Vec<_> = segments.iter().map(|seg| seg.flags.contains(TcpFlags::PSH)).collect();
        assert_eq!(pushed, [false, true], "at the message's end");
        let stats = world.stats();
        assert_eq!((stats.tx_payload_copies, stats.tcp_long_segments_out), (0, 2));
        // Acknowledged, they are not sent again.
        world.hear(&peer.seg(1, 1 + 2 * LONG));
        world.pass(ms(3_000));
        world.silent();
    }
}

#[test]
fn a_device_of_one_chunk_a_frame_gets_no_other() {
    let mut config = jumbo();
    (config.frame_chunks, config.mtu_bytes) = (1, 1_714);
    let mut world = World::sized(config, 4096, 1024);
    let peer = Peer::establish(&mut world, 5, open());
    world.send(5_000);
    assert!(world.segments().iter().all(|seg| seg.payload.len() <= 1_674));
    assert_eq!(world.stats().tcp_long_segments_out, 0);
    world.hear(&peer.seg(1, 5_001));
}

#[test]
fn the_peer_s_segments_bound_ours() {
    let mut world = World::sized(jumbo(), 4096, 1024);
    let peer = Peer::establish(&mut world, 5, Open { mss: Some(4_000), ..open() });
    world.send(8_000);
    let segments = world.segments();
    // Two parts each, as the third would have to be cut: that costs a copy, and is done.
    assert_eq!(sizes(&segments), [4_000, 4_000]);
    segments.iter().for_each(|seg| assert!(!peer.text(seg).is_empty()));
    let mut world = World::sized(jumbo(), 4096, 1024);
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(3_000);
    let segments = world.segments();
    assert_eq!(sizes(&segments), [1_460, 1_460, 80]);
    segments.iter().for_each(|seg| assert!(!peer.text(seg).is_empty()));
    assert_eq!(world.stats().tcp_long_segments_out, 0);
}

#[test]
fn small_messages_go_as_they_did_between_long_ones() {
    let mut world = World::sized(jumbo(), 4096, 1024);
    let (peer, at) = opened(&mut world, open());
    world.send(100);
    expect(&mut world, &peer, &[(at, 100)]);
    world.send(LONG as usize);
    expect(&mut world, &peer, &[(at + 100, LONG)]);
    world.send(700);
    expect(&mut world, &peer, &[(at + 100 + LONG, 700)]);
    assert_eq!((world.stats().tcp_long_segments_out, world.stats().tx_payload_copies), (5, 0));
    world.hear(&peer.seg(1, at + 800 + LONG));
}

#[test]
fn small_messages_that_wait_fill_the_chunks_of_one_segment() {
    let mut world = World::sized(jumbo(), 4096, 1024);
    let mut peer = Peer::establish(&mut world, 5, open());
    peer.window = 0;
    world.hear(&peer.seg(1, 1));
    // Kept back: it has been promised.
    (0..34).for_each(|_| world.send(500));
    peer.window = 2_000;
    world.segments();
    world.hear(&peer.seg(1, 1));
    let mut total = 0;
    while total < 17_000 {
        world.pass(ms(10));
        for seg in world.segments() {
            let seq = (seg.seq - peer.irs) as u32;
            assert!(!peer.text(&seg).is_empty());
            total = total.max(seq - 1 + seg.payload.len() as u32);
        }
        world.hear(&peer.seg(1, 1 + total));
    }
    let stats = world.stats();
    assert!(stats.tcp_long_segments_out >= 1, "{stats:?}");
}

#[test]
fn a_lost_segment_of_several_chunks_is_sent_again_as_one() {
    for (sack, holds) in [(true, false), (false, false), (true, true)] {
        let mut world = World::sized(jumbo(), 4096, 1024);
        world.stays = holds;
        let (peer, at) = opened(&mut world, Open { sack, ..open() });
        world.nic_holds = holds;
        world.send(5 * LONG as usize);
        let ends: Vec<u32> = (0..=5).map(|count| at + count * LONG).collect();
        expect(&mut world, &peer, &ends[..5].map_to(LONG));
        world.pass(RTT);
        // The first one is lost; while the device still reads it, a copy is sent.
        for end in &ends[2..] {
            world.hear(&if sack { peer.sack(1, at, &[(ends[1], *end)]) } else { peer.seg(1, at) });
        }
        expect(&mut world, &peer, &[(at, LONG)]);
        assert_eq!(world.stats().tx_payload_copies, u64::from(holds));
        world.hear(&peer.seg(1, ends[5]));
        world.pass(ms(3_000));
        world.silent();
    }
}

/// Starts of segments with their lengths.
trait MapTo {
    fn map_to(&self, len: u32) -> Vec<(u32, u32)>;
}

impl MapTo for [u32] {
    fn map_to(&self, len: u32) -> Vec<(u32, u32)> {
        self.iter().map(|&at| (at, len)).collect()
    }
}

#[test]
fn what_is_left_of_a_segment_that_the_peer_acknowledged_in_part_is_sent_again() {
    // In the first chunk, at its end, in a later one.
    for acked in [1, 1_000, PART, PART + 1, 4 * PART + 3] {
        let mut world = World::sized(jumbo(), 4096, 1024);
        let (peer, at) = opened(&mut world, open());
        world.send(LONG as usize);
        expect(&mut world, &peer, &[(at, LONG)]);
        world.hear(&peer.seg(1, at + acked));
        world.pass(ms(400));
        let again = world.segments();
        assert!(!again.is_empty(), "{acked}");
        again.iter().for_each(|seg| assert!(!peer.text(seg).is_empty()));
        assert_eq!(sizes(&again)[0], LONG - acked);
        world.hear(&peer.seg(1, at + LONG));
    }
}

/// A device whose queue has less room than a frame has chunks gets the frame later, and never a part of one.
#[test]
fn a_frame_waits_for_room_for_all_of_its_chunks() {
    let mut world = World::sized(jumbo(), 4096, 7);
    world.stays = true;
    let (peer, at) = opened(&mut world, open());
    world.nic_takes = false;
    world.send(3 * LONG as usize);
    assert_eq!(world.stack.frames().len(), 5, "one frame");
    world.nic_takes = true;
    world.settle();
    expect(&mut world, &peer, &[at, at + LONG, at + 2 * LONG].map_to(LONG));
    world.hear(&peer.seg(1, at + 3 * LONG));
    // Where it has never so much room, the segments are shorter.
    let mut world = World::sized(jumbo(), 4096, 3);
    let peer = Peer::establish(&mut world, 5, open());
    world.send(LONG as usize);
    let segments = world.segments();
    assert_eq!(sizes(&segments), [3 * PART, 2 * PART]);
    segments.iter().for_each(|seg| assert!(!peer.text(seg).is_empty()));
}

#[test]
fn a_path_that_carries_less_has_segments_split_between_chunks() {
    let mut world = World::sized(jumbo(), 4096, 1024);
    let (peer, at) = opened(&mut world, Open { sack: true, ..open() });
    world.send(2 * LONG as usize);
    let sent = expect(&mut world, &peer, &[at, at + LONG].map_to(LONG));
    let quoted = &sent[0].frame()[14..14 + IP_LEN + 8];
    world.hear_frames(&[too_big_frame(host(99), 4_000, quoted)]);
    world.pass(ms(600));
    let copies = world.stats().tx_payload_copies;
    assert_eq!(copies, 0);
    let (mut total, mut largest) = (at, 0);
    for _ in 0..20 {
        for seg in world.segments() {
            assert!(!peer.text(&seg).is_empty());
            let seq = (seg.seq - peer.irs) as u32;
            let len = seg.payload.len() as u32;
            largest = largest.max(len);
            if seq <= total {
                total = total.max(seq + len);
            }
        }
        world.hear(&peer.seg(1, total));
        world.pass(ms(10));
    }
    assert_eq!(total, at + 2 * LONG);
    assert!((2 * PART..=4_000 - 20 - IP_LEN as u32).contains(&largest), "{largest}");
    assert_eq!(world.stats().tcp_path_mtu_lowered, 1);
}

#[test]
fn a_long_segment_for_which_no_link_address_is_known_is_sent_again() {
    let mut world = World::sized(jumbo(), 4096, 1024);
    world.stays = true;
    let (peer, at) = opened(&mut world, open());
    // So long that the neighbour is forgotten.
    world.auto_arp = false;
    world.pass(ms(3_600_000));
    world.frames_out();
    world.send(LONG as usize);
    let before = world.stats().unresolved_drops;
    world.auto_arp = true;
    world.frames_out();
    world.hear_frames(&[World::neighbor_answer(peer.here.addr)]);
    world.pass(ms(1_500));
    assert_eq!(before, 1, "it was not kept");
    let again = world.segments();
    assert_eq!(sizes(&again).first(), Some(&LONG));
    assert_eq!((again[0].seq - peer.irs) as u32, at);
    world.hear(&peer.seg(1, at + LONG));
}

/// It had been filled up before there was no room towards the device, and the peer's window shrank.
#[test]
fn a_segment_that_waits_is_split_where_the_window_has_room_for_a_part() {
    let mut world = World::sized(jumbo(), 4096, 7);
    world.stays = true;
    let (mut peer, at) = opened(&mut world, open());
    world.nic_takes = false;
    world.send(3 * LONG as usize);
    assert_eq!(world.stack.frames().len(), 5, "one frame");
    // Of 16 bytes each.
    peer.window = 125;
    world.hear(&peer.seg(1, at + LONG));
    world.nic_takes = true;
    world.settle();
    expect(&mut world, &peer, &[(at, LONG), (at + LONG, PART)]);
    peer.window = 65_535;
    world.hear(&peer.seg(1, at + LONG + PART));
    let rest = world.segments();
    rest.iter().for_each(|seg| assert!(!peer.text(seg).is_empty()));
    assert_eq!(sizes(&rest).iter().sum::<u32>(), 2 * LONG - PART);
    world.hear(&peer.seg(1, at + 3 * LONG));
    assert_eq!(world.stats().tx_payload_copies, 0);
}
