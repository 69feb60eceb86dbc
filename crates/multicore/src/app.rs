//! The application: ZygOS's synthetic service (§3.2), whose requests carry their own service time, on all
//! cores at once.
//!
//! It does not spin, as no clock would move: it tells how long it would have. One value serves all cores,
//! since under a scheduler that steals a connection's requests may be served anywhere; a cookie is the
//! place of the connection's state.

use domain::{CallKind, Calls, Cookie, Event, Events, Handle};
use spin::{Assembler, Frame};
use stack::Shared;

/// Set in a request's sequence number: it asks where its connection is at home, and takes no time.
pub(crate) const ASK_HOME: u64 = 1 << 63;

/// What a batch was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The sum of the requests' service times, in nanoseconds.
    pub service_ns: u64,
    /// Requests served.
    pub requests: u64,
    /// Events, and those of them whose connection's home is another core.
    pub events: u64,
    pub events_abroad: u64,
    /// Connections away from home whose events these were.
    pub stolen: u64,
}

/// See the module's comment.
#[derive(Debug, Default)]
pub(crate) struct SpinApp {
    connections: Vec<Assembler>,
    /// Calls that did not fit, or failed: zero in a valid run.
    pub failures: u64,
}

impl SpinApp {
    /// Serves a batch on `core`.
    pub fn serve(
        &mut self,
        core: u8,
        shared: &Shared,
        events: Events<'_>,
        calls: &mut Calls<'_>,
    ) -> Batch {
        let mut batch = Batch { events: events.len() as u64, ..Batch::default() };
        let mut last_abroad = None;
        for event in events.iter() {
            if let Some(handle) = connection(&event)
                && shared.home_of(handle.group()) != core
            {
                batch.events_abroad += 1;
                batch.stolen += u64::from(last_abroad != Some(handle));
                last_abroad = Some(handle);
            }
            let done = match event {
                Event::Knock { handle, .. } => {
                    self.connections.push(Assembler::default());
                    calls.accept(handle, Cookie(self.connections.len() as u64 - 1)).is_ok()
                }
                Event::Recv { handle, cookie, data, .. } => {
                    self.receive(shared, handle, cookie, data, calls, &mut batch)
                }
                // The client never closes; replies are acknowledged without further consequence.
                Event::Sent { .. } => true,
                _ => false,
            };
            self.failures += u64::from(!done);
        }
        batch
    }

    fn receive(
        &mut self,
        shared: &Shared,
        handle: Handle,
        cookie: Cookie,
        data: &[u8],
        calls: &mut Calls<'_>,
        batch: &mut Batch,
    ) -> bool {
        let Some(assembler) = self.connections.get_mut(cookie.0 as usize) else { return false };
        let mut rest = data;
        let mut done = true;
        while let Some((frame, behind)) = assembler.next(rest) {
            rest = behind;
            let mut reply = frame;
            if frame.sequence & ASK_HOME != 0 {
                reply = Frame { service_ns: shared.home_of(handle.group()).into(), ..frame };
            } else {
                batch.service_ns += frame.service_ns;
                batch.requests += 1;
            }
            // Replies of 16 bytes, a few outstanding: the window has room for them.
            done &= calls.sendv(handle, &[&reply.to_bytes()]).is_ok();
        }
        done && calls.recv_done(handle, data.len()).is_ok()
    }
}

/// The connection that an event is about.
fn connection(event: &Event<'_>) -> Option<Handle> {
    match *event {
        Event::Knock { handle, .. }
        | Event::Recv { handle, .. }
        | Event::Sent { handle, .. }
        | Event::Eof { handle, .. }
        | Event::Dead { handle, .. } => Some(handle),
        Event::Failed { call, handle, .. } if call != CallKind::Connect => Some(handle),
        _ => None,
    }
}
