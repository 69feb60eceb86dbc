//! Kicks on stock Linux (ZygOS §4.5): a core that is in the application is interrupted, so that its network
//! layer runs.
//!
//! Beside each elastic thread, on the same processor, sleeps a thread of the next higher real-time priority.
//! Waking it is the kick: the kernel puts it before the application at once, it runs the network layer if
//! nobody has it, and sleeps again. Unlike the handler of a signal it may do whatever the network layer does,
//! wherever the application was interrupted.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use clock::{Clock, MonotonicClock};
use dataplane::Tender;
use nic::Nic;
use rustix::event::{EventfdFlags, eventfd};

use crate::processor::run_on;

/// How soon who waits for the tending threads to end looks again.
const LOOK: Duration = Duration::from_micros(50);

/// What wakes the tending threads.
#[derive(Debug, Default)]
pub(crate) struct Kicks {
    /// One for each core; none where there are no kicks.
    bells: Vec<OwnedFd>,
    /// Where each core's tending thread belongs since the core was placed anew: the processor's number and one more;
    /// 0: where it began.
    places: Vec<AtomicU64>,
    /// Threads that may still tend.
    running: AtomicUsize,
}

impl Kicks {
    /// For so many cores.
    ///
    /// # Errors
    /// No eventfd could be made.
    pub fn new(cores: usize) -> std::io::Result<Self> {
        let bell = |_| Ok(eventfd(0, EventfdFlags::CLOEXEC)?);
        let bells = (0..cores).map(bell).collect::<std::io::Result<_>>()?;
        let places = (0..cores).map(|_| AtomicU64::new(0)).collect();
        Ok(Self { bells, places, running: AtomicUsize::new(0) })
    }

    /// Kicks cores, one bit each. A full counter still wakes.
    #[inline]
    pub fn send(&self, mut kicks: u128) {
        while kicks != 0 {
            let core = kicks.trailing_zeros() as usize;
            kicks &= kicks - 1;
            if let Some(bell) = self.bells.get(core) {
                let _ = rustix::io::write(bell, &1u64.to_ne_bytes());
            }
        }
    }

    /// Core `core` runs on another processor from now on: its tending thread follows.
    pub fn place(&self, core: usize, cpu: usize) {
        if let Some(place) = self.places.get(core) {
            place.store(cpu as u64 + 1, Ordering::Relaxed);
            self.send(1 << core);
        }
    }

    /// A further thread will tend, as long as it has the answer: to be called before it is started.
    pub fn tending(&self) -> Tending<'_> {
        self.running.fetch_add(1, Ordering::Relaxed);
        Tending(self)
    }

    /// Tends core `core`'s network layer at each kick, until `stop` is set and [`end`](Self::end) was called.
    /// `ring` wakes those for which something was left.
    pub fn tend<N: Nic>(
        &self,
        core: usize,
        tender: &Tender<N>,
        clock: MonotonicClock,
        ring: impl Fn(u128),
        stop: &AtomicBool,
    ) {
        let mut count = [0u8; 8];
        let mut place = 0;
        while let Some(bell) = self.bells.get(core)
            && rustix::io::retry_on_intr(|| rustix::io::read(bell, &mut count)).is_ok()
            && !stop.load(Ordering::Acquire)
        {
            let belongs = self.places[core].load(Ordering::Relaxed);
            if std::mem::replace(&mut place, belongs) != belongs
                && let Err(error) = run_on(belongs as usize - 1)
            {
                tracing::warn!(core, %error, "what kicks wake stays on another processor");
            }
            ring(tender.tend(clock.now()));
        }
    }

    /// Ends the tending threads, once they were told to stop, and waits for that.
    pub fn end(&self) {
        self.send(u128::MAX >> 128_usize.saturating_sub(self.bells.len().max(1)));
        while self.running.load(Ordering::Acquire) > 0 {
            std::thread::sleep(LOOK);
        }
    }
}

/// A thread that tends, until it ends.
pub(crate) struct Tending<'a>(&'a Kicks);

impl Drop for Tending<'_> {
    fn drop(&mut self) {
        // The thread has given up what it had of the dataplane, which may be taken apart from here on.
        self.0.running.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use clock::Instant;
    use dataplane::{
        ConservingConfig, Elastic, ElasticConfig, Floor, ForwardPorts, Parts, WhileAway,
    };
    use mem::{Pool, Region};
    use nic::shm::{ShmConfig, ShmNic};
    use stack::{Secrets, Shared, StackConfig};
    use wire::{Ipv4Addr, MacAddr};

    use super::*;

    #[test]
    fn a_kick_runs_the_network_layer_and_the_threads_end() {
        let (near, _far) =
            ShmNic::pair(&ShmConfig::default(), &ShmConfig::default().far()).expect("memory");
        let region = Region::heap(1_024);
        let stack = StackConfig::new(Ipv4Addr::new(10, 9, 0, 1), 24, MacAddr([2, 0, 0, 0, 0, 1]));
        let secrets = Secrets { rss_key: [1; 40], isn_key: [2; 16], port_key: [3; 16], offset: 4 };
        let shared = Arc::new(Shared::new(stack, &secrets, 1));
        let parts = Parts {
            queues: near.into(),
            pool: Pool::new(&region, 256),
            ports: ForwardPorts::default(),
        };
        let sharing =
            ConservingConfig { while_away: WhileAway::Kick, pool_keep: 64, ..Default::default() };
        let threads =
            Floor::threads(&shared, vec![parts], ElasticConfig::default(), sharing, Instant::ZERO);
        let [thread]: [_; 1] = threads.try_into().expect("one");
        let (kicks, stop) = (Kicks::new(1).expect("an eventfd"), AtomicBool::new(false));
        let runs_on = AtomicUsize::new(0);
        let tending = kicks.tending();
        std::thread::scope(|scope| {
            let tender = thread.tender();
            let (kicks, stop, runs_on) = (&kicks, &stop, &runs_on);
            // Where the thread may run whenever it has tended.
            let ring = |_| {
                let allowed = rustix::thread::sched_getaffinity(None).expect("the kernel says it");
                runs_on.store(allowed.count() as usize, Ordering::Relaxed);
            };
            scope.spawn(move || {
                kicks.tend(0, &tender, MonotonicClock::new(), ring, stop);
                drop(tending);
            });
            for kicked in 1..=3 {
                // A kick that finds the layer in use is lost, as when somebody reads its counters: sent again.
                while thread.stats().kicked < kicked {
                    // A core that there is not has no bell.
                    kicks.send(0b101);
                    std::thread::sleep(Duration::from_millis(1));
                }
            }
            let allowed = rustix::thread::sched_getaffinity(None).expect("the kernel says it");
            let cpu = (0..1_024).find(|cpu| allowed.is_set(*cpu)).expect("there is one");
            kicks.place(0, cpu);
            while runs_on.load(Ordering::Relaxed) != 1 {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Release);
            kicks.end();
        });
        assert_eq!(kicks.running.load(Ordering::Relaxed), 0);
        // Nobody else has a part of the dataplane: all of it comes back.
        thread.leave();
        assert_eq!(region.depot_len(), 1_024);
    }
}
