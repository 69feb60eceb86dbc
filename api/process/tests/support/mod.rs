//! Both sides of a domain in one process: the application on a thread of its own.
#![allow(dead_code, reason = "each test binary uses a part")]

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;

use clock::{Clock, Instant, MonotonicClock};
use domain::{CallArray, CallRecord, Calls, Cookie, EventArray, EventRecord, Events, Handle};
use domain::{LocalEndpoint, Service, Staged};
use mem::{HugePages, Mbuf, Pool, Region, Want};
use process::{Application, Far, Geometry, Hello, Host, Near, Waiting};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use wire::Endpoint;

pub const SEGMENT: usize = 1_448;

pub fn payload(len: usize) -> Vec<u8> {
    (0..len).map(|index| (index * 31 + len) as u8).collect()
}

pub struct Joined {
    pub near: Near<'static>,
    pub far: Far,
    pub gone: Arc<AtomicBool>,
    pub region: Arc<Region>,
    pub sockets: std::os::fd::OwnedFd,
}

/// Joins the two over a socket pair.
pub fn join(geometry: Geometry, waiting: Waiting) -> Joined {
    let (near_socket, far_socket) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .expect("a socket pair");
    let region = Region::map(1_024, HugePages::No).expect("mapped");
    let hello = Hello { geometry, waiting, segment_bytes: SEGMENT, sums: true };
    let host = Host::new(hello, 1, &region).expect("made");
    host.greet(near_socket.as_fd()).expect("sent");
    let application = Application::join(far_socket).expect("joined");
    let mut fars = application.begin(false).expect("sent");
    let gone = Arc::new(AtomicBool::new(false));
    let mut nears = host.meet(near_socket.as_fd(), &gone).expect("met");
    let far = fars.pop().expect("one");
    Joined { near: nears.pop().expect("one"), far, gone, region, sockets: near_socket }
}

/// A dataplane's arrays, a near side, and an application on its own thread.
pub struct Pair<S = ()> {
    pub events: EventArray,
    pub pool: Pool,
    calls: CallArray,
    near: Near<'static>,
    gone: Arc<AtomicBool>,
    stop: Arc<AtomicBool>,
    looks: Arc<AtomicU64>,
    thread: Option<JoinHandle<S>>,
    _socket: std::os::fd::OwnedFd,
}

/// A call and the bytes that it sends.
pub type Issued = (CallRecord, Vec<u8>);

impl<S: Service + Send + 'static> Pair<S> {
    pub fn new(waiting: Waiting, make: impl FnOnce() -> S + Send + 'static) -> Self {
        let Joined { near, mut far, gone, region, sockets } =
            join(Geometry { events: 1_024, ..Geometry::default() }, waiting);
        let (stop, looks) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (clock, counted) = (MonotonicClock::new(), Arc::clone(&looks));
        let near = near.with_meanwhile(move || {
            counted.fetch_add(1, Ordering::Relaxed);
            clock.now()
        });
        let ends = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            // The memory of a `Far` is its thread's.
            let mut service = make();
            far.run(&mut service, &ends);
            service
        });
        Self {
            events: EventArray::new(4_096),
            pool: Pool::new(&region, 512),
            calls: CallArray::new(1_024, SEGMENT),
            near,
            gone,
            stop,
            looks,
            thread: Some(thread),
            _socket: sockets,
        }
    }

    /// One crossing: what the application asked for.
    pub fn cross(&mut self, now: Instant) -> Vec<Issued> {
        let calls = &mut Calls::new(&mut self.calls, &mut self.pool);
        self.near.on_batch(now, self.events.view(&()), calls);
        let issued = issued(&mut self.calls, &mut self.pool);
        for (_, mbuf) in self.events.drain().collect::<Vec<_>>() {
            self.pool.free(mbuf);
        }
        issued
    }

    /// The same batch to a service that is linked in; the batch stays.
    pub fn inline(&mut self, now: Instant, service: &mut impl Service) -> Vec<Issued> {
        let events: Events<'_> = self.events.view(&());
        service.on_batch(now, events, &mut Calls::new(&mut self.calls, &mut self.pool));
        issued(&mut self.calls, &mut self.pool)
    }

    pub fn near(&self) -> &Near<'static> {
        &self.near
    }

    pub fn gone(&self) -> Arc<AtomicBool> {
        Arc::clone(&self.gone)
    }

    /// Where [`looks`](Self::looks) are counted, for others to see while it waits.
    pub fn counted(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.looks)
    }

    pub fn looks(&self) -> u64 {
        self.looks.load(Ordering::Relaxed)
    }

    pub fn buffers(&mut self) -> usize {
        self.pool.allowance(Want::Send)
    }

    /// Ends the application, and answers its service.
    pub fn end(mut self) -> S {
        self.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().expect("it was started");
        thread.join().expect("the application did not panic")
    }
}

impl<S> Pair<S> {
    fn filled(&mut self, bytes: &[u8]) -> Mbuf {
        let mut mbuf = self.pool.alloc().expect("memory");
        mbuf.append(bytes).expect("it fits");
        mbuf
    }

    /// An event of received bytes.
    pub fn receive(&mut self, handle: Handle, cookie: Cookie, bytes: &[u8]) {
        let mbuf = self.filled(bytes);
        self.events.push_recv(handle, cookie, mbuf, 11, 22).expect("room");
    }

    /// An event of a datagram.
    pub fn datagram(&mut self, local: impl Into<LocalEndpoint>, peer: Endpoint, bytes: &[u8]) {
        let mbuf = self.filled(bytes);
        self.events.push_datagram(local.into(), peer, mbuf).expect("room");
    }

    /// An event without bytes.
    pub fn event(&mut self, record: EventRecord) {
        self.events.push(record).expect("room");
    }
}

/// Takes all calls out, each with the bytes that it sends, and checks their sums.
pub fn issued(array: &mut CallArray, pool: &mut Pool) -> Vec<Issued> {
    let (records, mut payloads) = array.take();
    let mut all = Vec::new();
    for record in &records {
        let staged = match record {
            CallRecord::Sendv { staged, .. } | CallRecord::UdpSendv { staged, .. } => *staged,
            _ => Staged { first: 0, count: 0 },
        };
        let mut bytes = Vec::new();
        for (mbuf, sum) in &payloads[staged.first as usize..][..staged.count as usize] {
            assert_eq!(sum.finish(), wire::Sum::of(mbuf.bytes()).finish(), "a sum is wrong");
            bytes.extend_from_slice(mbuf.bytes());
        }
        all.push((*record, bytes));
    }
    payloads.drain(..).for_each(|(mbuf, _)| pool.free(mbuf));
    array.restore(records, payloads);
    all
}
