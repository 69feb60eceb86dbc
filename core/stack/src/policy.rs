//! The access policy: with which peers the application may speak.
//!
//! [`Access::permits`] judges each connection and each datagram at the moment at which it comes about, before it has a
//! name that the application could use. The stack asks it in four places and nowhere else, whichever scheduler runs
//! the stack and wherever the application runs:
//!
//! | Place | Judges | What the policy denies |
//! | --- | --- | --- |
//! | `tcp::listen` | the SYN that opens a connection | is reset: no state, no handle, no event |
//! | `execute` | `connect` | fails with [`ConnectError::Forbidden`](domain::ConnectError::Forbidden) |
//! | `udp::arrive` | a received datagram | is dropped |
//! | `udp::send` | `udp_sendv` | fails with [`CallError::Forbidden`](domain::CallError::Forbidden) |
//!
//! A segment of a connection is not judged: the connection was. Which ports an application may open itself
//! ([`Calls::listen`](domain::Calls::listen)) `execute` asks [`NetworkPolicy::allows_listening`]: none where nothing is said.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::ops::RangeInclusive;
use core::sync::atomic::{AtomicU64, Ordering};

use clock::{Duration, Instant};
pub use domain::Transport;
use wire::{Address, Endpoint, Ipv4Addr, Prefix};

use crate::tcp::isn::keyed_hash;

/// The side that begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// The application connects, or sends a datagram. A rule's port is the peer's.
    Out,
    /// The peer connects, or sends a datagram. A rule's port is the application's.
    In,
}

/// A verdict about some peers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The verdict.
    pub allow: bool,
    /// The side that begins.
    pub direction: Direction,
    /// The transport; `None`: both.
    pub transport: Option<Transport>,
    /// The peers' network; `None`: all peers, of both versions.
    pub network: Option<Prefix>,
    /// Ports; see [`Direction`].
    pub ports: RangeInclusive<u16>,
}

impl Rule {
    fn is_about(
        &self,
        direction: Direction,
        transport: Transport,
        peer: Address,
        port: u16,
    ) -> bool {
        self.direction == direction
            && self.transport.is_none_or(|only| only == transport)
            && self.network.is_none_or(|network| network.contains(peer))
            && self.ports.contains(&port)
    }
}

/// The rules of one application.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkPolicy {
    /// The first rule that is about a peer decides.
    pub rules: Vec<Rule>,
    /// The verdict where the application begins and no rule is about the peer.
    pub allow_out: bool,
    /// The verdict where the peer begins and no rule is about it.
    pub allow_in: bool,
    /// Ports that datagrams may leave from; `None`: any.
    pub source_ports: Option<Vec<RangeInclusive<u16>>>,
    /// Ports that the application may open and close while it runs, of both transports, beside those of the
    /// configuration.
    pub listen: Vec<RangeInclusive<u16>>,
}

impl Default for NetworkPolicy {
    /// Allows everything but ports that the configuration does not list.
    fn default() -> Self {
        let (rules, source_ports, listen) = (Vec::new(), None, Vec::new());
        Self { rules, allow_out: true, allow_in: true, source_ports, listen }
    }
}

impl NetworkPolicy {
    /// The verdict of the rules about traffic between `peer` and the application's port `local_port`, begun by the
    /// side that `direction` names.
    pub fn allows(
        &self,
        direction: Direction,
        transport: Transport,
        peer: Endpoint,
        local_port: u16,
    ) -> bool {
        let (port, otherwise) = match direction {
            Direction::Out => (peer.port, self.allow_out),
            Direction::In => (local_port, self.allow_in),
        };
        let mut rules = self.rules.iter();
        let rule = rules.find(|rule| rule.is_about(direction, transport, peer.addr, port));
        rule.map_or(otherwise, |rule| rule.allow)
    }

    /// Whether datagrams may leave from a port.
    pub fn allows_source(&self, local_port: u16) -> bool {
        let ports = self.source_ports.as_ref();
        ports.is_none_or(|ports| ports.iter().any(|range| range.contains(&local_port)))
    }

    /// Whether the application may open a port that the configuration does not list.
    pub fn allows_listening(&self, port: u16) -> bool {
        self.listen.iter().any(|range| range.contains(&port))
    }

    /// Whether there is a peer to which the rules deny a datagram.
    fn denies_datagrams(&self) -> bool {
        let denies = |rule: &Rule| {
            !rule.allow
                && rule.direction == Direction::Out
                && rule.transport != Some(Transport::Tcp)
        };
        !self.allow_out || self.rules.iter().any(denies)
    }
}

/// A policy in force, with the datagrams that it has let in and that may be answered. One for all threads of a
/// dataplane: the thread that executes the answer need not be the one that received the datagram.
pub(crate) struct Access {
    policy: NetworkPolicy,
    /// `None`: the rules deny no datagram, so that none has to be an answer.
    admitted: Option<AdmittedFlows>,
}

impl Access {
    pub fn new(policy: NetworkPolicy, key: [u8; 16]) -> Self {
        let admitted = policy.denies_datagrams().then(|| AdmittedFlows::new(key));
        Self { policy, admitted }
    }

    /// Whether a connection or a datagram between `peer` and `local_port` may come about, begun by the side that
    /// `direction` names. The rules decide, with one exception: a datagram that they deny may leave as the answer to
    /// one that came in, from the port to which that came, to the peer's port from which it came, for
    /// [`ANSWERABLE`].
    pub fn permits(
        &self,
        direction: Direction,
        transport: Transport,
        peer: Endpoint,
        local_port: u16,
        now: Instant,
    ) -> bool {
        let allows = |direction| self.policy.allows(direction, transport, peer, local_port);
        match (direction, transport) {
            (_, Transport::Tcp) => allows(direction),
            (Direction::In, Transport::Udp) => {
                let is_admitted = allows(Direction::In);
                if let Some(admitted) = self.admitted.as_ref().filter(|_| is_admitted)
                    && !allows(Direction::Out)
                {
                    admitted.note(peer, local_port, now);
                }
                is_admitted
            }
            (Direction::Out, Transport::Udp) => {
                let is_answer = || {
                    let admitted = self.admitted.as_ref();
                    admitted.is_some_and(|admitted| admitted.has(peer, local_port, now))
                };
                self.policy.allows_source(local_port) && (allows(Direction::Out) || is_answer())
            }
        }
    }
}

/// How long a datagram that was let in may be answered: as long as Linux's connection tracking waits for an answer.
pub const ANSWERABLE: Duration = Duration::from_secs(30);
/// Flows that share a hash value, in one cache line.
const WAYS: usize = 8;
/// Sets of so many flows: 4,096 flows in all, 64 KiB.
const SETS: usize = 512;

/// Flows of datagrams that were let in, the latest ones. Full sets forget their oldest flow, whose peer then gets no
/// answer until it sends again: senders of forged addresses can deny answers so, and cannot obtain one.
///
/// Threads share it without locks. Atomics cost the datagrams of a restricted application one load, and one store a
/// second for each flow.
struct AdmittedFlows {
    key: [u8; 16],
    sets: Box<[FlowSet]>,
}

#[derive(Default)]
#[repr(align(64))]
struct FlowSet {
    /// A keyed hash of the peer's address and port and of the own port, of 64 bits: which two flows share is not for
    /// senders to choose. 0: none.
    flows: [AtomicU64; WAYS],
    /// When the latest datagram of the flow was noted, in nanoseconds.
    noted_ns: [AtomicU64; WAYS],
}

impl AdmittedFlows {
    /// A flow's time is written again once it is so old: no store for each datagram.
    const REFRESH: Duration = Duration::from_secs(1);

    fn new(key: [u8; 16]) -> Self {
        Self { key, sets: (0..SETS).map(|_| FlowSet::default()).collect() }
    }

    /// The word of a flow, and the set in which it belongs. The hash is keyed: a stranger cannot choose peers that
    /// share one set.
    fn place(&self, peer: Endpoint, local_port: u16) -> (u64, &FlowSet) {
        let local = Endpoint::v4(Ipv4Addr::UNSPECIFIED, local_port);
        let hash = keyed_hash(&self.key, local, peer);
        (hash.max(1), &self.sets[hash as usize % SETS])
    }

    fn note(&self, peer: Endpoint, local_port: u16, now: Instant) {
        let (word, set) = self.place(peer, local_port);
        let noted = |way: usize| set.noted_ns[way].load(Ordering::Relaxed);
        let known = (0..WAYS).find(|&way| set.flows[way].load(Ordering::Relaxed) == word);
        if known.is_some_and(|way| now.since(Instant::from_nanos(noted(way))) < Self::REFRESH) {
            return;
        }
        let way = known.or_else(|| (0..WAYS).min_by_key(|&way| noted(way))).unwrap_or(0);
        // The flow first, its time behind it: see `has`.
        set.flows[way].store(word, Ordering::Relaxed);
        set.noted_ns[way].store(now.as_nanos(), Ordering::Release);
    }

    fn has(&self, peer: Endpoint, local_port: u16, now: Instant) -> bool {
        let (word, set) = self.place(peer, local_port);
        (0..WAYS).any(|way| {
            // The time is read before the flow, as it is written behind it: a time that belongs to a later flow is
            // never taken for that of the flow before. The other mixture only refuses an answer.
            let noted = set.noted_ns[way].load(Ordering::Acquire);
            set.flows[way].load(Ordering::Relaxed) == word
                && now.since(Instant::from_nanos(noted)) < ANSWERABLE
        })
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    const PEER: Endpoint = Endpoint::v4(Ipv4Addr::new(10, 1, 2, 3), 80);
    const NOW: Instant = Instant::from_micros(5_000_000);

    fn rule(allow: bool, direction: Direction, bits: u8, ports: RangeInclusive<u16>) -> Rule {
        let network = Some(Prefix::new(Ipv4Addr::new(10, 1, 0, 0).into(), bits));
        Rule { allow, direction, transport: None, network, ports }
    }

    fn access(policy: NetworkPolicy) -> Access {
        Access::new(policy, [7; 16])
    }

    #[test]
    fn the_first_rule_about_a_peer_decides() {
        let rules = vec![
            rule(false, Direction::Out, 24, 0..=u16::MAX),
            rule(true, Direction::Out, 16, 80..=80),
            rule(false, Direction::Out, 0, 0..=u16::MAX),
        ];
        let policy = NetworkPolicy { rules, ..NetworkPolicy::default() };
        let connects = |peer| policy.allows(Direction::Out, Transport::Tcp, peer, 7);
        assert!(connects(PEER));
        assert!(!connects(Endpoint::new(Ipv4Addr::new(10, 1, 0, 3), 80)), "first rule");
        assert!(!connects(Endpoint::new(PEER.addr, 81)), "last rule");
        assert!(!connects(Endpoint::new(Ipv4Addr::new(11, 1, 2, 3), 80)), "last rule");
        assert!(policy.allows(Direction::In, Transport::Tcp, PEER, 7), "no rule about `in`");
        let v6: Endpoint = "[2001:db8::1]:80".parse().expect("an endpoint");
        assert!(connects(v6), "no rule about IPv6");
        let mut policy = policy;
        policy.rules.push(Rule { network: None, ..rule(false, Direction::Out, 0, 0..=u16::MAX) });
        assert!(!policy.allows(Direction::Out, Transport::Tcp, v6, 7), "a rule about all");
    }

    #[test]
    fn the_direction_decides_where_no_rule_is_about_a_peer() {
        let only = Rule { transport: Some(Transport::Tcp), ..rule(true, Direction::In, 32, 7..=8) };
        let policy = NetworkPolicy {
            rules: vec![only],
            allow_out: false,
            allow_in: false,
            source_ports: Some(vec![7..=7]),
            listen: vec![9..=9, 80..=81],
        };
        assert_eq!(
            [8, 9, 79, 81].map(|port| policy.allows_listening(port)),
            [false, true, false, true]
        );
        let neighbour = Endpoint::new(Ipv4Addr::new(10, 1, 0, 0), 5);
        let comes_in = |peer, port| policy.allows(Direction::In, Transport::Tcp, peer, port);
        assert!(comes_in(neighbour, 8) && !comes_in(neighbour, 9));
        assert!(!comes_in(PEER, 8), "another address");
        assert!(!policy.allows(Direction::In, Transport::Udp, neighbour, 8), "a rule about TCP");
        assert!(!policy.allows(Direction::Out, Transport::Tcp, neighbour, 7));
        assert!(policy.allows_source(7) && !policy.allows_source(8));
    }

    #[test]
    fn a_datagram_that_came_in_may_be_answered_for_a_while_and_to_its_sender_alone() {
        let access = access(NetworkPolicy { allow_out: false, ..NetworkPolicy::default() });
        let sends =
            |peer, port, now| access.permits(Direction::Out, Transport::Udp, peer, port, now);
        assert!(!sends(PEER, 7, NOW), "no datagram came");
        assert!(access.permits(Direction::In, Transport::Udp, PEER, 7, NOW));
        assert!(sends(PEER, 7, NOW));
        assert!(!sends(PEER, 8, NOW), "another port of the application's");
        assert!(!sends(Endpoint::new(PEER.addr, 81), 7, NOW), "another port of the peer's");
        assert!(!sends(Endpoint::new(Ipv4Addr::new(10, 1, 2, 4), 80), 7, NOW), "another peer");
        assert!(!access.permits(Direction::Out, Transport::Tcp, PEER, 7, NOW), "a connection");
        let later = NOW + (ANSWERABLE - Duration::from_nanos(1));
        assert!(sends(PEER, 7, later) && !sends(PEER, 7, NOW + ANSWERABLE));
    }

    #[test]
    fn a_denied_datagram_may_not_be_answered() {
        let policy = NetworkPolicy { allow_out: false, allow_in: false, ..Default::default() };
        let access = access(policy);
        assert!(!access.permits(Direction::In, Transport::Udp, PEER, 7, NOW));
        assert!(!access.permits(Direction::Out, Transport::Udp, PEER, 7, NOW));
    }

    #[test]
    fn answers_too_leave_from_source_ports_alone() {
        let source_ports = Some(vec![9..=9]);
        let access =
            access(NetworkPolicy { allow_out: false, source_ports, ..NetworkPolicy::default() });
        for port in [7, 9] {
            assert!(access.permits(Direction::In, Transport::Udp, PEER, port, NOW));
        }
        assert!(!access.permits(Direction::Out, Transport::Udp, PEER, 7, NOW));
        assert!(access.permits(Direction::Out, Transport::Udp, PEER, 9, NOW));
    }

    #[test]
    #[cfg_attr(miri, ignore = "sixteen thousand flows, nothing of them unsafe")]
    fn the_latest_flows_are_kept_and_no_others_answered() {
        let access = access(NetworkPolicy { allow_out: false, ..NetworkPolicy::default() });
        let peer = |number: u32| Endpoint::new(Ipv4Addr::from_bits(number + 1), 9);
        let many = 4 * (WAYS * SETS) as u32;
        let at = |number: u32| NOW + Duration::from_micros(number.into());
        for number in 0..many {
            assert!(access.permits(Direction::In, Transport::Udp, peer(number), 7, at(number)));
            let answers =
                |of| access.permits(Direction::Out, Transport::Udp, peer(of), 7, at(number));
            assert!(answers(number) && !answers(number + 1));
        }
        let kept = (0..many).filter(|&number| {
            access.permits(Direction::Out, Transport::Udp, peer(number), 7, at(many))
        });
        assert!(kept.count() <= WAYS * SETS);
    }
}
