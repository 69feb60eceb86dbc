//! The daemon, a service that it starts, and a background job, in a directory and a lab of their own.

use std::io::{BufRead, BufReader, Write};
use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, bail, ensure};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, pidfd_open, pidfd_send_signal};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::plan::Policy;
use service::lab::constants::DATAPLANE_ADDRESS;
use service::lab::{Lab, LabConfig};
use service::private;
use service::watch::Service;

/// What the service is called.
const NAME: &str = "elastic";
const PORT: u16 = 7_070;
/// How long anything that is waited for may take.
const PATIENCE: Duration = Duration::from_secs(30);
const LOOK: Duration = Duration::from_millis(20);
/// A background job that wants all that it can get: how far it comes is its processor time, which the daemon tells. It
/// outlives the daemon, as services do, so it ends by itself once this process or its directory is gone.
fn job(directory: &Path) -> String {
    let (own, directory) = (std::process::id(), directory.display());
    format!(r#"["sh", "-c", "while kill -0 {own} && [ -e {directory} ]; do :; done"]"#)
}

/// See the module's comment. Dropped, all of it is gone.
pub struct Rig {
    // In this order: the daemon ends its job, then the service ends, then the lab goes.
    daemon: Child,
    /// Its number, and what means this process for ever: the daemon reaps it, not this one.
    service: Option<(u32, OwnedFd)>,
    lab: Lab,
    directory: TempDir,
}

impl Rig {
    /// Starts the daemon, and waits until the service runs, with this scheduler: under a policy, its second thread
    /// parked and a job beside it; or without either, and both threads serve.
    ///
    /// # Errors
    /// No `tailplaned` beside this program, no lab, or something that does not start.
    pub fn start(scheduler: &str, policy: Option<&Policy>) -> anyhow::Result<Self> {
        let lab = Lab::create(LabConfig { queues: 2, ..LabConfig::unique("elastic") })?;
        let directory = private::directory("elastic")?;
        let path = directory.path();
        std::fs::create_dir(path.join("services"))?;
        let [tailplane, tailplaned] = [installed("tailplane")?, installed("tailplaned")?];
        let config = path.join("tailplaned.toml");
        std::fs::write(&config, daemon_toml(path, &tailplane))?;
        let service = path.join("services").join(format!("{NAME}.toml"));
        std::fs::write(service, service_toml(lab.prefix(), scheduler, policy, path))?;
        let log = std::fs::File::create(path.join("log"))?;
        let mut command = Command::new(&tailplaned);
        command.arg("--config").arg(&config);
        let daemon = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        let daemon = daemon.with_context(|| format!("starting {}", tailplaned.display()))?;
        let mut rig = Self { daemon, service: None, lab, directory };
        rig.settle(policy.is_some())?;
        Ok(rig)
    }

    fn settle(&mut self, has_job: bool) -> anyhow::Result<()> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let status = self.status();
            if let Ok(status) = &status {
                let number = status["running"]["pid"].as_u64();
                let number = number.and_then(|number| u32::try_from(number).ok());
                if self.service.as_ref().map(|(held, _)| *held) != number {
                    self.service = number.map(hold).transpose()?;
                }
                let job_runs = status["running"]["background"]["alive"] == json!(true);
                if self.service.is_some() && job_runs == has_job {
                    return Ok(());
                }
            }
            if let Some(ended) = self.daemon.try_wait()? {
                bail!("tailplaned ended at once ({ended}): {}", self.log());
            }
            if Instant::now() > deadline {
                bail!(
                    "the service does not run under the daemon after {PATIENCE:?}; it says {status:?}, and its log: {}",
                    self.log()
                );
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The end of the daemon's log.
    pub fn log(&self) -> String {
        let text = std::fs::read_to_string(self.directory.path().join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(12)..].join("\n")
    }

    /// The lab, whose client's end the load comes from.
    pub fn lab(&self) -> &Lab {
        &self.lab
    }

    /// Whom to ask.
    pub fn target(&self) -> SocketAddrV4 {
        SocketAddrV4::new(DATAPLANE_ADDRESS, PORT)
    }

    /// Processes beside this one that belong to it.
    pub fn processes(&self) -> Vec<u32> {
        let service = self.service.as_ref().map(|(number, _)| *number);
        service.into_iter().chain([self.daemon.id()]).collect()
    }

    /// What the service shows.
    ///
    /// # Errors
    /// It is gone.
    pub fn service(&self) -> anyhow::Result<Service> {
        Service::connect(&endpoint::socket_path(&self.directory.path().join("run"), NAME)?)
    }

    /// What the daemon says of the service.
    ///
    /// # Errors
    /// It does not answer, or refuses.
    pub fn status(&self) -> anyhow::Result<Value> {
        let mut reply = call(
            &self.directory.path().join("run/control.sock"),
            &json!({"method": "io.tailplane.Control.Status", "parameters": {"name": NAME}}),
        )?;
        ensure!(reply.get("error").is_none(), "tailplaned refuses: {reply}");
        Ok(reply["parameters"]["service"].take())
    }
}

impl Drop for Rig {
    fn drop(&mut self) {
        // In order, so that its job ends and the service goes on; whatever has ended by itself is no matter.
        // Nobody but this process reaps the daemon: until then the number is its own.
        let _ = kill_process(Pid::from_child(&self.daemon), Signal::TERM);
        let _ = self.daemon.wait();
        if let Some((_, service)) = &self.service {
            let _ = pidfd_send_signal(service, Signal::TERM);
            let most = Timespec { tv_sec: PATIENCE.as_secs() as i64, tv_nsec: 0 };
            let _ = poll(&mut [PollFd::new(service, PollFlags::IN)], Some(&most));
        }
    }
}

/// Holds the process of this number, which runs now.
fn hold(number: u32) -> anyhow::Result<(u32, OwnedFd)> {
    let pid = i32::try_from(number).ok().and_then(Pid::from_raw);
    let pid = pid.with_context(|| format!("tailplaned names {number} as the service's process"))?;
    let held = pidfd_open(pid, PidfdFlags::empty());
    Ok((number, held.with_context(|| format!("holding the service's process {number}"))?))
}

/// The program of this name that was installed, or built, with this one.
fn installed(name: &str) -> anyhow::Result<PathBuf> {
    let own = std::env::current_exe().context("finding this program's file")?;
    // A test's program is one directory further down.
    let places = own.ancestors().skip(1).take(2).map(|directory| directory.join(name));
    places.clone().find(|path| path.is_file()).with_context(|| {
        let looked: Vec<String> = places.map(|path| path.display().to_string()).collect();
        format!(
            "there is no {name} beside this program: looked for {}; install it there, or build all programs (`cargo \
             build --release`)",
            looked.join(" and ")
        )
    })
}

fn daemon_toml(directory: &Path, own: &Path) -> String {
    let (directory, own) = (directory.display(), own.display());
    format!(
        "run_directory = \"{directory}/run\"\nservices_directory = \"{directory}/services\"\ncommand = \"{own}\"\n\
         [metrics]\nlisten = \"\"\n"
    )
}

fn service_toml(lab: &str, scheduler: &str, policy: Option<&Policy>, directory: &Path) -> String {
    let (granted, control) = match policy {
        Some(policy) => {
            (1, format!("{}background = {{ command = {} }}\n", policy.table, job(directory)))
        }
        None => (2, String::new()),
    };
    format!(
        "[service]\napp = \"spin\"\nport = {PORT}\n[network]\nlab = \"{lab}\"\n\
         [dataplane]\ndomain = \"inline\"\nthreads = 2\ncpus = [0, 1]\ngranted = {granted}\nscheduler = \"{scheduler}\"\n\
         [control]\n{control}autostart = true\n"
    )
}

/// One call of the daemon's interface: Varlink, JSON with a zero byte behind each message.
fn call(socket: &Path, message: &Value) -> anyhow::Result<Value> {
    let mut stream = UnixStream::connect(socket)
        .with_context(|| format!("connecting to tailplaned at {}", socket.display()))?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(format!("{message}\0").as_bytes())?;
    let mut reply = Vec::new();
    BufReader::new(stream).read_until(0, &mut reply).context("reading tailplaned's answer")?;
    ensure!(reply.pop() == Some(0), "tailplaned closed the connection without an answer");
    serde_json::from_slice(&reply).context("tailplaned's answer is not JSON")
}
