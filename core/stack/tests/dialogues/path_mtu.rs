//! Path MTU discovery (RFC 1191, 4821, 5927 §7): what a message about a segment that was too big does, what it does not, and
//! what happens where none comes.

use proptest::prelude::*;
use stack::Away;
use wire::{Address, SeqNumber};

use crate::support::{IP_LEN, Open, Peer, Seg, Told, World, host, ms, ping_frame, too_big_frame};

const ROUTER: Address = host(99);
const MSS: usize = 1_460;
const RTT: u64 = 10;

/// A router's message about a segment, with an MTU of IPv4: over IPv6 what carries as many bytes.
fn message(about: &Seg, mtu: u16) -> Vec<u8> {
    let mtu = if mtu == 0 { 0 } else { mtu.saturating_add(IP_LEN as u16 - 20) };
    too_big_frame(ROUTER, mtu, &about.frame()[14..14 + IP_LEN + 8])
}

/// A connection with a round trip of 10 ms.
fn opened(world: &mut World, open: Open) -> Peer {
    let (peer, _) = Peer::knock(world, 5, open);
    world.pass(ms(RTT));
    world.hear(&peer.seg(1, 1));
    world.told();
    peer
}

fn sizes(segments: &[Seg]) -> Vec<usize> {
    segments.iter().map(|segment| segment.payload.len()).collect()
}

/// The far end behind a path that drops what has more than `carries` payload bytes.
struct Far {
    peer: Peer,
    carries: usize,
    /// Whether its router says so.
    says: bool,
    next: u32,
    /// What came ahead of a gap.
    ahead: Vec<(u32, u32)>,
    window: u32,
    dropped: usize,
    largest: usize,
    /// Of the segments of a round those that are lost, one bit each.
    lost: u32,
}

impl Far {
    fn new(world: &mut World, open: Open, carries: usize) -> Self {
        let (peer, _) = Peer::knock(world, 5, open);
        world.pass(ms(RTT));
        world.hear(&peer.seg(1, 1));
        let [Told::Knock { window, .. }] = world.told()[..] else { panic!("one knocks") };
        let ahead = Vec::new();
        Self { peer, carries, says: false, next: 1, ahead, window, dropped: 0, largest: 0, lost: 0 }
    }

    /// One segment arrives; answers the acknowledgment.
    fn take(&mut self, segment: &Seg) -> Seg {
        let seq = (segment.seq - self.peer.irs) as u32;
        let end = seq + segment.payload.len() as u32;
        self.peer.text(segment);
        self.largest = self.largest.max(segment.payload.len());
        self.ahead.retain(|&(left, right)| left < seq || right > end);
        self.ahead.insert(0, (seq, end));
        while let Some(at) = self.ahead.iter().position(|block| block.0 <= self.next) {
            self.next = self.next.max(self.ahead.remove(at).1);
        }
        let blocks = if self.peer.open.sack { &self.ahead[..self.ahead.len().min(3)] } else { &[] };
        let mut ack = self.peer.seg(1, self.next);
        if let (Some(stamp), Some(ours)) = (&mut ack.options.timestamp, segment.options.timestamp) {
            (stamp.value, stamp.echo) = (ours.value, ours.value);
        }
        let irs = self.peer.irs;
        ack.options.sack_blocks = blocks.iter().map(|&(l, r)| (irs + l, irs + r)).collect();
        ack
    }

    /// A round trip: what was sent arrives, or is dropped.
    fn round(&mut self, world: &mut World) {
        let sent = world.segments();
        world.pass(ms(RTT));
        for segment in sent {
            self.lost = self.lost.rotate_right(1);
            if self.lost >> 31 == 1 {
                continue;
            }
            let frame = if segment.payload.len() > self.carries {
                self.dropped += 1;
                if !self.says {
                    continue;
                }
                message(&segment, self.carries as u16 + 40)
            } else {
                self.take(&segment).frame()
            };
            world.hear_frames(&[frame]);
        }
        for told in world.told() {
            match told {
                Told::Sent { window, .. } => self.window = window,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Sends so many bytes. Answers the round trips that it took.
    fn transfer(&mut self, world: &mut World, bytes: usize) -> usize {
        let end = self.next + bytes as u32;
        let mut left = bytes;
        for round in 1..2_000 {
            let now = left.min(self.window as usize).min(60_000);
            if now > 0 {
                world.send(now);
                (left, self.window) = (left - now, self.window - now as u32);
            }
            self.round(world);
            if self.next == end {
                return round;
            }
        }
        panic!("no end: {left} bytes left, {} of {end} arrived", self.next)
    }
}

fn sack() -> Open {
    Open { sack: true, ..Open::default() }
}

/// RFC 1191 §4: the segments go out again in parts that the next hop takes, once they are not acknowledged in time; at
/// once, and as many as the window had room for before.
#[test]
fn what_a_router_found_too_big_is_sent_again_in_parts() {
    for open in [sack(), Open::default()] {
        let mut world = World::new();
        let peer = opened(&mut world, open);
        world.send(6 * MSS);
        let sent = world.segments();
        assert_eq!(sizes(&sent), [MSS; 6]);
        world.hear_frames(&[message(&sent[0], 1_400)]);
        world.silent();
        world.pass(ms(2 * RTT - 1));
        world.silent();
        world.pass(ms(2));
        let parts = world.segments();
        assert_eq!(sizes(&parts), [MSS / 2; 12]);
        parts.iter().for_each(|part| _ = peer.text(part));
        assert_eq!((world.stats().tcp_timeouts, world.stats().tcp_path_mtu_lowered), (0, 1));
        world.pass(ms(RTT));
        world.hear(&peer.seg(1, 1 + 6 * MSS as u32));
        world.told();
        // Half of a window would be five segments.
        world.send(9 * MSS);
        let sizes = sizes(&world.segments());
        assert_eq!(sizes.iter().sum::<usize>(), 9 * MSS);
        assert!(sizes[..9].iter().all(|&size| size == 1_360), "{sizes:?}");
    }
}

/// RFC 5927 §7: a message must quote the begin of a segment that is in flight, and ask for less than it has.
#[test]
fn forged_messages_change_nothing() {
    let mut world = World::new();
    let peer = opened(&mut world, sack());
    world.send(4 * MSS);
    let sent = world.segments();
    world.hear(&peer.seg(1, 1 + MSS as u32));
    let at = |seq: SeqNumber| Seg { seq, ..sent[1].clone() };
    let mut other_port = sent[1].clone();
    other_port.dst.port += 1;
    let mut other_host = sent[1].clone();
    other_host.src.addr = ROUTER;
    let una = sent[1].seq;
    let forged = [
        message(&sent[0], 600),
        message(&at(una - 1), 600),
        message(&at(una + 1), 600),
        message(&at(una + 3 * MSS as u32), 600),
        message(&at(una + 4_000_000), 600),
        message(&other_port, 600),
        message(&other_host, 600),
        message(&sent[1], 1_500),
        message(&sent[1], 9_000),
        message(&sent[1], u16::MAX),
    ];
    world.hear_frames(&forged);
    // A tail loss probe, at the most.
    world.pass(ms(15 * RTT));
    assert!(sizes(&world.segments()).iter().all(|&size| size == MSS));
    world.hear(&peer.seg(1, 1 + 4 * MSS as u32));
    world.send(2 * MSS);
    assert_eq!(sizes(&world.segments()), [MSS; 2]);
    assert_eq!((world.stats().tcp_path_mtu_lowered, world.stats().icmp_errors_in), (0, 10));
}

/// Where the time-out comes first, it is no sign of congestion either: slow start goes on.
#[test]
fn a_time_out_after_a_message_is_no_congestion() {
    let mut world = World::new();
    let peer = opened(&mut world, Open::default());
    world.send(6 * MSS);
    let sent = world.segments();
    world.pass(ms(195));
    world.hear_frames(&[message(&sent[0], 1_400)]);
    world.pass(ms(15));
    assert_eq!(sizes(&world.segments()), [MSS / 2; 12]);
    assert_eq!(world.stats().tcp_timeouts, 1);
    world.hear(&peer.seg(1, 1 + 6 * MSS as u32));
    world.send(9 * MSS);
    world.segments();
    world.told();
    world.hear(&peer.seg(1, 1 + 15 * MSS as u32));
    let [Told::Sent { window, .. }] = world.told()[..] else { panic!("one acknowledgment") };
    assert!(window > 20_000, "{window}");
}

/// A message waits: what is acknowledged meanwhile, if only in part, was not too big.
#[test]
fn a_message_waits_for_a_round_trip() {
    let mut world = World::new();
    let peer = opened(&mut world, sack());
    world.send(4 * MSS);
    let sent = world.segments();
    world.pass(ms(RTT));
    world.hear_frames(&[message(&sent[3], 600)]);
    world.hear(&peer.seg(1, 1 + MSS as u32));
    world.hear(&peer.seg(1, 1 + 3 * MSS as u32));
    world.hear(&peer.seg(1, 2 + 3 * MSS as u32));
    world.pass(ms(5 * RTT));
    world.hear(&peer.seg(1, 1 + 4 * MSS as u32));
    assert_eq!(world.stats().tcp_path_mtu_lowered, 0);
}

/// The device leaves a message where its sender's address decides: it goes on to the core of the connection.
#[test]
fn messages_go_to_the_core_of_the_connection() {
    let mut world = World::new();
    world.stays = true;
    let peer = opened(&mut world, sack());
    world.send(MSS);
    let sent = world.segments();
    let away = Away { home: 0, group: world.handle().group() };
    assert_eq!(world.misdirect(&message(&sent[0], 1_000)), [away]);
    // What is no message about a segment of ours is counted where it is.
    let mut foreign = sent[0].clone();
    foreign.src.addr = ROUTER;
    let echo = ping_frame(ROUTER, &[]);
    assert_eq!(world.misdirect(&message(&foreign, 1_000)), []);
    assert_eq!(world.misdirect(&echo), []);
    world.hear(&peer.seg(1, 1 + MSS as u32));
}

/// A flood of messages to the peers of one class is not looked at.
#[test]
fn messages_have_a_budget() {
    let mut world = World::with(|config| config.answers_per_second = 5);
    world.stays = true;
    let peer = opened(&mut world, sack());
    world.send(MSS);
    let sent = world.segments();
    let forged = Seg { seq: sent[0].seq + 1, ..sent[0].clone() };
    world.hear_frames(&vec![message(&forged, 1_000); 5]);
    world.hear_frames(&[message(&sent[0], 1_000)]);
    world.pass(ms(5 * RTT));
    assert_eq!((world.stats().tcp_path_mtu_lowered, world.stats().answers_limited), (0, 1));
    world.hear(&peer.seg(1, 1 + MSS as u32));
}

/// A segment that arrives was not too big, and nor was one if a larger one that was sent later has arrived.
#[test]
fn a_message_is_refuted_by_what_arrives() {
    let mut world = World::new();
    let peer = opened(&mut world, sack());
    world.send(4 * MSS);
    let sent = world.segments();
    world.hear_frames(&[message(&sent[0], 600)]);
    world.pass(ms(RTT));
    world.hear(&peer.seg(1, 1 + 4 * MSS as u32));
    world.pass(ms(5 * RTT));
    world.send(4 * MSS);
    let sent = world.segments();
    assert_eq!(sizes(&sent), [MSS; 4]);
    world.hear_frames(&[message(&sent[0], 600)]);
    world.pass(ms(RTT));
    let una = 1 + 4 * MSS as u32;
    world.hear(&peer.sack(1, una, &[(una + MSS as u32, una + 4 * MSS as u32)]));
    assert_eq!(sizes(&world.segments()), [MSS], "a fast retransmission, of all of it");
    world.pass(ms(RTT));
    world.hear(&peer.seg(1, una + 4 * MSS as u32));
    let stats = world.stats();
    assert_eq!((stats.tcp_path_mtu_lowered, stats.tcp_fast_retransmits), (0, 1));
}

/// RFC 1191 §5 and §7: an MTU of zero is that of a router that does not know better. None is below the floor; over IPv6 there
/// are no such messages (RFC 8201 §4), the floor is 1,280 bytes.
#[test]
fn sizes_follow_the_plateaus_down_to_the_floor() {
    let floor = if crate::V6 { 1_220 } else { 512 };
    let sizes_v4 = [(0, 1_452), (1_006, 966), (552, 512), (551, 512), (68, 512), (1, 512)];
    let sizes_v6 = [(1_400, 1_360), (1_261, 1_221), (1_260, 1_220)];
    for &(mtu, expected) in if crate::V6 { &sizes_v6[..] } else { &sizes_v4 } {
        let mut world = World::new();
        let peer = opened(&mut world, sack());
        world.send(MSS);
        let sent = world.segments();
        world.hear_frames(&[message(&sent[0], mtu)]);
        world.pass(ms(3 * RTT));
        let parts = MSS.div_ceil(expected);
        assert_eq!(sizes(&world.segments())[0], MSS.div_ceil(parts), "{mtu}");
        world.hear(&peer.seg(1, 1 + MSS as u32));
        world.told();
        world.send(MSS);
        let sent = world.segments();
        assert_eq!(sent[0].payload.len(), expected, "{mtu}");
        // What has the least size is never too big.
        if expected == floor {
            world.hear_frames(&[message(&sent[0], 0), message(&sent[0], 100)]);
            world.pass(ms(3 * RTT));
        }
        world.hear(&peer.seg(1, 1 + 2 * MSS as u32));
        assert_eq!(world.stats().tcp_path_mtu_lowered, 1);
    }
}

/// With timestamps the size is less by the option (RFC 9293 §3.7.1).
#[test]
fn options_are_subtracted() {
    let mut world = World::new();
    let peer = opened(&mut world, Open { timestamp: Some(7), ..sack() });
    world.send(MSS - 12);
    let sent = world.segments();
    world.hear_frames(&[message(&sent[0], 1_300)]);
    world.pass(ms(3 * RTT));
    assert_eq!(sizes(&world.segments()), [724; 2]);
    world.hear(&peer.seg(1, 1 + MSS as u32 - 12));
    world.told();
    world.send(MSS);
    assert_eq!(sizes(&world.segments()), [1_248, MSS - 1_248]);
}

/// A message comes while holes are open: what the peer has is not sent again, and what it lacks goes out in parts.
#[test]
fn holes_are_filled_with_parts() {
    let mut world = World::new();
    let peer = opened(&mut world, sack());
    world.send(10 * MSS);
    let sent = world.segments();
    let at = |number: u32| 1 + number * MSS as u32;
    world.pass(ms(RTT));
    // The third and the fifth are lost; from the eighth on the path carries less.
    world.hear(&peer.sack(1, at(2), &[(at(3), at(4)), (at(5), at(7))]));
    let again = world.segments();
    assert_eq!(sizes(&again), [MSS; 2]);
    world.hear_frames(&[message(&sent[7], 1_300)]);
    world.pass(ms(2 * RTT));
    world.pass(ms(1));
    let parts: Vec<_> = world.segments().iter().map(|part| peer.text(part)).collect();
    let expected: Vec<_> = [2, 4, 7, 8, 9]
        .into_iter()
        .flat_map(|number| [at(number), at(number) + 730])
        .map(|seq| format!(". {seq}:{}(730) ack 1", seq + 730))
        .collect();
    assert_eq!(parts, expected);
    world.hear(&peer.sack(1, at(4) + 730, &[(at(5), at(8))]));
    world.hear(&peer.seg(1, at(10)));
    assert_eq!(world.stats().tcp_timeouts, 0);
}

/// Where nothing is said, the third time-out in a row lowers the size, and then larger ones are tried with what is sent,
/// until the answer is near enough.
#[test]
fn a_black_hole_is_found_and_measured() {
    for open in [sack(), Open::default(), Open { timestamp: Some(7), ..sack() }] {
        // Over IPv6 every path carries packets of 1,280 bytes.
        for carries in if crate::V6 { [1_300, 1_210, 1_420] } else { [1_200, 700, 1_420] } {
            let mut world = World::new();
            let mut far = Far::new(&mut world, open, carries);
            far.transfer(&mut world, 10 * MSS);
            let timeouts = world.stats().tcp_timeouts;
            assert!((3..=4).contains(&timeouts), "{timeouts}");
            far.transfer(&mut world, 2_000_000);
            let case = format!("{open:?}, {carries}: {} of {} dropped", far.largest, far.dropped);
            assert!(far.largest + 32 >= carries, "{case}");
            assert_eq!(world.stats().tcp_timeouts, timeouts, "probes cost none: {case}");
            assert_eq!(
                world.stats().tcp_fast_retransmits,
                0,
                "a lost probe is no congestion: {case}"
            );
            // Nothing more is tried for ten minutes, then all of it.
            let dropped = far.dropped;
            far.transfer(&mut world, 1_000_000);
            assert_eq!(far.dropped, dropped, "{case}");
            world.pass(ms(600_000));
            // Finds the link address again.
            far.transfer(&mut world, 100);
            far.carries = 1_500;
            far.transfer(&mut world, 200_000);
            assert_eq!(far.largest, if open.timestamp.is_some() { 1_448 } else { 1_460 }, "{case}");
        }
    }
}

/// RFC 1191 §6.3: ten minutes after a message the full size is tried again. Where it is still too big its router says so,
/// and nothing but the probe is sent again.
#[test]
fn after_ten_minutes_the_full_size_is_tried() {
    for open in [sack(), Open::default()] {
        try_again_after_ten_minutes(open);
    }
}

fn try_again_after_ten_minutes(open: Open) {
    let mut world = World::new();
    let mut far = Far::new(&mut world, open, 1_360);
    far.says = true;
    far.transfer(&mut world, 300_000);
    let stats = world.stats();
    assert_eq!((stats.tcp_timeouts, far.largest, stats.tcp_path_mtu_probes), (0, 1_360, 0));
    for tries in 1..=3 {
        world.pass(ms(600_000));
        let (dropped, fast) = (far.dropped, world.stats().tcp_fast_retransmits);
        far.transfer(&mut world, 300_000);
        assert_eq!((far.dropped, far.largest), (dropped + 1, 1_360));
        let stats = world.stats();
        assert_eq!((stats.tcp_path_mtu_probes, stats.tcp_fast_retransmits), (tries, fast));
    }
    world.pass(ms(600_000));
    far.carries = MSS;
    far.transfer(&mut world, 300_000);
    assert_eq!(far.largest, MSS);
    assert_eq!(world.stats().tcp_timeouts, 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    /// Whatever the path carries, loses and says, all bytes arrive, each where it belongs.
    #[test]
    fn all_bytes_arrive(
        (sack, stamps) in any::<(bool, bool)>(),
        rounds in prop::collection::vec(
            (500..1_500usize, any::<bool>(), any::<u32>(), any::<u32>(), 0..40_000usize, 0..300u64), 1..30,
        ),
    ) {
        let mut world = World::new();
        let timestamp = stamps.then_some(7);
        let mut far = Far::new(&mut world, Open { sack, timestamp, ..Open::default() }, 1_500);
        let mut sent = 1;
        for (carries, says, lost, fewer, bytes, wait) in rounds {
            (far.carries, far.says, far.lost) = (carries, says, lost & fewer);
            let now = bytes.min(far.window as usize);
            if now > 0 {
                world.send(now);
                (sent, far.window) = (sent + now as u32, far.window - now as u32);
            }
            far.round(&mut world);
            world.pass(ms(wait));
        }
        (far.carries, far.lost) = (1_500, 0);
        for _ in 0..1_000 {
            if far.next == sent {
                break;
            }
            far.round(&mut world);
            world.pass(ms(500));
        }
        prop_assert_eq!(far.next, sent);
    }
}

/// A forger who sees the segments names an MTU that is a little less each time: they are cut in halves and not in crumbs.
#[test]
fn an_mtu_that_shrinks_byte_by_byte_takes_little_memory() {
    let mut world = World::new();
    let peer = opened(&mut world, sack());
    world.send(10 * MSS);
    let sent = world.segments();
    let free = world.pool.available();
    for less in 1..200 {
        world.hear_frames(&[message(&sent[0], 1_500 - less), message(&sent[9], 1_500 - less)]);
        world.pass(ms(3 * RTT) / 2);
    }
    assert!(free - world.pool.available() <= 30, "{} of {free} are left", world.pool.available());
    world.hear(&peer.seg(1, 1 + 10 * MSS as u32));
    world.frames_out();
}

/// Selective acknowledgments make a packet longer than its payload is: the message about it counts.
#[test]
fn a_packet_that_options_made_too_big_is_sent_again_in_parts() {
    let mut world = World::new();
    let peer = opened(&mut world, sack());
    // Gaps of the peer's, which each segment reports.
    world.hear_all(&[peer.seg(101, 1).len(10), peer.seg(201, 1).len(10), peer.seg(301, 1).len(10)]);
    world.frames_out();
    world.told();
    world.send(1_400);
    let sent = world.segments();
    assert_eq!((sent[0].payload.len(), peer.blocks(&sent[0]).len()), (1_400, 3));
    world.hear_frames(&[message(&sent[0], 1_460)]);
    world.pass(ms(3 * RTT));
    assert_eq!(world.stats().tcp_path_mtu_lowered, 1);
    assert!(world.segments()[0].payload.len() <= 1_420);
    world.hear(&peer.seg(1, 1_401));
    world.frames_out();
}

/// Guesses at connections and numbers spend nothing of what honest messages may.
#[test]
fn blind_messages_do_not_keep_honest_ones_out() {
    let mut world = World::with(|config| config.answers_per_second = 4);
    let peer = opened(&mut world, sack());
    world.send(2 * MSS);
    let sent = world.segments();
    for guess in 1..50 {
        let wrong = Seg { seq: sent[1].seq + 100_000 * guess, ..sent[1].clone() };
        world.hear_frames(&[message(&wrong, 1_400)]);
    }
    world.hear_frames(&[message(&sent[0], 1_400)]);
    world.pass(ms(3 * RTT));
    assert_eq!(world.stats().tcp_path_mtu_lowered, 1);
    world.hear(&peer.seg(1, 1 + 2 * MSS as u32));
    world.frames_out();
}
