//! Resource configurations: cores, hyperthreads and clock (IX §5.3), and what each is predicted to be worth.
//!
//! ```
//! use control::{Clock, Configuration, Machine, Scaling};
//! let machine = Machine::ix(); // the Xeon E5-2665 of IX §5.1
//! assert_eq!(machine.configurations().len(), 224);
//! let one = Configuration { cores: 1, hyperthreads: false, clock: machine.nominal_clock() };
//! let both = Configuration { hyperthreads: true, ..one };
//! let scaling = Scaling::ix();
//! assert!((scaling.speed(&machine, &both) / scaling.speed(&machine, &one) - 1.3).abs() < 1e-9);
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

/// Most cores of a machine: more than any socket has, and a bound for what a file may ask for.
pub const CORES_MAX: u32 = 1_024;

/// How fast the granted cores run. IX sets the whole socket (§5.4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "toml::Value", into = "String")]
pub enum Clock {
    /// The machine does not let it be set.
    Fixed,
    /// That many kilohertz, one of the machine's steps.
    Khz(u32),
    /// As fast as power and temperature allow, above the nominal clock.
    Turbo,
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed => f.write_str("fixed"),
            Self::Khz(khz) => write!(f, "{:.1} GHz", f64::from(*khz) / 1e6),
            Self::Turbo => f.write_str("turbo"),
        }
    }
}

impl From<Clock> for String {
    fn from(clock: Clock) -> Self {
        match clock {
            Clock::Khz(khz) => format!("{khz} kHz"),
            other => other.to_string(),
        }
    }
}

impl TryFrom<toml::Value> for Clock {
    type Error = String;
    fn try_from(value: toml::Value) -> Result<Self, String> {
        let allowed = "write a number of kilohertz, \"turbo\" or \"fixed\"";
        match value {
            toml::Value::Integer(khz) => u32::try_from(khz)
                .ok()
                .filter(|&khz| khz > 0)
                .map(Self::Khz)
                .ok_or_else(|| format!("the clock is {khz}; {allowed}")),
            toml::Value::String(word) => match word.as_str() {
                "turbo" => Ok(Self::Turbo),
                "fixed" => Ok(Self::Fixed),
                _ => word
                    .strip_suffix(" kHz")
                    .and_then(|khz| khz.parse().ok())
                    .filter(|&khz| khz > 0)
                    .map(Self::Khz)
                    .ok_or_else(|| format!("the clock is \"{word}\"; {allowed}")),
            },
            other => Err(format!("the clock is a {}; {allowed}", other.type_str())),
        }
    }
}

/// What the latency-sensitive service may use: one static configuration of IX §5.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Configuration {
    /// Cores granted.
    pub cores: u32,
    /// Whether every granted core runs all of its hyperthreads; else it runs one.
    pub hyperthreads: bool,
    /// Their clock.
    pub clock: Clock,
}

impl Configuration {
    /// Elastic threads that run.
    pub fn threads(&self, machine: &Machine) -> u32 {
        self.cores * if self.hyperthreads { machine.threads_per_core } else { 1 }
    }
}

impl fmt::Display for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let threads = if self.hyperthreads { " with hyperthreads" } else { "" };
        let s = if self.cores == 1 { "" } else { "s" };
        write!(f, "{} core{s}{threads}, {}", self.cores, self.clock)
    }
}

/// The dimensions in which configurations differ.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Machine {
    /// Cores that may be granted.
    pub cores: u32,
    /// Hardware threads of each.
    pub threads_per_core: u32,
    /// Clocks that can be set, in kilohertz, ascending; the last is the nominal one. Empty where none can.
    pub clocks_khz: Vec<u32>,
    /// Whether there is a Turbo mode that can be turned on and off.
    pub turbo: bool,
}

/// A machine that there cannot be: what of it, what was found, what is allowed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct MachineError(pub(crate) String);

impl Machine {
    /// IX's server: eight cores with two hyperthreads, 1.2 to 2.4 GHz by 100 MHz, Turbo Boost (§5.1, §5.3).
    pub fn ix() -> Self {
        let clocks_khz = (12..=24).map(|tenth| tenth * 100_000).collect();
        Self { cores: 8, threads_per_core: 2, clocks_khz, turbo: true }
    }

    /// Checks every dimension.
    ///
    /// # Errors
    /// The first that no machine has.
    pub fn validate(&self) -> Result<(), MachineError> {
        let Self { cores, threads_per_core, clocks_khz, turbo } = self;
        let ascending = clocks_khz.is_sorted_by(|a, b| a < b);
        let wrong = if !(1..=CORES_MAX).contains(cores) {
            format!("number of cores is {cores}; allowed: 1 to {CORES_MAX}")
        } else if !(1..=8).contains(threads_per_core) {
            format!("threads per core is {threads_per_core}; allowed: 1 to 8")
        } else if !ascending || clocks_khz.first() == Some(&0) {
            format!("list of clocks is {clocks_khz:?}; allowed: kilohertz, ascending, over 0")
        } else if *turbo && clocks_khz.is_empty() {
            "Turbo is on without clocks; allowed: Turbo only where clocks can be set".to_owned()
        } else {
            return Ok(());
        };
        Err(MachineError(wrong))
    }

    /// The slowest clock.
    pub fn lowest_clock(&self) -> Clock {
        self.clocks_khz.first().map_or(Clock::Fixed, |&khz| Clock::Khz(khz))
    }

    /// The fastest clock that is not Turbo.
    pub fn nominal_clock(&self) -> Clock {
        self.clocks_khz.last().map_or(Clock::Fixed, |&khz| Clock::Khz(khz))
    }

    /// The fastest clock there is.
    pub fn fastest_clock(&self) -> Clock {
        if self.turbo { Clock::Turbo } else { self.nominal_clock() }
    }

    /// All clocks, the slowest first.
    pub fn clocks(&self) -> Vec<Clock> {
        if self.clocks_khz.is_empty() {
            return vec![Clock::Fixed];
        }
        let steps = self.clocks_khz.iter().map(|&khz| Clock::Khz(khz));
        steps.chain(self.turbo.then_some(Clock::Turbo)).collect()
    }

    /// All static configurations of IX §5.3: 224 on its server.
    pub fn configurations(&self) -> Vec<Configuration> {
        let mut all = Vec::new();
        let threads: &[bool] = if self.threads_per_core > 1 { &[false, true] } else { &[false] };
        for cores in 1..=self.cores {
            for &hyperthreads in threads {
                let of = |clock| Configuration { cores, hyperthreads, clock };
                all.extend(self.clocks().into_iter().map(of));
            }
        }
        all
    }

    /// The most that there is.
    pub fn maximum(&self) -> Configuration {
        Configuration {
            cores: self.cores,
            hyperthreads: self.threads_per_core > 1,
            clock: self.fastest_clock(),
        }
    }
}

/// How throughput grows with resources: the "predictable level of throughput" of a change (IX §4.6).
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Scaling {
    /// A core's throughput with all of its hyperthreads over that with one.
    pub hyperthread_gain: f64,
    /// Throughput with Turbo over that at the nominal clock.
    pub turbo_gain: f64,
}

impl Scaling {
    /// IX's observations: linear in cores, 1.3 x with the second hyperthread (§5.4), and Turbo's throughput
    /// such that a tenth of it is idle before Turbo, which is what the authors' IXCP reckons with.
    pub fn ix() -> Self {
        Self { hyperthread_gain: 1.3, turbo_gain: 1.0 / 0.9 }
    }

    /// A clock's speed over the nominal one's.
    pub fn clock_ratio(&self, machine: &Machine, clock: Clock) -> f64 {
        match (clock, machine.clocks_khz.last()) {
            (Clock::Khz(khz), Some(&nominal)) => f64::from(khz) / f64::from(nominal),
            (Clock::Turbo, _) => self.turbo_gain,
            (Clock::Fixed | Clock::Khz(_), _) => 1.0,
        }
    }

    /// Throughput in units of one core with one thread at the nominal clock.
    pub fn speed(&self, machine: &Machine, configuration: &Configuration) -> f64 {
        let gain = if configuration.hyperthreads { self.hyperthread_gain } else { 1.0 };
        f64::from(configuration.cores) * gain * self.clock_ratio(machine, configuration.clock)
    }

    /// The background job's throughput with so many cores, over that on all of them at the nominal clock: linear
    /// in cores and clock, nothing from hyperthreads (IX §5.4).
    pub fn background(&self, machine: &Machine, cores: u32, clock: Clock) -> f64 {
        f64::from(cores) / f64::from(machine.cores) * self.clock_ratio(machine, clock)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_machine_of_the_paper_has_its_224_configurations() {
        let machine = Machine::ix();
        machine.validate().unwrap();
        let all = machine.configurations();
        assert_eq!(all.len(), 8 * 2 * 14);
        assert_eq!(machine.maximum().to_string(), "8 cores with hyperthreads, turbo");
    }

    #[test]
    fn a_machine_without_clocks_still_has_configurations() {
        let machine =
            Machine { cores: 2, threads_per_core: 1, clocks_khz: Vec::new(), turbo: false };
        machine.validate().unwrap();
        assert_eq!(machine.configurations().len(), 2);
        let two = machine.maximum();
        assert_eq!((two.clock, Scaling::ix().speed(&machine, &two)), (Clock::Fixed, 2.0));
    }

    #[test]
    fn machines_that_there_cannot_be_are_refused() {
        let wrong = |change: fn(&mut Machine)| {
            let mut machine = Machine::ix();
            change(&mut machine);
            machine.validate().unwrap_err().to_string()
        };
        assert!(wrong(|m| m.cores = 0).contains("allowed: 1 to"));
        assert!(wrong(|m| m.threads_per_core = 0).contains("threads per core is 0"));
        assert!(wrong(|m| m.clocks_khz = vec![2, 1]).contains("ascending"));
        assert!(wrong(|m| m.clocks_khz.clear()).contains("Turbo only where"));
    }
}
