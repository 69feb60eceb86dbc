//! Strangers on the network, and an application that means harm.

use core::time::Duration;

use domain::{CallError, CallKind, Cookie, DeadReason, Handle};
use wire::{Endpoint, EtherType, MacAddr};

use crate::support::{
    ETHERTYPE, Open, Peer, STACK_IP, STACK_MAC, Told, World, ethernet_frame, host, ms,
};

fn open(world: &mut World) -> Peer {
    Peer::establish(world, 5, Open::default())
}

/// RFC 5961 §3.2.
#[test]
fn a_blind_reset_is_challenged_and_an_exact_one_obeyed() {
    let mut world = World::new();
    let peer = open(&mut world);
    for guess in [2, 1_000, 65_000] {
        world.hear(&peer.seg(guess, 1).flags("R"));
        world.expect(&peer, &[". 1 ack 1"]);
        // One answer in half a second.
        world.hear(&peer.seg(guess, 1).flags("R"));
        world.silent();
        world.pass(ms(501));
    }
    assert_eq!(world.stats().tcp_challenge_acks, 3);
    // Outside of the window not even that.
    world.hear(&peer.seg(400_000, 1).flags("R"));
    world.hear(&peer.seg(0, 1).flags("R"));
    world.silent();
    assert_eq!(world.told(), []);
    world.hear(&peer.seg(1, 1).flags("R"));
    world.silent();
    assert_eq!(world.told(), [Told::Dead { cookie: 5, reason: DeadReason::Reset }]);
}

/// RFC 5961 §4.2.
/// RFC 9293 §3.10.7.4: with a window of zero nothing is taken but what says nothing new, and resets; one may carry text
/// that says why (RFC 1122 §4.2.2.12).
#[test]
fn a_reset_counts_where_the_window_is_closed() {
    let mut world = World::with(|config| config.receive_window_bytes = 2_000);
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.auto_done = false;
    world.hear(&peer.seg(1, 1).len(1_000));
    world.hear(&peer.seg(1_001, 1).len(1_000));
    let acks = world.segments();
    assert_eq!(acks.last().map(|ack| ack.window), Some(0));
    world.told();
    world.hear(&peer.seg(2_001, 1).flags("R").len(20));
    assert_eq!(world.told(), [Told::Dead { cookie: 5, reason: DeadReason::Reset }]);
    world.silent();
}

#[test]
fn a_syn_on_an_open_connection_is_challenged() {
    let mut world = World::new();
    let peer = open(&mut world);
    for (seq, flags) in [(1, "S"), (500, "S"), (1, "S."), (0, "S"), (500_000, "S")] {
        world.hear(&peer.seg(seq, 1).flags(flags));
        world.expect(&peer, &[". 1 ack 1"]);
        world.pass(ms(501));
    }
    assert_eq!(world.told(), []);
}

/// A limit that connections shared would let the peer of one find out what another one answers (CVE-2016-5696).
#[test]
fn one_connections_challenges_leave_another_its_own() {
    let mut world = World::new();
    let [one, other] = [5, 6].map(|port| Peer::establish(&mut world, port, Open::default()));
    for _ in 0..2_000 {
        world.hear(&one.seg(1_000, 1).flags("R"));
    }
    world.expect(&one, &[". 1 ack 1"]);
    assert_eq!(world.stats().tcp_answers_limited, 1_999);
    world.hear(&other.seg(1_000, 1).flags("R"));
    world.expect(&other, &[". 1 ack 1"]);
}

/// Two ends that disagree would answer each other for ever: without data it is one answer in half a second.
#[test]
fn unacceptable_segments_without_data_are_answered_twice_a_second() {
    let mut world = World::new();
    let peer = open(&mut world);
    let wrong = [
        peer.seg(400_000, 1),
        peer.seg(1, 102),
        peer.seg(0, 1),
        peer.seg(1, 0u32.wrapping_sub(70_000)),
    ];
    for round in 0..1_000 {
        world.hear(&wrong[round % wrong.len()]);
        world.pass(ms(1));
    }
    assert_eq!(world.segments().len(), 2);
    // Data is: its sender may have missed the acknowledgment.
    for _ in 0..3 {
        world.hear(&peer.seg(400_000, 1).len(10));
        world.expect(&peer, &[". 1 ack 1"]);
    }
}

/// A stranger who guesses a number in the window, and no acknowledgment, does not move what is echoed: the peer's own
/// segments would look old from then on (CVE-2005-0356).
#[test]
fn a_segment_with_a_wrong_acknowledgment_leaves_the_timestamp_alone() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open { timestamp: Some(100), ..Open::default() });
    let (_, echo) = peer.timestamp.expect("agreed");
    for ack in [100, 0x7000_0000, 0u32.wrapping_sub(70_000)] {
        world.hear(&peer.seg(1, ack).ts(0x7000_0000, echo).len(10));
        world.frames_out();
    }
    world.hear(&peer.seg(1, 1).len(10).ts(101, echo));
    world.received(0, 10);
}

/// RFC 7323 §5.5: after a long silence the peer's clock may have turned round.
#[test]
fn timestamps_are_forgotten_after_a_long_silence() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open { timestamp: Some(100), ..Open::default() });
    let (_, echo) = peer.timestamp.expect("agreed");
    world.pass(ms(1_990_000));
    world.hear(&peer.seg(1, 1).len(10).ts(99, echo));
    world.expect(&peer, &[". 1 ack 1"]);
    world.pass(ms(11_000));
    world.hear(&peer.seg(1, 1).len(10).ts(99, echo));
    world.received(0, 10);
    // From then on it counts.
    world.hear(&peer.seg(11, 1).len(10).ts(98, echo));
    world.received(0, 0);
    world.hear(&peer.seg(11, 1).len(10).ts(100, echo));
    world.received(10, 10);
}

/// RFC 5961 §5.2 and RFC 9293 §3.10.7.4.
#[test]
fn data_with_an_ack_out_of_range_is_not_taken() {
    let mut world = World::new();
    let peer = open(&mut world);
    world.send(100);
    world.frames_out();
    world.hear(&peer.seg(1, 102).len(10));
    world.expect(&peer, &[". 101 ack 1"]);
    for old in [0x8000_0000, 0u32.wrapping_sub(70_000)] {
        world.hear(&peer.seg(1, old).len(10));
        world.expect(&peer, &[". 101 ack 1"]);
        world.pass(ms(501));
        world.frames_out();
    }
    assert_eq!(world.told(), []);
    // Old, but not older than a window: taken.
    world.hear(&peer.seg(1, 0u32.wrapping_sub(60_000)).len(10));
    world.received(0, 10);
}

/// RFC 9293 §3.10.7.2: a listener resets what acknowledges something, and drops the rest.
#[test]
fn an_open_port_drops_what_neither_opens_nor_acknowledges() {
    let mut world = World::new();
    let peer = Peer::new(5_000, Open::default());
    for flags in ["", "F", "P", "U", "SF"] {
        world.hear(&peer.seg(0, 0).flags(flags).len(10));
        world.silent();
    }
    world.hear(&peer.seg(0, 7));
    world.expect(&peer, &["R 7"]);
}

#[test]
fn a_segment_without_ack_is_not_taken() {
    let mut world = World::new();
    let peer = open(&mut world);
    for flags in ["", "P", "F", "U"] {
        world.hear(&peer.seg(1, 1).len(10).flags(flags));
    }
    world.silent();
    assert_eq!(world.told(), []);
}

/// RFC 7323 §5.
#[test]
fn old_timestamps_are_refused_but_for_resets() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open { timestamp: Some(100), ..Open::default() });
    let (_, echo) = peer.timestamp.expect("agreed");
    world.hear(&peer.seg(1, 1).len(10).ts(200, echo));
    world.received(0, 10);
    world.hear(&peer.seg(11, 1).len(10).ts(150, echo));
    let [ack] = &world.expect(&peer, &[". 1 ack 11"])[..] else { panic!() };
    assert_eq!(ack.options.timestamp.map(|stamp| stamp.echo), Some(200));
    world.received(10, 0);
    // A later segment that came early does not move what is echoed (RFC 7323 §4.3).
    world.hear(&peer.seg(21, 1).len(10).ts(300, echo));
    let [ack] = &world.expect(&peer, &[". 1 ack 11"])[..] else { panic!() };
    assert_eq!(ack.options.timestamp.map(|stamp| stamp.echo), Some(200));
    world.hear(&peer.seg(11, 1).len(10).ts(250, echo));
    world.expect(&peer, &[". 1 ack 31"]);
    world.received(10, 20);
    world.hear(&peer.seg(31, 1).flags("R").ts(1, echo));
    assert_eq!(world.told(), [Told::Dead { cookie: 5, reason: DeadReason::Reset }]);
}

#[test]
fn martians_and_our_own_address_are_dropped() {
    let mut world = World::new();
    // In an IPv6 packet, an address that maps an IPv4 address is one too.
    let texts = match crate::V6 {
        false => ["127.0.0.1", "255.255.255.255", "0.0.0.0", "224.0.0.1", "240.0.0.1"],
        true => ["::1", "ff02::1", "::", "ff0e::5", "10.0.0.2"],
    };
    let sources = texts.map(|text| text.parse().expect("an address"));
    for (index, addr) in sources.into_iter().chain([STACK_IP]).enumerate() {
        let mut peer = Peer::new(80, Open::default());
        peer.here = Endpoint::new(addr, 80);
        world.hear(&peer.syn());
        world.hear(&peer.seg(1, 1));
        world.silent();
        assert_eq!(world.stats().not_for_us, 2 * (index as u64 + 1));
    }
    assert_eq!(world.stack.connections(), 0);
}

#[test]
fn frames_for_others_are_dropped() {
    let mut world = World::new();
    let mut peer = Peer::new(9, Open::default());
    let good = peer.syn().frame();
    for dst in [MacAddr::BROADCAST, MacAddr([2, 0, 0, 0, 0, 9]), MacAddr([1, 0, 0x5e, 0, 0, 1])] {
        let frame = ethernet_frame(dst, ETHERTYPE, &good[14..]);
        world.hear_frames(&[frame]);
    }
    peer.there.addr = host(77);
    world.hear(&peer.syn());
    world.hear_frames(&[ethernet_frame(STACK_MAC, EtherType(0x88cc), &[0; 40])]);
    world.silent();
    assert_eq!(world.stats().not_for_us, 5);
}

#[test]
fn broken_packets_are_counted_and_dropped() {
    let mut world = World::new();
    let good = Peer::new(9, Open::default()).syn().frame();
    // Every single bit of the packet, in turn: nothing but the SYN itself opens. No checksum is over the class, the flow
    // label, the next header and the hop limit of IPv6: with another of these it may.
    let is_free = |byte: usize| crate::V6 && matches!(byte - 14, 0..4 | 6..8);
    for bit in (14 * 8..good.len() * 8).filter(|bit| !is_free(bit / 8)) {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        world.hear_frames(&[bad]);
    }
    for len in 0..good.len() {
        world.hear_frames(&[good[..len].to_vec()]);
    }
    world.silent();
    assert_eq!(world.stack.connections(), 0);
    let stats = world.stats();
    assert!(stats.bad_checksum > 300 && stats.malformed > 60, "{stats:?}");
}

#[test]
fn answers_to_strangers_are_limited() {
    let mut world = World::with(|config| config.answers_per_second = 10);
    world.stays = true;
    let mut peer = Peer::new(1, Open::default());
    peer.there.port = 9;
    for port in 1..=30 {
        peer.here.port = port;
        world.hear(&peer.syn());
    }
    assert_eq!(world.segments().len(), 10);
    assert_eq!(world.stats().answers_limited, 20);
    world.pass(Duration::from_secs(1));
    world.hear(&peer.syn());
    assert_eq!(world.segments().len(), 1);
}

#[test]
fn handles_that_were_never_given_out() {
    let mut world = World::new();
    let peer = open(&mut world);
    let real = world.handle().to_bits();
    let mut forged: Vec<u64> = (0..64).map(|bit| real ^ 1 << bit).collect();
    forged.extend([0, u64::MAX, u64::MAX >> 12, 1 << 63]);
    for bits in forged {
        let handle = Handle::from_bits(bits);
        world.call(|calls| {
            calls.sendv(handle, &[b"x"]).expect("room");
            calls.recv_done(handle, 7).expect("room");
            calls.accept(handle, Cookie(1)).expect("room");
            calls.close(handle).expect("room");
            calls.abort(handle).expect("room");
        });
        let bad = |call| Told::Failed { call, error: CallError::BadHandle };
        assert_eq!(world.told(), [bad(CallKind::Sendv), bad(CallKind::Accept)], "{bits:x}");
        assert_eq!(world.held(handle), []);
    }
    world.silent();
    world.hear(&peer.seg(1, 1).len(10));
    world.received(0, 10);
}

/// A slot's next connection is not reached by the handle of the one before.
#[test]
fn stale_handles_do_not_reach_a_new_connection() {
    let mut world = World::new();
    let peer = open(&mut world);
    let old = world.handle();
    world.hear(&peer.seg(1, 1).flags("R"));
    world.pass(ms(1_000));
    world.told();
    open(&mut world);
    let new = world.handle();
    assert_eq!((old.group(), old.slot()), (new.group(), new.slot()));
    assert_ne!(old, new);
    world.told();
    world.call(|calls| {
        calls.abort(old).expect("room");
        calls.close(old).expect("room");
        calls.sendv(old, &[b"x"]).expect("room");
    });
    assert_eq!(world.told().len(), 1);
    world.silent();
    assert_eq!(world.stack.connections(), 1);
}

/// Connections that are not open yet have no handle, whatever is guessed.
#[test]
fn calls_on_half_open_connections() {
    let mut world = World::new();
    let opened = open(&mut world);
    let handle = world.handle();
    world.hear(&opened.seg(1, 1).flags("R"));
    world.told();
    // The same slot, the next generation.
    let guess = Handle::new(handle.group(), handle.slot(), handle.generation() + 1);
    Peer::knock(&mut world, 5, Open::default());
    world.call(|calls| {
        calls.accept(guess, Cookie(1)).expect("room");
        calls.sendv(guess, &[b"x"]).expect("room");
        calls.recv_done(guess, 1).expect("room");
    });
    let failed = |call, error| Told::Failed { call, error };
    let expected = [
        failed(CallKind::Accept, CallError::BadHandle),
        failed(CallKind::Sendv, CallError::BadHandle),
    ];
    assert_eq!(world.told(), expected);
    world.call(|calls| calls.abort(guess).expect("room"));
    world.silent();
    assert_eq!(world.stack.connections(), 1);
}

#[test]
fn misuse_of_a_connection() {
    let mut world = World::new();
    world.auto_done = false;
    let peer = open(&mut world);
    let handle = world.handle();
    world.hear(&peer.seg(1, 1).len(100));
    world.told();
    world.call(|calls| {
        calls.accept(handle, Cookie(99)).expect("room");
        calls.recv_done(handle, 101).expect("room");
        calls.recv_done(handle, usize::MAX).expect("room");
        calls.recv_done(handle, 100).expect("room");
        calls.recv_done(handle, 1).expect("room");
        calls.sendv(handle, &[]).expect("room");
    });
    let failed = |call, error| Told::Failed { call, error };
    let expected = [
        failed(CallKind::Accept, CallError::BadState),
        failed(CallKind::RecvDone, CallError::TooMuch),
        failed(CallKind::RecvDone, CallError::TooMuch),
        failed(CallKind::RecvDone, CallError::TooMuch),
    ];
    assert_eq!(world.told(), expected);
    world.hear(&peer.seg(101, 1).len(1));
    assert!(matches!(world.told()[..], [Told::Recv { cookie: 5, .. }]), "the cookie stays");
}

/// An application that floods the array of failures gets them all, a batch at a time.
#[test]
fn failures_beyond_the_event_array_come_later() {
    let mut world = World::new();
    world.call(|calls| {
        for number in 0..1_000 {
            let handle = Handle::new(number % 128, 7, 0);
            calls.accept(handle, Cookie(0)).expect("room");
        }
    });
    assert_eq!(world.told().len(), 1_000);
}
