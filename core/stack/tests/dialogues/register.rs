//! Which connections there are is written down for whoever comes after.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use domain::{Cookie, LocalEndpoint};
use stack::{Ended, PeerRegister};
use wire::{Endpoint, Prefix};

use crate::support::{MORE_IPS, Open, PEER_IP, PORT, PREFIX_BITS, Peer, World, config, ms};

/// Places and who is there. Each is taken when nobody is, and left by who is there.
#[derive(Debug, Default)]
struct Book(Mutex<BTreeMap<(u16, u32), (Endpoint, LocalEndpoint)>>);

impl PeerRegister for Book {
    fn opened(&self, group: u16, slot: u32, local: LocalEndpoint, remote: Endpoint) {
        let before = self.0.lock().expect("no panic").insert((group, slot), (remote, local));
        assert_eq!(before, None, "two connections in one place");
    }

    fn closed(&self, group: u16, slot: u32) {
        let left = self.0.lock().expect("no panic").remove(&(group, slot));
        assert!(left.is_some(), "nobody was there");
    }
}

impl Book {
    /// The remote and local ports of those who are there, in order.
    fn ports(&self) -> Vec<(u16, u16)> {
        let ends = self.0.lock().expect("no panic");
        let mut ports: Vec<_> =
            ends.values().map(|(remote, local)| (remote.port, local.port())).collect();
        ports.sort_unstable();
        ports
    }
}

fn world() -> (World, Arc<Book>) {
    let book = Arc::new(Book::default());
    let mut config = config();
    (config.max_connections, config.syn_retries) = (4, 1);
    (World::registered(config, book.clone()), book)
}

/// From the last step of its handshake, or its own SYN, to the end of TIME-WAIT, wherever its flow group is.
#[test]
fn a_connection_stands_there_as_long_as_it_lives() {
    let (mut world, book) = world();
    let (half, _) = Peer::knock(&mut world, 1, Open::default());
    assert_eq!(book.ports(), [], "half open");
    world.hear(&half.seg(1, 1));
    world.told();
    let reset = Peer::establish(&mut world, 2, Open::default());
    let closing = Peer::establish(&mut world, 3, Open::default());
    let handle = world.handle();
    let remote = Endpoint::new(PEER_IP, 9_000);
    world.call(|calls| calls.connect_from(Cookie(7), 81, remote).expect("room"));
    // One too many is nowhere.
    world.hear(&Peer::new(4, Open::default()).syn());
    assert_eq!(book.ports(), [(1, PORT), (2, PORT), (3, PORT), (9_000, 81)]);
    for (remote, _) in book.0.lock().expect("no panic").values() {
        assert_eq!(remote.addr, PEER_IP);
    }
    world.hear(&half.seg(1, 1).flags("R"));
    world.hear(&reset.seg(1, 1).flags("R"));
    assert_eq!(book.ports(), [(3, PORT), (9_000, 81)]);
    world.pass(ms(10_000));
    assert_eq!(book.ports(), [(3, PORT)], "nobody answered the SYN");
    world.call(|calls| calls.close(handle).expect("room"));
    world.hear(&closing.seg(1, 2).flags("F."));
    assert_eq!(book.ports(), [(3, PORT)], "TIME-WAIT");
    world.pass(ms(61_000));
    assert_eq!((book.ports(), world.stack.connections()), (vec![], 0));
    // Places are used again.
    world.frames_out();
    world.told();
    Peer::establish(&mut world, 5, Open::default());
    assert_eq!(book.ports(), [(5, PORT)]);
    world.frames_out();
}

/// A connection's own address, too: the peer obeys a reset from there alone.
#[test]
fn own_addresses_are_written_down() {
    let book = Arc::new(Book::default());
    let mut config = config();
    config.addresses.push(Prefix::new(MORE_IPS[0], PREFIX_BITS));
    let mut world = World::registered(config, book.clone());
    let mut second = Peer::new(2, Open::default());
    second.there.addr = MORE_IPS[0];
    Peer::establish(&mut world, 1, Open::default());
    world.hear(&second.syn());
    second.irs = world.segments()[0].seq;
    world.hear(&second.seg(1, 1));
    let remote = Endpoint::new(PEER_IP, 9_000);
    let from = LocalEndpoint::new(1, 81);
    world.call(|calls| calls.connect_from(Cookie(7), from, remote).expect("room"));
    let ends = book.0.lock().expect("no panic").clone().into_values();
    let mut locals: Vec<_> = ends.map(|(remote, local)| (remote.port, local)).collect();
    locals.sort_unstable_by_key(|(remote, _)| *remote);
    let [first, second] = [0, 1].map(|position| LocalEndpoint::new(position, PORT));
    assert_eq!(locals, [(1, first), (2, second), (9_000, from)]);
    world.frames_out();
}

/// Whoever was told that it is over is not there any more; whoever was not, is.
#[test]
fn a_stack_that_ends_leaves_those_who_were_not_told() {
    let (mut world, book) = world();
    for port in [1, 2] {
        Peer::establish(&mut world, port, Open::default());
    }
    assert!(!world.withdraw(&[]), "one cycle is enough");
    assert_eq!((world.close(), book.ports()), (Ended { reset: 2, untold: 0 }, vec![]));
    world.frames_out();
    for port in [3, 4] {
        Peer::establish(&mut world, port, Open::default());
    }
    assert_eq!(world.close(), Ended { reset: 0, untold: 2 });
    assert_eq!(book.ports(), [(3, PORT), (4, PORT)]);
    // What a fresh stack does with such places is not the register's affair: it begins with an empty one.
    book.0.lock().expect("no panic").clear();
}
