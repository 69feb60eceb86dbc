//! What a check is, what checks share, and how they are run one after the other.
//!
//! A check describes what should hold, whatever the product does today. Each of its waits is bounded.

use std::time::Instant;

use anyhow::{Context, bail};

use super::channel::Channel;
use super::client;
use super::command::{self, wait_until};
use super::nic_state::NicState;
use super::rig;
use super::service::{Config, Service};
use crate::protocol::{Event, Outcome, Task};

/// Longest time until a service that was announced answers a first ping.
const FIRST_ANSWER_LIMIT: std::time::Duration = std::time::Duration::from_secs(15);

/// What is printed of a service that answers no ping.
const DIAGNOSES: [&str; 5] = [
    "ip -s -s link",
    "ethtool -S dp0",
    "ip netns exec c ip -s -s neigh",
    "cat /proc/interrupts",
    "tailplane status devices --json",
];

/// One check.
#[derive(Clone, Copy)]
pub struct Check {
    /// Its name.
    pub name: &'static str,
    /// What should hold.
    pub about: &'static str,
    /// Whether the short form leaves it out.
    pub is_long: bool,
    place: Place,
    run: Run,
}

/// What carries a check out; an error is a failure.
type Run = fn(&mut Suite<'_>) -> anyhow::Result<Outcome>;

/// In which boots a check is tried.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// Those without systemd: it makes no difference there.
    Plain,
    /// Those with systemd.
    Systemd,
    /// All.
    Everywhere,
}

impl Check {
    /// It is tried where systemd runs, and only there.
    pub const fn under_systemd(mut self) -> Self {
        self.place = Place::Systemd;
        self
    }

    /// It is tried in every boot.
    pub const fn everywhere(mut self) -> Self {
        self.place = Place::Everywhere;
        self
    }

    /// Whether it is to run: it is among those that are named, or of the form that is wanted where none is.
    pub fn is_wanted(&self, is_short: bool, only: &[String]) -> bool {
        match only.is_empty() {
            true => !(is_short && self.is_long),
            false => only.iter().any(|name| name == self.name),
        }
    }

    /// Why it is not tried in a boot with systemd, or without.
    fn why_not(&self, systemd: bool) -> Option<&'static str> {
        match (self.place, systemd) {
            (Place::Systemd, false) => Some("no systemd in this boot"),
            (Place::Plain, true) => Some("the same without systemd: tried in the boot veth"),
            _ => None,
        }
    }
}

/// A check that both forms have.
pub const fn check(name: &'static str, about: &'static str, run: Run) -> Check {
    Check { name, about, is_long: false, place: Place::Plain, run }
}

/// A check that the short form leaves out.
pub const fn long(name: &'static str, about: &'static str, run: Run) -> Check {
    Check { is_long: true, ..check(name, about, run) }
}

/// What checks share.
#[derive(Debug)]
pub struct Suite<'a> {
    /// What is tried.
    pub task: &'a Task,
    /// Whether it is the short form.
    pub is_short: bool,
    /// The NIC before the first service.
    pub before: NicState,
    service: Option<Service>,
    /// The usual service cannot be started: that was tried.
    is_refused: bool,
}

/// The error where the usual service cannot be started, which another check has found.
const NOT_STARTED: &str = "it did not start";

impl Suite<'_> {
    /// Threads of the usual service: one for each queue.
    pub fn threads(&self) -> u32 {
        self.task.driver.queues()
    }

    /// The usual service; started where it does not run.
    ///
    /// # Errors
    /// It cannot be started.
    pub fn service(&mut self) -> anyhow::Result<&mut Service> {
        if self.is_refused {
            bail!(NOT_STARTED);
        }
        if self.service.as_mut().is_some_and(Service::has_ended) {
            self.service = None;
        }
        if self.service.is_none() {
            self.service = Some(self.start(&Config::with_threads(self.threads()))?);
        }
        self.service.as_mut().context("it does not run")
    }

    /// The usual service, started where it does not run, to end it.
    ///
    /// # Errors
    /// As [`service`](Self::service).
    pub fn take_running(&mut self) -> anyhow::Result<Service> {
        self.service()?;
        self.service.take().context("it does not run")
    }

    /// Starts a service where none runs, and waits until it can be reached: for the links, and for a first answer. One
    /// that does not answer is for the checks to find.
    ///
    /// # Errors
    /// It announces nothing.
    pub fn start(&self, config: &Config) -> anyhow::Result<Service> {
        let service = Service::start(self.task, config)?;
        self.wait_for_answer();
        Ok(service)
    }

    /// Waits until links are up and a ping is answered, and returns whether it was. Where it was not, what the kernel
    /// counts goes to the machine's console, which is kept.
    pub fn wait_for_answer(&self) -> bool {
        let answers = rig::wait_for_links().is_ok()
            && wait_until(FIRST_ANSWER_LIMIT, || client::ping(56, "1").unwrap_or(false));
        if !answers {
            for line in DIAGNOSES {
                let found = command::run(line).unwrap_or_else(|error| format!("{error:#}\n"));
                eprintln!("$ {line}\n{found}");
            }
        }
        answers
    }

    /// Takes the usual service, to end it.
    pub fn take_service(&mut self) -> Option<Service> {
        self.service.take()
    }

    /// Records that the usual service cannot be started.
    pub fn refuse(&mut self) {
        self.is_refused = true;
    }

    fn outcome(&mut self, check: &Check) -> Outcome {
        if let Some(reason) = check.why_not(self.task.systemd) {
            return Outcome::NotPossible(reason.to_owned());
        }
        (check.run)(self).unwrap_or_else(|error| match error.downcast_ref() {
            Some(&NOT_STARTED) => Outcome::NotTried(NOT_STARTED.to_owned()),
            _ => Outcome::Failed(format!("{error:#}")),
        })
    }
}

/// Runs `checks`, those that are wanted, and reports each.
///
/// # Errors
/// The NIC cannot be looked at.
pub fn run(
    checks: &[Check],
    task: &Task,
    (is_short, only): (bool, &[String]),
    channel: &Channel,
) -> anyhow::Result<()> {
    let before = NicState::look();
    let mut suite = Suite { task, is_short, before, service: None, is_refused: false };
    for check in checks {
        if !check.is_wanted(is_short, only) {
            continue;
        }
        let name = check.name.to_owned();
        channel.send(&Event::Begins { name: name.clone() });
        let began = Instant::now();
        let outcome = suite.outcome(check);
        channel.send(&Event::Check { name, outcome, took_s: began.elapsed().as_secs_f64() });
    }
    Ok(())
}
