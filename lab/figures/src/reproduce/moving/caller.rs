//! Who talks to a service whose flow groups move: says numbered words on each connection at a rate, whatever the
//! answers, and expects to hear the same.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tailplane::{Calls, Cookie, Duration, Endpoint, Event, Events, Handle, Instant, Service};

/// Words of a connection that may be unanswered: beyond it a word that is due waits for an answer. All of them
/// together fit into a receive ring, whatever keeps its thread from it.
const OPEN_MAX: u64 = 16;
/// Words that are said in one batch at most: what a pause has left over comes bit by bit.
const BURST: u32 = 32;
/// How often a silent one looks whether it still is to be.
const SILENCE: Duration = Duration::from_millis(1);
const WORD: usize = size_of::<u64>();

/// What it says and hears, for others to look at and to steer.
#[derive(Debug, Default)]
pub(super) struct Talk {
    /// Connections that are open.
    pub open: AtomicU64,
    /// Words said, and heard in their order.
    pub said: AtomicU64,
    pub heard: AtomicU64,
    /// Words heard out of their order, and connections that ended.
    pub wrong: AtomicU64,
    /// To say nothing more for now.
    pub silent: AtomicBool,
}

/// See the module's comment.
pub(super) struct Caller<'a> {
    target: Endpoint,
    connections: usize,
    asked: usize,
    /// By handle; and in turn.
    lines: BTreeMap<Handle, Line>,
    order: Vec<Handle>,
    turn: usize,
    every: Duration,
    due: Instant,
    talk: &'a Talk,
}

#[derive(Default)]
struct Line {
    said: u64,
    heard: u64,
    /// The first bytes of a word.
    part: Vec<u8>,
}

impl<'a> Caller<'a> {
    /// One that says a word every `every`, on its connections in turn.
    pub fn new(target: Endpoint, connections: usize, every: Duration, talk: &'a Talk) -> Self {
        Self {
            target,
            connections,
            asked: 0,
            lines: BTreeMap::new(),
            order: Vec::new(),
            turn: 0,
            every,
            due: Instant::ZERO,
            talk,
        }
    }

    fn hear(&mut self, handle: Handle, data: &[u8]) {
        let Some(line) = self.lines.get_mut(&handle) else { return };
        line.part.extend_from_slice(data);
        let whole = line.part.len() / WORD * WORD;
        let (mut heard, mut wrong) = (0, 0);
        for word in line.part[..whole].chunks_exact(WORD) {
            let right = word == line.heard.to_be_bytes();
            heard += u64::from(right);
            wrong += u64::from(!right);
            line.heard += 1;
        }
        line.part.drain(..whole);
        self.talk.heard.fetch_add(heard, Ordering::Relaxed);
        self.talk.wrong.fetch_add(wrong, Ordering::Relaxed);
    }

    /// Says what is due.
    fn speak(&mut self, now: Instant, calls: &mut Calls<'_>) {
        if self.order.len() < self.connections || self.talk.silent.load(Ordering::Relaxed) {
            // Nothing is made up for; and it looks every now and then whether it may speak again.
            self.due = now + self.every.max(SILENCE);
            return;
        }
        for _ in 0..BURST {
            if self.due > now {
                break;
            }
            self.due += self.every;
            let handle = self.order[self.turn % self.order.len()];
            self.turn += 1;
            let Some(line) = self.lines.get_mut(&handle) else { continue };
            if line.said < line.heard + OPEN_MAX
                && calls.sendv(handle, &[&line.said.to_be_bytes()]).is_ok()
            {
                line.said += 1;
                self.talk.said.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}

impl Service for Caller<'_> {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            match event {
                Event::Connected { outcome: Ok((handle, ..)), .. } => {
                    self.lines.insert(handle, Line::default());
                    self.order.push(handle);
                    self.talk.open.fetch_add(1, Ordering::Relaxed);
                }
                Event::Recv { handle, data, .. } => {
                    self.hear(handle, data);
                    // There is room for more calls than a batch has events.
                    let full = calls.recv_done(handle, data.len()).is_err();
                    self.talk.wrong.fetch_add(full.into(), Ordering::Relaxed);
                }
                Event::Connected { outcome: Err(_), .. }
                | Event::Dead { .. }
                | Event::Failed { .. } => {
                    self.talk.wrong.fetch_add(1, Ordering::Relaxed);
                }
                _ => {}
            }
        }
        while self.asked < self.connections && calls.connect(Cookie(0), self.target).is_ok() {
            self.asked += 1;
        }
        self.speak(now, calls);
    }

    fn wake_at(&self) -> Option<Instant> {
        Some(if self.asked < self.connections { Instant::ZERO } else { self.due })
    }
}
