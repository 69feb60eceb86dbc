//! What moving a flow group costs by itself, with many connections.
//!
//! ```text
//! cargo run --release -p stack --example moving_cost
//! ```

/// The groups move when the measurement moves them.
const WANDERS: bool = false;
/// Whether both ends speak IPv6.
const V6: bool = false;
const OFFLOADS: bool = false;

#[path = "../tests/dialogues/support/mod.rs"]
#[allow(dead_code, unused_imports, reason = "the dialogues use more of it")]
mod support;

use std::time::Instant as Wall;

use domain::EventArray;
use stack::{GroupSet, Stack};
use wire::MacAddr;

use support::{Open, Peer, World, config, host, ms};

const CONNECTIONS: u32 = 500_000;
const PER_ADDRESS: u32 = 5_000;
const ROUNDS: u32 = 20;

/// Moves `set` there and back, and answers what one way takes, in microseconds: sealing and packing, taking
/// in.
fn there_and_back(world: &mut World, other: &mut Stack, set: GroupSet) -> [f64; 2] {
    let mut events = EventArray::new(64);
    let [mut out_ns, mut in_ns] = [0, 0];
    let World { now, stack, pool, .. } = world;
    for round in 0..2 * ROUNDS {
        let (from, to) =
            if round % 2 == 0 { (&mut *stack, &mut *other) } else { (&mut *other, &mut *stack) };
        let began = Wall::now();
        from.seal(set);
        let packed = from.pack(set, pool).expect("the device has nothing");
        out_ns += began.elapsed().as_nanos();
        let began = Wall::now();
        packed.into_iter().for_each(|group| to.take_in(group, *now, pool, &mut events));
        in_ns += began.elapsed().as_nanos();
    }
    [out_ns, in_ns].map(|ns| ns as f64 / f64::from(2 * ROUNDS) / 1e3)
}

fn report(world: &mut World, other: &mut Stack, state: &str) {
    for groups in [1, 16, 64] {
        let set: GroupSet = (0..groups).collect();
        let [out_us, in_us] = there_and_back(world, other, set);
        println!("{state}, {groups:2} groups: out {out_us:.1} us, in {in_us:.1} us");
    }
}

fn main() {
    let mut settings = config();
    settings.max_connections = CONNECTIONS + 64;
    let mut world = World::sized(settings, 4_096, 1_024);
    world.stays = true;
    for number in 0..CONNECTIONS {
        let address = host((3 + number / PER_ADDRESS) as u8);
        let shared = world.stack.shared();
        shared.neighbors.learn(address, MacAddr([2, 0, 0, 0, 0, 2]), world.now);
        let mut peer = Peer::new(1_000 + (number % PER_ADDRESS) as u16, Open::default());
        peer.here.addr = address;
        world.hear(&peer.syn());
        peer.irs = world.segments()[0].seq;
        world.hear(&peer.seg(1, 1));
    }
    world.told();
    let mut other = Stack::new(world.stack.shared().clone(), 9, world.now, 64);
    println!("{} connections in 128 groups, {} per group", CONNECTIONS, CONNECTIONS / 128);
    report(&mut world, &mut other, "all with a timer of their handshake");
    world.pass(ms(10_000));
    report(&mut world, &mut other, "all idle");
    assert_eq!(world.stack.connections(), CONNECTIONS, "all came back");
    // Ending so many connections one by one, as a world does at its end, is not what is measured.
    std::mem::forget(world);
}
