//! The reference model of the access policy: what may pass, in as few words as possible.

use std::collections::HashMap;

use clock::{Duration, Instant};
use stack::{Direction, NetworkPolicy, Rule, Transport};
use wire::{Address, Endpoint, Ipv4Addr};

use crate::application::MESSAGE;
use crate::world::LISTEN;

/// A datagram that came in may be answered for so long at least, and no longer than the second.
const ANSWERABLE: [Duration; 2] = [Duration::from_secs(29), Duration::from_secs(30)];
/// How long a datagram is on its way, at most.
const ON_ITS_WAY: Duration = Duration::from_millis(1);

/// What the model says where the code may do either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Must,
    May,
    MustNot,
}

pub struct Model {
    policy: NetworkPolicy,
    /// When a peer last sent a datagram that the rules let in: the peer, and the application's port.
    admitted: HashMap<(Endpoint, u16), Instant>,
}

/// Whether two addresses have the same first bits.
fn shares_prefix(one: Address, other: Address, bits: u8) -> bool {
    let v4 = |address: Address| address.v4().expect("peers speak IPv4").octets();
    let bit_of = |address: Address, at: usize| v4(address)[at / 8] >> (7 - at % 8) & 1;
    (0..usize::from(bits)).all(|at| bit_of(one, at) == bit_of(other, at))
}

impl Model {
    pub fn new(policy: &NetworkPolicy) -> Self {
        Self { policy: policy.clone(), admitted: HashMap::new() }
    }

    fn rules_allow(
        &self,
        direction: Direction,
        transport: Transport,
        peer: Endpoint,
        local_port: u16,
    ) -> bool {
        let port = if direction == Direction::Out { peer.port } else { local_port };
        for Rule { allow, direction: of, transport: only, network, ports } in &self.policy.rules {
            let Some(network) = network else { panic!("no rule here is about all peers") };
            if *of == direction
                && (*only == Some(transport) || only.is_none())
                && shares_prefix(network.address, peer.addr, network.bits)
                && *ports.start() <= port
                && port <= *ports.end()
            {
                return *allow;
            }
        }
        if direction == Direction::Out { self.policy.allow_out } else { self.policy.allow_in }
    }

    pub fn peer_connects(&self, peer: Endpoint, local_port: u16) -> bool {
        self.rules_allow(Direction::In, Transport::Tcp, peer, local_port)
    }

    pub fn connects(&self, peer: Endpoint) -> bool {
        self.rules_allow(Direction::Out, Transport::Tcp, peer, 0)
    }

    /// Whether there may be a connection between these ends: the ports that are listened on are no ephemeral ones.
    pub fn is_connection(&self, peer: Endpoint, local_port: u16) -> bool {
        match LISTEN.contains(&local_port) {
            true => self.peer_connects(peer, local_port),
            false => self.connects(peer),
        }
    }

    pub fn comes_in(&self, peer: Endpoint, local_port: u16) -> bool {
        self.rules_allow(Direction::In, Transport::Udp, peer, local_port)
    }

    /// A peer sends a datagram.
    pub fn note_datagram(&mut self, peer: Endpoint, local_port: u16, now: Instant) {
        if self.comes_in(peer, local_port) {
            self.admitted.insert((peer, local_port), now);
        }
    }

    /// Whether a datagram leaves from `local_port` to `peer`.
    pub fn leaves(&self, peer: Endpoint, local_port: u16, now: Instant) -> Verdict {
        let ports = self.policy.source_ports.as_ref();
        if !ports.is_none_or(|ports| ports.iter().any(|range| range.contains(&local_port))) {
            return Verdict::MustNot;
        }
        if self.rules_allow(Direction::Out, Transport::Udp, peer, local_port) {
            return Verdict::Must;
        }
        let Some(came) = self.admitted.get(&(peer, local_port)) else { return Verdict::MustNot };
        let [least, most] = ANSWERABLE;
        match now.since(*came) {
            age if age < least => Verdict::Must,
            age if age < most + ON_ITS_WAY => Verdict::May,
            _ => Verdict::MustNot,
        }
    }

    /// Bytes of a connection, which name the flow that each message of them belongs to.
    pub fn check_bytes(&self, data: &[u8]) -> Result<(), String> {
        if !data.len().is_multiple_of(MESSAGE) {
            return Err(format!("{} bytes of a connection: part of a message", data.len()));
        }
        for message in data.chunks(MESSAGE) {
            let (peer, local_port) = flow_of(message);
            if !self.is_connection(peer, local_port) {
                return Err(format!("bytes of {peer} reached the application at {local_port}"));
            }
        }
        Ok(())
    }
}

/// The flow that a message names.
pub fn flow_of(message: &[u8]) -> (Endpoint, u16) {
    let word = |at: usize| u16::from_be_bytes([message[at], message[at + 1]]);
    let address = Ipv4Addr::new(message[0], message[1], message[2], message[3]);
    (Endpoint::new(address, word(4)), word(6))
}
