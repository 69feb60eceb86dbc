//! Control groups: what a process and all that it starts may use of memory and processors, and how many they may be.
//!
//! ```no_run
//! use sandbox::{Confinement, GroupLimits, Groups};
//! let limits = GroupLimits { memory_bytes: Some(1 << 30), processes: Some(64), ..GroupLimits::default() };
//! let groups = Groups::make("my-service", &limits);
//! for lack in groups.missing() {
//!     eprintln!("{lack}");
//! }
//! let confinement = groups.joined_by(Confinement::new());
//! // ... spawn, wait; dropped, the groups are removed.
//! # let _ = confinement;
//! ```
//!
//! Version 2 where its hierarchy has the controller, else version 1. A group's name carries the number of the process
//! that made it, and when that process began: what a maker left that was killed, the next one removes.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::Confinement;

/// The groups of all makers are in one of this name.
const PARENT: &str = "tailplane";
/// Length of a period in which processor time is counted, in microseconds.
const PERIOD_US: u64 = 100_000;
/// How often a group whose processes have just ended is tried to remove, and how long between two times.
const REMOVALS: u32 = 20;
const BETWEEN_REMOVALS: Duration = Duration::from_millis(5);

/// What all processes of a group may use together; `None`: no limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupLimits {
    /// Memory, in bytes: what is beyond it is refused, or a process of the group is killed.
    pub memory_bytes: Option<u64>,
    /// Processes and threads.
    pub processes: Option<u64>,
    /// Processors, of threads without a real-time priority. Not for groups with others:
    /// kernels that count real-time by groups let none in.
    pub processors: Option<u32>,
    /// The processors that its threads may run on, whatever affinity they ask for and whatever priority they have.
    pub cpuset: Option<Vec<u32>>,
}

/// The groups that a process joins: one of version 2, or one for each controller of version 1. Removed when dropped, by
/// when all their processes have to have ended.
#[derive(Debug, Default)]
pub struct Groups {
    directories: Vec<PathBuf>,
    procs: Vec<Arc<OwnedFd>>,
    cpuset: Option<Cpuset>,
    /// Controllers that limit, and the group of each.
    limiting: Vec<(&'static str, PathBuf)>,
    missing: Vec<String>,
}

/// The setting of a group that says which processors its threads may run on.
#[derive(Clone, Debug)]
pub struct Cpuset(PathBuf);

impl Cpuset {
    /// Has the group's threads run on these processors only, from now on. The kernel moves those that run elsewhere.
    ///
    /// # Errors
    /// A processor is not there, or the group has gone.
    pub fn set(&self, cpus: &[u32]) -> io::Result<()> {
        write(&self.0, &list_of(cpus))
    }
}

/// As the kernel reads and writes sets of processors.
fn list_of(cpus: &[u32]) -> String {
    cpus.iter().map(u32::to_string).collect::<Vec<_>>().join(",")
}

/// A controller, and how its limits are written in either version.
struct Controller {
    name: &'static str,
    what: &'static str,
    /// File and value, in the order in which they are written; those that may be absent say so.
    settings: [Vec<(&'static str, String, bool)>; 2],
}

impl GroupLimits {
    fn controllers(&self) -> Vec<Controller> {
        let mut all = Vec::new();
        if let Some(bytes) = self.memory_bytes {
            let bytes = bytes.to_string();
            all.push(Controller {
                name: "memory",
                what: "memory",
                settings: [
                    vec![
                        ("memory.limit_in_bytes", bytes.clone(), false),
                        // Of memory and swap together, where the kernel counts swap.
                        ("memory.memsw.limit_in_bytes", bytes.clone(), true),
                    ],
                    vec![
                        ("memory.max", bytes, false),
                        // The limit is one of what is used, wherever that is kept.
                        ("memory.swap.max", "0".into(), true),
                    ],
                ],
            });
        }
        if let Some(count) = self.processes {
            let limit = || vec![("pids.max", count.to_string(), false)];
            all.push(Controller { name: "pids", what: "processes", settings: [limit(), limit()] });
        }
        if let Some(processors) = self.processors {
            let quota = u64::from(processors.max(1)) * PERIOD_US;
            let first = vec![
                ("cpu.cfs_period_us", PERIOD_US.to_string(), false),
                ("cpu.cfs_quota_us", quota.to_string(), false),
            ];
            let second = vec![("cpu.max", format!("{quota} {PERIOD_US}"), false)];
            all.push(Controller { name: "cpu", what: "processors", settings: [first, second] });
        }
        if let Some(cpus) = &self.cpuset {
            let setting = || vec![("cpuset.cpus", list_of(cpus), false)];
            all.push(Controller {
                name: "cpuset",
                what: "the processors that it may run on",
                settings: [setting(), setting()],
            });
        }
        all
    }
}

impl Groups {
    /// Makes groups of this name, as far as the machine has controllers and lets the caller.
    pub fn make(name: &str, limits: &GroupLimits) -> Self {
        Self::make_below(Path::new("/sys/fs/cgroup"), name, limits)
    }

    fn make_below(root: &Path, name: &str, limits: &GroupLimits) -> Self {
        let mut groups = Self::default();
        let name = format!("{name}.{}", Maker::this());
        for controller in limits.controllers() {
            if let Err(why) = groups.add(root, &name, &controller) {
                groups.missing.push(format!("no limit of {}: {why}", controller.what));
            }
        }
        groups
    }

    /// The setting of the processors, where [`GroupLimits::cpuset`] is in force.
    pub fn cpuset(&self) -> Option<Cpuset> {
        self.cpuset.clone()
    }

    /// The version of the control groups that have `controller` (`memory`, `pids`, `cpu`, `cpuset`), where they are mounted below
    /// `root`, as a rule `/sys/fs/cgroup`.
    ///
    /// # Errors
    /// There are none.
    pub fn version(root: &Path, controller: &str) -> Result<u32, String> {
        Hierarchy::of(root, controller).map(|found| found.version)
    }

    /// What could not be limited, and why, a line each.
    pub fn missing(&self) -> &[String] {
        &self.missing
    }

    /// Whether the limit of `controller` (`memory`, `pids`, `cpu`, `cpuset`) is in force.
    pub fn limits(&self, controller: &str) -> bool {
        self.limiting.iter().any(|(name, _)| *name == controller)
    }

    /// How many processes the kernel has killed because the groups reached [`GroupLimits::memory_bytes`]; `None` where
    /// no group counts them.
    pub fn killed_for_memory(&self) -> Option<u64> {
        let (_, group) = self.limiting.iter().find(|(name, _)| *name == "memory")?;
        // Of version 2; of version 1, from Linux 4.13 on.
        ["memory.events", "memory.oom_control"].into_iter().find_map(|file| {
            let text = fs::read_to_string(group.join(file)).ok()?;
            let count = text.lines().find_map(|line| line.strip_prefix("oom_kill "))?;
            count.trim().parse().ok()
        })
    }

    /// Has what is started so join the groups first.
    pub fn joined_by(&self, confinement: Confinement) -> Confinement {
        self.procs.iter().fold(confinement, |joined, procs| joined.group(Arc::clone(procs)))
    }

    fn add(&mut self, root: &Path, name: &str, controller: &Controller) -> Result<(), String> {
        let Controller { name: controller, settings: [first, second], .. } = controller;
        let hierarchy = Hierarchy::of(root, controller)?;
        let parent = hierarchy.path.join(PARENT);
        fs::create_dir_all(&parent).map_err(|error| failed(&parent, error))?;
        sweep(&parent);
        if hierarchy.version == 2 {
            // Top down: a group has the controllers that its parent gives to its children.
            for above in [&hierarchy.path, &parent] {
                let control = above.join("cgroup.subtree_control");
                write(&control, &format!("+{controller}"))
                    .map_err(|error| failed(&control, error))?;
            }
        }
        let group = parent.join(name);
        fs::create_dir_all(&group).map_err(|error| failed(&group, error))?;
        if (hierarchy.version, *controller) == (1, "cpuset") {
            // A new group of version 1 has neither processors nor nodes of memory, and takes no process so.
            inherit(&hierarchy.path, &parent, &["cpuset.cpus", "cpuset.mems"])?;
            inherit(&parent, &group, &["cpuset.mems"])?;
        }
        if !self.directories.contains(&group) {
            self.directories.push(group.clone());
            let procs = group.join("cgroup.procs");
            let opened = OpenOptions::new().write(true).open(&procs);
            let opened = opened.map_err(|error| failed(&procs, error))?;
            self.procs.push(Arc::new(OwnedFd::from(opened)));
        }
        let settings = if hierarchy.version == 1 { first } else { second };
        for (file, value, may_be_absent) in settings {
            let file = group.join(file);
            if let Err(error) = write(&file, value)
                && !(*may_be_absent && error.kind() == io::ErrorKind::NotFound)
            {
                // Nothing joins a group that does not limit what it is for.
                if hierarchy.version == 1 {
                    self.directories.pop();
                    self.procs.pop();
                    let _ = fs::remove_dir(&group);
                }
                return Err(failed(&file, error));
            }
        }
        if *controller == "cpuset" {
            self.cpuset = Some(Cpuset(group.join("cpuset.cpus")));
        }
        self.limiting.push((controller, group));
        Ok(())
    }
}

/// Copies settings of a group into one below it.
fn inherit(from: &Path, to: &Path, settings: &[&str]) -> Result<(), String> {
    for setting in settings {
        let (from, to) = (from.join(setting), to.join(setting));
        let value = fs::read_to_string(&from).map_err(|error| failed(&from, error))?;
        write(&to, value.trim()).map_err(|error| failed(&to, error))?;
    }
    Ok(())
}

impl Drop for Groups {
    fn drop(&mut self) {
        self.procs.clear();
        for directory in &self.directories {
            end_all(directory);
            for _ in 0..REMOVALS {
                match fs::remove_dir(directory) {
                    // The last process has ended, and has not been taken out yet.
                    Err(error) if error.kind() == io::ErrorKind::ResourceBusy => {
                        std::thread::sleep(BETWEEN_REMOVALS);
                    }
                    _ => break,
                }
            }
        }
    }
}

/// Kills what still runs in a group of version 2, from Linux 5.14 on. Version 1 cannot: there, what has to be gone with
/// its program is in a PID namespace.
fn end_all(group: &Path) {
    let _ = write(&group.join("cgroup.kill"), "1");
}

/// Where a controller's groups are, and which version of them.
struct Hierarchy {
    version: u32,
    path: PathBuf,
}

impl Hierarchy {
    fn of(root: &Path, controller: &str) -> Result<Self, String> {
        for path in [root.to_owned(), root.join("unified")] {
            let listed = fs::read_to_string(path.join("cgroup.controllers")).unwrap_or_default();
            if listed.split_whitespace().any(|one| one == controller) {
                return Ok(Self { version: 2, path });
            }
        }
        let path = root.join(controller);
        if path.join("cgroup.procs").exists() {
            return Ok(Self { version: 1, path });
        }
        Err(format!("no control groups with the controller '{controller}' are mounted"))
    }
}

fn failed(path: &Path, error: io::Error) -> String {
    format!("{}: {error}", path.display())
}

fn write(path: &Path, value: &str) -> io::Result<()> {
    // Never makes a file: where there is none, the kernel has no such setting.
    OpenOptions::new().write(true).open(path)?.write_all(value.as_bytes())
}

/// Removes what makers left that are not there any more.
fn sweep(parent: &Path) {
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let name = entry.file_name();
        let maker = name.to_str().and_then(Maker::of_name);
        if maker.is_some_and(|maker| !maker.lives()) {
            end_all(&entry.path());
            // Where something lives on in it, it stays.
            let _ = fs::remove_dir(entry.path());
        }
    }
}

/// A process that makes groups: its number, and when it began, in ticks since the boot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Maker {
    pid: u32,
    began: u64,
}

impl std::fmt::Display for Maker {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.pid, self.began)
    }
}

impl Maker {
    fn this() -> Self {
        let pid = std::process::id();
        Self { pid, began: began(pid).unwrap_or(0) }
    }

    fn of_name(name: &str) -> Option<Self> {
        let (rest, began) = name.rsplit_once('.')?;
        let (_, pid) = rest.rsplit_once('.')?;
        Some(Self { pid: pid.parse().ok()?, began: began.parse().ok()? })
    }

    fn lives(self) -> bool {
        began(self.pid) == Some(self.began)
    }
}

fn began(pid: u32) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // proc(5): the 22nd field; the second may hold blanks and parentheses.
    stat.rsplit_once(')')?.1.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Directories like a hierarchy of either version, with the files that are written.
    fn hierarchies(name: &str, second: bool) -> PathBuf {
        let root =
            std::env::temp_dir().join(format!("tailplane-groups-{name}-{}", std::process::id()));
        let group = format!("{PARENT}/box.{}", Maker::this());
        let file = |path: String| {
            let path = root.join(path);
            fs::create_dir_all(path.parent().expect("inside")).expect("made");
            fs::write(path, "").expect("written");
        };
        if second {
            file("cgroup.subtree_control".into());
            file(format!("{PARENT}/cgroup.subtree_control"));
            fs::write(root.join("cgroup.controllers"), "cpu memory pids\n").expect("written");
            for name in ["memory.max", "pids.max", "cpu.max", "cgroup.procs"] {
                file(format!("{group}/{name}"));
            }
        } else {
            for (controller, name) in [("memory", "memory.limit_in_bytes"), ("pids", "pids.max")] {
                file(format!("{controller}/cgroup.procs"));
                file(format!("{controller}/{group}/cgroup.procs"));
                file(format!("{controller}/{group}/{name}"));
            }
        }
        root
    }

    const LIMITS: GroupLimits = GroupLimits {
        memory_bytes: Some(1 << 20),
        processes: Some(7),
        processors: Some(2),
        cpuset: None,
    };

    #[test]
    fn either_version_is_told_the_limits() {
        let root = hierarchies("second", true);
        let groups = Groups::make_below(&root, "box", &LIMITS);
        assert_eq!((groups.missing(), groups.procs.len()), (&[][..], 1));
        let group = root.join(PARENT).join(format!("box.{}", Maker::this()));
        let read = |path: PathBuf| fs::read_to_string(path).expect("there");
        assert_eq!(read(group.join("memory.max")), "1048576");
        assert_eq!(read(group.join("pids.max")), "7");
        assert_eq!(read(group.join("cpu.max")), "200000 100000");
        // What is left in a group ends with it.
        fs::write(group.join("cgroup.kill"), "").expect("written");
        assert!(["memory", "pids", "cpu"].into_iter().all(|name| groups.limits(name)));
        assert!(!groups.limits("cpuset"));
        assert_eq!(groups.killed_for_memory(), None, "there is no count");
        fs::write(group.join("memory.events"), "max 7\noom 2\noom_kill 2\n").expect("written");
        assert_eq!(groups.killed_for_memory(), Some(2));
        let given = read(root.join(PARENT).join("cgroup.subtree_control"));
        assert!(
            given.starts_with("+cpu"),
            "a file of the kernel's takes each word by itself: {given}"
        );
        drop(groups);
        assert_eq!(read(group.join("cgroup.kill")), "1");
        fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn a_set_of_processors_of_version_1_begins_with_its_parents_nodes_of_memory() {
        let root = std::env::temp_dir().join(format!("tailplane-cpuset-{}", std::process::id()));
        let group = root.join("cpuset").join(PARENT).join(format!("box.{}", Maker::this()));
        fs::create_dir_all(&group).expect("made");
        for directory in [&root.join("cpuset"), &root.join("cpuset").join(PARENT), &group] {
            for (name, text) in
                [("cgroup.procs", ""), ("cpuset.cpus", "0-7\n"), ("cpuset.mems", "0\n")]
            {
                let text = if directory.ends_with("cpuset") { text } else { "" };
                fs::write(directory.join(name), text).expect("written");
            }
        }
        let limits = GroupLimits { cpuset: Some(vec![3, 1]), ..GroupLimits::default() };
        let groups = Groups::make_below(&root, "box", &limits);
        assert_eq!((groups.missing(), groups.procs.len()), (&[][..], 1));
        let read = |path: PathBuf| fs::read_to_string(path).expect("there");
        assert_eq!(read(group.join("cpuset.cpus")), "3,1");
        assert_eq!(read(group.join("cpuset.mems")), "0");
        assert_eq!(read(root.join("cpuset").join(PARENT).join("cpuset.cpus")), "0-7");
        let cpuset = groups.cpuset().expect("it is in force");
        cpuset.set(&[2]).expect("a file");
        assert!(read(group.join("cpuset.cpus")).starts_with('2'));
        drop(groups);
        fs::remove_dir_all(&root).expect("removed");
    }

    #[test]
    fn what_is_not_there_is_missing() {
        let root = hierarchies("first", false);
        let groups = Groups::make_below(&root, "box", &LIMITS);
        assert_eq!((groups.missing().len(), groups.procs.len()), (1, 2));
        assert!(groups.missing()[0].contains("no limit of processors"), "{:?}", groups.missing());
        for (file, limit) in
            [("memory/{}/memory.limit_in_bytes", "1048576"), ("pids/{}/pids.max", "7")]
        {
            let group = format!("{PARENT}/box.{}", Maker::this());
            let found = fs::read_to_string(root.join(file.replace("{}", &group))).expect("there");
            assert_eq!(found, limit, "{file}");
        }
        assert!(groups.limits("memory") && groups.limits("pids") && !groups.limits("cpu"));
        let memory = root.join("memory").join(PARENT).join(format!("box.{}", Maker::this()));
        fs::write(memory.join("memory.oom_control"), "under_oom 0\noom_kill 1\n").expect("written");
        assert_eq!(groups.killed_for_memory(), Some(1));
        drop(groups);
        fs::remove_dir_all(&root).expect("removed");
        let none = Groups::make_below(&root, "box", &LIMITS);
        assert_eq!((none.missing().len(), none.procs.len()), (3, 0));
    }

    #[test]
    fn what_a_killed_maker_left_is_removed() {
        let parent = std::env::temp_dir().join(format!("tailplane-sweep-{}", std::process::id()));
        let own = Maker::this();
        let others =
            [format!("a.b.{own}"), format!("x.{}.{}", own.pid, own.began + 1), "strange".into()];
        others.iter().for_each(|name| fs::create_dir_all(parent.join(name)).expect("made"));
        sweep(&parent);
        let left = others.map(|name| parent.join(name).exists());
        assert_eq!(left, [true, false, true]);
        fs::remove_dir_all(&parent).expect("removed");
    }
}
