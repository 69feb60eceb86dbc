//! What a tenant may send or write, for tests and the fuzz targets: an ask of any bytes, and a queue's memory that is
//! written as a script says, with what must hold of the plane's looks at it.

use std::sync::atomic::{AtomicBool, Ordering};

use memfile::Memory;

use crate::geometry::{DoorbellLayout, Geometry, Shape};
use crate::join;
use crate::queue_pair::{Look, PlanePair, Room};

const SHAPE: Shape =
    Shape { queues: 1, depth: 32, slot_bytes: 64, doorbells: DoorbellLayout::Packed };
/// Turns of the plane while the tenant writes from a thread of its own.
const TURNS: usize = 50;
/// Requests of one turn.
const BUDGET: u32 = 64;

/// Where a word of the script goes, and what is written there.
fn writes(script: &[u8], geometry: &Geometry) -> Vec<(usize, u64)> {
    let words = script.chunks_exact(8).map(|bytes| {
        let bytes: [u8; 8] = bytes.try_into().expect("8 bytes");
        let [kind, number, low, high, rest @ ..] = bytes;
        let (number, len, rest) = (
            u32::from(number),
            u32::from(u16::from_le_bytes([low, high])),
            u32::from_le_bytes(rest),
        );
        let slot =
            geometry.submissions(0) + (number % SHAPE.depth) as usize * geometry.slot_stride();
        match kind % 4 {
            // A request that may be the next one, of a length that may fit.
            0 => (slot, u64::from(len % (SHAPE.slot_bytes + 2)) << 32 | u64::from(number)),
            1 => (slot, u64::from(rest) << 32 | u64::from(number)),
            2 => (geometry.consumed(0), u64::from(rest) << 32 | u64::from(number)),
            _ => {
                let words = geometry.memory_bytes() / 8;
                (len as usize * 8 % (words * 8), u64::from_le_bytes(bytes))
            }
        }
    });
    words.collect()
}

fn write(memory: &Memory, writes: &[(usize, u64)]) {
    for &(at, value) in writes {
        memory.word64(at).expect("a word inside").store(value, Ordering::Relaxed);
    }
}

/// A turn of the plane, an echo; how many requests it answered.
fn turn(memory: &Memory, plane: &PlanePair) -> u32 {
    let mut buffer = [0; SHAPE.slot_bytes as usize];
    for answered in 0..BUDGET {
        let look = plane.look(memory);
        if look == Look::Nothing || plane.room(memory) != Room::Free {
            return answered;
        }
        match look {
            Look::Request(len) => {
                assert!(len <= SHAPE.slot_bytes, "{len} bytes fit no slot");
                let request = plane.take(memory, len, &mut buffer);
                assert_eq!(request.len(), len as usize, "the length that was looked at");
                plane.complete(memory, Some(request));
            }
            _ => plane.complete(memory, None),
        }
    }
    BUDGET
}

/// All bytes before the completions: what only the tenant writes.
fn tenants(memory: &Memory, geometry: &Geometry) -> Vec<u8> {
    let mut bytes = vec![0; geometry.completions(0)];
    assert!(memory.copy_out(0, &mut bytes), "it lies inside");
    bytes
}

/// Runs a script: between the plane's turns, where the plane must change nothing but completions and answer no more
/// than there are places; then from a second thread during them.
pub fn serve(script: &[u8]) {
    let geometry = SHAPE.check().expect("a shape that is allowed");
    let memory = Memory::create("tailplane-sdp", geometry.memory_bytes()).expect("memory");
    let plane = PlanePair::new(&geometry, 0, 1);
    let writes = writes(script, &geometry);
    for part in writes.chunks(4) {
        write(&memory, part);
        let before = tenants(&memory, &geometry);
        assert!(turn(&memory, &plane) <= SHAPE.depth, "more answers than places");
        assert!(tenants(&memory, &geometry) == before, "the plane wrote what is the tenant's");
    }
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            while !is_over.load(Ordering::Relaxed) {
                write(&memory, &writes);
            }
        });
        (0..TURNS).for_each(|_| _ = turn(&memory, &plane));
        is_over.store(true, Ordering::Relaxed);
        // The scope alone waits for the closure, not for the end of the thread.
        writer.join().expect("it only writes");
    });
}

/// Reads `bytes` as an ask, and writes what was read.
pub fn read_ask(bytes: &[u8]) {
    if let Ok(read) = join::parse_ask(bytes) {
        assert_eq!(join::ask(read), *bytes, "an ask has one form");
        if let Ok(geometry) = read.shape.check() {
            assert!(geometry.memory_bytes() > 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 1 } else { 64 }))]

        #[test]
        #[cfg_attr(miri, ignore = "maps a memory file")]
        fn whatever_a_tenant_writes_the_plane_answers_within_its_rings(
            script in prop::collection::vec(any::<u8>(), 0..2_000),
        ) {
            super::serve(&script);
        }

        #[test]
        fn any_words_of_an_ask_are_read_in_one_form(words in prop::array::uniform5(0_u32..10)) {
            let shape = crate::Shape::default();
            let mut bytes = super::join::ask(super::join::Ask { shape, class: None });
            for (place, word) in bytes[8..28].chunks_exact_mut(4).zip(words) {
                place.copy_from_slice(&word.to_le_bytes());
            }
            super::read_ask(&bytes);
        }
    }
}
