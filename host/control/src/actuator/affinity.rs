//! Plain affinity, where no cpuset can be had: every task of a process, through `sched_setaffinity`.

use std::path::{Path, PathBuf};

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::{ActuatorError, refused};
use crate::sysfs::show_cpus;

/// Most tasks of a process that are looked after.
const TASKS_MAX: usize = 65_536;

/// Tasks whose affinity was changed, with what it was; put back by [`restore`](Self::restore) or when dropped.
#[derive(Debug)]
pub struct Affinity {
    proc: PathBuf,
    found: Vec<(Pid, CpuSet)>,
}

impl Affinity {
    /// `proc` is where processes are shown: `/proc`.
    pub fn new(proc: &Path) -> Self {
        Self { proc: proc.to_owned(), found: Vec::new() }
    }

    /// Lets all tasks of a process run on these processors only. Tasks that end meanwhile are passed over.
    ///
    /// # Errors
    /// The process is not there, no processor is named, or the system takes other ones (a cpuset is in the way).
    pub fn set_process(&mut self, process: u32, cpus: &[u32]) -> Result<(), ActuatorError> {
        let tasks = self.tasks(process)?;
        for task in tasks {
            self.set_task(task, cpus)?;
        }
        Ok(())
    }

    fn tasks(&self, process: u32) -> Result<Vec<Pid>, ActuatorError> {
        let directory = self.proc.join(format!("{process}/task"));
        let entries = std::fs::read_dir(&directory).map_err(|error| {
            refused(format!("listing the tasks in {}", directory.display()), error)
        })?;
        let number = |entry: std::fs::DirEntry| entry.file_name().to_str()?.parse().ok();
        let numbers = entries.flatten().filter_map(number).take(TASKS_MAX);
        Ok(numbers.filter_map(Pid::from_raw).collect())
    }

    /// One task, by its number.
    ///
    /// # Errors
    /// As for [`set_process`](Self::set_process), but a task that is gone is none.
    pub fn set_task(&mut self, task: Pid, cpus: &[u32]) -> Result<(), ActuatorError> {
        let tried =
            || format!("running task {} on processors {}", task.as_raw_nonzero(), show_cpus(cpus));
        let mut wanted = CpuSet::new();
        for &cpu in cpus {
            if cpu as usize >= CpuSet::MAX_CPU {
                let reason = format!("processors from {} on cannot be named", CpuSet::MAX_CPU);
                return Err(refused(tried(), reason));
            }
            wanted.set(cpu as usize);
        }
        let failed = |error: rustix::io::Errno| refused(tried(), error);
        let before = match sched_getaffinity(Some(task)) {
            Ok(before) => before,
            Err(rustix::io::Errno::SRCH) => return Ok(()),
            Err(error) => return Err(failed(error)),
        };
        if !self.found.iter().any(|(known, _)| *known == task) {
            self.found.push((task, before));
        }
        sched_setaffinity(Some(task), &wanted).map_err(failed)?;
        let taken = sched_getaffinity(Some(task)).map_err(failed)?;
        if taken == wanted {
            return Ok(());
        }
        Err(refused(tried(), "the system took other ones; a cpuset may be in the way"))
    }

    /// Puts all affinities back, the latest first; errors of tasks that are still there.
    pub fn restore(&mut self) -> Vec<ActuatorError> {
        let mut errors = Vec::new();
        while let Some((task, before)) = self.found.pop() {
            match sched_setaffinity(Some(task), &before) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => {
                    let tried =
                        format!("putting back the processors of task {}", task.as_raw_nonzero());
                    errors.push(refused(tried, error));
                }
            }
        }
        errors
    }
}

impl Drop for Affinity {
    fn drop(&mut self) {
        // Nobody is left to be told; who wants to know calls `restore`.
        let _ = self.restore();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::thread::gettid;

    #[test]
    fn a_task_runs_where_it_is_told_until_it_is_put_back() {
        // Of a thread of its own, so that the other tests' threads stay where they are.
        std::thread::spawn(|| {
            let before = sched_getaffinity(None).expect("our own");
            let first = (0..CpuSet::MAX_CPU).find(|&cpu| before.is_set(cpu)).expect("we run");
            {
                let mut affinity = Affinity::new(Path::new("/proc"));
                affinity.set_task(gettid(), &[first as u32]).expect("one of our own processors");
                assert_eq!(sched_getaffinity(None).expect("our own").count(), 1);
                assert!(affinity.set_task(gettid(), &[]).is_err(), "nowhere");
                assert!(affinity.set_task(gettid(), &[99_999]).is_err());
            }
            assert_eq!(sched_getaffinity(None).expect("our own"), before);
        })
        .join()
        .expect("the thread's checks hold");
    }

    #[test]
    fn a_process_that_is_gone_is_said() {
        let mut affinity = Affinity::new(Path::new("/proc"));
        let error = affinity.set_process(u32::MAX, &[0]).unwrap_err().to_string();
        assert!(error.contains("listing the tasks in /proc/4294967295/task"), "{error}");
    }
}
