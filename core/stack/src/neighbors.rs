//! The table of neighbours, as ARP and neighbour discovery find them, shared by all elastic threads (IX §4.4).
//!
//! Reads are on the path of every packet sent, writes are rare. Each entry is a sequence lock made
//! of atomics: a reader that meets a writer sees an odd or a changed sequence number and reports a
//! miss, so that nobody ever waits and no reader writes to the line. Writers take a flag; one that
//! finds it taken gives up, since the peer will be heard of again.

use core::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering, fence};

use alloc::boxed::Box;
use clock::Instant;
use core::time::Duration;
use siphasher::sip::SipHasher24;
use wire::{Address, MacAddr};

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
    /// The halves of the address.
    address: [AtomicU64; 2],
    mac: AtomicU64,
    learned_ns: AtomicU64,
}

/// An address as two words.
fn halves(address: Address) -> [u64; 2] {
    let bits = u128::from_be_bytes(address.octets());
    [(bits >> 64) as u64, bits as u64]
}

impl Entry {
    /// Whether this address stands here. While somebody writes it may be of a mixture.
    #[inline]
    fn is_of(&self, address: Address) -> bool {
        let stored = self.address.each_ref().map(|half| half.load(Ordering::Relaxed));
        stored == halves(address)
    }
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

/// For whom a neighbour was asked for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// A connection of ours, the application, or all that is behind a gateway.
    ForUs,
    /// A stranger that was to be answered.
    ForStranger,
}

/// Questions that are remembered, about so long: the answer may reach another core than the one that asked.
const QUESTIONS: usize = 256;
const QUESTION_LIFE: Duration = Duration::from_secs(1);
/// A remembered question is a word: a keyed hash of the address, the moment in units of 2^26 ns (67 ms), and a bit that
/// is set where it was asked for a stranger.
const MOMENT_BITS: u32 = 24;
const MOMENT_SHIFT: u32 = 26;
const HASH: u64 = !0 << (MOMENT_BITS + 1);

/// The table.
#[derive(Debug)]
pub struct NeighborTable {
    entries: Box<[Entry]>,
    /// By address: what was asked for last, of those that share the place.
    questions: Box<[AtomicU64]>,
    writing: AtomicBool,
    /// Mixed into the place of an address, so that a peer cannot aim at another's entry.
    secret: [u8; 16],
}

impl NeighborTable {
    /// An empty table; `secret` is drawn by the caller.
    pub fn new(secret: [u8; 16]) -> Self {
        let entries = (0..NEIGHBORS).map(|_| Entry::default()).collect();
        let questions = (0..QUESTIONS).map(|_| AtomicU64::new(0)).collect();
        Self { entries, questions, writing: AtomicBool::new(false), secret }
    }

    #[inline]
    fn places(&self, address: Address) -> impl Iterator<Item = &Entry> {
        let hash = match address.v4() {
            // A network is small, and who is in it chooses few of its addresses.
            Some(v4) => {
                let [a, b, c, d, ..] = self.secret;
                (v4.to_bits() ^ u32::from_ne_bytes([a, b, c, d])).wrapping_mul(0x9e37_79b1)
            }
            None => self.hash(address) as u32,
        };
        let first = (hash >> 22) as usize & (NEIGHBORS - 1) & !(WAYS - 1);
        self.entries[first..first + WAYS].iter()
    }

    fn hash(&self, address: Address) -> u64 {
        SipHasher24::new_with_key(&self.secret).hash(&address.octets())
    }

    /// Notes that `address` is asked for. What was asked for us stays so, though a stranger has it asked for again.
    pub fn note_asked(&self, address: Address, asked: Asked, now: Instant) {
        if asked == Asked::ForStranger && self.asked(address, now) == Some(Asked::ForUs) {
            return;
        }
        let hash = self.hash(address);
        let moment = (now.as_nanos() >> MOMENT_SHIFT) & ((1 << MOMENT_BITS) - 1);
        let word = hash & HASH | moment << 1 | u64::from(asked == Asked::ForStranger);
        // Relaxed: the word is all that there is to it. One that another overwrites is asked again.
        self.questions[hash as usize % QUESTIONS].store(word, Ordering::Relaxed);
    }

    /// For whom `address` was asked for just now, on any core.
    pub fn asked(&self, address: Address, now: Instant) -> Option<Asked> {
        let hash = self.hash(address);
        let word = self.questions[hash as usize % QUESTIONS].load(Ordering::Relaxed);
        // What a core asked that is a moment ahead counts too.
        let age = ((now.as_nanos() >> MOMENT_SHIFT) + 1).wrapping_sub(word >> 1);
        let age = age & ((1 << MOMENT_BITS) - 1);
        let is_young = age <= (QUESTION_LIFE.as_nanos() as u64 >> MOMENT_SHIFT) + 2;
        let is_asked = word != 0 && (word ^ hash) & HASH == 0 && is_young;
        let asked = if word & 1 == 0 { Asked::ForUs } else { Asked::ForStranger };
        is_asked.then_some(asked)
    }

    /// Looks `address` up.
    #[inline]
    pub fn lookup(&self, address: Address, now: Instant) -> Neighbor {
        for entry in self.places(address) {
            // Acquire: the fields are read after the sequence number.
            let before = entry.sequence.load(Ordering::Acquire);
            if !entry.is_of(address) || before & 1 != 0 || before == 0 {
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
    pub fn fix(&self, address: Address, mac: MacAddr) {
        self.learn(address, mac, FIXED);
    }

    /// Learns that `address` is at `mac`. Replaces the oldest of the places where it may stand.
    /// Without effect while another thread writes, and where the neighbour is fixed.
    pub fn learn(&self, address: Address, mac: MacAddr, now: Instant) {
        self.enter(address, mac, now, |_| true);
    }

    /// The same where no neighbour that is believed has to be forgotten for it.
    pub fn learn_if_room(&self, address: Address, mac: MacAddr, now: Instant) {
        self.enter(address, mac, now, |learned| now.since(learned) > REACHABLE);
    }

    /// Enters `address` in the place where it stands, or in the oldest of those where it may, if that is unused or
    /// `may_replace` what was learned there, when.
    fn enter(
        &self,
        address: Address,
        mac: MacAddr,
        now: Instant,
        may_replace: impl Fn(Instant) -> bool,
    ) {
        if self.writing.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_err()
        {
            return;
        }
        let known = self
            .places(address)
            .find(|entry| entry.is_of(address) && entry.sequence.load(Ordering::Relaxed) != 0);
        let entry = known.or_else(|| {
            let age = |entry: &&Entry| {
                let used = entry.sequence.load(Ordering::Relaxed) != 0;
                (used, entry.learned_ns.load(Ordering::Relaxed))
            };
            self.places(address).min_by_key(age).filter(|oldest| {
                let (used, learned_ns) = age(oldest);
                !used || may_replace(Instant::from_nanos(learned_ns))
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
            for (stored, half) in entry.address.iter().zip(halves(address)) {
                stored.store(half, Ordering::Relaxed);
            }
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
    use wire::{Ipv4Addr, Ipv6Addr};

    const NOW: Instant = Instant::from_millis(1);

    #[test]
    fn learns_ages_and_forgets() {
        let table = NeighborTable::new([1; 16]);
        let (ip, mac) = (Address::from(Ipv4Addr::new(10, 0, 0, 1)), MacAddr([2, 0, 0, 0, 0, 1]));
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
    fn questions_are_remembered_for_a_second() {
        let table = NeighborTable::new([1; 16]);
        let [ip, other] = [1, 2].map(|last| Address::from(Ipv4Addr::new(10, 0, 0, last)));
        let now = NOW + Duration::from_secs(1000);
        assert_eq!(table.asked(ip, Instant::ZERO), None);
        table.note_asked(ip, Asked::ForStranger, now);
        let asked = |after_ms| table.asked(ip, now + Duration::from_millis(after_ms));
        assert_eq!((asked(0), asked(1_000)), (Some(Asked::ForStranger), Some(Asked::ForStranger)));
        assert_eq!((asked(1_200), table.asked(other, now)), (None, None));
        // By a core that is a moment ahead.
        assert_eq!(table.asked(ip, now - Duration::from_millis(1)), Some(Asked::ForStranger));
        table.note_asked(ip, Asked::ForUs, now);
        table.note_asked(ip, Asked::ForStranger, now);
        assert_eq!((asked(0), asked(1_200)), (Some(Asked::ForUs), None));
        table.note_asked(ip, Asked::ForStranger, now + Duration::from_secs(2));
        assert_eq!(asked(2_000), Some(Asked::ForStranger));
    }

    #[test]
    fn a_fixed_neighbour_stays_what_it_is() {
        let table = NeighborTable::new([7; 16]);
        let (ip, mac) = (Address::from(Ipv4Addr::new(10, 0, 0, 1)), MacAddr([2, 0, 0, 0, 0, 1]));
        table.fix(ip, mac);
        for number in 0..if cfg!(miri) { 100 } else { 20_000u32 } {
            let other = Ipv4Addr::from_bits(0x0a00_0000 + number).into();
            table.learn(other, MacAddr([6; 6]), NOW + Duration::from_secs(number.into()));
        }
        let later = NOW + Duration::from_secs(1 << 20);
        assert_eq!(table.lookup(ip, later), Neighbor::Reachable(mac));
    }

    #[test]
    #[cfg_attr(miri, ignore = "more addresses than fit, nothing of it unsafe")]
    fn a_flood_of_addresses_is_bounded_and_keeps_the_newest() {
        let table = NeighborTable::new([99; 16]);
        for number in 0..100_000u32 {
            let ip = match number % 2 {
                0 => Address::from(Ipv4Addr::from_bits(0x0a00_0000 + number)),
                _ => Ipv6Addr::from_bits(0xfe80 << 112 | u128::from(number)).into(),
            };
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
        let table = NeighborTable::new([5; 16]);
        let ip = Address::from(Ipv4Addr::new(10, 0, 0, 1));
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
