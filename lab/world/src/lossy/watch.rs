//! What must hold of the events of every service, whatever it does: checked between the dataplane and
//! the service, in order.
//!
//! - a connection begins with `Knock` or `Connected`, and its handle is new;
//! - nothing comes after `Dead`, no bytes after `Eof`;
//! - a connection that ended in order (`Dead` with `Closed`) had its `Eof` before;
//! - a connection is with one core at a time: from when that has a batch with its events until it is asked what it
//!   wishes after it;
//! - no more is acknowledged than was sent;
//! - the cookie is the one that was given;
//! - no call fails: the services here never ask for what they were not promised.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use clock::Instant;
use tailplane::{Calls, Cookie, DeadReason, Event, Events, Handle, Service};

use crate::network::SharedNetwork;

/// Fails with `what` where something does not hold.
pub(crate) fn ensure(holds: bool, what: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(what()) }
}

/// What the services of one run tell the runner.
#[derive(Debug, Default)]
pub struct Ledger {
    /// The first thing that went wrong.
    pub failure: Option<String>,
    /// Client connections that did all they had to, and ended in order.
    pub completed: u64,
    /// Client connections that are to be completed.
    pub planned: u64,
    /// Connections that ended, both sides.
    pub ended: u64,
    /// Connections that began, both sides.
    pub begun: u64,
    /// Payload bytes that services were given.
    pub bytes: u64,
    /// When the last client connection was completed.
    pub completed_at: Instant,
}

impl Ledger {
    /// Notes a failure, unless there was one before.
    pub fn fail(&mut self, now: Instant, text: impl FnOnce() -> String) {
        if self.failure.is_none() {
            self.failure = Some(format!("at {} ns: {}", now.as_nanos(), text()));
        }
    }
}

/// The ledger as all services of a run share it.
pub type SharedLedger = Rc<RefCell<Ledger>>;

/// The connections of a host, as all its services see them: any of them may be handed any connection's
/// events, where the scheduler shares work.
pub type Living = Rc<RefCell<HashMap<Handle, Seen>>>;

/// What a connection's events have told so far.
#[derive(Debug)]
pub struct Seen {
    /// `None` until the first event that carries it.
    cookie: Option<Cookie>,
    eof: bool,
    /// A core has it.
    taken: bool,
}

/// A service with its events checked.
pub struct Watched<S> {
    service: S,
    name: String,
    ledger: SharedLedger,
    network: SharedNetwork,
    living: Living,
    /// Connections of the batch at hand.
    batch: RefCell<Vec<Handle>>,
}

impl<S: Service> Watched<S> {
    /// Watches `service`; `name` says whose it is, `living` is common to its host.
    pub fn new(
        service: S,
        name: String,
        ledger: SharedLedger,
        network: SharedNetwork,
        living: Living,
    ) -> Self {
        Self { service, name, ledger, network, living, batch: RefCell::default() }
    }

    /// Its core has the connections of these events.
    fn take(&self, events: &Events<'_>) -> Result<(), String> {
        self.release();
        let (mut living, mut batch) = (self.living.borrow_mut(), self.batch.borrow_mut());
        for handle in events.iter().filter_map(|event| connection(&event)) {
            let Some(seen) = living.get_mut(&handle).filter(|_| !batch.contains(&handle)) else {
                continue;
            };
            let is_taken = std::mem::replace(&mut seen.taken, true);
            ensure(!is_taken, || format!("{handle} is with two cores"))?;
            batch.push(handle);
        }
        Ok(())
    }

    /// It has them no longer.
    fn release(&self) {
        let mut living = self.living.borrow_mut();
        for handle in self.batch.borrow_mut().drain(..) {
            living.get_mut(&handle).into_iter().for_each(|seen| seen.taken = false);
        }
    }

    fn begin(&mut self, handle: Handle, cookie: Option<Cookie>) -> Result<(), String> {
        self.ledger.borrow_mut().begun += 1;
        let seen = Seen { cookie, eof: false, taken: false };
        let before = self.living.borrow_mut().insert(handle, seen);
        ensure(before.is_none(), || format!("{handle} began twice"))
    }

    /// Something was told of a connection; `end`: that it has ended. Answers whether it had before.
    fn of(&mut self, handle: Handle, cookie: Cookie, end: bool) -> Result<bool, String> {
        let mut living = self.living.borrow_mut();
        let seen = living.get_mut(&handle).ok_or(format!("{handle} does not live"))?;
        let is_same = *seen.cookie.get_or_insert(cookie) == cookie;
        ensure(is_same, || format!("{handle} has cookie {:?}, not {cookie:?}", seen.cookie))?;
        let before = seen.eof;
        seen.eof |= end;
        Ok(before)
    }

    /// Whether the connection has knocked and was not answered.
    fn knocked(&self, handle: Handle) -> bool {
        self.living.borrow().get(&handle).is_some_and(|seen| seen.cookie.is_none())
    }

    fn check(&mut self, event: &Event<'_>) -> Result<(), String> {
        match *event {
            // It knocks again where the service had no room to answer and asked for that.
            Event::Knock { handle, .. } if self.knocked(handle) => Ok(()),
            Event::Knock { handle, .. } => self.begin(handle, None),
            Event::Connected { outcome: Ok((handle, _)), cookie, .. } => {
                self.begin(handle, Some(cookie))
            }
            Event::Connected { .. } => Ok(()),
            Event::Recv { handle, cookie, data, .. } => {
                self.ledger.borrow_mut().bytes += data.len() as u64;
                let is_ended = self.of(handle, cookie, false)?;
                ensure(!is_ended, || "bytes after the end".to_owned())
            }
            Event::Sent { handle, cookie, .. } | Event::Again { handle, cookie, .. } => {
                self.of(handle, cookie, false).map(|_| ())
            }
            Event::Eof { handle, cookie } => {
                let is_ended = self.of(handle, cookie, true)?;
                ensure(!is_ended, || "a second end".to_owned())
            }
            Event::Dead { handle, cookie, reason } => {
                let seen = self.living.borrow_mut().remove(&handle);
                let seen = seen.ok_or(format!("{handle} died twice"))?;
                self.ledger.borrow_mut().ended += 1;
                let is_same = seen.cookie.is_none_or(|expected| expected == cookie);
                ensure(is_same, || format!("{handle} died with cookie {cookie:?}"))?;
                let in_order = reason != DeadReason::Closed || seen.eof;
                ensure(in_order, || format!("{handle} was closed in order without an end"))
            }
            Event::Info { handle, cookie, .. } => self.of(handle, cookie, false).map(|_| ()),
            Event::Datagram { .. } | Event::Listening { .. } => Ok(()),
            Event::Failed { .. } => Err("a call failed".to_owned()),
        }
    }
}

/// The connection that an event is about.
pub(crate) fn connection(event: &Event<'_>) -> Option<Handle> {
    match *event {
        Event::Knock { handle, .. }
        | Event::Connected { outcome: Ok((handle, _)), .. }
        | Event::Recv { handle, .. }
        | Event::Sent { handle, .. }
        | Event::Eof { handle, .. }
        | Event::Dead { handle, .. }
        | Event::Again { handle, .. }
        | Event::Info { handle, .. }
        | Event::Failed { handle, .. } => Some(handle),
        Event::Connected { .. } | Event::Datagram { .. } | Event::Listening { .. } => None,
    }
}

/// A word for the digest.
fn fingerprint(event: &Event<'_>) -> u64 {
    match *event {
        Event::Knock { handle, .. } => handle.to_bits() ^ 1,
        Event::Connected { cookie, outcome, .. } => cookie.0 ^ (outcome.is_ok() as u64) << 60 ^ 2,
        Event::Recv { handle, data, acked, window, .. } => {
            let told = (acked as u64) << 24 ^ (window as u64) << 32;
            handle.to_bits() ^ (data.len() as u64) << 8 ^ told ^ 3
        }
        Event::Sent { handle, bytes, window, .. } => {
            handle.to_bits() ^ (bytes as u64) << 8 ^ (window as u64) << 32 ^ 4
        }
        Event::Eof { handle, .. } => handle.to_bits() ^ 5,
        Event::Dead { handle, reason, .. } => handle.to_bits() ^ (reason as u64) << 8 ^ 6,
        Event::Again { handle, window, .. } => handle.to_bits() ^ (window as u64) << 32 ^ 9,
        Event::Datagram { data, .. } => data.len() as u64 ^ 7 << 60,
        Event::Failed { handle, .. } => handle.to_bits() ^ 8,
        Event::Info { handle, .. } => handle.to_bits() ^ 10,
        Event::Listening { cookie } => cookie.0 ^ 11,
    }
}

impl<S: Service> Service for Watched<S> {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        if let Err(what) = self.take(&events) {
            self.ledger.borrow_mut().fail(now, || format!("{}: {what}", self.name));
        }
        for event in events.iter() {
            self.network.borrow_mut().digest.word(fingerprint(&event));
            if let Err(what) = self.check(&event) {
                let shown = match event {
                    Event::Recv { handle, data, .. } => {
                        format!("Recv of {} bytes on {handle}", data.len())
                    }
                    other => format!("{other:?}"),
                };
                let name = &self.name;
                self.ledger.borrow_mut().fail(now, || format!("{name}: {what}: {shown}"));
            }
        }
        self.service.on_batch(now, events, calls);
    }

    fn wake_at(&self) -> Option<Instant> {
        self.release();
        self.service.wake_at()
    }

    fn runs_anywhere(&self) -> bool {
        self.service.runs_anywhere()
    }
}

#[cfg(test)]
mod tests {
    use domain::{CallArray, EventArray, EventRecord};
    use mem::{Pool, Region};
    use wire::{Endpoint, Ipv4Addr};

    use super::*;
    use crate::network::{Faults, Network};

    /// A service that does nothing.
    struct Idle;

    impl Service for Idle {
        fn on_batch(&mut self, _: Instant, _: Events<'_>, _: &mut Calls<'_>) {}

        fn wake_at(&self) -> Option<Instant> {
            None
        }
    }

    fn give(core: &mut Watched<Idle>, record: EventRecord) {
        let mut events = EventArray::new(1);
        events.push(record).expect("room");
        let (mut calls, mut pool) = (CallArray::new(1, 1_000), Pool::new(&Region::heap(64), 0));
        let mut calls = Calls::new(&mut calls, &mut pool);
        core.on_batch(Instant::ZERO, events.view(&()), &mut calls);
    }

    #[test]
    fn a_connection_that_two_cores_have_is_a_failure() {
        let handle = Handle::new(0, 1, 0);
        let peer = Endpoint::new(Ipv4Addr::new(10, 9, 0, 2), 9);
        let knock = EventRecord::Knock {
            handle,
            local: 7.into(),
            peer,
            window: domain::FirstWindow::new(0),
        };
        let again = EventRecord::Again { handle, cookie: Cookie(1), window: 0 };
        for ends_first in [true, false] {
            let network = Network::new(1, Faults::none());
            let (ledger, living) = (SharedLedger::default(), Living::default());
            let [mut first, mut second] = ["first", "second"].map(|name| {
                let (ledger, living) = (Rc::clone(&ledger), Rc::clone(&living));
                Watched::new(Idle, name.to_owned(), ledger, Rc::clone(&network), living)
            });
            give(&mut first, knock);
            give(&mut first, again);
            if ends_first {
                assert_eq!(first.wake_at(), None);
            }
            give(&mut second, again);
            let failure = ledger.borrow_mut().failure.take().unwrap_or_default();
            assert_eq!(failure.contains("is with two cores"), !ends_first, "{failure}");
        }
    }
}
