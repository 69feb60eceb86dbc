//! The daemon under the real systemd, with control groups of version 2.

use std::collections::BTreeSet;
use std::fs;
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::domains::GROUPS;
use super::load::under_load;
use super::outcome::passed;
use crate::guest::client::{Connection, in_namespace};
use crate::guest::command::{self, wait_until};
use crate::guest::daemon::{Daemon, GROUP, JOB, call, put_service, systemctl};
use crate::guest::service::{Config, START_LIMIT};
use crate::guest::suite::Suite;
use crate::protocol::Outcome;

/// Longest time until the daemon or the kernel has done what was decided.
const TURN_LIMIT: Duration = Duration::from_secs(60);
/// The unit's `WatchdogSec`, as systemd shows it, and a longer time.
const WATCHDOG: &str = "20s";
const WATCHDOG_TIME: Duration = Duration::from_secs(25);
/// How long the background job is watched.
const WATCHED_TIME: Duration = Duration::from_secs(1);
/// Connections that load each thread.
const CONNECTIONS: usize = 16;
/// A service whose idle cores go to the background job. Its threads have processors of their own.
const GOVERNED: &str = "policy = \"consolidation\"\ncores = [0, 1, 2, 3]\n\
                        background = { cgroup = \"batch.slice\" }\n";
/// Any delay exceeds this bound, so that a load gets all cores.
const IMPATIENT: &str = "slo_us = 1\n";
/// A service in a lab, which needs no NIC.
const LAB_SERVICE: &str = "[service]\napp = \"echo\"\n[dataplane]\nend_ms = 7500\n[memory]\n\
                           chunks = 4096\nhuge_pages = \"no\"\n";
/// Its address.
const LAB_ADDRESS: &str = "10.77.0.2";

/// The unit starts, stays, reloads, comes again and stops, and its service serves all the time.
pub fn unit(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    drop(suite.take_service());
    let began = Instant::now();
    let daemon = Daemon::start(suite.task, &Config::with_threads(suite.threads()), "")?;
    let missing = daemon.missing_protection();
    if !missing.is_empty() {
        bail!("below the unit a service lacks protection: {}", missing.join("; "));
    }
    let mut open = in_namespace(Connection::answered)?;
    let service = daemon.service_pid()?;
    let mut still_serves = |when: &str| -> anyhow::Result<()> {
        in_namespace(|| open.version()).with_context(|| format!("a connection from before {when}"))
    };
    expect_reload().context("reload")?;
    while began.elapsed() < WATCHDOG_TIME {
        std::thread::sleep(Duration::from_secs(1));
    }
    expect_state(&daemon, "active", "0").context("longer than WatchdogSec after its start")?;
    let watchdog = daemon.property("WatchdogUSec")?;
    ensure!(watchdog == WATCHDOG, "expected a watchdog of {WATCHDOG}, found {watchdog}");
    still_serves("the watchdog's time")?;
    // One that is stopped feeds no watchdog.
    for (signal, restarts) in [("KILL", "1"), ("STOP", "2")] {
        expect_restart(&daemon, signal, restarts).with_context(|| format!("after SIG{signal}"))?;
        expect_service(&daemon, service).with_context(|| format!("after SIG{signal}"))?;
        still_serves(&format!("SIG{signal}"))?;
    }
    daemon.stop()?;
    expect_state(&daemon, "inactive", "2").context("after a stop")?;
    still_serves("a stop")?;
    systemctl("start tailplaned").with_context(Daemon::log)?;
    expect_service(&daemon, service).context("after a stop and a start")?;
    call("Stop", &json!({ "name": crate::guest::service::NAME }))?;
    // It is systemd's child since the daemon was killed, and shown until systemd has waited for it.
    let has_ended = || !fs::exists(format!("/proc/{service}")).unwrap_or(true);
    if !wait_until(TURN_LIMIT, has_ended) {
        bail!("the daemon says that its service has ended, and process {service} is there");
    }
    passed("start, reload, SIGKILL, watchdog, stop, start")
}

/// `systemctl reload` has the daemon read a new service's file.
fn expect_reload() -> anyhow::Result<()> {
    put_service("another", LAB_SERVICE)?;
    systemctl("reload tailplaned")?;
    let is_listed = || {
        call("List", &json!({})).is_ok_and(|list| list["services"].to_string().contains("another"))
    };
    match wait_until(TURN_LIMIT, is_listed) {
        true => Ok(()),
        false => bail!("the daemon lists no new service: {}", Daemon::log()),
    }
}

fn expect_state(daemon: &Daemon, state: &str, restarts: &str) -> anyhow::Result<()> {
    let found = (daemon.property("ActiveState")?, daemon.property("NRestarts")?);
    if found != (state.to_owned(), restarts.to_owned()) {
        bail!("expected {state} and {restarts} restarts, found {found:?}: {}", Daemon::log());
    }
    Ok(())
}

/// systemd starts the daemon anew after a signal.
fn expect_restart(daemon: &Daemon, signal: &str, restarts: &str) -> anyhow::Result<()> {
    let killed = daemon.property("MainPID")?;
    command::run(&format!("kill -{signal} {killed}"))?;
    let is_anew = || {
        // None is process 0.
        let is_other = daemon.property("MainPID").is_ok_and(|pid| pid != killed && pid != "0");
        is_other && daemon.property("ActiveState").is_ok_and(|state| state == "active")
    };
    ensure!(wait_until(TURN_LIMIT, is_anew), "not started anew: {}", Daemon::log());
    expect_state(daemon, "active", restarts)
}

/// The daemon has taken over the service that it found.
fn expect_service(daemon: &Daemon, pid: u64) -> anyhow::Result<()> {
    daemon.wait_for_service()?;
    let (found, starts) = (daemon.service_pid()?, daemon.status()?["starts"].take());
    if found != pid || starts != 0 {
        bail!("expected process {pid} to be taken over, found {found}, {starts} starts");
    }
    Ok(())
}

/// A service that the daemon started in a lab can be reached from outside of the unit.
pub fn lab(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    drop(suite.take_service());
    // One with other queues would be in the way.
    let _ = command::run("tailplane lab down");
    let daemon = Daemon::start(suite.task, &Config::with_threads(suite.threads()), "")?;
    put_service("lab", LAB_SERVICE)?;
    call("Start", &json!({ "name": "lab" })).with_context(Daemon::log)?;
    let ping = format!("tailplane lab exec -- ping -c 1 -W 2 {LAB_ADDRESS}");
    let is_reached = || command::run(&ping).is_ok();
    let reached = match wait_until(START_LIMIT, is_reached) {
        true => Ok(()),
        false => command::run(&ping).map(drop),
    };
    let stopped = call("Stop", &json!({ "name": "lab" }));
    drop(daemon);
    reached?;
    stopped?;
    command::run("tailplane lab down")?;
    passed("")
}

fn group_file(name: &str) -> String {
    fs::read_to_string(format!("{GROUP}/{name}")).unwrap_or_default().trim().to_owned()
}

/// The processors of a list of the kernel's: `0,2-3`.
fn processors(list: &str) -> Vec<u64> {
    let range = |part: &str| {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().collect()
}

/// Processors that a process or thread may run on.
fn allowed(directory: &str) -> Vec<u64> {
    let status = fs::read_to_string(format!("{directory}/status")).unwrap_or_default();
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"));
    list.map(processors).unwrap_or_default()
}

/// Starts the background job, and returns its process's number.
fn start_job() -> anyhow::Result<String> {
    systemctl(&format!("start {JOB}"))?;
    Ok(systemctl(&format!("show --value --property=MainPID {JOB}"))?.trim().to_owned())
}

/// The group's processors and those of its process are what the daemon says.
fn expect_cpus(daemon: &Daemon, job: &str, count: usize) -> anyhow::Result<Vec<u64>> {
    let (mut said, mut group, mut process) = (Vec::new(), Vec::new(), Vec::new());
    let is_so = wait_until(TURN_LIMIT, || {
        said = daemon.job_cpus().unwrap_or_default();
        group = processors(&group_file("cpuset.cpus.effective"));
        process = allowed(&format!("/proc/{job}"));
        said.len() == count && group == said && process == said
    });
    if !is_so {
        bail!(
            "expected {count} processors; the daemon says {said:?}, the group has {group:?}, its process {process:?}: {}",
            Daemon::log()
        );
    }
    Ok(said)
}

/// Each elastic thread runs where the daemon says.
fn expect_threads(daemon: &Daemon) -> anyhow::Result<()> {
    let status = daemon.status()?;
    let running = &status["running"];
    let tasks = format!("/proc/{}/task", running["pid"]);
    let found: BTreeSet<Vec<u64>> = fs::read_dir(&tasks)?
        .flatten()
        .map(|task| allowed(&task.path().to_string_lossy()))
        .collect();
    let threads = running["threads"].as_array().context("no threads")?;
    for cpu in threads.iter().map(|thread| &thread["cpu"]) {
        let is_there = cpu.as_u64().is_some_and(|cpu| found.contains(&vec![cpu]));
        ensure!(is_there, "no thread is on processor {cpu} alone, as the daemon says: {found:?}");
    }
    Ok(())
}

/// The background job has the processors that an idle service leaves, also after systemd has read its units anew, and
/// all of them when the daemon has ended.
pub fn cpusets(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    drop(suite.take_service());
    // Groups of services keep the controller as well; here the daemon alone is to do it.
    let _ = fs::remove_dir(GROUPS);
    let job = start_job()?;
    let before = allowed(&format!("/proc/{job}"));
    // In one process: then no group but the job's needs the controller.
    let config = Config { domain: Some("inline"), ..Config::with_threads(suite.threads()) };
    let daemon = Daemon::start(suite.task, &config, GOVERNED)?;
    let count = before.len() - 1;
    let cpus = expect_cpus(&daemon, &job, count)?;
    expect_threads(&daemon)?;
    systemctl("daemon-reload")?;
    expect_cpus(&daemon, &job, count).context("after systemctl daemon-reload")?;
    daemon.stop()?;
    let (group, after) = (group_file("cpuset.cpus"), allowed(&format!("/proc/{job}")));
    if !group.is_empty() || after != before {
        bail!("after the daemon's end the group says '{group}', its process {after:?}");
    }
    let control = fs::read_to_string("/sys/fs/cgroup/cgroup.subtree_control")?;
    if fs::exists(format!("{GROUP}.keeper"))? || control.contains("cpuset") {
        bail!("the daemon left its control groups behind: {}", control.trim());
    }
    passed(format!("processors {cpus:?}"))
}

fn is_frozen() -> bool {
    group_file("cgroup.events").lines().any(|line| line == "frozen 1")
}

/// Processor time that the job gets while it is watched, in microseconds.
fn progress_us() -> anyhow::Result<u64> {
    let used = || -> anyhow::Result<u64> {
        let stat = group_file("cpu.stat");
        let us = stat.lines().find_map(|line| line.strip_prefix("usage_usec "));
        us.and_then(|us| us.parse().ok()).with_context(|| format!("no time in: {stat}"))
    };
    let before = used()?;
    std::thread::sleep(WATCHED_TIME);
    Ok(used()? - before)
}

fn expect_running(daemon: &Daemon) -> anyhow::Result<()> {
    let has_cpus = || !is_frozen() && daemon.job_cpus().is_ok_and(|cpus| !cpus.is_empty());
    if !wait_until(TURN_LIMIT, has_cpus) {
        bail!("the job does not run beside an idle service: {}", Daemon::log());
    }
    let said = |status: Value| status["running"]["background"]["cpu_seconds"].as_f64();
    let before = said(daemon.status()?);
    ensure!(progress_us()? > 0, "the job gets no processor time beside an idle service");
    if said(daemon.status()?) <= before {
        bail!("the job runs, and the daemon counts {before:?} s of processor time and no more");
    }
    Ok(())
}

fn expect_frozen(daemon: &Daemon) -> anyhow::Result<()> {
    // The policy may take a core again at any moment: what counts is a time in which it did not.
    let mut found = Vec::new();
    let is_so = wait_until(TURN_LIMIT, || {
        let was_frozen = is_frozen();
        let progress = progress_us().unwrap_or(u64::MAX);
        let cpus = daemon.job_cpus().unwrap_or_default();
        let has_frozen = was_frozen && is_frozen();
        found.push((was_frozen, progress, cpus.len()));
        has_frozen && progress == 0 && cpus.is_empty()
    });
    match is_so {
        true => Ok(()),
        false => bail!(
            "the job is not stopped under load; frozen, progress in us, processors: {found:?}: {}",
            Daemon::log()
        ),
    }
}

/// The background job runs beside an idle service, stands still beside one that needs all cores, and runs when the
/// daemon has ended.
pub fn freezer(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    drop(suite.take_service());
    start_job()?;
    let control = format!("{GOVERNED}{IMPATIENT}");
    let daemon = Daemon::start(suite.task, &Config::with_threads(suite.threads()), &control)?;
    expect_running(&daemon).context("at first")?;
    under_load(CONNECTIONS, || expect_frozen(&daemon))?;
    expect_running(&daemon).context("after the load")?;
    under_load(CONNECTIONS, || {
        expect_frozen(&daemon)?;
        daemon.stop()
    })?;
    let freeze = group_file("cgroup.freeze");
    if freeze != "0" || is_frozen() || progress_us()? == 0 {
        bail!("the job does not go on after the daemon's end: cgroup.freeze says '{freeze}'");
    }
    passed("frozen under load, twice")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_of_processors_are_read() {
        assert_eq!(processors("0,2-3\n"), [0, 2, 3]);
        assert_eq!(processors("\t0-3"), [0, 1, 2, 3]);
        assert!(processors("").is_empty());
    }
}
