//! The stack leaves: which peers are told and how, and that no buffer stays behind.

use domain::Cookie;
use stack::Ended;
use wire::{Endpoint, TcpFlags};

use crate::support::{Open, PEER_IP, Peer, Seg, Told, World, far, ms};

fn open(world: &mut World, port: u16) -> Peer {
    Peer::establish(world, port, Open::default())
}

fn close(world: &mut World) {
    let handle = world.handle();
    world.call(|calls| calls.close(handle).expect("room"));
}

/// Brings a connection into a state, without a word left to be heard.
type Bring = fn(&mut World, &Peer);

/// States from which the peer is told, and what is next in sequence then.
const TOLD: [(&str, Bring, &str); 5] = [
    ("ESTABLISHED", |_, _| (), "R. 1 ack 1"),
    ("CLOSE-WAIT", |world, peer| world.hear(&peer.seg(1, 1).flags("F.")), "R. 1 ack 2"),
    ("FIN-WAIT-1", |world, _| close(world), "R. 2 ack 1"),
    (
        "FIN-WAIT-2",
        |world, peer| {
            close(world);
            world.hear(&peer.seg(1, 2));
        },
        "R. 2 ack 1",
    ),
    ("ESTABLISHED, in flight", |world, _| world.send(100), "R. 101 ack 1"),
];

#[test]
fn whoever_waits_for_us_is_reset() {
    for (state, bring, expected) in TOLD {
        let mut world = World::new();
        let peer = open(&mut world, 5);
        bring(&mut world, &peer);
        world.frames_out();
        assert!(!world.withdraw(&[]), "{state}: one cycle is enough");
        world.expect(&peer, &[expected]);
        assert_eq!(world.stack.connections(), 0, "{state}");
        assert_eq!(world.stats().tcp_resets_out, 1);
        assert_eq!(world.close(), Ended { reset: 1, untold: 0 }, "{state}");
    }
}

/// RFC 9293 §3.10.5: in these states all is said, or nothing was.
#[test]
fn whoever_waits_for_nothing_is_left_in_peace() {
    let silent: [(&str, Bring); 3] = [
        ("CLOSING", |world, peer| {
            close(world);
            world.hear(&peer.seg(1, 1).flags("F."));
        }),
        ("LAST-ACK", |world, peer| {
            world.hear(&peer.seg(1, 1).flags("F."));
            close(world);
        }),
        ("TIME-WAIT", |world, peer| {
            close(world);
            world.hear(&peer.seg(1, 2).flags("F."));
        }),
    ];
    for (state, bring) in silent {
        let mut world = World::new();
        let peer = open(&mut world, 5);
        bring(&mut world, &peer);
        world.frames_out();
        assert_eq!(world.stack.connections(), 1, "{state}");
        assert!(!world.withdraw(&[]), "{state}");
        world.silent();
        assert_eq!(world.close(), Ended::default(), "{state}");
    }
}

#[test]
fn half_open_connections_end_as_they_should() {
    let mut world = World::new();
    let (peer, _) = Peer::knock(&mut world, 5, Open::default());
    assert!(!world.withdraw(&[]));
    world.expect(&peer, &["R. 1 ack 1"]);
    assert_eq!(world.close(), Ended { reset: 1, untold: 0 });

    // SYN-SENT: the peer has nothing that could be reset.
    world.call(|calls| calls.connect(Cookie(9), Endpoint::new(PEER_IP, 80)).expect("room"));
    world.frames_out();
    assert!(!world.withdraw(&[]));
    world.silent();
    assert_eq!(world.close(), Ended::default());
}

/// The connection is in LAST-ACK by our name, but its peer still waits for data and a FIN.
#[test]
fn a_fin_that_waits_behind_data_is_replaced_by_a_reset() {
    let mut world = World::new();
    let peer = open(&mut world, 5);
    world.send(10);
    world.hear(&peer.seg(1, 11).win(0).flags("F."));
    world.send(100);
    close(&mut world);
    world.frames_out();
    assert!(!world.withdraw(&[]));
    world.expect(&peer, &["R. 11 ack 2"]);
    assert_eq!(world.close(), Ended { reset: 1, untold: 0 });
}

#[test]
fn nothing_that_was_not_said_stays_behind() {
    let mut world = World::new();
    world.auto_done = false;
    let peer = open(&mut world, 5);
    // Sent, and more than the peer's window takes.
    world.send(10);
    world.hear(&peer.seg(1, 11).win(1_000));
    world.send(3_000);
    let sent: usize = world.segments().iter().map(|seg| seg.payload.len()).sum();
    assert_eq!(sent, 10, "segments wait for a window that they fit");
    // Held by the application, in its order and ahead of a gap.
    world.hear(&peer.seg(1, 11).win(1_000).len(300));
    world.hear(&peer.seg(1_000, 11).win(1_000).len(200));
    assert_eq!((world.stats().tcp_out_of_order, world.pool.kept()), (1, 2));
    world.frames_out();
    // And not told, as nobody has accepted.
    world.auto_accept = false;
    let (late, _) = Peer::knock(&mut world, 6, Open::default());
    world.hear(&late.seg(1, 1).len(400));
    world.frames_out();
    // Without time to say anything.
    assert_eq!(world.close(), Ended { reset: 0, untold: 2 });
    assert_eq!(world.pool.kept(), 0);
}

#[test]
fn frames_that_have_not_left_come_back() {
    let mut world = World::new();
    open(&mut world, 5);
    world.nic_takes = false;
    world.send(5_000);
    assert!(!world.stack.frames().is_empty());
    assert!(world.withdraw(&[]), "frames wait");
    // The connection itself has ended with its reset behind them.
    assert_eq!(world.close(), Ended { reset: 1, untold: 0 });
    world.nic_takes = true;
    // What the NIC reads comes back from there, and only then.
    world.nic_holds = true;
    open(&mut world, 6);
    world.send(1_000);
    assert_eq!(world.close(), Ended { reset: 0, untold: 1 });
    world.nic_completes();
}

#[test]
fn data_in_flight_goes_before_the_reset() {
    let mut world = World::new();
    let peer = open(&mut world, 5);
    world.nic_takes = false;
    world.send(100);
    world.nic_takes = true;
    assert!(!world.withdraw(&[]));
    world.expect(&peer, &[". 1:101(100) ack 1", "R. 101 ack 1"]);
    world.close();
}

/// A connection that has long been idle: its peer's link address is forgotten.
#[test]
fn a_forgotten_neighbour_is_asked_for_before_it_is_reset() {
    let mut world = World::new();
    let peer = open(&mut world, 5);
    world.pass(ms(70_000));
    world.auto_arp = false;
    assert!(world.withdraw(&[]), "its link address is asked for");
    let asked = world.frames_out();
    assert!(matches!(&asked[..], [out] if out.asks_for() == Some(PEER_IP)), "{asked:?}");
    assert!(world.withdraw(&[]), "still unknown");
    world.silent();
    world.now += ms(1);
    assert!(!world.withdraw(&[World::neighbor_answer(PEER_IP)]));
    world.expect(&peer, &["R. 1 ack 1"]);
    assert_eq!(world.close(), Ended { reset: 1, untold: 0 });
}

#[test]
fn a_neighbour_that_does_not_answer_is_not_waited_for() {
    let mut world = World::new();
    world.stays = true;
    open(&mut world, 5);
    world.pass(ms(70_000));
    world.auto_arp = false;
    // A segment of its own waits for the address, too.
    world.send(10);
    assert!(world.withdraw(&[]));
    assert_eq!(world.close(), Ended { reset: 0, untold: 1 });
    world.frames_out();
}

#[test]
fn a_peer_that_no_route_leads_to_is_not_let_in() {
    let mut world = World::new();
    let mut stranger = Peer::new(5, Open::default());
    stranger.here = Endpoint::new(far(7), 5);
    world.hear(&stranger.syn());
    world.silent();
    assert_eq!((world.stack.connections(), world.stats().tcp_syn_dropped), (0, 1));
}

#[test]
fn whoever_knocks_meanwhile_is_refused() {
    let mut world = World::new();
    world.withdraw(&[]);
    let late = Peer::new(7, Open::default());
    assert!(!world.withdraw(&[late.syn().frame()]));
    let answers = world.segments();
    let [refusal] = &answers[..] else { panic!("one answer: {answers:?}") };
    assert_eq!(refusal.flags, TcpFlags::RST | TcpFlags::ACK);
    assert_eq!(refusal.ack, late.iss + 1);
    assert_eq!(world.stack.connections(), 0);
    assert_eq!(world.told(), []);
    world.close();
}

/// The peer missed what was sent last, so our reset is not next in sequence: it asks (RFC 5961 §3.2).
#[test]
fn a_challenged_reset_is_repeated_where_the_peer_is() {
    let mut world = World::new();
    let peer = open(&mut world, 5);
    world.send(100);
    world.frames_out();
    assert!(!world.withdraw(&[]));
    world.expect(&peer, &["R. 101 ack 1"]);
    world.withdraw(&[peer.seg(1, 1).frame()]);
    world.expect(&peer, &["R 1"]);
    world.close();
}

#[test]
fn a_peer_that_resets_first_needs_no_answer() {
    let mut world = World::new();
    let (first, second) = (open(&mut world, 5), open(&mut world, 6));
    let reset = first.seg(1, 1).flags("R.").frame();
    assert!(!world.withdraw(&[reset]));
    world.expect(&second, &["R. 1 ack 1"]);
    assert_eq!(world.close(), Ended { reset: 1, untold: 0 });
}

#[test]
fn many_leave_in_portions_as_the_queue_has_room() {
    let mut world = World::sized(crate::support::config(), 4096, 16);
    let peers: Vec<Peer> = (0..200).map(|port| open(&mut world, 1_000 + port)).collect();
    world.told();
    let mut cycles = 1;
    let mut resets: Vec<Seg> = Vec::new();
    while world.withdraw(&[]) {
        cycles += 1;
        assert!(cycles < 100, "it goes on for ever");
        resets.extend(world.segments());
    }
    resets.extend(world.segments());
    assert!(cycles >= 200 / 16, "{cycles} cycles of 16 frames");
    let mut ports: Vec<u16> = resets.iter().map(|seg| seg.dst.port).collect();
    ports.sort_unstable();
    assert_eq!(ports, peers.iter().map(|peer| peer.here.port).collect::<Vec<_>>());
    assert!(resets.iter().all(|seg| seg.flags == TcpFlags::RST | TcpFlags::ACK));
    assert_eq!(world.close(), Ended { reset: 200, untold: 0 });
    assert_eq!(world.told(), Vec::<Told>::new(), "the application is gone");
}

/// All of the memory is in what was sent: the resets are made of it.
#[test]
fn without_free_memory_a_connection_pays_for_its_reset() {
    let mut world = World::sized(crate::support::config(), 64, 64);
    let peer = open(&mut world, 5);
    world.send(2_000);
    world.frames_out();
    let hoard: Vec<_> = std::iter::from_fn(|| world.pool.alloc().ok()).collect();
    assert_eq!(world.pool.available(), 0);
    assert!(!world.withdraw(&[]));
    world.expect(&peer, &["R. 2001 ack 1"]);
    hoard.into_iter().for_each(|mbuf| world.pool.free(mbuf));
    assert_eq!(world.close(), Ended { reset: 1, untold: 0 });
}
