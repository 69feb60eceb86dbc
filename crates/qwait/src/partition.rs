//! Several sets, one per memory node or per core, whose consumers help each other out (the paper's
//! partitioned ready set, §IV-B and Figure 10, with the stealing that it lacks).
//!
//! ```
//! use std::sync::Arc;
//! use qwait::{Config, DoorbellRef, FutexSleeper, QueueId, ReadySets};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let sets = ReadySets::new(2, Config::default())?;
//! let producer = sets.get(1).expect("two sets").add(QueueId::new(7), DoorbellRef::new())?;
//! let mut consumer = sets.consumer(0, Arc::new(FutexSleeper::default()))?;
//! producer.ring();
//! let found = consumer.qwait();
//! assert_eq!((found.set, found.queue), (1, QueueId::new(7)));
//! assert_eq!(consumer.reconsider(found, 1), 0);
//! # Ok(()) }
//! ```
//!
//! A consumer looks at its own set first, and at the others in circular order from there only when
//! its own has nothing. A set that no consumer calls its own is served when somebody is idle.

use alloc::sync::Arc;
use alloc::vec::Vec;

use crate::idle::Sleeper;
use crate::set::{Config, QueueId, SetError};
use crate::shared::{SharedConsumer, SharedSet};
use crate::wait::Waits;

/// A queue of one of several sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SetQueue {
    /// Which set, from zero.
    pub set: u32,
    /// Which queue in it.
    pub queue: QueueId,
}

/// Sets of queues, each a [`SharedSet`].
#[derive(Clone, Debug)]
pub struct ReadySets {
    sets: Vec<SharedSet>,
}

impl ReadySets {
    /// So many sets (one at least), each as configured.
    ///
    /// # Errors
    /// [`SetError::BadCapacity`].
    pub fn new(sets: u32, config: Config) -> Result<Self, SetError> {
        let sets = (0..sets.max(1)).map(|_| SharedSet::new(config)).collect::<Result<_, _>>()?;
        Ok(Self { sets })
    }

    /// One of the sets: where to add queues.
    pub fn get(&self, set: u32) -> Option<&SharedSet> {
        self.sets.get(set as usize)
    }

    /// How many sets there are.
    pub fn len(&self) -> u32 {
        self.sets.len() as u32
    }

    /// Never: there is one set at least.
    pub fn is_empty(&self) -> bool {
        self.sets.is_empty()
    }

    /// A consumer at home in set `home` (modulo their number), which helps out in all others and
    /// sleeps on all of them at once.
    ///
    /// # Errors
    /// [`SetError::TooManyConsumers`]: each consumer counts in every set.
    pub fn consumer(
        &self,
        home: u32,
        sleeper: Arc<dyn Sleeper>,
    ) -> Result<StealingConsumer, SetError> {
        let home = home % self.len();
        let round = (home..self.len()).chain(0..home);
        let seats = round
            .map(|set| Ok((set, self.sets[set as usize].consumer_with(Arc::clone(&sleeper))?)))
            .collect::<Result<_, SetError>>()?;
        Ok(StealingConsumer { seats, sleeper })
    }
}

/// A consumer of several sets; see [`ReadySets`].
#[derive(Debug)]
pub struct StealingConsumer {
    /// In round order, from home.
    seats: Vec<(u32, SharedConsumer)>,
    sleeper: Arc<dyn Sleeper>,
}

impl StealingConsumer {
    /// `QWAIT` that does not block: a queue of the own set if one is ready, else of the next that has
    /// one. The consumer owns it until it reconsiders.
    #[inline]
    pub fn try_qwait(&mut self) -> Option<SetQueue> {
        let found = self.seats.iter_mut().enumerate().find_map(|(turn, (set, consumer))| {
            consumer.try_qwait().map(|queue| (turn, SetQueue { set: *set, queue }))
        });
        let (turn, found) = found?;
        // Sets that were not looked at: if one of them had woken this consumer, somebody else must go.
        for (_, unseen) in &mut self.seats[turn + 1..] {
            unseen.pass_baton_unseen();
        }
        Some(found)
    }

    /// `QWAIT` on the own set only: for a consumer that must not steal at present.
    #[inline]
    pub fn try_qwait_home(&mut self) -> Option<SetQueue> {
        let (set, consumer) = self.seats.first_mut()?;
        consumer.try_qwait().map(|queue| SetQueue { set: *set, queue })
    }

    fn seat(&mut self, set: u32) -> Option<&mut SharedConsumer> {
        let (home, sets) = (self.seats.first()?.0, self.seats.len() as u32);
        if set >= sets {
            return None;
        }
        // In round order from home.
        let turn = (set + sets - home) % sets;
        self.seats.get_mut(turn as usize).map(|(_, consumer)| consumer)
    }

    /// `QWAIT-VERIFY`: see [`SharedConsumer::verify`].
    #[inline]
    pub fn verify(&mut self, at: SetQueue) -> u32 {
        self.seat(at.set).map_or(0, |consumer| consumer.verify(at.queue))
    }

    /// `QWAIT-RECONSIDER`: see [`SharedConsumer::reconsider`].
    #[inline]
    pub fn reconsider(&mut self, at: SetQueue, items: u32) -> u32 {
        self.seat(at.set).map_or(0, |consumer| consumer.reconsider(at.queue, items))
    }

    /// True where nothing was ready in any set a moment ago. Two cache lines a set.
    #[inline]
    pub fn is_empty_hint(&self) -> bool {
        self.seats.iter().all(|(_, consumer)| consumer.is_empty_hint())
    }
}

impl Waits for StealingConsumer {
    type Found = SetQueue;
    fn look(&mut self) -> Option<SetQueue> {
        self.try_qwait()
    }
    fn sleeper(&self) -> &dyn Sleeper {
        &*self.sleeper
    }
    fn spin_looks(&self) -> u32 {
        self.seats.first().map_or(0, |(_, consumer)| consumer.spin_looks)
    }
    /// Arms every set in turn; if one has work, disarms the earlier ones in reverse order.
    fn announce(&mut self) -> bool {
        for turn in 0..self.seats.len() {
            if !self.seats[turn].1.announce() {
                self.seats[..turn].iter_mut().rev().for_each(|(_, consumer)| consumer.withdraw());
                return false;
            }
        }
        true
    }
    fn withdraw(&mut self) {
        self.seats.iter_mut().rev().for_each(|(_, consumer)| consumer.withdraw());
    }
}

#[cfg(all(test, feature = "std", not(loom)))]
mod tests {
    use super::*;
    use crate::{DoorbellRef, SpinSleeper};

    fn at(set: u32, queue: u32) -> SetQueue {
        SetQueue { set, queue: QueueId::new(queue) }
    }

    #[test]
    fn the_own_set_comes_first_then_the_others_in_round_order() {
        let sets = ReadySets::new(3, Config::default()).expect("made");
        let producers: Vec<_> = (0..3)
            .map(|set| {
                let set = sets.get(set).expect("three");
                set.add(QueueId::new(5), DoorbellRef::new()).expect("added")
            })
            .collect();
        for producer in &producers {
            assert!(producer.ring_many(2));
        }
        let mut consumer = sets.consumer(1, Arc::new(SpinSleeper)).expect("joins");
        let order: Vec<_> = core::iter::from_fn(|| consumer.try_qwait()).collect();
        assert_eq!(order, [at(1, 5), at(2, 5), at(0, 5)]);
        assert_eq!(consumer.reconsider(at(2, 5), 1), 1, "one left");
        assert_eq!(consumer.reconsider(at(1, 5), 2), 0);
        assert_eq!(consumer.try_qwait_home(), None, "its own has nothing");
        assert_eq!(consumer.try_qwait(), Some(at(2, 5)));
        assert_eq!((consumer.verify(at(2, 5)), consumer.verify(at(9, 5))), (1, 0));
        assert_eq!(consumer.reconsider(at(9, 5), 1), 0, "no such set: nothing happens");
    }

    /// A sleeper that only counts.
    #[derive(Debug, Default)]
    struct Counts(core::sync::atomic::AtomicU32);

    impl Sleeper for Counts {
        fn token(&self) -> u32 {
            self.0.load(core::sync::atomic::Ordering::Relaxed)
        }
        fn sleep(&self, _: u32, _: Option<core::time::Duration>) {}
        fn wake(&self) {
            self.0.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn a_wake_up_for_a_set_that_is_not_looked_at_is_passed_on() {
        let sets = ReadySets::new(2, Config::default()).expect("made");
        let add = |set| {
            let set: &SharedSet = sets.get(set).expect("two");
            set.add(QueueId::new(0), DoorbellRef::new()).expect("added")
        };
        let (home, remote) = (add(0), add(1));
        let (near, far) = (Arc::new(Counts::default()), Arc::new(Counts::default()));
        let mut first = sets.consumer(0, near.clone()).expect("joins");
        let mut second = sets.consumer(1, far.clone()).expect("joins");
        assert_eq!((first.try_qwait(), second.try_qwait()), (None, None));
        assert!(first.arm() && second.arm(), "nothing to do");
        remote.ring();
        assert_eq!((near.token(), far.token()), (1, 0), "one is woken");
        home.ring();
        first.disarm();
        assert_eq!(first.try_qwait(), Some(at(0, 0)), "it serves its own set");
        assert!(far.token() > 0, "so the other must be woken for the remote one");
    }

    #[test]
    fn arming_withdraws_everywhere_where_one_set_has_work() {
        let sets = ReadySets::new(2, Config::default()).expect("made");
        let remote = sets.get(1).expect("two").add(QueueId::new(0), DoorbellRef::new());
        let sleeper = Arc::new(Counts::default());
        let mut consumer = sets.consumer(0, sleeper.clone()).expect("joins");
        assert_eq!(consumer.try_qwait(), None);
        let remote = remote.expect("added");
        assert!(consumer.is_empty_hint() && remote.ring() && !consumer.is_empty_hint());
        assert!(!consumer.arm(), "there is work in set 1");
        let home = sets.get(0).expect("two").add(QueueId::new(0), DoorbellRef::new());
        assert!(home.expect("added").ring());
        assert_eq!(sleeper.token(), 0, "it does not count as asleep in set 0");
    }
}
