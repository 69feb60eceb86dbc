//! Explicit congestion notification (RFC 3168), and DCTCP's reading of it (RFC 8257).

use stack::{CongestionAlgorithm, Ecn};
use wire::ipv4::{ECN_ECT_0, ECN_NOT_ECT};

use crate::handshake::connect;
use crate::support::{Open, Peer, Seg, Told, World, ms};

const MSS: u32 = 1_460;

fn open() -> Open {
    Open { ecn: true, ..Open::default() }
}

fn agreed(world: &mut World, timestamp: Option<u32>) -> Peer {
    Peer::establish(world, 5, Open { timestamp, ..open() })
}

fn dctcp() -> World {
    World::with(|config| config.congestion = CongestionAlgorithm::Dctcp)
}

/// The codepoints of segments.
fn codepoints(segments: &[Seg]) -> Vec<u8> {
    segments.iter().map(|segment| segment.ecn).collect()
}

#[test]
fn is_granted_where_it_was_asked_for() {
    for ecn in [Ecn::Off, Ecn::Accept, Ecn::Ask] {
        let mut world = World::with(|config| config.ecn = ecn);
        let (peer, answer) = Peer::knock(&mut world, 5, open());
        let expected = if ecn == Ecn::Off { "S. 0 ack 1" } else { "SE. 0 ack 1" };
        assert_eq!((peer.text(&answer).as_str(), answer.ecn), (expected, ECN_NOT_ECT));
        let (peer, answer) = Peer::knock(&mut world, 6, Open::default());
        assert_eq!(peer.text(&answer), "S. 0 ack 1", "{ecn:?}");
    }
    // One flag of the two asks for nothing.
    let mut world = World::new();
    world.hear(&Peer::new(7, open()).syn().flags("SE"));
    let [answer] = &world.segments()[..] else { panic!("one answer") };
    assert!(!answer.flags.intersects(wire::TcpFlags::ECE));
}

#[test]
fn cookies_keep_what_was_agreed_on() {
    for timestamp in [None, Some(7)] {
        let mut world = World::with(|config| config.backlog = 1);
        Peer::knock(&mut world, 4, Open::default());
        let (peer, _) = Peer::knock(&mut world, 5, Open { timestamp, ..open() });
        assert_eq!(world.stats().tcp_cookies_out, 1);
        world.hear(&peer.seg(1, 1));
        world.told();
        world.send(100);
        let expected = if timestamp.is_some() { ECN_ECT_0 } else { ECN_NOT_ECT };
        assert_eq!(codepoints(&world.segments()), [expected]);
    }
}

#[test]
fn is_asked_for_once_and_used_where_it_is_granted() {
    for (flags, expected) in [("SE.", ECN_ECT_0), ("S.", ECN_NOT_ECT), ("SEW.", ECN_NOT_ECT)] {
        let mut world = World::with(|config| config.ecn = Ecn::Ask);
        let (peer, syn) = connect(&mut world, Open::default());
        assert_eq!((peer.text(&syn).as_str(), syn.ecn), ("SEW 0", ECN_NOT_ECT));
        world.hear(&peer.seg(0, 1).flags(flags));
        world.expect(&peer, &[". 1 ack 1"]);
        world.told();
        // The answer's ECE is no echo: the window is the initial one.
        world.send(10 * MSS as usize);
        assert_eq!(codepoints(&world.segments()), [expected; 10], "{flags}");
    }
    // A path that drops such SYNs is not asked twice; the answer says whether the peer has heard the first one.
    let mut world = World::with(|config| config.ecn = Ecn::Ask);
    let (peer, _) = connect(&mut world, Open::default());
    world.pass_until_sent(ms(1_500));
    world.expect(&peer, &["S 0"]);
    world.hear(&peer.seg(0, 1).flags("SE."));
    world.expect(&peer, &[". 1 ack 1"]);
    world.told();
    world.send(100);
    assert_eq!(codepoints(&world.segments()), [ECN_ECT_0]);
}

#[test]
fn new_data_may_be_marked_and_nothing_else() {
    for timestamp in [None, Some(7)] {
        let mut world = World::new();
        let peer = Peer::establish(&mut world, 5, Open { timestamp, ..open() });
        world.hear(&peer.seg(1, 1).len(10));
        world.send(100);
        let reply = world.segments();
        assert_eq!(codepoints(&reply), [ECN_ECT_0]);
        world.hear(&peer.seg(11, 1).len(10).flags("."));
        world.pass(ms(50));
        assert_eq!(codepoints(&world.segments()), [ECN_NOT_ECT], "an acknowledgment");
        world.pass_until_sent(ms(300));
        let again = world.segments();
        assert_eq!((codepoints(&again), again[0].payload.len()), (vec![ECN_NOT_ECT], 100));
    }
}

#[test]
fn a_mark_is_echoed_until_the_peer_has_slowed_down() {
    for timestamp in [None, Some(7)] {
        let mut world = World::new();
        let peer = agreed(&mut world, timestamp);
        world.hear(&peer.seg(1, 1).len(10).marked());
        world.expect(&peer, &["E. 1 ack 11"]);
        world.hear(&peer.seg(11, 1).len(10));
        world.send(100);
        world.expect(&peer, &["E. 1:101(100) ack 21"]);
        world.hear(&peer.seg(21, 101).len(10).flags(".W"));
        world.send(100);
        world.expect(&peer, &[". 101:201(100) ack 31"]);
        // The one that says so may be marked itself.
        world.hear(&peer.seg(31, 201).len(10).flags(".W").marked());
        world.expect(&peer, &["E. 201 ack 41"]);
        assert_eq!(world.stats().tcp_marks_in, 2);
    }
}

#[test]
fn marks_of_connections_without_it_and_of_strange_segments_are_not_read() {
    let mut world = World::new();
    let plain = Peer::establish(&mut world, 4, Open::default());
    world.hear(&plain.seg(1, 1).len(2_000 - 540).marked());
    world.pass(ms(50));
    world.expect(&plain, &[". 1 ack 1461"]);
    world.told();
    let peer = agreed(&mut world, None);
    // An acknowledgment, which no honest router marks, and what is outside of the window.
    world.hear(&peer.seg(1, 1).marked());
    world.hear(&peer.seg(100_000, 1).len(10).marked());
    world.expect(&peer, &[". 1 ack 1"]);
    world.hear(&peer.seg(1, 1).len(10));
    world.pass(ms(50));
    world.expect(&peer, &[". 1 ack 11"]);
    assert_eq!(world.stats().tcp_marks_in, 0);
}

#[test]
fn an_echo_shrinks_the_window_once_and_sends_nothing_again() {
    let mut world = World::new();
    let peer = agreed(&mut world, None);
    world.send(10 * MSS as usize);
    world.segments();
    for acked in 1..=3 {
        world.hear(&peer.seg(1, 1 + acked * MSS).flags(".E"));
        world.silent();
    }
    world.told();
    assert_eq!(world.stats().tcp_marked_windows, 1);
    // CUBIC keeps 0.7 of ten segments: with four of ten acknowledged one more may go, and says so.
    world.hear(&peer.seg(1, 1 + 4 * MSS).flags(".E"));
    world.silent();
    world.send(MSS as usize);
    let at = 1 + 10 * MSS;
    let sent = world.expect(&peer, &[&format!("W. {at}:{}(1460) ack 1", at + MSS)]);
    assert_eq!(codepoints(&sent), [ECN_ECT_0]);
    world.hear(&peer.seg(1, 1 + 5 * MSS));
    world.send(MSS as usize);
    world.expect(&peer, &[&format!(". {}:{}(1460) ack 1", at + MSS, at + 2 * MSS)]);
    // What was sent since is another window.
    world.hear(&peer.seg(1, at + 2 * MSS).flags(".E"));
    let stats = world.stats();
    assert_eq!((stats.tcp_marked_windows, stats.tcp_retransmissions), (2, 0));
}

#[test]
fn an_echo_says_nothing_where_it_was_not_agreed_on() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.send(10 * MSS as usize);
    world.segments();
    world.hear(&peer.seg(1, 1 + 10 * MSS).flags(".E"));
    world.told();
    world.send(20 * MSS as usize);
    assert_eq!(codepoints(&world.segments()), [ECN_NOT_ECT; 18], "slow start goes on");
    assert_eq!(world.stats().tcp_marked_windows, 0);
}

#[test]
fn the_peer_hears_of_a_loss_too() {
    for timestamp in [None, Some(7)] {
        let mut world = World::new();
        let peer = agreed(&mut world, timestamp);
        world.send(100);
        world.expect(&peer, &[". 1:101(100) ack 1"]);
        world.pass_until_sent(ms(1_500));
        world.expect(&peer, &[". 1:101(100) ack 1"]);
        world.hear(&peer.seg(1, 101));
        world.send(100);
        world.expect(&peer, &["W. 101:201(100) ack 1"]);
        world.hear(&peer.seg(1, 201));
        world.send(100);
        world.expect(&peer, &[". 201:301(100) ack 1"]);
    }
}

#[test]
fn dctcp_acknowledges_marks_as_they_came() {
    for timestamp in [None, Some(7)] {
        let mut world = dctcp();
        let peer = agreed(&mut world, timestamp);
        world.hear(&peer.seg(1, 1).len(10));
        world.silent();
        world.hear(&peer.seg(11, 1).len(10).marked());
        world.expect(&peer, &[". 1 ack 11", "E. 1 ack 21"]);
        world.hear(&peer.seg(21, 1).len(10).marked());
        world.silent();
        world.send(100);
        world.expect(&peer, &["E. 1:101(100) ack 31"]);
        world.hear(&peer.seg(31, 101).len(10).marked());
        // The end of the marks: a CWR says nothing of it.
        let last = peer.seg(41, 101).len(10).marked().flags(".W");
        world.hear_all(&[last, peer.seg(51, 101).len(10)]);
        world.expect(&peer, &["E. 101 ack 51"]);
        world.pass(ms(50));
        world.expect(&peer, &[". 101 ack 61"]);
    }
}

#[test]
fn dctcp_shrinks_by_what_was_marked() {
    let mut world = dctcp();
    let peer = agreed(&mut world, None);
    let mut at = 1;
    // A window is sent, and acknowledged at once; answers how many segments the next one may have.
    let mut next = |segments: u32, flags| {
        world.send((segments * MSS) as usize);
        let sent = world.segments().len() as u32;
        at += segments * MSS;
        world.pass(ms(1));
        world.hear(&peer.seg(1, at).flags(flags));
        let told = world.told();
        let Some(&Told::Sent { window, .. }) = told.last() else { panic!("{told:?}") };
        assert_eq!(sent, segments);
        window / MSS
    };
    assert_eq!(next(10, ".E"), 5, "the first mark halves");
    let before = (0..40).fold(5, |segments, _| next(segments, "."));
    let after = next(before, ".E");
    assert!(before > 20 && after < before && after * 10 > before * 8, "{before} to {after}");
}

/// A time-out after a mark: slow start begins anew, whatever the marks of that window were.
#[test]
fn a_time_out_after_a_mark_grows_again() {
    for flags in [".", ".E"] {
        let mut world = World::new();
        let peer = agreed(&mut world, None);
        world.send(10 * MSS as usize);
        world.segments();
        world.hear(&peer.seg(1, 1 + MSS).flags(".E"));
        world.pass_until_sent(ms(1_500));
        assert_eq!(world.segments().len(), 1);
        world.hear(&peer.seg(1, 1 + 2 * MSS).flags(flags));
        assert_eq!(world.segments().len(), 2, "{flags}");
        world.hear(&peer.seg(1, 1 + 4 * MSS).flags(flags));
        assert!(world.segments().len() >= 3, "{flags}");
        world.hear(&peer.seg(1, 1 + 10 * MSS));
    }
}

/// RFC 3168 §6.1.2: a mark and a loss of the same window shrink it once.
#[test]
fn a_loss_beside_a_mark_costs_nothing_more() {
    let mut world = World::new();
    let (peer, _) = Peer::knock(&mut world, 5, Open { sack: true, ..open() });
    world.pass(ms(10));
    world.hear(&peer.seg(1, 1));
    world.told();
    world.send(10 * MSS as usize);
    world.segments();
    world.pass(ms(10));
    world.hear(&peer.seg(1, 1 + MSS).flags(".E"));
    world.hear(&peer.sack(1, 1 + MSS, &[(1 + 2 * MSS, 1 + 10 * MSS)]).flags(".E"));
    let lost = format!(". {}:{}(1460) ack 1", 1 + MSS, 1 + 2 * MSS);
    world.expect(&peer, &[&lost]);
    world.told();
    world.pass(ms(1));
    world.hear(&peer.seg(1, 1 + 10 * MSS));
    // CUBIC has kept 0.7 of ten segments.
    let told = world.told();
    let Some(&Told::Sent { window, .. }) = told.last() else { panic!("{told:?}") };
    assert_eq!((window / MSS, world.stats().tcp_fast_retransmits), (7, 1));
}

#[test]
fn a_cookie_brings_no_ecn_where_it_is_off() {
    let mut world = World::with(|config| (config.backlog, config.ecn) = (1, Ecn::Off));
    Peer::knock(&mut world, 4, Open::default());
    let (mut peer, _) = Peer::knock(&mut world, 5, Open { timestamp: Some(7), ..open() });
    // The peer echoes what was not sent: ECN.
    peer.timestamp = peer.timestamp.map(|(value, echo)| (value, echo | 1 << 6));
    world.hear(&peer.seg(1, 1));
    world.told();
    world.send(100);
    assert_eq!(codepoints(&world.segments()), [ECN_NOT_ECT]);
}
