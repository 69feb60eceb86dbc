//! What was asked, checked: the service, its cores, its objective, and how much is simulated.

use std::path::Path;

use anyhow::{Context, bail};
use queueing::{Law, Replications};
use world::cores::{CONNECTIONS_MAX, Costs, Objective, Search, Setup};

use super::arguments::Args;
use super::trace;
use crate::commands::calibrate;

/// Most cores: a work-conserving dataplane has no more.
const CORES_MAX: usize = 64;
/// ZygOS §3.2: 2,752 connections on sixteen cores.
const CONNECTIONS_PER_CORE: usize = 172;
/// Mean service times of the default objective (ZygOS §3.1).
const SLO_MEANS: f64 = 10.0;
/// Late requests that a run must be able to tell: fewer say nothing of the share.
const LATE_MIN: f64 = 10.0;
/// Cores that looked at each other's queues in no time would do so for ever, at one and the same moment; in
/// less than this, most of a simulation would be such looks.
const POLL_NS_MIN: f64 = 10.0;
/// Requests of a run at most.
const REQUESTS_MAX: u64 = 10_000_000;

/// A checked question.
#[derive(Debug, Clone)]
pub struct Question {
    /// How service times are distributed, and their mean.
    pub law: Law,
    /// S.
    pub mean_us: f64,
    /// Elastic threads.
    pub cores: usize,
    /// Of the clients, all together.
    pub connections: usize,
    /// The bound of the objective.
    pub slo_us: f64,
    /// How the highest load is searched for: with the share of the requests that has to keep that bound, the requests of
    /// each run, and the seed that all draws follow from.
    pub search: Search,
    /// The user's own load, in requests/s.
    pub rate_rps: Option<f64>,
    /// One way.
    pub wire_us: f64,
    /// What each step takes.
    pub costs: Costs,
}

fn allowed(option: &str, found: f64, least: f64, most: f64, what: &str) -> anyhow::Result<()> {
    if (least..=most).contains(&found) {
        return Ok(());
    }
    bail!("`--{option}` is {found}; allowed: {least} to {most} ({what})");
}

/// Requests of a run, of which enough are late at the share.
fn requests_min(share: f64) -> f64 {
    (LATE_MIN / (1.0 - share)).round().max(1_000.0)
}

impl Question {
    /// Checks the arguments, reads the trace and the costs. `measuring` is called before this machine's
    /// costs are measured, which takes seconds; all else is checked before.
    ///
    /// # Errors
    /// The first argument that is out of its range, with what is allowed; a file that cannot be used.
    pub fn new(args: &Args, measuring: impl FnOnce()) -> anyhow::Result<Self> {
        let (law, mean_us) = match (&args.trace, args.law, args.mean_us) {
            (Some(path), ..) => {
                let (trace, mean_us) = trace::read(path)?;
                (Law::Trace(trace), mean_us)
            }
            (None, Some(law), Some(mean_us)) => (law, mean_us),
            _ => bail!("give --law and --mean-us, or --trace FILE"),
        };
        allowed("mean-us", mean_us, 0.01, 1e5, "microseconds that a request takes on average")?;
        let connections =
            args.connections.unwrap_or((CONNECTIONS_PER_CORE * args.cores).min(CONNECTIONS_MAX));
        let usual = if args.quick { 10_000.0 } else { 100_000.0 };
        let requests = args.requests.unwrap_or(requests_min(args.share).max(usual) as u64);
        let slo_us = args.slo_us.unwrap_or(SLO_MEANS * mean_us);
        let mut question = Self {
            law,
            mean_us,
            cores: args.cores,
            connections,
            slo_us,
            search: Search {
                bound: slo_us / mean_us,
                share: args.share,
                requests,
                step: if args.quick { 0.02 } else { 0.005 },
                count: if args.quick { 3 } else { 5 },
                seed: args.seed,
            },
            rate_rps: args.rate,
            wire_us: args.wire_us,
            costs: Costs::zero(),
        };
        question.check()?;
        question.costs = costs(&args.costs, args.quick, measuring)?;
        // What was not checked by name is checked here: a file's constants, for one.
        question.setup().validate()?;
        Ok(question)
    }

    fn check(&self) -> anyhow::Result<()> {
        let most = format!("a work-conserving dataplane has at most {CORES_MAX}");
        allowed("cores", self.cores as f64, 1.0, CORES_MAX as f64, &most)?;
        let what = "connections of the clients, all together";
        allowed("connections", self.connections as f64, 1.0, CONNECTIONS_MAX as f64, what)?;
        let what =
            "the share of the requests that keeps the bound, as 0.99 for the 99th percentile";
        allowed("share", self.search.share, 0.5, 0.9999, what)?;
        allowed("wire-us", self.wire_us, 0.0, 1e4, "microseconds from a client to the server")?;
        let least = requests_min(self.search.share);
        let what = "fewer say nothing of that share";
        allowed("requests", self.search.requests as f64, least, REQUESTS_MAX as f64, what)?;
        self.check_objective()?;
        let Some(rate_rps) = self.rate_rps else { return Ok(()) };
        allowed("rate", rate_rps, 1.0, 1e12, "requests/s")?;
        let busy = rate_rps * self.mean_us / 1e6;
        if busy >= self.cores as f64 {
            bail!(
                "`--rate` is {rate_rps} requests/s of {} us on average: the work alone takes {busy:.1} cores, \
                 and `--cores` is {}; give {} cores at least",
                self.mean_us,
                self.cores,
                busy as u64 + 1
            );
        }
        Ok(())
    }

    /// An objective that no scheduler can keep is refused before it is searched for.
    fn check_objective(&self) -> anyhow::Result<()> {
        allowed("slo-us", self.slo_us, 0.01, 1e9, "microseconds that the share may take at most")?;
        let (slo_us, mean_us) = (self.slo_us, self.mean_us);
        if slo_us < mean_us {
            bail!(
                "`--slo-us` is {slo_us}, and a request takes {mean_us} us on average: no scheduler answers \
                 before it has served; allowed: from the mean on, ten of which are usual"
            );
        }
        let least_us = self.least_us();
        if slo_us < least_us {
            bail!(
                "`--slo-us` is {slo_us}, and {} of the requests alone in the system take up to {least_us:.1} us, \
                 {} us of it on the wire: no scheduler keeps that; allowed: more than {least_us:.1}, or a \
                 smaller `--share`",
                self.search.share,
                2.0 * self.wire_us
            );
        }
        Ok(())
    }

    /// What the share of the requests takes where nothing waits and nothing costs anything.
    pub fn least_us(&self) -> f64 {
        self.law.quantile(self.search.share) * self.mean_us + 2.0 * self.wire_us
    }

    /// The server and its clients, batching off. A poll takes [`POLL_NS_MIN`] at least.
    pub fn setup(&self) -> Setup {
        let costs = Costs { cycle: self.costs.cycle.max(POLL_NS_MIN), ..self.costs.clone() };
        Setup {
            cores: self.cores,
            connections: self.connections,
            wire_ns: (self.wire_us * 1e3).round() as u64,
            ..Setup::zygos(costs, self.law, self.mean_us)
        }
    }

    /// The objective, for a run that is to be told whole.
    pub fn objective(&self) -> Objective {
        Objective { bound_us: self.slo_us, share: self.search.share, give_up: false }
    }

    /// How the theory is simulated: longer, since it costs next to nothing.
    pub fn replications(&self) -> Replications {
        let Search { count, seed, requests, .. } = self.search;
        let runs = Replications { count, seed, ..Replications::new() };
        runs.of_jobs(requests * 2)
    }

    /// The load of `rate_rps`: see [`Setup::rate`].
    pub fn load_of(&self, rate_rps: f64) -> f64 {
        rate_rps * self.mean_us / 1e6 / self.cores as f64
    }

    /// Requests in a second at `load`.
    pub fn rate_of(&self, load: f64) -> f64 {
        load * self.cores as f64 / self.mean_us * 1e6
    }

    /// A latency that the share does not exceed, as tables name it: `p99`.
    pub fn percentile(&self) -> String {
        // Rounded, as 99.9 is no binary number.
        format!("p{}", (self.search.share * 1e6).round() / 1e4)
    }
}

/// The costs of that name, or of that file.
fn costs(name: &str, quick: bool, measuring: impl FnOnce()) -> anyhow::Result<Costs> {
    if name == "measure" {
        measuring();
        let measured = calibrate::measure(quick);
        let (calibration, _) = measured.context(
            "`--costs measure` could not measure this machine; give `--costs sandy-bridge-dune`, or a file \
             of `tailplane calibrate -o FILE`",
        )?;
        return Ok(calibration.costs);
    }
    if let Some(costs) = Costs::preset(name) {
        return Ok(costs);
    }
    let text = std::fs::read_to_string(Path::new(name)).with_context(|| {
        format!(
            "`--costs` is '{name}': neither measure, zero nor sandy-bridge-dune, and no file that can be \
             read; `tailplane calibrate -o FILE` writes one"
        )
    })?;
    Costs::from_toml(&text).with_context(|| format!("in the costs '{name}'"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        args: Args,
    }

    fn ask(words: &str) -> anyhow::Result<Question> {
        let costs: &[_] = if words.contains("--costs") { &[] } else { &["--costs", "zero"] };
        let words = ["scheduler"].iter().chain(costs).copied().chain(words.split_whitespace());
        let args = Line::try_parse_from(words)?.args;
        Question::new(&args, || unreachable!("nothing is measured"))
    }

    #[test]
    fn what_is_not_said_is_the_papers() {
        let question = ask("--law exponential --mean-us 10 --cores 16").expect("asks");
        let Search { share, bound, .. } = question.search;
        assert_eq!((question.connections, question.slo_us, share), (2_752, 100.0, 0.99));
        let setup = question.setup();
        assert_eq!((setup.wire_ns, setup.pipeline), (2_000, 4));
        assert_eq!(bound, 10.0);
        assert!((question.load_of(question.rate_of(0.3)) - 0.3).abs() < 1e-12);
        assert!((question.rate_of(0.3) - setup.rate(0.3)).abs() < 1e-6);
        assert_eq!(question.percentile(), "p99");
        let question = ask("--law exponential --mean-us 10 --cores 4 --share 0.9999 --quick");
        let question = question.expect("asks");
        assert_eq!((question.percentile().as_str(), question.search.requests), ("p99.99", 100_000));
    }

    #[test]
    fn what_cannot_be_is_refused_with_what_can() {
        let law = "--law exponential --mean-us 10 --cores 4";
        for (words, part) in [
            ("--law exponential --mean-us 0 --cores 4", "`--mean-us` is 0; allowed: 0.01 to"),
            ("--law exponential --mean-us NaN --cores 4", "`--mean-us` is NaN"),
            ("--law exponential --mean-us 10 --cores 65", "`--cores` is 65; allowed: 1 to 64"),
            ("--law exponential --mean-us 10 --cores 0", "`--cores` is 0"),
            (&format!("{law} --slo-us 9"), "`--slo-us` is 9, and a request takes 10 us"),
            (&format!("{law} --slo-us 20"), "take up to 50.1 us, 4 us of it on the wire"),
            (&format!("{law} --share 1"), "`--share` is 1; allowed: 0.5 to 0.9999"),
            (&format!("{law} --share 0.999 --requests 2000"), "`--requests` is 2000; allowed: 1"),
            (&format!("{law} --connections 40000"), "`--connections` is 40000"),
            (&format!("{law} --rate 400000"), "takes 4.0 cores, and `--cores` is 4; give 5 cores"),
            (&format!("{law} --costs nowhere.toml"), "`--costs` is 'nowhere.toml': neither"),
            ("--law normal --mean-us 10 --cores 4", "there are deterministic, exponential"),
            ("--law exponential --cores 4", "--mean-us <S>"),
            ("--cores 4", "--law <LAW>"),
            ("--trace t --law exponential --mean-us 1 --cores 4", "cannot be used with"),
        ] {
            let error = ask(words).expect_err(words).to_string();
            assert!(error.contains(part), "{words}: {error}");
        }
    }
}
