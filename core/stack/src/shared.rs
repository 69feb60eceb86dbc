//! What all elastic threads of a dataplane share: settings, secrets, the neighbour table, and which
//! thread is home to which flow group. Read on every packet, written hardly ever.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::sync::atomic::{AtomicU8, Ordering};

use domain::LocalEndpoint;
use wire::{Address, Endpoint, Ipv4Addr, MacAddr, Toeplitz};

use crate::config::StackConfig;
use crate::neighbors::NeighborTable;
use crate::policy::{Access, Transport};
use crate::ports::OpenPorts;
use crate::tcp::isn::IsnSecret;
use crate::ticks::Ticks;

/// Flow groups: entries of the RSS indirection table (IX §4.4).
pub const FLOW_GROUPS: usize = 128;

/// Randomness that the operating system gives at start. There is no default: a stack with known
/// secrets lets a stranger guess sequence numbers and aim at hash buckets.
#[derive(Clone)]
pub struct Secrets {
    /// Key of the RSS hash, unless the device has one.
    pub rss_key: [u8; 40],
    /// Key of the initial sequence numbers (RFC 6528).
    pub isn_key: [u8; 16],
    /// Key of the order of ephemeral ports (RFC 6056 §3.3.3), and of the hashes of tables whose keys strangers choose.
    pub port_key: [u8; 16],
    /// Offset of TCP timestamps.
    pub offset: u32,
}

/// Where it is written down which connections there are, for whoever resets their peers when this dataplane is gone and
/// could not (RFC 9293 §3.5.1: half-open connections).
///
/// The place of a connection is its flow group and its slot there: no two that live have the same, and it stays the same
/// where the group moves to another core (IX §4.5). Told of when a connection begins and when it has ended, by the core
/// that is home to it, and never for a segment. Connections that end with their whole stack
/// ([`Stack::close`](crate::Stack::close)) or flow group ([`PackedGroup::discard`](crate::PackedGroup::discard)) stay
/// written down: their peers were not told.
pub trait PeerRegister: Send + Sync + core::fmt::Debug {
    /// A connection begins, between this end of ours and this peer.
    fn opened(&self, group: u16, slot: u32, local: LocalEndpoint, remote: Endpoint);
    /// It has ended.
    fn closed(&self, group: u16, slot: u32);
}

/// The first of our addresses of a version, which the short way knows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct First {
    /// Our link address; where there is no such address, one that no frame is for.
    pub mac: MacAddr,
    pub address: Address,
    /// What the address contributes to a flow's hash.
    pub hash: u32,
}

impl First {
    fn of(config: &StackConfig, toeplitz: &Toeplitz, is_v4: bool) -> Self {
        let mut own = config.addresses.iter().map(|own| own.address);
        match own.find(|own| own.is_ipv4() == is_v4) {
            Some(address) => {
                Self { mac: config.mac, address, hash: destination(toeplitz, address) }
            }
            None => {
                let address = Address::of_v4(Ipv4Addr::UNSPECIFIED);
                Self { mac: MacAddr([0; 6]), address, hash: 0 }
            }
        }
    }
}

/// What a destination address contributes to a flow's hash.
fn destination(toeplitz: &Toeplitz, address: Address) -> u32 {
    match (address.v4(), address.v6()) {
        (Some(v4), _) => toeplitz.destination(v4),
        (_, Some(v6)) => toeplitz.destination_v6(v6),
        _ => 0,
    }
}

/// See the module's comment.
pub struct Shared {
    /// Settings.
    pub config: StackConfig,
    /// Link addresses of neighbours.
    pub neighbors: NeighborTable,
    pub(crate) toeplitz: Box<Toeplitz>,
    /// What is fixed about packets for the first IPv4, and the first IPv6 address.
    pub(crate) firsts: [First; 2],
    pub(crate) access: Access,
    pub(crate) isn: IsnSecret,
    pub(crate) port_key: [u8; 16],
    pub(crate) timestamp_offset: u32,
    pub(crate) ticks: Ticks,
    pub(crate) window_scale: u8,
    /// The elastic thread that is home to each flow group, or will be as soon as it has received it. Relaxed
    /// loads are enough: who receives a packet of a group that it does not own forwards it, and ownership
    /// itself moves by value.
    home: Box<[AtomicU8; FLOW_GROUPS]>,
    register: Option<Arc<dyn PeerRegister>>,
    /// TCP ports that are listened on.
    pub(crate) tcp_ports: OpenPorts,
    /// UDP ports on which datagrams are received.
    pub(crate) udp_ports: OpenPorts,
}

impl Shared {
    /// Shares `config` between `cores` elastic threads, flow groups dealt out in turn.
    pub fn new(mut config: StackConfig, secrets: &Secrets, cores: u8) -> Self {
        // What the largest scale can name (RFC 7323 §2.3), and what fits a signed difference.
        config.receive_window_bytes = config.receive_window_bytes.min(1 << 30);
        let cores = cores.max(1) as usize;
        let home = core::array::from_fn(|group| AtomicU8::new((group % cores) as u8));
        let key = config.rss_key.map_or(secrets.rss_key, |key| key.0);
        let toeplitz = Box::new(Toeplitz::new(&key));
        let neighbors = NeighborTable::new(secrets.port_key);
        config.neighbors.iter().for_each(|&(address, mac)| neighbors.fix(address, mac));
        Self {
            neighbors,
            firsts: [true, false].map(|is_v4| First::of(&config, &toeplitz, is_v4)),
            toeplitz,
            access: Access::new(config.policy.clone(), secrets.port_key),
            isn: IsnSecret::new(secrets.isn_key),
            port_key: secrets.port_key,
            timestamp_offset: secrets.offset,
            ticks: Ticks::new(&config),
            window_scale: config.window_scale(),
            home: Box::new(home),
            tcp_ports: OpenPorts::new(&config.tcp_listen),
            udp_ports: OpenPorts::new(&config.udp_bind),
            config,
            register: None,
        }
    }

    /// The same, with connections written down in `register`.
    #[must_use]
    pub fn with_register(self, register: Option<Arc<dyn PeerRegister>>) -> Self {
        Self { register, ..self }
    }

    /// Where connections are written down.
    #[inline]
    pub(crate) fn register(&self) -> Option<&dyn PeerRegister> {
        self.register.as_deref()
    }

    /// The RSS hash of a packet that `local` receives from `remote`, which have one version.
    pub fn flow_hash(&self, local: Endpoint, remote: Endpoint) -> u32 {
        let is_v4 = remote.addr.is_ipv4();
        self.addresses_hash(local.addr, remote.addr)
            ^ self.ports_hash(is_v4, remote.port, local.port)
    }

    /// The same for the first IPv4 address.
    #[inline]
    pub(crate) fn flow_hash_v4(&self, remote: Ipv4Addr, remote_port: u16, local_port: u16) -> u32 {
        self.toeplitz.hash_v4_to(self.firsts[0].hash, remote, remote_port, local_port)
    }

    /// What two addresses contribute to it.
    pub(crate) fn addresses_hash(&self, local: Address, remote: Address) -> u32 {
        let destination = destination(&self.toeplitz, local);
        match (remote.v4(), remote.v6()) {
            (Some(v4), _) => self.toeplitz.hash_v4_to(destination, v4, 0, 0),
            (_, Some(v6)) => self.toeplitz.hash_v6_to(destination, v6, 0, 0),
            _ => destination,
        }
    }

    /// What two ports contribute to it.
    pub(crate) fn ports_hash(&self, is_v4: bool, remote_port: u16, local_port: u16) -> u32 {
        match is_v4 {
            true => self.toeplitz.hash_v4_to(0, Ipv4Addr::UNSPECIFIED, remote_port, local_port),
            false => self.toeplitz.hash_v6_to(0, [0; 16].into(), remote_port, local_port),
        }
    }

    /// The ports of a transport that are open.
    pub(crate) fn ports(&self, transport: Transport) -> &OpenPorts {
        match transport {
            Transport::Tcp => &self.tcp_ports,
            Transport::Udp => &self.udp_ports,
        }
    }

    /// Connections of one core that may be open and not accepted on a port; `None`: it is not listened on.
    pub(crate) fn unaccepted_most(&self, port: u16) -> Option<u32> {
        Some(self.tcp_ports.backlog(port)?.min(self.config.backlog))
    }

    /// Whether the application may open or close a port: those of the configuration, and those that the policy names.
    pub(crate) fn may_open(&self, transport: Transport, port: u16) -> bool {
        let config = &self.config;
        let configured = match transport {
            Transport::Tcp => &config.tcp_listen,
            Transport::Udp => &config.udp_bind,
        };
        configured.contains(&port) || config.policy.allows_listening(port)
    }

    /// The flow group of a hash: its low bits, as NICs index their indirection table.
    #[inline]
    pub fn group_of(hash: u32) -> u16 {
        (hash as usize % FLOW_GROUPS) as u16
    }

    /// A flow group is to be at home on another elastic thread: from now on packets for it go there. Said by
    /// the thread that owns it, before it gives it up (IX §4.5).
    pub fn set_home(&self, group: u16, core: u8) {
        // What else a reader must have seen of the migration comes to it in a ring.
        self.home[group as usize % FLOW_GROUPS].store(core, Ordering::Relaxed);
    }

    /// The elastic thread that is home to a flow group.
    #[inline]
    pub fn home_of(&self, group: u16) -> u8 {
        self.home[group as usize % FLOW_GROUPS].load(Ordering::Relaxed)
    }
}

impl core::fmt::Debug for Shared {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        // Secrets stay out of logs.
        f.debug_struct("Shared").field("config", &self.config).finish_non_exhaustive()
    }
}
