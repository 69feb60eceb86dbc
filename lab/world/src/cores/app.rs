//! The application: ZygOS's synthetic service (§3.2), whose requests carry their own service time, on all
//! cores at once.
//!
//! It does not spin, as no clock would move: it tells how long it would have. One value serves all cores,
//! since under a scheduler that steals a connection's requests may be served anywhere; a cookie is the
//! place of the connection's state.

use clock::Instant;
use domain::{Calls, Cookie, Event, Events, Handle};
use spin::{Frame, Pending};
use stack::Shared;

use crate::lossy::watch::connection;

/// Set in a request's sequence number: it asks where its connection is at home, and takes no time.
pub(crate) const ASK_HOME: u64 = 1 << 63;

/// What a batch was.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Batch {
    /// The sum of the requests' service times, in nanoseconds; and what it may come to, for requests that can
    /// be put off.
    pub service_ns: u64,
    quantum_ns: u64,
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
    connections: Vec<Pending>,
    /// Calls that did not fit, or failed: zero in a valid run.
    pub failures: u64,
}

impl SpinApp {
    /// Serves a batch on `core`.
    pub fn serve(
        &mut self,
        now: Instant,
        core: u8,
        shared: &Shared,
        events: Events<'_>,
        calls: &mut Calls<'_>,
    ) -> Batch {
        let quantum_ns = calls.yield_at().map_or(u64::MAX, |at| at.since(now).as_nanos() as u64);
        let mut batch = Batch { events: events.len() as u64, quantum_ns, ..Batch::default() };
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
                    self.connections.push(Pending::default());
                    calls.accept(handle, Cookie(self.connections.len() as u64 - 1)).is_ok()
                }
                Event::Recv { handle, cookie, data, .. } => {
                    self.work(shared, (handle, cookie), Some(data), calls, &mut batch)
                }
                Event::Again { handle, cookie, .. } => {
                    self.work(shared, (handle, cookie), None, calls, &mut batch)
                }
                // The client never closes; replies are acknowledged without further consequence.
                Event::Sent { .. } => true,
                _ => false,
            };
            self.failures += u64::from(!done);
        }
        batch
    }

    /// Serves what `data` completes or, without it, what was put off.
    fn work(
        &mut self,
        shared: &Shared,
        (handle, cookie): (Handle, Cookie),
        data: Option<&[u8]>,
        calls: &mut Calls<'_>,
        batch: &mut Batch,
    ) -> bool {
        let Some(pending) = self.connections.get_mut(cookie.0 as usize) else { return false };
        let mut done = true;
        let mut serve = |request: &Frame, left_ns: u64| {
            let mut reply = *request;
            if request.sequence & ASK_HOME != 0 {
                reply.service_ns = shared.home_of(handle.group()).into();
            } else {
                // The batch has come to its end as it is, or comes there with a part of this request.
                let part_ns = left_ns.min(batch.quantum_ns.saturating_sub(batch.service_ns));
                batch.service_ns += part_ns;
                if part_ns < left_ns {
                    return left_ns - part_ns;
                }
                batch.requests += 1;
            }
            // Replies of 16 bytes, a few outstanding: the window has room for them.
            done &= calls.sendv(handle, &[&reply.to_bytes()]).is_ok();
            0
        };
        let all = match data {
            Some(data) => pending.receive(data, &mut serve),
            None => pending.resume(&mut serve),
        };
        if !all {
            calls.again(handle);
        }
        done && data.is_none_or(|data| calls.recv_done(handle, data.len()).is_ok())
    }
}
