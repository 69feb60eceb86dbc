//! Reassembly against a map of bytes: a script of bytes becomes fragments of a few datagrams, in any order, again, over each
//! other, with other bytes, and time; a model that knows single bytes and the fragments that came says what must become of them.
//!
//! The fuzzer runs the same interpreter.

use std::ops::Range;

use clock::{Duration, Instant};
use wire::{Endpoint, UdpView};

use crate::support::{Out, PEER_IP, STACK_IP, Told, UDP_PORT, World, fragment, pattern, udp_frame};

/// Bytes behind the IP header that fit a chunk.
const MOST: usize = 1_856;
/// Data of each datagram, and the size of the fragments that its sender makes.
const DATAGRAMS: [(usize, usize); 4] = [(20, 8), (200, 48), (1_000, 344), (1_848, 1_480)];
const LIFE: Duration = Duration::from_secs(60);
/// Bytes of a script that are carried out.
const MAX_SCRIPT: usize = 2_000;

/// What came of one datagram.
#[derive(Default)]
struct Model {
    begun: Option<Instant>,
    bytes: Vec<Option<u8>>,
    fragments: Vec<(Range<usize>, bool)>,
    total: Option<usize>,
    is_refused: bool,
}

impl Model {
    /// A fragment came. Answers the bytes of the datagram where it is whole.
    fn hear(
        &mut self,
        range: Range<usize>,
        bytes: &[u8],
        more: bool,
        now: Instant,
    ) -> Option<Vec<u8>> {
        self.begun.get_or_insert(now);
        self.bytes.resize(MOST, None);
        if self.is_refused {
            return None;
        }
        let has =
            |model: &Self, range: Range<usize>| model.bytes[range].iter().any(Option::is_some);
        if range.end > MOST {
            self.is_refused = true;
            return None;
        }
        if has(self, range.clone()) {
            let came =
                self.bytes[range.clone()].iter().copied().eq(bytes.iter().map(|&byte| Some(byte)));
            self.is_refused = !came || !self.fragments.contains(&(range, more));
            return None;
        }
        let two_ends = !more && self.total.is_some();
        let beyond = self.total.is_some_and(|total| range.end > total);
        if two_ends || beyond || !more && has(self, range.end..MOST) {
            self.is_refused = true;
            return None;
        }
        for (at, &byte) in range.clone().zip(bytes) {
            self.bytes[at] = Some(byte);
        }
        if !more {
            self.total = Some(range.end);
        }
        self.fragments.push((range, more));
        self.bytes[..self.total?].iter().copied().collect()
    }

    /// Time has passed. Answers whether its sender hears of it.
    fn pass(&mut self, now: Instant) -> bool {
        if self.begun.is_none_or(|begun| now.since(begun) < LIFE) {
            return false;
        }
        let Self { bytes, is_refused, .. } = core::mem::take(self);
        !is_refused && bytes[0].is_some()
    }
}

/// What a script does.
struct Run {
    world: World,
    models: [Model; DATAGRAMS.len()],
    /// As they are sent.
    wholes: Vec<Vec<u8>>,
    refused: u64,
    reassembled: u64,
}

/// Carries out a script. Panics where the stack and the model differ.
pub fn run(script: &[u8]) {
    let mut world = World::new();
    world.stays = true;
    let from = Endpoint::new(PEER_IP, 9);
    let whole = |(len, _): &(usize, usize)| udp_frame(from, UDP_PORT, &pattern(0, *len));
    let wholes = DATAGRAMS.iter().map(whole).collect();
    let models = core::array::from_fn(|_| Model::default());
    let mut run = Run { world, models, wholes, refused: 0, reassembled: 0 };
    for step in script[..script.len().min(MAX_SCRIPT)].chunks_exact(4) {
        run.step([step[0], step[1], step[2], step[3]]);
    }
    let stats = run.world.stats();
    let refused = stats.reassembly_refused + stats.reassembly_too_large;
    assert_eq!((stats.reassembled, refused), (run.reassembled, run.refused));
}

impl Run {
    fn step(&mut self, [kind, which, a, b]: [u8; 4]) {
        let which = usize::from(which) % DATAGRAMS.len();
        let (len, size) = DATAGRAMS[which];
        let len = len + 8;
        let number = usize::from(a) % len.div_ceil(size);
        let usual = number * size..len.min((number + 1) * size);
        match kind {
            // As its sender sends it.
            0..=190 => self.fragment(which, usual.clone(), usual.end < len, 0),
            // With other bytes, or as another one.
            191..=200 => self.fragment(which, usual.clone(), usual.end < len, b),
            201..=210 => self.fragment(which, usual.clone(), usual.end == len, 0),
            211..=245 => {
                let begin = (usize::from(a) * 8) % (MOST + 16);
                let blocks = 1 + usize::from(b) % 64;
                let more = kind % 2 == 0;
                let odd = if more { 0 } else { usize::from(kind) % 8 };
                self.fragment(which, begin..begin + blocks * 8 - odd, more, 0);
            }
            _ => self.pass(Duration::from_secs(25 * u64::from(a % 4))),
        }
    }

    fn fragment(&mut self, which: usize, range: Range<usize>, more: bool, flaw: u8) {
        let more = more && range.len().is_multiple_of(8);
        let mut frame = fragment(&self.wholes[which], which as u32, range.clone(), more);
        *frame.last_mut().expect("bytes") ^= flaw;
        let bytes = frame[frame.len() - range.len()..].to_vec();
        let is_atomic = range.start == 0 && !more;
        let model = &mut self.models[which];
        let (was, begins) = (model.is_refused, range.start == 0);
        // The header of UDP has to be there.
        if is_atomic || crate::V6 && begins && range.len() < 8 {
            self.world.hear_frames(&[frame]);
            self.world.told();
            self.world.frames_out();
            return;
        }
        let whole = model.hear(range, &bytes, more, self.world.now);
        self.refused += u64::from(model.is_refused && !was);
        if whole.is_some() {
            *model = Model::default();
            self.reassembled += 1;
        }
        let bad = self.world.stats().bad_checksum + self.world.stats().malformed;
        self.world.hear_frames(&[frame]);
        let told = self.world.told();
        let Some(whole) = whole else { return assert_eq!(told, []) };
        // Two wrong bytes may make up for each other in the checksum.
        let udp = UdpView::parse(&whole).ok();
        let data =
            udp.filter(|udp| udp.verify_checksum(PEER_IP, STACK_IP)).map(|udp| udp.payload());
        let stats = self.world.stats();
        match &told[..] {
            [Told::Datagram { data: found, .. }] => assert_eq!(Some(&found[..]), data),
            [] => assert!(data.is_none() && stats.bad_checksum + stats.malformed == bad + 1),
            other => panic!("{other:?}"),
        }
    }

    fn pass(&mut self, time: Duration) {
        self.world.pass(time);
        let now = self.world.now;
        let reports = self.models.iter_mut().filter_map(|model| model.pass(now).then_some(()));
        let expected = reports.count();
        let out = self.world.frames_out();
        assert!(out.iter().all(|out| matches!(out, Out::Icmp { .. } | Out::Icmpv6 { .. })));
        assert_eq!(out.len(), expected);
    }
}
