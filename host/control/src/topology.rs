//! What a machine has, read from sysfs: processors, cores, hyperthreads, sockets, and domains of one clock.
//!
//! ```no_run
//! use control::Topology;
//! use std::path::Path;
//! let topology = Topology::read(Path::new("/sys"))?;
//! for cpu in topology.allocation_order() {
//!     // cores first, the socket of the first one before the others; then hyperthreads
//! }
//! # Ok::<(), control::sysfs::FileError>(())
//! ```
//!
//! Nothing is ever written here. Clocks that cannot be set are no error: the machine then has none
//! ([`Topology::machine`]).

use std::path::{Path, PathBuf};

use crate::configuration::Machine;
use crate::control_loop::Place;
use crate::sysfs::{FileError, malformed, read, read_cpus, read_number};

/// Drivers that take any clock between two ends round to a multiple of this, in kilohertz.
const STEP_KHZ: u32 = 100_000;
/// Most clocks of a domain that are reckoned with.
const CLOCKS_MAX: usize = 256;

/// A hardware thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cpu {
    /// Its number in Linux.
    pub id: u32,
    /// Its socket.
    pub package: u32,
    /// Its core, unique in its socket only.
    pub core: u32,
    /// Which of the core's threads it is, from 0.
    pub sibling: u32,
}

/// Processors that share one clock setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClockDomain {
    /// Its directory.
    pub directory: PathBuf,
    /// Whose clock it sets.
    pub cpus: Vec<u32>,
    /// Clocks that can be set, ascending, in kilohertz; the last one is the nominal one.
    pub clocks_khz: Vec<u32>,
}

/// See the module's comment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Topology {
    /// All that are online, by their number.
    pub cpus: Vec<Cpu>,
    /// Domains with at least one of them.
    pub domains: Vec<ClockDomain>,
    /// The switch of Turbo, where there is one.
    pub boost: Option<BoostSwitch>,
}

/// How Turbo is turned off and on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BoostSwitch {
    /// Its file.
    pub path: PathBuf,
    /// What stands in it while Turbo is allowed.
    pub on: &'static str,
    /// And while it is not.
    pub off: &'static str,
}

impl Topology {
    /// Reads the tree under `root`, which is `/sys` but in tests.
    ///
    /// # Errors
    /// A file that must be there and is not, or says something else than it should.
    pub fn read(root: &Path) -> Result<Self, FileError> {
        let base = root.join("devices/system/cpu");
        let online = base.join("online");
        let ids = read_cpus(&online, "which processors are online")?;
        if ids.is_empty() {
            return Err(malformed(&online, "", "at least one processor was expected"));
        }
        let mut cpus = Vec::with_capacity(ids.len());
        for &id in &ids {
            cpus.push(read_cpu(&base, id)?);
        }
        let domains = read_domains(&base, &ids)?;
        Ok(Self { cpus, domains, boost: find_boost(&base) })
    }

    /// Only these processors: those that a service may have.
    pub fn restricted_to(&self, cpus: &[u32]) -> Self {
        let mut some = self.clone();
        some.cpus.retain(|cpu| cpus.contains(&cpu.id));
        some.domains.retain(|domain| domain.cpus.iter().any(|cpu| cpus.contains(cpu)));
        some
    }

    /// Cores, as (socket, core), in order.
    fn cores(&self) -> Vec<(u32, u32)> {
        let mut cores: Vec<(u32, u32)> = self.cpus.iter().map(|c| (c.package, c.core)).collect();
        cores.sort_unstable();
        cores.dedup();
        cores
    }

    /// Processors in the order in which they are granted: cores first, then hyperthreads (IX §5.4); the cores
    /// of one socket before those of the next.
    pub fn allocation_order(&self) -> Vec<u32> {
        self.in_order().into_iter().map(|(cpu, _)| cpu).collect()
    }

    /// Where each elastic thread runs, in the same order.
    pub fn places(&self) -> Vec<Place> {
        self.in_order().into_iter().map(|(_, place)| place).collect()
    }

    fn in_order(&self) -> Vec<(u32, Place)> {
        let cores = self.cores();
        let mut all: Vec<(u32, u32, u32)> = self
            .cpus
            .iter()
            .filter_map(|cpu| {
                let core = cores.binary_search(&(cpu.package, cpu.core)).ok()?;
                // Of a core whose first thread the service may not have, the second is the first.
                let of_core = |other: &&Cpu| (other.package, other.core) == (cpu.package, cpu.core);
                let before = self.cpus.iter().filter(of_core).filter(|o| o.sibling < cpu.sibling);
                Some((before.count() as u32, core as u32, cpu.id))
            })
            .collect();
        all.sort_unstable();
        all.into_iter().map(|(sibling, core, id)| (id, Place { core, sibling })).collect()
    }

    /// The dimensions of its configurations. Clocks are those that all domains can have; none where a processor
    /// has no domain.
    pub fn machine(&self) -> Machine {
        let threads_per_core =
            self.places().iter().map(|place| place.sibling + 1).max().unwrap_or(1);
        let all_set = self
            .cpus
            .iter()
            .all(|cpu| self.domains.iter().any(|domain| domain.cpus.contains(&cpu.id)));
        let mut clocks_khz = match (all_set, self.domains.first()) {
            (true, Some(first)) => first.clocks_khz.clone(),
            _ => Vec::new(),
        };
        clocks_khz.retain(|khz| self.domains.iter().all(|domain| domain.clocks_khz.contains(khz)));
        Machine {
            cores: self.cores().len() as u32,
            threads_per_core,
            turbo: self.boost.is_some() && !clocks_khz.is_empty(),
            clocks_khz,
        }
    }
}

fn read_cpu(base: &Path, id: u32) -> Result<Cpu, FileError> {
    let topology = base.join(format!("cpu{id}/topology"));
    let package = read_number(&topology.join("physical_package_id"), "its socket")?;
    let core = read_number(&topology.join("core_id"), "its core")?;
    let list = topology.join("thread_siblings_list");
    let siblings = read_cpus(&list, "the hyperthreads of its core")?;
    let Some(sibling) = siblings.iter().position(|&sibling| sibling == id) else {
        let found = crate::sysfs::show_cpus(&siblings);
        return Err(malformed(&list, &found, "the processor itself was expected in the list"));
    };
    Ok(Cpu { id, package, core, sibling: sibling as u32 })
}

/// Domains stand as `cpufreq/policyN`; where there is no such directory, no clock can be set.
fn read_domains(base: &Path, online: &[u32]) -> Result<Vec<ClockDomain>, FileError> {
    let Ok(entries) = std::fs::read_dir(base.join("cpufreq")) else {
        return Ok(Vec::new());
    };
    let mut numbers: Vec<u32> = entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.strip_prefix("policy")?.parse().ok())
        .collect();
    numbers.sort_unstable();
    let mut domains = Vec::new();
    for number in numbers {
        let directory = base.join(format!("cpufreq/policy{number}"));
        let cpus = read_cpus(&directory.join("affected_cpus"), "whose clock it is")?;
        if cpus.iter().any(|cpu| online.contains(cpu)) {
            let clocks_khz = read_clocks(&directory)?;
            domains.push(ClockDomain { directory, cpus, clocks_khz });
        }
    }
    Ok(domains)
}

fn read_clocks(directory: &Path) -> Result<Vec<u32>, FileError> {
    let list = directory.join("scaling_available_frequencies");
    match read(&list, "the clocks that can be set") {
        Ok(text) => {
            let numbers: Option<Vec<u32>> =
                text.split_whitespace().map(|n| n.parse().ok()).collect();
            let mut clocks = numbers
                .filter(|clocks| !clocks.is_empty() && clocks.len() <= CLOCKS_MAX)
                .ok_or_else(|| malformed(&list, &text, "clocks in kHz were expected"))?;
            clocks.sort_unstable();
            clocks.dedup();
            // acpi-cpufreq shows Turbo as a clock 1 MHz over the nominal one.
            if let [.., nominal, last] = clocks[..]
                && last == nominal + 1_000
            {
                clocks.pop();
            }
            Ok(clocks)
        }
        Err(FileError::Missing { .. }) => clocks_between_the_ends(directory),
        Err(error) => Err(error),
    }
}

/// Drivers of the kind of `intel_pstate` have no list: they take anything between two ends.
fn clocks_between_the_ends(directory: &Path) -> Result<Vec<u32>, FileError> {
    let low = read_number(&directory.join("cpuinfo_min_freq"), "the lowest clock")?;
    let path = directory.join("cpuinfo_max_freq");
    let mut high = read_number(&path, "the highest clock")?;
    match read_number(&directory.join("base_frequency"), "the nominal clock") {
        Ok(base) => high = high.min(base),
        Err(FileError::Missing { .. }) => {}
        Err(error) => return Err(error),
    }
    if low == 0 || low > high {
        let found = format!("{high}, under the lowest clock of {low}");
        return Err(malformed(&path, &found, "a clock over the lowest was expected"));
    }
    let mut clocks: Vec<u32> = (low..=high).step_by(STEP_KHZ as usize).take(CLOCKS_MAX).collect();
    if clocks.last() != Some(&high) {
        clocks.push(high);
    }
    Ok(clocks)
}

fn find_boost(base: &Path) -> Option<BoostSwitch> {
    let switches = [
        BoostSwitch { path: base.join("cpufreq/boost"), on: "1", off: "0" },
        BoostSwitch { path: base.join("intel_pstate/no_turbo"), on: "0", off: "1" },
    ];
    switches.into_iter().find(|switch| {
        let found = read(&switch.path, "whether Turbo is allowed");
        found.is_ok_and(|found| found == switch.on || found == switch.off)
    })
}

/// Fake machines for the tests of this and other modules.
#[cfg(test)]
pub(crate) mod fake {
    use crate::sysfs::fake::Root;

    /// Sockets, cores of each, threads of each; numbered as Linux does: all first threads, then the second.
    pub fn machine(packages: u32, cores: u32, threads: u32) -> Root {
        let root = Root::new(&[]);
        let base = "devices/system/cpu";
        let all = packages * cores;
        root.put(&format!("{base}/online"), &format!("0-{}", all * threads - 1));
        for id in 0..all * threads {
            let (core, first) = (id % cores, id % all);
            let topology = format!("{base}/cpu{id}/topology");
            root.put(&format!("{topology}/physical_package_id"), &(first / cores).to_string());
            root.put(&format!("{topology}/core_id"), &core.to_string());
            let siblings: Vec<String> =
                (0..threads).map(|t| (first + t * all).to_string()).collect();
            root.put(&format!("{topology}/thread_siblings_list"), &siblings.join(","));
        }
        root
    }

    /// With one clock domain for each core's threads, or one for all.
    pub fn with_clocks(root: &Root, cpus: &[&str], list: Option<&str>) {
        for (number, cpus) in cpus.iter().enumerate() {
            let policy = format!("devices/system/cpu/cpufreq/policy{number}");
            root.put(&format!("{policy}/affected_cpus"), cpus);
            root.put(&format!("{policy}/cpuinfo_min_freq"), "1200000");
            root.put(&format!("{policy}/cpuinfo_max_freq"), "3100000");
            root.put(&format!("{policy}/base_frequency"), "2400000");
            root.put(&format!("{policy}/scaling_min_freq"), "1200000");
            root.put(&format!("{policy}/scaling_max_freq"), "3100000");
            root.put(&format!("{policy}/scaling_governor"), "powersave");
            if let Some(list) = list {
                root.put(&format!("{policy}/scaling_available_frequencies"), list);
            }
        }
        root.put("devices/system/cpu/cpufreq/boost", "1");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cores_come_before_hyperthreads() {
        let root = fake::machine(2, 2, 2);
        let topology = Topology::read(root.path()).unwrap();
        assert_eq!(topology.allocation_order(), [0, 1, 2, 3, 4, 5, 6, 7]);
        let places = topology.places();
        assert_eq!(
            (places[3], places[5]),
            (Place { core: 3, sibling: 0 }, Place { core: 1, sibling: 1 },)
        );
        let machine = topology.machine();
        assert_eq!((machine.cores, machine.threads_per_core), (4, 2));
        assert!(machine.clocks_khz.is_empty() && !machine.turbo);
        machine.validate().unwrap();
        // Only one thread of core 1, the other socket's cores whole.
        let some = topology.restricted_to(&[5, 2, 6, 3, 7]);
        assert_eq!(some.allocation_order(), [5, 2, 3, 6, 7]);
        assert_eq!(some.places()[0], Place { core: 0, sibling: 0 });
    }

    #[test]
    fn clocks_are_read_from_the_list_or_between_the_ends() {
        let root = fake::machine(1, 2, 1);
        fake::with_clocks(&root, &["0", "1"], Some("2401000 2400000 1800000 1200000"));
        let topology = Topology::read(root.path()).unwrap();
        assert_eq!(topology.machine().clocks_khz, [1_200_000, 1_800_000, 2_400_000]);
        assert!(topology.machine().turbo);
        let root = fake::machine(1, 2, 1);
        fake::with_clocks(&root, &["0 1"], None);
        let machine = Topology::read(root.path()).unwrap().machine();
        assert_eq!(machine.clocks_khz.len(), 13, "1.2 to 2.4 GHz: {:?}", machine.clocks_khz);
        machine.validate().unwrap();
        // A processor without a domain: no clock that holds for all.
        let root = fake::machine(1, 2, 1);
        fake::with_clocks(&root, &["0"], None);
        assert!(Topology::read(root.path()).unwrap().machine().clocks_khz.is_empty());
    }

    #[test]
    fn turbo_has_two_kinds_of_switches() {
        let root = fake::machine(1, 1, 1);
        let boost = |root: &crate::sysfs::fake::Root| Topology::read(root.path()).unwrap().boost;
        assert_eq!(boost(&root), None);
        root.put("devices/system/cpu/intel_pstate/no_turbo", "0");
        assert_eq!(boost(&root).map(|switch| switch.on), Some("0"));
        root.put("devices/system/cpu/cpufreq/boost", "1");
        assert_eq!(boost(&root).map(|switch| switch.on), Some("1"));
    }

    #[test]
    fn missing_and_malformed_files_are_named() {
        let error =
            |root: &crate::sysfs::fake::Root| Topology::read(root.path()).unwrap_err().to_string();
        assert!(error(&crate::sysfs::fake::Root::new(&[])).contains("cpu/online is not there"));
        let root = fake::machine(1, 2, 1);
        root.put("devices/system/cpu/cpu1/topology/core_id", "-1");
        assert!(error(&root).contains("cpu1/topology/core_id says \"-1\""), "{}", error(&root));
        let root = fake::machine(1, 2, 1);
        root.remove("devices/system/cpu/cpu1/topology/physical_package_id");
        assert!(error(&root).ends_with("physical_package_id is not there: its socket"));
        let root = fake::machine(1, 2, 1);
        root.put("devices/system/cpu/cpu0/topology/thread_siblings_list", "1");
        assert!(error(&root).contains("the processor itself was expected"));
        root.put("devices/system/cpu/online", "");
        assert!(error(&root).contains("at least one processor"));
        let root = fake::machine(1, 1, 1);
        fake::with_clocks(&root, &["0"], Some("fast slow"));
        assert!(error(&root).contains("clocks in kHz were expected"));
        let root = fake::machine(1, 1, 1);
        fake::with_clocks(&root, &["0"], None);
        root.put("devices/system/cpu/cpufreq/policy0/cpuinfo_max_freq", "1000");
        assert!(error(&root).contains("a clock over the lowest was expected"));
    }

    #[test]
    fn this_machine_can_be_read() {
        let root = Path::new("/sys");
        if !root.join("devices/system/cpu/online").exists() {
            println!("not run: this machine shows no /sys/devices/system/cpu/online");
            return;
        }
        let topology = Topology::read(root).expect("a Linux machine shows its topology");
        topology.machine().validate().expect("it is a machine");
        assert_eq!(topology.allocation_order().len(), topology.cpus.len());
    }
}
