//! A client that opens, asks, closes and aborts all the time, as its seed says, so that whoever serves it has
//! connections in every state.

use std::time::Duration;

use clock::Instant;
use domain::{Calls, Cookie, Event, Events, Handle, Service};
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use wire::{Endpoint, Ipv4Addr, MacAddr};

/// Who is attacked.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 1);
/// Who asks it.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 8, 0, 2);
/// Their link addresses.
pub const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
/// The port that both listen on.
pub const PORT: u16 = 7;
/// The port for datagrams.
pub const DATAGRAM_PORT: u16 = 9;
/// Connections that the client has at most.
const LINES: usize = 24;

/// What a client saw.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Connections that it opened.
    pub connected: u64,
    /// Times that it received something on them.
    pub answered: u64,
    /// Connections and datagrams that came to it.
    pub reached: u64,
}

/// See the module's comment.
pub struct Crowd {
    random: Xoshiro256PlusPlus,
    open: Vec<Handle>,
    opening: usize,
    /// What it saw.
    pub seen: Seen,
    pace: Duration,
    next: Instant,
}

impl Crowd {
    /// One that does something at most every `pace`.
    pub fn new(seed: u64, pace: Duration) -> Self {
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (open, next) = (Vec::new(), Instant::ZERO);
        Self { random, open, opening: 0, seen: Seen::default(), pace, next }
    }

    fn act(&mut self, calls: &mut Calls<'_>) {
        if self.open.len() + self.opening < LINES
            && calls.connect(Cookie(0), Endpoint::new(SERVER, PORT)).is_ok()
        {
            self.opening += 1;
        }
        if self.open.is_empty() {
            return;
        }
        let handle = self.open[self.random.random_range(0..self.open.len())];
        // What the batch has no room for is not asked for: the crowd has no plan.
        let _ = match self.random.random_range(0..64) {
            0 => calls.close(handle),
            1 => calls.abort(handle),
            2 => {
                let peer = Endpoint::new(SERVER, DATAGRAM_PORT);
                calls.udp_sendv(DATAGRAM_PORT, peer, &[b"datagram"])
            }
            3..=6 => calls.sendv(handle, &[&[b'x'; 4_000]]),
            7..=24 => calls.sendv(handle, &[b"request"]),
            _ => Ok(()),
        };
    }
}

impl Service for Crowd {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            match event {
                Event::Connected { outcome, .. } => {
                    self.opening = self.opening.saturating_sub(1);
                    self.seen.connected += u64::from(outcome.is_ok());
                    self.open.extend(outcome.ok().map(|(handle, _)| handle));
                }
                Event::Datagram { .. } => self.seen.reached += 1,
                Event::Knock { handle, .. } => {
                    self.seen.reached += 1;
                    // One that cannot be accepted gives up.
                    let _ = calls.accept(handle, Cookie(0));
                    self.open.push(handle);
                }
                Event::Recv { handle, data, .. } => {
                    self.seen.answered += 1;
                    // Else its window stays closed.
                    let _ = calls.recv_done(handle, data.len());
                }
                Event::Eof { handle, .. } => {
                    // Else it stays half closed, until it is aborted.
                    let _ = calls.close(handle);
                }
                Event::Dead { handle, .. } => self.open.retain(|open| *open != handle),
                _ => {}
            }
        }
        if now >= self.next {
            self.next = now + self.pace;
            self.act(calls);
        }
    }

    fn wake_at(&self) -> Option<Instant> {
        Some(self.next)
    }
}
