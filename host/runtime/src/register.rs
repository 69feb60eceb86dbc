//! The register of peers: memory that outlives a dataplane, in which it writes down whom it is connected with.
//!
//! A process that is killed tells its peers nothing. Whoever started it kept the descriptor, and another dataplane reads
//! there whom to tell. A connection is one word ([`FlowKey::to_bits`]; 0: there is none), at the place of its flow group
//! and its slot there: written when it begins and when it has ended, by one store, and never for a segment.
//!
//! ```
//! use runtime::{PeerRegister, Register};
//! use wire::FlowKey;
//! let kept = Register::create(1024)?; // by whoever outlives the dataplane
//! let register = Register::join(kept.try_clone()?, 1024)?; // the dataplane's
//! let flow = FlowKey::new("10.0.0.1:40000".parse()?, 7);
//! register.opened(3, 0, flow);
//! drop(register);
//! let left = Register::left(kept, 1024)?; // another dataplane's, later
//! assert_eq!((0..left.places()).filter_map(|place| left.peer(place)).collect::<Vec<_>>(), [flow]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use memfile::Memory;
use stack::{FLOW_GROUPS, PeerRegister};
use wire::FlowKey;

/// Bytes of a word.
const WORD: usize = size_of::<u64>();
/// Bytes of a page, or a part of one.
const PAGE: usize = 4096;

/// Connections of each flow group that are written down, where a thread may have so many: twice its share, as groups are
/// not equally full, and one page of slots. What is in slots beyond is not written down.
pub fn places_of_group(max_connections: u32) -> usize {
    2 * max_connections as usize / FLOW_GROUPS + 64
}

fn bytes(max_connections: u32) -> usize {
    FLOW_GROUPS * places_of_group(max_connections) * WORD
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
        for offset in (0..memory.len()).step_by(PAGE) {
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

    fn set(&self, group: u16, slot: u32, word: u64) {
        let slot = slot as usize;
        if slot < self.places_of_group
            && let Some(place) =
                self.memory.word64((group as usize * self.places_of_group + slot) * WORD)
        {
            // Each word is read by itself, by a process that begins when this one has ended.
            place.store(word, Ordering::Relaxed);
        }
    }
}

impl PeerRegister for Register {
    fn opened(&self, group: u16, slot: u32, flow: FlowKey) {
        self.set(group, slot, flow.to_bits());
    }

    fn closed(&self, group: u16, slot: u32) {
        self.set(group, slot, 0);
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
        self.memory.len() / WORD
    }

    /// The connection at a place, as the dataplane that is gone wrote it; none where there is none.
    pub fn peer(&self, place: usize) -> Option<FlowKey> {
        let word = self.memory.word64(place.checked_mul(WORD)?)?.load(Ordering::Relaxed);
        (word != 0).then(|| FlowKey::from_bits(word))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONNECTIONS: u32 = 1_000;

    fn flow(port: u16) -> FlowKey {
        FlowKey::new("10.0.0.1:40000".parse().expect("an endpoint"), port)
    }

    fn peers(left: &PeersLeft) -> Vec<(usize, FlowKey)> {
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
        register.opened(0, 0, flow(1));
        register.opened(last, places as u32 - 1, flow(2));
        let both = [(0, flow(1)), (left.places() - 1, flow(2))];
        assert_eq!(peers(&left), both);
        // The next group's first place is nobody's second one.
        for (group, slot) in [(0, places as u32), (0, u32::MAX), (last + 1, 0), (u16::MAX, 3)] {
            register.opened(group, slot, flow(3));
            register.closed(group, slot);
            assert_eq!(peers(&left), both);
        }
        register.closed(0, 0);
        register.opened(last, places as u32 - 1, flow(4));
        assert_eq!(peers(&left), [(left.places() - 1, flow(4))]);
        assert_eq!(left.peer(left.places()).or(left.peer(usize::MAX)), None);
    }

    /// A dataplane that was broken into may leave any words: each is a peer or none, and there are as many as before.
    #[test]
    #[cfg_attr(miri, ignore = "maps a memory file")]
    fn whatever_is_written_there_is_so_many_peers_at_most() {
        let (register, left) = both();
        let mut word = 1u64;
        for offset in (0..register.memory.len()).step_by(WORD) {
            word = word.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
            register.memory.word64(offset).expect("inside").store(word, Ordering::Relaxed);
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
