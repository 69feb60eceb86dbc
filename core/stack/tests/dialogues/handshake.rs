//! Opening: passive and active, with all options, and with everything that can go wrong.

use domain::{Calls, ConnectError, Cookie};
use wire::{Endpoint, TcpFlags};

use crate::support::{
    Open, PEER_IP, PORT, Peer, STACK_IP, Seg, Told, World, config, far, host, ms, near,
};

/// Announced by the stack for 256 KiB.
const STACK_SCALE: u8 = 3;

#[test]
fn passive_open_with_every_set_of_options() {
    let mut port = 1000;
    for mss in [None, Some(10), Some(536), Some(1460), Some(9000)] {
        for window_scale in [None, Some(0), Some(7), Some(14)] {
            for timestamp in [None, Some(u32::MAX - 5)] {
                port += 1;
                passive_open(
                    port,
                    Open { mss, window_scale, timestamp, window: 1000, ..Open::default() },
                );
            }
        }
    }
}

fn passive_open(port: u16, open: Open) {
    let mut world = World::new();
    let (peer, syn_ack) = Peer::knock(&mut world, port, open);
    assert_eq!(peer.text(&syn_ack), "S. 0 ack 1");
    assert_eq!(syn_ack.window, 65_535, "a SYN's window is not scaled");
    let options = syn_ack.options;
    assert_eq!(options.mss, Some(1460));
    assert_eq!(options.window_scale, open.window_scale.map(|_| STACK_SCALE));
    assert_eq!(options.timestamp.is_some(), open.timestamp.is_some());
    assert!(!options.sack_permitted, "SACK is not implemented");
    world.hear(&peer.seg(1, 1));
    // RFC 9293 §3.7.1: 536 where nothing is said. Options come out of the segment's size.
    let mut mss = open.mss.unwrap_or(536).clamp(64, 1460) as u32;
    if open.timestamp.is_some() {
        mss -= 12;
    }
    let window = (1000u32 << open.window_scale.unwrap_or(0)).min(10 * mss);
    assert_eq!(world.told(), [Told::Knock { peer: peer.here, window }]);
    world.silent();
    world.send(window.min(3 * mss) as usize);
    for seg in world.segments() {
        assert!(seg.payload.len() <= mss as usize);
        match seg.options.timestamp {
            Some(stamp) => assert_eq!(Some(stamp.echo), open.timestamp),
            None => assert_eq!(open.timestamp, None),
        }
        let window = (seg.window as u32) << open.window_scale.map_or(0, |_| STACK_SCALE);
        assert_eq!(window, open.window_scale.map_or(65_535, |_| 256 << 10));
    }
}

#[test]
fn a_closed_port_answers_with_the_reset_of_the_rfc() {
    let mut world = World::new();
    let mut peer = Peer::new(5, Open::default());
    peer.there.port = 81;
    world.hear(&peer.syn());
    let [reset] = &world.segments()[..] else { panic!("one reset") };
    assert_eq!(reset.flags, TcpFlags::RST | TcpFlags::ACK);
    assert_eq!((reset.seq.0, reset.ack), (0, peer.iss + 1));
    // With an ACK: <SEQ=SEG.ACK><CTL=RST>.
    world.hear(&peer.seg(100, 77).len(10));
    world.expect(&peer, &["R 77"]);
    // SYN and data count both.
    world.hear(&peer.syn().len(10));
    let [reset] = &world.segments()[..] else { panic!("one reset") };
    assert_eq!(reset.ack, peer.iss + 11);
    world.hear(&peer.seg(100, 77).flags("R"));
    world.hear(&peer.seg(100, 77).flags("R."));
    world.silent();
}

#[test]
fn syn_ack_is_sent_again_with_back_off_and_given_up() {
    let mut world = World::with(|config| config.syn_retries = 3);
    let (peer, _) = Peer::knock(&mut world, 5, Open::default());
    for expected in [1_000, 2_000, 4_000] {
        let waited = world.pass_until_sent(ms(60_000));
        near(waited, expected);
        world.expect(&peer, &["S. 0 ack 1"]);
    }
    world.pass(ms(9_200));
    world.silent();
    assert_eq!(world.stack.connections(), 0);
    assert_eq!(world.told(), [], "the application never heard of it");
}

#[test]
fn a_repeated_syn_gets_the_same_answer() {
    let mut world = World::new();
    let (peer, first) = Peer::knock(&mut world, 5, Open::default());
    world.hear(&peer.syn());
    let again = world.expect(&peer, &["S. 0 ack 1"]);
    assert_eq!(again[0].options, first.options);
    assert_eq!(world.stack.connections(), 1);
    // A flood of them gets two answers a second.
    for _ in 0..900 {
        world.hear(&peer.syn());
        world.pass(ms(1));
    }
    assert_eq!(world.segments().len(), 1);
    world.hear(&peer.seg(1, 1));
    assert_eq!(world.told().len(), 1);
}

/// Connections that nobody accepts fill the backlog: no SYN is answered then, as the last step of the handshake would
/// find no room.
#[test]
fn the_backlog_is_bounded_and_freed() {
    let mut world = World::with(|config| config.backlog = 2);
    world.auto_accept = false;
    let (first, _) = Peer::knock(&mut world, 1, Open::default());
    let (second, _) = Peer::knock(&mut world, 2, Open::default());
    world.hear(&first.seg(1, 1));
    let (third, _) = Peer::knock(&mut world, 3, Open::default());
    world.hear(&second.seg(1, 1));
    assert_eq!(world.told().len(), 2);
    // The third finds no room, and the fourth is not answered.
    world.hear(&third.seg(1, 1));
    world.hear(&Peer::new(4, Open::default()).syn());
    world.silent();
    assert_eq!(world.told(), []);
    let stats = world.stats();
    assert_eq!((stats.tcp_backlog_full, stats.tcp_syn_dropped), (1, 1));
    let handle = world.handle();
    world.call(|calls| calls.accept(handle, Cookie(1)).expect("room"));
    // What the third sends opens its connection after all.
    world.hear(&third.seg(1, 1).len(10));
    assert!(matches!(world.told()[..], [Told::Knock { .. }]));
    world.frames_out();
    // A reset frees a place too.
    let handle = world.handles[0];
    world.call(|calls| calls.abort(handle).expect("room"));
    world.frames_out();
    Peer::knock(&mut world, 4, Open::default());
    assert_eq!(world.stack.connections(), 3);
}

/// Where half-open connections fill the backlog, a SYN is answered with a cookie and nothing is kept; its acknowledgment
/// opens the connection with all that was agreed on.
#[test]
fn a_full_backlog_answers_with_cookies() {
    let mut world = World::with(|config| config.backlog = 4);
    for port in 1..=4 {
        Peer::knock(&mut world, port, Open::default());
    }
    let free = world.pool.available();
    for timestamp in [None, Some(77)] {
        for mss in [None, Some(536), Some(1_460)] {
            let port = 100 + mss.unwrap_or(1) + u16::from(timestamp.is_some());
            let open =
                Open { mss, window_scale: Some(7), timestamp, window: 1_000, ..Open::default() };
            let (peer, syn_ack) = Peer::knock(&mut world, port, open);
            assert_eq!(peer.text(&syn_ack), "S. 0 ack 1");
            // Without timestamps there is no place for the scale.
            assert_eq!(syn_ack.options.window_scale.is_some(), timestamp.is_some());
            assert_eq!((world.pool.available(), world.stack.connections()), (free, 4));
            // What acknowledges no cookie is reset.
            world.hear(&peer.seg(1, 2));
            world.expect(&peer, &["R 2"]);
            world.hear(&peer.seg(1, 1).len(10));
            let told = world.told();
            let [Told::Knock { window, .. }, Told::Recv { .. }] = told[..] else {
                panic!("{told:?}")
            };
            let scale = if timestamp.is_some() { 7 } else { 0 };
            let mss = u32::from(mss.unwrap_or(536)) - if timestamp.is_some() { 12 } else { 0 };
            assert_eq!(window, (1_000 << scale).min(10 * mss));
            world.frames_out();
            world.send(10);
            world.expect(&peer, &[". 1:11(10) ack 11"]);
            let handle = world.handle();
            world.call(|calls| calls.abort(handle).expect("room"));
            world.frames_out();
            world.told();
        }
    }
    assert_eq!(world.stats().tcp_cookies_out, 6);
    // One that comes back too late is an acknowledgment of nothing.
    let (peer, _) = Peer::knock(&mut world, 5, Open::default());
    world.pass(ms(140_000));
    world.frames_out();
    world.hear(&peer.seg(1, 1));
    world.expect(&peer, &["R 1"]);
}

/// The network may reorder a peer's first segments: those behind the cookie's acknowledgment are sent again, not reset.
#[test]
fn data_that_overtakes_the_acknowledgment_of_a_cookie_is_not_reset() {
    let mut world = World::with(|config| config.backlog = 1);
    Peer::knock(&mut world, 1, Open::default());
    let (peer, _) = Peer::knock(&mut world, 2, Open::default());
    world.hear(&peer.seg(11, 1).len(10));
    world.hear(&peer.seg(21, 1).flags("F."));
    world.silent();
    world.hear(&peer.seg(1, 1).len(10));
    world.hear(&peer.seg(11, 1).len(10));
    let told = world.told();
    let [Told::Knock { .. }, Told::Recv { .. }, Told::Recv { .. }] = told[..] else {
        panic!("{told:?}")
    };
    world.frames_out();
    // No cookie comes back so late: data without a connection is reset as ever.
    world.pass(ms(140_000));
    world.frames_out();
    let late = Peer { here: wire::Endpoint::new(peer.here.addr, 3), ..peer };
    world.hear(&late.seg(11, 1).len(10));
    world.expect(&late, &["R 1"]);
}

/// A cookie counts although there is a record by now, and is not reset while the backlog is full.
#[test]
fn a_cookie_opens_its_connection_whatever_has_happened_since() {
    let mut world = World::with(|config| config.backlog = 2);
    world.auto_accept = false;
    let [(first, _), (second, _)] =
        [1, 2].map(|port| Peer::knock(&mut world, port, Open::default()));
    let (peer, _) = Peer::knock(&mut world, 3, Open::default());
    assert_eq!(world.stats().tcp_cookies_out, 1);
    // A place is free, and the SYN comes again.
    world.hear(&first.seg(1, 1).flags("R"));
    world.hear(&peer.syn());
    assert_eq!((world.segments().len(), world.stats().tcp_cookies_out), (1, 1));
    world.hear(&peer.seg(1, 1));
    world.silent();
    assert!(matches!(world.told()[..], [Told::Knock { .. }]));
    assert_eq!(world.stack.connections(), 2, "and its record is gone");
    // Both places are taken: the last step is for later.
    let (third, _) = Peer::knock(&mut world, 4, Open::default());
    let (late, _) = Peer::knock(&mut world, 5, Open::default());
    assert_eq!(world.stats().tcp_cookies_out, 2);
    world.hear(&second.seg(1, 1));
    world.hear(&third.seg(1, 1));
    world.hear(&late.seg(1, 1));
    world.silent();
    assert_eq!((world.told().len(), world.stats().tcp_backlog_full), (1, 2));
    let handle = world.handle();
    world.call(|calls| calls.accept(handle, Cookie(1)).expect("room"));
    world.hear(&late.seg(1, 1).len(10));
    assert!(matches!(world.told()[..], [Told::Knock { .. }]));
    world.frames_out();
}

/// The backlog of one port is not that of another.
#[test]
fn each_port_has_its_own_backlog() {
    let mut world = World::with(|config| {
        config.backlog = 2;
        config.tcp_listen = vec![PORT + 1, PORT];
    });
    for port in 1..=5 {
        let mut peer = Peer::new(port, Open::default());
        peer.there.port = PORT + 1;
        world.hear(&peer.syn());
    }
    assert_eq!((world.segments().len(), world.stats().tcp_cookies_out), (5, 3));
    Peer::knock(&mut world, 6, Open::default());
    assert_eq!((world.stack.connections(), world.stats().tcp_cookies_out), (3, 3));
}

/// A flood of SYNs that are never acknowledged takes no packet memory, and leaves others their way in.
#[test]
fn a_flood_of_syns_leaves_memory_and_the_way_in_alone() {
    let mut world = World::sized(config(), 512, 256);
    world.stays = true;
    let free = world.pool.available();
    for number in 0..20_000u32 {
        let mut peer = Peer::new((number % 60_000) as u16 + 1, Open::default());
        peer.here.addr = if number % 2 == 0 { PEER_IP } else { host(3) };
        world.hear(&peer.syn());
        world.frames_out();
        if number % 1_000 == 0 {
            let peer =
                Peer::establish(&mut world, 60_001 + (number / 1_000) as u16, Open::default());
            world.hear(&peer.seg(1, 1).len(10));
            assert!(matches!(world.told()[..], [Told::Recv { .. }]));
        }
    }
    assert_eq!(world.pool.available(), free);
    assert!(world.stats().tcp_cookies_out > 10_000);
}

#[test]
fn the_table_of_connections_is_bounded() {
    let mut world = World::with(|config| config.max_connections = 2);
    Peer::establish(&mut world, 1, Open::default());
    Peer::establish(&mut world, 2, Open::default());
    world.hear(&Peer::new(3, Open::default()).syn());
    world.silent();
    assert_eq!(world.stats().tcp_syn_dropped, 1);
    world.call(|calls| calls.connect(Cookie(9), Endpoint::new(PEER_IP, 7)).expect("room"));
    world.silent();
    let error = ConnectError::NoMemory;
    assert_eq!(world.told(), [Told::ConnectFailed { cookie: 9, error }]);
}

#[test]
fn a_bad_ack_in_syn_received_is_reset_and_a_good_one_opens() {
    let mut world = World::new();
    let (peer, _) = Peer::knock(&mut world, 5, Open::default());
    for bad in [0, 2, 50_000] {
        world.hear(&peer.seg(1, bad));
        world.expect(&peer, &[&format!("R {bad}")]);
    }
    assert_eq!(world.told(), []);
    world.hear(&peer.seg(1, 1));
    world.silent();
    assert!(matches!(world.told()[..], [Told::Knock { .. }]));
}

/// What does not open the connection must not take the SYN-ACK's timer away either.
#[test]
fn half_open_connections_end_whatever_their_peers_send() {
    let mut world = World::with(|config| config.syn_retries = 2);
    let open = Open { timestamp: Some(100), ..Open::default() };
    for port in 1..=9 {
        let (peer, _) = Peer::knock(&mut world, port, open);
        let (value, echo) = peer.timestamp.expect("agreed");
        let stranger = match port {
            1 => peer.seg(0, 1),
            2 => peer.seg(0, 1).len(0).flags("F."),
            3 => peer.seg(65_536, 1).len(1),
            4 => peer.seg(1, 1).ts(value - 1, echo),
            5 => peer.seg(1, 1).flags("P"),
            6 => peer.seg(1, 1).flags("S."),
            7 => peer.seg(2, 1).flags("R."),
            8 => peer.seg(0, 1).flags("S."),
            _ => peer.seg(1, 2),
        };
        world.hear(&stranger);
        assert_eq!(world.told(), [], "{port}");
        world.pass(ms(30_000));
        assert_eq!(world.stack.connections(), 0, "{port}");
        world.frames_out();
    }
    // Data that begins before the window opens as well as any other.
    let (peer, _) = Peer::knock(&mut world, 10, open);
    world.hear(&peer.seg(0, 1).len(11));
    let told = world.told();
    assert!(matches!(told[..], [Told::Knock { .. }, Told::Recv { .. }]), "{told:?}");
}

#[test]
fn a_reset_in_syn_received_is_not_told() {
    let mut world = World::new();
    let (peer, _) = Peer::knock(&mut world, 5, Open::default());
    world.hear(&peer.seg(2, 1).flags("R"));
    assert_eq!(world.stack.connections(), 1, "only the exact number counts");
    world.frames_out();
    world.hear(&peer.seg(1, 1).flags("R"));
    world.silent();
    assert_eq!((world.stack.connections(), world.told()), (0, vec![]));
}

#[test]
fn data_and_fin_may_come_before_accept() {
    let mut world = World::new();
    world.auto_accept = false;
    let (peer, _) = Peer::knock(&mut world, 5, Open::default());
    world.hear(&peer.seg(1, 1).len(100));
    world.hear(&peer.seg(101, 1).len(50).flags("F."));
    world.expect(&peer, &[". 1 ack 152"]);
    assert!(matches!(world.told()[..], [Told::Knock { .. }]));
    let handle = world.handle();
    world.call(|calls| calls.accept(handle, Cookie(8)).expect("room"));
    let told = world.told();
    let [Told::Recv { data, .. }, Told::Eof { cookie: 8 }] = &told[..] else { panic!("{told:?}") };
    assert_eq!(data.len(), 150);
}

#[test]
fn data_on_a_syn_is_left_to_be_sent_again() {
    let mut world = World::new();
    let mut peer = Peer::new(5, Open::default());
    world.hear(&peer.syn().len(20));
    let [syn_ack] = &world.segments()[..] else { panic!("one answer") };
    peer.irs = syn_ack.seq;
    assert_eq!(peer.text(syn_ack), "S. 0 ack 1");
    world.hear(&peer.seg(1, 1).len(20));
    let told = world.told();
    assert!(matches!(told[..], [Told::Knock { .. }, Told::Recv { .. }]), "{told:?}");
}

/// An active open up to the SYN.
pub fn connect(world: &mut World, open: Open) -> (Peer, Seg) {
    let remote = Endpoint::new(PEER_IP, 9000);
    world.call(|calls| calls.connect(Cookie(7), remote).expect("room"));
    let [syn] = &world.segments()[..] else { panic!("one SYN") };
    assert!(syn.flags.contains(TcpFlags::SYN) && !syn.flags.contains(TcpFlags::ACK));
    assert_eq!((syn.dst, syn.src.addr), (remote, STACK_IP));
    let mut peer = Peer::new(9000, open);
    (peer.there, peer.irs) = (syn.src, syn.seq);
    (peer, syn.clone())
}

/// The peer refuses the SYN with a reset: that is told, and is the connection's end.
fn assert_refused(world: &mut World, peer: &Peer) {
    world.hear(&peer.seg(0, 1).flags("R."));
    let error = ConnectError::Refused;
    assert_eq!(world.told(), [Told::ConnectFailed { cookie: 7, error }]);
    assert_eq!(world.stack.connections(), 0);
    world.silent();
}

/// RFC 9293 §3.5.1, as one end of a connection sees it that has lost its memory: the other end, which is synchronized,
/// answers the SYN with a challenge ACK (RFC 5961 §4.2) and obeys a reset that hits its next sequence number.
#[test]
fn what_a_half_open_peer_says_of_a_syn_is_answered_with_the_reset_that_it_obeys() {
    for timestamp in [None, Some((77, 78))] {
        let mut world = World::new();
        let mut peer = Peer::new(9000, Open::default());
        let from = |calls: &mut Calls<'_>| calls.connect_from(Cookie(7), PORT, peer.here);
        world.call(|calls| from(calls).expect("room"));
        let [syn] = &world.segments()[..] else { panic!("one SYN") };
        assert_eq!((syn.flags, syn.src, syn.dst), (TcpFlags::SYN, peer.there, peer.here));
        (peer.irs, peer.timestamp) = (syn.seq, timestamp);
        // Its own numbers are anywhere, and so are those that it acknowledges: any but our SYN.
        for (seq, ack) in [(40_000, 5_000), (9, 0), (9, 0x7fff_ffff), (7, 2)] {
            world.hear(&peer.seg(seq, ack));
            let resets = world.expect(&peer, &[&format!("R {ack}")]);
            assert_eq!((resets[0].seq, resets[0].flags), (peer.irs + ack, TcpFlags::RST));
        }
        // What it says beside is answered so too.
        world.hear(&peer.seg(40_000, 5_000).len(100));
        world.hear(&peer.seg(40_100, 5_000).flags("F."));
        world.expect(&peer, &["R 5000", "R 5000"]);
        assert_eq!((world.told(), world.stack.connections()), (vec![], 1), "it goes on asking");
        near(world.pass_until_sent(ms(5_000)), 1_000);
        world.expect(&peer, &["S 0"]);
        peer.timestamp = None;
        assert_refused(&mut world, &peer);
    }
}

#[test]
fn a_port_of_ones_own_choice_leads_to_a_peer_once() {
    let mut world = World::new();
    let [near_by, other] = [9000, 9001].map(|port| Endpoint::new(PEER_IP, port));
    world.call(|calls| {
        for (cookie, port, peer) in
            [(1, 80, near_by), (2, 80, near_by), (4, 80, other), (5, 81, near_by)]
        {
            calls.connect_from(Cookie(cookie), port, peer).expect("room");
        }
    });
    let ends: Vec<_> = world.segments().iter().map(|syn| (syn.src.port, syn.dst)).collect();
    assert_eq!(ends, [(80, near_by), (80, other), (81, near_by)]);
    let error = ConnectError::NoPort;
    assert_eq!(world.told(), [Told::ConnectFailed { cookie: 2, error }]);
    // One that was accepted leads there too.
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.call(|calls| calls.connect_from(Cookie(6), PORT, peer.here).expect("room"));
    world.silent();
    assert!(world.told().contains(&Told::ConnectFailed { cookie: 6, error }));
}

#[test]
fn active_open_with_every_set_of_options() {
    for mss in [None, Some(1460), Some(100)] {
        for window_scale in [None, Some(5)] {
            for timestamp in [None, Some(77)] {
                active_open(Open { mss, window_scale, timestamp, window: 4000, ..Open::default() });
            }
        }
    }
}

fn active_open(open: Open) {
    let mut world = World::new();
    let (mut peer, syn) = connect(&mut world, open);
    assert_eq!(syn.options.mss, Some(1460));
    assert_eq!(syn.options.window_scale, Some(STACK_SCALE));
    assert_eq!(syn.options.timestamp.map(|stamp| stamp.echo), Some(0));
    world.hear(&peer.seg(0, 1).flags("S.").options(open.options()));
    if let (Some(value), Some(stamp)) = (open.timestamp, syn.options.timestamp) {
        peer.timestamp = Some((value, stamp.value));
    }
    let acks = world.expect(&peer, &[". 1 ack 1"]);
    assert_eq!(acks[0].options.timestamp.map(|stamp| stamp.echo), open.timestamp);
    let mut mss = open.mss.unwrap_or(536).min(1460) as u32;
    if open.timestamp.is_some() {
        mss -= 12;
    }
    // The window of a SYN is not scaled (RFC 7323 §2.2).
    let window = (10 * mss).min(4000);
    assert_eq!(world.told(), [Told::Connected { cookie: 7, window }]);
    world.send(10);
    world.expect(&peer, &[". 1:11(10) ack 1"]);
    // From now on it is.
    world.hear(&peer.seg(1, 11).len(5));
    let window = (4000u32 << open.window_scale.unwrap_or(0)).min(10 * mss + 10);
    let Some(Told::Sent { bytes: 10, window: told, .. }) = world.told().into_iter().next() else {
        panic!("acknowledged")
    };
    assert!(told <= window && told + 10 >= window.min(10 * mss), "{told} {window}");
}

/// RFC 9293 §3.5, figure 7: both ends send a SYN, and both answer the other's.
#[test]
fn both_ends_may_open_at_once() {
    for answers_with_syn in [true, false] {
        let mut world = World::new();
        let open = Open { window_scale: Some(2), timestamp: Some(77), ..Open::default() };
        let (mut peer, syn) = connect(&mut world, open);
        world.hear(&peer.syn());
        let [syn_ack] = &world.segments()[..] else { panic!("one answer") };
        assert_eq!(peer.text(syn_ack), "S. 0 ack 1");
        assert_eq!(syn_ack.options.window_scale, Some(STACK_SCALE));
        peer.timestamp = syn_ack.options.timestamp.map(|stamp| (78, stamp.value));
        assert_eq!(syn.seq, syn_ack.seq);
        // A doubled SYN opens nothing.
        world.hear(&peer.syn());
        assert_eq!((world.told(), world.segments().len()), (vec![], 1));
        match answers_with_syn {
            true => world.hear(&peer.seg(0, 1).flags("S.").options(open.options())),
            false => world.hear(&peer.seg(1, 1)),
        }
        assert!(matches!(world.told()[..], [Told::Connected { cookie: 7, .. }]));
        assert_eq!(world.segments().len(), usize::from(answers_with_syn));
        world.send(10);
        world.expect(&peer, &[". 1:11(10) ack 1"]);
        world.hear(&peer.seg(1, 11).len(20));
        assert!(matches!(world.told()[..], [Told::Recv { .. }, ..] | [Told::Sent { .. }, ..]));
        world.frames_out();
    }
    // One of the two is refused.
    let mut world = World::new();
    let (peer, _) = connect(&mut world, Open::default());
    world.hear(&peer.syn());
    world.frames_out();
    world.hear(&peer.seg(1, 1).flags("R"));
    let error = ConnectError::Refused;
    assert_eq!(world.told(), [Told::ConnectFailed { cookie: 7, error }]);
}

#[test]
fn refused_only_by_a_reset_that_answers_the_syn() {
    let mut world = World::new();
    let (peer, _) = connect(&mut world, Open::default());
    world.hear(&peer.seg(0, 1).flags("R"));
    world.hear(&peer.seg(0, 2).flags("R."));
    world.silent();
    assert_eq!(world.told(), []);
    assert_refused(&mut world, &peer);
}

#[test]
fn a_wrong_answer_to_a_syn_is_reset_and_a_right_one_still_counts() {
    let mut world = World::new();
    let (peer, _) = connect(&mut world, Open::default());
    world.hear(&peer.seg(0, 2).flags("S."));
    world.expect(&peer, &["R 2"]);
    world.hear(&peer.seg(0, 1));
    world.silent();
    assert_eq!(world.told(), []);
    world.hear(&peer.seg(0, 1).flags("S.").options(Open::default().options()));
    world.expect(&peer, &[". 1 ack 1"]);
    assert!(matches!(world.told()[..], [Told::Connected { cookie: 7, .. }]));
}

#[test]
fn a_syn_is_sent_again_with_back_off_and_given_up() {
    let mut world = World::with(|config| config.syn_retries = 2);
    let (peer, _) = connect(&mut world, Open::default());
    for expected in [1_000, 2_000] {
        let waited = world.pass_until_sent(ms(60_000));
        near(waited, expected);
        world.expect(&peer, &["S 0"]);
    }
    world.pass(ms(3_990));
    assert_eq!(world.told(), []);
    world.pass(ms(600));
    let error = ConnectError::TimedOut;
    assert_eq!(world.told(), [Told::ConnectFailed { cookie: 7, error }]);
    world.silent();
}

/// A SYN-ACK is not repeated for as long as a SYN.
#[test]
fn a_half_open_connection_is_kept_no_longer_than_data_waits() {
    let mut world = World::new();
    let (peer, _) = Peer::knock(&mut world, 5, Open::default());
    for expected in [1_000, 2_000, 4_000, 8_000, 16_000] {
        near(world.pass_until_sent(ms(60_000)), expected);
        world.expect(&peer, &["S. 0 ack 1"]);
    }
    world.pass(ms(31_900));
    assert_eq!(world.stack.connections(), 1);
    world.pass(ms(200));
    world.silent();
    assert_eq!(world.stack.connections(), 0);
}

/// A SYN is repeated for at least three minutes, longer than data waits for its acknowledgment (RFC 9293 §3.8.3, R2).
#[test]
fn a_syn_is_repeated_for_three_minutes() {
    let mut world = World::new();
    let (peer, _) = connect(&mut world, Open::default());
    for expected in [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000] {
        near(world.pass_until_sent(ms(100_000)), expected);
        world.expect(&peer, &["S 0"]);
    }
    world.pass(ms(57_000));
    assert_eq!(world.told(), []);
    world.pass(ms(12_000));
    let error = ConnectError::TimedOut;
    assert_eq!(world.told(), [Told::ConnectFailed { cookie: 7, error }]);
}

#[test]
fn a_lost_handshake_ack_is_made_up_for() {
    let mut world = World::new();
    let (peer, _) = connect(&mut world, Open::default());
    let syn_ack = peer.seg(0, 1).flags("S.").options(Open::default().options());
    world.hear(&syn_ack);
    world.expect(&peer, &[". 1 ack 1"]);
    world.hear(&syn_ack);
    world.expect(&peer, &[". 1 ack 1"]);
}

#[test]
fn nowhere_to_go() {
    let mut world = World::new();
    let far = Endpoint::new(far(1), 80);
    world.call(|calls| calls.connect(Cookie(3), far).expect("room"));
    let error = ConnectError::Unreachable;
    assert_eq!(world.told(), [Told::ConnectFailed { cookie: 3, error }]);
    world.silent();
}

/// RFC 9293 §3.9.2.3: a connection leads to one other host.
#[test]
fn no_connection_leads_to_a_group_or_to_ourselves() {
    let mut world = World::with(|config| config.set_gateway(PEER_IP));
    let groups = ["224.0.0.1", "255.255.255.255", "0.0.0.0", "127.0.0.1", "::", "::1", "ff02::1"];
    let groups = groups.map(|addr| addr.parse().expect("an address"));
    for addr in groups.into_iter().chain([STACK_IP]) {
        let far = Endpoint::new(addr, 80);
        world.call(|calls| calls.connect(Cookie(3), far).expect("room"));
        let error = ConnectError::Unreachable;
        assert_eq!(world.told(), [Told::ConnectFailed { cookie: 3, error }], "{addr:?}");
        world.silent();
    }
}

#[test]
fn ports_of_connections_to_one_peer_differ() {
    let mut world = World::new();
    let remote = Endpoint::new(PEER_IP, 9000);
    world.call(|calls| {
        for cookie in 0..500 {
            calls.connect(Cookie(cookie), remote).expect("room");
        }
    });
    let mut ports: Vec<u16> = world.segments().iter().map(|syn| syn.src.port).collect();
    ports.sort_unstable();
    ports.dedup();
    assert_eq!(ports.len(), 500);
    assert!(ports[0] >= 10_000);
}

/// A SYN for which the NIC has no room is sent once there is some.
#[test]
fn a_syn_waits_for_the_device() {
    let mut world = World::sized(config(), 256, 1);
    world.nic_takes = false;
    let remote = Endpoint::new(PEER_IP, 9000);
    world.call(|calls| {
        calls.connect(Cookie(1), remote).expect("room");
        calls.connect(Cookie(2), remote).expect("room");
    });
    world.hear(&Peer::new(5, Open { window: 0, ..Open::default() }).syn());
    world.nic_takes = true;
    world.settle();
    world.pass(ms(12));
    let flags: Vec<TcpFlags> = world.segments().iter().map(|seg| seg.flags).collect();
    assert_eq!(flags, [TcpFlags::SYN, TcpFlags::SYN, TcpFlags::SYN | TcpFlags::ACK]);
}
