//! What of a server is in use, what it has drawn, and what its background job has got done.

use super::model::ServerModel;
use control::{Clock, Found};

/// Adds up what a server draws, and what its background job gets done.
#[derive(Debug, Clone)]
pub struct Meter {
    /// The clock of the server's cores.
    pub clock: Clock,
    /// Of each core: threads that run.
    pub beside: Vec<usize>,
    /// Cores that the background job has, the last ones.
    pub background: u32,
    joules: f64,
    background_s: f64,
    /// How warm Turbo has made the processor, from 0 to 1.
    heat: f64,
}

impl Meter {
    /// Of a server of so many cores, none of whose threads is counted yet.
    pub fn new(cores: u32, found: &Found) -> Self {
        let (clock, beside) = (found.clock, vec![0; cores as usize]);
        let background = found.background_cores;
        Self { clock, beside, background, joules: 0.0, background_s: 0.0, heat: 0.0 }
    }

    /// Counts the threads that run, given by their cores.
    pub fn count(&mut self, running: impl Iterator<Item = usize>) {
        self.beside.fill(0);
        running.for_each(|core| self.beside[core] += 1);
    }

    /// So many seconds in which `used` answers the share of time for which a core's threads, given their number, have
    /// packets.
    pub fn pass(&mut self, model: &ServerModel, seconds: f64, used: impl Fn(usize, usize) -> f64) {
        let (power, machine) = (&model.power, model.machine());
        let Self { clock, ref beside, background, .. } = *self;
        let ghz = model.ghz(clock);
        let mut watts = power.static_watts;
        for (core, &threads) in beside.iter().enumerate() {
            // The background job's are busy with one thread each.
            let works = core + background as usize >= beside.len();
            if threads == 0 && !works {
                continue;
            }
            let used = if works { 1.0 } else { used(core, threads) };
            let one = power.core_watts(&machine, clock, ghz, used);
            watts += one * power.threads_factor(threads > 1);
        }
        let target = if clock == Clock::Turbo { 1.0 } else { 0.0 };
        self.heat += (target - self.heat) * (seconds / power.turbo_heat_s.max(seconds));
        if clock == Clock::Turbo {
            watts += power.turbo_heat_watts * self.heat;
        }
        self.joules += watts * seconds;
        self.background_s += model.background(background, clock) * seconds;
    }

    /// What has added up since the last call: joules, and the background job's throughput over that on a dedicated
    /// processor at the nominal clock, times seconds.
    pub fn take(&mut self) -> (f64, f64) {
        (std::mem::take(&mut self.joules), std::mem::take(&mut self.background_s))
    }
}
