//! IX Table V: how long the phases of flow-group migrations take, and what they lose.

use std::thread::sleep;
use std::time::Duration;

use measure::{Disturbance, QUIET, until_quiet};
use reproduce::{Axis, ChartId, Figure, Mark, MarkOf, Measured, Recorder, Role, Takes};
use world::controlled::migration::{Direction, Recorded, rows};

use crate::reproduce::Testbed;
use crate::reproduce::moving::{self, Found, IDLE_SPIN, Plan, Table};
use service::lab::{Lab, LabConfig};

const TOTAL: &str = "ix.table5.migration_total_us_p95_add_core";
const LOST: &str = "ix.table5.migration_packets_lost_or_reordered";
/// Migrations of a full and of a quick run, under load and with the table: in so many rounds as repeats.
const MOVES: usize = 1_000;
const MOVES_QUICK: usize = 120;
/// Tries of a round that something disturbs, and what passes before the next one.
const TRIES: usize = 5;
const SPELL: Duration = Duration::from_millis(500);
/// What one migration does beside its phases.
const PAUSE: Duration = Duration::from_millis(4);
const CONNECTIONS: usize = 64;
/// A word of eight bytes comes so often.
const WORD_EVERY: Duration = Duration::from_micros(50);

/// See the module's comment.
pub const TABLE5: Figure<Testbed> = Figure {
    id: "ix/table5",
    title: "Breakdown of flow-group migration",
    section: "IX (TOCS'16) §4.5 and §5.4, Table V",
    what: "An echo service of two elastic threads on a veth pair of two queues, whose indirection table the old home \
           of each migration writes. Half of the flow groups of one thread go to the other, which had none (adding a \
           core), and back (removing it), under load. Each word of the caller is numbered, and both stacks and all \
           devices count what is lost, comes twice or out of order. For comparison: without load, without the probe \
           that tells when all has come that was on its way, and without a table.",
    claims: &[TOTAL, LOST],
    takes: Takes { quick_s: 10, full_s: 30 },
    run,
};

/// Table V as published: average, 95th percentile, maximum, standard deviation of prepare, wait, rpc, deferred and
/// total in us, and of packets; adding, then removing.
const PAPER: [[[f64; 4]; 6]; 2] = [
    [
        [119.0, 212.0, 10_082.0, 653.0],
        [113.0, 475.0, 1_018.0, 158.0],
        [102.0, 238.0, 378.0, 75.0],
        [125.0, 460.0, 2_534.0, 283.0],
        [462.0, 1_227.0, 12_804.0, 927.0],
        [83.0, 285.0, 2_753.0, 280.0],
    ],
    [
        [23.0, 49.0, 312.0, 25.0],
        [33.0, 106.0, 176.0, 31.0],
        [12.0, 27.0, 48.0, 7.0],
        [16.0, 43.0, 82.0, 11.0],
        [86.0, 154.0, 370.0, 40.0],
        [3.0, 9.0, 25.0, 3.0],
    ],
];
const ROWS: [&str; 6] = ["prepare", "wait", "rpc", "deferred", "total", "packets"];
const TOTAL_ROW: usize = 4;
const DIRECTIONS: [&str; 2] = ["adding", "removing"];

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let options = recorder.options();
    let rounds = options.repeats.max(1) as usize;
    let all = if options.quick { MOVES_QUICK } else { MOVES };
    // As many in each direction.
    let moves = (all / rounds).next_multiple_of(2);
    recorder.plan(rounds as u64 + 4);
    conditions(recorder);
    let lab = Lab::create(LabConfig { queues: 2, ..LabConfig::unique("table5") })?;
    lab.add_uplink()?;
    let loaded = Plan {
        table: Table::Probed,
        moves,
        connections: CONNECTIONS,
        word_every: Some(WORD_EVERY),
        pause: PAUSE,
    };
    let (mut found, mut left_out) = (Vec::new(), 0);
    for round in 1..=rounds {
        recorder.step(&format!("{}, round {round} of {rounds}", Table::Probed.name()))?;
        found.push(quiet(&lab, &loaded, &mut left_out)?);
    }
    recorder.condition("driver", &found[0].driver);
    note(recorder, Table::Probed.name(), &found);
    table(recorder, &found)?;
    let few = moves.min(100);
    let others = [
        ("table and probe, no load", Plan { word_every: None, moves: few, ..loaded }),
        (Table::Unprobed.name(), Plan { table: Table::Unprobed, moves: few, ..loaded }),
        (Table::None.name(), Plan { table: Table::None, moves: few, ..loaded }),
        ("no table, no load", Plan { table: Table::None, word_every: None, moves: few, ..loaded }),
    ];
    let title = "The same on other devices: total, 95th percentile";
    let (x, y) = (Axis::category("device"), Axis::log("time", "us"));
    let chart = recorder.chart("devices", title, x, y);
    let series = DIRECTIONS.map(|direction| recorder.series(chart, direction));
    let bar = |recorder: &mut Recorder<'_>, name: &str, found: &[Found]| {
        for (series, half) in series.into_iter().zip(halves(found)) {
            recorder.category(series, name, Measured::single(rows(&half)[TOTAL_ROW].p95));
        }
    };
    bar(recorder, Table::Probed.name(), &found);
    for (name, plan) in others {
        recorder.step(name)?;
        let found = [quiet(&lab, &plan, &mut left_out)?];
        note(recorder, name, &found);
        bar(recorder, name, &found);
    }
    recorder.note(format!("{left_out} runs of a plan were disturbed and repeated"));
    Ok(())
}

/// Runs a plan; again while others use the processors, a few times. The last try stands, with what was done to it;
/// `left_out` counts those before it.
fn quiet(lab: &Lab, plan: &Plan, left_out: &mut usize) -> anyhow::Result<Found> {
    let mut tries = 0;
    let again = || {
        sleep(if tries > 0 { SPELL } else { Duration::ZERO });
        tries += 1;
        let found = moving::run(lab, plan)?;
        // What the migrations lose is lost, whatever else ran there.
        let counts = found.is_quiet() || found.anomalous() > 0 && !found.is_overrun();
        let disturbance = if counts { Disturbance::default() } else { found.disturbance };
        anyhow::Ok((found, disturbance))
    };
    let tried = until_quiet(TRIES, &QUIET, again)?;
    *left_out += tried.left_out;
    Ok(tried.found)
}

fn conditions(recorder: &mut Recorder<'_>) {
    let two = "two for three dataplane threads and the controller: one elastic thread is pinned to each, the caller is not";
    let rate = format!("one every {} us", WORD_EVERY.as_micros());
    let connections = CONNECTIONS.to_string();
    let idle = format!("sleeps after {} us without work; ordinary priority", IDLE_SPIN.as_micros());
    for (name, value) in [
        ("wire", "veth pair of two queues; the caller's frames are routed to it by the kernel"),
        ("scheduler", "run-to-completion"),
        ("domain", "inline"),
        ("service", "echo, 8-byte words"),
        ("connections", connections.as_str()),
        ("offered words", rate.as_str()),
        ("processors", two),
        ("idle", idle.as_str()),
    ] {
        recorder.condition(name, value);
    }
}

/// Those that add a core, and those that remove one.
fn halves(found: &[Found]) -> [Vec<Recorded>; 2] {
    let recorded = found.iter().flat_map(|found| found.recorded.iter().copied());
    let (add, remove) = recorded.partition(|one| one.direction == Direction::AddCore);
    [add, remove]
}

/// The table itself, and the claims.
fn table(recorder: &mut Recorder<'_>, found: &[Found]) -> anyhow::Result<()> {
    for ((direction, half), paper) in DIRECTIONS.into_iter().zip(halves(found)).zip(PAPER) {
        let title = format!("Migrations when {direction} a core: {}", half.len());
        let chart =
            recorder.chart(direction, &title, Axis::category("phase"), Axis::log("time", "us"));
        let values = rows(&half).map(|row| [row.mean, row.p95, row.max, row.stddev]);
        draw(recorder, chart, Role::Measured, &values);
        draw(recorder, chart, Role::Paper, &paper);
        if direction == DIRECTIONS[0] {
            recorder.mark(chart, Mark::horizontal(MarkOf::Objective, 200.0, "goal: 200 us"));
        }
        for (name, [mean, p95, max, stddev]) in ROWS.into_iter().zip(values) {
            recorder.note(format!(
                "{direction}, {name}: average {mean:.0}, 95th percentile {p95:.0}, maximum {max:.0}, standard \
                 deviation {stddev:.0}"
            ));
        }
    }
    let p95 = |found: &Found| rows(&halves(std::slice::from_ref(found))[0])[TOTAL_ROW].p95;
    let by_round: Vec<f64> = found.iter().map(p95).collect();
    let total = Measured::samples(&by_round);
    let loud: Vec<&Found> = found.iter().filter(|found| !found.is_quiet()).collect();
    let total = match loud.last() {
        Some(last) => total.disturbed(format!(
            "{} of {} rounds were disturbed in every try: {}",
            loud.len(),
            found.len(),
            last.disturbance
        )),
        None => total,
    };
    recorder.claim(TOTAL, total)?;
    let lost = found.iter().map(Found::anomalous).sum::<u64>();
    let lost = Measured::single(lost as f64);
    let lost = match found.iter().find(|found| found.is_overrun()) {
        Some(loud) => lost.disturbed(format!("rings overflowed: {}", loud.disturbance)),
        None => lost,
    };
    recorder.claim(LOST, lost)
}

/// Averages, 95th percentiles and maxima, by row. Packets are no time: they stand in the notes.
fn draw(recorder: &mut Recorder<'_>, chart: ChartId, role: Role, values: &[[f64; 4]; 6]) {
    for (column, name) in ["average", "95th percentile", "maximum"].into_iter().enumerate() {
        let name = match role {
            Role::Paper => format!("IX, {name} (paper)"),
            _ => name.to_owned(),
        };
        let series = recorder.series_as(chart, &name, role);
        for (row, values) in ROWS.into_iter().zip(values).take(5) {
            recorder.category(series, row, Measured::single(values[column]));
        }
    }
}

/// What happened beside the phases.
fn note(recorder: &mut Recorder<'_>, name: &str, found: &[Found]) {
    let sum = |of: fn(&Found) -> u64| found.iter().map(of).sum::<u64>();
    let rates: Vec<f64> = found.iter().map(|found| found.words_per_s).collect();
    let busy = |thread: usize| {
        let shares: Vec<f64> =
            found.iter().filter_map(|one| one.busy.get(thread)).copied().collect();
        100.0 * Measured::samples(&shares).value().unwrap_or(0.0)
    };
    let signs: Vec<String> = found
        .iter()
        .flat_map(|found| &found.anomalies)
        .filter(|(_, count)| *count > 0)
        .map(|(what, count)| format!("{count} {what}"))
        .collect();
    recorder.note(format!(
        "{name}: {} migrations, {} connections in them; {:.0} words/s answered of {} in all, threads busy {:.0} % and \
         {:.0} %; {} tables changed, {} waits ended by a probe, {} packets forwarded; lost or reordered: {}",
        sum(|found| found.migrations.completed),
        sum(|found| found.connections),
        Measured::samples(&rates).value().unwrap_or(0.0),
        sum(|found| found.words),
        busy(0),
        busy(1),
        sum(|found| found.migrations.redirected),
        sum(|found| found.migrations.probed),
        sum(|found| found.forwarded),
        if signs.is_empty() { "nothing".to_owned() } else { signs.join(", ") }
    ));
}
