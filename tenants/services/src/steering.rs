//! Packet steering (HyperPlane §V-A): each session of a virtual address stays with one backend.
//!
//! Request: an IPv4 packet to the virtual address, UDP or TCP. Reply: the packet with its backend's address as the
//! destination, checksums updated (RFC 1624).
//!
//! ```
//! use clock::Instant;
//! use services::{Refused, Service, Steering, SteeringConfig};
//!
//! // The key from the operating system's random generator.
//! let mut steering = Steering::new(SteeringConfig::new("10.0.0.100".parse()?, [0x5a; 16]))?;
//! let backend = steering.add_backend("10.0.1.1".parse()?)?;
//! steering.set_now(Instant::from_millis(1)); // once for each batch of packets
//! let mut reply = [0; 1500];
//! assert!(matches!(steering.serve(b"no packet", &mut reply), Err(Refused::Malformed { .. } | Refused::Truncated { .. })));
//! steering.drain_backend(backend)?; // keeps its sessions, gets no new ones
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! A session is a 5-tuple. A known one goes to its backend, also when others came or went since; a new one goes where
//! Maglev hashing says, and is recorded. The table is bounded: when it is full, the longest idle of a sample makes room,
//! and a session that was forgotten is steered by the hash again, to the same backend unless the set of backends has
//! changed. The hash is keyed, so that nobody outside can choose packets that collide.
//!
//! **Fragments** are refused: only the first tells its session. **Other protocols** (ICMP among them) are refused. Time
//! to live is left as it is. Packets back to the client are not seen here: backends answer with the virtual address
//! themselves, or a translator on their way does it.

use std::net::Ipv4Addr;

use clock::{Duration, Instant};
use siphasher::sip::SipHasher13;
use wire::checksum::update_u32;
use wire::{Ipv4View, Protocol};

use crate::maglev::{Candidate, Maglev};
use crate::refused::{Layer, Refused};
use crate::service::{Service, room};
use crate::sessions::{BackendId, Sessions};

/// Most backends that a steerer can be made for.
const BACKENDS_LIMIT: usize = 4_096;
/// Most sessions that a steerer can be made for: 2 GiB of table.
const SESSIONS_LIMIT: usize = 1 << 25;
/// Offsets in an IPv4 header (RFC 791 §3.1).
const IPV4_CHECKSUM: usize = 10;
const IPV4_DST: usize = 16;
/// Offset of the checksum in a TCP header (RFC 9293 §3.1), and the header's length.
const TCP_CHECKSUM: usize = 16;
const TCP_LEN: usize = 20;
/// Offset of the checksum in a UDP header (RFC 768), and the header's length.
const UDP_CHECKSUM: usize = 6;
const UDP_LEN: usize = 8;

/// How a steerer is set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SteeringConfig {
    /// The address that clients send to.
    pub virtual_addr: Ipv4Addr,
    /// The secret key of the hash. Steerers with the same key and backends send new sessions to the same backends.
    pub key: [u8; 16],
    /// Most sessions that are remembered; 64 bytes each.
    pub sessions_max: usize,
    /// Most backends at a time; 200 bytes each.
    pub backends_max: usize,
    /// How long a session is remembered without a packet. Longer than the keep-alive of what runs over it.
    pub idle_max: Duration,
}

impl SteeringConfig {
    /// 65,536 sessions, 64 backends, five minutes.
    pub fn new(virtual_addr: Ipv4Addr, key: [u8; 16]) -> Self {
        let idle_max = Duration::from_secs(300);
        Self { virtual_addr, key, sessions_max: 1 << 16, backends_max: 64, idle_max }
    }
}

/// A set-up or a change of the backends that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SteeringError {
    /// A limit is out of range.
    #[error("a steerer was configured with {field} = {found}: 1 to {limit} are possible")]
    Limit {
        /// The configuration's field.
        field: &'static str,
        /// What it holds.
        found: usize,
        /// The most that it may.
        limit: usize,
    },
    /// As many backends as there may be are there.
    #[error("all {limit} places for backends are taken: remove one, or configure more")]
    Full {
        /// How many there may be.
        limit: usize,
    },
    /// The address has a backend already.
    #[error("{addr} is a backend already")]
    Duplicate {
        /// The address.
        addr: Ipv4Addr,
    },
    /// The backend has been removed.
    #[error("the backend is not there any more: it was removed")]
    Gone,
}

/// What a steerer has done.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SteeringStats {
    /// Packets of known sessions.
    pub known: u64,
    /// Packets that began a session, or that came after it was forgotten.
    pub new: u64,
    /// Sessions that got another backend because theirs was removed.
    pub moved: u64,
    /// Sessions that were idle too long and were found so by the hand.
    pub expired: u64,
    /// Live sessions that were forgotten because the table was full.
    pub evicted: u64,
    /// Packets that were steered without being recorded: the table was full and nothing near the hand could go.
    pub unrecorded: u64,
}

#[derive(Debug, Clone, Copy)]
enum State {
    Free,
    Active,
    Draining,
}

#[derive(Debug, Clone, Copy)]
struct Backend {
    addr: Ipv4Addr,
    state: State,
    /// Goes on when the backend is removed, so that its sessions are not its successor's. After 65,536 removals in one
    /// place it comes again; a session that lived through all of them goes to a wrong, but living, backend.
    generation: u16,
}

/// The steerer of one virtual address.
pub struct Steering {
    config: SteeringConfig,
    hasher: SipHasher13,
    sessions: Sessions,
    backends: Box<[Backend]>,
    maglev: Maglev,
    /// Room for the backends that take new sessions, while the table is rebuilt.
    candidates: Vec<Candidate>,
    now: Instant,
    stats: SteeringStats,
}

impl Steering {
    /// A steerer without backends, its memory allocated.
    ///
    /// # Errors
    /// [`SteeringError::Limit`].
    pub fn new(config: SteeringConfig) -> Result<Self, SteeringError> {
        let limits = [
            ("sessions_max", config.sessions_max, SESSIONS_LIMIT),
            ("backends_max", config.backends_max, BACKENDS_LIMIT),
        ];
        for (field, found, limit) in limits {
            if !(1..=limit).contains(&found) {
                return Err(SteeringError::Limit { field, found, limit });
            }
        }
        let free = Backend { addr: Ipv4Addr::UNSPECIFIED, state: State::Free, generation: 0 };
        Ok(Self {
            config,
            hasher: SipHasher13::new_with_key(&config.key),
            sessions: Sessions::new(config.sessions_max, config.idle_max),
            backends: vec![free; config.backends_max].into(),
            maglev: Maglev::new(config.backends_max),
            candidates: Vec::with_capacity(config.backends_max),
            now: Instant::ZERO,
            stats: SteeringStats::default(),
        })
    }

    /// Adds a backend, which gets its share of the new sessions. Takes time in proportion to the hash's table.
    ///
    /// # Errors
    /// [`SteeringError::Duplicate`], [`SteeringError::Full`].
    pub fn add_backend(&mut self, addr: Ipv4Addr) -> Result<BackendId, SteeringError> {
        let is_taken = |backend: &Backend| !matches!(backend.state, State::Free);
        if self.backends.iter().any(|backend| is_taken(backend) && backend.addr == addr) {
            return Err(SteeringError::Duplicate { addr });
        }
        let free = self.backends.iter().position(|backend| !is_taken(backend));
        let number = free.ok_or(SteeringError::Full { limit: self.backends.len() })?;
        let backend = &mut self.backends[number];
        (backend.addr, backend.state) = (addr, State::Active);
        let id = BackendId { number: number as u16, generation: backend.generation };
        self.rebuild();
        Ok(id)
    }

    /// Gives a backend no new sessions; those that it has stay.
    ///
    /// # Errors
    /// [`SteeringError::Gone`].
    pub fn drain_backend(&mut self, id: BackendId) -> Result<(), SteeringError> {
        self.backend_mut(id)?.state = State::Draining;
        self.rebuild();
        Ok(())
    }

    /// Removes a backend that has failed or was drained. Each of its sessions goes to another one with its next packet.
    ///
    /// # Errors
    /// [`SteeringError::Gone`].
    pub fn remove_backend(&mut self, id: BackendId) -> Result<(), SteeringError> {
        let backend = self.backend_mut(id)?;
        backend.state = State::Free;
        backend.generation = backend.generation.wrapping_add(1);
        self.rebuild();
        Ok(())
    }

    /// The time of the packets that follow.
    pub fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Sessions in the table.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// What was done so far.
    pub fn stats(&self) -> SteeringStats {
        self.stats
    }

    fn backend_mut(&mut self, id: BackendId) -> Result<&mut Backend, SteeringError> {
        self.backends
            .get_mut(usize::from(id.number))
            .filter(|backend| {
                backend.generation == id.generation && !matches!(backend.state, State::Free)
            })
            .ok_or(SteeringError::Gone)
    }

    fn rebuild(&mut self) {
        self.candidates.clear();
        let active = |(number, backend): (usize, &Backend)| {
            matches!(backend.state, State::Active)
                .then_some(Candidate { addr: backend.addr, number: number as u16 })
        };
        self.candidates.extend(self.backends.iter().enumerate().filter_map(active));
        self.maglev.rebuild(&mut self.candidates, &self.config.key);
    }

    /// The backend of a session, which is recorded if it is new.
    #[inline]
    fn backend_of(&mut self, key: u128) -> Result<Ipv4Addr, Refused> {
        let hash = self.hasher.hash(&key.to_ne_bytes());
        let known = self.sessions.touch(key, hash, self.now);
        if let Some(id) = known {
            let backend = &self.backends[usize::from(id.number)];
            if backend.generation == id.generation {
                self.stats.known += 1;
                return Ok(backend.addr);
            }
        }
        let number = self.maglev.pick(hash).ok_or(Refused::NoBackend)?;
        let backend = &self.backends[usize::from(number)];
        let id = BackendId { number, generation: backend.generation };
        let inserted = self.sessions.insert(key, hash, id, self.now);
        self.stats.moved += u64::from(known.is_some());
        self.stats.new += u64::from(known.is_none());
        self.stats.expired += inserted.expired;
        self.stats.evicted += u64::from(inserted.evicted);
        self.stats.unrecorded += u64::from(!inserted.recorded);
        Ok(backend.addr)
    }
}

/// A packet that tells its session.
struct Steerable {
    /// The 5-tuple; not zero, because the protocol is not.
    key: u128,
    total_len: usize,
    /// Where the transport's checksum is in the packet; `None` where it has none (RFC 768).
    checksum_at: Option<usize>,
}

impl Steerable {
    /// # Errors
    /// Everything that [`Steering`] does not steer.
    #[inline]
    fn parse(request: &[u8], virtual_addr: Ipv4Addr) -> Result<Steerable, Refused> {
        let packet = Ipv4View::parse(request).map_err(Refused::at(Layer::Ipv4))?;
        if !packet.verify_checksum() {
            return Err(Refused::Checksum { layer: Layer::Ipv4 });
        }
        if packet.dst() != virtual_addr {
            return Err(Refused::Address { layer: Layer::Ipv4 });
        }
        if packet.is_fragment() {
            return Err(Refused::Fragment);
        }
        let (layer, header_len, checksum_at) = match packet.protocol() {
            Protocol::TCP => (Layer::Tcp, TCP_LEN, TCP_CHECKSUM),
            Protocol::UDP => (Layer::Udp, UDP_LEN, UDP_CHECKSUM),
            other => {
                let found = other.0.into();
                return Err(Refused::Protocol { layer: Layer::Ipv4, found });
            }
        };
        let header = packet.payload().get(..header_len).ok_or(Refused::Truncated { layer })?;
        let ports = u32::from_be_bytes([header[0], header[1], header[2], header[3]]);
        let has_none = layer == Layer::Udp && header[checksum_at..checksum_at + 2] == [0, 0];
        let key = u128::from(packet.src().to_bits()) << 96
            | u128::from(packet.dst().to_bits()) << 64
            | u128::from(ports) << 32
            | u128::from(packet.protocol().0);
        let checksum_at = (!has_none).then_some(packet.header_len() + checksum_at);
        Ok(Steerable { key, total_len: packet.total_len(), checksum_at })
    }
}

impl Service for Steering {
    fn name(&self) -> &'static str {
        "packet steering"
    }

    fn serve(&mut self, request: &[u8], reply: &mut [u8]) -> Result<usize, Refused> {
        let virtual_addr = self.config.virtual_addr;
        let packet = Steerable::parse(request, virtual_addr)?;
        let out = room(reply, packet.total_len)?;
        let backend = self.backend_of(packet.key)?;
        out.copy_from_slice(&request[..packet.total_len]);
        out[IPV4_DST..IPV4_DST + 4].copy_from_slice(&backend.octets());
        let mut update = |at: usize, zero_means_none: bool| {
            let old = u16::from_be_bytes([out[at], out[at + 1]]);
            let new = update_u32(old, virtual_addr.to_bits(), backend.to_bits());
            // Zero would say that a UDP datagram has no checksum; its equal does not (RFC 768).
            let new = if zero_means_none && new == 0 { 0xffff } else { new };
            out[at..at + 2].copy_from_slice(&new.to_be_bytes());
        };
        update(IPV4_CHECKSUM, false);
        if let Some(at) = packet.checksum_at {
            update(at, packet.key as u8 == Protocol::UDP.0);
        }
        Ok(packet.total_len)
    }

    fn reply_len_max(&self, request_len: usize) -> usize {
        request_len
    }
}
