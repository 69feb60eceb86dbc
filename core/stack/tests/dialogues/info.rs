//! What the application can learn of a connection.

use domain::{CallError, CallKind, ConnectionInfo, Handle};

use crate::support::{MTU, Open, Peer, Told, World, ms};

fn inform(world: &mut World) -> ConnectionInfo {
    let handle = world.handle();
    world.call(|calls| calls.inform(handle).expect("room"));
    match world.told()[..] {
        [Told::Info { cookie: 5, info }] => info,
        ref told => panic!("{told:?}"),
    }
}

#[test]
fn a_connection_is_described_as_it_goes_on() {
    let mut world = World::new();
    world.auto_done = false;
    let open = Open { timestamp: Some(7), sack: true, window_scale: Some(2), ..Open::default() };
    let peer = Peer::establish(&mut world, 5, open);
    let fresh = inform(&mut world);
    assert_eq!((fresh.state, fresh.options, fresh.snd_wscale), (1, 1 | 2 | 4, 2));
    assert_eq!((fresh.snd_mss_bytes, fresh.path_mtu_bytes), (1448, u64::from(MTU)));
    assert_eq!((fresh.in_flight_bytes, fresh.in_flight_segments, fresh.held_bytes), (0, 0, 0));
    assert_eq!(fresh.ssthresh_bytes, u64::from(u32::MAX));
    world.hear(&peer.seg(1, 1).len(100));
    world.told();
    world.send(3_000);
    let sending = inform(&mut world);
    assert_eq!((sending.in_flight_bytes, sending.in_flight_segments), (3_000, 3));
    assert_eq!((sending.held_bytes, sending.unsent_bytes, sending.recovery), (100, 0, 0));
    world.pass(ms(20_000));
    let late = inform(&mut world);
    assert!(late.backoff > 0 && late.retries > 0 && late.recovery == 2, "{late:?}");
    assert!(late.silence_ns >= 19_000_000_000 && late.ssthresh_bytes < 1 << 20, "{late:?}");
    world.frames_out();
    world.hear(&peer.seg(101, 3_001).flags("F."));
    world.told();
    assert_eq!(inform(&mut world).state, 8);
    world.frames_out();
}

#[test]
fn what_the_peer_has_out_of_order_is_counted() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open { sack: true, ..Open::default() });
    world.send(4 * 1460);
    world.hear(&peer.sack(1, 1, &[(1461, 2921)]));
    let info = inform(&mut world);
    assert_eq!((info.sacked_bytes, info.sacked_segments, info.in_flight_segments), (1460, 1, 4));
    assert_eq!((info.in_flight_bytes, info.path_mtu_bytes), (4 * 1460, u64::from(MTU)));
    world.frames_out();
}

#[test]
fn of_a_connection_that_has_ended_nothing_is_known() {
    let mut world = World::new();
    Peer::establish(&mut world, 5, Open::default());
    let stale = Handle::from_bits(world.handle().to_bits() ^ 1 << 30);
    world.call(|calls| calls.inform(stale).expect("room"));
    let (call, error) = (CallKind::Inform, CallError::BadHandle);
    assert_eq!(world.told(), [Told::Failed { call, error }]);
}

/// Where the batch of events is full the answer does not come late: its bytes would wait in packet memory.
#[test]
fn an_answer_that_has_no_room_fails() {
    let mut world = World::new();
    Peer::establish(&mut world, 5, Open::default());
    world.shrink_events(1);
    let handle = world.handle();
    world.call(|calls| {
        calls.inform(handle).expect("room");
        calls.inform(handle).expect("room");
    });
    let told = world.told();
    assert!(matches!(told[0], Told::Info { .. }));
    assert_eq!(told[1..], [Told::Failed { call: CallKind::Inform, error: CallError::Busy }]);
}
