//! A service's background job: started or taken over, held to the cores that are left, and how far it gets (IX §5.4).
//!
//! What the kernel or somebody else takes away underneath (the control group, the job itself) is an error once, and
//! made anew at the next try.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::path::Path;
use std::rc::Rc;

use control::actuator::{ActuatorError, BackgroundJob, Cpuset};
use control::sysfs;

use crate::config::MachineConfig;
use crate::process::Process;
use crate::records::{Records, Started};
use crate::world::{Launch, World};
use configfile::BackgroundConfig;

/// Processes of a job whose time is counted, at most.
const COUNTED_MAX: usize = 4_096;
/// The kernel counts time in hundredths of a second (USER_HZ, fixed for programs).
const TICKS_PER_S: f64 = 100.0;

/// See the module's comment.
pub struct Background {
    config: BackgroundConfig,
    machine: MachineConfig,
    /// None where there is none, or where it was lost.
    job: Option<BackgroundJob>,
    /// The job's first process, where the daemon started it.
    process: Option<Box<dyn Process>>,
    /// Processors that it has now; none before the first time.
    cpus: Option<Vec<u32>>,
    progress: Progress,
}

/// The record of a job that was started.
fn record(service: &str) -> String {
    format!("background-{service}")
}

impl Background {
    /// Starts the job of a service, or takes over the one that an earlier daemon started.
    ///
    /// # Errors
    /// What could not be done.
    pub fn new(
        service: &str,
        config: &BackgroundConfig,
        machine: &MachineConfig,
        records: &Records,
        world: &mut dyn World,
    ) -> Result<Rc<RefCell<Self>>, String> {
        let mut this = Self {
            config: config.clone(),
            machine: machine.clone(),
            job: None,
            process: None,
            cpus: None,
            progress: Progress::default(),
        };
        if !config.command.is_empty() {
            this.process = Some(this.start(service, records, world)?);
        }
        this.make().map_err(|error| error.to_string())?;
        Ok(Rc::new(RefCell::new(this)))
    }

    fn start(
        &self,
        service: &str,
        records: &Records,
        world: &mut dyn World,
    ) -> Result<Box<dyn Process>, String> {
        let name = record(service);
        if let Ok(Some(Started::Process(identity))) = records.read(&name)
            && let Ok(process) = world.again(&identity)
        {
            return Ok(process);
        }
        let (program, arguments) = self.config.command.split_first().ok_or("no command")?;
        let launch = Launch {
            program: program.into(),
            arguments: arguments.iter().map(Into::into).collect(),
        };
        let process = world
            .spawn(&launch)
            .map_err(|error| format!("cannot start the background job \"{program}\": {error}"))?;
        let started = Started::Process(process.identity().clone());
        records
            .write(&name, &started)
            .map_err(|error| format!("cannot write down the background job's process: {error}"))?;
        Ok(process)
    }

    /// Takes hold of the job. Those of its processes that are stopped were so by an earlier daemon.
    fn make(&mut self) -> Result<(), ActuatorError> {
        let proc = &self.machine.proc;
        let mut job = match (&self.config.cgroup, &self.process) {
            (Some(name), _) => {
                BackgroundJob::of_cgroup(proc, Cpuset::create(&self.machine.cgroup, name)?)
            }
            (None, Some(process)) => BackgroundJob::of_group(proc, process.identity().pid)?,
            (None, None) => return Ok(()),
        };
        job.adopt_stopped()?;
        self.job = Some(job);
        Ok(())
    }

    /// Processors that it may use, once that was decided.
    pub fn cpus(&self) -> Option<&[u32]> {
        self.cpus.as_deref()
    }

    /// Whether it runs, as far as that can be known: a group always does.
    pub fn is_alive(&mut self) -> bool {
        self.process.as_mut().is_none_or(|process| process.ended().is_none())
    }

    /// Processor time that it has used so far, in seconds, since the daemon took hold of it.
    pub fn progress_s(&mut self) -> f64 {
        // The kernel's own count knows the groups below, too, as those of a slice of systemd's.
        if let Some(now_s) = self.job.as_ref().and_then(BackgroundJob::cpu_seconds) {
            return self.progress.count_group(now_s);
        }
        if self.progress.group_s.is_some() {
            // The group is not there now.
            return self.progress.group_total_s;
        }
        let processes = self.job.as_ref().and_then(|job| job.processes().ok()).unwrap_or_default();
        self.progress.count(&self.machine.proc, &processes)
    }

    /// Lets it run on these processors only; on none at all, it is stopped until there are some.
    ///
    /// # Errors
    /// The system refuses, or what is needed is missing.
    pub fn run_on(&mut self, cpus: &[u32]) -> Result<(), ActuatorError> {
        if !self.is_alive() {
            // It has done its work: nothing is there that could be held.
            self.cpus = Some(Vec::new());
            return Ok(());
        }
        if self.job.is_none() {
            self.make()?;
        }
        let done = self.job.as_mut().map_or(Ok(()), |job| job.run_on(cpus));
        match &done {
            Ok(()) => self.cpus = Some(cpus.to_vec()),
            Err(_) => (self.job, self.cpus) = (None, None),
        }
        done
    }
}

/// Adds up processor time over processes that come and go.
#[derive(Debug, Default)]
struct Progress {
    last: BTreeMap<u32, u64>,
    ticks: u64,
    /// What a group had used when it was looked at last, and all that it has used since the first look.
    group_s: Option<f64>,
    group_total_s: f64,
}

impl Progress {
    fn count_group(&mut self, now_s: f64) -> f64 {
        let before_s = self.group_s.replace(now_s).unwrap_or(now_s);
        // Less than before: it is a new group of that name.
        self.group_total_s += if now_s < before_s { now_s } else { now_s - before_s };
        self.group_total_s
    }

    fn count(&mut self, proc: &Path, processes: &[u32]) -> f64 {
        let first = self.last.is_empty() && self.ticks == 0;
        let mut now = BTreeMap::new();
        for &process in processes.iter().take(COUNTED_MAX) {
            let stat = sysfs::read(&proc.join(format!("{process}/stat")), "its time");
            let Some(ticks) = stat.ok().and_then(|stat| parse_ticks(&stat)) else { continue };
            let before = self.last.get(&process).copied().unwrap_or(if first { ticks } else { 0 });
            self.ticks += ticks.saturating_sub(before);
            now.insert(process, ticks);
        }
        self.last = now;
        self.ticks as f64 / TICKS_PER_S
    }
}

/// Time in user and kernel mode, in ticks, from a line of `/proc/PID/stat`.
fn parse_ticks(stat: &str) -> Option<u64> {
    let ticks = |field| sysfs::stat_field(stat, field)?.parse::<u64>().ok();
    ticks(11)?.checked_add(ticks(12)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake::{Directory, FakeWorld};

    fn stat(user: u64, kernel: u64) -> String {
        format!("7 (a) b) S 1 7 7 0 -1 4 1 2 3 4 {user} {kernel} 0 0 20 0 1 0 99")
    }

    #[test]
    fn time_adds_up_over_processes_that_come_and_go() {
        let directory = Directory::new("progress");
        let proc = directory.path();
        let mut progress = Progress::default();
        directory.put("7/stat", &stat(100, 50));
        assert_eq!(progress.count(proc, &[7]), 0.0, "what it did before is not ours");
        directory.put("7/stat", &stat(200, 50));
        directory.put("8/stat", &stat(10, 10));
        assert_eq!(progress.count(proc, &[7, 8]), 1.2);
        assert_eq!(progress.count(proc, &[8, 9]), 1.2, "7 has ended, 9 is not shown");
        directory.put("8/stat", &stat(20, 10));
        assert_eq!(progress.count(proc, &[8]), 1.3);
        directory.put("8/stat", "8 (x");
        assert_eq!(progress.count(proc, &[8]), 1.3);
    }

    #[test]
    fn a_groups_time_is_counted_from_the_first_look_and_over_new_groups_of_its_name() {
        let mut progress = Progress::default();
        let counted = [7.0, 7.5, 0.25, 1.25].map(|now_s| progress.count_group(now_s));
        assert_eq!(counted, [0.0, 0.5, 0.75, 1.75]);
    }

    #[test]
    fn a_group_that_is_taken_away_is_said_and_made_anew() {
        let directory = Directory::new("cpuset");
        directory.put_batch();
        let machine = MachineConfig {
            cgroup: directory.path().join("cg"),
            proc: directory.path().join("proc"),
            ..MachineConfig::default()
        };
        let config = BackgroundConfig { cgroup: Some("batch".to_owned()), command: Vec::new() };
        let records = Records::new(directory.path());
        let job = Background::new("kv", &config, &machine, &records, &mut FakeWorld::default());
        let job = job.expect("taken hold of");
        let run_on = |cpus: &[u32]| job.borrow_mut().run_on(cpus);
        run_on(&[1, 2]).expect("held");
        assert_eq!(directory.get("cg/batch/cpuset.cpus"), "1-2");
        std::fs::remove_dir_all(directory.path().join("cg/batch")).expect("it is there");
        let error = run_on(&[1]).unwrap_err().to_string();
        assert!(error.contains("cpuset.cpus is not there"), "{error}");
        assert_eq!(job.borrow().cpus(), None);
        directory.put_batch();
        run_on(&[1]).expect("held again");
        assert_eq!(directory.get("cg/batch/cpuset.cpus"), "1");
        assert_eq!(job.borrow().cpus(), Some(&[1][..]));
        assert!(job.borrow_mut().is_alive());
    }

    /// The state letter of a process, once it is one of those wanted; a signal takes a moment.
    fn becomes(pid: u32, wanted: &str) -> bool {
        (0..2_000).any(|_| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let letter = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
            let is = letter.is_some_and(|letter| wanted.contains(letter));
            if !is {
                std::thread::sleep(std::time::Duration::from_millis(2));
            }
            is
        })
    }

    #[test]
    fn a_command_is_started_stopped_and_taken_over() {
        let directory = Directory::new("job");
        let bell = std::sync::Arc::new(crate::bell::Bell::new().expect("a descriptor"));
        let mut world = crate::machine::Outside::new(&crate::Config::default(), &bell);
        let machine = MachineConfig::default();
        let records = Records::new(directory.path());
        let command = ["sleep", "120"].map(str::to_owned).to_vec();
        let config = BackgroundConfig { command, cgroup: None };
        let mut make = || Background::new("kv", &config, &machine, &records, &mut world);
        let first = make().expect("started");
        let pid = first.borrow().process.as_ref().expect("it runs").identity().pid;
        let status = std::fs::read_to_string("/proc/self/status").expect("ours");
        let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
        let cpus = sysfs::parse_cpus(list.expect("a list").trim()).expect("processors");
        first.borrow_mut().run_on(&cpus[..1]).expect("held");
        first.borrow_mut().run_on(&[]).expect("stopped");
        let stopped = becomes(pid, "T");
        // The daemon is killed: nothing is dropped.
        std::mem::forget(first);
        let second = make().expect("taken over");
        let same = second.borrow().process.as_ref().map(|process| process.identity().pid);
        second.borrow_mut().run_on(&cpus).expect("goes on");
        let goes_on = becomes(pid, "SR");
        let alive = second.borrow_mut().is_alive();
        let mut ours = second.borrow_mut().process.take().expect("it runs");
        ours.signal(rustix::process::Signal::KILL).expect("it is ours");
        assert!(stopped && goes_on && alive);
        assert_eq!(same, Some(pid), "it is not started twice");
        assert!(becomes(pid, "Z") || ours.ended().is_some());
        second.borrow_mut().process = Some(ours);
        assert!(!second.borrow_mut().is_alive());
        second.borrow_mut().run_on(&cpus).expect("nothing is to be done");
        let other = BackgroundConfig { command: vec!["/nonexistent/job".to_owned()], cgroup: None };
        let error = Background::new("echo", &other, &machine, &records, &mut world).err();
        assert!(error.expect("it is not there").contains("/nonexistent/job"));
    }
}
