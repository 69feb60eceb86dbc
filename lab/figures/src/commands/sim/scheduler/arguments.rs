//! Arguments of `tailplane sim scheduler`.

use std::path::PathBuf;

use queueing::Law;

/// What `--help` teaches beside the options.
const HELP: &str = "\
WHAT IS COMPARED
  run to completion (IX)     a connection's home core runs the application, B = 1, 8 or 64 packets a cycle
  work-conserving (ZygOS)    any idle core does; B = 64. While a core is in the application, its network
                             layer is run by others (borrowing), by itself when interrupted (kicks), or by
                             nobody (neither); or by borrowing, and requests longer than a quantum of 2 S
                             are put off
  theory                     M/G/n/FCFS and n x M/G/1/FCFS over the same wire, without any overhead: what
                             no scheduler exceeds, and what connections cost that stay with a core

  Every core runs the real elastic thread and the real stack on a virtual clock; each step takes what the
  cost model says. A load is a share of what all cores could serve if a request cost no more than its
  service time. The highest load that keeps the objective is searched for with several seeds, and told with
  its interval of 95 %; stolen events and overhead are those at that load. Latencies count from the moment a request was due, there and back over the wire.

A TRACE
  One service time in microseconds a line (`tailplane load --workload spin:trace:FILE` reads the same);
  empty lines and what begins with # are left out. Requests draw from it, each line with the same chance.

COSTS
  measure             this machine's, as `tailplane calibrate` measures them (the default)
  zero                none but 10 ns for a poll, the least that is simulated: what is left is queueing
  sandy-bridge-dune   the papers' machine
  FILE                what `tailplane calibrate -o FILE` wrote

THE RECOMMENDATION
  The candidate with the highest load; where others tie with it, the one that asks for the fewest words in
  the configuration, which is run to completion. Two tie where the difference of their means lies within
  one of their intervals or the step of the search. What asks more of the service or the machine
  (a quantum, kicks) is not recommended; where it carries more, the report says so, and what it asks.

JSON
  {\"conditions\": {NAME: TEXT, ...}, \"seed\": 1,
   \"service\": {\"law\": \"bimodal-1\", \"mean_us\": 10.0, \"p50_us\": 5.0, \"p99_us\": 55.0, \"p999_us\": 55.0},
   \"objective\": {\"slo_us\": 100.0, \"share\": 0.99},
   \"costs\": {NAME: NS, ...},
   \"theory\": [{\"model\": \"M/G/16/FCFS\", \"max_load\": INTERVAL, \"max_rate_rps\": 1.0}],
   \"candidates\": [{\"name\": \"...\", \"scheduler\": \"work-conserving\", \"batch\": 64,
     \"while_away\": \"borrow\", \"quantum_us\": null, \"asks_nothing\": true,
     \"max_load\": INTERVAL, \"max_rate_rps\": 1.0, \"at_half\": LOOK, \"at_max\": LOOK, \"at_rate\": LOOK}],
   \"recommendation\": {\"name\": \"...\", \"configuration\": {\"dataplane.scheduler\": \"work-conserving\",
     \"dataplane.batch\": 64}, \"ties_with\": [NAME, ...], \"reason\": \"...\", \"remarks\": [TEXT, ...]}}
  INTERVAL  {\"mean\": 0.81, \"low\": 0.80, \"high\": 0.82, \"searches\": 5}
  LOOK      {\"load\": 0.4, \"rate_rps\": 1.0, \"overloaded\": false, \"p50_us\": 1.0, \"p99_us\": 1.0,
            \"at_share_us\": 1.0, \"busy\": 0.5, \"steal_rate\": 0.1, \"overhead_ns\": 900.0,
            \"meets\": true}; null where no load keeps the objective, or no --rate was given.
            Latencies are null where requests piled up without end.
  `recommendation` is null where no candidate keeps the objective at any load.

EXAMPLES
  tailplane sim scheduler --law exponential --mean-us 10 --cores 16
  tailplane sim scheduler --trace times.txt --cores 8 --slo-us 200 --share 0.999 --rate 400000
  tailplane sim scheduler --law bimodal-2 --mean-us 2 --cores 4 --costs costs.toml --json report.json";

/// Arguments of `tailplane sim scheduler`.
///
/// Which scheduler and which batch bound carry the most requests of your service's length on your number
/// of cores within your objective: simulated, with this machine's costs.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// How service times are distributed: deterministic, exponential, bimodal-1 (90 % at S/2, 10 % at
    /// 5.5 S), bimodal-2 (99.9 % at S/2, 0.1 % at 500.5 S).
    #[arg(long, value_name = "LAW", value_parser = law, requires = "mean_us")]
    #[arg(required_unless_present = "trace", conflicts_with = "trace")]
    pub law: Option<Law>,
    /// S, the mean service time, in microseconds.
    #[arg(long, value_name = "S", conflicts_with = "trace")]
    pub mean_us: Option<f64>,
    /// A file of service times, one in microseconds a line, to draw from.
    #[arg(long, value_name = "FILE")]
    pub trace: Option<PathBuf>,
    /// Cores of the server, each with an elastic thread and a queue pair.
    #[arg(long, value_name = "N")]
    pub cores: usize,
    /// Connections of the clients [default: 172 for each core, as in ZygOS §3.2].
    #[arg(long, value_name = "N")]
    pub connections: Option<usize>,
    /// The latency that the share may not exceed, in microseconds [default: 10 S].
    #[arg(long, value_name = "X")]
    pub slo_us: Option<f64>,
    /// The share of the requests that has to keep it.
    #[arg(long, default_value_t = 0.99, value_name = "P")]
    pub share: f64,
    /// Your own load, in requests/s: tell the latencies and the cores' busy share at it.
    #[arg(long, value_name = "R")]
    pub rate: Option<f64>,
    /// From a client to the server or back, in microseconds.
    #[arg(long, default_value_t = 2.0, value_name = "US")]
    pub wire_us: f64,
    /// What each step takes: measure, zero, sandy-bridge-dune, or a file of `tailplane calibrate -o`.
    #[arg(long, default_value = "measure", value_name = "COSTS")]
    pub costs: String,
    /// Requests of each run [default: 100000, with --quick 10000; more where the share needs them].
    #[arg(long, value_name = "N")]
    pub requests: Option<u64>,
    /// All draws follow from it.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub seed: u64,
    /// Fewer and shorter runs: for a look.
    #[arg(long)]
    pub quick: bool,
    /// Write the result as JSON; `-`: to standard output, and the table to standard error.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

fn law(text: &str) -> Result<Law, String> {
    let names = Law::ALL.map(Law::name).join(", ");
    Law::from_name(text).ok_or_else(|| {
        format!("no law of service times is called so; there are {names}, and --trace FILE")
    })
}
