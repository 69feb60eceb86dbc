//! Carries out decisions with what hands there are, and says what became of them.

use super::background::BackgroundJob;
use super::clock::ClockSetter;
use super::threads::ElasticThreads;
use super::{ActuatorError, Missing};
use crate::control_loop::{Decision, Outcome};

/// Errors kept until they are taken; older ones are dropped.
const ERRORS_MAX: usize = 256;

/// Elastic threads, and a clock and a background job where there are any.
pub struct Executor<T> {
    threads: T,
    clock: Option<Box<dyn ClockSetter>>,
    background: Option<Box<dyn BackgroundJob>>,
    /// Processors of the cores, in the order of allocation, each with all of its threads.
    cores: Vec<Vec<u32>>,
    errors: Vec<ActuatorError>,
}

impl<T: ElasticThreads> Executor<T> {
    /// With threads alone: clocks and the background job then fail, with what is missing.
    pub fn new(threads: T) -> Self {
        Self { threads, clock: None, background: None, cores: Vec::new(), errors: Vec::new() }
    }

    /// Sets clocks with this.
    pub fn with_clock(mut self, clock: impl ClockSetter + 'static) -> Self {
        self.clock = Some(Box::new(clock));
        self
    }

    /// Gives cores to this job: `cores` are the processors of each, in the order of allocation, and the job has
    /// the last ones.
    pub fn with_background(
        mut self,
        job: impl BackgroundJob + 'static,
        cores: Vec<Vec<u32>>,
    ) -> Self {
        self.background = Some(Box::new(job));
        self.cores = cores;
        self
    }

    /// Begins all of it, in order; what is known of it at once.
    pub fn execute(&mut self, decisions: &[Decision]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for decision in decisions {
            match decision {
                Decision::Grant(thread) => self.threads.grant(*thread),
                Decision::Park(thread) => self.threads.park(*thread),
                Decision::Migrate { request, from, to, groups } => {
                    self.threads.migrate(*request, *from, *to, groups);
                }
                Decision::SetClock(clock) => {
                    let done = match &mut self.clock {
                        Some(setter) => setter.set(*clock),
                        None => Err(nobody("setter of clocks")),
                    };
                    self.note(done, Outcome::ClockFailed(*clock), &mut outcomes);
                }
                Decision::Background(cores) => {
                    let done = self.give(*cores);
                    self.note(done, Outcome::BackgroundFailed(*cores), &mut outcomes);
                }
            }
        }
        outcomes.extend(self.threads.outcomes());
        outcomes
    }

    fn give(&mut self, cores: u32) -> Result<(), ActuatorError> {
        let Some(job) = &mut self.background else {
            return Err(nobody("background job"));
        };
        let left = self.cores.len().saturating_sub(cores as usize);
        let cpus: Vec<u32> = self.cores[left..].iter().flatten().copied().collect();
        job.run_on(&cpus)
    }

    fn note(
        &mut self,
        done: Result<(), ActuatorError>,
        failed: Outcome,
        outcomes: &mut Vec<Outcome>,
    ) {
        if let Err(error) = done {
            outcomes.push(failed);
            if self.errors.len() == ERRORS_MAX {
                self.errors.remove(0);
            }
            self.errors.push(error);
        }
    }

    /// What has become of earlier decisions.
    pub fn outcomes(&mut self) -> Vec<Outcome> {
        self.threads.outcomes()
    }

    /// Why clocks and the background job failed, since the last call.
    pub fn take_errors(&mut self) -> Vec<ActuatorError> {
        std::mem::take(&mut self.errors)
    }

    /// The elastic threads.
    pub fn threads(&mut self) -> &mut T {
        &mut self.threads
    }
}

fn nobody(what: &'static str) -> ActuatorError {
    let costs = "decisions about it are not carried out";
    Missing { what, looked_at: vec!["the executor's hands".into()], costs }.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::actuator::Recorder;
    use crate::configuration::Clock;
    use crate::control_loop::RequestId;
    use crate::metrics::{GroupId, ThreadId};
    use std::cell::RefCell;
    use std::rc::Rc;

    struct Job(Rc<RefCell<Vec<Vec<u32>>>>);

    impl BackgroundJob for Job {
        fn run_on(&mut self, cpus: &[u32]) -> Result<(), ActuatorError> {
            self.0.borrow_mut().push(cpus.to_vec());
            Ok(())
        }
    }

    #[test]
    fn decisions_are_carried_out_in_order_and_failures_said() {
        let given = Rc::new(RefCell::new(Vec::new()));
        let mut threads = Recorder::default();
        threads.refuses.push(ThreadId(2));
        let cores = vec![vec![0, 4], vec![1, 5], vec![2, 6]];
        let mut executor = Executor::new(threads).with_background(Job(Rc::clone(&given)), cores);
        let clock = Clock::Khz(1);
        let outcomes = executor.execute(&[
            Decision::Background(2),
            Decision::SetClock(clock),
            Decision::Grant(ThreadId(2)),
            Decision::Migrate {
                request: RequestId(7),
                from: ThreadId(0),
                to: ThreadId(1),
                groups: vec![GroupId(3)],
            },
            Decision::Park(ThreadId(0)),
            Decision::Background(0),
        ]);
        let request = Some(RequestId(7));
        let migrated = Outcome::Migrated { request, to: ThreadId(1), groups: vec![GroupId(3)] };
        let expected = [
            Outcome::ClockFailed(clock),
            Outcome::GrantFailed(ThreadId(2)),
            migrated,
            Outcome::Parked(ThreadId(0)),
        ];
        assert_eq!(outcomes, expected);
        assert_eq!(*given.borrow(), [vec![1, 5, 2, 6], vec![]]);
        let said = executor.take_errors()[0].to_string();
        assert!(said.starts_with("no setter of clocks"), "{said}");
        assert_eq!(executor.threads().said.len(), 3);
        let mut alone = Executor::new(Recorder::default());
        assert_eq!(alone.execute(&[Decision::Background(1)]), [Outcome::BackgroundFailed(1)]);
    }
}
