//! What serves a request, and the registry of names for it.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use clock::Instant;

/// Which queue a request came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TenantQueue {
    /// The tenant, as in [`TenantReport::id`](crate::TenantReport); never used again.
    pub tenant: u64,
    /// The tenant's number for the queue.
    pub queue: u32,
}

/// What became of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was served, with a reply of so many bytes. More than there was room for counts as all of it.
    Reply(usize),
    /// It cannot be answered yet. It stays where it is, and so does what stands behind it on its queue,
    /// until [`Handler::work`] names the queue; then it is handed in again.
    Later,
}

/// A service. Each core has one of its own.
///
/// It runs on the data-plane core: what it does not do quickly, every queue of that core waits for.
///
/// Most services do nothing but [`handle`](Self::handle). One that has work of its own, as with a device,
/// says so once ([`works_by_itself`](Self::works_by_itself)) and gets a call each turn.
pub trait Handler {
    /// Serves a request, which is a private copy, and writes the reply.
    fn handle(&mut self, from: TenantQueue, request: &[u8], reply: &mut [u8]) -> Outcome;

    /// Whether it has work of its own. Asked once.
    fn works_by_itself(&self) -> bool {
        false
    }

    /// Does a bounded part of its own work, and adds the queues whose heads it can serve now to `ready`.
    /// True where there was work.
    fn work(&mut self, _now: Instant, _ready: &mut Vec<TenantQueue>) -> bool {
        false
    }

    /// A tenant is gone; its number does not come again.
    fn gone(&mut self, _tenant: u64) {}

    /// The first half of going to sleep. False: there is work, so that the core must not.
    fn arm(&mut self) -> bool {
        true
    }

    /// The second half.
    fn disarm(&mut self) {}

    /// Readable when there is work of its own, after [`arm`](Self::arm). Without one, a core whose
    /// service works by itself does not sleep.
    fn wait_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

/// Answers with the request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Handler for Echo {
    #[inline]
    fn handle(&mut self, _: TenantQueue, request: &[u8], reply: &mut [u8]) -> Outcome {
        let len = request.len().min(reply.len());
        reply[..len].copy_from_slice(&request[..len]);
        Outcome::Reply(len)
    }
}

/// Is busy for a time, then answers with the request.
#[derive(Clone, Copy, Debug)]
pub struct Work {
    /// For how long.
    pub busy: Duration,
}

impl Handler for Work {
    fn handle(&mut self, from: TenantQueue, request: &[u8], reply: &mut [u8]) -> Outcome {
        // A clock and not a count: nanoseconds were asked for. It is the work itself.
        let start = std::time::Instant::now();
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
            let (start, mut reply) = (std::time::Instant::now(), [0; 4]);
            assert_eq!(service.handle(from, b"abc", &mut reply), Outcome::Reply(3));
            assert_eq!(&reply[..3], b"abc");
            let fits = service.handle(from, b"abcdefgh", &mut reply);
            assert_eq!(fits, Outcome::Reply(4), "no more than fits");
            assert!(name == "echo" || start.elapsed() >= Duration::from_micros(4));
        }
        for unknown in ["", "work", "work:", "work:x", "work:-1", "work:9999999999", "nfs"] {
            assert!(handler(unknown).is_none(), "{unknown}");
        }
    }
}
