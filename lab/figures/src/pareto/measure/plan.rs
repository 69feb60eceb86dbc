//! What is to be measured of a machine, and how.

use std::path::PathBuf;

use load::WorkloadConfig;
use world::controlled::pareto::Objective;

use service::config::App;

/// What to measure, and how.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The service.
    pub app: App,
    /// What it is asked.
    pub workload: WorkloadConfig,
    /// The bound of the 99th percentile, in microseconds.
    pub slo_us: f64,
    /// Seconds of each window.
    pub seconds: f64,
    /// Connections of the load.
    pub connections: u32,
    /// Seed of arrivals and choices.
    pub seed: u64,
    /// What is to be saved.
    pub objective: Objective,
    /// Where sysfs shows the machine.
    pub sys: PathBuf,
    /// The load generator's processors; half of the cores where nothing is said.
    pub client_cpus: Option<Vec<u32>>,
}

impl Plan {
    /// The service whose requests say how long they take, under its usual load.
    ///
    /// # Errors
    /// The workload has no such name; a test keeps that from a release.
    pub fn usual() -> anyhow::Result<Self> {
        Ok(Self {
            app: App::Spin,
            workload: WorkloadConfig::named("spin:exponential:20")?,
            slo_us: 500.0,
            seconds: 1.0,
            connections: 64,
            seed: 1,
            objective: Objective::Energy,
            sys: PathBuf::from("/sys"),
            client_cpus: None,
        })
    }
}

/// Tells how far it is.
pub type Progress<'a> = &'a mut dyn FnMut(&str);
