//! The processors that the dataplane's control group holds: those of its elastic threads, and no other one.
//!
//! The dataplane moves its own threads (`sched_setaffinity`), and the filter cannot read the mask of that call. The group
//! bounds it: one that was broken into runs on the processors on which its threads were placed, at whatever priority,
//! and on no other. The starter moves the bounds first, then tells the thread to move.

use std::sync::{Arc, Mutex, MutexGuard};

use rustix::thread::CpuSet;
use sandbox::Cpuset;

use crate::config::DataplaneConfig;

/// The processors that this process may run on.
///
/// # Errors
/// The kernel does not say it.
pub fn allowed() -> rustix::io::Result<Vec<u32>> {
    let set = rustix::thread::sched_getaffinity(None)?;
    Ok((0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).map(|cpu| cpu as u32).collect())
}

/// The processors that a dataplane may begin on: those that are named, or as many as it has threads where it has a
/// real-time priority. None: all, as an ordinary process that the kernel puts where there is room.
pub fn begins_on(plane: &DataplaneConfig) -> Option<Vec<u32>> {
    if !plane.cpus.is_empty() {
        return Some(plane.cpus.iter().map(|&cpu| cpu as u32).collect());
    }
    let allowed = allowed().ok().filter(|_| plane.realtime() > 0)?;
    // The first ones get the interrupts of most devices.
    Some(allowed.into_iter().rev().take(plane.threads as usize).collect())
}

/// See the module's comment. Shared by the starter's main thread, which follows its plan, and the thread that serves the
/// control socket, whose clients place threads.
#[derive(Clone, Debug, Default)]
pub struct Bounds(Arc<Mutex<Held>>);

#[derive(Debug, Default)]
struct Held {
    /// None: nothing is bounded.
    cpuset: Option<Cpuset>,
    /// The processor of each elastic thread; or those that they share.
    threads: Vec<u32>,
    /// Processors of orders that the dataplane has not answered.
    coming: Vec<u32>,
    set: Vec<u32>,
}

impl Bounds {
    /// Of a group that holds the processors `cpus`.
    pub fn new(cpuset: Option<Cpuset>, cpus: Option<&[u32]>) -> Self {
        let threads = cpus.unwrap_or_default().to_vec();
        let held = Held { cpuset, threads, ..Held::default() };
        Self(Arc::new(Mutex::new(Held { set: held.wanted(), ..held })))
    }

    /// All elastic threads are to be on these processors.
    pub fn place(&self, cpus: Vec<u32>) {
        let mut held = self.held();
        held.threads = cpus;
        held.write();
    }

    /// An order is to place a thread on this processor.
    pub fn admit(&self, cpu: u32) {
        let mut held = self.held();
        held.coming.push(cpu);
        if !held.write() {
            held.coming.pop();
        }
    }

    /// The order that was to place `thread` on this processor is over, and has done so or not.
    pub fn settle(&self, thread: usize, cpu: u32, has_moved: bool) {
        let mut held = self.held();
        if let Some(at) = held.coming.iter().position(|&coming| coming == cpu) {
            held.coming.swap_remove(at);
        }
        if let Some(of_thread) = held.threads.get_mut(thread).filter(|_| has_moved) {
            *of_thread = cpu;
        }
        held.write();
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(|broken| broken.into_inner())
    }
}

impl Held {
    fn wanted(&self) -> Vec<u32> {
        let mut wanted = [&self.threads[..], &self.coming].concat();
        wanted.sort_unstable();
        wanted.dedup();
        wanted
    }

    /// Tells the kernel. False: it refuses, as it does where a processor is not there. The dataplane refuses the order
    /// then, too, and the client gets its answer.
    fn write(&mut self) -> bool {
        let wanted = self.wanted();
        let Some(cpuset) = &self.cpuset else { return true };
        let is_set = wanted == self.set || cpuset.set(&wanted).is_ok();
        if is_set {
            self.set = wanted;
        }
        is_set
    }
}

#[cfg(test)]
mod tests {
    use sandbox::{GroupLimits, Groups};

    use super::*;

    #[test]
    fn a_group_holds_what_its_threads_and_orders_need() {
        let bounds = Bounds::new(None, Some(&[3, 1, 1]));
        assert_eq!(bounds.held().set, [1, 3]);
        bounds.admit(7);
        assert_eq!(bounds.held().wanted(), [1, 3, 7]);
        bounds.settle(1, 7, true);
        assert_eq!(bounds.held().wanted(), [1, 3, 7]);
        bounds.settle(2, 9, false);
        bounds.settle(2, 7, true);
        bounds.settle(99, 5, true);
        assert_eq!(bounds.held().wanted(), [3, 7]);
        bounds.place(vec![0]);
        assert_eq!(bounds.held().wanted(), [0]);
    }

    #[test]
    fn the_kernel_is_told() {
        let allowed = allowed().expect("the kernel says it");
        let (first, last) = (allowed[0], *allowed.last().expect("we run"));
        let limits = GroupLimits { cpuset: Some(vec![first]), ..GroupLimits::default() };
        let groups = Groups::make("bounds", &limits);
        let Some(cpuset) = groups.cpuset() else {
            return println!("skipped: {:?}", groups.missing());
        };
        let bounds = Bounds::new(Some(cpuset), Some(&[first]));
        bounds.admit(last);
        let both = bounds.held().wanted();
        assert_eq!(bounds.held().set, both);
        // None has this number.
        bounds.admit(1_000_000);
        assert_eq!(bounds.held().set, both);
        bounds.settle(0, 1_000_000, false);
        bounds.settle(0, last, true);
        assert_eq!(bounds.held().set, [last]);
    }
}
