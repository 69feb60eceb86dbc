//! Answers to strangers: resets, ICMP errors and ICMP echoes, a bounded number of each in a second (RFC 1812 §4.3.2.8,
//! RFC 4443 §2.4 f), and as many messages about segments that were too big.
//!
//! Each kind has its own budget, and of each kind each class of peers. A secret hash that changes every second
//! decides which peers share a class: a peer that counts its own answers learns nothing of what was answered to
//! another one (CVE-2016-5696, CVE-2020-25705), and one that wastes its budget leaves the others theirs.

use wire::{Address, Endpoint, Ipv4Addr};

use crate::tcp::isn::keyed_hash;

/// Classes of peers.
pub(crate) const CLASSES: usize = 256;

/// The class of a peer in an `epoch`, by a secret hash.
pub(crate) fn class_of(peer: Address, epoch: u64, key: &[u8; 16]) -> u8 {
    let epoch = Endpoint::v4(Ipv4Addr::from_bits(epoch as u32), 0);
    // A peer with a whole network of 64 bits for itself is one peer (RFC 6177).
    let mut octets = peer.octets();
    if !peer.is_ipv4() {
        octets[8..].fill(0);
    }
    let peer = Address::from_octets(octets);
    (keyed_hash(key, epoch, Endpoint::new(peer, 0)) as usize % CLASSES) as u8
}

/// What is sent to one that no connection of ours is with.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Answer {
    /// To a segment of no connection (RFC 9293 §3.10.7.1).
    Reset,
    /// Destination unreachable, and other errors.
    IcmpError,
    /// To an echo request.
    Echo,
    /// To a router's message that a segment was too big, which is looked at.
    TooBig,
}

/// See the module's comment.
#[derive(Debug)]
pub(crate) struct AnswerBudget {
    second: u64,
    /// Answers given in `second`, by kind and class.
    given: [[u32; CLASSES]; 4],
}

impl Default for AnswerBudget {
    fn default() -> Self {
        Self { second: u64::MAX, given: [[0; CLASSES]; 4] }
    }
}

impl AnswerBudget {
    /// Whether one more answer to `peer` is allowed in `second`, of at most `most`; it is counted.
    pub fn takes(
        &mut self,
        answer: Answer,
        peer: Address,
        second: u64,
        most: u32,
        key: &[u8; 16],
    ) -> bool {
        if second != self.second {
            *self = Self { second, ..Self::default() };
        }
        let class = class_of(peer, second, key);
        let given = &mut self.given[answer as usize][usize::from(class)];
        let is_allowed = *given < most;
        *given += u32::from(is_allowed);
        is_allowed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 16] = [9; 16];

    fn peer(number: u32) -> Address {
        Ipv4Addr::from_bits(0x0a00_0000 + number).into()
    }

    #[test]
    fn all_addresses_of_an_ipv6_network_share_a_budget() {
        let mut budget = AnswerBudget::default();
        let mut given = |network: &str| {
            let mut all = (0..10).map(|host| format!("{network}:{host}").parse().expect("one"));
            all.by_ref().filter(|&peer| budget.takes(Answer::Echo, peer, 1, 3, &KEY)).count()
        };
        assert_eq!([given("2001:db8:0:1::9"), given("2001:db8:0:1::8")], [3, 0]);
        assert_eq!(given("2001:db8:0:2::9"), 3);
    }

    #[test]
    fn kinds_and_seconds_have_budgets_of_their_own() {
        let mut budget = AnswerBudget::default();
        let mut given = |answer, second| {
            (0..10).filter(|_| budget.takes(answer, peer(1), second, 3, &KEY)).count()
        };
        assert_eq!([given(Answer::Reset, 1), given(Answer::Echo, 1)], [3, 3]);
        assert_eq!([given(Answer::Reset, 1), given(Answer::IcmpError, 1)], [0, 3]);
        assert_eq!(given(Answer::Reset, 2), 3);
    }

    /// Those who share the budget of one peer are few, and others in the next second.
    #[test]
    fn a_peer_that_spends_its_budget_leaves_others_theirs() {
        let refused = |second| -> Vec<u32> {
            let mut budget = AnswerBudget::default();
            while budget.takes(Answer::Reset, peer(0), second, 100, &KEY) {}
            let mut refused = Vec::new();
            for number in 1..1024 {
                if !budget.takes(Answer::Reset, peer(number), second, 100, &KEY) {
                    refused.push(number);
                }
            }
            refused
        };
        let [first, next] = [refused(1), refused(2)];
        assert!((1..40).contains(&first.len()) && (1..40).contains(&next.len()));
        assert_ne!(first, next);
    }

    extern crate std;
    use std::format;
    use std::vec::Vec;
}
