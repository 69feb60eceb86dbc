//! Which elastic threads the cores run.
//!
//! The simulator drives anything that implements [`Elastic`]. A scheduler says how its threads are made
//! from the parts of each core, and what an idle one of them looks at.

use std::sync::Arc;

use clock::Instant;
use dataplane::{
    Classes, ConservingConfig, ConservingThread, Elastic, ElasticConfig, ElasticThread, Floor,
    Parts, ReadySetConfig,
};
use stack::Shared;

use crate::port::VirtualNic;

/// What the elastic threads of a server are made of.
pub struct CoreParts {
    /// What all of them share.
    pub shared: Arc<Shared>,
    /// Each core's queue pair, its packet memory (all pools are of one region) and its ends of the forwarding rings, in
    /// the order of the cores.
    pub cores: Vec<Parts<VirtualNic>>,
    /// Settings, the batch bound among them.
    pub config: ElasticConfig,
    /// The beginning of the simulation.
    pub now: Instant,
}

/// What an idle core looks at each time that it polls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looks {
    /// At its own queue, mailbox and timers only.
    AtItsOwn,
    /// At what other cores have made of theirs, too; at their receive queues from time to time, as
    /// [`Elastic::looks_again`] says.
    Everywhere,
}

/// A way of making elastic threads. See the module's comment.
pub trait Scheduler {
    /// One elastic thread.
    type Thread: Elastic;

    /// As conditions print it.
    fn name(&self) -> &'static str;

    /// What its idle cores look at.
    fn looks(&self) -> Looks {
        Looks::Everywhere
    }

    /// The threads of all cores, in order.
    fn threads(&self, parts: CoreParts) -> Vec<Self::Thread>;
}

/// IX: each core serves what its own queue brings, nothing crosses cores.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct RunToCompletion;

impl Scheduler for RunToCompletion {
    type Thread = ElasticThread<VirtualNic>;

    fn name(&self) -> &'static str {
        "run-to-completion"
    }

    fn looks(&self) -> Looks {
        Looks::AtItsOwn
    }

    fn threads(&self, parts: CoreParts) -> Vec<Self::Thread> {
        let CoreParts { shared, cores, config, now } = parts;
        let thread = |(core, Parts { queues, pool, ports })| {
            ElasticThread::new(core as u8, Arc::clone(&shared), queues, pool, ports, config, now)
        };
        cores.into_iter().enumerate().map(thread).collect()
    }
}

/// ZygOS, with IX's batches where nobody waits: no core idles while a request waits anywhere.
#[derive(Debug, Clone, Copy, Default)]
pub struct WorkConserving {
    /// How the cores share their work.
    pub config: ConservingConfig,
}

impl Scheduler for WorkConserving {
    type Thread = ConservingThread<VirtualNic>;

    fn name(&self) -> &'static str {
        "work-conserving"
    }

    fn threads(&self, parts: CoreParts) -> Vec<Self::Thread> {
        let CoreParts { shared, cores, config, now } = parts;
        Floor::threads(&shared, cores, config, self.config, now)
    }
}

impl WorkConserving {
    /// The same with one ready set for all cores, which is served by classes.
    pub fn by_class(self, classes: Classes) -> ReadySet {
        ReadySet { config: ReadySetConfig { sharing: self.config, classes } }
    }
}

/// HyperPlane's ready set for all cores: the class that a service policy says is served next.
#[derive(Debug, Clone, Default)]
pub struct ReadySet {
    /// How the cores share their work, and which connections are of which class.
    pub config: ReadySetConfig,
}

impl Scheduler for ReadySet {
    type Thread = ConservingThread<VirtualNic>;

    fn name(&self) -> &'static str {
        "ready-set"
    }

    fn threads(&self, parts: CoreParts) -> Vec<Self::Thread> {
        let CoreParts { shared, cores, config, now } = parts;
        // No threads where the set cannot be made: whoever asked for them finds out that they are missing.
        Floor::ready_set(&shared, cores, config, &self.config, now).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use dataplane::ServicePolicy;
    use queueing::Law;

    use super::*;
    use crate::cores::{Costs, Outcome, Run, Setup, simulate};

    /// Work for six tenths of the cores, of lengths that differ widely: a queue for each core grows long
    /// where another core is idle, and a set for all does not.
    #[test]
    #[cfg_attr(miri, ignore = "maps memory files")]
    fn a_ready_set_leaves_no_core_idle() {
        let set = WorkConserving::default().by_class(Classes::new(ServicePolicy::RoundRobin));
        assert_eq!((set.name(), set.looks()), ("ready-set", Looks::Everywhere));
        let costs = Costs { cycle: 50.0, receive: 200.0, transmit: 200.0, ..Costs::zero() };
        let setup =
            Setup { cores: 4, connections: 256, ..Setup::zygos(costs, Law::Bimodal1, 20.0) };
        let run = Run::new(0.6, 20_000);
        let p99 = |outcome: &Outcome| outcome.latency_us(0.99);
        let shared = simulate(&set, &setup, &run).expect("a valid run");
        let apart = simulate(&RunToCompletion, &setup, &run).expect("a valid run");
        let conserving = simulate(&WorkConserving::default(), &setup, &run).expect("a valid run");
        assert_eq!(shared.latency_ns.count(), shared.due);
        assert!(shared.counts.iter().all(|counts| counts.steals > 0 && counts.turns > 0));
        let (shared, apart, conserving) = (p99(&shared), p99(&apart), p99(&conserving));
        println!("p99 in us: shared {shared}, conserving {conserving}, apart {apart}");
        assert!(shared < 0.75 * apart, "shared {shared}, apart {apart}");
        assert!(shared < 1.2 * conserving, "shared {shared}, conserving {conserving}");
    }
}
