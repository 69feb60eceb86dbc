//! What a stack is told at start.

use alloc::vec::Vec;
use core::time::Duration;

use domain::LocalEndpoint;
use mem::TX_PAYLOAD;
use wire::{Address, Endpoint, Ipv4Repr, MacAddr, Prefix, TcpRepr, ipv6::Ipv6Repr};

use crate::policy::NetworkPolicy;
use crate::tcp::congestion::CongestionAlgorithm;

/// Settings of one dataplane's stack: the same for all of its elastic threads.
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// The dataplane's own addresses, each with its network, whose hosts are neighbours: at least one. Packets from the
    /// first IPv4 and the first IPv6 address take the short way. Applications name an address by its position here
    /// ([`LocalEndpoint`]).
    pub addresses: Vec<Prefix>,
    /// Next hops for all that is not a neighbour: of several that lead to a host, the one with the longest prefix.
    pub routes: Vec<Route>,
    /// The link address.
    pub mac: MacAddr,
    /// Time to live, or hop limit, of the packets that are sent (RFC 9293 §3.9.2).
    pub ttl: u8,
    /// Their Differentiated Services codepoint, six bits (RFC 2474).
    pub dscp: u8,
    /// Neighbours whose link addresses are given: they are never asked for, and no answer changes them.
    pub neighbors: Vec<(Address, MacAddr)>,
    /// Largest IP packet, in bytes (1,500 on Ethernet).
    pub mtu_bytes: u16,
    /// Chunks of packet memory that a frame with a TCP segment takes at most: several where the device sends such frames, and
    /// `mtu_bytes` may be larger than a chunk then.
    pub frame_chunks: u8,
    /// Largest IP packet that is received, in bytes, where that is another one.
    pub receive_mtu_bytes: Option<u16>,
    /// TCP ports on which connections are accepted.
    pub tcp_listen: Vec<u16>,
    /// UDP ports on which datagrams are received.
    pub udp_bind: Vec<u16>,
    /// Connections per listening port and core that may be half open; what comes beyond is answered with SYN cookies
    /// (RFC 4987). As many may be open and not accepted.
    pub backlog: u32,
    /// Connections of one elastic thread, all states.
    pub max_connections: u32,
    /// Receive window of a connection in bytes: what a peer may send ahead of the application.
    pub receive_window_bytes: u32,
    /// How long an acknowledgment waits for a reply to ride on (RFC 9293 §3.8.6.3: below 500 ms).
    pub delayed_ack: Duration,
    /// Lower bound of the retransmission time-out (RFC 6298 §2.4 says 1 s; Linux and we say less).
    pub rto_min: Duration,
    /// Upper bound of the retransmission time-out (RFC 6298 §2.5: at least 60 s).
    pub rto_max: Duration,
    /// How the congestion window grows and shrinks.
    pub congestion: CongestionAlgorithm,
    /// Whether routers may mark packets instead of dropping them. DCTCP is NewReno without.
    pub ecn: Ecn,
    /// Whether a short segment waits while others are unacknowledged, whatever it ends (Nagle's algorithm, RFC 9293 §3.7.4):
    /// fewer packets, and a peer that delays acknowledgments delays small messages.
    pub nagle: bool,
    /// Retransmissions of data before a connection is given up (RFC 9293 §3.8.3, R2).
    pub retries: u8,
    /// Longest time for which data may remain unacknowledged before the connection is reset (RFC 9293 §3.8.3: at
    /// least 100 s; RFC 5482). The stack checks it where a retransmission timer fires. `None`: only `retries` counts.
    pub user_timeout: Option<Duration>,
    /// What that shrinks to where less than a sixteenth of the memory to send from is left; four times as much with
    /// each sixteenth more, of four (RFC 9293 §3.9.1.8 lets a host abort what it has no resources for). It counts once
    /// a retransmission has brought nothing: two losses in a row may cost an honest peer its connection then.
    pub user_timeout_least: Duration,
    /// When silent peers of open connections are asked for a sign of life (RFC 9293 §3.8.4); `None`: never, the RFC's
    /// default.
    pub keepalive: Option<Keepalive>,
    /// Retransmissions of a SYN before an attempt is given up (RFC 9293 §3.8.3: for at least three minutes). They alone
    /// bound an attempt to connect, `user_timeout` does not.
    pub syn_retries: u8,
    /// Twice the maximum segment lifetime: how long TIME-WAIT lasts (RFC 9293 §3.4.2).
    pub time_wait: Duration,
    /// Connections in TIME-WAIT per elastic thread; beyond it the oldest ends early (counted).
    pub max_time_wait: u32,
    /// Connections per elastic thread that the application closed and that have not ended; what is closed beyond is reset.
    pub max_closed: u32,
    /// How long a closed connection waits for the peer's FIN (FIN-WAIT-2).
    pub fin_wait: Duration,
    /// Received checksums need not be verified: the device has done it.
    pub rx_checksums_verified: bool,
    /// The device completes the checksums of TCP segments with payload, which are sent with
    /// [partial ones](mem::PartialChecksum): no sum of a payload is needed.
    pub tx_checksum_offload: bool,
    /// Resets that answer segments of no connection, per second and core, to the peers of one of 256 classes; as many ICMP
    /// errors and as many ICMP echoes (RFC 1812 §4.3.2.8), and as many messages that a segment was too big are looked at. A
    /// secret hash classes the peers.
    pub answers_per_second: u32,
    /// The key of the hash before the device's indirection table, where it has one: flow groups are its entries
    /// then. `None`: a secret one (`Secrets`), and frames may come anywhere.
    pub rss_key: Option<RssKey>,
    /// With which peers the application may speak.
    pub policy: NetworkPolicy,
}

/// A way to hosts that are no neighbours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Route {
    /// The hosts.
    pub to: Prefix,
    /// The neighbour that forwards to them.
    pub via: Address,
}

/// Explicit congestion notification (RFC 3168 §6.1.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Ecn {
    /// Never.
    Off,
    /// On connections whose peer asks for it.
    #[default]
    Accept,
    /// Asked for on connections of ours too.
    Ask,
}

/// How silent peers are asked for a sign of life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
    /// Probes without an answer after which the connection is given up.
    pub probes: u8,
}

/// A key of the RSS hash. It is not printed: who knows it can aim all of its connections at one core.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RssKey(pub [u8; 40]);

impl core::fmt::Debug for RssKey {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("RssKey(..)")
    }
}

impl StackConfig {
    /// Settings for a server at `address`/`prefix_bits` with link address `mac`; everything else as
    /// a machine room wants it.
    pub fn new(address: impl Into<Address>, prefix_bits: u8, mac: MacAddr) -> Self {
        Self {
            addresses: alloc::vec![Prefix::new(address.into(), prefix_bits)],
            routes: Vec::new(),
            mac,
            ttl: 64,
            dscp: 0,
            neighbors: Vec::new(),
            mtu_bytes: 1500,
            frame_chunks: 1,
            receive_mtu_bytes: None,
            tcp_listen: Vec::new(),
            udp_bind: Vec::new(),
            backlog: 4096,
            max_connections: 1 << 20,
            receive_window_bytes: 256 << 10,
            delayed_ack: Duration::from_millis(40),
            rto_min: Duration::from_millis(200),
            rto_max: Duration::from_secs(60),
            congestion: CongestionAlgorithm::default(),
            ecn: Ecn::default(),
            nagle: false,
            retries: 15,
            user_timeout: Some(Duration::from_secs(100)),
            user_timeout_least: Duration::from_millis(250),
            keepalive: None,
            syn_retries: 7,
            time_wait: Duration::from_secs(60),
            max_time_wait: 1 << 16,
            max_closed: 1 << 16,
            fin_wait: Duration::from_secs(60),
            rx_checksums_verified: false,
            tx_checksum_offload: false,
            answers_per_second: 1000,
            rss_key: None,
            policy: NetworkPolicy::default(),
        }
    }

    /// What is not for a neighbour goes to `gateway`, as far as its version reaches.
    pub fn set_gateway(&mut self, gateway: impl Into<Address>) {
        let via = gateway.into();
        let everywhere = match via.is_ipv4() {
            true => Address::of_v4(core::net::Ipv4Addr::UNSPECIFIED),
            false => Address::of_v6(core::net::Ipv6Addr::UNSPECIFIED),
        };
        self.routes.push(Route { to: Prefix::new(everywhere, 0), via });
    }

    /// The first of the dataplane's own addresses.
    pub fn address(&self) -> Address {
        let unspecified = Address::of_v4(core::net::Ipv4Addr::UNSPECIFIED);
        self.addresses.first().map_or(unspecified, |own| own.address)
    }

    /// Whether `address` is one of the dataplane's own.
    #[inline]
    pub fn is_own(&self, address: Address) -> bool {
        self.addresses.iter().any(|own| own.address == address)
    }

    /// Whether a host with this address is a neighbour: of one of the networks, or one that is a neighbour by its address
    /// (RFC 4291 §2.5.6), where there is an IPv6 address.
    #[inline]
    pub fn is_neighbor(&self, address: Address) -> bool {
        self.addresses
            .iter()
            .any(|own| own.contains(address) || is_link_local(address) && !own.address.is_ipv4())
    }

    /// The neighbour to which a packet for `destination` goes; `None` where there is no route.
    #[inline]
    pub fn next_hop(&self, destination: Address) -> Option<Address> {
        if self.is_neighbor(destination) {
            return Some(destination);
        }
        let routes = self.routes.iter().filter(|route| route.to.contains(destination));
        routes.max_by_key(|route| route.to.bits).map(|route| route.via)
    }

    /// The own address from which packets for `destination` go: of those with its version, one of its scope before others
    /// (RFC 6724 §5, rule 2), then one of whose network it or the next hop is, then the first.
    pub fn source_for(&self, destination: Address) -> Option<Address> {
        let hop = self.next_hop(destination)?;
        let is_fit = |own: &&Prefix| own.address.is_ipv4() == destination.is_ipv4();
        let rank = |own: &&Prefix| {
            let is_of_scope = is_link_local(own.address) == is_link_local(destination);
            (!is_of_scope, !own.contains(destination), !own.contains(hop))
        };
        self.addresses.iter().filter(is_fit).min_by_key(rank).map(|own| own.address)
    }

    /// The same, but from the address that the application names, where it names one (RFC 9293 §3.9.1.1, MUST-43 and
    /// MUST-44).
    pub(crate) fn named_source(
        &self,
        local: LocalEndpoint,
        destination: Address,
    ) -> Result<Address, NoSource> {
        let chosen = self.source_for(destination).ok_or(NoSource::NoRoute)?;
        let Some(position) = local.position() else { return Ok(chosen) };
        let named = self.addresses.get(position).map(|own| own.address);
        named.filter(|own| own.is_ipv4() == chosen.is_ipv4()).ok_or(NoSource::BadAddress)
    }

    /// An own end as applications name it.
    pub(crate) fn name_of(&self, local: Endpoint) -> LocalEndpoint {
        LocalEndpoint::among(self.addresses.iter().map(|own| own.address), local)
    }

    /// Bytes of the IP and TCP headers of a segment to or from `address`, without options.
    #[inline]
    pub fn headers_len(address: Address) -> u16 {
        let ip = if address.is_ipv4() { Ipv4Repr::HEADER_LEN } else { Ipv6Repr::HEADER_LEN };
        (ip + TcpRepr::HEADER_LEN) as u16
    }

    /// Largest TCP payload that is sent to `peer`, without options (RFC 6691).
    pub fn mss(&self, peer: Address) -> u16 {
        self.mtu_bytes.saturating_sub(Self::headers_len(peer))
    }

    /// Payload bytes that one segment with a timestamp carries to every peer; of one that is longer than a chunk of packet
    /// memory, an equal part.
    pub fn segment_bytes(&self) -> usize {
        let all = self.addresses.iter().map(|own| self.mss(own.address));
        let whole = usize::from(all.min().unwrap_or(0)).saturating_sub(12);
        whole / whole.div_ceil(TX_PAYLOAD).max(1)
    }

    /// Largest TCP payload that is received from `peer`, without options: announced to it (RFC 9293 §3.7.1).
    pub fn receive_mss(&self, peer: Address) -> u16 {
        let mtu = self.receive_mtu_bytes.unwrap_or(self.mtu_bytes);
        mtu.saturating_sub(Self::headers_len(peer))
    }

    /// The shift of the windows that we announce (RFC 7323 §2.3): the smallest that can name the
    /// receive window.
    pub fn window_scale(&self) -> u8 {
        let mut shift = 0;
        while shift < 14 && (self.receive_window_bytes >> shift) > u16::MAX as u32 {
            shift += 1;
        }
        shift
    }
}

/// Why a call has no address to send from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum NoSource {
    /// No route leads to the destination.
    NoRoute,
    /// The application names an address that is not ours, or has another version than the destination.
    BadAddress,
}

/// Whether an address is valid on its link only (RFC 4291 §2.5.6).
fn is_link_local(address: Address) -> bool {
    address.v6().is_some_and(|v6| v6.is_unicast_link_local())
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Ipv4Addr;

    fn address(text: &str) -> Address {
        text.parse().expect("an address")
    }

    #[test]
    fn next_hops_follow_the_networks_and_the_longest_route() {
        let mut config = StackConfig::new(address("10.1.2.3"), 24, MacAddr([2; 6]));
        let [near, far] = ["10.1.2.9", "10.1.3.9"].map(address);
        assert_eq!((config.next_hop(near), config.next_hop(far)), (Some(near), None));
        config.set_gateway(near);
        assert_eq!(config.next_hop(far), Some(near));
        let other = address("10.1.2.8");
        config.routes.push(Route { to: Prefix::new(address("10.1.3.0"), 24), via: other });
        assert_eq!(config.next_hop(far), Some(other));
        // No IPv4 gateway takes IPv6.
        let [host, beyond, link] = ["2001:db8::9", "2001:db9::9", "fe80::9"].map(address);
        assert_eq!([host, beyond, link].map(|to| config.next_hop(to)), [None; 3]);
        config.addresses.push(Prefix::new(address("2001:db8::1"), 64));
        assert_eq!(config.next_hop(host), Some(host));
        assert_eq!((config.next_hop(beyond), config.next_hop(link)), (None, Some(link)));
        config.set_gateway(link);
        assert_eq!(config.next_hop(beyond), Some(link));
        config.addresses[0].bits = 0;
        assert_eq!(config.next_hop(far), Some(far));
    }

    #[test]
    fn a_source_has_the_version_the_scope_and_the_network_of_its_destination() {
        let mut config = StackConfig::new(address("10.1.2.3"), 24, MacAddr([2; 6]));
        for (own, bits) in [("10.9.0.1", 16), ("fe80::1", 64), ("2001:db8::1", 64), ("fd00::1", 8)]
        {
            config.addresses.push(Prefix::new(address(own), bits));
        }
        config.set_gateway(address("10.9.0.254"));
        config.set_gateway(address("fe80::fe"));
        for (destination, source) in [
            ("10.1.2.9", "10.1.2.3"),
            ("10.9.3.3", "10.9.0.1"),
            ("192.0.2.1", "10.9.0.1"),
            ("fe80::9", "fe80::1"),
            ("fd00::9", "fd00::1"),
            ("2001:db8:1::9", "2001:db8::1"),
        ] {
            let found = config.source_for(address(destination));
            assert_eq!(found, Some(address(source)), "{destination}");
        }
        config.routes.clear();
        assert_eq!(config.source_for(address("192.0.2.1")), None);
    }

    #[test]
    fn keys_are_not_printed() {
        let mut config = StackConfig::new(Ipv4Addr::LOCALHOST, 8, MacAddr([2; 6]));
        config.rss_key = Some(RssKey([0xab; 40]));
        let printed = alloc::format!("{config:?}");
        assert!(printed.contains("RssKey(..)") && !printed.contains("171"), "{printed}");
    }

    #[test]
    fn the_scale_names_the_whole_window() {
        let mut config = StackConfig::new(Ipv4Addr::LOCALHOST, 8, MacAddr([2; 6]));
        for (bytes, scale) in [(65_535, 0), (65_536, 1), (256 << 10, 3), (u32::MAX, 14)] {
            config.receive_window_bytes = bytes;
            assert_eq!(config.window_scale(), scale, "{bytes}");
        }
    }
}
