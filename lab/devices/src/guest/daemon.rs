//! The daemon in the guest: installed as a package would, started by systemd, asked at its control socket.

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use serde_json::{Value, json};

use super::command::{self, run_words, wait_until};
use super::processes;
use super::service::{Config, NAME, START_LIMIT, STOP_LIMIT, quoted};
use crate::protocol::Task;

/// The daemon's unit.
pub const UNIT: &str = "tailplaned.service";
/// The control group of the background job, right under the mount, as systemd makes it for a slice.
pub const GROUP: &str = "/sys/fs/cgroup/batch.slice";
/// The unit of the background job.
pub const JOB: &str = "batch-job.service";
/// Longest time for one command of systemd's, and for one answer of the daemon's.
const ANSWER_LIMIT: Duration = Duration::from_secs(60);
/// Where the daemon and its services print to: the guest has no journal.
const LOG: &str = "/tmp/tailplaned.log";
const CONTROL_SOCKET: &str = "/run/tailplane/control.sock";
/// Where services' files lie.
const SERVICES: &str = "/etc/tailplane/services";

const LOG_DROP_IN: &str = "[Service]\nStandardOutput=append:/tmp/tailplaned.log\n\
                           StandardError=append:/tmp/tailplaned.log\n";
const JOB_UNIT: &str = "[Service]\nSlice=batch.slice\nExecStart=/bin/sh -c 'while :; do :; done'\n";
/// Files of the package, and those of the checks, by their places.
const FILES: [(&str, &str); 5] = [
    (
        "/usr/lib/systemd/system/tailplaned.service",
        include_str!("../../../../dist/systemd/tailplaned.service"),
    ),
    (
        "/usr/lib/sysusers.d/tailplane.conf",
        include_str!("../../../../dist/sysusers.d/tailplane.conf"),
    ),
    ("/etc/tailplane/tailplaned.toml", include_str!("../../../../dist/tailplaned.toml")),
    ("/run/systemd/system/tailplaned.service.d/log.conf", LOG_DROP_IN),
    ("/run/systemd/system/batch-job.service", JOB_UNIT),
];

/// The daemon as a unit that runs, with one service. Dropped, all of it ends.
#[derive(Debug)]
pub struct Daemon;

impl Daemon {
    /// Installs it, has systemd start it, and waits until it has reached the service of this configuration, which gets
    /// these lines in its table `[control]`.
    ///
    /// # Errors
    /// What failed, with the daemon's log.
    pub fn start(task: &Task, config: &Config, control: &str) -> anyhow::Result<Self> {
        for (path, text) in FILES {
            put(path, text)?;
        }
        put(LOG, "")?;
        let text = config.text(task.demanded);
        put(&format!("{SERVICES}/{NAME}.toml"), &format!("{text}autostart = true\n{control}"))?;
        command::run("systemd-sysusers").context("making the users")?;
        systemctl("daemon-reload")?;
        let daemon = Self;
        systemctl(&format!("start {UNIT}")).with_context(Self::log)?;
        daemon.wait_for_service()?;
        Ok(daemon)
    }

    /// Waits until the daemon has reached the service.
    ///
    /// # Errors
    /// It does not in time.
    pub fn wait_for_service(&self) -> anyhow::Result<()> {
        let is_up = || self.status().is_ok_and(|status| status["phase"] == "up");
        if !wait_until(START_LIMIT, is_up) {
            bail!("the service is not up after {} s: {}", START_LIMIT.as_secs(), Self::log());
        }
        Ok(())
    }

    /// A property of the daemon's unit.
    ///
    /// # Errors
    /// systemd does not answer.
    pub fn property(&self, name: &str) -> anyhow::Result<String> {
        Ok(systemctl(&format!("show --value --property={name} {UNIT}"))?.trim().to_owned())
    }

    /// What the daemon and its services have printed, on one line.
    pub fn log() -> String {
        quoted(&fs::read_to_string(LOG).unwrap_or_default())
    }

    /// What the service's start has announced as missing of its protection.
    pub fn missing_protection(&self) -> Vec<String> {
        let text = fs::read_to_string(LOG).unwrap_or_default();
        text.lines().filter(|line| line.contains("protection missing")).map(str::to_owned).collect()
    }

    /// What the daemon says of its service.
    ///
    /// # Errors
    /// It does not answer.
    pub fn status(&self) -> anyhow::Result<Value> {
        Ok(call("Status", &json!({ "name": NAME }))?["service"].take())
    }

    /// The process of its service.
    ///
    /// # Errors
    /// It does not answer, or has not reached it.
    pub fn service_pid(&self) -> anyhow::Result<u64> {
        self.status()?["running"]["pid"].as_u64().context("the daemon names no process")
    }

    /// Processors of the background job, as the daemon says.
    ///
    /// # Errors
    /// It does not answer, or has no job.
    pub fn job_cpus(&self) -> anyhow::Result<Vec<u64>> {
        let status = self.status()?;
        let cpus = status["running"]["background"]["cpus"].as_array();
        let cpus = cpus.with_context(|| format!("no background job in: {status}"))?;
        Ok(cpus.iter().filter_map(Value::as_u64).collect())
    }

    /// Ends the daemon alone.
    ///
    /// # Errors
    /// systemd could not.
    pub fn stop(&self) -> anyhow::Result<()> {
        systemctl(&format!("stop {UNIT}")).with_context(Self::log).map(drop)
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        // What has ended needs nothing.
        let _ = call("Stop", &json!({ "name": NAME }));
        let _ = systemctl(&format!("stop {UNIT} {JOB}"));
        let _ = command::run(&format!("tailplane ctl {NAME} end"));
        wait_until(STOP_LIMIT, || processes::named("tailplane").is_empty());
        let _ = fs::remove_file(format!("{SERVICES}/{NAME}.toml"));
    }
}

/// Writes a file, with the directories above it.
///
/// # Errors
/// It cannot be written.
pub fn put(path: &str, text: &str) -> anyhow::Result<()> {
    let (directory, _) = path.rsplit_once('/').context("no directory")?;
    fs::create_dir_all(directory).with_context(|| format!("making '{directory}'"))?;
    fs::write(path, text).with_context(|| format!("writing '{path}'"))
}

/// Adds a service to the daemon's directory.
///
/// # Errors
/// The file cannot be written.
pub fn put_service(name: &str, text: &str) -> anyhow::Result<()> {
    put(&format!("{SERVICES}/{name}.toml"), text)
}

/// Runs `systemctl` with these words.
///
/// # Errors
/// What it printed.
pub fn systemctl(words: &str) -> anyhow::Result<String> {
    let all: Vec<&str> = ["systemctl"].into_iter().chain(words.split_whitespace()).collect();
    run_words(&all, ANSWER_LIMIT)
}

/// Calls a method of the daemon's interface.
///
/// # Errors
/// It does not answer in time, or with an error.
pub fn call(method: &str, parameters: &Value) -> anyhow::Result<Value> {
    let mut socket = UnixStream::connect(CONTROL_SOCKET)
        .with_context(|| format!("connecting to {CONTROL_SOCKET}"))?;
    socket.set_read_timeout(Some(ANSWER_LIMIT))?;
    socket.set_write_timeout(Some(ANSWER_LIMIT))?;
    let method = format!("io.tailplane.Control.{method}");
    let mut message = serde_json::to_vec(&json!({ "method": method, "parameters": parameters }))?;
    message.push(0);
    socket.write_all(&message).with_context(|| format!("calling {method}"))?;
    let mut reply = Vec::new();
    BufReader::new(socket).read_until(0, &mut reply).with_context(|| method.clone())?;
    reply.pop();
    let mut reply: Value = serde_json::from_slice(&reply).with_context(|| method.clone())?;
    ensure!(reply.get("error").is_none(), "{method}: {reply}");
    Ok(reply["parameters"].take())
}
