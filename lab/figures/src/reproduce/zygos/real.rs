//! Two elastic threads on two real cores, joined to their client by shared memory: what the simulator is held
//! against.

use std::sync::Arc;

use measure::{Kept, Plan, QUIET, contest, watched};
use queueing::Law;
use runtime::ConservingConfig;
use tailplane::Duration;
use world::cores::{Costs, Replay, Run, Setup};
use world::two_cores::{self, Arrivals, Found, Scheduler};

use super::systems::System;

/// Connections of the client, and requests that one of them may have unanswered.
const CONNECTIONS: u32 = 64;
const DEPTH: u32 = 4;
/// One window: both threads run before all others meanwhile.
const WINDOW: Duration = Duration::from_millis(400);
/// Between two windows, for the rest of the machine.
const PAUSE: std::time::Duration = std::time::Duration::from_millis(150);
/// Windows that are tried for each that is wanted.
const TRIES: usize = 4;

/// One load on real threads.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Requests in a second, times their mean service time: 1 for each core is all that two cores could do.
    pub cores: f64,
    /// The mean service time, exponentially distributed, in microseconds.
    pub mean_us: f64,
    /// All connections are at home on one of the two.
    pub one_sided: bool,
    /// Stealing, or run to completion.
    pub stealing: bool,
}

impl Load {
    fn config(&self, seed: u64) -> two_cores::Config {
        let scheduler = match self.stealing {
            true => Scheduler::WorkConserving(ConservingConfig::default()),
            false => Scheduler::RunToCompletion,
        };
        two_cores::Config {
            scheduler,
            connections: CONNECTIONS,
            one_sided: self.one_sided,
            arrivals: Arrivals::Open {
                rate: self.cores * 1e6 / self.mean_us,
                span: WINDOW,
                depth: DEPTH,
            },
            service_ns: self.mean_us * 1e3,
            realtime: true,
            seed,
        }
    }
}

/// Runs `count` windows of `load`: those that nothing disturbed or, where there was none, the others.
///
/// # Errors
/// There are no two processors, no memory, no privilege to run before others; a request was answered out of
/// order, or not.
pub fn windows(load: &Load, count: usize, seed: u64) -> anyhow::Result<Kept<Found>> {
    let plan = Plan { windows: count, tries: count * TRIES, pause: PAUSE, quiet: QUIET, seed };
    let mut number = 0;
    let mut kept = contest(&mut [()], plan, |()| {
        let config = load.config(queueing::replication_seed(seed, number));
        number += 1;
        let (found, disturbance) = watched(&[], || two_cores::run(&config))?;
        anyhow::ensure!(
            found.out_of_order + found.failures == 0,
            "requests were answered out of order or not at all: {found:?}"
        );
        Ok((found, disturbance))
    })?;
    Ok(kept.swap_remove(0))
}

/// The median and the 99th percentile that the simulator predicts for a window of `load`, in microseconds: for
/// the very requests of that window, at the moments when they were on the wire, and with cores that something
/// else had (the client, or another guest of the host) at those times for as long.
///
/// # Errors
/// A setting out of its range; a simulation that broke a promise.
pub fn simulated(
    load: &Load,
    system: &System,
    costs: &Costs,
    found: &Found,
) -> anyhow::Result<[f64; 2]> {
    let replay =
        Replay { requests: found.asked.clone(), interruptions: found.interruptions.clone() };
    let setup = Setup {
        cores: 2,
        connections: CONNECTIONS as usize,
        pipeline: DEPTH as usize,
        wire_ns: 0,
        replay: Some(Arc::new(replay)),
        ..system.setup(costs, Law::Exponential, load.mean_us)
    };
    let outcome = system.run(&setup, &Run::new(load.cores / 2.0, 1))?;
    Ok([outcome.latency_us(0.5), outcome.latency_us(0.99)])
}
