//! What a stack is told at start.

use alloc::vec::Vec;
use core::time::Duration;

use wire::{Ipv4Addr, MacAddr};

use crate::policy::NetworkPolicy;
use crate::tcp::congestion::CongestionAlgorithm;

/// Settings of one dataplane's stack: the same for all of its elastic threads.
#[derive(Clone, Debug)]
pub struct StackConfig {
    /// The dataplane's own address.
    pub address: Ipv4Addr,
    /// Bits of the network part of the address: neighbours beyond it are reached by the gateway.
    pub prefix_bits: u8,
    /// The next hop for all that is not a neighbour.
    pub gateway: Option<Ipv4Addr>,
    /// The link address.
    pub mac: MacAddr,
    /// Time to live of the packets that are sent (RFC 9293 §3.9.2).
    pub ttl: u8,
    /// Their Differentiated Services codepoint, six bits (RFC 2474).
    pub dscp: u8,
    /// Neighbours whose link addresses are given: they are never asked for, and no answer changes them.
    pub neighbors: Vec<(Ipv4Addr, MacAddr)>,
    /// Largest IP packet, in bytes (1,500 on Ethernet).
    pub mtu_bytes: u16,
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
    pub fn new(address: Ipv4Addr, prefix_bits: u8, mac: MacAddr) -> Self {
        Self {
            address,
            prefix_bits: prefix_bits.min(32),
            gateway: None,
            mac,
            ttl: 64,
            dscp: 0,
            neighbors: Vec::new(),
            mtu_bytes: 1500,
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
            answers_per_second: 1000,
            rss_key: None,
            policy: NetworkPolicy::default(),
        }
    }

    /// The neighbour to which a packet for `destination` goes; `None` where there is no route.
    #[inline]
    pub fn next_hop(&self, destination: Ipv4Addr) -> Option<Ipv4Addr> {
        let mask = u32::MAX.checked_shl(32 - self.prefix_bits as u32).unwrap_or(0);
        if (destination.to_bits() ^ self.address.to_bits()) & mask == 0 {
            Some(destination)
        } else {
            self.gateway
        }
    }

    /// Largest TCP payload that is sent, without options (RFC 6691).
    pub fn mss(&self) -> u16 {
        self.mtu_bytes.saturating_sub(40)
    }

    /// Largest TCP payload that is received, without options: announced to peers (RFC 9293 §3.7.1).
    pub fn receive_mss(&self) -> u16 {
        self.receive_mtu_bytes.unwrap_or(self.mtu_bytes).saturating_sub(40)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn next_hops_follow_the_prefix() {
        let mac = MacAddr([2, 0, 0, 0, 0, 1]);
        let mut config = StackConfig::new(Ipv4Addr::new(10, 1, 2, 3), 24, mac);
        let (near, far) = (Ipv4Addr::new(10, 1, 2, 9), Ipv4Addr::new(10, 1, 3, 9));
        assert_eq!(config.next_hop(near), Some(near));
        assert_eq!(config.next_hop(far), None);
        config.gateway = Some(near);
        assert_eq!(config.next_hop(far), Some(near));
        config.prefix_bits = 0;
        assert_eq!(config.next_hop(far), Some(far));
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
