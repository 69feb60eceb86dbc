//! The register of peers: memory that outlives a dataplane, in which it writes down whom it is connected with.
//!
//! A process that is killed tells its peers nothing. Whoever started it kept the descriptor, and another dataplane reads
//! there whom to tell. A connection is one word, the peer's IPv4 address, its port and the own port (0: there is none), at the
//! place of its flow group and its slot there: written when it begins and when it has ended, and never for a segment. Where the
//! peer's address is an IPv6 address, or the own address is not the first of the configuration, the word has the position of
//! the own address instead, and the peer's address stands behind all words, at the same place of a part of the memory that is
//! not used without.
//!
//! ```
//! use domain::LocalEndpoint;
//! use runtime::{PeerRegister, Register};
//! let kept = Register::create(1024)?; // by whoever outlives the dataplane
//! let register = Register::join(kept.try_clone()?, 1024)?; // the dataplane's
//! let (own, peer) = (LocalEndpoint::new(0, 7), "10.0.0.1:40000".parse()?);
//! register.opened(3, 0, own, peer);
//! drop(register);
//! let left = Register::left(kept, 1024)?; // another dataplane's, later
//! let peers = (0..left.places()).filter_map(|place| left.peer(place));
//! assert_eq!(peers.collect::<Vec<_>>(), [(own, peer)]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use domain::LocalEndpoint;
use memfile::Memory;
use stack::{FLOW_GROUPS, PeerRegister};
use wire::{Address, Endpoint, Ipv4Addr};

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Bytes of an address of either version.
const ADDRESS: usize = 16;
/// In the place of a peer's IPv4 address, with the own address in the last byte. No peer has such an address, which is that
/// of a group of hosts.
const STANDS_BEHIND: u32 = Ipv4Addr::new(224, 0, 0, 0).to_bits();
/// Bytes of a page, or a part of one.
const PAGE: usize = 4096;

/// Connections of each flow group that are written down, where a thread may have so many: twice its share, as groups are
/// not equally full, and one page of slots. What is in slots beyond is not written down.
pub fn places_of_group(max_connections: u32) -> usize {
    2 * max_connections as usize / FLOW_GROUPS + 64
}

fn bytes(max_connections: u32) -> usize {
    FLOW_GROUPS * places_of_group(max_connections) * (WORD + ADDRESS)
}

/// Places that so many bytes have.
fn places(bytes: usize) -> usize {
    bytes / (WORD + ADDRESS)
}

/// Where the two halves of a place's address stand, behind the words of all `places`.
fn halves_of(place: usize, places: usize) -> [usize; 2] {
    let first = places * WORD + place * ADDRESS;
    [first, first + WORD]
}

/// The side of the dataplane that serves.
#[derive(Debug)]
pub struct Register {
    memory: Arc<Memory>,
    places_of_group: usize,
}

impl Register {
    /// Makes the memory of a register, sealed at its size, for threads that may have so many connections each.
    ///
    /// # Errors
    /// No memory, no descriptors.
    pub fn create(max_connections: u32) -> io::Result<OwnedFd> {
        Memory::create("tailplane-peers", bytes(max_connections))?.descriptor()
    }

    /// Maps such memory, to write connections down there.
    ///
    /// # Errors
    /// `InvalidData`: it was made for another number, or is not sealed. Else what the operating system says.
    pub fn join(file: OwnedFd, max_connections: u32) -> io::Result<Arc<Self>> {
        let memory = Memory::join(file, bytes(max_connections))?;
        // The first touch of a page is paid for here and not on a serving core.
        for offset in (0..places(memory.len()) * WORD).step_by(PAGE) {
            let _ = memory.word64(offset).map(|word| word.load(Ordering::Relaxed));
        }
        Ok(Arc::new(Self { memory, places_of_group: places_of_group(max_connections) }))
    }

    /// Maps such memory, to read whom a dataplane that is gone was connected with. It may have written anything there,
    /// also while it was broken into: there are never more peers than places.
    ///
    /// # Errors
    /// As [`join`](Self::join).
    pub fn left(file: OwnedFd, max_connections: u32) -> io::Result<PeersLeft> {
        Ok(PeersLeft { memory: Memory::join_read_only(file, bytes(max_connections))? })
    }

    /// The place of a connection that is written down.
    fn place(&self, group: u16, slot: u32) -> Option<usize> {
        let (group, slot) = (group as usize, slot as usize);
        let is_inside = group < FLOW_GROUPS && slot < self.places_of_group;
        is_inside.then_some(group * self.places_of_group + slot)
    }

    /// Each word is read by a process that begins when this one has ended.
    fn store(&self, offset: usize, value: u64) {
        if let Some(word) = self.memory.word64(offset) {
            word.store(value, Ordering::Relaxed);
        }
    }
}

impl PeerRegister for Register {
    fn opened(&self, group: u16, slot: u32, local: LocalEndpoint, remote: Endpoint) {
        let Some(place) = self.place(group, slot) else { return };
        let address = match remote.addr.v4() {
            Some(v4) if local.position() == Some(0) => v4.to_bits(),
            _ => {
                let bits = u128::from_be_bytes(remote.addr.octets());
                let halves = halves_of(place, places(self.memory.len()));
                self.store(halves[0], (bits >> 64) as u64);
                self.store(halves[1], bits as u64);
                STANDS_BEHIND | local.to_bits() & 0xff
            }
        };
        let ports = u64::from(remote.port) << 16 | u64::from(local.port());
        self.store(place * WORD, u64::from(address) << 32 | ports);
    }

    fn closed(&self, group: u16, slot: u32) {
        if let Some(place) = self.place(group, slot) {
            self.store(place * WORD, 0);
        }
    }
}

/// The side of a dataplane that takes the place of one that was killed.
#[derive(Debug)]
pub struct PeersLeft {
    memory: Arc<Memory>,
}

impl PeersLeft {
    /// Places, taken or not.
    pub fn places(&self) -> usize {
        places(self.memory.len())
    }

    /// The connection at a place, as the dataplane that is gone wrote it: the own end, and the peer's. None where there is
    /// none.
    pub fn peer(&self, place: usize) -> Option<(LocalEndpoint, Endpoint)> {
        let load = |offset| Some(self.memory.word64(offset)?.load(Ordering::Relaxed));
        let word = (place < self.places()).then(|| load(place * WORD)).flatten()?;
        let (first, port) = ((word >> 32) as u32, word as u16);
        let (local, address) = match first & !0xff {
            STANDS_BEHIND => {
                let [high, low] = halves_of(place, self.places());
                let bits = u128::from(load(high)?) << 64 | u128::from(load(low)?);
                let local = LocalEndpoint::from_bits(u32::from(port) << 8 | first & 0xff);
                (local, Address::from_octets(bits.to_be_bytes()))
            }
            _ => (LocalEndpoint::new(0, port), Ipv4Addr::from_bits(first).into()),
        };
        (port != 0).then(|| (local, Endpoint::new(address, (word >> 16) as u16)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECTIONS: u32 = 1_000;

    type Connection = (LocalEndpoint, Endpoint);

    /// Of either version, from the first address and others.
    fn connection(port: u16) -> Connection {
        let v6 = port.is_multiple_of(2);
        let peer = if v6 { "[2001:db8::1]:40000" } else { "10.0.0.1:40000" };
        (LocalEndpoint::new(usize::from(port) / 2, port), peer.parse().expect("an endpoint"))
    }

    fn open(register: &Register, group: u16, slot: u32, port: u16) {
        let (own, peer) = connection(port);
        register.opened(group, slot, own, peer);
    }

    fn peers(left: &PeersLeft) -> Vec<(usize, Connection)> {
        (0..left.places()).filter_map(|place| Some((place, left.peer(place)?))).collect()
    }

    fn both() -> (Arc<Register>, PeersLeft) {
        let kept = Register::create(CONNECTIONS).expect("made");
        let copy = kept.try_clone().expect("duplicated");
        let register = Register::join(copy, CONNECTIONS).expect("joined");
        (register, Register::left(kept, CONNECTIONS).expect("joined"))
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn what_lives_is_written_down_and_nothing_beyond_the_register() {
        let (register, left) = both();
        let places = places_of_group(CONNECTIONS);
        assert_eq!((places, left.places()), (79, FLOW_GROUPS * 79));
        let last = (FLOW_GROUPS - 1) as u16;
        open(&register, 0, 0, 1);
        open(&register, last, places as u32 - 1, 2);
        let both = [(0, connection(1)), (left.places() - 1, connection(2))];
        assert_eq!(peers(&left), both);
        // The next group's first place is nobody's second one.
        for (group, slot) in [(0, places as u32), (0, u32::MAX), (last + 1, 0), (u16::MAX, 3)] {
            open(&register, group, slot, 3);
            register.closed(group, slot);
            assert_eq!(peers(&left), both);
        }
        register.closed(0, 0);
        open(&register, last, places as u32 - 1, 4);
        assert_eq!(peers(&left), [(left.places() - 1, connection(4))]);
        assert_eq!(left.peer(left.places()).or(left.peer(usize::MAX)), None);
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn each_own_address_and_none_at_all_come_back() {
        let (register, left) = both();
        let (v4, v6) = (connection(1).1, connection(2).1);
        let positions = (0..LocalEndpoint::POSITIONS).map(|at| LocalEndpoint::new(at, 80));
        for local in positions.chain([80.into()]) {
            for peer in [v4, v6] {
                register.opened(5, 6, local, peer);
                let place = 5 * places_of_group(CONNECTIONS) + 6;
                assert_eq!(peers(&left), [(place, (local, peer))]);
            }
        }
        register.opened(5, 6, 0.into(), v4);
        assert_eq!(peers(&left), [], "no connection has port 0");
    }

    /// A dataplane that was broken into may leave any words: each is a peer or none, and there are as many as before.
    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn whatever_is_written_there_is_so_many_peers_at_most() {
        let (register, left) = both();
        let mut word = 1u64;
        for offset in (0..register.memory.len()).step_by(WORD) {
            word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            register.store(offset, word);
        }
        assert_eq!(peers(&left).len(), left.places());
    }

    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn memory_for_another_number_is_refused() {
        let kept = Register::create(CONNECTIONS).expect("made");
        let copy = kept.try_clone().expect("duplicated");
        assert!(Register::join(copy, 2 * CONNECTIONS).is_err());
        assert!(Register::left(kept, CONNECTIONS / 2).is_err());
        let null = std::fs::File::open("/dev/null").expect("the null device");
        assert!(Register::join(null.into(), CONNECTIONS).is_err());
    }
}
