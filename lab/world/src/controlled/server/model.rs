//! The server's parameters, and what follows from them for a static configuration.

use serde::{Deserialize, Serialize};

use super::cost::MigrationCost;
use super::error::{ModelError, check};
use super::power::Power;
use control::{Clock, Configuration, Machine, Scaling};

/// The parameters of the paper's server, each with its source.
const IX: &str = include_str!("ix.toml");
/// ln 100: the tail at the 99th percentile.
const LN_100: f64 = 4.605_170_185_988_092;

/// What changing the configuration costs.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Reconfiguration {
    /// From the decision until the clock is another one, in microseconds.
    pub clock_us: f64,
    /// For how long the cores stand still meanwhile, in microseconds.
    pub clock_halt_us: f64,
    /// From the decision until a parked thread polls, in microseconds.
    pub wake_us: f64,
    /// A migration while threads are added (IX Table V).
    pub migration_add: MigrationCost,
    /// A migration while threads are removed.
    pub migration_remove: MigrationCost,
}

/// A server, its service and the service's objective. Sources of the paper's numbers: `ix.toml`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServerModel {
    /// What it is called in conditions.
    pub name: String,
    /// Cores of the socket.
    pub cores: u32,
    /// Hyperthreads of each.
    pub threads_per_core: u32,
    /// Clocks, in kilohertz, ascending; the last is the nominal one.
    pub clocks_khz: Vec<u32>,
    /// Whether it has Turbo Boost.
    pub turbo: bool,
    /// B: packets that one cycle takes at most.
    pub batch_max: u32,
    /// Entries of the RSS indirection table.
    pub flow_groups: u16,
    /// Connections, which hash onto the flow groups.
    pub connections: u32,
    /// Requests that may be under way on each.
    pub pipeline: u32,
    /// Throughput at the objective with all hyperthreads at the nominal clock, in requests per second.
    pub throughput_at_slo_rps: f64,
    /// The objective for the 99th percentile, in microseconds.
    pub slo_us: f64,
    /// The 99th percentile without load, in microseconds: what is not queueing.
    pub unloaded_p99_us: f64,
    /// Squared coefficient of variation of the service time.
    pub service_scv: f64,
    /// How throughput grows with resources.
    pub scaling: Scaling,
    /// What it draws.
    pub power: Power,
    /// What changes cost.
    pub reconfiguration: Reconfiguration,
}

impl ServerModel {
    /// IX's server with memcached and the USR workload (§5.3).
    pub fn ix() -> Self {
        Self::from_toml(IX).expect("a constant, and tested")
    }

    /// Reads parameters.
    ///
    /// # Errors
    /// One that is missing, unknown or out of its range.
    pub fn from_toml(text: &str) -> Result<Self, ModelError> {
        let model: Self =
            toml::from_str(text).map_err(|error| ModelError::Syntax(error.to_string()))?;
        model.validate()?;
        Ok(model)
    }

    /// As a file that [`from_toml`](Self::from_toml) reads.
    pub fn to_toml(&self) -> String {
        // A table of strings and numbers can always be written.
        toml::to_string(self).unwrap_or_default()
    }

    /// Checks every parameter.
    ///
    /// # Errors
    /// The first that is out of its range.
    pub fn validate(&self) -> Result<(), ModelError> {
        self.machine().validate()?;
        check("batch_max", self.batch_max.into(), 1.0, 1024.0, "1 to 1024")?;
        check("flow_groups", self.flow_groups.into(), 1.0, 4096.0, "1 to 4096")?;
        check("connections", self.connections.into(), 1.0, 1e7, "1 to 10000000")?;
        check("pipeline", self.pipeline.into(), 1.0, 1e4, "1 to 10000")?;
        check("throughput_at_slo_rps", self.throughput_at_slo_rps, 1.0, 1e9, "1 to 1e9")?;
        check("slo_us", self.slo_us, 1.0, 1e6, "1 to 1e6")?;
        let most = self.slo_us - 1.0;
        check("unloaded_p99_us", self.unloaded_p99_us, 0.0, most, "0 to slo_us - 1")?;
        check("service_scv", self.service_scv, 0.0, 100.0, "0 to 100")?;
        check("hyperthread_gain", self.scaling.hyperthread_gain, 0.1, 8.0, "0.1 to 8")?;
        check("turbo_gain", self.scaling.turbo_gain, 1.0, 4.0, "1 to 4")?;
        let Reconfiguration { clock_us, clock_halt_us, wake_us, .. } = self.reconfiguration;
        check("clock_us", clock_us, 0.0, 1e7, "0 to 1e7")?;
        check("clock_halt_us", clock_halt_us, 0.0, 1e6, "0 to 1e6")?;
        check("wake_us", wake_us, 0.0, 1e7, "0 to 1e7")?;
        self.power.validate()?;
        self.reconfiguration.migration_add.validate()?;
        self.reconfiguration.migration_remove.validate()
    }

    /// Its dimensions.
    pub fn machine(&self) -> Machine {
        Machine {
            cores: self.cores,
            threads_per_core: self.threads_per_core,
            clocks_khz: self.clocks_khz.clone(),
            turbo: self.turbo,
        }
    }

    /// Requests in a second that one core serves with one thread at the nominal clock, always busy: such that
    /// all hyperthreads reach the throughput at the objective.
    pub fn unit_rps(&self) -> f64 {
        let (threads, speed) = self.all_threads();
        (self.throughput_at_slo_rps + threads * self.headroom_rps()) / speed
    }

    /// All hyperthreads, and what they serve at the nominal clock over one of them alone on its core.
    fn all_threads(&self) -> (f64, f64) {
        let machine = self.machine();
        let all = Configuration { clock: machine.nominal_clock(), ..machine.maximum() };
        (f64::from(all.threads(&machine)), self.scaling.speed(&machine, &all))
    }

    /// What all hyperthreads serve within the objective at the nominal clock where a core with one thread serves
    /// `unit_rps` when it is always busy, in requests per second.
    pub(super) fn throughput_rps(&self, unit_rps: f64) -> f64 {
        let (threads, speed) = self.all_threads();
        unit_rps * speed - threads * self.headroom_rps()
    }

    /// This server with another service: one core serves so many requests in a second with one thread at the nominal
    /// clock, always busy.
    pub fn with_unit_rps(self, unit_rps: f64) -> Self {
        Self { throughput_at_slo_rps: self.throughput_rps(unit_rps), ..self }
    }

    /// What a thread must be able to serve beyond what it gets, so that its tail keeps the objective, in
    /// requests per second. In heavy traffic the sojourn time of M/G/1 has the tail
    /// exp(-2 (mu - lambda) t / (1 + scv)).
    pub fn headroom_rps(&self) -> f64 {
        let left_s = (self.slo_us - self.unloaded_p99_us) / 1e6;
        LN_100 * (1.0 + self.service_scv) / (2.0 * left_s)
    }

    /// The highest load at which a static configuration keeps the objective, evenly spread, in requests per
    /// second.
    pub fn capacity_rps(&self, configuration: &Configuration) -> f64 {
        let machine = self.machine();
        let threads = f64::from(configuration.threads(&machine));
        let busy = self.unit_rps() * self.scaling.speed(&machine, configuration);
        (busy - threads * self.headroom_rps()).max(0.0)
    }

    /// What a static configuration draws at a load that it serves, in watts. `heat` is how warm Turbo has made
    /// the processor, from 0 to 1: the paper's band of 4 W (§5.3).
    pub fn watts(&self, configuration: &Configuration, rps: f64, heat: f64) -> f64 {
        let machine = self.machine();
        let Configuration { cores, hyperthreads, clock } = *configuration;
        let busy = self.unit_rps() * self.scaling.speed(&machine, configuration);
        let used = if busy > 0.0 { (rps / busy).clamp(0.0, 1.0) } else { 0.0 };
        let core = self.power.core_watts(&machine, clock, self.ghz(clock), used);
        let core = core * self.power.threads_factor(hyperthreads);
        let turbo = if clock == Clock::Turbo { self.power.turbo_heat_watts } else { 0.0 };
        self.power.static_watts + f64::from(cores) * core + turbo * heat
    }

    /// A clock in gigahertz; Turbo's is what it serves over the nominal clock's.
    pub(super) fn ghz(&self, clock: Clock) -> f64 {
        let nominal = self.clocks_khz.last().map_or(1.0, |&khz| f64::from(khz) / 1e6);
        nominal * self.scaling.clock_ratio(&self.machine(), clock)
    }

    /// The background job's throughput with so many cores, over that on all of them at the nominal clock
    /// ([`Scaling::background`]).
    pub fn background(&self, cores: u32, clock: Clock) -> f64 {
        self.scaling.background(&self.machine(), cores, clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_papers_numbers_come_out() {
        let model = ServerModel::ix();
        let machine = model.machine();
        assert_eq!(machine, Machine::ix());
        let nominal = Configuration { clock: machine.nominal_clock(), ..machine.maximum() };
        assert!((model.capacity_rps(&nominal) - 5_817_000.0).abs() < 1.0, "Table III");
        // §5.4: the patterns go up to 6.2 M requests/s, which the maximum serves.
        assert!(model.capacity_rps(&machine.maximum()) > 6_200_000.0);
        let watts = model.watts(&machine.maximum(), 3_100_000.0, 0.7);
        assert!((90.0..=98.0).contains(&watts), "Table IV: 92 to 94 W, ours when hot {watts}");
        let least = Configuration { cores: 1, hyperthreads: false, clock: machine.lowest_clock() };
        assert!(model.watts(&least, 0.0, 0.0) < 20.0);
        assert_eq!(model.background(7, machine.nominal_clock()), 0.875);
        assert_eq!(ServerModel::from_toml(&model.to_toml()).unwrap(), model);
    }

    #[test]
    fn parameters_that_no_server_has_are_refused() {
        let with = |change: fn(&mut ServerModel)| {
            let mut model = ServerModel::ix();
            change(&mut model);
            model.validate().unwrap_err().to_string()
        };
        assert!(with(|m| m.slo_us = f64::NAN).contains("slo_us is NaN"));
        assert!(with(|m| m.unloaded_p99_us = 500.0).contains("unloaded_p99_us is 500"));
        assert!(with(|m| m.cores = 0).contains("number of cores is 0"));
        assert!(with(|m| m.power.static_watts = -1.0).contains("static_watts"));
        assert!(with(|m| m.reconfiguration.migration_add.p95_us = 1.0).contains("p95_us"));
        assert!(with(|m| m.scaling.turbo_gain = 0.5).contains("turbo_gain"));
        assert!(ServerModel::from_toml("name = 'x'").unwrap_err().to_string().contains("missing"));
        assert_eq!(ServerModel::ix().ghz(Clock::Khz(1_200_000)), 1.2);
        let other = ServerModel::ix().with_unit_rps(100_000.0);
        assert!((other.unit_rps() - 100_000.0).abs() < 1e-6);
    }
}
