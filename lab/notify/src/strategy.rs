//! How a consumer learns which queue has work: the ways by name, and queues with a consumer of each.

use std::fmt::Display;
use std::sync::Arc;

use crate::activations::Activations;
use crate::finder::Finder;
use crate::linear::Linear;
use crate::polling::{Burst, Spin};
use crate::queue::{Bell, Layout, Pusher, Rings, doorbells};
use crate::watching::{Exclusive, Shared};

/// A way to find work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Strategy {
    /// A tight loop over the doorbells.
    Spin,
    /// A loop over queues as a poll-mode driver of DPDK has it: an indirect call for each, which reads
    /// the queue's own line and its next descriptor, and answers a burst (of one here: the service is
    /// round robin).
    Burst,
    /// The exclusive ready set.
    Exclusive,
    /// The shared ready set, with this one consumer.
    Shared,
    /// A list of ready queues that is searched from end to end for the one whose turn it is: the
    /// software ready set of the paper's Figure 13.
    Linear,
}

impl Strategy {
    /// All of them, the baseline first.
    pub const ALL: [Self; 5] =
        [Self::Spin, Self::Burst, Self::Exclusive, Self::Shared, Self::Linear];

    /// As it is called in plots.
    pub fn name(self) -> &'static str {
        match self {
            Self::Spin => "spinning",
            Self::Burst => "spinning, DPDK-like",
            Self::Exclusive => "QWAIT, exclusive",
            Self::Shared => "QWAIT, shared",
            Self::Linear => "linear ready list",
        }
    }
}

/// Why queues could not be set up.
#[derive(Debug, thiserror::Error)]
#[error("cannot set up {queues} queues ({}): {reason}", layout.name())]
pub struct SetUpError {
    /// How many were asked for.
    pub queues: u32,
    /// How their doorbells were to lie.
    pub layout: Layout,
    /// What was refused.
    pub reason: String,
}

/// Makes the error of whatever refused to set up such queues.
pub(crate) fn refused<E: Display>(queues: u32, layout: Layout) -> impl Fn(E) -> SetUpError {
    move |reason| SetUpError { queues, layout, reason: reason.to_string() }
}

/// A producer's end of queues, and a consumer's.
pub struct Ends {
    /// Where items go in.
    pub pusher: Pusher,
    /// Where they come out.
    pub finder: Box<dyn Finder>,
}

/// Queues with a consumer of this strategy.
///
/// # Errors
/// No memory, or more queues than a set can have.
pub fn set_up(strategy: Strategy, queues: u32, layout: Layout) -> Result<Ends, SetUpError> {
    if queues == 0 || queues > qwait::MAX_QUEUES {
        let reason = format!("allowed are 1 to {}", qwait::MAX_QUEUES);
        return Err(SetUpError { queues, layout, reason });
    }
    let rings = Rings::new(queues);
    let bells = doorbells(queues, layout).map_err(refused(queues, layout))?;
    let (bells, finder): (Vec<Bell>, Box<dyn Finder>) = match strategy {
        Strategy::Spin => {
            let finder = Spin::new(&rings, 0, bells.clone());
            (bells.into_iter().map(Bell::Polled).collect(), Box::new(finder))
        }
        Strategy::Burst => {
            (bells.iter().map(|_| Bell::Descriptor).collect(), Box::new(Burst::new(&rings)))
        }
        Strategy::Exclusive => {
            let set = Exclusive::new(&rings, 0, bells);
            let (finder, bells) = set.map_err(refused(queues, layout))?;
            (bells, Box::new(finder))
        }
        Strategy::Shared => {
            let set = Shared::new(&rings, bells);
            let (finder, _, bells) = set.map_err(refused(queues, layout))?;
            (bells, Box::new(finder))
        }
        Strategy::Linear => {
            let list = Activations::new(queues);
            let finder = Linear::new(&rings, bells.clone(), &list);
            let listed = |bell| Bell::Listed(bell, Arc::clone(&list));
            (bells.into_iter().map(listed).collect(), Box::new(finder))
        }
    };
    Ok(Ends { pusher: Pusher::new(&rings, bells), finder })
}

#[cfg(test)]
mod tests {
    use rand::{RngExt, SeedableRng};
    use rand_xoshiro::Xoshiro256PlusPlus;

    use super::*;

    #[test]
    fn every_item_comes_out_exactly_once_and_in_order() {
        for strategy in Strategy::ALL {
            for (queues, layout) in [(1, Layout::Packed), (7, Layout::Paged), (200, Layout::Packed)]
            {
                let Ends { mut pusher, mut finder } =
                    set_up(strategy, queues, layout).expect("made");
                let mut random = Xoshiro256PlusPlus::seed_from_u64(5);
                let mut taken = vec![0u32; queues as usize];
                let mut visit = |finder: &mut dyn Finder| {
                    let Some(item) = finder.take() else { return false };
                    let next = &mut taken[item.queue as usize];
                    assert_eq!((item.number, item.sent_ns), (*next, 9), "{strategy:?}");
                    *next += 1;
                    finder.settle(item.queue);
                    true
                };
                let mut pushed = 0u64;
                for _ in 0..5_000 {
                    if random.random_bool(0.5) {
                        pushed += u64::from(pusher.push(random.random_range(..queues), 9));
                    } else {
                        visit(&mut *finder);
                    }
                }
                while visit(&mut *finder) {}
                let all: u64 = taken.iter().map(|&count| u64::from(count)).sum();
                assert_eq!(all, pushed, "{strategy:?}, {queues} queues");
                assert_eq!(pusher.pushed(), pushed);
            }
        }
    }

    #[test]
    fn busy_queues_are_served_in_turn() {
        for strategy in Strategy::ALL {
            let Ends { mut pusher, mut finder } =
                set_up(strategy, 5, Layout::Packed).expect("made");
            for queue in 0..5 {
                assert!(pusher.push(queue, 0) && pusher.push(queue, 0));
            }
            let order: Vec<u32> = (0..10)
                .map(|_| {
                    let queue = finder.take().expect("there are ten").queue;
                    finder.settle(queue);
                    queue
                })
                .collect();
            assert_eq!(order, [0, 1, 2, 3, 4, 0, 1, 2, 3, 4], "{strategy:?}");
        }
    }

    #[test]
    fn what_cannot_be_set_up_is_refused_in_words() {
        for queues in [0, u32::MAX] {
            let refused = set_up(Strategy::Spin, queues, Layout::Packed).map(drop);
            let text = refused.expect_err("too many or none").to_string();
            assert!(text.contains("allowed are 1 to 65536"), "{text}");
        }
    }
}
