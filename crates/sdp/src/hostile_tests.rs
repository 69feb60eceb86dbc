//! Tenants that attack: what each gets, and that the plane goes on for the others.

use std::time::Duration;

use rustix::fs::{FallocateFlags, fallocate, ftruncate};
use rustix::io::Errno;

use crate::processes_tests::socket_path;
use crate::*;

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn a_tenant_cannot_punch_holes_into_its_memory_or_resize_it() {
    let socket = socket_path("holes");
    let plane = Plane::start(PlaneConfig::new(&socket), |_| Box::new(Echo)).expect("started");
    let tenant = Tenant::join(&socket, Shape::default()).expect("joined");
    let (file, len) = (tenant.memory.file(), tenant.memory.len() as u64);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(fallocate(file, punch, 0, len), Err(Errno::PERM), "pages stay in place");
    assert_eq!(ftruncate(file, 0), Err(Errno::PERM));
    assert_eq!(ftruncate(file, len * 2), Err(Errno::PERM));
    plane.stop();
}

#[test]
fn the_default_share_of_a_user_leaves_room_for_several() {
    let limits = Limits::default();
    assert!(limits.tenants_per_uid * 4 <= limits.tenants, "{limits:?}");
    assert!(limits.queues_per_uid * 4 <= limits.queues, "{limits:?}");
    assert!(limits.bytes_per_uid * 4 <= limits.bytes, "{limits:?}");
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn joining_and_leaving_in_a_loop_is_refused_above_a_rate() {
    let socket = socket_path("loop");
    let plane = Plane::start(PlaneConfig::new(&socket), |_| Box::new(Echo)).expect("started");
    let refused = (0..1_000).find_map(|_| {
        std::thread::sleep(Duration::from_micros(200));
        Tenant::join(&socket, Shape::default()).err()
    });
    let refused = refused.expect("within a thousand joins as fast as they go").to_string();
    assert!(refused.contains("cannot join: found") && refused.contains("joins"), "{refused}");
    assert!(plane.report().joins.refused > 0);
}
