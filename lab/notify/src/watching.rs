//! Consumers that ask a ready set: HyperPlane's Algorithm 1, in software.

use std::sync::Arc;

use qwait::{
    Config, DoorbellRef, ExclusiveSet, QueueId, ServicePolicy, SetError, SharedConsumer, SharedSet,
    SpinSleeper,
};

use crate::finder::Finder;
use crate::queue::{Bell, Rings};
use crate::work::Item;

fn config(queues: u32) -> Config {
    Config { capacity: queues, policy: ServicePolicy::RoundRobin, spin_looks: 0 }
}

/// One consumer with a set of its own.
pub(crate) struct Exclusive {
    rings: Arc<Rings>,
    set: ExclusiveSet,
}

impl Exclusive {
    /// Over the queues from `first` on, as many as there are doorbells.
    pub(crate) fn new(
        rings: &Arc<Rings>,
        first: u32,
        bells: Vec<DoorbellRef>,
    ) -> Result<(Self, Vec<Bell>), SetError> {
        let mut set = ExclusiveSet::with_sleeper(config(rings.count()), Arc::new(SpinSleeper))?;
        let add = |(queue, bell)| set.add(QueueId::new(queue), bell).map(Bell::Watched);
        let bells = (first..).zip(bells).map(add).collect::<Result<_, _>>()?;
        // Every queue is activated once when it is added; these first visits find nothing.
        while let Some(queue) = set.try_qwait() {
            set.verify(queue);
        }
        Ok((Self { rings: Arc::clone(rings), set }, bells))
    }
}

impl Finder for Exclusive {
    #[inline]
    fn take(&mut self) -> Option<Item> {
        loop {
            let queue = self.set.try_qwait()?;
            // A spurious wake-up arms the queue, so each turn has one ready queue less.
            if self.set.verify(queue) > 0 {
                return Some(self.rings.dequeue(queue.get()));
            }
        }
    }

    #[inline]
    fn settle(&mut self, queue: u32) {
        self.set.reconsider(QueueId::new(queue), 1);
    }
}

/// One of the consumers of a shared set.
pub(crate) struct Shared {
    rings: Arc<Rings>,
    consumer: SharedConsumer,
}

impl Shared {
    /// The first consumer of a set over all queues, for others to join.
    pub(crate) fn new(
        rings: &Arc<Rings>,
        bells: Vec<DoorbellRef>,
    ) -> Result<(Self, SharedSet, Vec<Bell>), SetError> {
        let set = SharedSet::new(config(rings.count()))?;
        let add = |(queue, bell)| set.add(QueueId::new(queue), bell).map(Bell::Watched);
        let bells = (0..).zip(bells).map(add).collect::<Result<_, _>>()?;
        let mut this = Self::of(rings, &set)?;
        // Takes the activations that come with adding queues.
        while let Some(queue) = this.consumer.try_qwait() {
            this.consumer.reconsider(queue, 0);
        }
        Ok((this, set, bells))
    }

    /// One more consumer of a set that has `rings` for its queues.
    pub(crate) fn of(rings: &Arc<Rings>, set: &SharedSet) -> Result<Self, SetError> {
        let consumer = set.consumer_with(Arc::new(SpinSleeper))?;
        Ok(Self { rings: Arc::clone(rings), consumer })
    }
}

impl Finder for Shared {
    #[inline]
    fn take(&mut self) -> Option<Item> {
        // Whoever gets a queue here owns it, and it has work.
        let queue = self.consumer.try_qwait()?.get();
        Some(self.rings.dequeue(queue))
    }

    #[inline]
    fn settle(&mut self, queue: u32) {
        self.consumer.reconsider(QueueId::new(queue), 1);
    }
}
