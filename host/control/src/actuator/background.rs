//! The background job: it gets the cores that the service leaves, and stops where none is left (IX §5.4).

use std::path::{Path, PathBuf};

use rustix::process::{Pid, Signal, kill_process};

use super::{ActuatorError, Affinity, Cpuset, refused};
use crate::sysfs::{read, stat_field};

/// Most processes of a job.
const PROCESSES_MAX: usize = 65_536;

/// Which processes are the job, and how they are held to processors.
#[derive(Debug)]
enum Held {
    /// What a cgroup with a cpuset has in it, whenever it came: held there, frozen by `cgroup.freeze`, or under v1
    /// stopped by signals.
    Cgroup(Cpuset),
    /// A process group, as a shell makes one for a command: held by affinity, stopped by signals.
    Group(u32, Affinity),
}

/// A job that makes use of what is left.
#[derive(Debug)]
pub struct BackgroundJob {
    proc: PathBuf,
    held: Held,
    stopped: Stopped,
}

impl BackgroundJob {
    /// What a cgroup has in it; `proc` is where processes are shown: `/proc`.
    pub fn of_cgroup(proc: &Path, set: Cpuset) -> Self {
        Self { proc: proc.to_owned(), held: Held::Cgroup(set), stopped: Stopped::default() }
    }

    /// The process group of this number; `proc` is where processes are shown: `/proc`.
    ///
    /// # Errors
    /// There is no process in it.
    pub fn of_group(proc: &Path, group: u32) -> Result<Self, ActuatorError> {
        let held = Held::Group(group, Affinity::new(proc));
        let this = Self { proc: proc.to_owned(), held, stopped: Stopped::default() };
        if this.processes()?.is_empty() {
            let tried = format!("looking for process group {group} in {}", proc.display());
            return Err(refused(tried, "no process is in it"));
        }
        Ok(this)
    }

    /// Takes processes that are stopped by signals for ours, which a controller that was killed left so: they go on
    /// when the job does.
    ///
    /// # Errors
    /// The group cannot be read, or processes are not shown.
    pub fn adopt_stopped(&mut self) -> Result<(), ActuatorError> {
        let processes = self.processes()?;
        self.stopped.adopt(&self.proc, &processes);
        Ok(())
    }

    /// Processes that are in it now.
    ///
    /// # Errors
    /// The group cannot be read, or processes are not shown.
    pub fn processes(&self) -> Result<Vec<u32>, ActuatorError> {
        match &self.held {
            Held::Cgroup(set) => Ok(set.processes()?),
            Held::Group(group, _) => processes_of(&self.proc, *group),
        }
    }

    /// Processor time that it has used, with the groups below, in seconds; none where the kernel does not count it.
    pub fn cpu_seconds(&self) -> Option<f64> {
        match &self.held {
            Held::Cgroup(set) => set.cpu_seconds(),
            Held::Group(..) => None,
        }
    }

    /// Lets it run on these processors only; on none at all, it is stopped until there are some.
    ///
    /// # Errors
    /// The system refuses, or what is needed is missing.
    pub fn run_on(&mut self, cpus: &[u32]) -> Result<(), ActuatorError> {
        if cpus.is_empty() {
            return self.stop();
        }
        match &mut self.held {
            Held::Cgroup(set) => set.set_cpus(cpus)?,
            Held::Group(group, affinity) => {
                for process in processes_of(&self.proc, *group)? {
                    affinity.set_process(process, cpus)?;
                }
            }
        }
        self.stopped.go_on();
        self.freeze(false).map(drop)
    }

    fn stop(&mut self) -> Result<(), ActuatorError> {
        if !self.freeze(true)? {
            for process in self.processes()? {
                self.stopped.stop(process)?;
            }
        }
        Ok(())
    }

    /// Freezes the job, or lets it go on; whether there is a freezer for it.
    fn freeze(&mut self, frozen: bool) -> Result<bool, ActuatorError> {
        let Held::Cgroup(set) = &mut self.held else { return Ok(false) };
        match set.freeze(frozen) {
            Err(ActuatorError::Missing(_)) => Ok(false),
            done => done.map(|()| true),
        }
    }
}

fn processes_of(proc: &Path, group: u32) -> Result<Vec<u32>, ActuatorError> {
    let entries = std::fs::read_dir(proc)
        .map_err(|error| refused(format!("listing the processes in {}", proc.display()), error))?;
    let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
    let in_group = |process: &u32| {
        let stat = read(&proc.join(format!("{process}/stat")), "its state");
        stat.is_ok_and(|stat| group_of(&stat) == Some(group))
    };
    Ok(entries.flatten().filter_map(number).filter(in_group).take(PROCESSES_MAX).collect())
}

/// The process group in a line of `/proc/PID/stat`.
fn group_of(stat: &str) -> Option<u32> {
    stat_field(stat, 2)?.parse().ok()
}

/// Whether such a line is of a process that a signal has stopped.
fn is_stopped(stat: &str) -> bool {
    stat_field(stat, 0) == Some("T")
}

/// Processes that we have stopped, and nobody else: they go on when told, or when this is dropped.
#[derive(Debug, Default)]
struct Stopped(Vec<Pid>);

impl Stopped {
    /// Those of these processes that are stopped now count as stopped by us.
    fn adopt(&mut self, proc: &Path, processes: &[u32]) {
        for &process in processes {
            let stat = read(&proc.join(format!("{process}/stat")), "its state");
            let pid = i32::try_from(process).ok().and_then(Pid::from_raw);
            if let (true, Some(pid)) = (stat.is_ok_and(|stat| is_stopped(&stat)), pid)
                && !self.0.contains(&pid)
            {
                self.0.push(pid);
            }
        }
    }

    fn stop(&mut self, process: u32) -> Result<(), ActuatorError> {
        let Some(pid) = i32::try_from(process).ok().and_then(Pid::from_raw) else {
            return Ok(());
        };
        match kill_process(pid, Signal::STOP) {
            Ok(()) => {
                if !self.0.contains(&pid) {
                    self.0.push(pid);
                }
                Ok(())
            }
            // It has ended by itself.
            Err(rustix::io::Errno::SRCH) => Ok(()),
            Err(error) => Err(refused(format!("stopping process {process}"), error)),
        }
    }

    fn go_on(&mut self) {
        for pid in self.0.drain(..) {
            // Who has ended, or is no longer ours, needs nothing.
            let _ = kill_process(pid, Signal::CONT);
        }
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        self.go_on();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::CommandExt;
    use std::process::{Child, Command};
    use std::time::Duration;

    /// A command in a process group of its own; killed when dropped.
    struct Job(Child);

    impl Job {
        fn new() -> Self {
            Self(Command::new("sleep").arg("60").process_group(0).spawn().expect("sleep"))
        }

        fn group(&self) -> u32 {
            self.0.id()
        }

        /// The state letter, once it is one of those wanted; a signal takes a moment.
        fn becomes(&self, wanted: &str) -> bool {
            (0..500).any(|_| {
                let stat = read(Path::new(&format!("/proc/{}/stat", self.0.id())), "its state");
                let stat = stat.unwrap_or_default();
                let letter =
                    stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next());
                let is = letter.is_some_and(|letter| wanted.contains(letter));
                if !is {
                    std::thread::sleep(Duration::from_millis(2));
                }
                is
            })
        }
    }

    impl Drop for Job {
        fn drop(&mut self) {
            self.0.kill().expect("it is ours");
            self.0.wait().expect("it is ours");
        }
    }

    fn own_cpus() -> Vec<u32> {
        let status = read(Path::new("/proc/self/status"), "ours").expect("Linux");
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        crate::sysfs::parse_cpus(list.expect("Linux").trim()).expect("a list")
    }

    #[test]
    fn a_process_group_moves_stops_and_goes_on() {
        let child = Job::new();
        let allowed = || {
            let path = format!("/proc/{}/status", child.group());
            let status = read(Path::new(&path), "its status").expect("it runs");
            let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
            crate::sysfs::parse_cpus(list.expect("Linux").trim()).expect("a list")
        };
        let before = allowed();
        {
            let mut job = BackgroundJob::of_group(Path::new("/proc"), child.group()).unwrap();
            assert_eq!(job.processes().unwrap(), [child.group()]);
            job.run_on(&own_cpus()[..1]).unwrap();
            assert_eq!(allowed(), own_cpus()[..1]);
            job.run_on(&[]).unwrap();
            assert!(child.becomes("T"), "stopped");
            job.run_on(&own_cpus()).unwrap();
            assert!(child.becomes("SR"), "goes on");
            job.run_on(&[]).unwrap();
            assert!(child.becomes("T"), "stopped again, and dropped so");
        }
        assert!(child.becomes("SR"), "dropping lets it go on");
        assert_eq!(allowed(), before);
    }

    #[test]
    fn a_job_that_a_killed_controller_stopped_goes_on() {
        let child = Job::new();
        let proc = Path::new("/proc");
        let mut first = BackgroundJob::of_group(proc, child.group()).unwrap();
        first.run_on(&[]).unwrap();
        assert!(child.becomes("T"), "stopped");
        // Killed: nothing is dropped.
        std::mem::forget(first);
        let mut second = BackgroundJob::of_group(proc, child.group()).unwrap();
        second.run_on(&own_cpus()).unwrap();
        assert!(child.becomes("T"), "it may be somebody else's doing");
        second.adopt_stopped().unwrap();
        second.adopt_stopped().unwrap();
        second.run_on(&own_cpus()).unwrap();
        assert!(child.becomes("SR"), "goes on");
    }

    #[test]
    fn groups_are_read_behind_any_name() {
        assert_eq!(group_of("12 (a b) S 1 77 5"), Some(77));
        assert_eq!(group_of("12 (x) 9) Z) S 1 78 5"), Some(78));
        assert_eq!(group_of("12 (x"), None);
        assert_eq!(group_of("12 (x) S 1"), None);
        assert!(is_stopped("12 (x) S) T 1 78") && !is_stopped("12 (T) S 1 78 5"));
        let error = BackgroundJob::of_group(Path::new("/proc"), u32::MAX).unwrap_err().to_string();
        assert!(error.contains("no process is in it"), "{error}");
    }

    #[test]
    fn a_cgroup_is_shrunk_and_frozen() {
        let root = crate::sysfs::fake::Root::new(&[
            ("cg/cgroup.controllers", "cpuset"),
            ("cg/cgroup.subtree_control", "cpuset"),
            ("cg/job/cpuset.cpus", ""),
            ("cg/job/cgroup.procs", ""),
            ("cg/job/cgroup.freeze", "0"),
            ("cg/job/cpu.stat", "usage_usec 2500000\nuser_usec 1\n"),
            ("cg/job.keeper/cgroup.subtree_control", ""),
        ]);
        let set = Cpuset::create(&root.path().join("cg"), "job").unwrap();
        let mut job = BackgroundJob::of_cgroup(root.path(), set);
        assert_eq!(job.cpu_seconds(), Some(2.5));
        job.run_on(&[2, 3]).unwrap();
        assert_eq!(
            (root.get("cg/job/cpuset.cpus"), root.get("cg/job/cgroup.freeze")),
            ("2-3".into(), "0".into())
        );
        job.run_on(&[]).unwrap();
        assert_eq!(
            (root.get("cg/job/cpuset.cpus"), root.get("cg/job/cgroup.freeze")),
            ("2-3".into(), "1".into())
        );
        drop(job);
        assert_eq!(
            (root.get("cg/job/cpuset.cpus"), root.get("cg/job/cgroup.freeze")),
            (String::new(), "0".into())
        );
    }

    #[test]
    fn a_v1_group_is_stopped_by_signals() {
        let child = Job::new();
        let root = crate::sysfs::fake::Root::new(&[
            ("cg/cpuset/cpuset.cpus", "0-7"),
            ("cg/cpuset/cpuset.mems", "0"),
            ("cg/cpuset/job/cpuset.cpus", "0"),
            ("cg/cpuset/job/cpuset.mems", "0"),
            ("cg/cpuset/job/cgroup.procs", &child.group().to_string()),
        ]);
        let set = Cpuset::create(&root.path().join("cg"), "job").unwrap();
        let mut job = BackgroundJob::of_cgroup(root.path(), set);
        job.run_on(&[]).unwrap();
        assert!(child.becomes("T"));
        job.run_on(&[0]).unwrap();
        assert!(child.becomes("SR"));
    }
}
