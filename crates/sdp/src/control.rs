//! The control thread: lets tenants in, within limits, and sees them go.
//!
//! It is a thread of its own, so that whatever joiners do costs the data-plane cores nothing: sockets
//! do not block, a message is read whole or not at all, who says nothing is dropped after a time, and
//! every table has a limit. It speaks to the cores by bounded letterboxes.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU8;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use qwait::{Region, SharedTenantSet, TENANTS_MAX};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::bucket::{Limiter, RateLimit};
use crate::class::ClassPolicy;
use crate::core::{Letterbox, Mail};
use crate::counters::{Counters, Counts};
use crate::geometry::Geometry;
use crate::join::{self, Accepted, Ask};
use crate::link::Link;
use crate::queue_pair::PlanePair;
use memfile::Memory;

/// Connections that one look at the listener accepts.
const ACCEPTS_A_LOOK: usize = 16;
/// Events that one look takes.
const EVENTS: usize = 64;
/// Between two looks at time-outs, at the most.
const TICK: Duration = Duration::from_millis(100);
/// The same while tenants are leaving: cores answer within microseconds.
const LEAVING_TICK: Duration = Duration::from_millis(2);
const LISTENER: u64 = 0;
const WAKE: u64 = 1;

/// How much tenants may have. What is over a limit is refused, with the limit's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Tenants in all.
    pub tenants: u32,
    /// Queue pairs in all.
    pub queues: u32,
    /// Bytes of shared memory in all.
    pub bytes: u64,
    /// Tenants of one user.
    pub tenants_per_uid: u32,
    /// Queue pairs of one user.
    pub queues_per_uid: u32,
    /// Bytes of one user.
    pub bytes_per_uid: u64,
    /// Connections that have not asked yet. One more drops the oldest of them.
    pub joining: u32,
    /// How long a connection may take to ask.
    pub ask_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            tenants: TENANTS_MAX,
            queues: 16_384,
            bytes: 1 << 30,
            tenants_per_uid: TENANTS_MAX,
            queues_per_uid: 16_384,
            bytes_per_uid: 1 << 30,
            joining: 64,
            ask_timeout: Duration::from_secs(1),
        }
    }
}

/// What became of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinCounts {
    /// Connections that were accepted.
    pub connections: u64,
    /// Tenants that joined.
    pub joined: u64,
    /// Asks that were refused.
    pub refused: u64,
    /// Connections that were dropped before they asked: too slow, or too many.
    pub dropped: u64,
    /// Tenants that were disconnected as they said more than an ask.
    pub disconnected: u64,
    /// Tenants that are gone, for whatever reason.
    pub left: u64,
}

/// A tenant as the outside sees it.
#[derive(Debug)]
pub(crate) struct Listed {
    pub(crate) pid: i32,
    pub(crate) uid: u32,
    pub(crate) link: Weak<Link>,
}

/// What control shares with whoever asks for reports. Locked by control when a tenant comes or goes,
/// never by a core.
#[derive(Debug, Default)]
pub(crate) struct Board {
    pub(crate) tenants: BTreeMap<u64, Listed>,
    pub(crate) joins: JoinCounts,
    /// What tenants that are gone had been counted.
    pub(crate) gone: Counts,
}

/// The way to a core.
#[derive(Debug)]
pub(crate) struct CoreHandle {
    pub(crate) set: u32,
    pub(crate) mail: SyncSender<Mail>,
    pub(crate) letterbox: Arc<Letterbox>,
}

impl CoreHandle {
    /// False: the letterbox is full, or the core is gone.
    fn tell(&self, letter: Mail) -> bool {
        let sent = match self.mail.try_send(letter) {
            Ok(()) => true,
            // A core that ended looks at no tenant any more.
            Err(TrySendError::Disconnected(letter)) => matches!(letter, Mail::Detach(_)),
            Err(TrySendError::Full(_)) => false,
        };
        self.letterbox.ring();
        sent
    }
}

/// A set's slots, and its claims where several cores share them.
#[derive(Debug)]
pub(crate) struct SetSlots {
    taken: Vec<bool>,
    shared: Option<SharedTenantSet>,
}

impl SetSlots {
    pub(crate) fn new(shared: Option<SharedTenantSet>) -> Self {
        Self { taken: vec![false; TENANTS_MAX as usize], shared }
    }

    /// The lowest free slot: searches go no further than the highest that is taken.
    fn take(&mut self) -> Option<u32> {
        let slot = self.taken.iter().position(|taken| !taken)?;
        self.taken[slot] = true;
        Some(slot as u32)
    }

    /// No core looks at it any more.
    fn free(&mut self, slot: u32) {
        if let Some(taken) = self.taken.get_mut(slot as usize) {
            *taken = false;
        }
        if let Some(set) = &self.shared {
            set.reset(slot);
        }
    }
}

/// What a user, or all of them, have.
#[derive(Clone, Copy, Debug, Default)]
struct Usage {
    tenants: u32,
    queues: u32,
    bytes: u64,
}

impl Usage {
    fn of(geometry: &Geometry) -> Self {
        let bytes = geometry.memory_bytes() as u64;
        Self { tenants: 1, queues: geometry.shape().queues, bytes }
    }

    fn add(&mut self, more: Self) {
        self.tenants += more.tenants;
        self.queues += more.queues;
        self.bytes += more.bytes;
    }

    fn sub(&mut self, less: Self) {
        self.tenants -= less.tenants;
        self.queues -= less.queues;
        self.bytes -= less.bytes;
    }

    /// What of a limit would be exceeded by so much more.
    fn over(self, more: Self, limit: Self, whose: &str) -> Result<(), String> {
        let check = |what: &str, have: u64, more: u64, limit: u64| {
            if have + more <= limit {
                return Ok(());
            }
            Err(format!("{whose} has {have} {what}, {more} more are over the limit of {limit}"))
        };
        check("tenants", self.tenants.into(), more.tenants.into(), limit.tenants.into())?;
        check("queues", self.queues.into(), more.queues.into(), limit.queues.into())?;
        check("bytes of shared memory", self.bytes, more.bytes, limit.bytes)
    }
}

/// A connection that has not asked yet.
#[derive(Debug)]
struct Joining {
    socket: OwnedFd,
    since: Instant,
}

/// Who a connection is, as the kernel says.
#[derive(Clone, Copy, Debug)]
struct Peer {
    pid: i32,
    uid: u32,
}

/// A tenant that joined.
#[derive(Debug)]
struct Joined {
    /// The connection, as it was registered; the link has a duplicate.
    socket: OwnedFd,
    link: Arc<Link>,
    uid: u32,
}

/// A tenant that is gone: its slots are free when no core looks at it any more.
#[derive(Debug)]
struct Leaving {
    link: Arc<Link>,
    uid: u32,
    /// Cores that were not told yet.
    untold: Vec<usize>,
}

/// What a new tenant gets.
#[derive(Clone, Debug)]
pub(crate) struct NewTenants {
    pub(crate) limit: RateLimit,
    pub(crate) weight: u32,
    pub(crate) classes: ClassPolicy,
    pub(crate) ready_bits: bool,
}

/// The control thread's state.
pub(crate) struct Control {
    listener: OwnedFd,
    /// Ends the thread's wait; a stop is asked for by writing to it.
    wake: Arc<OwnedFd>,
    epoll: OwnedFd,
    limits: Limits,
    new_tenants: NewTenants,
    cores: Vec<CoreHandle>,
    sets: Vec<SetSlots>,
    board: Arc<Mutex<Board>>,
    joining: BTreeMap<u64, Joining>,
    joined: BTreeMap<u64, Joined>,
    leaving: Vec<Leaving>,
    total: Usage,
    by_uid: HashMap<u32, Usage>,
    next_id: u64,
    /// The listener failed (no descriptor left): not asked again before the next tick.
    paused: bool,
}

impl Control {
    pub(crate) fn new(
        listener: OwnedFd,
        wake: Arc<OwnedFd>,
        limits: Limits,
        new_tenants: NewTenants,
        (cores, sets): (Vec<CoreHandle>, Vec<SetSlots>),
        board: Arc<Mutex<Board>>,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64;
        epoll::add(&epoll, &listener, data(LISTENER), epoll::EventFlags::IN)?;
        epoll::add(&epoll, &*wake, data(WAKE), epoll::EventFlags::IN)?;
        Ok(Self {
            listener,
            wake,
            epoll,
            limits,
            new_tenants,
            cores,
            sets,
            board,
            joining: BTreeMap::new(),
            joined: BTreeMap::new(),
            leaving: Vec::new(),
            total: Usage::default(),
            by_uid: HashMap::new(),
            next_id: WAKE + 1,
            paused: false,
        })
    }

    /// Runs until somebody writes to the wake descriptor.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        let mut ticked = Instant::now();
        loop {
            let tick = if self.leaving.is_empty() { TICK } else { LEAVING_TICK };
            events.clear();
            let spare = rustix::buffer::spare_capacity(&mut events);
            // An interruption is an early tick.
            let _ = epoll::wait(&self.epoll, spare, Timespec::try_from(tick).ok().as_ref());
            for event in &events {
                match event.data.u64() {
                    LISTENER => self.accept(),
                    WAKE => return,
                    id => self.hear(id),
                }
            }
            if ticked.elapsed() >= TICK {
                ticked = Instant::now();
                self.drop_slow();
                self.resume();
            }
            self.finish_leaving();
        }
    }

    fn board(&self, change: impl FnOnce(&mut Board)) {
        // Nothing that is done under this lock panics, so a poisoned board is as good as any.
        change(&mut self.board.lock().unwrap_or_else(PoisonError::into_inner));
    }

    // ---- connections --------------------------------------------------------------------------

    fn accept(&mut self) {
        for _ in 0..ACCEPTS_A_LOOK {
            let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
            let socket = match rustix::net::accept_with(&self.listener, flags) {
                Ok(socket) => socket,
                Err(Errno::AGAIN | Errno::INTR | Errno::CONNABORTED) => return,
                Err(_) => return self.pause(),
            };
            self.board(|board| board.joins.connections += 1);
            if self.joining.len() >= self.limits.joining as usize {
                // The oldest has had the most time: so honest joiners, who ask at once, come through.
                self.joining.pop_first();
                self.board(|board| board.joins.dropped += 1);
            }
            let id = self.next_id;
            self.next_id += 1;
            let events = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
            if epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(id), events).is_ok() {
                self.joining.insert(id, Joining { socket, since: Instant::now() });
            }
        }
    }

    /// The listener stays readable while no descriptor is left: not to be asked in a tight loop.
    fn pause(&mut self) {
        self.paused = epoll::delete(&self.epoll, &self.listener).is_ok();
    }

    fn resume(&mut self) {
        if self.paused {
            let data = epoll::EventData::new_u64(LISTENER);
            self.paused =
                epoll::add(&self.epoll, &self.listener, data, epoll::EventFlags::IN).is_err();
        }
    }

    fn drop_slow(&mut self) {
        let timeout = self.limits.ask_timeout;
        let before = self.joining.len();
        self.joining.retain(|_, joining| joining.since.elapsed() < timeout);
        let dropped = (before - self.joining.len()) as u64;
        if dropped > 0 {
            self.board(|board| board.joins.dropped += dropped);
        }
    }

    /// A connection said something, or hung up.
    fn hear(&mut self, id: u64) {
        let mut buffer = join::ASK_BUFFER;
        if let Some(joined) = self.joined.get(&id) {
            match join::receive_ask(joined.socket.as_fd(), &mut buffer) {
                Ok(None) => {}
                Ok(Some(said)) => {
                    if !said.is_empty() {
                        self.board(|board| board.joins.disconnected += 1);
                    }
                    self.leave(id);
                }
                Err(_) => self.leave(id),
            }
            return;
        }
        let Some(joining) = self.joining.get(&id) else { return };
        let said = match join::receive_ask(joining.socket.as_fd(), &mut buffer) {
            Ok(None) => return,
            Ok(Some(said)) => said,
            Err(_) => &[],
        };
        let Some(Joining { socket, .. }) = self.joining.remove(&id) else { return };
        if said.is_empty() {
            return self.board(|board| board.joins.dropped += 1);
        }
        let answer = join::parse_ask(said).and_then(|ask| self.admit(id, &socket, ask));
        match answer {
            Ok((link, peer)) => self.welcome(id, socket, link, peer),
            Err(why) => {
                join::send_refused(socket.as_fd(), &why);
                self.board(|board| board.joins.refused += 1);
            }
        }
    }

    // ---- tenants ------------------------------------------------------------------------------

    /// Makes what a tenant needs, or says why not.
    fn admit(
        &mut self,
        id: u64,
        socket: &OwnedFd,
        Ask { shape, class }: Ask,
    ) -> Result<(Arc<Link>, Peer), String> {
        let peer = rustix::net::sockopt::socket_peercred(socket)
            .map_err(|error| format!("who is asking cannot be told: {error}"))?;
        let peer = Peer { pid: peer.pid.as_raw_nonzero().get(), uid: peer.uid.as_raw() };
        let geometry =
            shape.check_over(self.sets.len() as u32).map_err(|error| error.to_string())?;
        let class = self.new_tenants.classes.admit(peer.uid, class)?;
        let more = Usage::of(&geometry);
        self.within_limits(peer.uid, more)?;
        let slots = self.take_slots(&geometry)?;
        let link = self.make(id, (geometry, class), socket, slots.clone()).map_err(|error| {
            self.free_slots(&geometry, &slots);
            format!("the plane has no room: {error}")
        })?;
        self.total.add(more);
        self.by_uid.entry(peer.uid).or_default().add(more);
        Ok((Arc::new(link), peer))
    }

    /// Tells the cores, then the tenant; undoes it where one of them cannot be told.
    fn welcome(&mut self, id: u64, socket: OwnedFd, link: Arc<Link>, peer: Peer) {
        // A tenant with fewer queues than there are sets has none in the last ones.
        let concerned = |core: &&CoreHandle| link.geometry.word(core.set).is_some();
        let mut cores = self.cores.iter().filter(concerned);
        let told = cores.all(|core| core.tell(Mail::Attach(Arc::clone(&link))));
        let (sets, ready_bits) = (link.geometry.sets(), self.new_tenants.ready_bits);
        // Listed before it knows: who joined finds itself in a report.
        let listed = Listed { pid: peer.pid, uid: peer.uid, link: Arc::downgrade(&link) };
        self.board(|board| {
            board.joins.joined += 1;
            board.tenants.insert(id, listed);
        });
        let sent = told
            && link.memory.descriptor().is_ok_and(|memory| {
                let accepted = Accepted { id, sets, ready_bits };
                join::send_accepted(socket.as_fd(), accepted, memory.as_fd(), &link.wakes).is_ok()
            });
        if !told {
            join::send_refused(socket.as_fd(), "the cores are busy, try again");
        }
        self.joined.insert(id, Joined { socket, link, uid: peer.uid });
        if !sent {
            self.leave(id);
        }
    }

    fn within_limits(&self, uid: u32, more: Usage) -> Result<(), String> {
        let Limits { tenants, queues, bytes, .. } = self.limits;
        let have = self.by_uid.get(&uid).copied().unwrap_or_default();
        let limit = Usage {
            tenants: self.limits.tenants_per_uid,
            queues: self.limits.queues_per_uid,
            bytes: self.limits.bytes_per_uid,
        };
        have.over(more, limit, &format!("user {uid}"))?;
        self.total.over(more, Usage { tenants, queues, bytes }, "this plane")
    }

    /// A slot for each of a tenant's ready words, or none at all.
    fn take_slots(&mut self, geometry: &Geometry) -> Result<Vec<u32>, String> {
        let mut slots = Vec::new();
        for word in 0..geometry.words() {
            match self.sets[(word % geometry.sets()) as usize].take() {
                Some(slot) => slots.push(slot),
                None => {
                    self.free_slots(geometry, &slots);
                    return Err(format!("all {TENANTS_MAX} places of a set of cores are taken"));
                }
            }
        }
        Ok(slots)
    }

    fn free_slots(&mut self, geometry: &Geometry, slots: &[u32]) {
        for (word, &slot) in slots.iter().enumerate() {
            self.sets[word % geometry.sets() as usize].free(slot);
        }
    }

    fn make(
        &self,
        id: u64,
        (geometry, class): (Geometry, u8),
        socket: &OwnedFd,
        slots: Vec<u32>,
    ) -> std::io::Result<Link> {
        let memory = Memory::create("tailplane-sdp", geometry.memory_bytes())?;
        let region = Region::join(memory.descriptor()?).map_err(std::io::Error::other)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let wakes = (0..geometry.sets()).map(|_| Ok(eventfd(0, flags)?));
        let limiter = Limiter::default();
        limiter.set(self.new_tenants.limit);
        let weight = self.new_tenants.weight;
        Ok(Link {
            id,
            geometry,
            memory,
            region,
            queues: (0..geometry.shape().queues)
                .map(|queue| PlanePair::new(&geometry, queue, weight))
                .collect(),
            wakes: wakes.collect::<std::io::Result<_>>()?,
            slots,
            socket: socket.try_clone()?,
            limiter,
            class: AtomicU8::new(class),
            counters: (0..self.cores.len()).map(|_| Counters::default()).collect(),
        })
    }

    /// A tenant is gone, or is to go: its queues are removed.
    fn leave(&mut self, id: u64) {
        let Some(Joined { socket, link, uid }) = self.joined.remove(&id) else { return };
        // The link's duplicate keeps the file, and so the registration, which goes by this descriptor.
        let _ = epoll::delete(&self.epoll, &socket);
        let _ = rustix::net::shutdown(&socket, rustix::net::Shutdown::Both);
        let untold = (0..self.cores.len()).collect();
        self.leaving.push(Leaving { link, uid, untold });
        self.finish_leaving();
    }

    /// Frees what no core looks at any more.
    fn finish_leaving(&mut self) {
        let mut leaving = std::mem::take(&mut self.leaving);
        leaving.retain_mut(|gone| {
            let id = gone.link.id;
            gone.untold.retain(|&core| !self.cores[core].tell(Mail::Detach(id)));
            // Control's is the last: the cores have dropped theirs, and so the queues.
            if !gone.untold.is_empty() || Arc::strong_count(&gone.link) > 1 {
                return true;
            }
            let geometry = gone.link.geometry;
            self.free_slots(&geometry, &gone.link.slots);
            self.total.sub(Usage::of(&geometry));
            if let Some(usage) = self.by_uid.get_mut(&gone.uid) {
                usage.sub(Usage::of(&geometry));
                if usage.tenants == 0 {
                    self.by_uid.remove(&gone.uid);
                }
            }
            let counts = gone.link.counts();
            self.board(|board| {
                board.tenants.remove(&id);
                board.joins.left += 1;
                board.gone += counts;
            });
            false
        });
        self.leaving = leaving;
    }
}

impl std::fmt::Debug for Control {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Control")
            .field("joined", &self.joined.len())
            .field("wake", &self.wake)
            .finish_non_exhaustive()
    }
}
