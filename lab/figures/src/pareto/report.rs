//! What an analysis says: tables for people, JSON for scripts.
//!
//! ```text
//! {"format": 1, "mode": "sim", "conditions": {...}, "policy": "energy", "objective": {"slo_us": 500.0, "percentile": 99},
//!  "machine": {"name": "...", "cores": 8, "threads_per_core": 2, "clocks_khz": [...], "turbo": true},
//!  "considered": 224, "frontier": [...], "sequence": [...], "configurations": [...], "notes": [...], "partial": null}
//! ```
//!
//! `docs/pareto.md` says what each field means. A number is measured, simulated or absent (`null`), never assumed.

use control::policy::{Policy, Sequence};
use control::{Clock, Configuration};
use reproduce::{Grid, Mode};
use serde_json::{Map, Value, json};
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
        let is_it =
            |step: &control::policy::Step| step.configuration == member.candidate.configuration;
        Row {
            member,
            watts,
            saved: watts.zip(all).map(|(watts, all)| 1.0 - watts / all),
            step: sequence.and_then(|all| all.steps().iter().position(is_it)).map(|step| step + 1),
        }
    };
    members.iter().map(row).collect()
}

/// As `--policy` names it.
pub fn policy_name(objective: Objective) -> &'static str {
    match objective {
        Objective::Energy => "energy",
        Objective::Consolidation => "consolidation",
    }
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
        policy_name(all.objective),
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
        [low, .., high] => {
            format!(
                "{} clocks from {} to {}",
                machine.clocks_khz.len(),
                Clock::Khz(*low),
                Clock::Khz(*high)
            )
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
            let shown =
                |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |v| format!("{v:.1}"));
            cells.push(shown(row.watts));
            cells.push(row.saved.map_or_else(|| "-".to_owned(), |v| format!("{:.1} %", v * 100.0)));
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
    let rows = frontier
        .as_ref()
        .map(|frontier| rows(frontier, &members, sequence.as_ref()))
        .unwrap_or_default();
    let steps = sequence.as_ref().map_or(&[][..], |sequence| sequence.steps()).iter();
    json!({
        "format": FORMAT,
        "mode": all.mode.to_string(),
        "conditions": all.conditions,
        "policy": policy_name(all.objective),
        "objective": { "slo_us": all.slo_us, "percentile": 99 },
        "machine": {
            "name": all.name,
            "cores": all.machine.cores,
            "threads_per_core": all.machine.threads_per_core,
            "clocks_khz": all.machine.clocks_khz,
            "turbo": all.machine.turbo,
        },
        "considered": frontier.as_ref().map_or(0, |frontier| frontier.candidates().len()),
        "frontier": rows.iter().map(row_json).collect::<Vec<_>>(),
        "sequence": steps.map(|step| with(of(&step.configuration), &[
            ("background", json!(step.background_cores)),
            ("speed", json!(step.speed)),
        ])).collect::<Vec<_>>(),
        "configurations": all.entries.iter().map(entry_json).collect::<Vec<_>>(),
        "notes": all.notes,
        "partial": all.partial,
    })
}

/// A configuration in the words of a sequence's file.
fn of(configuration: &Configuration) -> Map<String, Value> {
    let clock = match configuration.clock {
        Clock::Khz(khz) => json!(khz),
        other => json!(other.to_string()),
    };
    Map::from_iter([
        ("cores".to_owned(), json!(configuration.cores)),
        ("hyperthreads".to_owned(), json!(configuration.hyperthreads)),
        ("clock".to_owned(), clock),
    ])
}

fn with(mut map: Map<String, Value>, more: &[(&str, Value)]) -> Value {
    map.extend(more.iter().map(|(key, value)| ((*key).to_owned(), value.clone())));
    Value::Object(map)
}

fn row_json(row: &Row<'_>) -> Value {
    let Member { candidate, from_rps, to_rps } = row.member;
    with(
        of(&candidate.configuration),
        &[
            ("throughput_at_slo_rps", json!(candidate.capacity_rps)),
            ("best_from_rps", json!(from_rps)),
            ("best_to_rps", json!(to_rps)),
            ("watts", json!(row.watts)),
            ("saved", json!(row.saved)),
            ("background", json!(candidate.background)),
            ("step", json!(row.step)),
        ],
    )
}

fn entry_json(entry: &Entry) -> Value {
    let found: Option<&Candidate> = entry.found.as_ref().ok();
    let watts = found.and_then(|candidate| candidate.watts);
    let mut more = vec![
        ("throughput_at_slo_rps", json!(found.map(|candidate| candidate.capacity_rps))),
        ("watts_idle", json!(watts.map(|(idle, _)| idle))),
        ("watts_at_slo", json!(watts.map(|(_, full)| full))),
        ("background", json!(found.map(|candidate| candidate.background))),
        ("not_run", json!(entry.found.as_ref().err())),
    ];
    if let Some(run) = &entry.run {
        more.extend([
            ("cpus", json!(run.cpus)),
            ("p99_us", json!(run.p99_us)),
            ("limit", json!(run.limit)),
            ("windows", json!(run.windows)),
            ("disturbed", json!(run.disturbed)),
        ]);
    }
    with(of(&entry.configuration), &more)
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
