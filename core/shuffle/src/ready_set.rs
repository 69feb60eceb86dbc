//! The shuffle queues in their shared form: not one for each core but one for each *class* of connections,
//! for all cores, and a service policy that says which class is served next.
//!
//! ```
//! use shuffle::{MAX_CLASSES, ReadySet, ServicePolicy};
//! # fn main() -> Result<(), shuffle::SetError> {
//! let ready = ReadySet::new(2, ServicePolicy::StrictPriority, &[1; MAX_CLASSES], 64)?;
//! let mut taker = ready.taker()?; // One for each core.
//! ready.publish(1, Box::new("urgent enough")).expect("room");
//! ready.publish(0, Box::new("urgent")).expect("room");
//! assert_eq!(ready.take(&mut taker).as_deref(), Some(&"urgent"));
//! assert_eq!(ready.take(&mut taker).as_deref(), Some(&"urgent enough"));
//! assert!(ready.take(&mut taker).is_none());
//! # Ok(()) }
//! ```
//!
//! The queues are the sources of one `qwait::SharedSet` (HyperPlane §III): who publishes a turn rings its
//! class's doorbell; a core asks the set which class is next (`try_qwait`), takes one turn of it, and gives
//! the class back (`reconsider`) before it runs the turn, so that cores run turns of one class at the same
//! time. The set's own sleepers are not used: [`ShuffleLayer`](crate::ShuffleLayer) wakes cores, for all they wait for.
//!
//! A class is one core's for as long as it takes a turn out; who looks in that moment is given another class,
//! or nothing, and looks again in its next cycle. So under strict priority two cores that look at the very
//! same moment take one turn of the first class and one of the next, where there were two of the first.

use alloc::boxed::Box;
use alloc::sync::Arc;

use qwait::{
    Config, DoorbellRef, Producer, QueueId, ServicePolicy, SetError, SharedConsumer, SharedSet,
    SpinSleeper,
};

use crate::sync::{Mutant, mutated};
use crate::unsafe_ring::Ring;

/// Most classes of connections.
pub const MAX_CLASSES: usize = 8;

/// The turns of one class.
#[derive(Debug)]
struct ClassQueue<T> {
    turns: Ring<Box<T>>,
    bell: Producer,
}

/// See the module's comment.
#[derive(Debug)]
pub struct ReadySet<T> {
    queues: Box<[ClassQueue<T>]>,
    set: SharedSet,
}

/// One core's place in the order of service: the policy's cursor is each core's own.
#[derive(Debug)]
pub struct Taker {
    consumer: SharedConsumer,
}

impl<T> ReadySet<T> {
    /// Queues for `classes` classes (1 to [`MAX_CLASSES`]) of `capacity` turns each. `weights`: how many
    /// turns of a class are taken in a row under [`ServicePolicy::WeightedRoundRobin`].
    ///
    /// # Errors
    /// [`SetError::ZeroWeight`].
    pub fn new(
        classes: usize,
        policy: ServicePolicy,
        weights: &[u32; MAX_CLASSES],
        capacity: usize,
    ) -> Result<Self, SetError> {
        let classes = classes.clamp(1, MAX_CLASSES) as u32;
        let set = SharedSet::new(Config { capacity: classes, policy, ..Config::default() })?;
        let queue = |class| {
            let bell = set.add(QueueId::new(class), DoorbellRef::new())?;
            set.control().set_weight(QueueId::new(class), weights[class as usize])?;
            Ok(ClassQueue { turns: Ring::new(capacity), bell })
        };
        let queues = (0..classes).map(queue).collect::<Result<_, SetError>>()?;
        Ok(Self { queues, set })
    }

    /// A place for one more core.
    ///
    /// # Errors
    /// [`SetError::TooManyConsumers`]: there are [`MAX_CORES`](crate::MAX_CORES) already.
    pub fn taker(&self) -> Result<Taker, SetError> {
        // It never sleeps in the set.
        Ok(Taker { consumer: self.set.consumer_with(Arc::new(SpinSleeper))? })
    }

    /// A turn of this class is ready; that of a class that there is not counts for the last one.
    ///
    /// # Errors
    /// The turn comes back where the class's queue is full: keep it, and try again.
    #[inline]
    pub fn publish(&self, class: usize, turn: Box<T>) -> Result<(), Box<T>> {
        let queue = &self.queues[class.min(self.queues.len() - 1)];
        queue.turns.push(turn)?;
        queue.bell.ring();
        Ok(())
    }

    /// The oldest turn of the class that is next by the policy.
    #[inline]
    pub fn take(&self, taker: &mut Taker) -> Option<Box<T>> {
        let consumer = &mut taker.consumer;
        // Classes, a bit each, that have a turn which nobody can have yet: one before it is still being put
        // there, by somebody who was interrupted. They are held until another class was found, so that the
        // set does not answer the same one again.
        let mut unfinished = 0u32;
        let taken = loop {
            let Some(class) = consumer.try_qwait() else { break None };
            match self.queues[class.get() as usize].turns.pop() {
                Some(turn) => {
                    // Before it runs: the next turn of the class is another core's (HyperPlane Algorithm 1,
                    // line 18).
                    consumer.reconsider(class, 1);
                    break Some(turn);
                }
                None => unfinished |= 1 << class.get(),
            }
        };
        while unfinished != 0 {
            let class = QueueId::new(unfinished.trailing_zeros());
            unfinished &= unfinished - 1;
            consumer.reconsider(class, u32::from(mutated(Mutant::CountsUntaken)));
        }
        taken
    }

    /// Whether there was nothing to take a moment ago.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.queues.iter().all(|queue| queue.turns.is_empty())
    }

    /// Turns that wait, of all classes, as far as one look shows.
    pub fn len(&self) -> usize {
        self.queues.iter().map(|queue| queue.turns.len()).sum()
    }
}
