//! The echo without the server layer: what the dataplane itself costs.

use clock::Instant;
use domain::{Calls, Cookie, Event, Events, Service};

/// Sends every byte back from the event that brought it. Keeps no state for a connection: right
/// only while the window has room, which the benchmark's closed loop guarantees.
#[derive(Clone, Copy, Debug, Default)]
pub struct RawEcho {
    /// Calls for which the batch had no room: replies that are lost.
    pub lost: u64,
}

impl Service for RawEcho {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            let done = match event {
                Event::Recv { handle, data, .. } => {
                    calls.sendv(handle, &[data]).and_then(|()| calls.recv_done(handle, data.len()))
                }
                Event::Knock { handle, .. } => calls.accept(handle, Cookie(0)),
                Event::Eof { handle, .. } => calls.close(handle),
                _ => Ok(()),
            };
            self.lost += done.is_err() as u64;
        }
    }
}
