//! A consumer that sleeps while nothing is ready: the processor time that it takes (HyperPlane §V-D).

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use measure::process::thread_time;
use qwait::{Config, ExclusiveSet, Producer, QueueId, ServicePolicy};

use crate::queue::{Layout, doorbells};
use crate::strategy::{SetUpError, refused};

/// What a sleeping consumer took.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Idle {
    /// Share of one processor.
    pub cpu: f64,
    /// Items that it served meanwhile.
    pub items: u64,
}

/// Looks before a consumer sleeps: about a microsecond.
const SPIN_LOOKS: u32 = 100;

/// Lets a consumer of `queues` queues wait for `length`, by a futex and at ordinary priority, while an
/// item arrives every `gap` (never, where that is `length` or more).
///
/// # Errors
/// No memory, or no such set.
pub fn sleeping(queues: u32, length: Duration, gap: Duration) -> Result<Idle, SetUpError> {
    let layout = Layout::Packed;
    let config =
        Config { capacity: queues, policy: ServicePolicy::RoundRobin, spin_looks: SPIN_LOOKS };
    let mut set = ExclusiveSet::new(config).map_err(refused(queues, layout))?;
    let bells = doorbells(queues, layout).map_err(refused(queues, layout))?;
    let producers = (0..)
        .zip(bells)
        .map(|(queue, bell)| set.add(QueueId::new(queue), bell))
        .collect::<Result<Vec<Producer>, _>>()
        .map_err(refused(queues, layout))?;
    let over = AtomicBool::new(false);
    let (ran, span) = thread::scope(|scope| {
        let consumer = scope.spawn(|| consume(&mut set, &over));
        let begun = Instant::now();
        let mut at = 0;
        while begun.elapsed() < length {
            thread::sleep(gap.min(length.saturating_sub(begun.elapsed())));
            if begun.elapsed() < length {
                producers[at % producers.len()].ring();
                at += 377;
            }
        }
        over.store(true, Ordering::Release);
        // Only to wake it: it looks at `over` before it counts.
        producers[0].ring();
        (consumer.join().unwrap_or_default(), begun.elapsed())
    });
    Ok(Idle { cpu: ran.0.as_secs_f64() / span.as_secs_f64(), items: ran.1 })
}

/// Serves until it is over; the processor time that took, and the items.
fn consume(set: &mut ExclusiveSet, over: &AtomicBool) -> (Duration, u64) {
    let (before, mut items) = (thread_time(), 0);
    while !over.load(Ordering::Acquire) {
        let queue = set.qwait();
        if over.load(Ordering::Acquire) {
            break;
        }
        let count = set.verify(queue);
        if count > 0 {
            items += u64::from(count);
            set.reconsider(queue, count);
        }
    }
    (thread_time().saturating_sub(before), items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleeper_serves_what_comes_and_ends() {
        let length = Duration::from_millis(60);
        let still = sleeping(8, length, length).expect("ran");
        assert_eq!(still.items, 0);
        let served = sleeping(8, length, Duration::from_millis(1)).expect("ran");
        assert!(served.items > 0 && served.cpu > 0.0, "{served:?}");
        assert!(sleeping(0, length, length).is_err());
    }
}
