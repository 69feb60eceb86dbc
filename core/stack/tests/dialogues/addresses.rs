//! Several addresses of one version.

use wire::Prefix;

use crate::support::{MORE_IPS, Open, PREFIX_BITS, Peer, Told, World, pattern};

/// What is said to the second address is answered from there to the peer, by the short way too.
#[test]
fn the_second_address_answers_with_timestamps() {
    let second = MORE_IPS[0];
    let mut world = World::with(|config| config.addresses.push(Prefix::new(second, PREFIX_BITS)));
    let mut peer = Peer::new(7, Open { timestamp: Some(1), ..Open::default() });
    peer.there.addr = second;
    world.hear(&peer.syn());
    let out = world.segments();
    let [answer] = &out[..] else { panic!("{out:?}") };
    assert_eq!((answer.src, answer.dst), (peer.there, peer.here));
    peer.irs = answer.seq;
    peer.timestamp = Some((2, answer.options.timestamp.expect("agreed").value));
    world.hear(&peer.seg(1, 1));
    assert!(matches!(world.told()[..], [Told::Knock { peer: from, .. }] if from == peer.here));
    for part in 0..3u32 {
        world.hear(&peer.seg(1 + 10 * part, 1 + 3 * part).len(10));
        assert!(matches!(&world.told()[..], [Told::Recv { .. }, ..] | [Told::Sent { .. }, ..]));
        let handle = world.handle();
        let bytes = pattern(3 * part as usize, 3);
        world.call(|calls| calls.sendv(handle, &[&bytes]).expect("room"));
        let out = world.segments();
        let [answer] = &out[..] else { panic!("{out:?}") };
        assert_eq!((answer.src, answer.dst), (peer.there, peer.here));
    }
}
