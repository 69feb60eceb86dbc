//! What moving lines between the two processors takes, with nothing done beside it: what lies below the cost of
//! anything that crosses from one to the other.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use measure::stats::median_of;
use measure::{Places, SetsAtEnd, Watch, together};

/// Real-time priority of both threads: before the applications that are measured.
const PRIORITY: u8 = 3;
/// Longer than all trips take where both threads run, and no harm to the machine.
const WITHIN: Duration = Duration::from_millis(500);
/// Requests of a batch.
const BATCH: usize = 64;

/// What was found, in nanoseconds: medians.
#[derive(Clone, Copy, Debug)]
pub struct Lines {
    /// From the change of a word here until the answer of the other processor, which sees it, is seen.
    pub word_ns: f64,
    /// What it takes here, for each request of a batch, to write what a request hands over and to read what comes
    /// back, where the other processor reads and writes it in between; beyond what it takes where this one does. Of
    /// an application that sends what it received from where it stands.
    pub echo_ns: f64,
    /// The same of one that reads its request, and writes an answer of its own.
    pub own_ns: f64,
}

/// Measures it, on threads of its own.
///
/// # Errors
/// No second processor, or something else runs on one of the two.
pub fn between_processors() -> anyhow::Result<Lines> {
    const BATCHES: u32 = 2_000;
    let request = |own_answers: bool| -> anyhow::Result<f64> {
        let [shared, alone] = [own_answers; 2].map(Batch::new);
        let across = exchanged(BATCHES, || shared.tell(), || shared.serve(), || shared.take())?;
        let alone = (0..BATCHES).map(|_| {
            let told = timed(|| alone.tell());
            alone.serve();
            told + timed(|| alone.take())
        });
        let across = median_of(across.iter().map(|trip| trip.busy_ns));
        Ok((across - median_of(alone)) / BATCH as f64)
    };
    Ok(Lines { word_ns: word_ns(20_000)?, echo_ns: request(false)?, own_ns: request(true)? })
}

/// How long it takes from the change of a word until the answer of the other processor, which sees it, is seen: the
/// median of so many.
///
/// # Errors
/// As [`between_processors`].
pub fn word_ns(words: u32) -> anyhow::Result<f64> {
    Ok(median_of(exchanged(words, || {}, || {}, || {})?.iter().map(|trip| trip.away_ns)))
}

/// One exchange.
struct Trip {
    /// From its handing over until the answer is seen.
    away_ns: f64,
    /// Before and after that.
    busy_ns: f64,
}

/// `tell`, then the other processor's `serve`, then `take`, again and again.
fn exchanged(
    trips: u32,
    tell: impl Fn() + Sync,
    serve: impl Fn() + Sync,
    take: impl Fn() + Sync,
) -> anyhow::Result<Vec<Trip>> {
    /// On a line of its own, and away from its neighbour.
    #[repr(align(128))]
    struct Word(AtomicU32);
    let (there, back) = (Word(AtomicU32::new(0)), Word(AtomicU32::new(0)));
    let stop = AtomicBool::new(false);
    let places = Places::new([0, 1], PRIORITY);
    let asks = |_: &mut Watch| {
        let _ends = SetsAtEnd(&stop);
        let began = Instant::now();
        let mut found = Vec::with_capacity(trips as usize);
        for trip in 1..=trips {
            let begins = Instant::now();
            tell();
            there.0.store(trip, Ordering::Release);
            let told = Instant::now();
            while back.0.load(Ordering::Acquire) != trip && began.elapsed() < WITHIN {}
            let seen = Instant::now();
            take();
            let nanos = |from: Instant, to: Instant| (to - from).as_nanos() as f64;
            let busy_ns = nanos(begins, told) + nanos(seen, Instant::now());
            found.push(Trip { away_ns: nanos(told, seen), busy_ns });
        }
        (began.elapsed() < WITHIN).then_some(found)
    };
    let answers = |_: &mut Watch| {
        let mut seen = 0;
        while seen < trips && !stop.load(Ordering::Relaxed) {
            let word = there.0.load(Ordering::Acquire);
            if word != seen {
                seen = word;
                serve();
                back.0.store(word, Ordering::Release);
            }
        }
    };
    let (found, (), _) = together(&|side| places.take(side), asks, answers)?;
    found.with_context(|| {
        format!(
            "the two processors did not exchange {trips} words within {WITHIN:?}; does something else run there?"
        )
    })
}

fn timed(work: impl FnOnce()) -> f64 {
    let began = Instant::now();
    work();
    began.elapsed().as_nanos() as f64
}

/// A cache line.
#[derive(Default)]
#[repr(align(64))]
struct Line([AtomicU64; 8]);

impl Line {
    fn write(&self) {
        self.write_words(0..8);
    }

    fn write_words(&self, words: std::ops::Range<usize>) {
        self.0[words].iter().for_each(|word| word.store(black_box(1), Ordering::Relaxed));
    }

    fn read(&self) {
        black_box(self.0.iter().fold(0, |all, word| all | word.load(Ordering::Relaxed)));
    }
}

/// The first lines of a chunk of packet memory, which are all that a short packet needs.
#[derive(Default)]
#[repr(align(2048))]
struct Chunk([Line; 2]);

/// What a batch of short requests moves: see `process::layout`.
struct Batch {
    /// Frames that the driver writes, and the application reads where it answers with something else.
    received: Vec<Chunk>,
    /// Half a line for each.
    events: Vec<Line>,
    /// Half a line for each, in which the call to send has the one to give back with it.
    calls: Vec<Line>,
    /// What the application writes, one answer of 64 bytes behind the other; empty: it sends what it received.
    sent: Vec<Line>,
}

impl Batch {
    fn new(own_answers: bool) -> Self {
        let lines = |count| (0..count).map(|_| Line::default()).collect();
        Self {
            received: (0..BATCH).map(|_| Chunk::default()).collect(),
            events: lines(BATCH / 2),
            calls: lines(BATCH / 2),
            sent: lines(if own_answers { BATCH } else { 0 }),
        }
    }

    /// The dataplane's part until the batch is handed over.
    fn tell(&self) {
        for (index, received) in self.received.iter().enumerate() {
            received.0.iter().for_each(Line::write);
            write_half(&self.events, index);
        }
    }

    /// The application's part.
    fn serve(&self) {
        self.events.iter().for_each(Line::read);
        (0..BATCH).for_each(|index| write_half(&self.calls, index));
        for (received, sent) in self.received.iter().zip(&self.sent) {
            received.0.iter().for_each(Line::read);
            sent.write();
        }
    }

    /// The dataplane's part when it is back.
    fn take(&self) {
        self.calls.iter().for_each(Line::read);
        match self.sent.is_empty() {
            true => self.received.iter().flat_map(|received| &received.0).for_each(Line::read),
            false => self.sent.iter().for_each(Line::read),
        }
    }
}

/// A record of half a line.
fn write_half(lines: &[Line], index: usize) {
    let half = 4 * (index % 2);
    lines[index / 2].write_words(half..half + 4);
}
