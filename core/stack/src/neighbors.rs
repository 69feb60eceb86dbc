//! The neighbour (ARP) table, shared by all elastic threads (IX §4.4).
//!
//! Reads are on the path of every packet sent, writes are rare. Each entry is a sequence lock made
//! of atomics: a reader that meets a writer sees an odd or a changed sequence number and reports a
//! miss, so that nobody ever waits and no reader writes to the line. Writers take a flag; one that
//! finds it taken gives up, since the peer will be heard of again.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use alloc::boxed::Box;
use clock::Instant;
use core::time::Duration;
use wire::{Ipv4Addr, MacAddr};

/// Entries of the table.
pub const NEIGHBORS: usize = 1024;
/// Entries in which one address may stand.
const WAYS: usize = 8;
/// How long an answer is believed; it is asked for again in the last quarter of that time.
pub const REACHABLE: Duration = Duration::from_secs(60);

/// When a neighbour was learned that is fixed: never old, and the last to be replaced.
const FIXED: Instant = Instant::from_nanos(u64::MAX);

#[derive(Debug, Default)]
struct Entry {
    sequence: AtomicU32,
    address: AtomicU32,
    mac: AtomicU64,
    learned_ns: AtomicU64,
}

/// What the table knows of an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Neighbor {
    /// Its link address.
    Reachable(MacAddr),
    /// Its link address; it is time to ask again.
    Stale(MacAddr),
    /// Nothing.
    Unknown,
}

/// The table.
#[derive(Debug)]
pub struct NeighborTable {
    entries: Box<[Entry]>,
    writing: AtomicBool,
    /// Mixed into the place of an address, so that a peer cannot aim at another's entry.
    secret: u32,
}

impl NeighborTable {
    /// An empty table; `secret` is drawn by the caller.
    pub fn new(secret: u32) -> Self {
        let entries = (0..NEIGHBORS).map(|_| Entry::default()).collect();
        Self { entries, writing: AtomicBool::new(false), secret }
    }

    #[inline]
    fn places(&self, address: u32) -> impl Iterator<Item = &Entry> {
        let hash = (address ^ self.secret).wrapping_mul(0x9e37_79b1);
        let first = (hash >> 22) as usize & (NEIGHBORS - 1) & !(WAYS - 1);
        self.entries[first..first + WAYS].iter()
    }

    /// Looks `address` up.
    #[inline]
    pub fn lookup(&self, address: Ipv4Addr, now: Instant) -> Neighbor {
        let address = address.to_bits();
        for entry in self.places(address) {
            // Acquire: the fields are read after the sequence number.
            let before = entry.sequence.load(Ordering::Acquire);
            if entry.address.load(Ordering::Relaxed) != address || before & 1 != 0 || before == 0 {
                continue;
            }
            let mac = entry.mac.load(Ordering::Relaxed);
            let learned = entry.learned_ns.load(Ordering::Relaxed);
            // The fields are read before the sequence number is read again.
            fence(Ordering::Acquire);
            if entry.sequence.load(Ordering::Relaxed) != before {
                continue;
            }
            let age = now.since(Instant::from_nanos(learned));
            let [_, _, mac @ ..] = mac.to_be_bytes();
            return match age {
                age if age > REACHABLE => Neighbor::Unknown,
                age if age > REACHABLE / 4 * 3 => Neighbor::Stale(MacAddr(mac)),
                _ => Neighbor::Reachable(MacAddr(mac)),
            };
        }
        Neighbor::Unknown
    }

    /// Learns that `address` is at `mac` for good: what is learned later does not change it.
    pub fn fix(&self, address: Ipv4Addr, mac: MacAddr) {
        self.learn(address, mac, FIXED);
    }

    /// Learns that `address` is at `mac`. Replaces the oldest of the places where it may stand.
    /// Without effect while another thread writes, and where the neighbour is fixed.
    pub fn learn(&self, address: Ipv4Addr, mac: MacAddr, now: Instant) {
        let address = address.to_bits();
        if self.writing.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        let known = self.places(address).find(|entry| {
            entry.address.load(Ordering::Relaxed) == address
                && entry.sequence.load(Ordering::Relaxed) != 0
        });
        let entry = known.or_else(|| {
            self.places(address).min_by_key(|entry| {
                let used = entry.sequence.load(Ordering::Relaxed) != 0;
                (used, entry.learned_ns.load(Ordering::Relaxed))
            })
        });
        let is_fixed =
            |entry: &&Entry| entry.learned_ns.load(Ordering::Relaxed) == FIXED.as_nanos();
        if let Some(entry) = entry.filter(|entry| now == FIXED || !is_fixed(entry)) {
            let [a, b, c, d, e, f] = mac.0;
            let before = entry.sequence.load(Ordering::Relaxed);
            entry.sequence.store(before.wrapping_add(1), Ordering::Relaxed);
            // The odd number is seen before any field changes.
            fence(Ordering::Release);
            entry.address.store(address, Ordering::Relaxed);
            entry.mac.store(u64::from_be_bytes([0, 0, a, b, c, d, e, f]), Ordering::Relaxed);
            entry.learned_ns.store(now.as_nanos(), Ordering::Relaxed);
            // Even, and never the zero of an unused entry; after the fields.
            let after = before.wrapping_add(2).max(2);
            entry.sequence.store(after, Ordering::Release);
        }
        self.writing.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Instant = Instant::from_millis(1);

    #[test]
    fn learns_ages_and_forgets() {
        let table = NeighborTable::new(1);
        let (ip, mac) = (Ipv4Addr::new(10, 0, 0, 1), MacAddr([2, 0, 0, 0, 0, 1]));
        assert_eq!(table.lookup(ip, NOW), Neighbor::Unknown);
        table.learn(ip, mac, NOW);
        assert_eq!(table.lookup(ip, NOW), Neighbor::Reachable(mac));
        assert_eq!(table.lookup(ip, NOW + Duration::from_secs(50)), Neighbor::Stale(mac));
        assert_eq!(table.lookup(ip, NOW + Duration::from_secs(61)), Neighbor::Unknown);
        let moved = MacAddr([2, 0, 0, 0, 0, 2]);
        table.learn(ip, moved, NOW + Duration::from_secs(61));
        assert_eq!(table.lookup(ip, NOW + Duration::from_secs(61)), Neighbor::Reachable(moved));
    }

    #[test]
    fn a_fixed_neighbour_stays_what_it_is() {
        let table = NeighborTable::new(7);
        let (ip, mac) = (Ipv4Addr::new(10, 0, 0, 1), MacAddr([2, 0, 0, 0, 0, 1]));
        table.fix(ip, mac);
        for number in 0..if cfg!(miri) { 100 } else { 20_000u32 } {
            let other = Ipv4Addr::from_bits(0x0a00_0000 + number);
            table.learn(other, MacAddr([6; 6]), NOW + Duration::from_secs(number.into()));
        }
        let later = NOW + Duration::from_secs(1 << 20);
        assert_eq!(table.lookup(ip, later), Neighbor::Reachable(mac));
    }

    #[test]
    #[cfg_attr(miri, ignore = "more addresses than fit, nothing of it unsafe")]
    fn a_flood_of_addresses_is_bounded_and_keeps_the_newest() {
        let table = NeighborTable::new(99);
        for number in 0..100_000u32 {
            let ip = Ipv4Addr::from_bits(0x0a00_0000 + number);
            table.learn(ip, MacAddr([2; 6]), NOW + Duration::from_nanos(number as u64));
            assert_eq!(
                table.lookup(ip, NOW + Duration::from_nanos(number as u64)),
                Neighbor::Reachable(MacAddr([2; 6]))
            );
        }
    }

    #[test]
    fn readers_never_see_half_an_entry() {
        extern crate std;
        let table = NeighborTable::new(5);
        let ip = Ipv4Addr::new(10, 0, 0, 1);
        table.learn(ip, MacAddr([0; 6]), NOW);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for round in 0..if cfg!(miri) { 50 } else { 100_000u32 } {
                    table.learn(ip, MacAddr([round as u8; 6]), NOW);
                }
            });
            for _ in 0..if cfg!(miri) { 50 } else { 100_000 } {
                if let Neighbor::Reachable(MacAddr(mac)) = table.lookup(ip, NOW) {
                    assert!(mac.iter().all(|&byte| byte == mac[0]), "torn: {mac:?}");
                }
            }
        });
    }
}
