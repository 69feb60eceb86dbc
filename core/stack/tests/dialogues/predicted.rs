//! Header prediction is a short way and no other way: what the stack sends and tells is the same, bit
//! for bit, where it is taken and where it is not.
//!
//! Two worlds live through the same dialogue. In one the event array is so small that prediction is
//! never sure of room, and every segment goes the long way.

use proptest::prelude::*;

use crate::support::{Open, Peer, Seg, Told, World, ms};

/// Room for the events of one packet, and not enough for the short way to be sure of it.
const SMALL: usize = 18;

/// What the two ends do.
#[derive(Clone, Debug)]
enum Act {
    /// The peer sends its next bytes, and acknowledges so many of those outstanding (in sixteenths).
    Data { len: usize, acks: u32 },
    /// The peer acknowledges so many (in sixteenths), and announces this window.
    Ack { acks: u32, window: u16 },
    /// The peer sends what it has sent before, and perhaps more. (No gaps: what fills one makes more
    /// events than the small array takes, in both worlds by the long way.)
    Again { back: u32, len: usize },
    /// The application sends.
    Send { len: usize },
    /// Milliseconds pass.
    Pass { millis: u64 },
}

fn act() -> impl Strategy<Value = Act> {
    prop_oneof![
        6 => (1..1400usize, 0..=16u32).prop_map(|(len, acks)| Act::Data { len, acks }),
        3 => (0..=16u32, prop::sample::select(vec![65_535u16, 65_535, 8_000, 500, 0]))
            .prop_map(|(acks, window)| Act::Ack { acks, window }),
        1 => (0..500u32, 1..600usize).prop_map(|(back, len)| Act::Again { back, len }),
        6 => (1..3000usize).prop_map(|len| Act::Send { len }),
        2 => (1..300u64).prop_map(|millis| Act::Pass { millis }),
    ]
}

/// One of the two worlds, with what its peer has seen.
struct Side {
    world: World,
    peer: Peer,
    /// Next sequence number of the peer, and all that the stack has sent, both relative.
    next: u32,
    seen: u32,
    acked: u32,
    clock: u32,
    /// What the stack sent and told, in order.
    log: Vec<String>,
}

impl Side {
    fn new(small: bool) -> Self {
        let mut world = World::new();
        let open = Open { timestamp: Some(1_000), ..Open::default() };
        let peer = Peer::establish(&mut world, 40_000, open);
        if small {
            world.shrink_events(SMALL);
        }
        let (next, seen, acked) = (1, 1, 1);
        Self { world, peer, next, seen, acked, clock: 1_000, log: Vec::new() }
    }

    fn segment(&mut self, seq: u32, acks: u32) -> Seg {
        self.acked += (self.seen - self.acked) * acks / 16;
        self.clock += 1;
        let echo = self.peer.timestamp.map_or(0, |(_, echo)| echo);
        self.peer.seg(seq, self.acked).ts(self.clock, echo)
    }

    fn act(&mut self, act: &Act) {
        match *act {
            Act::Data { len, acks } => {
                let segment = self.segment(self.next, acks).len(len);
                self.next += len as u32;
                self.world.hear(&segment);
            }
            Act::Ack { acks, window } => {
                let segment = self.segment(self.next, acks).win(window);
                self.world.hear(&segment);
            }
            Act::Again { back, len } => {
                let seq = self.next.saturating_sub(back).max(1);
                let segment = self.segment(seq, 0).len(len);
                self.next = self.next.max(seq + len as u32);
                self.world.hear(&segment);
            }
            Act::Send { len } => self.world.send(len),
            Act::Pass { millis } => self.world.pass(ms(millis)),
        }
        for segment in self.world.segments() {
            let end = (segment.seq - self.peer.irs) as u32 + segment.payload.len() as u32;
            self.seen = self.seen.max(end);
            if let (Some(stamp), Some((_, echo))) =
                (segment.options.timestamp, &mut self.peer.timestamp)
            {
                *echo = stamp.value;
            }
            self.log.push(format!("{segment:?}"));
        }
        for told in self.world.told() {
            // A window that grew without an acknowledgment is told in an event of its own on the long
            // way, and with the bytes on the short one.
            if !matches!(told, Told::Sent { bytes: 0, .. }) {
                self.log.push(format!("{told:?}"));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn the_short_way_leads_where_the_long_way_does(acts in prop::collection::vec(act(), 1..60)) {
        let (mut short, mut long) = (Side::new(false), Side::new(true));
        for act in &acts {
            short.act(act);
            long.act(act);
            let (a, b) = (short.log.split_off(0), long.log.split_off(0));
            prop_assert_eq!(a, b, "after {:?}", act);
        }
        prop_assert_eq!(short.world.stats(), long.world.stats());
    }
}

/// A window update that overtook a segment is newer than what that segment says (RFC 9293 §3.10.7.4: SND.WL1).
#[test]
fn a_late_segment_does_not_take_a_newer_window_back() {
    let mut world = World::new();
    let peer = Peer::establish(&mut world, 5, Open { timestamp: Some(5), ..Open::default() });
    world.hear(&peer.seg(101, 1).win(60_000));
    world.hear(&peer.seg(1, 1).len(100).win(0));
    world.received(0, 100);
    world.frames_out();
    world.send(1_000);
    world.expect(&peer, &[". 1:1001(1000) ack 101"]);
}
