//! What an analysis says: tables for people, JSON for scripts.
//!
//! ```text
//! {"format": 1, "mode": "sim", "conditions": {...}, "policy": "energy", "objective": {"slo_us": 500.0, "percentile": 99},
//!  "machine": {"name": "...", "cores": 8, "threads_per_core": 2, "clocks_khz": [...], "turbo": true},
//!  "considered": 224, "frontier": [...], "sequence": [...], "configurations": [...], "notes": [...], "partial": null}
//! ```
//!
//! `docs/pareto.md` says what each field means. A number is measured, simulated or absent (`null`), never assumed.

use control::policy::{Policy, Sequence, Step};
use control::{Clock, Configuration};
use reproduce::{Grid, Mode};
use serde_json::{Value, json};
use world::controlled::pareto::{Candidate, Frontier, Member, Objective};

use super::analysis::{Analysis, Entry};

/// Version of the JSON: it changes when a field changes its meaning or goes away.
const FORMAT: u32 = 1;

/// A configuration of the frontier, and what it saves.
struct Row<'a> {
    member: &'a Member,
    /// In watts, at the highest load at which it is best.
    watts: Option<f64>,
    /// Of the power of the one that serves most, at the same load.
    saved: Option<f64>,
    /// Its number in the sequence, from 1; none where the one before it serves no less.
    step: Option<usize>,
}

fn rows<'a>(
    frontier: &Frontier,
    members: &'a [Member],
    sequence: Option<&Sequence>,
) -> Vec<Row<'a>> {
    let most = frontier.candidates().last();
    let row = |member: &'a Member| {
        let watts = member.candidate.watts_at(member.to_rps);
        let all = most.and_then(|most| most.watts_at(member.to_rps)).filter(|&all| all > 0.0);
        let is_it = |step: &Step| step.configuration == member.candidate.configuration;
        Row {
            member,
            watts,
            saved: watts.zip(all).map(|(watts, all)| 1.0 - watts / all),
            step: sequence.and_then(|all| all.steps().iter().position(is_it)).map(|step| step + 1),
        }
    };
    members.iter().map(row).collect()
}

/// The tables.
pub fn text(all: &Analysis) -> String {
    let mut out = heading(all);
    let unknown = all.entries.iter().filter(|entry| entry.found.is_err()).count();
    let Some(frontier) = all.frontier() else {
        out += &format!("no frontier: nothing serves anything within {} us\n", all.slo_us);
        return out + &not_measured(all) + &ending(all);
    };
    let (members, sequence) = (frontier.members(), frontier.sequence());
    out += &format!(
        "configurations: {}, of which {} count for {}, and {} are its Pareto frontier{}\n\n",
        all.entries.len(),
        frontier.candidates().len(),
        <&str>::from(all.objective),
        members.len(),
        if unknown > 0 { format!("; {unknown} not known") } else { String::new() }
    );
    out += &format!("{}\n\n", table(all, &rows(&frontier, &members, sequence.as_ref())));
    if let Some(sequence) = &sequence {
        let (first, last) = (&sequence.steps()[0], &sequence.steps()[sequence.steps().len() - 1]);
        out += &format!(
            "sequence \"{}\": {} steps, from {} to {}\n",
            sequence.name(),
            sequence.steps().len(),
            first.configuration,
            last.configuration
        );
    }
    out + &not_measured(all) + &ending(all)
}

fn heading(all: &Analysis) -> String {
    let machine = &all.machine;
    let clocks = match machine.clocks_khz.as_slice() {
        [] => "a clock that is not set".to_owned(),
        [one] => format!("{} as the only clock", Clock::Khz(*one)),
        all @ [low, .., high] => {
            format!("{} clocks from {} to {}", all.len(), Clock::Khz(*low), Clock::Khz(*high))
        }
    };
    let turbo = if machine.turbo { " and Turbo" } else { "" };
    let how = if all.mode == Mode::Real { "measured" } else { "simulated" };
    format!(
        "machine: {} ({how}): {} cores of {} threads, {clocks}{turbo}\nobjective: 99 % within {} us\n",
        all.name, machine.cores, machine.threads_per_core, all.slo_us
    )
}

/// Columns that would be empty are left out.
fn table(all: &Analysis, rows: &[Row<'_>]) -> Grid {
    let has_power = rows.iter().any(|row| row.watts.is_some());
    let is_consolidation = all.objective == Objective::Consolidation;
    let mut header = vec!["step", "configuration", "best up to (1/s)", "serves (1/s)"];
    if is_consolidation {
        header.push("left to the job");
    }
    if has_power {
        header.extend(["power (W)", "saved"]);
    }
    let mut table = Grid::new(header);
    for row in rows {
        let candidate = &row.member.candidate;
        let mut cells = vec![
            row.step.map_or_else(|| "-".to_owned(), |step| step.to_string()),
            candidate.configuration.to_string(),
            format!("{:.0}", row.member.to_rps),
            format!("{:.0}", candidate.capacity_rps),
        ];
        if is_consolidation {
            let cores = all.machine.cores - candidate.configuration.cores;
            cells.push(format!("{cores} cores, {:.1} %", candidate.background * 100.0));
        }
        if has_power {
            let power = row.watts.map(|watts| format!("{watts:.1}"));
            let saved = row.saved.map(|share| format!("{:.1} %", share * 100.0));
            cells.extend([power, saved].map(|cell| cell.unwrap_or_else(|| "-".to_owned())));
        }
        table.row(cells);
    }
    table
}

/// What is not known, each reason once.
pub fn not_measured(all: &Analysis) -> String {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for Entry { configuration, found, .. } in &all.entries {
        let Err(reason) = found else { continue };
        match reasons.iter_mut().find(|(known, _)| known == reason) {
            Some((_, which)) => which.push(configuration.to_string()),
            None => reasons.push((reason, vec![configuration.to_string()])),
        }
    }
    let line = |(reason, which): (&str, Vec<String>)| match which.as_slice() {
        [one] => format!("not known: {one}: {reason}\n"),
        [first, .., last] => {
            format!("not known: {} configurations ({first} to {last}): {reason}\n", which.len())
        }
        [] => String::new(),
    };
    reasons.into_iter().map(line).collect()
}

fn ending(all: &Analysis) -> String {
    let mut out: String = all.notes.iter().map(|note| format!("note: {note}\n")).collect();
    if let Some(reason) = &all.partial {
        out += &format!("partial: {reason}\n");
    }
    out
}

/// The JSON.
pub fn json(all: &Analysis) -> Value {
    let frontier = all.frontier();
    let members = frontier.as_ref().map(Frontier::members).unwrap_or_default();
    let sequence = frontier.as_ref().and_then(Frontier::sequence);
    let rows = frontier.as_ref().map(|frontier| rows(frontier, &members, sequence.as_ref()));
    let steps = sequence.as_ref().map_or(&[][..], |sequence| sequence.steps()).iter();
    let step_json = |step: &Step| {
        let more = json!({ "background": step.background_cores, "speed": step.speed });
        described(&step.configuration, more)
    };
    json!({
        "format": FORMAT,
        "mode": all.mode.to_string(),
        "conditions": all.conditions,
        "policy": <&str>::from(all.objective),
        "objective": { "slo_us": all.slo_us, "percentile": 99 },
        "machine": {
            "name": all.name,
            "cores": all.machine.cores,
            "threads_per_core": all.machine.threads_per_core,
            "clocks_khz": all.machine.clocks_khz,
            "turbo": all.machine.turbo,
        },
        "considered": frontier.as_ref().map_or(0, |frontier| frontier.candidates().len()),
        "frontier": rows.iter().flatten().map(row_json).collect::<Vec<_>>(),
        "sequence": steps.map(step_json).collect::<Vec<_>>(),
        "configurations": all.entries.iter().map(entry_json).collect::<Vec<_>>(),
        "notes": all.notes,
        "partial": all.partial,
    })
}

/// What is said of a configuration, with the words of a sequence's file for it.
fn described(configuration: &Configuration, mut said: Value) -> Value {
    said["cores"] = json!(configuration.cores);
    said["hyperthreads"] = json!(configuration.hyperthreads);
    said["clock"] = match configuration.clock {
        Clock::Khz(khz) => json!(khz),
        other => json!(other.to_string()),
    };
    said
}

fn row_json(row: &Row<'_>) -> Value {
    let Member { candidate, from_rps, to_rps } = row.member;
    let said = json!({
        "throughput_at_slo_rps": candidate.capacity_rps,
        "best_from_rps": from_rps,
        "best_to_rps": to_rps,
        "watts": row.watts,
        "saved": row.saved,
        "background": candidate.background,
        "step": row.step,
    });
    described(&candidate.configuration, said)
}

fn entry_json(entry: &Entry) -> Value {
    let found: Option<&Candidate> = entry.found.as_ref().ok();
    let watts = found.and_then(|candidate| candidate.watts);
    let mut said = entry.run.as_ref().map_or_else(|| json!({}), |run| json!(run));
    said["throughput_at_slo_rps"] = json!(found.map(|candidate| candidate.capacity_rps));
    said["watts_idle"] = json!(watts.map(|(idle, _)| idle));
    said["watts_at_slo"] = json!(watts.map(|(_, full)| full));
    said["background"] = json!(found.map(|candidate| candidate.background));
    said["not_run"] = json!(entry.found.as_ref().err());
    described(&entry.configuration, said)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use world::controlled::server::ServerModel;

    use super::*;

    fn ix(objective: Objective) -> Analysis {
        Analysis::simulated(&ServerModel::ix(), objective, BTreeMap::new())
    }

    #[test]
    fn the_json_hangs_together() {
        let json = json(&ix(Objective::Energy));
        assert_eq!((&json["considered"], &json["mode"]), (&json!(224), &json!("sim")));
        let frontier = json["frontier"].as_array().expect("a list");
        assert!((20..=60).contains(&frontier.len()), "the paper's has 45: {}", frontier.len());
        let number = |value: &Value| value.as_f64().expect("a number");
        for row in frontier {
            assert!(number(&row["best_to_rps"]) >= number(&row["best_from_rps"]), "{row}");
            let serves = number(&row["throughput_at_slo_rps"]);
            assert!(number(&row["best_to_rps"]) <= serves * (1.0 + 1e-9), "{row}");
            assert!((0.0..1.0).contains(&number(&row["saved"])), "{row}");
        }
        assert_eq!(frontier[0]["clock"], 1_200_000);
        let last = frontier.last().expect("one");
        assert_eq!((&last["clock"], &last["saved"]), (&json!("turbo"), &json!(0.0)));
        let steps = json["sequence"].as_array().expect("a list");
        let numbered = frontier.iter().filter(|row| row["step"].is_number()).count();
        assert_eq!(steps.len(), numbered);
        assert_eq!(json["configurations"].as_array().map(Vec::len), Some(224));
        assert!(json["partial"].is_null());
    }

    #[test]
    fn consolidation_says_what_is_left() {
        let all = ix(Objective::Consolidation);
        let said = text(&all);
        assert!(said.contains("left to the job") && said.contains("7 cores, 87.5 %"), "{said}");
        assert!(said.contains("9 steps"), "IX §5.4: {said}");
        assert_eq!(json(&all)["sequence"][0]["background"], 7);
    }

    #[test]
    fn without_power_there_is_no_column_for_it_and_reasons_are_said_once() {
        let mut all = ix(Objective::Consolidation);
        for (index, entry) in all.entries.iter_mut().enumerate() {
            match &mut entry.found {
                Ok(candidate) if index < 200 => candidate.watts = None,
                found => *found = Err("clocks cannot be set".to_owned()),
            }
        }
        all.partial = Some("stopped on request".to_owned());
        let said = text(&all);
        assert!(!said.contains("power (W)"), "{said}");
        assert_eq!(said.matches("clocks cannot be set").count(), 1, "{said}");
        assert!(said.ends_with("partial: stopped on request\n"), "{said}");
        let json = json(&all);
        assert!(json["frontier"][0]["watts"].is_null() && json["frontier"][0]["saved"].is_null());
        assert_eq!(json["configurations"][223]["not_run"], "clocks cannot be set");
        assert!(json["configurations"][223]["throughput_at_slo_rps"].is_null());
    }
}
