//! Which of the candidates is recommended, and why.
//!
//! The rule knows nothing of schedulers: intervals in the order of simplicity, and which one to take.

use queueing::MeanInterval;
use world::cores::Costs;

use super::candidates::{Answer, Found};
use super::question::Question;

/// What the rule says of some candidates, as places among them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pick {
    /// The one to take.
    pub chosen: usize,
    /// The one with the highest mean.
    pub best: usize,
    /// All that tie with it, itself among them.
    pub tied: Vec<usize>,
}

/// Whether `one` carries more than `other`: by more than a step of the search, and each mean beyond the
/// other's interval.
fn beyond(one: &MeanInterval, other: &MeanInterval, step: f64) -> bool {
    one.mean - other.mean > step && one.mean > other.high && one.low > other.mean
}

/// The simplest of those that tie with the best; `loads` come in the order of simplicity. None: no load of
/// any keeps the objective.
pub fn pick(loads: &[MeanInterval], step: f64) -> Option<Pick> {
    // The first of several highest.
    let highest = loads.iter().enumerate().rev().max_by(|(_, a), (_, b)| a.mean.total_cmp(&b.mean));
    let (best, top) = highest.filter(|(_, top)| top.mean > 0.0)?;
    let tied: Vec<usize> = (0..loads.len())
        .filter(|&index| loads[index].mean > 0.0 && !beyond(top, &loads[index], step))
        .collect();
    Some(Pick { chosen: tied[0], best, tied })
}

/// A recommendation.
#[derive(Debug, Clone)]
pub struct Advice<'a> {
    /// What to take.
    pub chosen: &'a Answer,
    /// Those that tie with it for the highest load.
    pub ties: Vec<&'static str>,
    /// Why, in words and numbers.
    pub reason: String,
    /// What is to be known besides, a sentence each.
    pub remarks: Vec<String>,
}

/// `0.81 (0.80 to 0.82)`
pub fn load_words(load: &MeanInterval) -> String {
    format!("{:.3} ({:.3} to {:.3})", load.mean, load.low.max(0.0), load.high)
}

/// The recommendation among what asks nothing more of the service or the machine; none where no load keeps
/// the objective.
pub fn advise<'a>(question: &Question, found: &'a Found) -> Option<Advice<'a>> {
    let usual = |answer: &&Answer| answer.candidate.asks_nothing();
    let answers: Vec<&Answer> = found.answers.iter().filter(usual).collect();
    let loads: Vec<MeanInterval> = answers.iter().map(|answer| answer.max_load).collect();
    let pick = pick(&loads, question.search.step)?;
    let (chosen, best) = (answers[pick.chosen], answers[pick.best]);
    // The first that ties is chosen.
    let ties: Vec<&str> =
        pick.tied[1..].iter().map(|&index| answers[index].candidate.name).collect();
    let rest = (0..answers.len()).filter(|index| !pick.tied.contains(index));
    let next = rest.max_by(|&a, &b| loads[a].mean.total_cmp(&loads[b].mean)).map(|i| answers[i]);
    let carries = format!(
        "it carries load {}, {:.0} requests/s, with {} % within {} us",
        load_words(&chosen.max_load),
        question.rate_of(chosen.max_load.mean),
        percent(question.search.share),
        question.slo_us
    );
    let others = match next {
        Some(next) => format!(
            "; {} carries {}{}",
            next.candidate.name,
            load_words(&next.max_load),
            if ties.is_empty() { ", the most of the others" } else { "" }
        ),
        None => String::new(),
    };
    let tie = if ties.is_empty() {
        String::new()
    } else {
        let best = if pick.best == pick.chosen {
            "it is the highest as well".to_owned()
        } else {
            format!("the highest is {}, {}", best.candidate.name, load_words(&best.max_load))
        };
        format!(
            "; it ties with {}, the difference being within the intervals or a step of the search ({best}), \
             and asks for the fewest words",
            ties.join("; ")
        )
    };
    Some(Advice {
        chosen,
        ties,
        reason: format!("{carries}{tie}{others}"),
        remarks: remarks(question, found, chosen, best),
    })
}

/// `99.9`, of a share.
fn percent(share: f64) -> f64 {
    (share * 1e6).round() / 1e4
}

/// Intervals that are too wide; what carries more and asks more; the user's own load; what the
/// costs are not.
fn remarks(question: &Question, found: &Found, chosen: &Answer, best: &Answer) -> Vec<String> {
    let mut remarks = Vec::new();
    if best.max_load.mean - chosen.max_load.mean > question.search.step {
        let (best, requests) = (best.candidate.name, question.search.requests);
        remarks.push(format!(
            "The intervals are too wide to tell it from {best}: give more than {requests} `--requests` to know."
        ));
    }
    for answer in found.answers.iter().filter(|answer| !answer.candidate.asks_nothing()) {
        if beyond(&answer.max_load, &chosen.max_load, question.search.step) {
            let how = what_it_asks(answer, question.mean_us);
            let (name, load) = (answer.candidate.name, load_words(&answer.max_load));
            remarks.push(format!("{name} carries more, {load}, and asks more: {how}."));
        }
    }
    if let (Some(rate), Some(look)) = (question.rate_rps, chosen.at_rate) {
        let word = match (look.p50_us, look.at_share_us) {
            (Some(p50_us), Some(at_share_us)) => format!(
                "p50 {p50_us:.1} us, {} {at_share_us:.1} us, cores {:.0} % busy",
                question.percentile(),
                100.0 * look.busy
            ),
            _ => "more than it can serve".to_owned(),
        };
        let verdict = match (look.meets, found.answers.iter().any(meets_at_rate)) {
            (true, _) => "the objective is kept",
            (false, true) => "the objective is missed, which another candidate keeps there",
            (false, false) => "the objective is missed, by all candidates: give it more cores",
        };
        remarks
            .push(format!("At your {rate} requests/s (load {:.3}): {word}; {verdict}.", look.load));
    }
    if question.costs == Costs::zero() {
        remarks.push(
            "Without costs nothing speaks for batches or against stealing: ask again with those of a machine."
                .to_owned(),
        );
    }
    remarks
}

fn meets_at_rate(answer: &Answer) -> bool {
    answer.at_rate.is_some_and(|look| look.meets)
}

/// What a candidate asks beyond the scheduler's name.
fn what_it_asks(answer: &Answer, mean_us: f64) -> String {
    let quantum = answer.candidate.quantum_us(mean_us);
    match (answer.candidate.while_away(), quantum) {
        (_, Some(us)) => format!(
            "`dataplane.quantum_us = {us:.0}`, and a service that puts off what is left of a request at its safe \
             points (`Output::yield_at`)"
        ),
        (Some("kick"), _) => {
            "`dataplane.while_away = \"kick\"`, and the privilege of real-time priority (`dataplane.realtime`)"
                .to_owned()
        }
        _ => "`dataplane.while_away = \"wait\"`".to_owned(),
    }
}

/// Why nothing is recommended: what a request takes alone, with what it costs.
pub fn why_none(question: &Question) -> String {
    let alone_us = question.least_us() + question.costs.per_request(1.0) / 1e3;
    format!(
        "No candidate keeps {} % within {} us at any load. A request alone in the system takes about \
         {alone_us:.1} us at {}: {:.1} us of service, {:.1} us on the wire, {:.1} us of costs. Allow more \
         (`--slo-us`), a smaller share (`--share`), or shorten what is longest.",
        percent(question.search.share),
        question.slo_us,
        question.percentile(),
        question.law.quantile(question.search.share) * question.mean_us,
        2.0 * question.wire_us,
        question.setup().costs.per_request(1.0) / 1e3,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(low: f64, mean: f64, high: f64) -> MeanInterval {
        MeanInterval { mean, low, high, count: 3, level: 0.95 }
    }

    fn chosen(loads: &[MeanInterval]) -> Option<(usize, usize, Vec<usize>)> {
        pick(loads, 0.005).map(|pick| (pick.chosen, pick.best, pick.tied))
    }

    #[test]
    fn what_is_beyond_all_intervals_is_taken() {
        let loads = [load(0.5, 0.52, 0.54), load(0.6, 0.62, 0.64), load(0.7, 0.72, 0.74)];
        assert_eq!(chosen(&loads), Some((2, 2, vec![2])));
    }

    #[test]
    fn among_those_that_tie_the_simplest_is_taken() {
        let loads = [load(0.5, 0.52, 0.54), load(0.68, 0.71, 0.74), load(0.7, 0.72, 0.74)];
        assert_eq!(chosen(&loads), Some((1, 2, vec![1, 2])));
        // The best's own interval is wide: nobody knows that it is the best.
        let loads = [load(0.70, 0.70, 0.70), load(0.6, 0.8, 1.0)];
        assert_eq!(chosen(&loads), Some((0, 1, vec![0, 1])));
        // And so where the other's is.
        let loads = [load(0.5, 0.7, 0.9), load(0.8, 0.8, 0.8)];
        assert_eq!(chosen(&loads), Some((0, 1, vec![0, 1])));
    }

    #[test]
    fn a_step_of_the_search_is_no_difference() {
        let loads = [load(0.800, 0.800, 0.800), load(0.804, 0.804, 0.804)];
        assert_eq!(chosen(&loads), Some((0, 1, vec![0, 1])));
        let loads = [load(0.800, 0.800, 0.800), load(0.806, 0.806, 0.806)];
        assert_eq!(chosen(&loads), Some((1, 1, vec![1])));
        let equal = [load(0.8, 0.8, 0.8); 3];
        assert_eq!(chosen(&equal), Some((0, 0, vec![0, 1, 2])));
    }

    #[test]
    fn where_no_load_will_do_nothing_is_taken() {
        assert_eq!(chosen(&[load(0.0, 0.0, 0.0); 2]), None);
        assert_eq!(chosen(&[]), None);
        // A candidate that keeps it nowhere ties with none that keeps it once in a while.
        let loads = [load(0.0, 0.0, 0.0), load(0.0, 0.01, 0.05)];
        assert_eq!(chosen(&loads), Some((1, 1, vec![1])));
    }
}
