//! What is told: the table, the recommendation in words, and the JSON that `--help` describes.

use std::collections::BTreeMap;

use queueing::MeanInterval;
use reproduce::Grid;
use serde_json::{Value, json};

use super::candidates::{Answer, Found, Look};
use super::question::Question;
use super::recommend::{Advice, load_words, why_none};

/// Everything, for a person.
pub fn text(question: &Question, found: &Found, advice: Option<&Advice<'_>>) -> String {
    let (conditions, table) = (conditions_line(question), table(question, found));
    let words = advice.map_or_else(|| why_none(question), advice_words);
    format!("{conditions}\n{table}\n\n{words}\n")
}

fn conditions_line(question: &Question) -> String {
    let Question { mean_us, cores, connections, slo_us, wire_us, .. } = question;
    let quantile = |share| question.law.quantile(share) * mean_us;
    format!(
        "{}, S = {mean_us:.4} us (p50 {:.1}, p99 {:.1}, p99.9 {:.1}); {cores} simulated cores, {connections} \
         connections, {wire_us} us of wire each way\nobjective: {} within {slo_us:.4} us; costs: {}; {} \
         searches of {} requests a load, seed {}",
        question.law.name(),
        quantile(0.5),
        quantile(0.99),
        quantile(0.999),
        question.percentile(),
        question.costs,
        question.search.count,
        question.search.requests,
        question.search.seed
    )
}

fn table(question: &Question, found: &Found) -> Grid {
    let tail = question.percentile();
    let mut header = vec![
        "candidate".to_owned(),
        "highest load (95 %)".to_owned(),
        "requests/s".to_owned(),
        format!("{tail} at half, us"),
        "stolen at highest".to_owned(),
        "overhead there, ns".to_owned(),
    ];
    if let Some(rate) = question.rate_rps {
        header.extend([format!("p50 at {rate}/s, us"), format!("{tail} there"), "busy".to_owned()]);
    }
    let mut table = Grid::new(header);
    for answer in &found.answers {
        table.row(row(question, answer));
    }
    for bound in &found.theory {
        let rate = format!("{:.0}", question.rate_of(bound.max_load.mean));
        table.row([format!("theory, {}", bound.model), load_words(&bound.max_load), rate]);
    }
    table
}

fn row(question: &Question, answer: &Answer) -> Vec<String> {
    let none = || "-".to_owned();
    let cell = |look: Option<Look>, of: &dyn Fn(Look) -> String| look.map_or_else(none, of);
    let latency = |us: Option<f64>| us.map_or_else(none, |us| format!("{us:.1}"));
    let mut row = vec![
        answer.candidate.name.to_owned(),
        load_words(&answer.max_load),
        format!("{:.0}", question.rate_of(answer.max_load.mean)),
        cell(answer.at_half, &|look| latency(look.at_share_us)),
        cell(answer.at_max, &|look| format!("{:.1} %", 100.0 * look.steal_rate)),
        cell(answer.at_max, &|look| format!("{:.0}", look.overhead_ns)),
    ];
    if question.rate_rps.is_some() {
        row.extend([
            cell(answer.at_rate, &|look| latency(look.p50_us)),
            cell(answer.at_rate, &|look| {
                let mark = if look.meets { "" } else { " missed" };
                latency(look.at_share_us) + mark
            }),
            cell(answer.at_rate, &|look| format!("{:.0} %", 100.0 * look.busy)),
        ]);
    }
    row
}

fn advice_words(advice: &Advice<'_>) -> String {
    let candidate = &advice.chosen.candidate;
    let mut words = format!(
        "Take {}: {}.\n\n    [dataplane]\n    scheduler = \"{}\"\n    batch = {}",
        candidate.name,
        advice.reason,
        candidate.scheduler(),
        candidate.batch
    );
    for remark in &advice.remarks {
        words += &format!("\n\n{remark}");
    }
    words
}

fn interval(load: &MeanInterval) -> Value {
    json!({ "mean": load.mean, "low": load.low, "high": load.high, "searches": load.count })
}

/// Everything, for a program: see `--help`.
///
/// # Errors
/// A value that JSON cannot hold; none of them is one.
pub fn json(
    question: &Question,
    found: &Found,
    advice: Option<&Advice<'_>>,
) -> anyhow::Result<String> {
    let candidate = |answer: &Answer| {
        let candidate = &answer.candidate;
        json!({
            "name": candidate.name,
            "scheduler": candidate.scheduler(),
            "batch": candidate.batch,
            "while_away": candidate.while_away(),
            "quantum_us": candidate.quantum_us(question.mean_us),
            "asks_nothing": candidate.asks_nothing(),
            "max_load": interval(&answer.max_load),
            "max_rate_rps": question.rate_of(answer.max_load.mean),
            "at_half": answer.at_half,
            "at_max": answer.at_max,
            "at_rate": answer.at_rate,
        })
    };
    let bounds = found.theory.iter().map(|bound| {
        json!({
            "model": bound.model,
            "max_load": interval(&bound.max_load),
            "max_rate_rps": question.rate_of(bound.max_load.mean),
        })
    });
    let quantile_us = |share| question.law.quantile(share) * question.mean_us;
    let value = json!({
        "conditions": conditions_of(question),
        "seed": question.search.seed,
        "service": {
            "law": question.law.name(),
            "mean_us": question.mean_us,
            "p50_us": quantile_us(0.5),
            "p99_us": quantile_us(0.99),
            "p999_us": quantile_us(0.999),
        },
        "objective": { "slo_us": question.slo_us, "share": question.search.share },
        "costs": BTreeMap::from(question.costs.entries()),
        "theory": bounds.collect::<Vec<_>>(),
        "candidates": found.answers.iter().map(candidate).collect::<Vec<_>>(),
        "recommendation": advice.map(recommendation),
    });
    Ok(serde_json::to_string_pretty(&value)?)
}

fn recommendation(advice: &Advice<'_>) -> Value {
    let candidate = &advice.chosen.candidate;
    json!({
        "name": candidate.name,
        "configuration": {
            "dataplane.scheduler": candidate.scheduler(),
            "dataplane.batch": candidate.batch,
        },
        "ties_with": advice.ties,
        "reason": advice.reason,
        "remarks": advice.remarks,
    })
}

/// The machine that simulated, and what was simulated.
fn conditions_of(question: &Question) -> BTreeMap<String, String> {
    let mut all = measure::conditions::here();
    let simulated = [
        ("simulated cores", question.cores.to_string()),
        ("connections", question.connections.to_string()),
        ("pipeline", question.setup().pipeline.to_string()),
        ("wire_us", question.wire_us.to_string()),
        ("driver", "simulated".to_owned()),
        ("domain", "inline, simulated".to_owned()),
        ("costs", format!("{}; {}", question.costs, question.costs.source)),
        ("searches", question.search.count.to_string()),
        ("requests of a run", question.search.requests.to_string()),
        ("step of a search", question.search.step.to_string()),
        ("seed", question.search.seed.to_string()),
    ];
    all.extend(simulated.map(|(name, value)| (name.to_owned(), value)));
    all
}
