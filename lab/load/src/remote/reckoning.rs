//! What all agents measured, as one report.
//!
//! Histograms and counts are added, rates with them. The result is valid where every agent's own is,
//! and the whole passes the same checks; a reason names its agent. Where an agent is missing the
//! report is of the others, and marked partial.

use super::agent_report::AgentReport;
use super::error::RemoteError;
use super::message::Done;
use crate::config::LoadConfig;
use crate::kernel::KernelConfig;
use crate::measurement::{Measurement, Ran};
use crate::report::{Conditions, LoadReport};

/// What became of one agent's share: name, host, address and the clock's bound, of which the rest
/// follows; and what it measured, or how it was lost.
pub(super) type Outcome = (AgentReport, Result<Box<Done>, String>);

/// The report of all `outcomes`. `skew_bound_ns` is by how much their starts may differ.
///
/// # Errors
/// No agent has a result, or the log of the latencies could not be written.
pub(super) fn reckon(
    load: &LoadConfig,
    transport: &KernelConfig,
    outcomes: Vec<Outcome>,
    skew_bound_ns: u64,
) -> Result<LoadReport, RemoteError> {
    let of = outcomes.len() as u32;
    let mut whole = Measurement::new(load.measure_ms * 1_000_000);
    let (mut agents, mut first_failure, mut told_late_ns) = (Vec::new(), None, 0);
    for ((mut about, result), index) in outcomes.into_iter().zip(0..) {
        let share = load.share(index, of)?;
        about.connections = share.connections;
        about.offered_rps = share.offered_rps();
        match unpack(result, &share) {
            Err(reason) => {
                about.lost = true;
                about.invalid_reason = Some(format!("lost: {reason}"));
            }
            Ok((done, measured)) => {
                whole.merge(&measured);
                told_late_ns = told_late_ns.max(done.told_late_ns);
                let name = &about.name;
                first_failure = first_failure
                    .or(done.first_failure.map(|failure| format!("{name}: {failure}")));
                let conditions = Conditions::new(&share, "", "", "");
                fill(&mut about, &LoadReport::new(&share, conditions, &measured));
                about.cores = bounded_list(done.cores);
                about.kernel = bounded(done.kernel);
                about.processor = bounded(done.processor);
            }
        }
        agents.push(about);
    }
    if agents.iter().all(|agent| agent.lost) {
        let reason = |agent: &AgentReport| {
            let reason = agent.invalid_reason.as_deref().unwrap_or_default();
            format!("{}: {reason}", agent.name)
        };
        let reasons = agents.iter().map(reason).collect::<Vec<_>>().join("; ");
        return Err(RemoteError::Peer(format!("no agent has sent a result: {reasons}")));
    }
    let ran = Ran { measured: whole, first_failure: first_failure.map(bounded) };
    let mut report = LoadReport::of(load, conditions(load, transport, &agents), ran)?;
    report.start_skew_bound_us = Some(skew_bound_ns.saturating_add(told_late_ns) as f64 / 1e3);
    judge(&mut report, &agents);
    report.agents = agents;
    Ok(report)
}

/// The measurement that an agent has sent, and what else it said.
fn unpack(
    result: Result<Box<Done>, String>,
    share: &LoadConfig,
) -> Result<(Done, Measurement), String> {
    let done = *result?;
    let measured = done.measured.unpack(share).map_err(|error| error.to_string())?;
    Ok((done, measured))
}

fn fill(about: &mut AgentReport, report: &LoadReport) {
    about.achieved_rps = report.achieved_rps;
    about.requests = report.requests;
    about.errors = report.errors;
    about.p50_us = report.p50_us;
    about.p99_us = report.p99_us;
    about.late_share = report.late_share;
    about.lag_p99_us = report.lag_p99_us;
    about.valid = report.valid;
    about.invalid_reason.clone_from(&report.invalid_reason);
}

/// Whether the whole may be used: every agent's part, and what is missing.
fn judge(report: &mut LoadReport, agents: &[AgentReport]) {
    let reason = |agent: &AgentReport| {
        let reason = agent.invalid_reason.as_deref()?;
        Some(format!("agent {}: {reason}", agent.name))
    };
    let reasons: Vec<String> = agents.iter().filter_map(reason).collect();
    if !reasons.is_empty() {
        report.valid = false;
        report.invalid_reason = Some(reasons.join("; "));
    }
    let lost = agents.iter().filter(|agent| agent.lost);
    let missing: Vec<String> = lost.filter_map(reason).collect();
    if !missing.is_empty() {
        report.partial = true;
        report.partial_reason = Some(missing.join("; "));
    }
}

fn conditions(load: &LoadConfig, transport: &KernelConfig, agents: &[AgentReport]) -> Conditions {
    let mut conditions = transport.conditions(load);
    conditions.threads *= agents.len() as u32;
    // The machines that generated the load, not the one that adds up.
    let each = |of: fn(&AgentReport) -> &str| {
        let mut names: Vec<&str> = agents.iter().filter(|agent| !agent.lost).map(of).collect();
        names.sort_unstable();
        names.dedup();
        names.join(", ")
    };
    conditions.kernel = each(|agent| &agent.kernel);
    conditions.processor = each(|agent| &agent.processor);
    conditions.cores = agents.iter().flat_map(|agent| agent.cores.iter().copied()).collect();
    conditions
}

/// Longest text that is taken from an agent, in letters.
const TEXT_MAX: usize = 256;
/// Most cores of one agent's list.
const CORES_MAX: usize = 256;

/// `text` as it can stand in a line of a report.
pub(super) fn bounded(text: String) -> String {
    if text.len() <= TEXT_MAX && !text.contains(char::is_control) {
        return text;
    }
    text.chars().filter(|letter| !letter.is_control()).take(TEXT_MAX).collect()
}

fn bounded_list(mut cores: Vec<usize>) -> Vec<usize> {
    cores.truncate(CORES_MAX);
    cores
}

#[cfg(test)]
mod tests {
    use super::super::carried::Carried;
    use super::*;
    use crate::codec::Outcome as Answered;
    use crate::config::Mode;

    fn load() -> LoadConfig {
        let mut load = LoadConfig::echo(64);
        load.mode = Mode::open(1_000.0);
        load.connections = 2;
        load
    }

    fn measured(latencies_us: std::ops::RangeInclusive<u64>) -> Measurement {
        let mut m = Measurement::new(1_000_000_000);
        for latency_us in latencies_us {
            m.counts.requests += 1;
            m.lag_ns.saturating_record(latency_us);
            m.on_response(Answered::Complete, true, Some(latency_us * 1_000), true);
        }
        m
    }

    fn outcome(index: u32, m: &Measurement) -> Outcome {
        let done = Done {
            measured: Carried::of(m),
            first_failure: None,
            told_late_ns: u64::from(index) * 1_000,
            kernel: "6.1".into(),
            processor: format!("cpu {index}\u{7}"),
            cores: vec![index as usize],
        };
        let about = AgentReport { name: format!("a{index}"), ..AgentReport::default() };
        (about, Ok(Box::new(done)))
    }

    fn report(outcomes: Vec<Outcome>) -> LoadReport {
        let target = "10.0.0.1:7".parse().expect("an address");
        reckon(&load(), &KernelConfig::new(target), outcomes, 5_000).expect("has results")
    }

    #[test]
    fn the_whole_is_the_sum_of_the_histograms_not_a_mean_of_quantiles() {
        let (quick, slow) = (measured(1..=900), measured(5_001..=5_100));
        let whole = report(vec![outcome(0, &quick), outcome(1, &slow)]);
        let mut sum = quick;
        sum.merge(&slow);
        let conditions = whole.conditions.clone();
        let expected = LoadReport::new(&load(), conditions, &sum);
        assert_eq!((whole.p50_us, whole.p90_us), (expected.p50_us, expected.p90_us));
        assert_eq!((whole.p99_us, whole.max_us), (expected.p99_us, expected.max_us));
        assert_eq!((whole.mean_us, whole.lag_p99_us), (expected.mean_us, expected.lag_p99_us));
        assert_eq!((whole.requests, whole.achieved_rps), (1_000, 1_000.0));
        // A tenth of the requests took more than 5 ms.
        assert!((whole.p99_us / 5_090.0 - 1.0).abs() < 2e-3, "{}", whole.p99_us);
        assert!(whole.valid && !whole.partial, "{:?}", whole.invalid_reason);
        // The one that was told late adds what it was late by.
        assert_eq!(whole.start_skew_bound_us, Some(6.0));
        assert_eq!(whole.conditions.processor, "cpu 0, cpu 1");
        assert_eq!(whole.conditions.cores, [0, 1]);
    }

    #[test]
    fn one_invalid_agent_makes_the_whole_invalid_under_its_name() {
        let mut late = measured(1..=500);
        late.counts.late = 500;
        let whole = report(vec![outcome(0, &measured(1..=500)), outcome(1, &late)]);
        let reason = whole.invalid_reason.expect("says why");
        assert!(!whole.valid && reason.starts_with("agent a1: the generator did not"), "{reason}");
        assert_eq!((whole.partial, whole.agents[0].valid), (false, true));
    }

    #[test]
    fn a_result_that_cannot_be_used_is_a_lost_one() {
        let other_window = Measurement::new(7);
        let whole = report(vec![outcome(0, &measured(1..=500)), outcome(1, &other_window)]);
        assert!(whole.partial && !whole.valid && whole.agents[1].lost);
        let reason = whole.partial_reason.expect("says why");
        assert!(reason.contains("agent a1: lost: its result cannot be used"), "{reason}");
        assert_eq!(whole.requests, 500);
    }
}
