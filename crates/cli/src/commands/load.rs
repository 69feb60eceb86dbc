//! `tailplane load`: the load generator.
//!
//! ```text
//! tailplane load 10.77.0.2:11211 --workload usr --rate 100000 --connections 64
//! tailplane load 10.77.0.2:7 --workload echo:64 --connections 32          closed loop
//! tailplane load 10.77.0.2:11211 --transport dataplane --lab tailplane    our own client
//! ```

use std::net::{SocketAddr, SocketAddrV4};
use std::process::ExitCode;
use std::str::FromStr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
use load::{
    ArrivalProcess, CloseMode, KernelConfig, LoadConfig, LoadReport, Mode, Wait, WorkloadConfig,
    dataplane,
};
use mem::HugePages;
use tailplane::runtime::{self, RuntimeConfig};
use tailplane::{ElasticConfig, Endpoint, IdlePolicy, Ipv4Addr, StackConfig};

use crate::lab::constants::{CLIENT_DATAPLANE_ADDRESS, CLIENT_INTERFACE, SUBNET_BITS};
use crate::lab::{Lab, in_namespace};
use crate::port::{Port, PortConfig};

/// What carries the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// TCP sockets of the kernel.
    Kernel,
    /// Our own dataplane, at the client's end of a lab.
    Dataplane,
}

/// Arguments of `tailplane load`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The server: ADDRESS:PORT.
    #[arg(value_name = "TARGET")]
    pub target: SocketAddr,
    /// What is asked: usr, etc (memcached, IX §5.5) or echo:BYTES.
    #[arg(long, default_value = "usr", value_name = "NAME")]
    pub workload: String,
    /// Open loop with this many requests per second; without it, closed loop.
    #[arg(long, value_name = "RPS")]
    pub rate: Option<f64>,
    /// Gaps of the open loop: poisson or deterministic.
    #[arg(long, default_value = "poisson", value_name = "NAME")]
    pub arrivals: String,
    /// Connect, send this many requests, close; again and again.
    #[arg(long, value_name = "REQUESTS", conflicts_with = "rate")]
    pub churn: Option<u32>,
    /// How churned connections end: fin or rst.
    #[arg(long, default_value = "fin", value_name = "HOW")]
    pub close: String,
    /// Connections, over all threads.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub connections: u32,
    /// Requests outstanding on one connection at most: by default 4 in open, 1 in closed loop.
    #[arg(long, value_name = "N")]
    pub depth: Option<u32>,
    /// Threads of the generator.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub threads: u32,
    /// The processor of each thread, comma separated; none: not pinned.
    #[arg(long, value_delimiter = ',', value_name = "CPU,…")]
    pub cpus: Vec<usize>,
    /// Seconds that are measured.
    #[arg(long, default_value_t = 2.0, value_name = "S")]
    pub seconds: f64,
    /// Milliseconds of load before that.
    #[arg(long, default_value_t = 200, value_name = "MS")]
    pub warmup_ms: u64,
    /// How kernel sockets wait: spin or block.
    #[arg(long, default_value = "spin", value_name = "HOW")]
    pub wait: String,
    /// Seed of arrivals, keys and choices.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// What carries the requests.
    #[arg(long, value_enum, default_value_t = Transport::Kernel)]
    pub transport: Transport,
    /// Run at the client's end of this lab (needed by the dataplane transport).
    #[arg(long, value_name = "NAME")]
    pub lab: Option<String>,
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
}

/// Runs `tailplane load`.
///
/// # Errors
/// Settings that cannot be used, or what the transport could not do.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let config = load_config(&args)?;
    let lab = args.lab.as_deref().map(Lab::attach).transpose()?;
    let report = match args.transport {
        Transport::Kernel => {
            let transport = KernelConfig {
                target: args.target,
                wait: Wait::from_str(&args.wait)?,
                threads: args.threads,
                cores: args.cpus.clone(),
            };
            match &lab {
                Some(lab) => {
                    in_namespace(lab.client(), || load::kernel::run(&config, &transport))??
                }
                None => load::kernel::run(&config, &transport)?,
            }
        }
        Transport::Dataplane => {
            let Some(lab) = &lab else {
                bail!(
                    "the dataplane transport needs `--lab NAME`: it takes the client's end of a lab"
                )
            };
            let SocketAddr::V4(target) = args.target else {
                bail!("TARGET is '{}'; allowed for the dataplane: an IPv4 address", args.target)
            };
            let mut client = DataplaneClient::open(lab, args.threads, &args.cpus)?;
            client.run(&config, target)?
        }
    };
    match args.json {
        true => println!("{}", report.to_json()),
        false => println!("{}", report.to_table()),
    }
    Ok(if report.valid { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn load_config(args: &Args) -> anyhow::Result<LoadConfig> {
    let mut config = LoadConfig::new(WorkloadConfig::named(&args.workload)?);
    config.mode = match (args.rate, args.churn) {
        (Some(rps), _) => Mode::Open {
            rps,
            arrivals: ArrivalProcess::from_str(&args.arrivals)?,
            depth: args.depth.unwrap_or(load::Mode::open(rps).depth()),
        },
        (None, Some(requests)) => {
            Mode::Churn { requests, close: CloseMode::from_str(&args.close)? }
        }
        (None, None) => Mode::closed(args.depth.unwrap_or(1)),
    };
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) {
        bail!("`--seconds` is {}; allowed: above 0, to 3600", args.seconds);
    }
    config.connections = args.connections;
    config.measure_ms = (args.seconds * 1000.0).ceil() as u64;
    config.warmup_ms = args.warmup_ms;
    config.seed = args.seed;
    config.validate()?;
    Ok(config)
}

/// The load generator on our own dataplane, at the client's end of a lab.
#[derive(Debug)]
pub struct DataplaneClient {
    port: Port,
    threads: u32,
    cpus: Vec<usize>,
    /// Real-time priority of its threads: only for windows well below a second.
    pub realtime: Option<u8>,
}

/// How long the kernel may take to let go of a queue that was closed just before.
const BUSY_WAIT: Duration = Duration::from_secs(2);

impl DataplaneClient {
    /// Opens the client's end.
    ///
    /// # Errors
    /// What could not be opened.
    pub fn open(lab: &Lab, threads: u32, cpus: &[usize]) -> anyhow::Result<Self> {
        let config = PortConfig {
            interface: CLIENT_INTERFACE.to_owned(),
            namespace: Some(lab.client().clone()),
            address: CLIENT_DATAPLANE_ADDRESS,
            queues: threads,
            chunks: 16_384 * threads as usize,
            huge_pages: HugePages::Try,
            mode: nic::af_xdp::BindMode::Auto,
        };
        let begin = Instant::now();
        let port = loop {
            match Port::open(&config) {
                Err(error) if is_busy(&error) && begin.elapsed() < BUSY_WAIT => {
                    std::thread::sleep(Duration::from_millis(20));
                }
                other => break other?,
            }
        };
        Ok(Self { port, threads, cpus: cpus.to_vec(), realtime: None })
    }

    /// Carries one load. A client can be used once: its queues end with their threads.
    ///
    /// # Errors
    /// Settings that cannot be used, or a server that does not answer.
    pub fn run(&mut self, config: &LoadConfig, target: SocketAddrV4) -> anyhow::Result<LoadReport> {
        let target = Endpoint::new(*target.ip(), target.port());
        let (services, run) = dataplane::services(config, target, self.threads)?;
        let queues = self.port.take_queues();
        let runtime_config = self.runtime_config(CLIENT_DATAPLANE_ADDRESS);
        let services: Vec<_> =
            services.into_iter().map(|service| Mutex::new(Some(service))).collect();
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let plane = scope.spawn(|| {
                let make = |core: usize| {
                    let mut place = services[core].lock().unwrap_or_else(|bad| bad.into_inner());
                    place.take().expect("each thread asks for its service once")
                };
                runtime::run(&runtime_config, &self.port.region, queues, make, &stop)
            });
            let deadline = Instant::now() + Duration::from_millis(run.limit_ms());
            while !run.is_over() && !plane.is_finished() && Instant::now() < deadline {
                std::thread::sleep(Duration::from_millis(5));
            }
            stop.store(true, Ordering::Relaxed);
            match plane.join() {
                Ok(result) => result.map(|_| ()).context("the client's dataplane failed"),
                Err(_) => Err(anyhow::anyhow!("the client's dataplane panicked")),
            }
        })?;
        let mut conditions = run.conditions("tailplane over af_xdp", target);
        conditions.cores.clone_from(&self.cpus);
        conditions.more.insert("client driver".into(), self.port.description.clone());
        Ok(run.report(conditions)?)
    }

    fn runtime_config(&self, address: Ipv4Addr) -> RuntimeConfig {
        RuntimeConfig {
            stack: StackConfig::new(address, SUBNET_BITS, self.port.mac),
            elastic: ElasticConfig::default(),
            // Long enough not to sleep between requests, short enough to let go when all is done.
            idle: IdlePolicy { spin: Some(Duration::from_millis(2)), ..IdlePolicy::default() },
            cpus: self.cpus.clone(),
            realtime: self.realtime,
            pool_keep: 4_096,
        }
    }
}

/// Whether a queue could not be opened because a closed socket still holds it.
fn is_busy(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(nic::af_xdp::AfXdpError::QueueBusy { .. }))
    })
}
