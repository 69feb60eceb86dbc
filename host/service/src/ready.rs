//! A wait for a descriptor.

use std::os::fd::AsFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Waits until the descriptor is ready for what is `wanted`, or its other end has hung up: for less than a second, and
/// shorter where the wait is interrupted.
pub(crate) fn is_ready(descriptor: &impl AsFd, wanted: PollFlags, most: Duration) -> bool {
    let most = Timespec { tv_sec: 0, tv_nsec: most.subsec_nanos().into() };
    poll(&mut [PollFd::new(descriptor, wanted)], Some(&most)).is_ok_and(|count| count > 0)
}
