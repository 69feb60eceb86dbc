//! Maglev hashing (Eisenbud et al., NSDI 2016, §3.4): which backend a new session goes to.
//!
//! A table of a prime number of entries, each the number of a backend; every backend has nearly as many as another, and
//! when one comes or goes few entries of the others change. Chosen over rendezvous hashing because a new session then
//! costs one look-up, however many backends there are: under a flood of new sessions that is every packet's cost. The
//! price is that [`Maglev::rebuild`] takes time in proportion to the table, when backends change.

use std::hash::Hasher;
use std::net::Ipv4Addr;

use siphasher::sip::SipHasher13;

/// Entries for each backend that there may be: shares differ by about a hundredth (§5.3 of the paper).
const ENTRIES_PER_BACKEND: usize = 100;
/// An entry that no backend has.
const NONE: u16 = u16::MAX;

/// A backend that takes new sessions.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Candidate {
    /// What its place in the table is drawn from, so that steerers with the same backends agree.
    pub addr: Ipv4Addr,
    /// Its number.
    pub number: u16,
}

/// Where a backend's next preferred entry is, and how far the one after it.
#[derive(Debug, Clone, Copy, Default)]
struct Preference {
    next: u32,
    skip: u32,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Maglev {
    entries: Box<[u16]>,
    /// Room for `rebuild`.
    preferences: Box<[Preference]>,
}

impl Maglev {
    /// An empty table for up to `backends_max` backends.
    pub(crate) fn new(backends_max: usize) -> Self {
        let length = prime_from(backends_max.max(1) * ENTRIES_PER_BACKEND);
        Self {
            entries: vec![NONE; length].into(),
            preferences: vec![Preference::default(); backends_max].into(),
        }
    }

    /// The backend's number for a hash; `None` where there is no backend.
    #[inline]
    pub(crate) fn pick(&self, hash: u64) -> Option<u16> {
        // The upper bits choose; the session table uses the lower ones.
        let index = ((u128::from(hash) * self.entries.len() as u128) >> 64) as usize;
        Some(self.entries[index]).filter(|&number| number != NONE)
    }

    /// Fills the table for `candidates` (at most as many as the table is for), by Pseudocode 1 of the paper. Puts them
    /// in the order of their addresses, so that the order of their coming makes no difference.
    pub(crate) fn rebuild(&mut self, candidates: &mut [Candidate], key: &[u8; 16]) {
        assert!(candidates.len() <= self.preferences.len(), "the table was made for fewer");
        candidates.sort_unstable_by_key(|candidate| candidate.addr);
        self.entries.fill(NONE);
        if candidates.is_empty() {
            return;
        }
        let length = self.entries.len() as u64;
        for (preference, candidate) in self.preferences.iter_mut().zip(&*candidates) {
            let draw = |salt: u8| {
                let mut hasher = SipHasher13::new_with_key(key);
                hasher.write(&candidate.addr.octets());
                hasher.write_u8(salt);
                hasher.finish()
            };
            let (next, skip) = (draw(0) % length, draw(1) % (length - 1) + 1);
            *preference = Preference { next: next as u32, skip: skip as u32 };
        }
        let mut empty = self.entries.len();
        loop {
            for (preference, candidate) in self.preferences.iter_mut().zip(&*candidates) {
                // The length is prime, so a backend's preferences visit every entry: an empty one is found.
                let mut index = preference.next;
                while self.entries[index as usize] != NONE {
                    index = ((u64::from(index) + u64::from(preference.skip)) % length) as u32;
                }
                self.entries[index as usize] = candidate.number;
                preference.next = index;
                empty -= 1;
                if empty == 0 {
                    return;
                }
            }
        }
    }
}

/// The smallest prime from `from` on.
fn prime_from(from: usize) -> usize {
    let is_prime =
        |n: usize| n >= 2 && (2..).take_while(|d| d * d <= n).all(|d| !n.is_multiple_of(d));
    // Between n and 2 n there always is one (Bertrand).
    (from..=2 * from.max(2)).find(|&n| is_prime(n)).unwrap_or(2)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: [u8; 16] = [9; 16];

    fn candidates(numbers: impl Iterator<Item = u16>) -> Vec<Candidate> {
        numbers
            .map(|number| Candidate {
                addr: Ipv4Addr::from(0x0a00_0000 + u32::from(number)),
                number,
            })
            .collect()
    }

    #[test]
    fn primes_are_found() {
        assert_eq!([1, 8, 100, 6_400].map(prime_from), [2, 11, 101, 6_421]);
    }

    #[test]
    #[cfg_attr(miri, ignore = "long, and nothing of it unsafe")]
    fn shares_are_nearly_equal_and_few_entries_move() {
        let mut maglev = Maglev::new(64);
        maglev.rebuild(&mut candidates(0..64), &KEY);
        let before = maglev.entries.clone();
        let shares: Vec<usize> =
            (0..64).map(|n| before.iter().filter(|&&entry| entry == n).count()).collect();
        let (least, most) = (shares.iter().min(), shares.iter().max());
        assert!(most.expect("some") - least.expect("some") <= 1, "{shares:?}");

        maglev.rebuild(&mut candidates((0..64).filter(|&n| n != 17)), &KEY);
        let of_others = before.iter().zip(&*maglev.entries).filter(|&(&entry, _)| entry != 17);
        let moved = of_others.clone().filter(|(before, after)| before != after).count();
        assert!(moved * 20 < before.len(), "{moved} of {} entries moved", before.len());
        assert!(maglev.entries.iter().all(|&entry| entry != 17 && entry != NONE));
    }

    #[test]
    fn the_order_of_coming_makes_no_difference() {
        let (mut one, mut other) = (Maglev::new(8), Maglev::new(8));
        one.rebuild(&mut candidates(0..8), &KEY);
        other.rebuild(&mut candidates((0..8).rev()), &KEY);
        assert_eq!(one.entries, other.entries);
    }

    #[test]
    fn no_backends_no_pick() {
        let mut maglev = Maglev::new(4);
        assert_eq!(maglev.pick(u64::MAX), None);
        maglev.rebuild(&mut candidates(2..3), &KEY);
        assert_eq!((maglev.pick(0), maglev.pick(u64::MAX)), (Some(2), Some(2)));
        maglev.rebuild(&mut [], &KEY);
        assert_eq!(maglev.pick(0), None);
    }
}
