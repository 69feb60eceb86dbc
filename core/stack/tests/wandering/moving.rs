//! What only a move does.

use domain::{ConnectError, Cookie};
use mem::{Pool, Region};
use stack::{GroupSet, Shared};

use crate::support::{Open, Peer, Told, World, ms, near, pattern};

fn of(world: &World) -> GroupSet {
    GroupSet::one(world.handle().group())
}

/// Frames of a connection that moves are still with the device of the core that it leaves: what it has sent
/// moves in a chunk of its own, and comes back to the pools once each.
#[test]
fn what_the_device_still_reads_stays_with_it() {
    let mut world = World::new();
    world.stays = true;
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.nic_holds = true;
    world.send(1_000);
    world.send(500);
    world.expect(&peer, &[". 1:1001(1000) ack 1", ". 1001:1501(500) ack 1"]);
    world.wander();
    assert_eq!(world.stats().tx_payload_copies, 2);
    // The device reads what was sent first, while the other core sends it again.
    near(world.pass_until_sent(ms(1_000)), 200);
    world.expect(&peer, &[". 1:1001(1000) ack 1"]);
    world.nic_completes();
    world.hear(&peer.seg(1, 1_501));
    assert_eq!(world.told(), [Told::Sent { cookie: 5, bytes: 1_500, window: 13_100 }]);
}

/// Without memory for that, nothing has happened.
#[test]
fn without_memory_a_group_stays() {
    let mut world = World::new();
    world.stays = true;
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.nic_holds = true;
    world.send(1_000);
    world.frames_out();
    let mut hoard = Vec::new();
    while let Ok(mbuf) = world.pool.alloc() {
        hoard.push(mbuf);
    }
    assert!(!world.wander());
    assert_eq!((world.stack.here().len(), world.stack.sealed()), (128, GroupSet::NONE));
    hoard.into_iter().for_each(|mbuf| world.pool.free(mbuf));
    world.hear(&peer.seg(1, 1_001));
    assert!(world.wander());
}

/// A port of one's own choice decides the flow group: where that is at home elsewhere, it cannot be had here.
#[test]
fn a_given_port_is_only_had_where_its_group_is_at_home() {
    let mut world = World::new();
    world.stays = true;
    let peer = Peer::establish(&mut world, 5, Open::default());
    let set = of(&world);
    world.hear(&peer.seg(1, 1).flags("R"));
    world.told();
    let ask = |world: &mut World| {
        world.call(|calls| calls.connect_from(Cookie(9), 80, peer.here).expect("room"));
    };
    let World { now, stack, pool, .. } = &mut world;
    stack.seal(set);
    let packed = stack.pack(set, pool).expect("nothing is with the device").remove(0);
    let mut events = domain::EventArray::new(64);
    let mut other = stack::Stack::new(stack.shared().clone(), 9, *now, 64);
    other.take_in(packed, *now, pool, &mut events);
    ask(&mut world);
    world.silent();
    let error = ConnectError::NoPort;
    assert_eq!(world.told(), [Told::ConnectFailed { cookie: 9, error }]);
    let World { now, stack, pool, .. } = &mut world;
    other.seal(set);
    let packed = other.pack(set, pool).expect("nothing is with the device").remove(0);
    stack.take_in(packed, *now, pool, &mut events);
    ask(&mut world);
    let [syn] = &world.segments()[..] else { panic!("one SYN") };
    assert_eq!((syn.src, syn.dst), (peer.there, peer.here));
}

/// A core counts what its own connections keep.
#[test]
fn what_is_kept_is_counted_where_it_is() {
    let mut world = World::new();
    world.stays = true;
    world.auto_done = false;
    let peer = Peer::establish(&mut world, 5, Open::default());
    world.hear(&peer.seg(1, 1).len(100));
    world.hear(&peer.seg(201, 1).len(100));
    assert_eq!(world.pool.kept(), 2);
    let set = of(&world);
    let World { now, stack, pool, .. } = &mut world;
    let mut there = Pool::new(&Region::heap(8), 8);
    stack.seal(set);
    assert_eq!(pool.kept(), 2);
    let mut packed = stack.pack(set, pool).expect("nothing is with the device");
    assert_eq!((packed.len(), pool.kept()), (1, 0));
    let packed = packed.remove(0);
    assert_eq!((packed.group(), packed.connections()), (set.iter().next().expect("one"), 1));
    let mut events = domain::EventArray::new(64);
    let mut other = stack::Stack::new(stack.shared().clone(), 9, *now, 64);
    other.take_in(packed, *now, &mut there, &mut events);
    assert_eq!((there.kept(), other.connections(), stack.connections()), (2, 1, 0));
    // It goes back, and all of its memory to where it is from.
    other.seal(set);
    let mut packed = other.pack(set, &mut there).expect("nothing is with the device");
    assert_eq!(there.kept(), 0);
    assert_eq!(packed.remove(0).discard(pool), 1, "its peer was not told");
    assert_eq!((pool.kept(), other.connections()), (0, 0));
    world.handles.clear();
}

/// Calls on a connection that is not here are nobody's mistake: they are for its home.
#[test]
fn calls_find_the_home_of_a_connection() {
    let mut world = World::new();
    world.stays = true;
    let peer = Peer::establish(&mut world, 5, Open::default());
    let (set, handle) = (of(&world), world.handle());
    let World { now, stack, pool, .. } = &mut world;
    stack.seal(set);
    let packed = stack.pack(set, pool).expect("nothing is with the device");
    let now = *now;
    world.call(|calls| {
        calls.sendv(handle, &[&pattern(0, 10)]).expect("room");
        calls.close(handle).expect("room");
    });
    assert_eq!((world.told(), world.stack.has_elsewhere()), (vec![], true));
    world.silent();
    let mut calls = world.stack.take_elsewhere(stack::Elsewhere::default());
    assert_eq!((calls.records.len(), calls.payloads.len()), (2, 1));
    let mut events = domain::EventArray::new(64);
    let World { stack, pool, .. } = &mut world;
    packed.into_iter().for_each(|packed| stack.take_in(packed, now, pool, &mut events));
    stack.execute_carried(now, &mut calls, pool, &mut events);
    assert!(calls.is_empty() && events.is_empty());
    world.call(|_| ());
    world.expect(&peer, &[". 1:11(10) ack 1", "F. 11 ack 1"]);
}

/// A packet of a group that is on its way here is for this core, and nobody can process it yet.
#[test]
fn a_packet_that_is_ahead_of_its_group_is_handed_out() {
    let mut world = World::new();
    world.stays = true;
    let peer = Peer::establish(&mut world, 5, Open::default());
    let set = of(&world);
    let World { now, stack, pool, .. } = &mut world;
    stack.seal(set);
    let mut mbuf = pool.alloc().expect("memory");
    mbuf.append(&peer.seg(1, 1).len(10).frame()).expect("room");
    let (mut frames, mut away) = (vec![mbuf], Vec::new());
    let mut events = domain::EventArray::new(64);
    stack.input(*now, &mut frames, pool, &mut events, |to, mbuf, pool| {
        away.push((to.home, to.group));
        pool.free(mbuf);
    });
    assert_eq!(away, [(0, set.iter().next().expect("one"))]);
    assert!(events.is_empty());
    stack.unseal(set, *now, pool, &mut events);
    let shared: &Shared = stack.shared();
    assert_eq!(shared.home_of(away[0].1), 0);
}
