//! A control group whose processes run on chosen processors: cgroup v2, or v1 where that is what is mounted.
//!
//! ```no_run
//! use control::actuator::Cpuset;
//! use std::path::Path;
//! let mut set = Cpuset::create(Path::new("/sys/fs/cgroup"), "tailplane")?;
//! set.set_cpus(&[0, 1])?;
//! # Ok::<(), control::actuator::ActuatorError>(())
//! ``` // here the group is gone

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};

use super::settings::Settings;
use super::{ActuatorError, Missing, refused};
use crate::sysfs::{FileError, parse_cpus, read, set, show_cpus};

/// Which kind of hierarchy a group is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hierarchy {
    /// One for all controllers.
    V2,
    /// One for cpusets.
    V1,
}

/// See the module's comment.
#[derive(Debug)]
pub struct Cpuset {
    hierarchy: Hierarchy,
    /// Where the hierarchy is mounted.
    mount: PathBuf,
    directory: PathBuf,
    /// We made the directory.
    created: bool,
    /// We gave the controller to the groups below the mount.
    delegated: bool,
    /// The group that keeps the controller there.
    keeper: Option<PathBuf>,
    settings: Settings,
}

const CPUS: &str = "the processors of the group";
const CONTROLLERS: &str = "controllers of the groups below";

impl Cpuset {
    /// Which hierarchy under `root` (`/sys/fs/cgroup`) has cpusets, and where it is mounted.
    ///
    /// # Errors
    /// None has.
    pub fn find(root: &Path) -> Result<(Hierarchy, PathBuf), Missing> {
        let (unified, hybrid, v1) = (root.to_owned(), root.join("unified"), root.join("cpuset"));
        for mount in [&unified, &hybrid] {
            let controllers = read(&mount.join("cgroup.controllers"), CONTROLLERS);
            if controllers.is_ok_and(|all| all.split(' ').any(|one| one == "cpuset")) {
                return Ok((Hierarchy::V2, mount.clone()));
            }
        }
        if v1.join("cpuset.cpus").exists() {
            return Ok((Hierarchy::V1, v1));
        }
        Err(Missing {
            what: "cgroup hierarchy with cpusets",
            looked_at: vec![
                unified.join("cgroup.controllers"),
                hybrid.join("cgroup.controllers"),
                v1.join("cpuset.cpus"),
            ],
            costs: "processes are held to their processors by affinity alone, which they can change",
        })
    }

    /// Makes a group of this name, which may run on all processors at first. A group of that name that is there
    /// already, as an earlier run left it, is taken over, and left at the end.
    ///
    /// # Errors
    /// There are no cpusets, or the group cannot be made.
    pub fn create(root: &Path, name: &str) -> Result<Self, ActuatorError> {
        let (hierarchy, mount) = Self::find(root)?;
        let directory = mount.join(name);
        if name.is_empty() || name.contains('/') || name == ".." || name == "." {
            let tried = format!("making a group of the name \"{name}\"");
            return Err(refused(tried, "a name without slashes is needed"));
        }
        let mut this = Self {
            hierarchy,
            mount,
            directory,
            created: false,
            delegated: false,
            keeper: None,
            settings: Settings::default(),
        };
        if hierarchy == Hierarchy::V2 {
            this.delegate()?;
        }
        this.make_directory()?;
        Ok(this)
    }

    /// Gives cpusets to the groups below the mount, and keeps them there. systemd takes a controller back from the root
    /// at each reload if none of its units uses it; the kernel refuses that while a group below gives the controller on.
    fn delegate(&mut self) -> Result<(), ActuatorError> {
        let path = self.mount.join("cgroup.subtree_control");
        let has = |found: &str| found.split(' ').any(|one| one.trim_start_matches('+') == "cpuset");
        if !has(&read(&path, CONTROLLERS)?) {
            set(&path, "+cpuset", CONTROLLERS, has)?;
            self.delegated = true;
        }
        let keeper = self.directory.with_added_extension("keeper");
        // One that is there already was left by a controller that was killed.
        make_group(&keeper)?;
        let path = keeper.join("cgroup.subtree_control");
        self.keeper = Some(keeper);
        set(&path, "+cpuset", CONTROLLERS, has)?;
        Ok(())
    }

    fn make_directory(&mut self) -> Result<(), ActuatorError> {
        self.created = make_group(&self.directory)?;
        // A v1 group takes no process before it has processors and memory.
        if self.hierarchy == Hierarchy::V1 {
            for file in ["cpuset.mems", "cpuset.cpus"] {
                let all = read(&self.mount.join(file), "what all groups may have")?;
                if read(&self.directory.join(file), CPUS)?.is_empty() {
                    set(&self.directory.join(file), &all, CPUS, |found| found == all)?;
                }
            }
        }
        Ok(())
    }

    /// The kind of hierarchy that it is in.
    pub fn hierarchy(&self) -> Hierarchy {
        self.hierarchy
    }

    /// Its directory.
    pub fn directory(&self) -> &Path {
        &self.directory
    }

    /// Lets its processes run on these processors only.
    ///
    /// # Errors
    /// None is named (an empty v2 group may run everywhere), or the system takes other ones.
    pub fn set_cpus(&mut self, cpus: &[u32]) -> Result<(), ActuatorError> {
        let path = self.directory.join("cpuset.cpus");
        let text = show_cpus(cpus);
        if cpus.is_empty() {
            let tried = format!("setting {} to nothing", path.display());
            let reason = "at least one processor is needed; freeze the group instead";
            return Err(refused(tried, reason));
        }
        let wanted = parse_cpus(&text);
        self.settings.set(&path, &text, CPUS, |found| parse_cpus(found) == wanted)?;
        Ok(())
    }

    /// Processes that are in it.
    ///
    /// # Errors
    /// The list cannot be read.
    pub fn processes(&self) -> Result<Vec<u32>, FileError> {
        let text = read(&self.directory.join("cgroup.procs"), "the processes of the group")?;
        Ok(text.lines().filter_map(|line| line.trim().parse().ok()).collect())
    }

    /// Processor time that its processes and those of the groups below have used, in seconds; v2 only.
    pub fn cpu_seconds(&self) -> Option<f64> {
        let text = read(&self.directory.join("cpu.stat"), "its processor time").ok()?;
        let us = text.lines().find_map(|line| line.strip_prefix("usage_usec "))?;
        us.trim().parse::<f64>().ok().map(|us| us / 1e6)
    }

    /// Stops all of its processes, or lets them go on; v2 only, as v1 has a hierarchy of its own for that.
    ///
    /// # Errors
    /// It is a v1 group; or the system refuses.
    pub fn freeze(&mut self, frozen: bool) -> Result<(), ActuatorError> {
        let path = self.directory.join("cgroup.freeze");
        if self.hierarchy == Hierarchy::V1 || !path.exists() {
            let costs = "its processes are stopped by signals instead";
            return Err(
                Missing { what: "freezer of the group", looked_at: vec![path], costs }.into()
            );
        }
        let text = if frozen { "1" } else { "0" };
        self.settings.set_exactly(&path, text, "whether the group is frozen")?;
        Ok(())
    }

    /// Puts everything back: settings, the controller, the directory.
    pub fn restore(&mut self) -> Vec<ActuatorError> {
        let mut errors: Vec<ActuatorError> =
            self.settings.restore().into_iter().map(ActuatorError::from).collect();
        let made = std::mem::take(&mut self.created).then(|| self.directory.clone());
        for directory in made.into_iter().chain(self.keeper.take()) {
            if let Err(error) = std::fs::remove_dir(&directory) {
                errors.push(refused(format!("removing the group {}", directory.display()), error));
            }
        }
        if std::mem::take(&mut self.delegated) {
            let path = self.mount.join("cgroup.subtree_control");
            let taken = std::fs::OpenOptions::new().write(true).truncate(true).open(&path);
            match taken.and_then(|mut file| file.write_all(b"-cpuset")) {
                // Other groups use cpusets as well by now.
                Err(error) if error.kind() == ErrorKind::ResourceBusy => {}
                Err(error) => {
                    errors
                        .push(refused(format!("taking cpusets back in {}", path.display()), error));
                }
                Ok(()) => {}
            }
        }
        errors
    }
}

/// Makes a group; whether it was not there already.
fn make_group(directory: &Path) -> Result<bool, ActuatorError> {
    match std::fs::create_dir(directory) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(false),
        Err(error) => Err(refused(format!("making the group {}", directory.display()), error)),
    }
}

impl Drop for Cpuset {
    fn drop(&mut self) {
        // Nobody is left to be told; who wants to know calls `restore`.
        let _ = self.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::fake::Root;

    /// A fake v2 tree with the group made already, as a directory of the fake has no files by itself.
    fn v2() -> Root {
        Root::new(&[
            ("cg/cgroup.controllers", "cpuset cpu io"),
            ("cg/cgroup.subtree_control", "cpu"),
            ("cg/cgroup.procs", ""),
            ("cg/ours/cpuset.cpus", ""),
            ("cg/ours/cgroup.procs", ""),
            ("cg/ours/cgroup.freeze", "0"),
            ("cg/ours.keeper/cgroup.subtree_control", ""),
        ])
    }

    #[test]
    fn a_v2_group_holds_its_processes_and_is_put_back() {
        let root = v2();
        let cg = root.path().join("cg");
        {
            let mut set = Cpuset::create(&cg, "ours").unwrap();
            assert_eq!(set.hierarchy(), Hierarchy::V2);
            assert_eq!(root.get("cg/cgroup.subtree_control"), "+cpuset");
            assert_eq!(root.get("cg/ours.keeper/cgroup.subtree_control"), "+cpuset");
            set.set_cpus(&[4, 5, 1]).unwrap();
            assert_eq!(root.get("cg/ours/cpuset.cpus"), "1,4-5");
            root.put("cg/ours/cgroup.procs", "42");
            assert_eq!(set.processes().unwrap(), [42]);
            set.freeze(true).unwrap();
            assert_eq!(root.get("cg/ours/cgroup.freeze"), "1");
            assert!(
                set.set_cpus(&[]).unwrap_err().to_string().contains("freeze the group instead")
            );
        }
        assert_eq!(root.get("cg/ours/cpuset.cpus"), "");
        assert_eq!(root.get("cg/ours/cgroup.freeze"), "0");
        assert_eq!(root.get("cg/cgroup.subtree_control"), "-cpuset");
    }

    #[test]
    fn a_v1_group_gets_memory_and_processors_first() {
        let root = Root::new(&[
            ("cg/cpuset/cpuset.cpus", "0-7"),
            ("cg/cpuset/cpuset.mems", "0"),
            ("cg/cpuset/ours/cpuset.cpus", ""),
            ("cg/cpuset/ours/cpuset.mems", ""),
            ("cg/cpuset/ours/cgroup.procs", ""),
        ]);
        let mut set = Cpuset::create(&root.path().join("cg"), "ours").unwrap();
        assert_eq!(set.hierarchy(), Hierarchy::V1);
        assert_eq!(root.get("cg/cpuset/ours/cpuset.mems"), "0");
        assert!(matches!(set.freeze(true), Err(ActuatorError::Missing(_))));
        set.set_cpus(&[7]).unwrap();
        assert_eq!(set.restore(), []);
        assert_eq!(root.get("cg/cpuset/ours/cpuset.cpus"), "0-7");
    }

    #[test]
    fn what_is_missing_is_said_with_every_place() {
        let root = Root::new(&[("cg/cgroup.controllers", "cpu hugetlb")]);
        let missing = Cpuset::find(&root.path().join("cg")).unwrap_err();
        assert_eq!(missing.looked_at.len(), 3);
        assert!(missing.to_string().contains("by affinity alone"), "{missing}");
        let v2 = v2();
        for name in ["", "..", "a/b"] {
            assert!(Cpuset::create(&v2.path().join("cg"), name).is_err(), "{name}");
        }
        assert_eq!(v2.get("cg/cgroup.subtree_control"), "cpu");
    }

    /// On the machine itself, where it lets us: a group is made, used by a process of ours, and gone again.
    #[test]
    fn a_group_of_this_machine() {
        let root = Path::new("/sys/fs/cgroup");
        let name = format!("tailplane-control-test-{}", std::process::id());
        let mut set = match Cpuset::create(root, &name) {
            Ok(set) => set,
            Err(error) => {
                println!("not run: {error}");
                return;
            }
        };
        let directory = set.directory().to_owned();
        let allowed = read(&set.mount.join("cpuset.cpus"), CPUS)
            .or_else(|_| read(&set.mount.join("cpuset.cpus.effective"), CPUS))
            .ok()
            .and_then(|text| parse_cpus(&text))
            .expect("the machine's processors");
        let mut child = std::process::Command::new("sleep").arg("60").spawn().expect("sleep");
        let number = child.id().to_string();
        let done = set.set_cpus(&allowed[..1]);
        let joined = std::fs::write(directory.join("cgroup.procs"), &number);
        let status = read(Path::new(&format!("/proc/{}/status", child.id())), "its status");
        let left = std::fs::write(set.mount.join("cgroup.procs"), &number);
        let errors = set.restore();
        child.kill().expect("it is ours");
        child.wait().expect("it is ours");
        done.expect("the group takes a processor");
        joined.and(left).expect("the group takes a process, and gives it back");
        let list = format!("Cpus_allowed_list:\t{}", allowed[0]);
        assert!(status.expect("it ran").lines().any(|line| line == list));
        assert_eq!(errors, []);
        assert!(!directory.exists());
    }
}
