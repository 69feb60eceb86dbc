//! The injector does what it is told, at the rate that it is told, and loses no chunk.

use super::*;
use crate::loopback::{LoopbackConfig, LoopbackNic, pair};
use mem::Region;
use proptest::prelude::*;

struct Rig {
    nic: FaultNic<LoopbackNic>,
    far: LoopbackNic,
    pool: Pool,
}

const CHUNKS: usize = 1024;

fn rig(seed: u64, receive: Faults, transmit: Faults) -> Rig {
    let (near, far) = pair(LoopbackConfig::default());
    let nic = FaultNic::new(near, seed, receive, transmit).expect("probabilities");
    Rig { nic, far, pool: Pool::new(&Region::heap(CHUNKS as u32), CHUNKS) }
}

impl Rig {
    fn frame(&mut self, number: u32) -> TxFrame {
        let mut mbuf = self.pool.alloc().expect("a chunk");
        mbuf.append(&[0xaa; 60]).expect("fits");
        mbuf.bytes_mut()[..4].copy_from_slice(&number.to_be_bytes());
        mbuf.into_tx()
    }

    /// Sends through the injector and answers what the far end sees now.
    fn send(&mut self, now: Instant, numbers: std::ops::Range<u32>) -> Vec<Vec<u8>> {
        let mut frames: Vec<_> = numbers.map(|number| self.frame(number)).collect();
        self.nic.transmit(now, &mut self.pool, &mut frames);
        assert!(frames.is_empty());
        let mut out = Vec::new();
        self.far.receive(now, &mut self.pool, &mut out, usize::MAX);
        self.nic.reclaim(&mut self.pool);
        self.bytes(out)
    }

    /// Sends from the far end and answers what comes out of the injector now.
    fn deliver(&mut self, now: Instant, numbers: std::ops::Range<u32>) -> Vec<Vec<u8>> {
        let mut frames: Vec<_> = numbers.map(|number| self.frame(number)).collect();
        self.far.transmit(now, &mut self.pool, &mut frames);
        let mut out = Vec::new();
        self.nic.receive(now, &mut self.pool, &mut out, usize::MAX);
        self.far.reclaim(&mut self.pool);
        self.bytes(out)
    }

    fn bytes(&mut self, out: Vec<Mbuf>) -> Vec<Vec<u8>> {
        out.into_iter()
            .map(|mbuf| {
                let bytes = mbuf.bytes().to_vec();
                self.pool.free(mbuf);
                bytes
            })
            .collect()
    }

    fn finish(mut self) {
        let mut near = self.nic.into_inner(&mut self.pool);
        near.drain(&mut self.pool);
        self.far.drain(&mut self.pool);
        assert_eq!(self.pool.available(), CHUNKS, "chunks were lost");
    }
}

fn numbers(frames: &[Vec<u8>]) -> Vec<u32> {
    frames.iter().map(|f| u32::from_be_bytes([f[0], f[1], f[2], f[3]])).collect()
}

#[test]
fn a_perfect_wire_copies_and_changes_nothing() {
    let mut rig = rig(1, Faults::perfect(), Faults::perfect());
    let seen = rig.send(Instant::ZERO, 0..100);
    assert_eq!(numbers(&seen), (0..100).collect::<Vec<_>>());
    let back = rig.deliver(Instant::ZERO, 0..100);
    assert_eq!(numbers(&back), (0..100).collect::<Vec<_>>());
    assert_eq!(rig.nic.held(), 0);
    assert_eq!(rig.nic.next_event(), None);
    rig.finish();
}

#[test]
fn rates_are_what_they_should_be_in_both_directions() {
    let faults = Faults { loss: 0.1, duplicate: 0.05, corrupt: 0.02, ..Faults::perfect() };
    let mut rig = rig(7, faults, faults);
    let (mut sent_seen, mut back_seen) = (0, 0);
    let rounds = if cfg!(miri) { 8 } else { 100 };
    for round in 0..rounds {
        sent_seen += rig.send(Instant::ZERO, round..round + 100).len();
        back_seen += rig.deliver(Instant::ZERO, round..round + 100).len();
    }
    for (stats, seen) in
        [(rig.nic.transmit_stats(), sent_seen), (rig.nic.receive_stats(), back_seen)]
    {
        let sent = 100 * u64::from(rounds);
        assert_eq!((stats.seen, stats.overflowed), (sent, 0));
        // Five standard deviations of a binomial distribution.
        let near =
            |count: u64, expected: f64| (count as f64 - expected).abs() < 5.0 * expected.sqrt();
        assert!(near(stats.lost, 0.1 * sent as f64), "{stats:?}");
        assert!(near(stats.duplicated, 0.045 * sent as f64), "{stats:?}");
        assert!(near(stats.corrupted, 0.018 * sent as f64), "{stats:?}");
        assert_eq!(seen as u64, sent - stats.lost + stats.duplicated);
    }
    rig.finish();
}

#[test]
fn corruption_flips_exactly_one_bit_and_withdraws_the_checksum_promise() {
    let faults = Faults { corrupt: 1.0, ..Faults::perfect() };
    let (near, _) = pair(LoopbackConfig { rx_checksums_verified: true, ..Default::default() });
    let nic = FaultNic::new(near, 1, faults, Faults::perfect()).expect("probabilities");
    assert!(!nic.capabilities().rx_checksums_verified);

    let mut rig = rig(3, faults, faults);
    let mut clean = [0xaa; 60];
    clean[..4].fill(0);
    for frames in [rig.send(Instant::ZERO, 0..1), rig.deliver(Instant::ZERO, 0..1)] {
        let flipped: u32 =
            frames[0].iter().zip(clean).map(|(seen, sent)| (seen ^ sent).count_ones()).sum();
        assert_eq!(flipped, 1);
    }
    rig.finish();
}

#[test]
fn delays_follow_the_callers_clock() {
    let delay = Duration::from_micros(50);
    let faults = Faults { delay_min: delay, delay_max: delay, ..Faults::perfect() };
    let mut rig = rig(1, faults, faults);
    assert!(rig.send(Instant::ZERO, 0..10).is_empty());
    assert_eq!(rig.pool.available(), CHUNKS - 10, "the originals are back, the copies are held");
    assert_eq!(rig.nic.next_event(), Some(Instant::from_micros(50)));
    assert!(rig.send(Instant::from_nanos(49_999), 0..0).is_empty());
    let seen = rig.send(Instant::from_micros(50), 0..0);
    assert_eq!(numbers(&seen), (0..10).collect::<Vec<_>>());

    assert!(rig.deliver(Instant::from_micros(60), 0..5).is_empty());
    assert_eq!(rig.nic.next_event(), Some(Instant::from_micros(110)));
    assert_eq!(rig.deliver(Instant::from_micros(110), 0..0).len(), 5);
    rig.finish();
}

#[test]
fn reordered_frames_are_overtaken_and_still_arrive() {
    let reorder_by = Duration::from_micros(100);
    let faults = Faults { reorder: 0.2, reorder_by, ..Faults::perfect() };
    let mut rig = rig(5, Faults::perfect(), faults);
    let mut seen = rig.send(Instant::ZERO, 0..100);
    let held = rig.nic.transmit_stats().reordered as usize;
    assert!(held > 0 && seen.len() == 100 - held);
    seen.extend(rig.send(Instant::from_micros(100), 0..0));
    let mut numbers = numbers(&seen);
    assert!(!numbers.is_sorted());
    numbers.sort();
    assert_eq!(numbers, (0..100).collect::<Vec<_>>());
    rig.finish();
}

#[test]
fn jitter_stays_within_its_bounds() {
    let (delay, jitter) = (Duration::from_micros(10), Duration::from_micros(20));
    let mut rig = rig(
        9,
        Faults { delay_min: delay, delay_max: delay + jitter, ..Faults::perfect() },
        Faults::perfect(),
    );
    assert!(rig.deliver(Instant::ZERO, 0..200).is_empty());
    assert!(rig.deliver(Instant::from_nanos(9_999), 0..0).is_empty());
    let half = rig.deliver(Instant::from_micros(20), 0..0).len();
    assert!((50..150).contains(&half), "{half}");
    assert_eq!(half + rig.deliver(Instant::from_micros(30), 0..0).len(), 200);
    rig.finish();
}

#[test]
fn one_seed_replays_one_run() {
    let faults = Faults { loss: 0.3, duplicate: 0.3, corrupt: 0.3, ..Faults::perfect() };
    let run = |seed| {
        let mut rig = rig(seed, faults, faults);
        let seen = (rig.send(Instant::ZERO, 0..50), rig.deliver(Instant::ZERO, 0..50));
        rig.finish();
        seen
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn senseless_probabilities_are_refused() {
    for value in [-0.1, 1.1, f64::NAN] {
        let (near, _) = pair(LoopbackConfig::default());
        let faults = Faults { duplicate: value, ..Faults::perfect() };
        let error = FaultNic::new(near, 1, Faults::perfect(), faults).expect_err("no probability");
        assert_eq!(error.fault, "duplicate");
    }
}

#[test]
fn a_dry_pool_costs_frames_and_is_counted() {
    let delay = Duration::from_micros(1);
    let mut rig = rig(
        1,
        Faults::perfect(),
        Faults { delay_min: delay, delay_max: delay, ..Faults::perfect() },
    );
    let held: Vec<Mbuf> = (0..CHUNKS - 8).map(|_| rig.pool.alloc().expect("a chunk")).collect();
    rig.send(Instant::ZERO, 0..4);
    rig.send(Instant::ZERO, 4..8);
    // No chunk for a copy of the first; it is lost, and its own chunk serves the next copy.
    assert_eq!(rig.nic.transmit_stats().overflowed, 1);
    held.into_iter().for_each(|mbuf| rig.pool.free(mbuf));
    let seen = rig.send(Instant::from_micros(1), 0..0);
    assert_eq!(numbers(&seen), [0, 1, 2, 3, 5, 6, 7]);
    rig.finish();
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: if cfg!(miri) { 2 } else { 64 },
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    /// Whatever the faults, every chunk is accounted for, and as many frames come out as the
    /// counters say.
    #[test]
    fn frames_are_conserved(
        seed: u64,
        loss in 0.0..0.5f64,
        duplicate in 0.0..1.0f64,
        reorder in 0.0..1.0f64,
        delay in 0u64..100,
        bursts in proptest::collection::vec(0u32..40, 1..6),
    ) {
        let delay = Duration::from_micros(delay);
        let faults = Faults { loss, duplicate, reorder, delay_min: delay, delay_max: delay, ..Faults::perfect() };
        let mut rig = rig(seed, faults, faults);
        let mut now = Instant::ZERO;
        let (mut sent, mut back) = (0, 0);
        for burst in bursts {
            sent += rig.send(now, 0..burst).len() as u64;
            back += rig.deliver(now, 0..burst).len() as u64;
            now += Duration::from_micros(30);
        }
        now += Duration::from_millis(1);
        sent += rig.send(now, 0..0).len() as u64;
        back += rig.deliver(now, 0..0).len() as u64;
        for (stats, seen) in [(rig.nic.transmit_stats(), sent), (rig.nic.receive_stats(), back)] {
            prop_assert_eq!(seen, stats.seen - stats.lost + stats.duplicated - stats.overflowed);
        }
        prop_assert_eq!(rig.nic.next_event(), None);
        rig.finish();
    }
}

/// Delayed, doubled and lost as one: its chunks follow each other, with a checksum that is complete.
#[test]
fn a_frame_of_several_chunks_has_one_fate() {
    use crate::test_frames::{chunks, partial_chunks, payload_len, segment};
    let faults = Faults { loss: 0.2, duplicate: 0.2, reorder: 0.2, ..Faults::none() };
    for tx_checksum_offload in [false, true] {
        let config = LoopbackConfig {
            max_frame_bytes: 9014,
            frame_chunks: 6,
            tx_checksum_offload,
            ..LoopbackConfig::default()
        };
        let (near, mut far) = pair(config);
        let mut nic = FaultNic::new(near, 7, Faults::perfect(), faults).expect("probabilities");
        let mut pool = Pool::new(&Region::heap(CHUNKS as u32), CHUNKS);
        let make = if tx_checksum_offload { partial_chunks } else { chunks };
        let (long, mut bytes, mut now) = (segment(8_000), 0, Instant::ZERO);
        for _ in 0..100 {
            let mut frames = make(&long, 1_789, &mut pool);
            frames.extend(make(&segment(1), 1_789, &mut pool));
            nic.transmit(now, &mut pool, &mut frames);
            let mut out = Vec::new();
            far.receive(now, &mut pool, &mut out, usize::MAX);
            bytes += out.iter().map(payload_len).sum::<usize>();
            out.drain(..).for_each(|mbuf| pool.free(mbuf));
            nic.reclaim(&mut pool);
            now += Duration::from_millis(1);
        }
        let stats = nic.transmit_stats();
        assert_eq!((stats.seen, far.stats().rx_unfit, stats.overflowed), (200, 0, 0));
        assert!(stats.lost > 20 && stats.duplicated > 20 && stats.reordered > 20, "{stats:?}");
        assert!((60 * 8_000..120 * 8_000).contains(&bytes), "{bytes}");
        nic.close(&mut pool);
        far.close(&mut pool);
        assert_eq!(pool.available(), CHUNKS);
    }
}

/// A bit of the third chunk counts as one of the frame.
#[test]
fn a_flipped_bit_lies_anywhere_in_a_frame_of_several_chunks() {
    use crate::test_frames::{chunks, segment};
    let config =
        LoopbackConfig { max_frame_bytes: 9014, frame_chunks: 6, ..LoopbackConfig::default() };
    let (near, mut far) = pair(config);
    let faults = Faults { corrupt: 1.0, ..Faults::none() };
    let mut nic = FaultNic::new(near, 7, Faults::perfect(), faults).expect("probabilities");
    let mut pool = Pool::new(&Region::heap(CHUNKS as u32), CHUNKS);
    let long = segment(8_000);
    for _ in 0..50 {
        let mut frames = chunks(&long, 1_789, &mut pool);
        nic.transmit(Instant::ZERO, &mut pool, &mut frames);
    }
    let late = Instant::ZERO + Duration::from_millis(1);
    nic.transmit(late, &mut pool, &mut Vec::new());
    let mut out = Vec::new();
    far.receive(late, &mut pool, &mut out, usize::MAX);
    assert!(far.stats().rx_unfit > 45, "{:?}", far.stats());
    out.drain(..).for_each(|mbuf| pool.free(mbuf));
    nic.reclaim(&mut pool);
    nic.close(&mut pool);
    assert_eq!(pool.available(), CHUNKS);
}
