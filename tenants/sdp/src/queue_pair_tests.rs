//! The rings as a dialogue, and what a tenant can write into them.

use super::*;
use std::sync::Arc;

use crate::geometry::Shape;

fn rig() -> (Geometry, Arc<Memory>, PlanePair, TenantPair) {
    let shape = Shape { depth: 32, slot_bytes: 64, ..Shape::default() };
    let geometry = shape.check().expect("allowed");
    let memory = Memory::create("tailplane-sdp", geometry.memory_bytes()).expect("made");
    (geometry, memory, PlanePair::new(&geometry, 0, 1), TenantPair::new(&geometry, 0))
}

/// Serves what is there, as an echo; how many.
fn serve(memory: &Memory, plane: &PlanePair) -> usize {
    let mut served = 0;
    while let Look::Request(len) = plane.look(memory) {
        if plane.room(memory) != Room::Free {
            break;
        }
        let mut buffer = [0; 64];
        let request = plane.take(memory, len, &mut buffer);
        plane.complete(memory, Some(request));
        served += 1;
    }
    served
}

#[test]
#[cfg_attr(miri, ignore = "maps a memory file")]
fn requests_come_back_in_order_around_the_ring() {
    let (_, memory, plane, mut tenant) = rig();
    let mut buffer = [0; 64];
    for round in 0..100_u32 {
        for item in 0..20 {
            tenant.submit(&memory, &(round * 20 + item).to_le_bytes()).expect("room");
        }
        assert_eq!(serve(&memory, &plane), 20);
        for item in 0..20 {
            assert_eq!(tenant.poll(&memory, &mut buffer), Some((4, false)));
            assert_eq!(buffer[..4], (round * 20 + item).to_le_bytes());
        }
        assert_eq!(tenant.poll(&memory, &mut buffer), None);
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps a memory file")]
fn numbers_wrap_around() {
    let (_, memory, plane, mut tenant) = rig();
    for side in [&plane.head, &plane.consumed] {
        side.store(u32::MAX - 40, Ordering::Relaxed);
    }
    (tenant.submitted, tenant.consumed) = (u32::MAX - 40, u32::MAX - 40);
    let mut buffer = [0; 64];
    for item in 0..100_u32 {
        tenant.submit(&memory, &item.to_le_bytes()).expect("room");
        assert_eq!(serve(&memory, &plane), 1, "item {item}");
        assert!(tenant.is_ready(&memory));
        assert_eq!(tenant.poll(&memory, &mut buffer), Some((4, false)));
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps a memory file")]
fn a_tenant_has_as_many_credits_as_there_are_places() {
    let (_, memory, plane, mut tenant) = rig();
    for _ in 0..32 {
        tenant.submit(&memory, b"x").expect("a credit");
    }
    assert_eq!(tenant.submit(&memory, b"x"), Err(SubmitError::Full));
    assert_eq!(serve(&memory, &plane), 32);
    assert_eq!(tenant.submit(&memory, b"x"), Err(SubmitError::Full), "not consumed yet");
    let mut buffer = [0; 64];
    assert!(tenant.poll(&memory, &mut buffer).is_some());
    tenant.submit(&memory, b"x").expect("one came back");
    assert!(matches!(tenant.submit(&memory, &[0; 65]), Err(SubmitError::Full)));
    assert!(tenant.poll(&memory, &mut buffer).is_some());
    let error = tenant.submit(&memory, &[0; 65]).expect_err("too long");
    assert!(error.to_string().contains("65 bytes for slots of 64"), "{error}");
}

#[test]
#[cfg_attr(miri, ignore = "maps a memory file")]
fn a_flood_over_completions_that_nobody_consumes_ends_at_the_ring() {
    let (geometry, memory, plane, mut tenant) = rig();
    let mut served = 0;
    for _ in 0..100 {
        // A tenant that pretends to have credits.
        tenant.consumed = tenant.submitted;
        tenant.submit(&memory, b"x").expect("it believes so");
        served += serve(&memory, &plane);
    }
    assert_eq!((served, plane.room(&memory)), (32, Room::None));
    let consumed = memory.word(geometry.consumed(0)).expect("inside");
    for absurd in [33, u32::MAX, 1 << 31] {
        consumed.store(absurd, Ordering::Relaxed);
        assert_eq!(plane.room(&memory), Room::Lied, "{absurd}");
    }
    consumed.store(5, Ordering::Relaxed);
    assert_eq!(plane.room(&memory), Room::Free);
}

#[test]
#[cfg_attr(miri, ignore = "maps a memory file")]
fn what_is_no_next_request_is_nothing_and_a_bad_length_is_told() {
    let (geometry, memory, plane, _) = rig();
    let slot = |number: u32| {
        let at = geometry.submissions(0) + (number as usize % 32) * geometry.slot_stride();
        memory.word64(at).expect("inside")
    };
    for (len, number) in [(0, 0), (4, 2), (4, 33), (u32::MAX, u32::MAX)] {
        slot(1).store(header(len, number), Ordering::Relaxed);
        assert_eq!(plane.look(&memory), Look::Nothing, "number {number}");
    }
    for len in [65, 1 << 20, u32::MAX] {
        slot(1).store(header(len, 1), Ordering::Relaxed);
        assert_eq!(plane.look(&memory), Look::TooLong, "length {len}");
    }
    plane.complete(&memory, None);
    slot(2).store(header(64, 2), Ordering::Relaxed);
    assert_eq!(plane.look(&memory), Look::Request(64));
    let mut buffer = [0; 8];
    assert_eq!(plane.take(&memory, 64, &mut buffer).len(), 8, "never beyond the private buffer");
}

#[test]
#[cfg_attr(miri, ignore = "maps a memory file")]
fn a_request_that_changes_after_the_copy_changes_nothing() {
    let (geometry, memory, plane, mut tenant) = rig();
    tenant.submit(&memory, b"first").expect("room");
    let Look::Request(len) = plane.look(&memory) else { panic!("it is there") };
    let mut buffer = [0; 64];
    let request = plane.take(&memory, len, &mut buffer);
    let at = geometry.submissions(0) + geometry.slot_stride();
    assert!(memory.copy_in(at, &[0xff; 72]), "header and payload");
    assert_eq!(request, b"first");
    plane.complete(&memory, Some(request));
    let mut reply = [0; 64];
    assert_eq!(tenant.poll(&memory, &mut reply), Some((5, false)));
    assert_eq!(&reply[..5], b"first");
}
