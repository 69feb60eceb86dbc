//! The echo without the server layer: what the dataplane itself costs.

use clock::Instant;
use domain::{Calls, Cookie, Event, Events, Full, Service};

/// Sends every byte back from the event that brought it. Keeps no state for a connection: right
/// only while the window has room, which the benchmark's closed loop guarantees.
#[derive(Clone, Debug, Default)]
pub struct RawEcho {
    /// Calls for which the batch had no room: replies that are lost.
    pub lost: u64,
    /// Where it writes an answer of its own; none: it sends what it received.
    own: Option<Vec<u8>>,
}

impl RawEcho {
    /// One that reads its request and writes its answer to memory of its own, as services do that answer with
    /// something else than they were sent.
    pub fn with_own_answers() -> Self {
        Self { own: Some(Vec::new()), ..Self::default() }
    }

    fn answer(&mut self, event: &Event<'_>, calls: &mut Calls<'_>) -> Result<(), Full> {
        match *event {
            Event::Recv { handle, data, .. } => {
                let answer = match &mut self.own {
                    None => data,
                    Some(own) => {
                        own.clear();
                        own.extend_from_slice(data);
                        own
                    }
                };
                calls.sendv(handle, &[answer])?;
                calls.recv_done(handle, data.len())
            }
            Event::Knock { handle, .. } => calls.accept(handle, Cookie(0)),
            Event::Eof { handle, .. } => calls.close(handle),
            _ => Ok(()),
        }
    }
}

impl Service for RawEcho {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            self.lost += self.answer(&event, calls).is_err() as u64;
        }
    }
}
