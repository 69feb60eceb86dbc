//! What an application may do on the network: decided in the dataplane, where it cannot reach.
//!
//! Rules say with whom it may speak, rates how much. What is forbidden is refused with an error that says so
//! ([`ConnectError::Forbidden`](domain::ConnectError::Forbidden), [`CallError::Forbidden`](domain::CallError::Forbidden));
//! who may not speak to it is reset or not heard. What comes too fast is not lost: the application gets its next
//! batch later ([`Toll`]).
//!
//! Addresses that packets come from are the dataplane's at all times: an application names connections, and ports of
//! datagrams, which are checked here.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clock::Instant;
use wire::{Endpoint, Ipv4Addr};

/// Which transport a rule is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Connections.
    Tcp,
    /// Datagrams.
    Udp,
}

/// Who begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The application: it connects, or sends a datagram. A rule's port is the peer's.
    Out,
    /// The peer: it knocks, or a datagram of it came. A rule's port is the application's.
    In,
}

/// Some peers, and what becomes of traffic with them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// Whether they may.
    pub allow: bool,
    /// Who begins.
    pub direction: Direction,
    /// Which transport; both where none is named.
    pub transport: Option<Transport>,
    /// The peers' network.
    pub network: Ipv4Addr,
    /// Bits of it that count, at most 32.
    pub prefix_bits: u8,
    /// Ports; see [`Direction`].
    pub ports: RangeInclusive<u16>,
}

impl Rule {
    fn is_about(
        &self,
        direction: Direction,
        transport: Transport,
        peer: Ipv4Addr,
        port: u16,
    ) -> bool {
        let number = |address: Ipv4Addr| u32::from_be_bytes(address.octets());
        // All bits are beyond the prefix where it has none.
        let beyond = 32 - u32::from(self.prefix_bits.min(32));
        let differs = (number(peer) ^ number(self.network)).checked_shr(beyond).unwrap_or(0);
        let same_network = beyond == 32 || differs == 0;
        self.direction == direction
            && self.transport.is_none_or(|only| only == transport)
            && same_network
            && self.ports.contains(&port)
    }
}

/// The rules of one application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkPolicy {
    /// The first that is about a peer decides.
    pub rules: Vec<Rule>,
    /// What becomes of what no rule is about, where the application begins.
    pub allow_out: bool,
    /// The same, where the peer begins.
    pub allow_in: bool,
    /// Ports that its datagrams may come from; any where there is no list.
    pub source_ports: Option<Vec<RangeInclusive<u16>>>,
}

impl Default for NetworkPolicy {
    /// Everything.
    fn default() -> Self {
        Self { rules: Vec::new(), allow_out: true, allow_in: true, source_ports: None }
    }
}

impl NetworkPolicy {
    fn allows(
        &self,
        direction: Direction,
        transport: Transport,
        peer: Ipv4Addr,
        port: u16,
    ) -> bool {
        let rule = self.rules.iter().find(|rule| rule.is_about(direction, transport, peer, port));
        rule.map_or(
            match direction {
                Direction::Out => self.allow_out,
                Direction::In => self.allow_in,
            },
            |rule| rule.allow,
        )
    }

    /// Whether the application may connect to `peer`.
    pub fn allows_connect(&self, peer: Endpoint) -> bool {
        self.allows(Direction::Out, Transport::Tcp, peer.addr, peer.port)
    }

    /// Whether `peer` may connect to the application's port.
    pub fn allows_knock(&self, peer: Endpoint, local_port: u16) -> bool {
        self.allows(Direction::In, Transport::Tcp, peer.addr, local_port)
    }

    /// Whether the application may send a datagram from a port of its own to `peer`. An answer to a peer that may
    /// send to that port is allowed.
    pub fn allows_send(&self, local_port: u16, peer: Endpoint) -> bool {
        let from = self.source_ports.as_ref();
        from.is_none_or(|ports| ports.iter().any(|range| range.contains(&local_port)))
            && (self.allows(Direction::Out, Transport::Udp, peer.addr, peer.port)
                || self.rules.iter().any(|rule| rule.direction == Direction::In)
                    && self.allows_datagram(peer, local_port))
    }

    /// Whether a datagram of `peer` may reach the application's port.
    pub fn allows_datagram(&self, peer: Endpoint, local_port: u16) -> bool {
        self.allows(Direction::In, Transport::Udp, peer.addr, local_port)
    }
}

/// How much an application may do; without a limit where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rates {
    /// Bytes that it sends, in a second.
    pub bytes: Option<u64>,
    /// Packets that it sends (one at least for each call that sends), in a second.
    pub packets: Option<u64>,
    /// Connections that it opens or accepts, in a second.
    pub connections: Option<u64>,
}

/// What a batch used of the rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Used {
    /// See [`Rates`].
    pub bytes: u64,
    /// See [`Rates`].
    pub packets: u64,
    /// See [`Rates`].
    pub connections: u64,
}

impl Used {
    pub(crate) fn is_nothing(&self) -> bool {
        *self == Self::default()
    }
}

/// Keeps an application, with all its elastic threads, to its rates. Each batch is paid for after it: the next one
/// waits until the application is out of debt, so that an average is kept, nothing is lost, and one batch is the
/// most that comes at once beyond the [burst](Self::BURST).
#[derive(Debug)]
pub struct Toll {
    rates: Rates,
    /// Until when what was used is paid for, in nanoseconds of the dataplane's clock: bytes, packets, connections.
    paid_until: [AtomicU64; 3],
}

impl Toll {
    /// What has not been used for so long does not count any more.
    pub const BURST: Duration = Duration::from_millis(10);

    /// For all elastic threads of one application; `None` where nothing is limited.
    pub fn new(rates: Rates) -> Option<Arc<Self>> {
        (rates != Rates::default())
            .then(|| Arc::new(Self { rates, paid_until: Default::default() }))
    }

    /// Has what a batch used paid for.
    pub(crate) fn charge(&self, now: Instant, used: Used) {
        let Rates { bytes, packets, connections } = self.rates;
        let from = now.as_nanos().saturating_sub(Self::BURST.as_nanos() as u64);
        let all = [(bytes, used.bytes), (packets, used.packets), (connections, used.connections)];
        for (paid_until, (rate, used)) in self.paid_until.iter().zip(all) {
            let Some(rate) = rate.filter(|_| used > 0) else { continue };
            let price = u128::from(used) * 1_000_000_000 / u128::from(rate.max(1));
            let price = u64::try_from(price).unwrap_or(u64::MAX);
            // Several threads of the application pay into one purse, once for each batch.
            let pay = |paid: u64| Some(paid.max(from).saturating_add(price));
            let _ = paid_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
        }
    }

    /// When the application is out of debt.
    pub(crate) fn free_at(&self) -> Instant {
        let latest = self.paid_until.iter().map(|paid| paid.load(Ordering::Relaxed)).max();
        Instant::from_nanos(latest.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: Endpoint = Endpoint::new(Ipv4Addr::new(10, 1, 2, 3), 80);

    fn rule(allow: bool, direction: Direction, bits: u8, ports: RangeInclusive<u16>) -> Rule {
        let network = Ipv4Addr::new(10, 1, 0, 0);
        Rule { allow, direction, transport: None, network, prefix_bits: bits, ports }
    }

    #[test]
    fn the_first_rule_about_a_peer_decides() {
        let rules = vec![
            rule(false, Direction::Out, 24, 0..=u16::MAX),
            rule(true, Direction::Out, 16, 80..=80),
            rule(false, Direction::Out, 0, 0..=u16::MAX),
        ];
        let policy = NetworkPolicy { rules, ..NetworkPolicy::default() };
        assert!(policy.allows_connect(PEER));
        assert!(
            !policy.allows_connect(Endpoint::new(Ipv4Addr::new(10, 1, 0, 3), 80)),
            "first rule"
        );
        assert!(!policy.allows_connect(Endpoint::new(PEER.addr, 81)), "last rule");
        assert!(!policy.allows_connect(Endpoint::new(Ipv4Addr::new(11, 1, 2, 3), 80)), "last rule");
        assert!(policy.allows_knock(PEER, 7), "no rule is about who knocks");
    }

    #[test]
    fn what_no_rule_is_about_is_as_the_direction_says() {
        let rules =
            vec![Rule { transport: Some(Transport::Tcp), ..rule(true, Direction::In, 32, 7..=8) }];
        let policy = NetworkPolicy {
            rules,
            allow_out: false,
            allow_in: false,
            source_ports: Some(vec![7..=7]),
        };
        let neighbour = Endpoint::new(Ipv4Addr::new(10, 1, 0, 0), 5);
        assert!(policy.allows_knock(neighbour, 8) && !policy.allows_knock(neighbour, 9));
        assert!(!policy.allows_knock(PEER, 8), "another address");
        assert!(!policy.allows_datagram(neighbour, 8), "the rule is about connections");
        assert!(!policy.allows_connect(neighbour) && !policy.allows_send(7, neighbour));
    }

    #[test]
    fn datagrams_come_from_ports_that_are_its_own_and_answer_who_may_ask() {
        let open = NetworkPolicy { source_ports: Some(vec![7..=9]), ..NetworkPolicy::default() };
        assert!(open.allows_send(8, PEER) && !open.allows_send(10, PEER));
        let asked = NetworkPolicy {
            rules: vec![rule(true, Direction::In, 16, 7..=7)],
            allow_out: false,
            allow_in: false,
            source_ports: None,
        };
        assert!(asked.allows_send(7, PEER), "an answer");
        assert!(!asked.allows_send(8, PEER) && !asked.allows_connect(PEER));
    }

    #[test]
    fn a_rate_is_kept_on_average_and_a_pause_is_worth_one_burst() {
        let rates = Rates { bytes: Some(1_000_000), ..Rates::default() };
        let toll = Toll::new(rates).expect("limited");
        let (mut now, mut sent) = (Instant::from_nanos(1_000_000_000), 0_u64);
        let begun = now;
        while now.since(begun) < Duration::from_secs(10) {
            if toll.free_at() <= now {
                toll.charge(now, Used { bytes: 3_000, ..Used::default() });
                sent += 3_000;
            }
            now += Duration::from_micros(100);
        }
        let burst = 10_000 + 3_000;
        assert!((10_000_000..=10_000_000 + burst).contains(&sent), "{sent}");
        // A minute later no more than a burst is saved up.
        now += Duration::from_secs(60);
        toll.charge(now, Used { bytes: 20_000, packets: 9, connections: 9 });
        assert_eq!(toll.free_at().since(now), Duration::from_millis(10));
        assert!(Toll::new(Rates::default()).is_none());
    }

    #[test]
    fn rates_and_amounts_of_any_size_are_reckoned() {
        let toll = Toll::new(Rates { packets: Some(0), ..Rates::default() }).expect("limited");
        toll.charge(Instant::from_nanos(5), Used { packets: u64::MAX, ..Used::default() });
        toll.charge(Instant::from_nanos(6), Used { packets: 1, ..Used::default() });
        assert_eq!(toll.free_at(), Instant::from_nanos(u64::MAX));
    }
}
