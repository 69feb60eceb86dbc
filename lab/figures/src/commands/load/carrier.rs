//! What carries one window of load: kernel sockets of this process, our own dataplane, or agents on
//! other machines.

use std::net::{SocketAddr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, bail};
use load::remote::{Coordinator, CoordinatorConfig, Fleet, Secret};
use load::{KernelConfig, LoadConfig, LoadReport};

use super::arguments::{Args, Transport};
use super::dataplane::DataplaneClient;
use service::lab::{Lab, in_namespace};

/// Ready to carry windows, one after the other.
#[derive(Debug)]
pub(super) enum Carrier {
    /// Sockets of the kernel, in the client's namespace of a lab where there is one.
    Kernel {
        /// How they carry it.
        transport: KernelConfig,
        /// Where they are.
        lab: Option<Lab>,
    },
    /// Our own dataplane; opened anew for each window.
    Dataplane {
        /// At which end of what.
        end: End,
        /// The service.
        target: SocketAddrV4,
        /// Elastic threads.
        threads: u32,
        /// The processor of each.
        cpus: Vec<usize>,
    },
    /// Agents.
    Fleet {
        /// All of them.
        fleet: Box<Fleet>,
        /// How they carry it.
        transport: KernelConfig,
    },
}

/// Where our own dataplane sends from.
#[derive(Debug)]
pub(super) enum End {
    /// The client's end of a lab.
    Lab(Lab),
    /// The far end of a wire in shared memory.
    Shm(PathBuf),
}

impl End {
    fn open(&self, threads: u32, cpus: &[usize]) -> anyhow::Result<DataplaneClient> {
        match self {
            Self::Lab(lab) => DataplaneClient::open(lab, threads, cpus),
            Self::Shm(path) => DataplaneClient::join(path, cpus),
        }
    }
}

impl Carrier {
    /// What the arguments ask for; agents are waited for.
    ///
    /// # Errors
    /// Arguments that do not fit together, a lab that is not there, agents that do not come.
    pub fn open(args: &Args) -> anyhow::Result<Self> {
        let lab = args.lab.as_deref().map(Lab::attach).transpose()?;
        if let (Some(agents), Some(listen)) = (args.agents, args.listen) {
            if args.transport != Transport::Kernel {
                bail!("agents carry the load over kernel sockets; leave out `--transport`");
            }
            return gather(args, agents, listen);
        }
        let end = match (args.transport, &args.shm) {
            (Transport::Kernel, None) => {
                let transport = KernelConfig {
                    target: args.target,
                    wait: args.wait,
                    threads: args.threads,
                    cores: args.cpus.clone(),
                };
                return Ok(Self::Kernel { transport, lab });
            }
            (_, Some(_)) if lab.is_some() => bail!("`--shm` and `--lab` are two wires: give one"),
            (_, Some(_)) if args.threads != 1 => {
                bail!("`--threads` is {}; allowed with `--shm`: 1", args.threads)
            }
            (_, Some(path)) => End::Shm(path.clone()),
            (Transport::Dataplane, None) => End::Lab(lab.context(
                "the dataplane transport needs `--lab NAME`, to take the client's end of a lab, or \
                 `--shm PATH`, to take that of a wire in shared memory",
            )?),
        };
        let SocketAddr::V4(target) = args.target else {
            bail!("TARGET is '{}'; allowed for the dataplane: an IPv4 address", args.target)
        };
        let (threads, cpus) = (args.threads, args.cpus.clone());
        Ok(Self::Dataplane { end, target, threads, cpus })
    }

    /// Carries one window.
    ///
    /// # Errors
    /// Settings that cannot be used, or what the transport could not do.
    pub fn window(&mut self, config: &LoadConfig) -> anyhow::Result<LoadReport> {
        match self {
            Self::Kernel { transport, lab: None } => Ok(load::kernel::run(config, transport)?),
            Self::Kernel { transport, lab: Some(lab) } => {
                Ok(in_namespace(lab.client(), || load::kernel::run(config, transport))??)
            }
            Self::Dataplane { end, target, threads, cpus } => {
                end.open(*threads, cpus)?.run(config, *target)
            }
            Self::Fleet { fleet, transport } => Ok(fleet.run(config, transport)?),
        }
    }

    /// Lets go of what was held; agents are told the `failure`, where there was one.
    pub fn close(self, failure: Option<String>) {
        if let Self::Fleet { fleet, .. } = self {
            match failure {
                None => fleet.finish(),
                Some(failure) => fleet.give_up(&failure),
            }
        }
    }
}

/// Waits for the agents; who comes and who is turned away is said on standard error.
fn gather(args: &Args, agents: u32, listen: SocketAddr) -> anyhow::Result<Carrier> {
    let secret = args.secret_file.as_deref().map(Secret::read).transpose()?;
    let wait = Duration::from_secs(args.wait_s);
    let coordinator = Coordinator::bind(CoordinatorConfig { listen, agents, wait, secret })?;
    if let Some(warning) = coordinator.warning() {
        eprintln!("tailplane: warning: {warning}");
    }
    eprintln!("tailplane: waiting for {agents} agents on {}", coordinator.address());
    let fleet = coordinator.gather(&mut |note| eprintln!("tailplane: {note}"))?;
    let (wait, threads) = (args.wait, args.threads);
    let transport = KernelConfig { wait, threads, ..KernelConfig::new(args.target) };
    Ok(Carrier::Fleet { fleet: Box::new(fleet), transport })
}
