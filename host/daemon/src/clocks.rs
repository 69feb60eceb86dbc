//! Clocks for several services on one machine: each wishes one, and the fastest of them is set (IX §5.4 sets that of
//! the whole socket).
//!
//! Everything is put back when the daemon ends. Where it was killed, the next one finds in its records what the files
//! said before, and puts them back first.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::rc::Rc;

use control::actuator::{ActuatorError, Cpufreq};
use control::sysfs;
use control::{Clock, Topology};

use crate::records::{Before, Records};

/// The record of what files said before.
const RECORD: &str = "clocks";

/// The clocks of a machine; shared by the services' [`ClockHand`]s.
pub struct Clocks {
    topology: Topology,
    records: Records,
    /// One for each set of domains, in the order in which they were needed first.
    setters: Vec<Cpufreq>,
    /// Domains that have one.
    covered: Vec<PathBuf>,
    wishes: BTreeMap<String, Clock>,
    in_force: Option<Clock>,
}

impl Clocks {
    /// Of a machine. What an earlier daemon left set is put back; errors of that are in the second part.
    pub fn new(topology: Topology, records: Records) -> (Rc<RefCell<Self>>, Vec<String>) {
        let errors = put_back(&records);
        let this = Self {
            topology,
            records,
            setters: Vec::new(),
            covered: Vec::new(),
            wishes: BTreeMap::new(),
            in_force: None,
        };
        (Rc::new(RefCell::new(this)), errors)
    }

    /// The clock that is in force, where one was set.
    pub fn in_force(&self) -> Option<Clock> {
        self.in_force
    }

    /// Takes domains in that these processors are in and nobody needed yet.
    fn cover(&mut self, cpus: &[u32]) -> Result<(), ActuatorError> {
        let mut needed = self.topology.restricted_to(cpus);
        needed.domains.retain(|domain| !self.covered.contains(&domain.directory));
        if needed.domains.is_empty() && !self.covered.is_empty() {
            return Ok(());
        }
        let setter = Cpufreq::new(&needed)?;
        self.remember(&needed);
        self.covered.extend(needed.domains.iter().map(|domain| domain.directory.clone()));
        self.setters.push(setter);
        self.in_force = None;
        Ok(())
    }

    /// Writes down what the files say, before any of them is set.
    fn remember(&self, needed: &Topology) {
        let ends = |directory: &PathBuf| {
            ["scaling_min_freq", "scaling_max_freq"].map(|end| directory.join(end))
        };
        let mut paths: Vec<PathBuf> =
            needed.domains.iter().flat_map(|domain| ends(&domain.directory)).collect();
        paths.extend(needed.boost.as_ref().map(|switch| switch.path.clone()));
        let mut before: Vec<Before> = self.records.read(RECORD).ok().flatten().unwrap_or_default();
        for path in paths {
            let known = before.iter().any(|known| known.path == path);
            if let (false, Ok(text)) = (known, sysfs::read(&path, "what is to be put back")) {
                before.push(Before { path, text });
            }
        }
        // Without the record a daemon that is killed leaves the clocks as they are: no reason to leave them now.
        let _ = self.records.write(RECORD, &before);
    }

    fn apply(&mut self) -> Result<(), ActuatorError> {
        let Some(&fastest) = self.wishes.values().max() else { return Ok(()) };
        if self.in_force == Some(fastest) {
            return Ok(());
        }
        self.in_force = None;
        for setter in &mut self.setters {
            setter.set(fastest)?;
        }
        self.in_force = Some(fastest);
        Ok(())
    }

    /// A service wishes nothing any more. When nobody does, everything is put back.
    pub fn withdraw(&mut self, service: &str) {
        if self.wishes.remove(service).is_none() {
            return;
        }
        // Nobody is there to be told; the record says what remains, and the next wish sets all anew.
        if self.wishes.is_empty() {
            let _ = self.restore();
        } else {
            let _ = self.apply();
        }
    }

    /// Puts everything back: what cannot be is said.
    pub fn restore(&mut self) -> Vec<String> {
        let mut errors = Vec::new();
        // The latest first: it has seen what the earlier ones had set.
        while let Some(mut setter) = self.setters.pop() {
            errors.extend(setter.restore().iter().map(ToString::to_string));
        }
        self.covered.clear();
        self.in_force = None;
        if errors.is_empty() {
            self.records.forget(RECORD);
        }
        errors
    }
}

impl Drop for Clocks {
    fn drop(&mut self) {
        // Nobody is left to be told; who wants to know calls `restore`.
        let _ = self.restore();
    }
}

/// Puts back what an earlier daemon had set. A range is two files of which the lower end may never be over the upper
/// one, so what is refused is tried once more when the others are done.
fn put_back(records: &Records) -> Vec<String> {
    let before: Vec<Before> = match records.read(RECORD) {
        Ok(before) => before.unwrap_or_default(),
        Err(error) => return vec![error.to_string()],
    };
    let set = |one: &Before| sysfs::write(&one.path, &one.text, "what is to be put back");
    let refused: Vec<&Before> = before.iter().filter(|one| set(one).is_err()).collect();
    let errors: Vec<String> =
        refused.into_iter().filter_map(|one| set(one).err()).map(|e| e.to_string()).collect();
    if errors.is_empty() {
        records.forget(RECORD);
    }
    errors
}

/// One service's wish.
pub struct ClockHand {
    clocks: Rc<RefCell<Clocks>>,
    service: String,
    cpus: Vec<u32>,
}

impl ClockHand {
    /// Of a service on these processors.
    pub fn new(clocks: &Rc<RefCell<Clocks>>, service: &str, cpus: Vec<u32>) -> Self {
        Self { clocks: Rc::clone(clocks), service: service.to_owned(), cpus }
    }

    /// Wishes this clock, from now on.
    ///
    /// # Errors
    /// The machine has no such clock, or did not take it.
    pub fn set(&mut self, clock: Clock) -> Result<(), ActuatorError> {
        let mut clocks = self.clocks.borrow_mut();
        clocks.cover(&self.cpus)?;
        clocks.wishes.insert(self.service.clone(), clock);
        clocks.apply()
    }
}

impl Drop for ClockHand {
    fn drop(&mut self) {
        self.clocks.borrow_mut().withdraw(&self.service);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake::Directory;

    const POLICY: &str = "sys/devices/system/cpu/cpufreq/policy0";

    fn clocks(directory: &Directory) -> (Rc<RefCell<Clocks>>, Vec<String>) {
        let topology = Topology::read(&directory.path().join("sys")).expect("a machine");
        Clocks::new(topology, Records::new(&directory.path().join("daemon")))
    }

    fn range(directory: &Directory) -> [String; 2] {
        ["scaling_min_freq", "scaling_max_freq"]
            .map(|end| directory.get(&format!("{POLICY}/{end}")))
    }

    #[test]
    fn the_fastest_wish_is_set_and_all_is_put_back() {
        let directory = Directory::new("clocks");
        directory.machine(2, true);
        let (clocks, errors) = clocks(&directory);
        assert!(errors.is_empty());
        let mut kv = ClockHand::new(&clocks, "kv", vec![0]);
        let mut echo = ClockHand::new(&clocks, "echo", vec![1]);
        kv.set(Clock::Khz(1_000_000)).expect("set");
        assert_eq!(range(&directory), ["1000000", "1000000"]);
        echo.set(Clock::Khz(2_000_000)).expect("set");
        kv.set(Clock::Khz(1_000_000)).expect("set");
        assert_eq!(range(&directory), ["2000000", "2000000"]);
        drop(echo);
        assert_eq!(range(&directory), ["1000000", "1000000"]);
        drop(kv);
        assert_eq!(range(&directory), ["1000000", "2000000"]);
        assert!(!directory.path().join("daemon/clocks.json").exists());
    }

    #[test]
    fn a_daemon_that_was_killed_left_a_record() {
        let directory = Directory::new("clocks");
        directory.machine(2, true);
        let (first, _) = clocks(&directory);
        let mut kv = ClockHand::new(&first, "kv", vec![0]);
        kv.set(Clock::Khz(1_000_000)).expect("set");
        // Killed: nothing is dropped.
        std::mem::forget((kv, first));
        assert_eq!(range(&directory), ["1000000", "1000000"]);
        let (second, errors) = clocks(&directory);
        assert!(errors.is_empty(), "{errors:?}");
        assert_eq!(range(&directory), ["1000000", "2000000"]);
        let mut kv = ClockHand::new(&second, "kv", vec![0]);
        kv.set(Clock::Khz(2_000_000)).expect("set");
        drop(kv);
        assert_eq!(range(&directory), ["1000000", "2000000"]);
    }

    #[test]
    fn clocks_that_there_are_not_are_said() {
        let directory = Directory::new("clocks");
        directory.machine(1, false);
        let (clocks, _) = clocks(&directory);
        let mut kv = ClockHand::new(&clocks, "kv", vec![0]);
        let error = kv.set(Clock::Khz(1)).unwrap_err().to_string();
        assert!(error.contains("clocks that can be set"), "{error}");
    }
}
