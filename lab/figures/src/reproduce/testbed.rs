//! What figures are measured on: a lab on a veth pair, made when the first of them asks for it and
//! shared by all.

use std::any::Any;
use std::net::{SocketAddr, SocketAddrV4};
use std::time::Duration;

use anyhow::Context;
use load::{KernelConfig, LoadConfig, LoadReport, Mode, Wait, WorkloadConfig};
use measure::Kept;
use reproduce::{ChartId, Measured, Recorder};

use super::curve::Curves;
use crate::demo::bound::reflector_rps;
use crate::demo::kernel_echo::KernelEcho;
use crate::demo::processors::{CLIENT_CPU, SERVER_CPU};
use crate::demo::softirq;
use crate::demo::systems::Tailplane;
use service::config::App;
use service::huge_pages;
use service::lab::{Lab, LabConfig, in_namespace};

/// Packet memory of server and client together, in bytes, twice over.
const MEMORY_BYTES: usize = 264 << 20;
/// Bytes of a full Ethernet frame, without its check sequence.
pub const FULL_FRAME_BYTES: usize = 1514;

/// An echo server of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// Our echo service, which spins.
    Tailplane,
    /// The kernel's stack with a server that spins.
    LinuxSpinning,
    /// The kernel's stack with a server that blocks.
    LinuxBlocking,
}

impl Server {
    /// As it is called in plots.
    pub fn name(self) -> &'static str {
        match self {
            Self::Tailplane => "tailplane",
            Self::LinuxSpinning => "Linux, spinning",
            Self::LinuxBlocking => "Linux, blocking",
        }
    }
}

/// Who sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// Our own dataplane.
    Dataplane,
    /// The kernel's sockets, spinning or blocking.
    Kernel(Wait),
}

/// A running echo server; it ends when dropped.
pub type Running = Box<dyn Any>;

/// See the module's comment.
#[derive(Default)]
pub struct Testbed {
    open: Option<Open>,
    /// Measured once, shown in two figures.
    pub memcached: Option<Curves>,
}

struct Open {
    lab: Lab,
    /// Held, and given back when the testbed goes.
    _loan: Option<huge_pages::HugePageLoan>,
    _raised: Option<softirq::Raised>,
}

impl Testbed {
    /// The lab, and its conditions for the figure's record.
    ///
    /// # Errors
    /// It cannot be made: no privileges, say.
    pub fn lab(&mut self, recorder: &mut Recorder<'_>) -> anyhow::Result<&Lab> {
        if self.open.is_none() {
            let (raised, loan) = (softirq::raise(), huge_pages::borrow(MEMORY_BYTES));
            let lab = Lab::create(LabConfig::unique("figures")).context("cannot make a lab")?;
            self.open = Some(Open { lab, _loan: loan, _raised: raised });
        }
        recorder.condition("wire", "veth pair, AF_XDP in copy mode at tailplane's ends");
        recorder.condition("server core", SERVER_CPU);
        recorder.condition("client core", CLIENT_CPU);
        recorder.condition("scheduler", "run-to-completion");
        recorder.condition("domain", "inline");
        recorder.condition("kernel congestion control", "cubic");
        let open = self.open.as_ref().context("the lab was made just now")?;
        Ok(&open.lab)
    }
}

/// Starts an echo server on the server's core.
///
/// # Errors
/// What it could not open.
pub fn start(lab: &Lab, server: Server) -> anyhow::Result<(Running, SocketAddrV4)> {
    let wait = match server {
        Server::Tailplane => {
            let service = Tailplane::start_spinning(lab, App::Echo)?;
            return Ok((Box::new(service), Tailplane::ECHO_TARGET));
        }
        Server::LinuxSpinning => Wait::Spin,
        Server::LinuxBlocking => Wait::Block,
    };
    Ok((Box::new(KernelEcho::start(lab, wait)?), KernelEcho::TARGET))
}

/// A load of echo messages of `bytes`.
pub fn echo_load(
    mode: Mode,
    connections: u32,
    bytes: u32,
    seed: u64,
    window_ms: u64,
) -> LoadConfig {
    LoadConfig {
        mode,
        connections,
        warmup_ms: 50,
        measure_ms: window_ms,
        seed,
        ..LoadConfig::new(WorkloadConfig::Echo { bytes })
    }
}

/// Carries one load at ordinary priority.
///
/// # Errors
/// What the client could not do.
pub fn carry(
    lab: &Lab,
    client: Client,
    load: &LoadConfig,
    target: SocketAddrV4,
) -> anyhow::Result<LoadReport> {
    match client {
        Client::Dataplane => {
            let mut client = crate::commands::load::DataplaneClient::open(lab, 1, &[CLIENT_CPU])?;
            client.run(load, target)
        }
        Client::Kernel(wait) => {
            let transport = kernel_client(target, wait);
            Ok(in_namespace(lab.client(), || load::kernel::run(load, &transport))??)
        }
    }
}

/// A client on the kernel's sockets, on the client's core.
pub fn kernel_client(target: SocketAddrV4, wait: Wait) -> KernelConfig {
    let (target, cores) = (SocketAddr::V4(target), vec![CLIENT_CPU]);
    KernelConfig { target, wait, threads: 1, cores }
}

/// So many rounds of windows of all contestants, in an order that is drawn anew in each. A window finds one thing for
/// each of several loads. At ordinary priority servers and clients disturb each other: every window counts.
///
/// # Errors
/// Those of a window.
pub fn rounds<C, T>(
    recorder: &mut Recorder<'_>,
    contestants: &mut [C],
    rounds: usize,
    mut window: impl FnMut(&mut C) -> anyhow::Result<Vec<T>>,
) -> anyhow::Result<Vec<Kept<Vec<T>>>> {
    let (seed, all) = (recorder.options().seed, rounds * contestants.len());
    let mut windows = 0;
    measure::rounds(contestants, rounds, seed, |contestant| {
        windows += 1;
        recorder.step(&format!("window {windows} of {all}"))?;
        window(contestant)
    })
}

/// Draws a contestant's values over what was varied; where there are fewer, the last holds for the rest.
pub fn draw(
    recorder: &mut Recorder<'_>,
    chart: ChartId,
    name: &str,
    over: &[u32],
    kept: &Kept<Vec<f64>>,
) {
    let points = over.iter().enumerate().map(|(index, &x)| {
        let values = kept.values(|values| values[index.min(values.len() - 1)]);
        (x.into(), Measured::samples(&values))
    });
    recorder.curve(chart, name, points);
}

/// Frames per second of `frame_bytes` that a bare reflector on the pair returns: samples.
///
/// # Errors
/// What could not be opened.
pub fn reflected(lab: &Lab, frame_bytes: usize, samples: u32) -> anyhow::Result<Vec<f64>> {
    (0..samples.max(1))
        .map(|_| {
            std::thread::sleep(crate::demo::window::PAUSE);
            reflector_rps(lab, Duration::from_millis(300), frame_bytes)
        })
        .collect()
}
