//! An application that is elsewhere: it has each batch for a while, and the elastic thread goes on meanwhile
//! ([`Service::has_batch`]). What it asks for is kept and issued when the batch comes back.

use std::sync::{Arc, Mutex};

use clock::{Duration, Instant};
use domain::{Appended, CallArray, CallRecord, EventMirror, EventRecord, Staged};
use mem::{Pool, Region};
use tailplane::{Calls, Events, Service};

use crate::dice::Dice;

/// How long such an application has a batch.
#[derive(Clone, Copy, Debug)]
pub struct DistantConfig {
    /// At least.
    pub shortest: Duration,
    /// At most.
    pub longest: Duration,
}

/// An event, and its bytes.
type Copied = (EventRecord, Vec<u8>);

/// Events as they were written down when they came about: all of a batch but the first.
#[derive(Clone, Debug, Default)]
pub(super) struct EventCopy(Arc<Mutex<Vec<Copied>>>);

impl EventMirror for EventCopy {
    fn put(&mut self, index: usize, events: Appended<'_>) -> usize {
        let mut copies = self.0.lock().expect("nobody panicked");
        // As one that asks somebody about them.
        let is_asked = |record: &EventRecord| {
            matches!(record, EventRecord::Knock { .. } | EventRecord::Datagram { .. })
        };
        let taken = events.records().iter().take_while(|record| !is_asked(record));
        let copied = |record: &EventRecord| (*record, events.bytes(record).to_vec());
        let taken: Vec<Copied> = taken.map(copied).collect();
        let put = taken.len();
        for (index, copy) in (index - 1..).zip(taken) {
            match copies.get_mut(index) {
                Some(place) => *place = copy,
                None => copies.push(copy),
            }
        }
        put
    }
}

impl EventCopy {
    /// What was written down is what is told.
    fn check(&self, events: &Events<'_>) {
        let copies = self.0.lock().expect("nobody panicked");
        if events.is_mirrored() {
            for (index, event) in events.iter().skip(1).enumerate() {
                let copy = copies.get(index).map(|(record, bytes)| record.event(|_| bytes));
                assert_eq!(copy, Some(event), "event {} of {}", index + 1, events.len());
            }
        }
    }
}

/// See the module's comment.
pub(super) struct Distant {
    service: Box<dyn Service>,
    config: DistantConfig,
    /// Its own memory: what it sends is copied when the batch comes back.
    pool: Pool,
    calls: CallArray,
    /// It has a batch until then.
    until: Option<Instant>,
    dice: Dice,
    copy: EventCopy,
}

impl Distant {
    pub fn new(
        service: Box<dyn Service>,
        config: DistantConfig,
        chunks: u32,
        segment_bytes: usize,
        dice: Dice,
        copy: EventCopy,
    ) -> Self {
        let pool = Pool::new(&Region::heap(chunks), 0);
        let calls = CallArray::new(0, segment_bytes);
        Self { service, config, pool, calls, until: None, dice, copy }
    }

    fn issue(&mut self, calls: &mut Calls<'_>) {
        let (records, mut payloads) = self.calls.take();
        for record in &records {
            let pieces = |Staged { first, count }: Staged| -> Vec<&[u8]> {
                let staged = &payloads[first as usize..][..count as usize];
                staged.iter().map(|(mbuf, _)| mbuf.bytes()).collect()
            };
            let issued = match *record {
                CallRecord::Connect { cookie, local, peer } => {
                    calls.connect_from(cookie, local, peer)
                }
                CallRecord::Accept { handle, cookie } => calls.accept(handle, cookie),
                CallRecord::RecvDone { handle, bytes } => calls.recv_done(handle, bytes as usize),
                CallRecord::Shutdown { handle } => calls.shutdown(handle),
                CallRecord::Close { handle } => calls.close(handle),
                CallRecord::Abort { handle } => calls.abort(handle),
                CallRecord::Again { handle } => {
                    calls.again(handle);
                    Ok(())
                }
                CallRecord::Listen { cookie, transport, port, backlog } => {
                    calls.listen(cookie, transport, port, backlog)
                }
                CallRecord::Unlisten { cookie, transport, port } => {
                    calls.unlisten(cookie, transport, port)
                }
                CallRecord::Inform { handle } => calls.inform(handle),
                CallRecord::Sendv { handle, staged } => calls.sendv(handle, &pieces(staged)),
                CallRecord::SendvPlaced { .. } => unreachable!("this array stages what it sends"),
                CallRecord::UdpSendv { local, peer, staged } => {
                    calls.udp_sendv(local, peer, &pieces(staged))
                }
            };
            assert!(issued.is_ok(), "there is not the room that was promised: {record:?}");
        }
        payloads.drain(..).for_each(|(mbuf, _)| self.pool.free(mbuf));
        self.calls.restore(records, payloads);
    }
}

impl Service for Distant {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        self.copy.check(&events);
        self.calls.bound(calls.room(), calls.buffers());
        let mut own = Calls::new(&mut self.calls, &mut self.pool);
        self.service.on_batch(now, events, &mut own);
        let DistantConfig { shortest, longest } = self.config;
        self.until = Some(now + self.dice.duration(shortest, longest));
    }

    /// When it is done, or else what the service wishes.
    fn wake_at(&self) -> Option<Instant> {
        self.until.or_else(|| self.service.wake_at())
    }

    fn is_away(&mut self, now: Instant) -> bool {
        self.until.is_some_and(|until| now < until)
    }

    fn has_batch(&self) -> bool {
        self.until.is_some()
    }

    fn collect(&mut self, _: Instant, calls: &mut Calls<'_>) {
        self.until = None;
        self.issue(calls);
    }

    fn runs_anywhere(&self) -> bool {
        self.service.runs_anywhere()
    }
}
