//! Pairs of addresses that have numbers ([`PairId`]): all that are not IPv4 from our first address.
//!
//! A connection's state holds 32 bits for its pair. Of a numbered pair the addresses stand here, once for all connections of
//! a flow group between the same two hosts, and go with the group where it moves to another core. A pair has a number as
//! long as a connection uses it, a half-open one or one in TIME-WAIT too, and until the next batch: so a number that
//! a segment's processing has looked up stays what it is, whatever ends meanwhile.
//!
//! A packet may come from anyone. A pair that no connection has is a *stranger's*: it has a number until the next batch, and
//! takes memory that is used again.

use alloc::boxed::Box;
use alloc::vec::Vec;

use wire::{Address, Endpoint, PairId};

use crate::shared::{FLOW_GROUPS, Shared};
use crate::tcp::isn::keyed_hash;
use crate::tcp::table::FlowTable;

/// Numbers of a flow group.
const GROUP_NUMBERS: u32 = PairId::NUMBERS / FLOW_GROUPS as u32;
/// Of them, those that no connection has. The last group's are the strangers'.
const STRANGERS: u32 = 1 << 16;
const FIRST_STRANGER: u32 = PairId::NUMBERS - STRANGERS;

/// Two hosts that speak with each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Pair {
    /// Our own address.
    pub local: Address,
    /// The peer's.
    pub remote: Address,
}

impl Pair {
    /// That of a number which is none: no packet is like it.
    const NONE: Self =
        Self { local: Address::from_octets([0; 16]), remote: Address::from_octets([0; 16]) };
}

#[derive(Debug)]
struct Entry {
    pair: Pair,
    /// What the addresses contribute to the RSS hash.
    hash: u32,
    /// Connections that use it.
    users: u32,
}

/// The numbered pairs of a flow group.
#[derive(Debug, Default)]
pub(crate) struct PairTable {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// By a keyed hash of the addresses.
    table: FlowTable,
}

impl PairTable {
    /// Bytes of it.
    fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.free.capacity() * size_of::<u32>()
            + self.table.bytes()
    }
}

/// The numbered pairs of a core.
#[derive(Debug)]
pub(crate) struct Pairs {
    /// By flow group; `None`: it has none.
    groups: [Option<Box<PairTable>>; FLOW_GROUPS],
    /// Those of this batch.
    strangers: Vec<Pair>,
    /// Numbers that nothing used when they were noted.
    idle: Vec<u32>,
    key: [u8; 16],
}

/// A pair's place in the table of its flow group.
fn hash_of(key: &[u8; 16], pair: &Pair) -> u32 {
    keyed_hash(key, Endpoint::new(pair.local, 0), Endpoint::new(pair.remote, 0)) as u32
}

/// The flow group of a number, and its place there.
#[inline]
fn split(number: u32) -> (usize, usize) {
    ((number / GROUP_NUMBERS) as usize, (number % GROUP_NUMBERS) as usize)
}

impl Pairs {
    /// None. `key` is secret: so no stranger can choose addresses that stand in one place.
    pub fn new(key: [u8; 16]) -> Self {
        let groups = core::array::from_fn(|_| None);
        Self { groups, strangers: Vec::new(), idle: Vec::new(), key }
    }

    /// A batch begins: what no connection uses has no number any more.
    #[inline]
    pub fn begin_batch(&mut self) {
        self.strangers.clear();
        // Nearly always none.
        if !self.idle.is_empty() {
            self.forget_idle();
        }
    }

    #[cold]
    fn forget_idle(&mut self) {
        let Self { groups, idle, key, .. } = self;
        for number in idle.drain(..) {
            let (group, at) = split(number);
            let Some(table) = groups[group].as_deref_mut() else { continue };
            // It may have been noted twice, and freed the first time.
            let Some(Entry { pair, users: 0, .. }) = table.entries.get(at) else { continue };
            let hash = hash_of(key, pair);
            if table.table.find(hash, |slot| slot as usize == at).is_some() {
                table.table.remove(hash, at as u32);
                table.free.push(at as u32);
            }
        }
    }

    /// The pair of two addresses, for this batch.
    #[inline]
    pub fn of(&mut self, pair: Pair, shared: &Shared) -> PairId {
        match pair.remote.v4() {
            Some(remote) if pair.local == shared.firsts[0].address && !remote.is_multicast() => {
                PairId::of_v4(remote)
            }
            _ => self.stranger(pair),
        }
    }

    /// A number for the pair of a packet that has come, or of a peer that is spoken to, until the next batch.
    pub fn stranger(&mut self, pair: Pair) -> PairId {
        // More than a batch can bring have one number: whose pair it is then none of them knows.
        let number = (self.strangers.len() as u32).min(STRANGERS - 1);
        match self.strangers.get_mut(number as usize) {
            Some(last) => *last = Pair::NONE,
            None => self.strangers.push(pair),
        }
        PairId::of_number(FIRST_STRANGER + number)
    }

    /// The pair that has a number.
    #[inline]
    pub fn get(&self, number: u32) -> Pair {
        if number >= FIRST_STRANGER {
            let found = self.strangers.get((number - FIRST_STRANGER) as usize);
            return found.copied().unwrap_or(Pair::NONE);
        }
        self.entry(number).map_or(Pair::NONE, |entry| entry.pair)
    }

    #[inline]
    fn entry(&self, number: u32) -> Option<&Entry> {
        let (group, at) = split(number);
        self.groups[group].as_deref()?.entries.get(at)
    }

    /// What the addresses of a pair with a number contribute to the RSS hash; `None` for a stranger's.
    #[inline]
    pub fn hash(&self, number: u32) -> Option<u32> {
        (number < FIRST_STRANGER).then(|| self.entry(number)).flatten().map(|entry| entry.hash)
    }

    /// Whether the pair `id` is a connection's, has a number, and is this one.
    #[inline(always)]
    pub fn is(&self, id: PairId, pair: &Pair) -> bool {
        let entry = id.v4().err().and_then(|number| self.entry(number));
        entry.is_some_and(|entry| entry.pair == *pair)
    }

    /// The number that the connections of `group` have for the pair of a stranger, or the stranger's where they have none;
    /// any other as it is.
    pub fn known(&self, group: u16, id: PairId) -> PairId {
        let Err(number @ FIRST_STRANGER..) = id.v4() else { return id };
        let Some(&pair) = self.strangers.get((number - FIRST_STRANGER) as usize) else { return id };
        let Some(table) = self.groups[group as usize % FLOW_GROUPS].as_deref() else { return id };
        let is_it = |slot: u32| table.entries[slot as usize].pair == pair;
        let found = table.table.find(hash_of(&self.key, &pair), is_it);
        found.map_or(id, |at| PairId::of_number(u32::from(group) * GROUP_NUMBERS + at))
    }

    /// A connection of `group` begins that uses this pair: the pair's number from now on. `hash` answers what its addresses
    /// contribute to the RSS hash. `None`: there is none left.
    pub fn hold(
        &mut self,
        group: u16,
        id: PairId,
        hash: impl FnOnce(&Pair) -> u32,
    ) -> Option<PairId> {
        let id = self.known(group, id);
        let Err(number) = id.v4() else { return Some(id) };
        if number < FIRST_STRANGER {
            let (group, at) = split(number);
            self.groups[group].as_deref_mut()?.entries.get_mut(at)?.users += 1;
            return Some(id);
        }
        let pair = self.get(number);
        let table = self.groups[group as usize % FLOW_GROUPS].get_or_insert_default();
        let at = table.free.pop().unwrap_or(table.entries.len() as u32);
        if at >= GROUP_NUMBERS - STRANGERS {
            return None;
        }
        let entry = Entry { pair, hash: hash(&pair), users: 1 };
        match table.entries.get_mut(at as usize) {
            Some(free) => *free = entry,
            None => table.entries.push(entry),
        }
        table.table.insert(hash_of(&self.key, &pair), at);
        Some(PairId::of_number(u32::from(group) * GROUP_NUMBERS + at))
    }

    /// A connection that uses this pair has ended.
    pub fn release(&mut self, id: PairId) {
        let Err(number) = id.v4() else { return };
        let (group, at) = split(number);
        let table = self.groups[group].as_deref_mut();
        if let Some(entry) = table.and_then(|table| table.entries.get_mut(at)) {
            entry.users = entry.users.saturating_sub(1);
            if entry.users == 0 {
                self.idle.push(number);
            }
        }
    }

    /// The pairs of a flow group that leaves.
    pub fn take(&mut self, group: u16) -> Option<Box<PairTable>> {
        self.forget_idle();
        self.groups[group as usize % FLOW_GROUPS].take()
    }

    /// The pairs of a flow group that comes.
    pub fn put(&mut self, group: u16, table: Option<Box<PairTable>>) {
        self.groups[group as usize % FLOW_GROUPS] = table;
    }

    /// Bytes of all tables.
    pub fn bytes(&self) -> usize {
        self.groups.iter().flatten().map(|table| table.bytes()).sum()
    }

    /// Every place of all tables: its number, the pair, its users, and whether it is found by the addresses.
    #[cfg(test)]
    pub fn all(&self) -> Vec<(u32, Pair, u32, bool)> {
        let mut all = Vec::new();
        for (group, table) in self.groups.iter().enumerate() {
            let Some(table) = table else { continue };
            for (at, Entry { pair, users, .. }) in table.entries.iter().enumerate() {
                let hash = hash_of(&self.key, pair);
                let is_found = table.table.find(hash, |slot| slot as usize == at).is_some();
                all.push((group as u32 * GROUP_NUMBERS + at as u32, *pair, *users, is_found));
            }
        }
        all
    }

    /// Pairs that have a number.
    #[cfg(test)]
    fn len(&self) -> usize {
        self.groups.iter().flatten().map(|table| table.table.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Ipv4Addr, Ipv6Addr};

    fn pair(last: u16) -> Pair {
        let v6 = |last| Address::of_v6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, last));
        Pair { local: v6(0xffff), remote: v6(last) }
    }

    fn number(id: PairId) -> u32 {
        id.v4().expect_err("a number")
    }

    #[test]
    fn a_pair_has_one_number_as_long_as_it_is_used_and_until_the_next_batch() {
        let mut pairs = Pairs::new([7; 16]);
        let stranger = pairs.stranger(pair(1));
        assert_eq!(pairs.known(3, stranger), stranger);
        let held = pairs.hold(3, stranger, |_| 99).expect("room");
        assert_eq!((pairs.get(number(held)), pairs.hash(number(held))), (pair(1), Some(99)));
        assert!(pairs.is(held, &pair(1)) && !pairs.is(held, &pair(2)));
        assert_eq!((pairs.known(3, stranger), pairs.known(4, stranger)), (held, stranger));
        let again = pairs.stranger(pair(1));
        assert_eq!(pairs.hold(3, again, |_| panic!("it has one")), Some(held));
        pairs.begin_batch();
        assert_eq!(pairs.get(number(stranger)), Pair::NONE, "another batch");
        pairs.release(held);
        pairs.release(held);
        assert_eq!((pairs.get(number(held)), pairs.len()), (pair(1), 1), "this batch");
        // Used again before the next one, it stays.
        assert_eq!(pairs.hold(3, held, |_| 0), Some(held));
        pairs.begin_batch();
        assert_eq!(pairs.len(), 1);
        pairs.release(held);
        pairs.begin_batch();
        assert_eq!(pairs.len(), 0);
        let other = pairs.stranger(pair(2));
        assert_eq!(pairs.hold(3, other, |_| 1), Some(held), "the place is free");
        assert!(pairs.is(held, &pair(2)));
    }

    #[test]
    fn numbers_go_with_their_group() {
        let mut pairs = [Pairs::new([1; 16]), Pairs::new([1; 16])];
        let [old, new] = &mut pairs;
        let ids = [1, 2].map(|last| {
            let stranger = old.stranger(pair(last));
            old.hold(127, stranger, |_| last.into()).expect("room")
        });
        old.release(ids[0]);
        new.put(127, old.take(127));
        assert!(old.len() == 0 && old.get(number(ids[1])) == Pair::NONE);
        assert!(new.len() == 1 && new.is(ids[1], &pair(2)) && new.bytes() > 0);
        let stranger = new.stranger(pair(2));
        assert_eq!(new.known(127, stranger), ids[1]);
    }

    #[test]
    fn ipv4_needs_no_number_and_strangers_beyond_the_bound_are_nobody() {
        let mut pairs = Pairs::new([1; 16]);
        let v4 = PairId::of_v4(Ipv4Addr::new(10, 0, 0, 1));
        assert_eq!((pairs.known(1, v4), pairs.hold(1, v4, |_| 0)), (v4, Some(v4)));
        pairs.release(v4);
        let last = (0..=STRANGERS).map(|_| pairs.stranger(pair(1))).last().expect("some");
        assert_eq!(pairs.get(number(last)), Pair::NONE);
        assert!(!pairs.is(v4, &pair(1)));
    }
}
