//! The clients' service: keeps a number of connections busy, each with a script.
//!
//! The client uses the batched calls directly, as a careful service would: never more than the window,
//! calls that the batch had no room for in the next one. It may hold received bytes back for a while,
//! as an application does that is slow or waits for the rest of a message, and then checks that what
//! it holds can still be read.

use std::collections::VecDeque;

use clock::{Duration, Instant};
use tailplane::{
    Calls, ConnectError, Cookie, DeadReason, Endpoint, Event, Events, Handle, Service,
};

use crate::dice::Dice;
use crate::lossy::watch::{SharedLedger, connection, ensure};

/// What one connection does. Scripts see a stream of bytes, not batches.
pub trait Script {
    /// The connection stands.
    fn opened(&mut self, now: Instant, io: &mut Io);
    /// Bytes came.
    ///
    /// # Errors
    /// What is wrong with them.
    fn received(&mut self, now: Instant, data: &[u8], io: &mut Io) -> Result<(), String>;
    /// The moment that [`Io::wake_at`] named is here.
    fn woken(&mut self, _now: Instant, _io: &mut Io) {}
    /// Whether all that was to come has come.
    ///
    /// # Errors
    /// What is missing.
    fn finished(&self) -> Result<(), String>;
}

/// What a script can do with its connection.
#[derive(Debug, Default)]
pub struct Io {
    out: VecDeque<u8>,
    /// Sends nothing more, once all that was put is sent.
    pub close: bool,
    /// Calls [`Script::woken`] then.
    pub wake_at: Option<Instant>,
}

impl Io {
    /// Sends bytes behind all that were put before.
    pub fn put(&mut self, bytes: &[u8]) {
        self.out.extend(bytes);
    }
}

/// How a client behaves.
#[derive(Clone, Copy, Debug)]
pub struct ClientConfig {
    /// Whom to connect to.
    pub server: Endpoint,
    /// Connections go to so many ports of it, from that one on, in turn.
    pub ports: u16,
    /// Connections at a time.
    pub slots: usize,
    /// Longest pause before a connection is opened.
    pub open_within: Duration,
    /// Longest time for which received bytes are held back; zero: given back at once.
    pub hold: Duration,
    /// Most bytes of one `sendv`.
    pub piece: usize,
}

/// A living connection.
struct Line {
    handle: Handle,
    window: u32,
    script: Box<dyn Script>,
    io: Io,
    closed: bool,
    /// Bytes that were received and not given back; copies of them where they are checked.
    held: VecDeque<u8>,
    held_bytes: usize,
    release_at: Option<Instant>,
}

enum Slot {
    /// Opens its next connection then, with the script of an attempt that failed or a new one.
    Pause(Instant, Option<Box<dyn Script>>),
    Connecting(Box<dyn Script>),
    Open(Box<Line>),
    /// No more scripts.
    Done,
}

/// See the module's comment.
pub struct Client<I> {
    config: ClientConfig,
    scripts: I,
    slots: Vec<Slot>,
    ledger: SharedLedger,
    dice: Dice,
}

impl<I: Iterator<Item = Box<dyn Script>>> Client<I> {
    /// A client that runs the scripts that `scripts` yields, one connection each.
    pub fn new(config: ClientConfig, scripts: I, ledger: SharedLedger, mut dice: Dice) -> Self {
        let start = |dice: &mut Dice| {
            Slot::Pause(Instant::ZERO + dice.duration(Duration::ZERO, config.open_within), None)
        };
        let slots = (0..config.slots).map(|_| start(&mut dice)).collect();
        Self { config, scripts, slots, ledger, dice }
    }

    fn fail(&self, now: Instant, text: impl FnOnce() -> String) {
        self.ledger.borrow_mut().fail(now, text);
    }

    fn connected(
        &mut self,
        now: Instant,
        index: usize,
        outcome: Result<(Handle, u32), ConnectError>,
    ) {
        let Some(slot) = self.slots.get_mut(index) else {
            return self.fail(now, || format!("connected with cookie {index} out of nowhere"));
        };
        let Slot::Connecting(script) = std::mem::replace(slot, Slot::Done) else {
            return self.fail(now, || format!("slot {index} was not connecting"));
        };
        match outcome {
            Ok((handle, window)) => {
                let mut line = Box::new(Line {
                    handle,
                    window,
                    script,
                    io: Io::default(),
                    closed: false,
                    held: VecDeque::new(),
                    held_bytes: 0,
                    release_at: None,
                });
                line.script.opened(now, &mut line.io);
                *slot = Slot::Open(line);
            }
            // Packet memory is short: try again.
            Err(ConnectError::NoMemory) => {
                *slot = Slot::Pause(now + Duration::from_millis(1), Some(script));
            }
            Err(error) => self.fail(now, || format!("cannot connect: {error:?}")),
        }
    }

    fn received(
        &mut self,
        now: Instant,
        index: usize,
        (handle, data, window): (Handle, &[u8], u32),
    ) {
        let hold = self.config.hold;
        let Some(line) = line_of(&mut self.slots, index, handle) else {
            return self.fail(now, || format!("bytes for slot {index}, which is not open"));
        };
        line.window = window;
        line.held_bytes += data.len();
        if !hold.is_zero() {
            line.held.extend(data);
            if line.release_at.is_none() {
                line.release_at = Some(now + self.dice.duration(Duration::ZERO, hold));
            }
        }
        if let Err(what) = line.script.received(now, data, &mut line.io) {
            self.fail(now, || format!("connection {index}: {what}"));
        }
    }

    fn dead(&mut self, now: Instant, index: usize, handle: Handle, reason: DeadReason) {
        let Some(line) = line_of(&mut self.slots, index, handle) else {
            return self.fail(now, || format!("slot {index} died and was not open"));
        };
        if reason != DeadReason::Closed {
            return self.fail(now, || format!("connection {index} died: {reason:?}"));
        }
        if let Err(what) = line.script.finished() {
            return self.fail(now, || format!("connection {index} is not finished: {what}"));
        }
        let mut ledger = self.ledger.borrow_mut();
        ledger.completed += 1;
        ledger.completed_at = now;
        self.slots[index] =
            Slot::Pause(now + self.dice.duration(Duration::ZERO, self.config.open_within), None);
    }

    fn event(&mut self, now: Instant, event: Event<'_>) {
        match event {
            Event::Connected { cookie, outcome, .. } => {
                self.connected(now, cookie.0 as usize, outcome)
            }
            Event::Recv { handle, cookie, data, window, .. } => {
                self.received(now, cookie.0 as usize, (handle, data, window));
            }
            Event::Sent { handle, cookie, window, .. } => {
                if let Some(line) = line_of(&mut self.slots, cookie.0 as usize, handle) {
                    line.window = window;
                }
            }
            Event::Dead { handle, cookie, reason } => {
                self.dead(now, cookie.0 as usize, handle, reason);
            }
            // A script that closed before waits for this; another one closes in answer.
            Event::Eof { handle, cookie } => {
                if let Some(line) = line_of(&mut self.slots, cookie.0 as usize, handle) {
                    line.io.close = true;
                }
            }
            // The watcher has noted it.
            Event::Failed { .. }
            | Event::Knock { .. }
            | Event::Datagram { .. }
            | Event::Listening { .. }
            | Event::Info { .. }
            | Event::Again { .. } => {}
        }
    }

    /// Opens, sends, gives back and closes as far as the batch has room.
    fn act(&mut self, now: Instant, calls: &mut Calls<'_>) {
        let Self { config, scripts, slots, dice, .. } = self;
        for (index, slot) in slots.iter_mut().enumerate() {
            match slot {
                Slot::Pause(at, script) if *at <= now && calls.room() > 0 => {
                    match script.take().or_else(|| scripts.next()) {
                        Some(script) => {
                            let Endpoint { addr, port } = config.server;
                            let server = Endpoint::new(addr, port + index as u16 % config.ports);
                            // There is room: it was just asked for.
                            let _ = calls.connect(Cookie(index as u64), server);
                            *slot = Slot::Connecting(script);
                        }
                        None => *slot = Slot::Done,
                    }
                }
                Slot::Open(line) => line.act(now, config, dice, calls),
                _ => {}
            }
        }
    }
}

fn line_of(slots: &mut [Slot], index: usize, handle: Handle) -> Option<&mut Line> {
    match slots.get_mut(index) {
        Some(Slot::Open(line)) if line.handle == handle => Some(line),
        _ => None,
    }
}

impl Line {
    fn act(&mut self, now: Instant, config: &ClientConfig, dice: &mut Dice, calls: &mut Calls<'_>) {
        if self.io.wake_at.is_some_and(|at| at <= now) {
            self.io.wake_at = None;
            self.script.woken(now, &mut self.io);
        }
        let mut piece = config.piece;
        while self.window > 0 && !self.io.out.is_empty() && piece > 0 {
            let (front, _) = self.io.out.as_slices();
            let count = front.len().min(self.window as usize).min(piece);
            if calls.sendv(self.handle, &[&front[..count]]).is_err() {
                // It may ask for more memory than there ever is: less of it, and the next batch begins anew.
                piece = count / 2;
                continue;
            }
            self.io.out.drain(..count);
            self.window -= count as u32;
        }
        if self.held_bytes > 0 && self.release_at.is_none_or(|at| at <= now) {
            // A part now and then, so that buffers are given back in the middle.
            let part = match config.hold.is_zero() || dice.chance(0.7) {
                true => self.held_bytes,
                false => dice.between(1, self.held_bytes as u64) as usize,
            };
            if calls.recv_done(self.handle, part).is_ok() {
                self.held_bytes -= part;
                self.held.drain(..part.min(self.held.len()));
                let again = now + dice.duration(Duration::from_micros(1), config.hold);
                self.release_at = (self.held_bytes > 0).then_some(again);
            }
        }
        if self.io.close && !self.closed && self.io.out.is_empty() {
            self.closed = calls.shutdown(self.handle).is_ok();
        }
    }

    /// When the line wants to be looked at although no event came.
    fn wake_at(&self) -> Option<Instant> {
        let unsent = !self.io.out.is_empty() && self.window > 0;
        let unclosed = self.io.close && !self.closed && self.io.out.is_empty();
        let undone = self.held_bytes > 0 && self.release_at.is_none();
        if unsent || unclosed || undone {
            return Some(Instant::ZERO);
        }
        let held = if self.held_bytes > 0 { self.release_at } else { None };
        held.into_iter().chain(self.io.wake_at).min()
    }

    /// Compares what the dataplane says is held with what it is.
    fn check_held(&self, events: &Events<'_>) -> Result<(), String> {
        let mut bytes = Vec::new();
        events.held(self.handle, |part| bytes.extend_from_slice(part));
        // The oldest buffer may have been given back in part.
        let start = bytes.len().checked_sub(self.held.len()).ok_or_else(|| {
            format!("{} bytes are held, {} can be read", self.held.len(), bytes.len())
        })?;
        ensure(bytes[start..].iter().eq(&self.held), || "held bytes have changed".to_owned())
    }
}

impl<I: Iterator<Item = Box<dyn Script>>> Service for Client<I> {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        if !self.config.hold.is_zero() {
            // A connection that died in this batch has nothing to read any more.
            let dead = events.iter().filter(|event| matches!(event, Event::Dead { .. }));
            let dead: Vec<Handle> = dead.filter_map(|event| connection(&event)).collect();
            for slot in &self.slots {
                if let Slot::Open(line) = slot
                    && !dead.contains(&line.handle)
                    && let Err(what) = line.check_held(&events)
                {
                    self.fail(now, || what);
                }
            }
        }
        for event in events.iter() {
            self.event(now, event);
        }
        self.act(now, calls);
    }

    fn wake_at(&self) -> Option<Instant> {
        let of = |slot: &Slot| match slot {
            Slot::Pause(at, _) => Some(*at),
            Slot::Open(line) => line.wake_at(),
            Slot::Connecting(_) | Slot::Done => None,
        };
        self.slots.iter().filter_map(of).min()
    }
}
