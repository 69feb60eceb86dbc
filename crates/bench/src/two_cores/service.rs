//! The service: spins for as long as each request says, and returns it with the moment at which it was done.

use std::sync::atomic::Ordering;

use clock::{Clock, Duration, Instant, MonotonicClock};
use domain::{Calls, Cookie, Event, Events, Handle, Service};

use super::Seen;

/// A request: the connection's number, its own number there, and its service time in nanoseconds.
pub const REQUEST: usize = 24;

/// The request with these parts.
pub fn request(connection: u64, number: u64, service_ns: u64) -> [u8; REQUEST] {
    let mut bytes = [0; REQUEST];
    for (part, word) in bytes.chunks_exact_mut(8).zip([connection, number, service_ns]) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The parts of a request.
pub fn parts(bytes: &[u8]) -> [u64; 3] {
    let word = |at: usize| {
        bytes
            .get(8 * at..8 * at + 8)
            .map_or(0, |part| u64::from_le_bytes(core::array::from_fn(|index| part[index])))
    };
    [word(0), word(1), word(2)]
}

/// See the module's comment. Its clients put whole requests into each segment.
#[derive(Debug)]
pub struct Spinning<'a> {
    seen: &'a Seen,
    clock: MonotonicClock,
}

impl<'a> Spinning<'a> {
    /// A service that notes in `seen` what it sees, by a clock that its clients share.
    pub fn new(seen: &'a Seen, clock: MonotonicClock) -> Self {
        Self { seen, clock }
    }

    /// Serves a request. Answers when that was done.
    fn serve(&self, bytes: &[u8]) -> Instant {
        let [connection, number, service_ns] = parts(bytes);
        // Relaxed on purpose: only the scheduler's hand-over orders what two cores do here.
        let in_order = self.seen.next.get(connection as usize).is_some_and(|next| {
            let expected = next.load(Ordering::Relaxed) == number;
            next.store(number + 1, Ordering::Relaxed);
            expected
        });
        if !in_order || bytes.len() != REQUEST {
            self.seen.out_of_order.fetch_add(1, Ordering::Relaxed);
        }
        let mut now = self.clock.now();
        let until = now + Duration::from_nanos(service_ns);
        while now < until {
            std::hint::spin_loop();
            now = self.clock.now();
        }
        now
    }

    /// Serves the requests of a segment, and answers them with one.
    fn answer(
        &self,
        handle: Handle,
        data: &[u8],
        calls: &mut Calls<'_>,
    ) -> Result<(), domain::Full> {
        let mut answers = data.to_vec();
        for (request, answer) in data.chunks(REQUEST).zip(answers.chunks_mut(REQUEST)) {
            let done = self.serve(request);
            if let Some(place) = answer.get_mut(REQUEST - 8..) {
                place.copy_from_slice(&done.as_nanos().to_le_bytes());
            }
        }
        calls.sendv(handle, &[&answers])?;
        calls.recv_done(handle, data.len())
    }
}

impl Service for Spinning<'_> {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            let done = match event {
                Event::Knock { handle, .. } => calls.accept(handle, Cookie(0)),
                Event::Recv { handle, data, .. } => self.answer(handle, data, calls),
                Event::Eof { handle, .. } => calls.close(handle),
                Event::Failed { .. } => Err(domain::Full),
                Event::Sent { .. }
                | Event::Dead { .. }
                | Event::Connected { .. }
                | Event::Again { .. }
                | Event::Datagram { .. } => Ok(()),
            };
            if done.is_err() {
                self.seen.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
