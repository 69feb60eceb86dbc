//! The service itself: requests of tenants on one side, a queue of a device on the other.

use std::net::Ipv4Addr;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use clock::Instant;
use mem::{Mbuf, Pool, TxFrame};
use nic::{Armed, Nic};
use sdp::{Handler, Outcome, TenantQueue};
use services::{
    Decapsulation, Encapsulation, Service, Steering, SteeringConfig, SteeringError, TunnelConfig,
    TunnelError,
};
use wire::{EtherType, EthernetRepr, EthernetView, Ipv4View, MacAddr};

use crate::mailboxes::{Mailboxes, Posted};
use crate::protocol::{PREFIX, Refusal, Request, emit_done};

/// Frames that are taken from the device in one turn.
const BATCH: usize = 64;
/// Frames that wait for the device at most.
const UNSENT_MAX: usize = 1_024;
/// Room for the largest packet that a slot or a frame holds.
const PACKET_MAX: usize = 4_096;

/// The link that the tunnel runs over. Addresses are told, not resolved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Links {
    /// This end's.
    pub local: MacAddr,
    /// Of the next hop towards the other end.
    pub remote: MacAddr,
}

/// How a gateway is set up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GatewayConfig {
    /// This end of the tunnel.
    pub tunnel: TunnelConfig,
    /// The link under it.
    pub links: Links,
    /// Addresses that tenants may have: a prefix and its length in bits.
    pub tenants: (Ipv4Addr, u8),
    /// The address whose sessions are steered to tenants that serve it, with the key of the hash.
    pub steering: Option<SteeringConfig>,
    /// Addresses of tenants that may serve the virtual address, as a prefix: whoever serves it gets its
    /// packets and may send from it.
    pub servers: (Ipv4Addr, u8),
}

/// The services that a gateway is made of.
struct Parts {
    entry: Encapsulation,
    exit: Decapsulation,
    steering: Option<Steering>,
}

impl GatewayConfig {
    /// Whether a gateway can be so.
    ///
    /// # Errors
    /// [`GatewayError`].
    pub fn check(&self) -> Result<(), GatewayError> {
        self.parts().map(|_| ())
    }

    fn parts(&self) -> Result<Parts, GatewayError> {
        for (whose, (_, bits)) in [("tenants", self.tenants), ("servers", self.servers)] {
            if bits > 32 {
                return Err(GatewayError::Prefix { whose, bits });
            }
        }
        Ok(Parts {
            entry: Encapsulation::new(self.tunnel)?,
            exit: Decapsulation::new(self.tunnel)?,
            steering: self.steering.map(Steering::new).transpose()?,
        })
    }
}

/// A gateway that cannot be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GatewayError {
    /// The tunnel's settings.
    #[error(transparent)]
    Tunnel(#[from] TunnelError),
    /// The steering's.
    #[error(transparent)]
    Steering(#[from] SteeringError),
    /// The tenants' prefix, or that of those who may serve.
    #[error("a prefix of {bits} bits for {whose}: 0 to 32 are possible")]
    Prefix {
        /// Whose.
        whose: &'static str,
        /// What it has.
        bits: u8,
    },
}

sdp::counters! {
    /// What a gateway has done.
    GatewayStats, Counters {
        /// Packets of tenants put into the tunnel.
        sent,
        /// Packets from tenant to tenant.
        turned_round,
        /// Packets of tenants that were refused.
        refused,
        /// Packets that came out of the tunnel for a tenant.
        delivered,
        /// Of those, packets of the virtual address.
        steered,
        /// Frames that were no packet of this tunnel.
        foreign,
        /// Packets for which no tenant was there.
        unclaimed,
        /// Packets that a full mailbox had no room for.
        overflowed,
    }
}

/// Whether a prefix has an address.
fn contains((prefix, bits): (Ipv4Addr, u8), address: Ipv4Addr) -> bool {
    let mask = u32::MAX.checked_shl(32 - u32::from(bits)).unwrap_or(0);
    (address.to_bits() ^ prefix.to_bits()) & mask == 0
}

/// One more; only the gateway writes, so that no exchange is needed.
fn count(counter: &AtomicU64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
}

/// The service of a plane with one core. See the crate's page.
pub struct Gateway<N> {
    nic: N,
    pool: Pool,
    config: GatewayConfig,
    parts: Parts,
    mailboxes: Mailboxes,
    /// Queues whose head can be served now.
    ready: Vec<TenantQueue>,
    received: Vec<Mbuf>,
    unsent: Vec<TxFrame>,
    frame: Box<[u8]>,
    inner: Box<[u8]>,
    steered: Box<[u8]>,
    counters: Arc<Counters>,
}

impl<N: Nic> Gateway<N> {
    /// A gateway on a queue of a device, with its packet memory. `counters` stay readable when a plane has
    /// taken the gateway.
    ///
    /// # Errors
    /// [`GatewayError`].
    pub fn new(
        config: GatewayConfig,
        nic: N,
        pool: Pool,
        counters: Arc<Counters>,
    ) -> Result<Self, GatewayError> {
        let buffer = || vec![0; PACKET_MAX].into_boxed_slice();
        Ok(Self {
            nic,
            pool,
            config,
            parts: config.parts()?,
            mailboxes: Mailboxes::default(),
            ready: Vec::new(),
            received: Vec::with_capacity(BATCH),
            unsent: Vec::with_capacity(UNSENT_MAX),
            frame: buffer(),
            inner: buffer(),
            steered: buffer(),
            counters,
        })
    }

    fn virtual_address(&self) -> Option<Ipv4Addr> {
        self.config.steering.map(|steering| steering.virtual_addr)
    }

    fn attach(&mut self, tenant: u64, address: Ipv4Addr, serves: bool) -> Result<(), Refusal> {
        let in_range = contains(self.config.tenants, address);
        if !in_range || Some(address) == self.virtual_address() {
            return Err(Refusal::NotGiven);
        }
        if serves && !contains(self.config.servers, address) {
            return Err(Refusal::NotServer);
        }
        if self.mailboxes.tenant(tenant).is_some() {
            return Err(Refusal::HasOne);
        }
        if self.mailboxes.owner(address).is_some() {
            return Err(Refusal::Taken);
        }
        let backend = match (&mut self.parts.steering, serves) {
            (_, false) => None,
            (None, true) => return Err(Refusal::NoPlace),
            (Some(steering), true) => {
                Some(steering.add_backend(address).map_err(|_| Refusal::NoPlace)?)
            }
        };
        self.mailboxes.attach(tenant, address, backend);
        Ok(())
    }

    fn send(&mut self, tenant: u64, packet: &[u8]) -> Result<(), Refusal> {
        let attached = self.mailboxes.tenant(tenant).ok_or(Refusal::NotAttached)?;
        let view = Ipv4View::parse(packet).map_err(|_| Refusal::Packet)?;
        let serves = attached.backend.is_some() && Some(view.src()) == self.virtual_address();
        if view.src() != attached.address && !serves {
            return Err(Refusal::Source);
        }
        let to = view.dst();
        if self.mailboxes.owner(to).is_some() || Some(to) == self.virtual_address() {
            let packet = packet.get(..view.total_len()).ok_or(Refusal::Packet)?;
            count(&self.counters.turned_round);
            self.deliver(packet);
            return Ok(());
        }
        let header = EthernetRepr::HEADER_LEN;
        let room = &mut self.frame[header..];
        let len = self.parts.entry.serve(packet, room).map_err(|_| Refusal::Packet)?;
        if self.unsent.len() >= UNSENT_MAX {
            return Err(Refusal::Busy);
        }
        let Links { local: src, remote: dst } = self.config.links;
        EthernetRepr { src, dst, ethertype: EtherType::IPV6 }.emit(&mut self.frame[..header]);
        let mut mbuf = self.pool.alloc().map_err(|_| Refusal::Busy)?;
        if mbuf.append(&self.frame[..header + len]).is_err() {
            self.pool.free(mbuf);
            return Err(Refusal::Packet);
        }
        self.unsent.push(mbuf.into_tx());
        count(&self.counters.sent);
        Ok(())
    }

    /// Takes a frame of the device apart.
    fn receive(&mut self, frame: &[u8]) {
        let mut inner = std::mem::take(&mut self.inner);
        let packet = EthernetView::parse(frame)
            .ok()
            .filter(|view| view.ethertype() == EtherType::IPV6)
            .and_then(|view| self.parts.exit.serve(view.payload(), &mut inner).ok());
        match packet {
            Some(len) => self.deliver(&inner[..len]),
            None => count(&self.counters.foreign),
        }
        self.inner = inner;
    }

    /// Puts a packet into its tenant's mailbox; of the virtual address, into that of whoever its session
    /// is with.
    fn deliver(&mut self, packet: &[u8]) {
        let Ok(view) = Ipv4View::parse(packet) else { return count(&self.counters.foreign) };
        let mut to = view.dst();
        let mut packet = packet;
        if Some(to) == self.virtual_address()
            && let Some(steering) = &mut self.parts.steering
        {
            let steered = steering.serve(packet, &mut self.steered);
            let Some(steered) = steered.ok().and_then(|len| self.steered.get(..len)) else {
                return count(&self.counters.unclaimed);
            };
            let Ok(view) = Ipv4View::parse(steered) else { return };
            (packet, to) = (steered, view.dst());
            count(&self.counters.steered);
        }
        match self.mailboxes.post(to, packet) {
            Posted::Waits(receiver) => {
                count(&self.counters.delivered);
                self.ready.extend(receiver);
            }
            Posted::Full => count(&self.counters.overflowed),
            Posted::NoSuchAddress => count(&self.counters.unclaimed),
        }
    }
}

impl<N: Nic> Handler for Gateway<N> {
    fn handle(&mut self, from: TenantQueue, request: &[u8], reply: &mut [u8]) -> Outcome {
        let done = match Request::parse(request) {
            Ok(Request::Attach { address, serves }) => self.attach(from.tenant, address, serves),
            Ok(Request::Send(packet)) => self.send(from.tenant, packet),
            Ok(Request::Receive) if self.mailboxes.tenant(from.tenant).is_none() => {
                Err(Refusal::NotAttached)
            }
            Ok(Request::Receive) => {
                let room = reply.get_mut(PREFIX..).unwrap_or_default();
                return match self.mailboxes.take(from, room) {
                    Some(len) => Outcome::Reply(emit_done(reply, len)),
                    None => Outcome::Later,
                };
            }
            Err(refusal) => Err(refusal),
        };
        Outcome::Reply(match done {
            Ok(()) => emit_done(reply, 0),
            Err(refusal) => {
                count(&self.counters.refused);
                refusal.emit(reply)
            }
        })
    }

    fn works_by_itself(&self) -> bool {
        true
    }

    fn work(&mut self, now: Instant, ready: &mut Vec<TenantQueue>) -> bool {
        if let Some(steering) = &mut self.parts.steering {
            steering.set_now(now);
        }
        let mut received = std::mem::take(&mut self.received);
        let count = self.nic.receive(now, &mut self.pool, &mut received, BATCH);
        for mbuf in received.drain(..) {
            self.receive(mbuf.bytes());
            self.pool.free(mbuf);
        }
        self.received = received;
        let sent = self.nic.transmit(now, &mut self.pool, &mut self.unsent);
        let reclaimed = self.nic.reclaim(&mut self.pool);
        let any = count + sent + reclaimed + self.ready.len() > 0;
        ready.append(&mut self.ready);
        any
    }

    fn gone(&mut self, tenant: u64) {
        let gone = self.mailboxes.detach(tenant);
        if let (Some(steering), Some(backend)) =
            (&mut self.parts.steering, gone.and_then(|gone| gone.backend))
        {
            // It was added once and is removed once.
            let _ = steering.remove_backend(backend);
        }
    }

    fn arm(&mut self) -> bool {
        self.unsent.is_empty() && self.ready.is_empty() && self.nic.arm() == Armed::Quiet
    }

    fn disarm(&mut self) {
        self.nic.disarm();
    }

    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        self.nic.wait_fd()
    }
}
