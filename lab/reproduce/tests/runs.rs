//! Runs of figures from end to end: what is kept when they fail, stop, panic, or cannot run.

use std::cell::Cell;

use anyhow::Context;
use reproduce::figure::faults;
use reproduce::render;
use reproduce::{
    Axis, Claims, Figure, FigureResult, Mark, MarkOf, Measured, Mode, Options, Progress, Recorder,
    Setup, Silent, Takes, not_run,
};

const SCALING: &str = "ix.fig5a.core_scaling_efficiency";
const PEAK: &str = "ix.fig5b.messages_per_s_vs_linux";

type Run = fn(&mut u32, &mut Recorder<'_>) -> anyhow::Result<()>;

fn figure(run: Run) -> Figure<u32> {
    Figure {
        id: "ix/fig5",
        title: "Throughput",
        section: "IX §5",
        what: "A test.",
        claims: &[SCALING, PEAK],
        takes: Takes { quick_s: 1, full_s: 2 },
        run,
    }
}

fn reproduce(run: Run) -> FigureResult {
    let claims = Claims::builtin().unwrap();
    let mut silent = Silent;
    let mut setup = Setup::new(&claims, Options::QUICK, &mut silent);
    setup.conditions.insert("kernel".to_owned(), "6.18".to_owned());
    figure(run).reproduce(&mut 0, &mut setup).unwrap()
}

fn one_point(recorder: &mut Recorder<'_>) {
    let chart =
        recorder.chart("rate", "Rate", Axis::linear("cores", ""), Axis::linear("rate", "1/s"));
    let series = recorder.series(chart, "tailplane");
    recorder.point(series, 1.0, Measured::samples(&[9.0, 10.0, 11.0]));
}

#[test]
fn a_whole_run_is_whole() {
    let result = reproduce(|context, recorder| {
        *context += 1;
        recorder.plan(1);
        recorder.step("one")?;
        recorder.condition("scheduler", "run-to-completion");
        one_point(recorder);
        recorder.claim(SCALING, Measured::single(0.96))?;
        recorder.claim_in(Mode::Sim, PEAK, Measured::single(2.0))?;
        Ok(())
    });
    assert_eq!((&result.partial, &result.not_run), (&None, &None));
    assert_eq!(result.conditions["scheduler"], "run-to-completion");
    assert_eq!(result.conditions["kernel"], "6.18");
    assert_eq!(result.conditions["seed"], "1");
    assert_eq!((result.repeats, result.quick), (2, true));
    let [scaling, peak] = &result.claims[..] else { panic!("{:?}", result.claims) };
    assert_eq!((scaling.met, scaling.meets_paper), (Some(true), Some(false)));
    assert_eq!((peak.met, peak.mode), (Some(false), Mode::Sim));
    assert!(peak.note.as_deref().unwrap().contains("the claim is of mode real"));
    let point = &result.series[0].points[0];
    assert_eq!(point.y.map(f64::from), Some(10.0));
    assert_eq!((point.low.map(f64::from), point.n), (Some(9.0), 3));
}

#[test]
fn the_json_is_what_scripts_rely_on() {
    let result = reproduce(|_, recorder| {
        one_point(recorder);
        recorder.claim(SCALING, Measured::single(0.9))?;
        Ok(())
    });
    let json: serde_json::Value = serde_json::from_str(&result.to_json()).unwrap();
    assert_eq!(json["format"], 1);
    assert_eq!(json["figure"], "ix/fig5");
    assert_eq!(json["conditions"]["kernel"], "6.18");
    let claim = &json["claims"][0];
    assert_eq!(claim["id"], SCALING);
    assert_eq!(claim["paper"], 1.0);
    assert_eq!(claim["goal"], 0.95);
    assert_eq!(claim["measured"], 0.9);
    assert_eq!(claim["mode"], "sim");
    assert_eq!(claim["met"], false);
    // What was not measured is there, and null.
    let other = json["claims"][1].as_object().unwrap();
    assert!(other["measured"].is_null() && other["met"].is_null());
    assert_eq!(other["not_run"], "the figure did not report it");
    let series = &json["series"][0];
    assert_eq!(series["x"]["label"], "cores");
    assert_eq!(series["y"]["unit"], "1/s");
    assert_eq!(series["points"][0]["y"], 10.0);
    assert_eq!(series["points"][0]["valid"], true);
    assert!(json.get("partial").is_none() && json["notes"].as_array().unwrap().is_empty());
    let back: FigureResult = serde_json::from_str(&result.to_json()).unwrap();
    assert_eq!(back, result);
}

#[test]
fn an_error_keeps_what_was_measured() {
    let result = reproduce(|_, recorder| {
        recorder.claim(SCALING, Measured::single(0.99))?;
        Err(std::io::Error::other("link down")).context("measuring 2 cores")
    });
    assert_eq!(result.partial.as_deref(), Some("measuring 2 cores: link down"));
    assert_eq!(result.claims[0].met, Some(true));
    assert_eq!(result.claims[1].not_run.as_deref(), Some("measuring 2 cores: link down"));
}

#[test]
fn a_panic_keeps_what_was_measured() {
    let result = reproduce(|_, recorder| {
        one_point(recorder);
        let empty: Vec<u32> = Vec::new();
        recorder.note(format!("{}", empty[3]));
        Ok(())
    });
    let reason = result.partial.unwrap();
    assert!(reason.starts_with("the figure panicked: index out of bounds"), "{reason}");
    assert_eq!(result.series[0].points.len(), 1);
}

#[test]
fn what_cannot_run_says_why() {
    let result = reproduce(|_, _| not_run("needs 8 cores; this machine has 2"));
    assert_eq!(result.not_run.as_deref(), Some("needs 8 cores; this machine has 2"));
    assert_eq!(result.partial, None);
    assert!(result.claims.iter().all(|claim| claim.verdict() == "not run"));
    assert!(render::text(&result).contains("NOT RUN: needs 8 cores"));
}

#[test]
fn what_was_disturbed_meets_no_goal() {
    let result = reproduce(|_, recorder| {
        let disturbed = Measured::single(5.0).disturbed("9 % of a core went elsewhere");
        recorder.claim(PEAK, disturbed)?;
        recorder.claim(SCALING, Measured::single(f64::NAN))?;
        Ok(())
    });
    let [scaling, peak] = &result.claims[..] else { panic!("{:?}", result.claims) };
    assert_eq!((peak.met, peak.measured), (None, None));
    let reason = peak.not_run.as_deref().unwrap();
    assert_eq!(reason, "9 % of a core went elsewhere (it gave 5)");
    assert_eq!((scaling.met, scaling.measured), (None, None));
}

#[test]
fn places_that_are_none_are_left_out_and_noted() {
    let result = reproduce(|_, recorder| {
        let chart = recorder.chart("c", "C", Axis::category("load"), Axis::linear("y", ""));
        assert_eq!(recorder.chart("c", "again", Axis::default(), Axis::default()), chart);
        recorder.mark(chart, Mark::vertical(MarkOf::Goal, f64::NAN, "nowhere"));
        let (one, two) = (recorder.series(chart, "one"), recorder.series(chart, "two"));
        assert_ne!(one, two);
        recorder.category(one, "ETC", Measured::single(1.0));
        recorder.category(two, "USR", Measured::single(2.0));
        recorder.category(two, "ETC", Measured::single(3.0));
        recorder.point(one, f64::INFINITY, Measured::single(1.0));
        Ok(())
    });
    let places = |series: usize| -> Vec<f64> {
        result.series[series].points.iter().map(|point| point.x.get()).collect()
    };
    assert_eq!((places(0), places(1)), (vec![0.0], vec![1.0, 0.0]));
    assert_eq!(result.charts[0].marks.len(), 0);
    assert_eq!(result.notes.len(), 2, "{:?}", result.notes);
}

#[test]
fn claims_of_others_are_refused() {
    let result = reproduce(|_, recorder| {
        let id = "ix.sec4.protection_crossing_ns";
        let refused = recorder.claim(id, Measured::single(1.0)).unwrap_err().to_string();
        assert!(refused.contains("figure ix/fig5") && refused.contains(id), "{refused}");
        recorder.claim_not_run("no.such.claim", "reason")
    });
    assert!(result.not_run.unwrap().contains("add it to `claims`"));

    let claims = Claims::builtin().unwrap();
    let mut silent = Silent;
    let mut setup = Setup::new(&claims, Options::QUICK, &mut silent);
    let wrong = Figure { claims: &["no.such.claim"], ..figure(|_, _| Ok(())) };
    let error = wrong.reproduce(&mut 0, &mut setup).unwrap_err().to_string();
    assert!(error.contains("figure ix/fig5 fills claim `no.such.claim`"), "{error}");
    assert_eq!(faults(&[wrong], &claims).len(), 1);
}

/// Asks for a stop after so many steps.
struct StopAfter(Cell<u32>);

impl Progress for StopAfter {
    fn begin(&mut self, _figure: &str) {}
    fn plan(&mut self, _steps: u64) {}
    fn step(&mut self, _what: &str) {
        self.0.set(self.0.get() - 1);
    }
    fn end(&mut self, _outcome: &str) {}
    fn stop_requested(&self) -> bool {
        self.0.get() == 0
    }
}

#[test]
fn a_stop_ends_the_run_at_the_next_step_and_keeps_what_was_measured() {
    let claims = Claims::builtin().unwrap();
    let mut progress = StopAfter(Cell::new(2));
    let mut setup = Setup::new(&claims, Options::FULL, &mut progress);
    let figure = figure(|context, recorder| {
        let chart = recorder.chart("c", "C", Axis::default(), Axis::default());
        let series = recorder.series(chart, "s");
        for x in 0..10 {
            recorder.step("one more")?;
            *context += 1;
            recorder.point(series, f64::from(x), Measured::single(1.0));
        }
        Ok(())
    });
    let mut steps = 0;
    let result = figure.reproduce(&mut steps, &mut setup).unwrap();
    assert_eq!(steps, 2);
    assert_eq!(result.partial.as_deref(), Some("stopped on request"));
    assert_eq!(result.series[0].points.len(), 2);
}

/// Keeps what it hears, one line each.
#[derive(Default)]
struct Heard(Vec<String>);

impl Progress for Heard {
    fn begin(&mut self, figure: &str) {
        self.0.push(format!("begin {figure}"));
    }
    fn plan(&mut self, steps: u64) {
        self.0.push(format!("plan {steps}"));
    }
    fn step(&mut self, what: &str) {
        self.0.push(format!("step {what}"));
    }
    fn end(&mut self, outcome: &str) {
        self.0.push(format!("end {outcome}"));
    }
}

#[test]
fn progress_hears_what_runs_and_how_it_ended() {
    let claims = Claims::builtin().unwrap();
    let mut heard = Heard::default();
    let mut setup = Setup::new(&claims, Options::FULL, &mut heard);
    let figure = figure(|_, recorder| {
        recorder.plan(2);
        recorder.step("first")?;
        recorder.claim(PEAK, Measured::single(3.5))?;
        anyhow::bail!("no more")
    });
    figure.reproduce(&mut 0, &mut setup).unwrap();
    let end = "end 1 of 2 claims met, 0 not met, 1 not run; partial: no more";
    assert_eq!(heard.0, ["begin ix/fig5", "plan 2", "step first", end]);
    let list = render::list(&[figure], &claims);
    assert!(list.contains("ix/fig5") && list.contains("claims that no figure fills yet:"));
    assert!(!list.contains(PEAK) && list.contains("ix.sec4.protection_crossing_ns ≤ 100"));
}
