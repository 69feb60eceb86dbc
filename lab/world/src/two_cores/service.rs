//! The service: spins for as long as each request says, and returns it with the moment at which
//! all of its batch was done, and it left.

use std::sync::atomic::Ordering;

use clock::{Clock, Duration, Instant, MonotonicClock};
use domain::{Calls, Cookie, Event, Events, Handle, Service};

use stack::Shared;

use super::guest::Guest;
use super::interruptions::Interruptions;
use super::request::{ASKS_HOME, REQUEST, parts};
use super::told::Seen;

/// See the module's comment. Its clients put whole requests into each segment.
pub struct Spinning<'a> {
    seen: &'a Seen,
    shared: &'a Shared,
    clock: MonotonicClock,
    interruptions: Interruptions,
    guest: Option<Guest<'a>>,
}

impl<'a> Spinning<'a> {
    /// A service that notes in `seen` what it sees, by a clock that its client shares; the client, if it is at
    /// this core. `shared` is of its dataplane.
    pub fn new(
        seen: &'a Seen,
        shared: &'a Shared,
        clock: MonotonicClock,
        guest: Option<Guest<'a>>,
    ) -> Self {
        Self { seen, shared, clock, interruptions: Interruptions::new(), guest }
    }

    /// The client has a look, if it is here.
    pub fn let_guest(&mut self, now: Instant) {
        if let Some(guest) = &mut self.guest {
            guest.look(now, &mut self.interruptions);
        }
    }

    /// The thread had nothing to do from one look at the clock to the next.
    pub fn idled(&mut self, before: Instant, now: Instant) {
        self.interruptions.idled(before, now);
    }

    /// When its thread was not running, and the client.
    pub fn into_parts(self) -> (Interruptions, Option<Guest<'a>>) {
        (self.interruptions, self.guest)
    }

    /// Serves a request.
    fn serve(&mut self, bytes: &[u8]) {
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
            let before = now;
            now = self.clock.now();
            self.interruptions.spun(before, now);
            self.let_guest(now);
        }
    }

    /// Serves the requests of a segment. Its answers are as long, and lack the moment at which they leave.
    fn answers(&mut self, handle: Handle, data: &[u8]) -> Vec<u8> {
        let mut answers = data.to_vec();
        for answer in answers.chunks_mut(REQUEST) {
            let [_, number, _] = parts(answer);
            if number == ASKS_HOME {
                told(answer, self.shared.home_of(handle.group()).into());
            } else {
                self.serve(answer);
            }
        }
        answers
    }
}

/// Writes the third part of an answer.
fn told(answer: &mut [u8], word: u64) {
    if let Some(place) = answer.get_mut(REQUEST - 8..) {
        place.copy_from_slice(&word.to_le_bytes());
    }
}

impl Service for Spinning<'_> {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        let mut served = Vec::new();
        for event in events.iter() {
            let done = match event {
                Event::Knock { handle, .. } => calls.accept(handle, Cookie(0)),
                Event::Recv { handle, data, .. } => {
                    served.push((handle, self.answers(handle, data)));
                    Ok(())
                }
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
        // Only now do any of them leave.
        let now = self.clock.now().as_nanos();
        for (handle, mut answers) in served {
            for answer in answers.chunks_mut(REQUEST).filter(|answer| parts(answer)[1] != ASKS_HOME)
            {
                told(answer, now);
            }
            let done = calls.sendv(handle, &[&answers]);
            if done.and_then(|()| calls.recv_done(handle, answers.len())).is_err() {
                self.seen.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
