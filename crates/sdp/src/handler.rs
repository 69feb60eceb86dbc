//! What serves a request, and the registry of names for it.

use std::time::{Duration, Instant};

/// Which queue a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TenantQueue {
    /// The tenant, as in [`TenantReport::id`](crate::TenantReport); never used again.
    pub tenant: u64,
    /// The tenant's number for the queue.
    pub queue: u32,
}

/// A service. Each core has one of its own.
///
/// It runs on the data-plane core: what it does not do quickly, every queue of that core waits for.
pub trait Handler: Send {
    /// Serves a request, which is a private copy, and writes the reply; answers the reply's size in
    /// bytes. More than `reply` holds counts as all of it.
    fn handle(&mut self, from: TenantQueue, request: &[u8], reply: &mut [u8]) -> usize;
}

/// Answers with the request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Handler for Echo {
    #[inline]
    fn handle(&mut self, _: TenantQueue, request: &[u8], reply: &mut [u8]) -> usize {
        let len = request.len().min(reply.len());
        reply[..len].copy_from_slice(&request[..len]);
        len
    }
}

/// Is busy for a time, then answers with the request.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// For how long.
    pub busy: Duration,
}

impl Handler for Work {
    fn handle(&mut self, from: TenantQueue, request: &[u8], reply: &mut [u8]) -> usize {
        // A clock and not a count: nanoseconds were asked for. It is the work itself.
        let start = Instant::now();
        while start.elapsed() < self.busy {
            std::hint::spin_loop();
        }
        Echo.handle(from, request, reply)
    }
}

/// Longest time that `work:NS` takes: a core that is away for longer serves nobody.
const WORK_MAX_NS: u64 = 1_000_000_000;

/// A service by its name: `echo`, or `work:NS`, which is busy for so many nanoseconds (up to a second)
/// and then echoes. `None` where there is no such service.
pub fn handler(name: &str) -> Option<Box<dyn Handler>> {
    if name == "echo" {
        return Some(Box::new(Echo));
    }
    let nanos = name.strip_prefix("work:")?.parse().ok().filter(|&nanos| nanos <= WORK_MAX_NS)?;
    Some(Box::new(Work { busy: Duration::from_nanos(nanos) }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_found_by_name_and_serve() {
        let from = TenantQueue { tenant: 1, queue: 0 };
        for name in ["echo", "work:2000"] {
            let mut service = handler(name).expect("known");
            let (start, mut reply) = (Instant::now(), [0; 4]);
            assert_eq!(service.handle(from, b"abc", &mut reply), 3);
            assert_eq!(&reply[..3], b"abc");
            assert_eq!(service.handle(from, b"abcdefgh", &mut reply), 4, "no more than fits");
            assert!(name == "echo" || start.elapsed() >= Duration::from_micros(4));
        }
        for unknown in ["", "work", "work:", "work:x", "work:-1", "work:9999999999", "nfs"] {
            assert!(handler(unknown).is_none(), "{unknown}");
        }
    }
}
