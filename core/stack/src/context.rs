//! What every step of the stack works with: time, memory, and the two queues that it fills, events
//! upwards and frames downwards.

use alloc::collections::VecDeque;
use alloc::vec::Vec;

use clock::{Duration, Instant};
use domain::{EventArray, EventRecord, Handle};
use mem::{Mbuf, Pool, TxFrame, Want};
use wire::ipv4::{ECN_ECT_0, ECN_NOT_ECT};
use wire::ipv6::Ipv6Repr;
use wire::{
    Address, Endpoint, EstablishedTemplate, EtherType, EthernetRepr, FlowKey, Ipv4Addr, Ipv4Repr,
    MacAddr, PairId, Protocol, SeqNumber,
};

use crate::budget::{Answer, AnswerBudget};
use crate::elsewhere::Elsewhere;
use crate::link_message::LinkMessage;
use crate::neighbors::{Asked, Neighbor};
use crate::pairs::{Pair, Pairs};
use crate::reassembly::IncompleteDatagrams;
use crate::shared::{FLOW_GROUPS, Shared};
use crate::stats::StackStats;
use crate::tcp::backlog::{Backlog, Backlogs};
use crate::tcp::conn::{Conn, Flags, Place};
use crate::tcp::fields::Ends;
use crate::tcp::owed::OwedResets;
use crate::wheel::Wheel;

/// log2 of the nanoseconds in a tick of our timestamp clock: about a millisecond (RFC 7323 §5.4 allows 1 ms to 1 s).
pub(crate) const STAMP_SHIFT: u32 = 20;
/// Frames that wait for a link address, per core.
const MAX_UNRESOLVED: usize = 64;
/// How long a frame waits for a link address.
const UNRESOLVED_LIFE: Duration = Duration::from_secs(1);
/// No two requests for one link address within this time.
const ASK_INTERVAL: Duration = Duration::from_millis(100);
/// How often a core with waiting frames looks whether another core has learned the link address.
const LOOK_INTERVAL: Duration = Duration::from_millis(1);

/// For whom a link address is looked up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Asker {
    /// A connection that has just got on: the neighbour is where it was (RFC 1122 §2.3.2.1, RFC 4861 §7.3.1).
    Confirmed,
    /// A connection, or the application.
    Ours,
    /// A stranger that is answered. All of them together get half of the places, so that forged addresses do not take
    /// those of others.
    Stranger,
}

/// A frame that waits for a link address.
#[derive(Debug)]
struct Waiting {
    hop: Address,
    since: Instant,
    asker: Asker,
    /// Whole but for its destination.
    frame: Mbuf,
}

/// Frames that wait for a link address, and when it was last asked for.
#[derive(Debug, Default)]
pub(crate) struct Unresolved {
    waiting: VecDeque<Waiting>,
    /// Next hops that were asked for just now.
    asked: VecDeque<(Address, Instant, Asker)>,
    /// When to look at those that wait.
    look_at: Instant,
}

impl Unresolved {
    /// When frames that wait are next looked at; `None`: none does.
    #[inline]
    pub fn next_look(&self) -> Option<Instant> {
        (!self.waiting.is_empty()).then_some(self.look_at)
    }

    /// Gives back what waits.
    pub fn clear(&mut self, pool: &mut Pool) {
        self.waiting.drain(..).for_each(|waiting| pool.free(waiting.frame));
    }
}

/// What a connection may have of the memory that is left, in bytes of full segments: reckoned once a cycle.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shares {
    /// Received and not read.
    pub receive: u32,
    /// Sent and not acknowledged.
    pub send: u32,
}

impl Default for Shares {
    fn default() -> Self {
        Self { receive: u32::MAX, send: u32::MAX }
    }
}

impl Shares {
    /// Payload of a full segment on Ethernet, with timestamps.
    pub const SEGMENT: u32 = 1448;

    /// Those of now.
    pub fn of(pool: &Pool) -> Self {
        let bytes = |want| (pool.share(want) * Self::SEGMENT as usize).min(1 << 30) as u32;
        Self { receive: bytes(Want::Receive), send: bytes(Want::Send) }
    }
}

/// What the stack keeps between the steps of a cycle, apart from connections.
#[derive(Debug)]
pub(crate) struct Outbox {
    /// Frames for the NIC, in order.
    pub frames: Vec<TxFrame>,
    /// Frames beyond which nothing is produced until the NIC took some.
    pub max_frames: usize,
    /// Connections that may have to acknowledge or send.
    pub pending: Vec<Place>,
    /// Those of the batch that is being looked at; kept for its memory.
    pub looked_at: Vec<Place>,
    /// Connections with received bytes that the event array had no room for.
    pub undelivered: VecDeque<Place>,
    /// Events that the array had no room for. Bounded by what causes events: one batch of calls and
    /// one of timers.
    pub late_events: VecDeque<EventRecord>,
    /// Connections that the application asked to be told of again, each once.
    pub again: VecDeque<Handle>,
    /// Resets that the NIC's queue had no room for.
    pub owed: OwedResets,
    /// When connections next want to be looked at. One for all flow groups: whose deadlines are near each
    /// other stand near each other, where a wheel for each would have its lines in no cache.
    pub wheel: Wheel,
    /// For each flow group a tick before which none of its queues is due: TIME-WAIT, half-open connections.
    pub group_due: Vec<u64>,
    /// The earliest of them, and of the incomplete datagrams.
    pub min_group_due: u64,
    /// By flow group: received buffers that are kept, of all that the pool counts.
    pub kept: Vec<u32>,
    /// Calls on connections whose flow group is at home elsewhere, for whoever carries them there.
    pub elsewhere: Elsewhere,
    pub unresolved: Unresolved,
    pub incomplete: IncompleteDatagrams,
    /// What came ahead of a gap was refused for want of memory: others hold it.
    pub is_short: bool,
    /// What a connection may have of the memory that is left.
    pub shares: Shares,
    /// Segments of this batch that had come before: whose, and from where to where.
    pub twice: Vec<(FlowKey, SeqNumber, SeqNumber)>,
    /// Answers to strangers in the current second.
    answers: AnswerBudget,
    /// The neighbour that was looked up last: a batch mostly goes to one.
    pub last_hop: (Address, MacAddr, Instant),
    /// Headers of an established segment.
    template: Template,
}

impl Outbox {
    pub fn new(max_frames: usize, tick: u64) -> Self {
        let (nobody, never) = (MacAddr([0; 6]), Instant::from_nanos(u64::MAX));
        Self {
            frames: Vec::with_capacity(max_frames),
            max_frames,
            pending: Vec::with_capacity(1024),
            looked_at: Vec::with_capacity(1024),
            undelivered: VecDeque::new(),
            late_events: VecDeque::new(),
            again: VecDeque::new(),
            owed: OwedResets::default(),
            wheel: Wheel::new(tick),
            group_due: alloc::vec![u64::MAX; FLOW_GROUPS],
            min_group_due: u64::MAX,
            kept: alloc::vec![0; FLOW_GROUPS],
            elsewhere: Elsewhere::default(),
            unresolved: Unresolved::default(),
            incomplete: IncompleteDatagrams::default(),
            is_short: false,
            shares: Shares::default(),
            twice: Vec::new(),
            answers: AnswerBudget::default(),
            last_hop: (Ipv4Addr::UNSPECIFIED.into(), nobody, Instant::ZERO),
            template: {
                let nowhere = Address::from(Ipv4Addr::UNSPECIFIED);
                let (macs, pair) = ((nobody, nobody), PairId::default());
                let headers = EstablishedTemplate::new(macs, (nowhere, nowhere), (0, 0), 0);
                let addresses = Pair { local: nowhere, remote: nowhere };
                Template { headers, pair, addresses, ecn: Template::NONE, at: never }
            },
        }
    }
}

/// Headers of an established segment, and for which ones they are.
#[derive(Debug)]
struct Template {
    headers: EstablishedTemplate,
    /// The pair, and where that has a number, its addresses: each flow group has a number of its own for them.
    pair: PairId,
    addresses: Pair,
    /// [`Flags::ECN`], where packets may be marked.
    ecn: Flags,
    at: Instant,
}

impl Template {
    /// What no connection has.
    const NONE: Flags = Flags::ECN.and(Flags::SACK);
}

/// See the module's comment.
pub(crate) struct Context<'a> {
    pub now: Instant,
    /// `now` in ticks of the timing wheel.
    pub tick: u64,
    /// Low bits of `now` in ticks of the timestamp clock.
    pub clock: u32,
    pub shared: &'a Shared,
    pub pool: &'a mut Pool,
    pub events: &'a mut EventArray,
    pub out: &'a mut Outbox,
    pub stats: &'a mut StackStats,
    /// Connections of this core, and those of them in TIME-WAIT.
    pub census: &'a mut Census,
    pub pairs: &'a mut Pairs,
    /// There is room for all that the packets of this batch can bring: see `tcp::predicted`.
    pub plenty: bool,
}

/// How many connections this core has, for its limits.
#[derive(Debug, Default)]
pub(crate) struct Census {
    pub connections: u32,
    pub time_wait: u32,
    /// Connections that the application closed and that are not in TIME-WAIT yet.
    pub closed: u32,
    /// Those that are not the application's yet.
    pub backlogs: Backlogs,
    /// Nobody is let in any more (`stack::leave`).
    pub leaving: bool,
}

impl Context<'_> {
    /// Tells the application; an event that does not fit waits for the next batch.
    #[inline]
    pub fn event(&mut self, record: EventRecord) {
        if !self.out.late_events.is_empty() {
            self.out.late_events.push_back(record);
        } else if let Err(record) = self.events.push(record) {
            self.out.late_events.push_back(record);
        }
    }

    /// A received buffer of this flow group is kept beyond its batch.
    #[inline]
    pub fn keep(&mut self, group: u16) {
        self.counting_kept(group, Pool::keep);
    }

    /// It is not kept any more.
    #[inline]
    pub fn unkeep(&mut self, group: u16) {
        self.counting_kept(group, Pool::unkeep);
    }

    /// Runs `body`, which changes how many buffers of a flow group are kept.
    #[inline]
    pub fn counting_kept<R>(&mut self, group: u16, body: impl FnOnce(&mut Pool) -> R) -> R {
        let before = self.pool.kept();
        let result = body(self.pool);
        let kept = &mut self.out.kept[group as usize % FLOW_GROUPS];
        *kept = kept.wrapping_add((self.pool.kept().wrapping_sub(before)) as u32);
        result
    }

    /// Whether the NIC's queue takes another frame.
    #[inline]
    pub fn can_send(&self) -> bool {
        self.out.frames.len() < self.out.max_frames
    }

    /// Notes that a queue of `group` is due at `tick`.
    #[inline]
    pub fn note_group_due(&mut self, group: u16, tick: u64) {
        let due = &mut self.out.group_due[group as usize % FLOW_GROUPS];
        *due = tick.min(*due);
        self.out.min_group_due = self.out.min_group_due.min(tick);
    }

    /// What this core's backlog of a port holds.
    pub fn backlog(&self, port: u16) -> Backlog {
        self.census.backlogs.of(port)
    }

    /// Counts a change of a port's backlog, for the core and for the flow group.
    pub fn count_backlog(
        &mut self,
        group: &mut Backlogs,
        port: u16,
        change: impl Fn(&mut Backlog),
    ) {
        let opening = self.shared.tcp_ports.opening(port);
        group.change(port, opening, &change);
        self.census.backlogs.change(port, opening, change);
    }

    /// The addresses of a pair.
    #[inline]
    pub fn addresses(&self, pair: PairId) -> Pair {
        match pair.v4() {
            Ok(remote) => Pair { local: self.shared.firsts[0].address, remote: remote.into() },
            Err(number) => self.pairs.get(number),
        }
    }

    /// Both ends of a connection.
    pub fn ends(&self, flow: FlowKey) -> Ends {
        let Pair { local, remote } = self.addresses(flow.pair());
        Ends {
            local: Endpoint::new(local, flow.local_port()),
            remote: Endpoint::new(remote, flow.remote_port()),
        }
    }

    /// The pair of two addresses, for this batch: see [`Pairs`].
    pub fn pair_of(&mut self, pair: Pair) -> PairId {
        self.pairs.of(pair, self.shared)
    }

    /// The RSS hash of a connection's segments.
    pub fn hash_of(&self, flow: FlowKey) -> u32 {
        let (remote_port, local_port) = (flow.remote_port(), flow.local_port());
        let number = match flow.pair().v4() {
            Ok(remote) => return self.shared.flow_hash_v4(remote, remote_port, local_port),
            Err(number) => number,
        };
        let pair = self.pairs.get(number);
        let hash = self
            .pairs
            .hash(number)
            .unwrap_or_else(|| self.shared.addresses_hash(pair.local, pair.remote));
        hash ^ self.shared.ports_hash(pair.remote.is_ipv4(), remote_port, local_port)
    }

    /// A connection of `group` begins: its key from now on. `None`: there is no room for its pair.
    pub fn hold(&mut self, group: u16, flow: FlowKey) -> Option<FlowKey> {
        let shared = self.shared;
        let hash = |pair: &Pair| shared.addresses_hash(pair.local, pair.remote);
        Some(flow.with_pair(self.pairs.hold(group, flow.pair(), hash)?))
    }

    /// Whether a stranger at `peer` may be answered once more in this second.
    pub fn may_answer(&mut self, answer: Answer, peer: Address) -> bool {
        let (second, most) = (self.now.as_millis() / 1000, self.shared.config.answers_per_second);
        let is_allowed = self.out.answers.takes(answer, peer, second, most, &self.shared.port_key);
        self.stats.answers_limited += u64::from(!is_allowed);
        is_allowed
    }

    /// The link address to which packets for `destination` go. Asks for it where it is not known.
    #[inline]
    pub fn resolve(&mut self, destination: Address, asker: Asker) -> Option<MacAddr> {
        let (hop, mac, at) = self.out.last_hop;
        if hop == destination && at == self.now {
            return Some(mac);
        }
        let mac = self.resolve_slow(destination, asker)?;
        self.out.last_hop = (destination, mac, self.now);
        Some(mac)
    }

    /// The link address to which segments of a connection go. Asks for it where it is not known.
    #[inline]
    pub fn resolve_for(&mut self, conn: &Conn) -> Option<MacAddr> {
        // A round trip has been measured, and the peer was heard of in this tick: had our segments not come, its own
        // would be old ones, sent again.
        let is_confirmed = conn.srtt_8 != 0 && conn.heard_at == self.clock;
        let asker = if is_confirmed { Asker::Confirmed } else { Asker::Ours };
        self.resolve(self.addresses(conn.flow.pair()).remote, asker)
    }

    /// Headers of an established segment of a connection, as far as all to its peer at this moment are alike.
    /// `None` where its link address is not known: it is asked for.
    #[inline(always)]
    pub fn template(&mut self, conn: &Conn) -> Option<&EstablishedTemplate> {
        let Template { pair, ecn, .. } = self.out.template;
        if conn.flags.only(Flags::ECN) != ecn
            || pair != conn.flow.pair()
                && !self.pairs.is(conn.flow.pair(), &self.out.template.addresses)
        {
            self.make_template(conn)?;
        }
        Some(&self.out.template.headers)
    }

    /// Another moment begins.
    pub fn forget_template(&mut self) {
        self.out.template.ecn = Template::NONE;
    }

    /// Once for each destination of a batch.
    #[inline(never)]
    fn make_template(&mut self, conn: &Conn) -> Option<()> {
        let (pair, ecn) = (conn.flow.pair(), conn.flags.only(Flags::ECN));
        let mac = self.resolve_for(conn)?;
        let template = &mut self.out.template;
        if template.at == self.now
            && template.ecn == ecn
            && let (Ok(_), Ok(remote)) = (template.pair.v4(), pair.v4())
        {
            template.headers.set_peer(mac, remote);
            // The addresses stay those of another peer: no pair without a number is compared by them.
            template.pair = pair;
            return Some(());
        }
        let codepoint = if ecn == Flags::ECN { ECN_ECT_0 } else { ECN_NOT_ECT };
        let config = &self.shared.config;
        let addresses = self.addresses(pair);
        let Pair { local, remote } = addresses;
        let headers = EstablishedTemplate::new(
            (mac, config.mac),
            (local, remote),
            (config.ttl, config.dscp << 2 | codepoint),
            self.timestamp(),
        );
        self.out.template = Template { headers, pair, addresses, ecn, at: self.now };
        Some(())
    }

    /// How long nothing was heard that was last heard at `heard_at`, in ticks of the timestamp clock. A core that the
    /// connection has moved to may be a moment behind.
    #[inline]
    pub fn silence(&self, heard_at: u32) -> u32 {
        let silence = self.clock.wrapping_sub(heard_at);
        if silence > u32::MAX - 1024 { 0 } else { silence }
    }

    /// Our timestamp of this moment (RFC 7323 §5.4).
    #[inline]
    pub fn timestamp(&self) -> u32 {
        self.clock.wrapping_add(self.shared.timestamp_offset)
    }

    /// What it was at a moment of this core's clock, in nanoseconds.
    #[inline]
    pub fn timestamp_at(&self, at_ns: u64) -> u32 {
        ((at_ns >> STAMP_SHIFT) as u32).wrapping_add(self.shared.timestamp_offset)
    }

    fn resolve_slow(&mut self, destination: Address, asker: Asker) -> Option<MacAddr> {
        let hop = self.shared.config.next_hop(destination)?;
        match self.shared.neighbors.lookup(hop, self.now) {
            Neighbor::Reachable(mac) => Some(mac),
            Neighbor::Stale(mac) => {
                match asker {
                    Asker::Confirmed => self.shared.neighbors.learn(hop, mac, self.now),
                    Asker::Ours | Asker::Stranger => self.ask(hop, Some(mac), asker),
                }
                Some(mac)
            }
            Neighbor::Unknown => {
                self.ask(hop, None, asker);
                None
            }
        }
    }

    /// Asks for the link address of `hop`, at `to` where it may be there still, unless it was asked for just now.
    fn ask(&mut self, hop: Address, to: Option<MacAddr>, asker: Asker) {
        let now = self.now;
        // No flood of near strangers keeps all that is behind a gateway out.
        let is_gateway = self.shared.config.routes.iter().any(|route| route.via == hop);
        let asker = if is_gateway { Asker::Ours } else { asker };
        let noted = if asker == Asker::Stranger { Asked::ForStranger } else { Asked::ForUs };
        let asked = &mut self.out.unresolved.asked;
        asked.retain(|&(_, at, _)| now.since(at) < ASK_INTERVAL);
        let strangers = asked.iter().filter(|asked| asked.2 == Asker::Stranger).count();
        let is_crowded = asker == Asker::Stranger && strangers >= MAX_UNRESOLVED / 2;
        let is_asked = asked.iter().any(|asked| asked.0 == hop);
        if !is_asked && (asked.len() >= MAX_UNRESOLVED || is_crowded) {
            return;
        }
        self.shared.neighbors.note_asked(hop, noted, now);
        if is_asked {
            return;
        }
        asked.push_back((hop, now, asker));
        let asking = LinkMessage::asking(&self.shared.config, hop, to);
        let is_sent = asking.is_some_and(|(message, to)| self.send_message(&message, to));
        self.stats.neighbor_requests_out += u64::from(is_sent);
    }

    /// Sends a message about link addresses; answers whether there was memory and room for it.
    pub fn send_message(&mut self, message: &LinkMessage, to: MacAddr) -> bool {
        let Ok(mut mbuf) = self.alloc_frame() else { return false };
        let Ok(frame) = mbuf.extend(message.frame_len()) else {
            self.pool.free(mbuf);
            return false;
        };
        message.emit(frame, self.shared.config.mac, to);
        self.out.frames.push(mbuf.into_tx());
        true
    }

    /// An empty mbuf for a frame of our own making, unless memory or the NIC's queue is full.
    pub fn alloc_frame(&mut self) -> Result<Mbuf, mem::Exhausted> {
        if !self.can_send() {
            self.stats.tx_dropped += 1;
            return Err(mem::Exhausted);
        }
        self.pool.alloc().inspect_err(|_| self.stats.tx_dropped += 1)
    }

    /// Sends a frame that was whole but for its destination.
    #[inline]
    fn send_to(&mut self, dst: MacAddr, mut mbuf: Mbuf) {
        let destination = mbuf.bytes_mut().first_chunk_mut::<6>();
        destination.into_iter().for_each(|destination| *destination = dst.0);
        self.out.frames.push(mbuf.into_tx());
    }

    /// Puts Ethernet and IP headers before the packet in `mbuf` and sends it, or keeps it for a
    /// while where the link address has to be asked for.
    pub fn send_ip(&mut self, mut mbuf: Mbuf, pair: Pair, protocol: Protocol, asker: Asker) {
        let payload_len = mbuf.len();
        let Ok(headers) = mbuf.prepend(link_and_ip_len(pair.remote)) else {
            self.stats.tx_dropped += 1;
            return self.pool.free(mbuf);
        };
        let nobody = MacAddr([0; 6]);
        emit_link_and_ip(headers, nobody, pair, (protocol, ECN_NOT_ECT), payload_len, self.shared);
        match self.resolve(pair.remote, asker) {
            Some(dst) => self.send_to(dst, mbuf),
            None => self.wait_for_link(pair.remote, mbuf, asker),
        }
    }

    /// Keeps a frame, whole but for its destination, until the link address is known.
    #[cold]
    pub fn wait_for_link(&mut self, destination: Address, frame: Mbuf, asker: Asker) {
        let now = self.now;
        let Some(hop) = self.shared.config.next_hop(destination) else {
            return self.drop_unresolved(frame);
        };
        while let Some(first) = self.out.unresolved.waiting.front()
            && now.since(first.since) > UNRESOLVED_LIFE
        {
            self.drop_waiting(0);
        }
        let waiting = &self.out.unresolved.waiting;
        let is_stranger = |waiting: &Waiting| waiting.asker == Asker::Stranger;
        let strangers = waiting.iter().filter(|&one| is_stranger(one)).count();
        let is_crowded = asker == Asker::Stranger && strangers >= MAX_UNRESOLVED / 2;
        if waiting.len() >= MAX_UNRESOLVED || is_crowded {
            // The oldest frame to a stranger, or the oldest.
            self.drop_waiting(waiting.iter().position(is_stranger).unwrap_or(0));
        }
        if self.out.unresolved.waiting.is_empty() {
            self.out.unresolved.look_at = now + LOOK_INTERVAL;
        }
        self.out.unresolved.waiting.push_back(Waiting { hop, since: now, asker, frame });
    }

    fn drop_waiting(&mut self, index: usize) {
        if let Some(waiting) = self.out.unresolved.waiting.remove(index) {
            self.drop_unresolved(waiting.frame);
        }
    }

    fn drop_unresolved(&mut self, frame: Mbuf) {
        self.stats.unresolved_drops += 1;
        self.pool.free(frame);
    }

    /// Looks at the frames that wait for a link address: the answer may have come to another core,
    /// may have been lost (then it is asked for again), or may have come too late.
    #[cold]
    pub fn look_at_unresolved(&mut self) {
        let now = self.now;
        self.out.unresolved.look_at = now + LOOK_INTERVAL;
        for _ in 0..self.out.unresolved.waiting.len() {
            let Some(waiting) = self.out.unresolved.waiting.pop_front() else { return };
            if now.since(waiting.since) > UNRESOLVED_LIFE {
                self.drop_unresolved(waiting.frame);
                continue;
            }
            match self.resolve_slow(waiting.hop, waiting.asker) {
                Some(dst) if self.can_send() => self.send_to(dst, waiting.frame),
                _ => self.out.unresolved.waiting.push_back(waiting),
            }
        }
    }

    /// A neighbour says of itself that it is at `mac`. It is believed where it is known or was asked for, by whichever core.
    /// One that asks for us is learned too, where there is room, and one that a stranger had us ask for (RFC 826, RFC 4861
    /// §7.2.3): neither chatter on the link nor a flood of askers has others forgotten. Answers whether it may say so;
    /// counted where not.
    pub fn heard_of(&mut self, address: Address, mac: MacAddr, asks_for_us: bool) -> bool {
        let config = &self.shared.config;
        let is_sane = !mac.is_multicast()
            && mac != MacAddr([0; 6])
            && !address.is_martian()
            && !config.is_own(address)
            && config.is_neighbor(address);
        let neighbors = &self.shared.neighbors;
        let is_known = neighbors.lookup(address, self.now) != Neighbor::Unknown;
        let asked = neighbors.asked(address, self.now);
        if !is_sane || !(is_known || asked.is_some() || asks_for_us) {
            self.stats.not_for_us += 1;
            return false;
        }
        match is_known || asked == Some(Asked::ForUs) {
            true => neighbors.learn(address, mac, self.now),
            false => neighbors.learn_if_room(address, mac, self.now),
        }
        self.resolved(address, mac);
        true
    }

    /// Sends what waited for the link address of `hop`.
    fn resolved(&mut self, hop: Address, dst: MacAddr) {
        for _ in 0..self.out.unresolved.waiting.len() {
            let Some(waiting) = self.out.unresolved.waiting.pop_front() else { return };
            if waiting.hop == hop && self.can_send() {
                self.send_to(dst, waiting.frame);
            } else {
                self.out.unresolved.waiting.push_back(waiting);
            }
        }
    }
}

/// Bytes of an Ethernet header and an IP header for packets to `remote`.
#[inline]
pub(crate) fn link_and_ip_len(remote: Address) -> usize {
    EthernetRepr::HEADER_LEN
        + if remote.is_ipv4() { Ipv4Repr::HEADER_LEN } else { Ipv6Repr::HEADER_LEN }
}

/// Writes Ethernet and IP headers, which are all of `out`, of a packet with this payload and codepoint (RFC 3168 §5).
#[inline]
pub(crate) fn emit_link_and_ip(
    out: &mut [u8],
    to: MacAddr,
    Pair { local, remote }: Pair,
    (protocol, ecn): (Protocol, u8),
    payload_len: usize,
    shared: &Shared,
) {
    let (link, ip) = out.split_at_mut(EthernetRepr::HEADER_LEN);
    let (ttl, dscp_ecn, src) =
        (shared.config.ttl, shared.config.dscp << 2 | ecn, shared.config.mac);
    let ethertype = match (local.v4(), remote.v4()) {
        (Some(local), Some(remote)) => {
            let plain = Ipv4Repr::new(local, remote, protocol, payload_len);
            Ipv4Repr { ttl, dscp_ecn, ..plain }.emit(ip);
            EtherType::IPV4
        }
        _ => {
            let [local, remote] = [local, remote].map(|address| address.octets().into());
            let plain = Ipv6Repr::new(local, remote, protocol, payload_len);
            Ipv6Repr { hop_limit: ttl, dscp_ecn, ..plain }.emit(ip);
            EtherType::IPV6
        }
    };
    EthernetRepr { dst: to, src, ethertype }.emit(link);
}
