//! `again`: the application has itself told of a connection for which nothing came.

use domain::{Cookie, DeadReason, Handle};

use crate::support::{Open, Peer, Told, World};

fn open(world: &mut World, port: u16) -> (Peer, Handle) {
    let peer = Peer::establish(world, port, Open::default());
    (peer, world.handle())
}

#[test]
fn each_connection_is_told_of_once_in_the_next_batch() {
    let mut world = World::new();
    world.stays = true;
    let ((peer, a), (_, b)) = (open(&mut world, 5), open(&mut world, 6));
    let window = world.stack.window(a);
    world.call(|calls| {
        for _ in 0..3 {
            calls.again(a);
            calls.again(b);
            calls.again(b);
        }
        calls.sendv(a, &[&[0, 1, 2]]).expect("room");
    });
    // The window is that at the telling, behind what was sent after it was asked for.
    let (first, second) =
        (Told::Again { cookie: 5, window: window - 3 }, Told::Again { cookie: 6, window });
    assert_eq!(world.told(), [first, second]);
    world.expect(&peer, &[". 1:4(3) ack 1"]);
    world.silent();
    // And once more only if asked.
    world.call(|calls| calls.again(b));
    assert_eq!(world.told(), [Told::Again { cookie: 6, window }]);
    world.call(|_| ());
    assert_eq!(world.told(), []);
}

#[test]
fn it_has_room_when_the_array_is_full() {
    let mut world = World::new();
    let (_, handle) = open(&mut world, 5);
    world.call(|calls| {
        while calls.room() > 0 {
            calls.recv_done(handle, 0).expect("room");
        }
        calls.again(handle);
        assert_eq!(calls.room(), 0);
        assert_eq!(calls.close(handle), Err(domain::Full));
    });
    assert!(matches!(world.told()[..], [Told::Again { cookie: 5, .. }]));
}

#[test]
fn one_that_knocked_knocks_again_until_it_is_answered() {
    let mut world = World::new();
    world.auto_accept = false;
    let (peer, handle) = open(&mut world, 5);
    for _ in 0..2 {
        world.call(|calls| calls.again(handle));
        let told = world.told();
        let [Told::Knock { peer: who, window }] = told[..] else { panic!("{told:?}") };
        assert_eq!((who, window), (peer.here, world.stack.window(handle)));
    }
    world.call(|calls| {
        calls.again(handle);
        calls.accept(handle, Cookie(8)).expect("room");
    });
    assert!(matches!(world.told()[..], [Told::Again { cookie: 8, .. }]));
}

#[test]
fn connections_that_are_not_there_are_not_told_of() {
    let mut world = World::new();
    let (peer, handle) = open(&mut world, 5);
    let forged = (0..64).map(|bit| Handle::from_bits(handle.to_bits() ^ 1 << bit));
    world.call(|calls| forged.for_each(|one| calls.again(one)));
    assert_eq!(world.told(), []);
    // It ends in the batch that asks for it.
    world.call(|calls| {
        calls.again(handle);
        calls.abort(handle).expect("room");
    });
    assert_eq!(world.told(), [Told::Dead { cookie: 5, reason: DeadReason::Aborted }]);
    world.call(|calls| calls.again(handle));
    assert_eq!(world.told(), []);
    world.expect(&peer, &["R. 1 ack 1"]);
    // The slot's next connection: half open, its handle can be guessed, and nobody was told of it.
    let (peer, _) = Peer::knock(&mut world, 5, Open::default());
    let guess = Handle::new(handle.group(), handle.slot(), handle.generation() + 1);
    world.call(|calls| calls.again(guess));
    assert_eq!(world.told(), []);
    world.hear(&peer.seg(1, 1));
    assert_eq!((world.told().len(), world.handle()), (1, guess));
}

#[test]
fn those_that_ask_for_ever_do_not_keep_packets_out() {
    const CONNECTIONS: u16 = 100;
    let mut world = World::new();
    world.stays = true;
    let peers: Vec<_> = (0..CONNECTIONS).map(|number| open(&mut world, 1_000 + number)).collect();
    world.shrink_events(64);
    let frame = peers[0].0.seg(1, 1).len(10).frame();
    let ask = |calls: &mut domain::Calls<'_>| {
        peers.iter().for_each(|&(_, handle)| calls.again(handle));
    };
    world.cycle(&[], ask);
    world.cycle(&[frame], ask);
    let told = world.told();
    let bytes = |told: &&Told| matches!(told, Told::Recv { cookie: 1_000, .. });
    assert_eq!((told.iter().filter(bytes).count(), told.len()), (1, 33));
    // Everyone has a turn, one after the other.
    for _ in 0..3 {
        world.cycle(&[], ask);
    }
    let mut told: Vec<u64> = told
        .into_iter()
        .chain(world.told())
        .filter_map(|told| match told {
            Told::Again { cookie, .. } => Some(cookie),
            _ => None,
        })
        .collect();
    told.truncate(CONNECTIONS as usize);
    assert!(told.iter().copied().eq(1_000..1_000 + CONNECTIONS as u64), "{told:?}");
}
