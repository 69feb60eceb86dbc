//! Two processes of one machine: our dataplanes joined by shared memory, and echo over the kernel's
//! loopback.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use load::{LoadConfig, LoadReport, Wait};
use measure::Disturbance;
use tempfile::TempDir;

use super::testbed::kernel_client;
use crate::commands::load::DataplaneClient;
use crate::demo::child::{Killed, holds_within};
use crate::demo::kernel_echo::KernelEcho;
use crate::demo::processors::{CLIENT_CPU, REALTIME, SERVER_CPU};
use crate::demo::systems::{SPIN_US, Tailplane};
use crate::demo::window::window_of;
use service::private;

/// How long a service may take to offer its wire.
const START: Duration = Duration::from_secs(10);

/// One of our services in a process of its own, at one end of a wire in shared memory.
pub struct ShmService {
    // In this order: the directory goes after the process.
    child: Killed,
    directory: TempDir,
}

impl ShmService {
    /// Starts the service of that name, as configurations name it, on the server's core.
    ///
    /// # Errors
    /// It could not be started, or offers no wire.
    pub fn start(app: &str) -> anyhow::Result<Self> {
        Self::start_with(app, "spin_us = -1\n")
    }

    /// As [`start`](Self::start), at real-time priority: for [windows](Self::window), between which it sleeps.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_realtime(app: &str) -> anyhow::Result<Self> {
        Self::start_with(app, &format!("spin_us = {SPIN_US}\nrealtime = {REALTIME}\n"))
    }

    fn start_with(app: &str, dataplane: &str) -> anyhow::Result<Self> {
        let directory = private::directory("figures")?;
        let file = |name| directory.path().join(name);
        let (config, socket) = (file("service.toml"), file("wire"));
        let text = format!(
            "[service]\napp = \"{app}\"\n[network]\nshm = \"{}\"\n[dataplane]\ndomain = \"inline\"\ncpus = [{SERVER_CPU}]\n\
             {dataplane}",
            socket.display()
        );
        std::fs::write(&config, text)?;
        let program = std::env::current_exe().context("finding this program")?;
        let mut command = Command::new(program);
        command.arg("run").arg(&config).args(["--seconds", "600"]);
        command.env("TAILPLANE_RUN_DIR", file("run"));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().context("starting the service's process")?;
        let mut started = Self { child: Killed(child), directory };
        let is_offered = holds_within(START, Duration::from_millis(20), || {
            if let Some(status) = started.child.0.try_wait()? {
                bail!("the service's process ended at once ({status})");
            }
            Ok(socket.exists())
        })?;
        ensure!(is_offered, "the service offers no wire after {START:?}");
        Ok(started)
    }

    fn socket(&self) -> PathBuf {
        self.directory.path().join("wire")
    }

    /// Carries one load from a client at the other end to the service's port.
    ///
    /// # Errors
    /// What the client could not do.
    pub fn carry(&self, load: &LoadConfig, port: u16) -> anyhow::Result<LoadReport> {
        let mut client = DataplaneClient::join(&self.socket(), &[CLIENT_CPU])?;
        client.run(load, Self::target(port))
    }

    /// The same at real-time priority, and what was done to the window meanwhile.
    ///
    /// # Errors
    /// What the client could not do.
    pub fn window(
        &self,
        load: &LoadConfig,
        port: u16,
    ) -> anyhow::Result<(LoadReport, Disturbance)> {
        let open = || DataplaneClient::join(&self.socket(), &[CLIENT_CPU]);
        window_of(&[self.child.0.id()], load, Self::target(port), &open)
    }

    fn target(port: u16) -> SocketAddrV4 {
        SocketAddrV4::new(*Tailplane::ECHO_TARGET.ip(), port)
    }
}

/// The kernel's echo server and a client on the kernel's sockets, over its loopback interface.
pub struct LoopbackEcho {
    _server: KernelEcho,
    target: SocketAddrV4,
    wait: Wait,
}

impl LoopbackEcho {
    /// Starts the server on its core. Both ends wait in the same way.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn start(wait: Wait) -> anyhow::Result<Self> {
        let (server, target) =
            KernelEcho::start_at(SocketAddrV4::new(Ipv4Addr::LOCALHOST, 0), wait)?;
        Ok(Self { _server: server, target, wait })
    }

    /// Carries one load from the client's core.
    ///
    /// # Errors
    /// What the client could not do.
    pub fn carry(&self, load: &LoadConfig) -> anyhow::Result<LoadReport> {
        Ok(load::kernel::run(load, &kernel_client(self.target, self.wait))?)
    }
}
