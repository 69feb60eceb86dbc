//! The guest's part: the first process of the emulated machine, and what it runs.
//!
//! The first process mounts file systems, moves the image to a root of its own, starts this program once more for the
//! task, and powers the machine off when that has ended, however it ended. Where the task asks for systemd, that becomes
//! the first process in its place, and does the rest by the unit `task.service` (`host/systemd.rs`).

mod channel;
mod checks;
mod client;
mod command;
mod daemon;
mod modules;
mod mounts;
mod nic_state;
mod processes;
mod rig;
mod script;
mod service;
mod suite;

use std::fs;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use anyhow::Context;
use rustix::system::{RebootCommand, reboot};

pub use checks::CHECKS;

use crate::protocol::{Event, HEARTBEAT_S, TASK_FILE, Task, Work};
use channel::Channel;

/// The first process's name for itself.
pub const INIT: &str = "/init";
/// The command that the first process starts.
pub const COMMAND: &str = "guest";
/// The first process of boots with systemd.
const SYSTEMD: &str = "/lib/systemd/systemd";

/// The first process's part. It does not return.
pub fn init() -> ! {
    if let Err(error) = first_process() {
        report_broken(&format!("{error:#}"));
    }
    // The console's last characters are under way.
    std::thread::sleep(Duration::from_millis(50));
    let _ = reboot(RebootCommand::PowerOff);
    panic!("the machine does not power off");
}

fn first_process() -> anyhow::Result<()> {
    mounts::mount_all()?;
    if read_task()?.systemd {
        let error = Command::new(SYSTEMD).env_clear().env("PATH", "/bin").exec();
        return Err(error).with_context(|| format!("starting {SYSTEMD}"));
    }
    let status = Command::new(INIT)
        .arg(COMMAND)
        .env_clear()
        .envs([("PATH", "/bin"), ("HOME", "/tmp"), ("TERM", "linux"), ("LC_ALL", "C")])
        .stdin(Stdio::null())
        .status()
        .context("starting the task")?;
    if !status.success() {
        report_broken(&format!("the guest's task ended with {status}"));
    }
    Ok(())
}

/// The channel may be what is broken: then the console has it.
fn report_broken(reason: &str) {
    eprintln!("devices: {reason}");
    if let Ok(channel) = Channel::open() {
        channel.send(&Event::Broken { reason: reason.to_owned() });
    }
}

/// Does what the task says, and reports where that cannot be done.
///
/// # Errors
/// The channel to the host cannot be opened.
pub fn run() -> anyhow::Result<ExitCode> {
    let channel = Channel::open()?;
    if let Err(error) = do_task(&channel) {
        channel.send(&Event::Broken { reason: format!("{error:#}") });
    }
    channel.send(&Event::Done);
    Ok(ExitCode::SUCCESS)
}

fn read_task() -> anyhow::Result<Task> {
    let task = fs::read(TASK_FILE).context("reading the task")?;
    serde_json::from_slice(&task).context("reading the task")
}

fn do_task(channel: &Channel) -> anyhow::Result<()> {
    let task = read_task()?;
    let beating = channel.clone();
    std::thread::spawn(move || {
        loop {
            beating.send(&Event::Heartbeat);
            std::thread::sleep(Duration::from_secs(HEARTBEAT_S));
        }
    });
    let kernel = rustix::system::uname().release().to_string_lossy().into_owned();
    channel.send(&Event::Booted { kernel, uptime_s: uptime_s() });
    modules::insert_all()?;
    rig::set_up(task.driver)?;
    channel.send(&Event::Rigged { uptime_s: uptime_s() });
    match &task.work {
        Work::Suite { short, only } => suite::run(&CHECKS, &task, (*short, only), channel),
        Work::Script => script::run(channel),
        Work::Shell => script::shell(),
    }
}

/// Seconds since the kernel began.
fn uptime_s() -> f64 {
    let text = fs::read_to_string("/proc/uptime").unwrap_or_default();
    text.split_whitespace().next().and_then(|word| word.parse().ok()).unwrap_or_default()
}
