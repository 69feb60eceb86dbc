//! A real machine, looked at configuration by configuration (IX §5.3): for each the highest load within the
//! objective, and what it draws without load and at that load, where the machine tells.
//!
//! Service and load generator are dataplanes of this process, joined by a lab of as many queues as there are
//! elastic threads; each has processors of its own ([`split`]). Whatever ends the measurement early, what was
//! measured is kept, and the result says that it is partial and why.

mod bench;
mod plan;
pub mod split;

use std::path::Path;
use std::sync::atomic::AtomicBool;

use anyhow::{Context, bail};
use control::actuator::Cpufreq;
use control::rapl::Rapl;
use control::{Clock, Configuration, Machine, Scaling, Topology};
use reproduce::{Mode, Stopped};
use world::controlled::pareto::{Candidate, Objective};

use self::bench::Bench;
pub use self::plan::{Plan, Progress};
use self::split::Split;
use super::analysis::{Analysis, Entry};
use crate::demo::softirq;
use service::huge_pages;
use service::lab::constants::QUEUES_MAX;

/// Packet memory of a thread of the service and of one of the client, in bytes.
const THREAD_BYTES: usize = 128 << 20;
/// Most huge pages that are borrowed, in bytes.
const LOAN_BYTES_MAX: usize = 1 << 30;

/// Who sets clocks, and who tells power, as far as there is somebody.
struct Hands {
    clocks: Option<Cpufreq>,
    power: Option<Rapl>,
}

/// Measures all configurations that can be measured here, until `stop` is set.
///
/// # Errors
/// Nothing could be measured at all.
pub fn run(plan: &Plan, progress: Progress<'_>, stop: &AtomicBool) -> anyhow::Result<Analysis> {
    let topology = allowed(&plan.sys)?;
    let split = Split::of(&topology, plan.client_cpus.as_deref())?;
    let (hands, machine, mut all) = prepare(plan, &topology, &split)?;
    let todo = order(&machine, &split.service.machine());
    let _raised = softirq::raise();
    let most = todo.iter().map(|configuration| configuration.threads(&machine)).max().unwrap_or(1);
    let _loan = huge_pages::borrow((most as usize * THREAD_BYTES).min(LOAN_BYTES_MAX));
    let mut measuring = Measuring { plan, split: &split, hands, progress, stop, start_rps: None };
    let ended = measuring.all(&todo, &machine, &mut all);
    let measured = all.entries.iter().any(|entry| entry.run.is_some());
    if let Err(error) = ended {
        if !measured && !error.is::<Stopped>() {
            return Err(error);
        }
        all.partial = Some(format!("{error:#}"));
    }
    not_known(&mut all, &todo, "the run ended before it");
    let reason = format!(
        "it needs processors of the load generator ({}); `--client-cpus` gives it others or fewer",
        split.client_list()
    );
    not_known(&mut all, &machine.configurations(), &reason);
    Ok(all)
}

/// This machine's processors that we may use.
fn allowed(sys: &Path) -> anyhow::Result<Topology> {
    let topology = Topology::read(sys).context("cannot see this machine's processors")?;
    let ours =
        rustix::thread::sched_getaffinity(None).context("asking which processors are ours")?;
    let ids: Vec<u32> = topology.cpus.iter().map(|cpu| cpu.id).collect();
    let ids: Vec<u32> = ids.into_iter().filter(|&id| ours.is_set(id as usize)).collect();
    Ok(topology.restricted_to(&ids))
}

/// What can be set and told here; the machine as far as it can be set; and an analysis without entries but those of
/// clocks that cannot be.
fn prepare(
    plan: &Plan,
    topology: &Topology,
    split: &Split,
) -> anyhow::Result<(Hands, Machine, Analysis)> {
    let mut machine = topology.machine();
    machine.validate().context("this machine cannot be measured")?;
    let mut all = Analysis {
        name: "this machine".to_owned(),
        machine: machine.clone(),
        scaling: Scaling::ix(),
        mode: Mode::Real,
        slo_us: plan.slo_us,
        objective: plan.objective,
        entries: Vec::new(),
        conditions: ::measure::conditions::here(),
        notes: Vec::new(),
        partial: None,
    };
    let clocks = match settable(&split.service, &machine) {
        Ok(clocks) => Some(clocks),
        Err(reason) => {
            all.notes.push(format!("clocks are not measured: {reason}"));
            if !machine.clocks_khz.is_empty() {
                not_known(&mut all, &machine.configurations(), &reason);
                (machine.clocks_khz, machine.turbo) = (Vec::new(), false);
                all.machine = machine.clone();
            }
            None
        }
    };
    let power = match Rapl::open(&plan.sys, &split.sockets()) {
        Ok(rapl) => {
            all.notes.push(
                "power is that of the service's sockets whole: what else runs there, the load generator too, is \
                 in it"
                    .to_owned(),
            );
            Some(rapl)
        }
        Err(error) => {
            all.notes.push(format!("power is not measured: {error}"));
            if all.objective == Objective::Energy {
                all.objective = Objective::Consolidation;
                all.notes.push(
                    "without power there is no frontier of energy: this is the one of cores, as for `--policy \
                     consolidation`"
                        .to_owned(),
                );
            }
            None
        }
    };
    describe(plan, split, power.is_some(), &mut all);
    Ok((Hands { clocks, power }, machine, all))
}

/// Sets a clock to see whether it can be done.
fn settable(service: &Topology, machine: &Machine) -> Result<Cpufreq, String> {
    let mut clocks = Cpufreq::new(service).map_err(|error| error.to_string())?;
    if machine.clocks_khz.is_empty() {
        return Err("not every processor has a clock that can be set".to_owned());
    }
    clocks.set(machine.nominal_clock()).map_err(|error| error.to_string())?;
    Ok(clocks)
}

fn describe(plan: &Plan, split: &Split, power: bool, all: &mut Analysis) {
    let cpus = |topology: &Topology| {
        let list: Vec<String> =
            topology.allocation_order().iter().map(ToString::to_string).collect();
        list.join(" ")
    };
    all.condition("objective", format!("p99 < {} us", plan.slo_us));
    all.condition("workload", &plan.workload);
    all.condition("service", format!("{:?}", plan.app).to_lowercase());
    all.condition("service processors", cpus(&split.service));
    all.condition("client processors", cpus(&split.client));
    all.condition(
        "client",
        "tailplane dataplane, open loop, Poisson, as many threads as the service",
    );
    all.condition("connections", plan.connections);
    all.condition("window", format!("{} s", plan.seconds));
    all.condition("scheduler", "run-to-completion");
    all.condition("domain", "inline");
    all.condition("B", 64);
    all.condition("power", if power { "RAPL" } else { "not measured" });
    all.condition("seed", plan.seed);
}

/// What is measured: all that the service's processors can be, the fewest threads first, so that a run that is ended
/// early has the beginning of the frontier.
fn order(machine: &Machine, service: &Machine) -> Vec<Configuration> {
    let within = Machine {
        cores: service.cores,
        threads_per_core: service.threads_per_core,
        ..machine.clone()
    };
    let mut all = within.configurations();
    all.sort_by_key(|configuration| {
        (configuration.threads(&within), configuration.cores, configuration.hyperthreads)
    });
    all
}

/// Those of these configurations of which nothing is known yet, and why.
fn not_known(all: &mut Analysis, configurations: &[Configuration], reason: &str) {
    for &configuration in configurations {
        if all.entries.iter().all(|entry| entry.configuration != configuration) {
            let found = Err(reason.to_owned());
            all.entries.push(Entry { configuration, found, run: None });
        }
    }
}

struct Measuring<'a> {
    plan: &'a Plan,
    split: &'a Split,
    hands: Hands,
    progress: Progress<'a>,
    stop: &'a AtomicBool,
    /// Where the next search begins: what the one before found.
    start_rps: Option<f64>,
}

impl Measuring<'_> {
    /// The configurations in their order; those that differ in the clock alone share a service.
    fn all(
        &mut self,
        todo: &[Configuration],
        machine: &Machine,
        all: &mut Analysis,
    ) -> anyhow::Result<()> {
        let alike = |a: &Configuration, b: &Configuration| {
            (a.cores, a.hyperthreads) == (b.cores, b.hyperthreads)
        };
        let mut done = 0;
        for group in todo.chunk_by(alike) {
            let cpus = self.split.cpus(&group[0]);
            if cpus.len() > QUEUES_MAX as usize {
                let reason =
                    format!("{} threads; a lab has at most {QUEUES_MAX} queues", cpus.len());
                not_known(all, group, &reason);
                continue;
            }
            let bench = Bench::open(self.plan, self.split, &cpus, self.stop)?;
            all.condition("driver", &bench.driver);
            for configuration in group {
                done += 1;
                let name = format!("[{done}/{}] {configuration}", todo.len());
                let entry = self.one(&bench, *configuration, machine, &name)?;
                all.entries.push(entry);
            }
        }
        Ok(())
    }

    fn one(
        &mut self,
        bench: &Bench<'_>,
        configuration: Configuration,
        machine: &Machine,
        name: &str,
    ) -> anyhow::Result<Entry> {
        match (&mut self.hands.clocks, configuration.clock) {
            (_, Clock::Fixed) => {}
            (Some(clocks), clock) => clocks.set(clock)?,
            (None, clock) => bail!("nobody can set the clock {clock}"),
        }
        let (rps, run) = bench.search(self.start_rps, name, self.progress)?;
        let Some(rps) = rps else {
            let reason = format!(
                "no load that was tried keeps {} us; at the lowest 99 % are within {:.1} us",
                self.plan.slo_us, run.p99_us
            );
            return Ok(Entry { configuration, found: Err(reason), run: Some(run) });
        };
        self.start_rps = Some(rps);
        let watts = match &self.hands.power {
            Some(rapl) => Some(bench.watts(rapl, rps)?),
            None => None,
        };
        let power = watts.map_or_else(String::new, |(_, full)| format!(", {full:.1} W"));
        (self.progress)(&format!("{name}: serves {rps:.0} requests/s{power}"));
        let candidate = Candidate::measured(machine, configuration, rps, watts);
        Ok(Entry { configuration, found: Ok(candidate), run: Some(run) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_threads_come_first() {
        let machine =
            Machine { cores: 4, threads_per_core: 2, clocks_khz: Vec::new(), turbo: false };
        let service = Machine { cores: 2, ..machine.clone() };
        let order = order(&machine, &service);
        let threads: Vec<(u32, bool)> = order.iter().map(|c| (c.cores, c.hyperthreads)).collect();
        assert_eq!(threads, [(1, false), (1, true), (2, false), (2, true)]);
    }

    #[test]
    fn clocks_that_cannot_be_set_are_a_reason_and_no_failure() {
        let topology = Topology::read(Path::new("/sys")).expect("this machine");
        let none = Topology { domains: Vec::new(), boost: None, ..topology };
        let reason = settable(&none, &none.machine()).expect_err("no domain");
        assert!(reason.contains("cpufreq"), "{reason}");
    }
}
