//! `tailplane load`: the load generator.
//!
//! ```text
//! tailplane load 10.77.0.2:11211 --workload usr --rate 100000 --connections 64
//! tailplane load 10.77.0.2:7 --workload echo:64 --connections 32          closed loop
//! tailplane load 10.77.0.2:11211 --transport dataplane --lab tailplane    our own client
//! tailplane load 10.77.0.2:7070 --workload spin:exponential:10 --rate 50000 --probe
//! tailplane load 10.77.0.2:11211 --rate 100000 --pattern step --low 1000 --period 24 --seconds 24
//! ```

use std::net::{SocketAddr, SocketAddrV4};
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::ValueEnum;
use load::{
    ArrivalProcess, CloseMode, KernelConfig, LoadConfig, LoadReport, Mode, Pattern, PatternShape,
    ProbeConfig, Wait, WorkloadConfig, dataplane,
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

/// What `--help` teaches beside the options.
const HELP: &str = "\
WORKLOADS
  usr, etc              memcached as IX models Facebook's pools (IX §5.5)
  etc-facebook          ETC with the published key and value sizes
  memcached:get=0.9,keys=100000,key=uniform:20:70,value=64
                        free form; what is not given is as in usr. Sizes: BYTES,
                        uniform:MIN:MAX, pareto:SCALE:SHAPE:MIN:MAX,
                        gev:LOCATION:SCALE:SHAPE:MIN:MAX
  echo:BYTES            messages that come back
  spin:DIST:MEAN_US     service times for the spin service (ZygOS §3): deterministic,
                        exponential, bimodal-1 (90 % at S/2, 10 % at 5.5 S), bimodal-2
                        (99.9 % at S/2, 0.1 % at 500.5 S)
  spin:trace:FILE       service times drawn from a file, one in microseconds a line

OPEN AND CLOSED LOOP
  With --rate, an arrival process decides when a request is sent, whatever the server does, and
  latency counts from the time at which it was meant to be sent: use this to find the load that
  meets a latency objective. Without it, every connection asks again when it is answered: use this
  to find the highest throughput.

IS THE RESULT VALID?
  The generator tests itself. A result is marked invalid, and the exit status is 1, where too many
  requests were sent late, where the gaps between them do not follow the process that was asked for
  (a Kolmogorov-Smirnov test), or where responses were wrong. The reason says what to do. In JSON:
  `valid`, `invalid_reason`, `late_share`, `lag_p50_us`, `lag_p99_us`, `arrivals`.

EXAMPLES
  tailplane load 10.77.0.2:11211 --rate 100000 --connections 64 --probe
  tailplane load 10.77.0.2:7070 --workload spin:bimodal-1:10 --rate 40000 --connections 32
  tailplane load 10.77.0.2:7 --workload echo:64 --churn 1 --close rst --connections 16
  tailplane load 10.77.0.2:11211 --rate 100000 --pattern sine+noise --low 5000 --period 60 \\
      --seconds 60 --hdr-log day.hlog";

/// Arguments of `tailplane load`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// The server: ADDRESS:PORT.
    #[arg(value_name = "TARGET")]
    pub target: SocketAddr,
    /// What is asked: usr, etc, etc-facebook, memcached:…, echo:BYTES or spin:… (`--help` lists
    /// them).
    #[arg(long, default_value = "usr", value_name = "NAME")]
    pub workload: String,
    /// Open loop with this many requests per second; without it, closed loop. With --pattern: the
    /// peak.
    #[arg(long, value_name = "RPS")]
    pub rate: Option<f64>,
    /// Gaps of the open loop: poisson, deterministic, uniform (0 to 2/rate), bursty:N (N requests
    /// back to back), or facebook (generalized Pareto).
    #[arg(long, default_value = "poisson", value_name = "NAME")]
    pub arrivals: ArrivalProcess,
    /// Let the rate change with time, as in IX §5.4: slope, step or sine+noise. The report gets a
    /// line for every 100 ms.
    #[arg(long, value_name = "SHAPE", requires = "rate")]
    pub pattern: Option<PatternShape>,
    /// The pattern's lowest rate, in requests per second.
    #[arg(long, default_value_t = 0.0, value_name = "RPS", requires = "pattern")]
    pub low: f64,
    /// Length of the pattern's period, in seconds (IX: 240).
    #[arg(long, default_value_t = 10.0, value_name = "S", requires = "pattern")]
    pub period: f64,
    /// Connect, send this many requests, close; again and again.
    #[arg(long, value_name = "REQUESTS", conflicts_with = "rate")]
    pub churn: Option<u32>,
    /// How churned connections end: fin or rst.
    #[arg(long, default_value = "fin", value_name = "HOW")]
    pub close: CloseMode,
    /// Measure latency on connections of its own beside the load, one request at a time (IX §5.1).
    #[arg(long, conflicts_with = "churn")]
    pub probe: bool,
    /// Connections of the probe, used in turn.
    #[arg(long, default_value_t = ProbeConfig::default().connections, value_name = "N",
          requires = "probe")]
    pub probe_connections: u32,
    /// Requests per second of the probe; 0: each as soon as the one before is answered.
    #[arg(long, default_value_t = ProbeConfig::default().rps, value_name = "RPS",
          requires = "probe")]
    pub probe_rate: f64,
    /// Report every 100 ms of the window by itself.
    #[arg(long)]
    pub series: bool,
    /// Write the latencies to a file, as an HdrHistogram interval log (V2, compressed).
    #[arg(long, value_name = "FILE")]
    pub hdr_log: Option<String>,
    /// Connections that carry the load, over all threads. Each request of an open loop goes on one
    /// of them chosen at random.
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
    pub wait: Wait,
    /// A request that leaves more than this after its intended time is late, in microseconds; more
    /// than 1 % of them make the result invalid.
    #[arg(long, default_value_t = 100, value_name = "US")]
    pub late_us: u64,
    /// By how much the check of the gaps takes a send time to be off at most, in microseconds: the
    /// smaller, the stricter. By default by the 99th percentile of the lateness.
    #[arg(long, value_name = "US")]
    pub resolution_us: Option<u64>,
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
                wait: args.wait,
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
            arrivals: args.arrivals,
            depth: args.depth.unwrap_or(load::Mode::open(rps).depth()),
        },
        (None, Some(requests)) => Mode::Churn { requests, close: args.close },
        (None, None) => Mode::closed(args.depth.unwrap_or(1)),
    };
    if !(args.seconds > 0.0 && args.seconds <= 3600.0) {
        bail!("`--seconds` is {}; allowed: above 0, to 3600", args.seconds);
    }
    if let Some(shape) = args.pattern {
        if !(args.period > 0.0 && args.period <= 3600.0) {
            bail!("`--period` is {}; allowed: above 0, to 3600", args.period);
        }
        config.pattern = Some(Pattern {
            shape,
            low_rps: args.low,
            period_ms: (args.period * 1000.0).ceil() as u64,
            seed: args.seed,
        });
    }
    config.probe = args
        .probe
        .then_some(ProbeConfig { connections: args.probe_connections, rps: args.probe_rate });
    config.series = args.series;
    config.hdr_log.clone_from(&args.hdr_log);
    config.connections = args.connections;
    config.measure_ms = (args.seconds * 1000.0).ceil() as u64;
    config.warmup_ms = args.warmup_ms;
    config.seed = args.seed;
    config.lag_limit_us = args.late_us;
    config.resolution_us = args.resolution_us;
    config.validate()?;
    Ok(config)
}

/// The load generator on our own dataplane, at the client's end of a lab.
#[derive(Debug)]
pub struct DataplaneClient {
    pub(crate) port: Port,
    threads: u32,
    cpus: Vec<usize>,
    /// Real-time priority of its threads: only for windows well below a second.
    pub realtime: Option<u8>,
    /// How long its threads look for packets before they sleep.
    pub(crate) idle_spin: Duration,
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
            rx_buffers: None,
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
        let cpus = cpus.to_vec();
        // Long enough not to sleep between requests, short enough to let go when all is done.
        Ok(Self { port, threads, cpus, realtime: None, idle_spin: Duration::from_millis(2) })
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

    /// What a service of another kind runs with at this end, and its queues.
    pub(crate) fn parts(&mut self) -> (RuntimeConfig, Vec<nic::af_xdp::AfXdp>) {
        (self.runtime_config(CLIENT_DATAPLANE_ADDRESS), self.port.take_queues())
    }

    fn runtime_config(&self, address: Ipv4Addr) -> RuntimeConfig {
        RuntimeConfig {
            stack: StackConfig::new(address, SUBNET_BITS, self.port.mac),
            elastic: ElasticConfig::default(),
            idle: IdlePolicy { spin: Some(self.idle_spin), ..IdlePolicy::default() },
            cpus: self.cpus.clone(),
            realtime: self.realtime,
            pool_keep: 4_096,
            meters: Vec::new(),
        }
    }
}

/// Whether a queue could not be opened because a closed socket still holds it.
fn is_busy(error: &anyhow::Error) -> bool {
    error.chain().any(|cause| {
        matches!(cause.downcast_ref(), Some(nic::af_xdp::AfXdpError::QueueBusy { .. }))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn config(line: &str) -> Result<LoadConfig, String> {
        let words = ["load", "10.0.0.2:7"].into_iter().chain(line.split_whitespace());
        let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
        load_config(&command.args).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn every_option_reaches_the_load() {
        let load = config(
            "--workload spin:bimodal-1:10 --rate 5000 --arrivals bursty:4 --pattern sine+noise \
             --low 100 --period 2.5 --probe --probe-connections 8 --probe-rate 0 --series \
             --hdr-log x.hlog --seed 9 --late-us 50 --resolution-us 3",
        )
        .expect("can be used");
        let arrivals = ArrivalProcess::Bursty { burst: 4 };
        assert_eq!(load.mode, Mode::Open { rps: 5_000.0, arrivals, depth: 4 });
        let shape = PatternShape::SineNoise;
        let pattern = Pattern { shape, low_rps: 100.0, period_ms: 2_500, seed: 9 };
        assert_eq!(load.pattern, Some(pattern));
        assert_eq!(load.probe, Some(ProbeConfig { connections: 8, rps: 0.0 }));
        assert!(load.series);
        assert_eq!(load.hdr_log.as_deref(), Some("x.hlog"));
        assert_eq!((load.lag_limit_us, load.resolution_us), (50, Some(3)));
        let plain = config("").expect("can be used");
        assert_eq!((plain.mode, plain.pattern, plain.probe), (Mode::closed(1), None, None));
    }

    #[test]
    fn options_that_need_another_say_so() {
        for (line, part) in [
            ("--pattern step", "--rate"),
            ("--rate 10 --low 5", "--pattern"),
            ("--probe-rate 5", "--probe"),
            ("--probe --churn 1", "--churn"),
            ("--rate 10 --pattern saw", "`pattern` is `saw`; allowed: slope, step, sine+noise"),
            ("--rate 10 --pattern step --low 11", "`low` is `11`; allowed: 0 to 10"),
            ("--rate 10 --pattern step --period 0", "`--period` is 0"),
            ("--rate 10 --arrivals normal", "bursty:N"),
            ("--workload spin:exponential", "exponential:MEAN_US"),
        ] {
            let error = config(line).expect_err(line);
            assert!(error.contains(part), "{line}: {error}");
        }
    }
}
