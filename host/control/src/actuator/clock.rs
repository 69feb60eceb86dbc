//! Clocks, through cpufreq: both ends of the allowed range at the same step, and the switch of Turbo.
//!
//! ```no_run
//! use control::actuator::Cpufreq;
//! use control::{Clock, Topology};
//! use std::path::Path;
//! let topology = Topology::read(Path::new("/sys"))?;
//! let mut clocks = Cpufreq::new(&topology)?; // or what is missing
//! clocks.set(Clock::Khz(1_200_000))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ``` // here everything is as it was

use std::path::{Path, PathBuf};

use super::settings::Settings;
use super::{ActuatorError, Missing, refused};
use crate::configuration::Clock;
use crate::sysfs::{FileError, read_number, set};
use crate::topology::{BoostSwitch, Topology};

/// One domain's files.
#[derive(Debug)]
struct Domain {
    directory: PathBuf,
    nominal_khz: u32,
    /// What was found: the ends of the range.
    found_khz: (u32, u32),
}

/// See the module's comment.
#[derive(Debug)]
pub struct Cpufreq {
    domains: Vec<Domain>,
    boost: Option<BoostSwitch>,
    settings: Settings,
    restored: bool,
}

const MIN: &str = "scaling_min_freq";
const MAX: &str = "scaling_max_freq";
const RANGE: &str = "the range of clocks that is allowed";

impl Cpufreq {
    /// For all domains of a topology.
    ///
    /// # Errors
    /// There is none whose clock can be set; or a file is malformed.
    pub fn new(topology: &Topology) -> Result<Self, ActuatorError> {
        let missing = |looked_at: Vec<PathBuf>| Missing {
            what: "clocks that can be set (cpufreq)",
            looked_at,
            costs: "cores and hyperthreads can be granted, their clock stays as it is",
        };
        if topology.domains.is_empty() {
            return Err(missing(vec![PathBuf::from("devices/system/cpu/cpufreq/policy*")]).into());
        }
        let mut domains = Vec::new();
        for domain in &topology.domains {
            let directory = domain.directory.clone();
            let end = |file: &str| match read_number(&directory.join(file), RANGE) {
                Err(FileError::Missing { path, .. }) => Err(missing(vec![path]).into()),
                found => found.map_err(ActuatorError::from),
            };
            let found_khz = (end(MIN)?, end(MAX)?);
            let nominal_khz = domain.clocks_khz.last().copied().unwrap_or(found_khz.1);
            domains.push(Domain { directory, nominal_khz, found_khz });
        }
        let boost = topology.boost.clone();
        // Nothing was set: nothing is to be put back.
        Ok(Self { domains, boost, settings: Settings::default(), restored: true })
    }

    /// Sets the clock of all domains.
    ///
    /// # Errors
    /// The machine has no such clock, or did not take it.
    pub fn set(&mut self, clock: Clock) -> Result<(), ActuatorError> {
        self.restored = false;
        match clock {
            Clock::Fixed => Err(refused(
                "setting the clock \"fixed\"".to_owned(),
                "this is the clock of machines whose clock cannot be set",
            )),
            Clock::Khz(khz) => {
                self.allow_turbo(false)?;
                for domain in &self.domains {
                    set_range(&domain.directory, khz, khz)?;
                }
                Ok(())
            }
            Clock::Turbo => {
                self.allow_turbo(true)?;
                for domain in &self.domains {
                    let highest = domain.directory.join("cpuinfo_max_freq");
                    let highest = read_number(&highest, "the highest clock")?;
                    let least = domain.nominal_khz.min(highest);
                    set_range(&domain.directory, least, highest)?;
                }
                Ok(())
            }
        }
    }

    fn allow_turbo(&mut self, allowed: bool) -> Result<(), ActuatorError> {
        let Some(switch) = &self.boost else {
            if allowed {
                let missing = Missing {
                    what: "switch of Turbo",
                    looked_at: vec!["cpufreq/boost".into(), "intel_pstate/no_turbo".into()],
                    costs: "the nominal clock is the fastest",
                };
                return Err(missing.into());
            }
            return Ok(());
        };
        let text = if allowed { switch.on } else { switch.off };
        self.settings.set_exactly(&switch.path, text, "whether Turbo is allowed")?;
        Ok(())
    }

    /// Puts the ranges and the switch back as they were found.
    pub fn restore(&mut self) -> Vec<FileError> {
        if std::mem::replace(&mut self.restored, true) {
            return Vec::new();
        }
        // Some drivers refuse ranges beyond the nominal clock while Turbo is off.
        let mut errors = self.settings.restore();
        for domain in &self.domains {
            let (min, max) = domain.found_khz;
            errors.extend(set_range(&domain.directory, min, max).err());
        }
        errors
    }
}

/// The kernel refuses a lower end over the upper one: whichever comes first must leave them in order.
fn set_range(directory: &Path, min_khz: u32, max_khz: u32) -> Result<(), FileError> {
    let (min, max) = (directory.join(MIN), directory.join(MAX));
    let one = |path: &Path, khz: u32| {
        let text = khz.to_string();
        set(path, &text, RANGE, |found| found == text)
    };
    if max_khz >= read_number(&min, RANGE)? {
        one(&max, max_khz)?;
        one(&min, min_khz)
    } else {
        one(&min, min_khz)?;
        one(&max, max_khz)
    }
}

impl Drop for Cpufreq {
    fn drop(&mut self) {
        // Nobody is left to be told; who wants to know calls `restore`.
        let _ = self.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::topology::fake;

    const POLICY: &str = "devices/system/cpu/cpufreq/policy0";
    const BOOST: &str = "devices/system/cpu/cpufreq/boost";

    #[test]
    fn both_ends_follow_and_all_is_put_back() {
        let root = fake::machine(1, 2, 2);
        fake::with_clocks(&root, &["0-1", "2-3"], None);
        let range = || {
            let end = |file| root.get(&format!("{POLICY}/{file}"));
            (end(MIN), end(MAX), root.get(BOOST))
        };
        let is = |min: &str, max: &str, boost: &str| {
            assert_eq!(range(), (min.to_owned(), max.to_owned(), boost.to_owned()));
        };
        {
            let mut clocks = Cpufreq::new(&Topology::read(root.path()).unwrap()).unwrap();
            clocks.set(Clock::Khz(1_200_000)).unwrap();
            is("1200000", "1200000", "0");
            clocks.set(Clock::Khz(2_400_000)).unwrap();
            is("2400000", "2400000", "0");
            clocks.set(Clock::Turbo).unwrap();
            is("2400000", "3100000", "1");
            assert!(clocks.set(Clock::Fixed).is_err());
            clocks.set(Clock::Khz(1_300_000)).unwrap();
            assert_eq!(root.get("devices/system/cpu/cpufreq/policy1/scaling_max_freq"), "1300000");
        }
        is("1200000", "3100000", "1");
    }

    #[test]
    fn who_has_set_nothing_puts_nothing_back() {
        let root = fake::machine(1, 2, 1);
        fake::with_clocks(&root, &["0-1"], None);
        let clocks = Cpufreq::new(&Topology::read(root.path()).unwrap()).unwrap();
        root.put(&format!("{POLICY}/{MAX}"), "1500000");
        drop(clocks);
        assert_eq!(root.get(&format!("{POLICY}/{MAX}")), "1500000", "somebody else has set it");
    }

    #[test]
    fn what_is_missing_is_said() {
        let root = fake::machine(1, 2, 1);
        let error = Cpufreq::new(&Topology::read(root.path()).unwrap()).unwrap_err();
        assert!(matches!(error, ActuatorError::Missing(_)));
        assert!(error.to_string().contains("looked at devices/system/cpu/cpufreq"), "{error}");
        fake::with_clocks(&root, &["0-1"], None);
        root.remove(&format!("{POLICY}/{MIN}"));
        let error = Cpufreq::new(&Topology::read(root.path()).unwrap()).unwrap_err();
        assert!(error.to_string().contains(MIN), "{error}");
        root.put(&format!("{POLICY}/{MIN}"), "1200000");
        root.remove(BOOST);
        let mut clocks = Cpufreq::new(&Topology::read(root.path()).unwrap()).unwrap();
        clocks.set(Clock::Khz(1_200_000)).unwrap();
        let error = clocks.set(Clock::Turbo).unwrap_err().to_string();
        assert!(error.contains("no switch of Turbo"), "{error}");
        assert!(error.contains("the nominal clock is the fastest"), "{error}");
    }
}
