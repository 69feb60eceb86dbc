//! The control thread: lets tenants in, within limits, and sees them go.
//!
//! It is a thread of its own, so that joiners cost the data-plane cores nothing but what an address space
//! in common costs: sockets do not block, a message is read whole or not at all, who says nothing is
//! dropped after a time, every table has a limit, and each user an account (`limits`). It maps and unmaps
//! tenants' memory in bounded steps (`tenant_memory`), and speaks to the cores by bounded letterboxes.

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::AtomicU8;
use std::sync::mpsc::{SyncSender, TrySendError};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use qwait::{SharedTenantSet, TENANTS_MAX};
use rustix::event::{EventfdFlags, Timespec, epoll, eventfd};
use rustix::io::Errno;
use rustix::net::SocketFlags;

use crate::bucket::Limiter;
use crate::config::PlaneConfig;
use crate::core::{Letterbox, Mail};
use crate::counters::{Counters, Counts};
use crate::geometry::Geometry;
use crate::join::{self, Ask, Offered};
use crate::limits::{Accounts, Usage, refusal};
use crate::link::{Link, Peer};
use crate::notify::Notify;
use crate::queue_pair::PlanePair;
use crate::tenant_memory::{self, STEP_BYTES};

/// Connections that one look at the listener accepts.
const ACCEPTS_A_LOOK: usize = 16;
/// Events that one look takes.
const EVENTS: usize = 64;
/// Between two looks at time-outs, at the most.
const TICK: Duration = Duration::from_millis(100);
/// The same while tenants are leaving: cores answer within microseconds. Between two steps of forgetting
/// memory, at the least.
const LEAVING_TICK: Duration = Duration::from_millis(2);
/// Tenants that one step frees at most: each is two mappings.
const FREED_A_TICK: usize = 4;
const LISTENER: u64 = 0;
const WAKE: u64 = 1;

/// What became of connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct JoinCounts {
    /// Connections that were accepted.
    pub connections: u64,
    /// Tenants that joined.
    pub joined: u64,
    /// Asks that were refused.
    pub refused: u64,
    /// Of these, asks over a limit of the user or of the plane.
    pub over_limit: u64,
    /// Offers that came to nothing: the tenant confirmed memory that it had not allocated, or had sealed.
    pub unusable: u64,
    /// Connections that were dropped before they had joined: too slow, or too many.
    pub dropped: u64,
    /// Tenants that were disconnected as they said more than an ask.
    pub disconnected: u64,
    /// Tenants that are gone, for whatever reason.
    pub left: u64,
}

/// What control shares with whoever asks for reports. Locked by control when a tenant comes or goes,
/// never by a core.
#[derive(Debug, Default)]
pub(crate) struct Board {
    pub(crate) tenants: BTreeMap<u64, Weak<Link>>,
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

/// A connection that has not joined yet.
#[derive(Debug)]
struct Joining {
    socket: OwnedFd,
    since: Instant,
    peer: Peer,
    /// What it was offered, and has not confirmed.
    offer: Option<Offer>,
}

/// What a tenant needs, charged to its user; nothing of it is mapped.
#[derive(Debug)]
struct Offer {
    geometry: Geometry,
    class: u8,
    slots: Vec<u32>,
    file: OwnedFd,
    wakes: Vec<OwnedFd>,
    usage: Usage,
}

/// A tenant that waits until its pages are touched, from this place on.
#[derive(Debug)]
struct Settling {
    link: Arc<Link>,
    from: usize,
}

/// A tenant that is gone: its slots are free when no core looks at it any more, its user's account when
/// its pages are forgotten.
#[derive(Debug)]
struct Leaving {
    link: Arc<Link>,
    /// It was listed.
    has_joined: bool,
    /// Cores whose letterbox has not taken the news yet.
    untold: Vec<usize>,
    /// Pages are forgotten from here on.
    from: usize,
}

/// The control thread's state.
pub(crate) struct Control {
    listener: OwnedFd,
    epoll: OwnedFd,
    accounts: Accounts,
    /// What new tenants get.
    config: PlaneConfig,
    cores: Vec<CoreHandle>,
    sets: Vec<SetSlots>,
    board: Arc<Mutex<Board>>,
    joining: BTreeMap<u64, Joining>,
    settling: VecDeque<Settling>,
    joined: BTreeMap<u64, Arc<Link>>,
    leaving: VecDeque<Leaving>,
    /// When memory was forgotten last.
    forgot: Instant,
    next_id: u64,
    /// The listener failed (no descriptor left): not asked again before the next tick.
    paused: bool,
}

impl Control {
    /// `wake` ends the thread's wait, and the thread with it; it is to live as long as the thread.
    pub(crate) fn new(
        listener: OwnedFd,
        wake: &OwnedFd,
        config: PlaneConfig,
        (cores, sets): (Vec<CoreHandle>, Vec<SetSlots>),
        board: Arc<Mutex<Board>>,
    ) -> Result<Self, Errno> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let data = epoll::EventData::new_u64;
        epoll::add(&epoll, &listener, data(LISTENER), epoll::EventFlags::IN)?;
        epoll::add(&epoll, wake, data(WAKE), epoll::EventFlags::IN)?;
        Ok(Self {
            listener,
            epoll,
            accounts: Accounts::new(config.limits),
            config,
            cores,
            sets,
            board,
            joining: BTreeMap::new(),
            settling: VecDeque::new(),
            joined: BTreeMap::new(),
            leaving: VecDeque::new(),
            forgot: Instant::now(),
            next_id: WAKE + 1,
            paused: false,
        })
    }

    /// Runs until somebody writes to the wake descriptor.
    pub(crate) fn run(mut self) {
        let mut events = Vec::with_capacity(EVENTS);
        let mut ticked = Instant::now();
        loop {
            let tick = match (self.settling.is_empty(), self.leaving.is_empty()) {
                (false, _) => Duration::ZERO,
                (true, false) => LEAVING_TICK,
                (true, true) => TICK,
            };
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
                self.accounts.prune();
            }
            self.settle();
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
            let Some(peer) = peer_of(&socket) else { continue };
            self.make_room(peer.uid);
            let id = self.next_id;
            self.next_id += 1;
            let events = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
            if epoll::add(&self.epoll, &socket, epoll::EventData::new_u64(id), events).is_ok() {
                let joining = Joining { socket, since: Instant::now(), peer, offer: None };
                self.joining.insert(id, joining);
            }
        }
    }

    /// Drops the oldest connection of the user, or of all, where one more would be too many: it has had the
    /// most time. So honest joiners, who ask at once, come through.
    fn make_room(&mut self, uid: u32) {
        let limits = self.accounts.limits();
        let (all, each) = (limits.joining as usize, limits.joining_per_uid as usize);
        let mut of_user = self.joining.iter().filter(|(_, joining)| joining.peer.uid == uid);
        let oldest = match of_user.clone().count() >= each {
            true => of_user.next().map(|(&id, _)| id),
            false if self.joining.len() >= all => self.joining.keys().next().copied(),
            false => None,
        };
        if let Some(joining) = oldest.and_then(|id| self.joining.remove(&id)) {
            self.give_up(&joining);
        }
    }

    /// A connection ends before it has joined.
    fn give_up(&mut self, joining: &Joining) {
        self.withdraw(joining);
        self.board(|board| board.joins.dropped += 1);
    }

    /// Takes back what a connection was offered.
    fn withdraw(&mut self, joining: &Joining) {
        if let Some(offer) = &joining.offer {
            self.free_slots(&offer.geometry, &offer.slots);
            self.accounts.release(joining.peer.uid, offer.usage);
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
        let timeout = self.accounts.limits().ask_timeout;
        let is_slow = |joining: &mut Joining| joining.since.elapsed() >= timeout;
        let slow: Vec<_> = self.joining.extract_if(.., |_, joining| is_slow(joining)).collect();
        slow.iter().for_each(|(_, joining)| self.give_up(joining));
    }

    /// A connection said something, or hung up.
    fn hear(&mut self, id: u64) {
        let mut buffer = join::ASK_BUFFER;
        let settling = || self.settling.iter().map(|one| &one.link).find(|link| link.id == id);
        if let Some(link) = self.joined.get(&id).or_else(settling) {
            match join::receive_ask(link.socket.as_fd(), &mut buffer) {
                Ok(None) => return,
                Ok(Some(said)) if !said.is_empty() => {
                    self.board(|board| board.joins.disconnected += 1);
                }
                Ok(Some(_)) | Err(_) => {}
            }
            return self.leave(id);
        }
        let Some(joining) = self.joining.get(&id) else { return };
        let said = match join::receive_ask(joining.socket.as_fd(), &mut buffer) {
            Ok(None) => return,
            Ok(Some(said)) => said,
            Err(_) => &[],
        };
        let Some(mut joining) = self.joining.remove(&id) else { return };
        if said.is_empty() {
            return self.give_up(&joining);
        }
        if joining.offer.is_some() {
            return self.confirmed(id, joining, said);
        }
        let offer = join::parse_ask(said).and_then(|ask| self.admit(joining.peer, ask));
        match offer.and_then(|offer| self.offer(id, &joining.socket, offer)) {
            Ok(offer) => {
                joining.offer = Some(offer);
                self.joining.insert(id, joining);
            }
            Err(why) => self.refuse(&joining.socket, &why),
        }
    }

    fn refuse(&self, socket: &OwnedFd, why: &str) {
        // Counted before the tenant knows.
        self.board(|board| board.joins.refused += 1);
        join::send_refused(socket.as_fd(), why);
    }

    // ---- tenants ------------------------------------------------------------------------------

    /// Charges a tenant's user for what it asks, and makes that, or says why not.
    fn admit(&mut self, peer: Peer, Ask { shape, class }: Ask) -> Result<Offer, String> {
        let geometry = shape
            .check_over(self.sets.len() as u32)
            .map_err(|error| format!("cannot join: found {error}"))?;
        let class = self.config.classes.admit(peer.uid, class)?;
        let usage = self.usage_of(&geometry);
        self.accounts.charge(peer.uid, usage).inspect_err(|_| {
            self.board(|board| board.joins.over_limit += 1);
        })?;
        let slots = self.take_slots(&geometry).inspect_err(|_| {
            self.accounts.release(peer.uid, usage);
        })?;
        let wake = || eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let wakes = (0..geometry.sets()).map(|_| Ok(wake()?)).collect::<std::io::Result<_>>();
        match wakes.and_then(|wakes| Ok((wakes, tenant_memory::offer(&geometry)?))) {
            Ok((wakes, file)) => Ok(Offer { geometry, class, slots, file, wakes, usage }),
            Err(error) => {
                self.free_slots(&geometry, &slots);
                self.accounts.release(peer.uid, usage);
                Err(refusal(format_args!("a plane without room ({error})"), "try again later"))
            }
        }
    }

    /// What a tenant of this shape takes. Descriptors: the connection, the memory twice (`memfile`'s and
    /// `qwait`'s), an eventfd for each set, and for each ready word one that each core of its set watches.
    fn usage_of(&self, geometry: &Geometry) -> Usage {
        let cores_each = (self.cores.len() / self.sets.len().max(1)) as u32;
        let watched = if self.ready_bits() { geometry.words() * cores_each } else { 0 };
        Usage {
            tenants: 1,
            queues: geometry.shape().queues.into(),
            bytes: geometry.memory_bytes() as u64,
            descriptors: (3 + geometry.sets() + watched).into(),
        }
    }

    /// Whether tenants are to set ready bits.
    fn ready_bits(&self) -> bool {
        self.config.notify == Notify::Qwait
    }

    /// Sends an offer, or takes it back.
    fn offer(&mut self, id: u64, socket: &OwnedFd, offer: Offer) -> Result<Offer, String> {
        let offered = Offered { id, sets: offer.geometry.sets(), ready_bits: self.ready_bits() };
        join::send_offered(socket.as_fd(), offered, offer.file.as_fd(), &offer.wakes)
            .map(|()| offer)
            .map_err(|error| {
                refusal(format_args!("a socket that takes no answer ({error})"), "read")
            })
    }

    /// A tenant says that it has mapped its memory: maps it here, and lets its pages settle.
    fn confirmed(&mut self, id: u64, mut joining: Joining, said: &[u8]) {
        let is_mapped = said == join::MAPPED;
        let Some(offer) = joining.offer.take() else { return };
        let mapped = match is_mapped {
            true => tenant_memory::map(&offer.file, &offer.geometry),
            false => Err(std::io::Error::other("another message than `mapped`")),
        };
        let (memory, region) = match mapped {
            Ok(both) => both,
            Err(error) => {
                self.board(|board| board.joins.unusable += 1);
                self.refuse(&joining.socket, &refusal(error, "map what was offered, once"));
                joining.offer = Some(offer);
                return self.withdraw(&joining);
            }
        };
        let Offer { geometry, class, slots, wakes, usage, .. } = offer;
        let weight = self.config.weight;
        let link = Arc::new(Link {
            id,
            peer: joining.peer,
            usage,
            geometry,
            memory,
            region,
            queues: (0..geometry.shape().queues)
                .map(|queue| PlanePair::new(&geometry, queue, weight))
                .collect(),
            wakes,
            slots,
            socket: joining.socket,
            limiter: Limiter::new(self.config.rate_limit),
            class: AtomicU8::new(class),
            counters: (0..self.cores.len()).map(|_| Counters::default()).collect(),
        });
        self.settling.push_back(Settling { link, from: 0 });
    }

    /// Touches the next pages of the tenant that has waited longest, one step; the others' turns come.
    fn settle(&mut self) {
        let Some(mut settling) = self.settling.pop_front() else { return };
        let link = &settling.link;
        settling.from =
            tenant_memory::settle(&link.memory, &link.region, &link.geometry, settling.from);
        if settling.from < link.memory.len() {
            return self.settling.push_back(settling);
        }
        self.welcome(settling.link);
    }

    /// Tells the cores, then the tenant; undoes it where one of them cannot be told.
    fn welcome(&mut self, link: Arc<Link>) {
        let id = link.id;
        // A tenant with fewer queues than there are sets has none in the last ones.
        let concerned = |core: &&CoreHandle| link.geometry.word(core.set).is_some();
        let mut cores = self.cores.iter().filter(concerned);
        let told = cores.all(|core| core.tell(Mail::Attach(Arc::clone(&link))));
        // Listed before it knows: who joined finds itself in a report.
        self.board(|board| {
            match told {
                true => board.joins.joined += 1,
                false => board.joins.refused += 1,
            }
            board.tenants.insert(id, Arc::downgrade(&link));
        });
        self.joined.insert(id, Arc::clone(&link));
        if !told {
            join::send_refused(link.socket.as_fd(), &refusal("busy cores", "try again"));
        }
        if !told || join::send_joined(link.socket.as_fd()).is_err() {
            self.leave(id);
        }
    }

    /// A slot for each of a tenant's ready words, or none at all.
    fn take_slots(&mut self, geometry: &Geometry) -> Result<Vec<u32>, String> {
        let mut slots = Vec::new();
        for word in 0..geometry.words() {
            match self.sets[(word % geometry.sets()) as usize].take() {
                Some(slot) => slots.push(slot),
                None => {
                    self.free_slots(geometry, &slots);
                    let found = format_args!("all {TENANTS_MAX} places of a set of cores taken");
                    return Err(refusal(found, "try again later"));
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

    /// A tenant is gone, or is to go: its queues are removed.
    fn leave(&mut self, id: u64) {
        let settling = self.settling.iter().position(|one| one.link.id == id);
        let settling = settling.and_then(|at| self.settling.remove(at));
        let (link, has_joined) = match (self.joined.remove(&id), settling) {
            (Some(link), _) => (link, true),
            (None, Some(settling)) => (settling.link, false),
            (None, None) => return,
        };
        let _ = epoll::delete(&self.epoll, &link.socket);
        let _ = rustix::net::shutdown(&link.socket, rustix::net::Shutdown::Both);
        let untold = if has_joined { (0..self.cores.len()).collect() } else { Vec::new() };
        self.leaving.push_back(Leaving { link, has_joined, untold, from: 0 });
    }

    /// Tells the cores of who leaves. Then, a step each tick: forgets the pages of those that no core looks
    /// at any more, and frees what has none left. So others' cores are interrupted at a bounded rate.
    fn finish_leaving(&mut self) {
        for gone in &mut self.leaving {
            let id = gone.link.id;
            gone.untold.retain(|&core| !self.cores[core].tell(Mail::Detach(id)));
        }
        if self.leaving.is_empty() || self.forgot.elapsed() < LEAVING_TICK {
            return;
        }
        self.forgot = Instant::now();
        let mut left = STEP_BYTES;
        for _ in 0..self.leaving.len().min(FREED_A_TICK) {
            let Some(mut gone) = self.leaving.pop_front() else { return };
            let link = &gone.link;
            // Control's is the last: the cores have dropped theirs, and so the queues.
            let is_alone = gone.untold.is_empty() && Arc::strong_count(link) == 1;
            if is_alone && left > 0 {
                let from = gone.from;
                gone.from = tenant_memory::forget(&link.memory, from, left);
                left -= gone.from - from;
            }
            match is_alone && gone.from == link.memory.len() {
                true => self.free(gone),
                false => self.leaving.push_back(gone),
            }
        }
    }

    fn free(&mut self, gone: Leaving) {
        let Leaving { link, has_joined, .. } = gone;
        self.free_slots(&link.geometry, &link.slots);
        self.accounts.release(link.peer.uid, link.usage);
        if has_joined {
            let counts = link.counts();
            self.board(|board| {
                board.tenants.remove(&link.id);
                board.joins.left += 1;
                board.gone += counts;
            });
        }
    }
}

/// Who is at the other end.
fn peer_of(socket: &OwnedFd) -> Option<Peer> {
    let peer = rustix::net::sockopt::socket_peercred(socket).ok()?;
    Some(Peer { pid: peer.pid.as_raw_nonzero().get(), uid: peer.uid.as_raw() })
}
