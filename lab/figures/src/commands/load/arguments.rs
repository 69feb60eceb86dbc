//! Arguments of `tailplane load`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::ValueEnum;
use load::{ArrivalProcess, CloseMode, PatternShape, Percentile, ProbeConfig, Wait};

use super::sweep::Sweep;

/// What carries the requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Transport {
    /// TCP sockets of the kernel.
    Kernel,
    /// Our own dataplane, at the client's end of a lab (`--lab`) or of shared memory (`--shm`).
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

HOW MUCH LOAD WITHIN AN OBJECTIVE?
  --slo-us 500 finds the highest load whose 99th percentile stays within 500 us: it doubles the
  load until it does not, then halves the gap. A load that misses is tried once more before it is
  believed (--slo-retries). The whole is repeated (--repeats); the median is told with the least and the greatest
  and, from six repeats on, a 95 % interval of order statistics, which takes no distribution for
  granted. --sweep 10000:100000:10 measures ten loads between two instead. All points are in the
  JSON (`points`); --svg draws them.

SEVERAL MACHINES
  With --agents N --listen ADDRESS:PORT this process sends nothing itself: it waits for N agents
  (`tailplane load-agent ADDRESS:PORT`, started by whatever launcher), gives each rate/N and
  connections/N, starts all at one moment, and adds up their histograms. The JSON gets `agents`
  and `start_skew_bound_us`. An agent that is lost in mid-run leaves a result of the others, with
  `partial` true. Without --secret-file anybody who reaches the port can take part.

EXIT STATUS
  0: valid. 1: invalid, partial, the objective never met, or nothing measured; the reason is on
  standard error. 2: the arguments cannot be used.

EXAMPLES
  tailplane load 10.77.0.2:11211 --rate 100000 --connections 64 --probe
  tailplane load 10.77.0.2:7070 --workload spin:bimodal-1:10 --rate 40000 --connections 32
  tailplane load 10.77.0.2:7 --workload echo:64 --churn 1 --close rst --connections 16
  tailplane load 10.77.0.2:11211 --slo-us 500 --repeats 6 --connections 64 --svg slo.svg
  tailplane load 10.77.0.2:11211 --sweep 10000:200000:10 --connections 64 --svg curve.svg
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
    /// Let the rate change with time, as in IX §5.4: slope, step or sine+noise; or square, the peak in the middle half. The report gets a
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
    /// Run at the client's end of this lab.
    #[arg(long, value_name = "NAME")]
    pub lab: Option<String>,
    /// Our own dataplane at the far end of a wire in shared memory: the socket that a service of this
    /// machine offers it at (`network.shm` of its configuration).
    #[arg(long, value_name = "PATH", conflicts_with = "agents")]
    pub shm: Option<PathBuf>,
    /// Give up connecting after this many milliseconds.
    #[arg(long, default_value_t = 10_000, value_name = "MS")]
    pub connect_ms: u64,
    /// Find the highest load whose latency stays within this many microseconds; with --sweep: say
    /// which of its loads do.
    #[arg(long, value_name = "US", conflicts_with_all = ["rate", "churn", "hdr_log"])]
    pub slo_us: Option<f64>,
    /// The share of requests that must be within the objective, in percent: 50, 90, 99 or 99.9.
    #[arg(long, default_value_t = Percentile::P99, value_name = "PERCENT", requires = "slo_us")]
    pub slo_percentile: Percentile,
    /// The first load that a search tries, in requests per second.
    #[arg(long, default_value_t = 10_000.0, value_name = "RPS", requires = "slo_us")]
    pub slo_start: f64,
    /// The highest load that a search tries, in requests per second.
    #[arg(long, default_value_t = 10_000_000.0, value_name = "RPS", requires = "slo_us")]
    pub slo_max: f64,
    /// A search ends when the gap between a load that passes and one that does not is below this
    /// share of the load.
    #[arg(long, default_value_t = 0.02, value_name = "SHARE", requires = "slo_us")]
    pub slo_precision: f64,
    /// How often a load that misses the objective is tried again before it is believed: neighbours on
    /// the machine can spoil a window, but not improve it.
    #[arg(long, default_value_t = 1, value_name = "N", requires = "slo_us")]
    pub slo_retries: u32,
    /// Measure latency at STEPS loads from LOW to HIGH requests per second.
    #[arg(long, value_name = "LOW:HIGH:STEPS", conflicts_with_all = ["rate", "churn", "hdr_log"])]
    pub sweep: Option<Sweep>,
    /// How often a search (by default 3 times) or each load of a sweep (once) is repeated, each time
    /// with another seed.
    #[arg(long, value_name = "N")]
    pub repeats: Option<u32>,
    /// Draw p50, p99 and p99.9 over throughput into a file, for a search or a sweep.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Let this many agents generate the load instead of this process.
    #[arg(long, value_name = "N", requires = "listen", conflicts_with_all = ["lab", "cpus"])]
    pub agents: Option<u32>,
    /// Where the agents find this process: ADDRESS:PORT.
    #[arg(long, value_name = "ADDRESS:PORT", requires = "agents")]
    pub listen: Option<SocketAddr>,
    /// How long to wait for the agents, in seconds.
    #[arg(long, default_value_t = 60, value_name = "S", requires = "agents")]
    pub wait_s: u64,
    /// A file with a secret that the agents must have, too (at least 16 bytes). Without it whoever
    /// reaches the port can take part, and agents on other machines refuse to.
    #[arg(long, value_name = "FILE", requires = "agents")]
    pub secret_file: Option<PathBuf>,
    /// Print the report as JSON.
    #[arg(long)]
    pub json: bool,
}
