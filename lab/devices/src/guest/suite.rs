//! The checks in their order, and what they share. To add one, write a function in `checks/` and a row in [`CHECKS`].
//!
//! A check describes what should hold, whatever the product does today. Each of its waits is bounded.

use std::fmt;
use std::time::Instant;

use anyhow::bail;

use super::channel::Channel;
use super::checks::{daemon, domains, faults, lifecycle, readme, start, steering, traffic};
use super::client;
use super::command::{self, wait_until};
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
    run: fn(&mut Suite<'_>) -> anyhow::Result<Outcome>,
}

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
    const fn under_systemd(mut self) -> Self {
        self.place = Place::Systemd;
        self
    }

    const fn everywhere(mut self) -> Self {
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

const fn check(
    name: &'static str,
    about: &'static str,
    run: fn(&mut Suite<'_>) -> anyhow::Result<Outcome>,
) -> Check {
    Check { name, about, is_long: false, place: Place::Plain, run }
}

const fn long(
    name: &'static str,
    about: &'static str,
    run: fn(&mut Suite<'_>) -> anyhow::Result<Outcome>,
) -> Check {
    Check { name, about, is_long: true, place: Place::Plain, run }
}

const RTC: &str = "run-to-completion";
const SHARING: &str = "work-conserving";
const READY: &str = "ready-set";

/// All checks, in the order in which they run. The last one takes the interface away.
pub const CHECKS: [Check; 40] = [
    check("start", "tailplane run announces a service on dp0", start::start).everywhere(),
    check("carrier", "the announcement comes with the link up", start::carrier),
    check("mode", "the announced mode is the kernel's, and the expected one", start::mode),
    check("ping", "pings of all sizes up to the MTU are answered", traffic::pings),
    check("items", "items of 1 B to 1 MiB come back byte for byte", traffic::items),
    check("connections", "64 connections at once are all answered", traffic::connections),
    check("transfer", "100 MB each way arrive byte for byte", traffic::transfer),
    check(
        "taken",
        "a second service on dp0 is refused: the owner of its program is named",
        faults::taken,
    ),
    check("client-link", "serves after the client's link was down and up", faults::client_link),
    check("own-link", "serves after its own link was down and up", faults::own_link),
    check("mtu", "serves while the MTU goes to 1400 and back", faults::mtu),
    check("reset", "serves after resets of the link and changes of the rings", faults::reset),
    check(
        "moves",
        "flow groups move twice under load: no error, the table changes",
        steering::moves,
    ),
    check("forwarded", "threads get the packets of their own flow groups", steering::forwarded),
    check("threads-1", "one thread serves 16 connections of all queues", steering::one_thread),
    long("threads-2", "two threads serve 16 connections of all queues", steering::two_threads),
    long("threads-6", "six threads serve 16 connections of all queues", steering::six_threads),
    check("doctor", "doctor --probe finds the mode that a service gets", start::doctor),
    check(
        "demanded",
        "each mode that is demanded is got, or refused with the reason",
        start::demanded,
    ),
    check("down", "no announcement on an interface that is down", faults::down),
    check("killed", "starts again at once after SIGKILL", lifecycle::killed),
    check("term", "SIGTERM: status 0, the NIC as it was before", lifecycle::term),
    long("inline-rtc", "domain inline, run-to-completion: 16 connections", |suite| {
        domains::serves(suite, "inline", RTC)
    }),
    long("inline-sharing", "domain inline, work-conserving: 16 connections", |suite| {
        domains::serves(suite, "inline", SHARING)
    }),
    long("inline-ready", "domain inline, ready-set: 16 connections", |suite| {
        domains::serves(suite, "inline", READY)
    }),
    long("process-rtc", "domain process, run-to-completion: 16 connections", |suite| {
        domains::serves(suite, "process", RTC)
    }),
    long("process-sharing", "domain process, work-conserving: 16 connections", |suite| {
        domains::serves(suite, "process", SHARING)
    }),
    long("process-ready", "domain process, ready-set: 16 connections", |suite| {
        domains::serves(suite, "process", READY)
    }),
    long("small-memory", "a sharing scheduler with 4096 chunks serves, or is refused", |suite| {
        domains::small_memory(suite)
    }),
    check(
        "jumbo",
        "serves with an MTU of 9000: large segments come, or the start says what does not",
        traffic::jumbo,
    ),
    check(
        "contained",
        "memory, processes and processors are limited by groups",
        domains::contained,
    )
    .everywhere(),
    long("netem", "all bytes arrive though frames are lost, late and reordered", traffic::netem)
        .everywhere(),
    check("unit", "the daemon's unit: watchdog, reload, restart; its service serves", daemon::unit)
        .under_systemd(),
    check("lab", "a service of the daemon's in a lab is reached from the machine", daemon::lab)
        .under_systemd(),
    check(
        "cpusets",
        "a background job has the cores that are left, and no others",
        daemon::cpusets,
    )
    .under_systemd(),
    check("freezer", "it stands still where none is left, and goes on later", daemon::freezer)
        .under_systemd(),
    long("readme", "README's \"see it within a minute\" works as printed", readme::readme)
        .everywhere(),
    check("restored", "after all runs the NIC is as it was before the first", lifecycle::restored)
        .everywhere(),
    check("removed", "dp0 goes while it serves: the service reports or ends", faults::removed),
    check("kernel", "the kernel has logged no warning", lifecycle::kernel).everywhere(),
];

/// What checks share.
#[derive(Debug)]
pub struct Suite<'a> {
    /// What is tried.
    pub task: &'a Task,
    /// Whether it is the short form.
    pub is_short: bool,
    /// The NIC before the first service.
    pub before: lifecycle::NicState,
    service: Option<Service>,
    /// The usual service cannot be started: that was tried.
    is_refused: bool,
}

/// The usual service cannot be started, which another check has found.
#[derive(Debug)]
struct NotStarted;

impl fmt::Display for NotStarted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it did not start")
    }
}

impl std::error::Error for NotStarted {}

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
            return Err(NotStarted.into());
        }
        if self.service.as_mut().is_some_and(Service::has_ended) {
            self.service = None;
        }
        if self.service.is_none() {
            self.service = Some(self.start(&Config::with_threads(self.threads()))?);
        }
        match &mut self.service {
            Some(service) => Ok(service),
            None => bail!("it does not run"),
        }
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
        (check.run)(self).unwrap_or_else(|error| match error.is::<NotStarted>() {
            true => Outcome::NotTried(NotStarted.to_string()),
            false => Outcome::Failed(format!("{error:#}")),
        })
    }
}

/// Runs the checks and reports each.
///
/// # Errors
/// The NIC cannot be looked at.
pub fn run(task: &Task, is_short: bool, only: &[String], channel: &Channel) -> anyhow::Result<()> {
    let before = lifecycle::NicState::look();
    let mut suite = Suite { task, is_short, before, service: None, is_refused: false };
    for check in CHECKS {
        if !check.is_wanted(is_short, only) {
            continue;
        }
        let name = check.name.to_owned();
        channel.send(&Event::Begins { name: name.clone() });
        let began = Instant::now();
        let outcome = suite.outcome(&check);
        channel.send(&Event::Check { name, outcome, took_s: began.elapsed().as_secs_f64() });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_have_names_of_their_own() {
        let mut names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CHECKS.len());
    }

    #[test]
    fn a_check_that_is_named_runs_in_the_short_form_too() {
        let long = CHECKS.iter().find(|check| check.is_long).expect("there is one");
        let named = [long.name.to_owned()];
        assert!(!long.is_wanted(true, &[]) && long.is_wanted(false, &[]));
        assert!(long.is_wanted(true, &named) && !CHECKS[0].is_wanted(false, &named));
    }
}
