//! The service: spins for as long as each request says, and returns it with the moment at which
//! all of its batch was done, and it left.

use std::sync::atomic::{AtomicU64, Ordering};

use clock::{Clock, Duration, Instant, MonotonicClock};
use domain::{Calls, Cookie, Event, Events, Handle, Service};
use spin::{FRAME_BYTES, Frame};
use stack::Shared;

use super::guest::Guest;
use super::interruptions::{Interruptions, SPINNING};
use crate::cores::app::ASK_HOME;
use crate::cores::client::place_of;

/// What both services see of the connections: the next request of each, and what went wrong.
#[derive(Debug)]
pub(super) struct Seen {
    pub next: Vec<AtomicU64>,
    pub out_of_order: AtomicU64,
    pub failures: AtomicU64,
}

/// See the module's comment. Its clients put whole requests into each segment.
pub struct Spinning<'a> {
    seen: &'a Seen,
    shared: &'a Shared,
    clock: MonotonicClock,
    /// When its thread was not running.
    pub interruptions: Interruptions,
    /// The client, if it is at this core.
    pub guest: Option<Guest<'a>>,
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

    /// Serves a request.
    fn serve(&mut self, request: Frame) {
        let (connection, number) = place_of(request.sequence);
        // Relaxed on purpose: only the scheduler's hand-over orders what two cores do here.
        let in_order = self.seen.next.get(connection).is_some_and(|next| {
            let expected = next.load(Ordering::Relaxed) == number;
            next.store(number + 1, Ordering::Relaxed);
            expected
        });
        if !in_order {
            self.seen.out_of_order.fetch_add(1, Ordering::Relaxed);
        }
        let mut now = self.clock.now();
        let until = now + Duration::from_nanos(request.service_ns);
        while now < until {
            std::hint::spin_loop();
            let before = now;
            now = self.clock.now();
            self.interruptions.looked(before, now, SPINNING);
            self.let_guest(now);
        }
    }

    /// Serves the requests of a segment. Its answers are as long, and lack the moment at which they leave.
    fn answers(&mut self, handle: Handle, data: &[u8]) -> Vec<u8> {
        let mut answers = data.to_vec();
        let (frames, rest) = answers.as_chunks_mut::<FRAME_BYTES>();
        self.seen.out_of_order.fetch_add(u64::from(!rest.is_empty()), Ordering::Relaxed);
        for bytes in frames {
            let request = Frame::from_bytes(bytes);
            if request.sequence & ASK_HOME == 0 {
                self.serve(request);
            } else {
                let service_ns = self.shared.home_of(handle.group()).into();
                *bytes = Frame { service_ns, ..request }.to_bytes();
            }
        }
        answers
    }
}

/// Writes the moment at which they leave into the answers of a segment.
fn stamp(answers: &mut [u8], left_ns: u64) {
    for bytes in answers.as_chunks_mut::<FRAME_BYTES>().0 {
        let answer = Frame::from_bytes(bytes);
        if answer.sequence & ASK_HOME == 0 {
            *bytes = Frame { service_ns: left_ns, ..answer }.to_bytes();
        }
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
                | Event::Listening { .. }
                | Event::Info { .. }
                | Event::Datagram { .. } => Ok(()),
            };
            if done.is_err() {
                self.seen.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
        // Only now do any of them leave.
        let now = self.clock.now().as_nanos();
        for (handle, mut answers) in served {
            stamp(&mut answers, now);
            let done = calls.sendv(handle, &[&answers]);
            if done.and_then(|()| calls.recv_done(handle, answers.len())).is_err() {
                self.seen.failures.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
}
