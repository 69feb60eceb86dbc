//! `tailplane pareto` as a script sees it; measuring, where this machine lets us.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use control::policy::{Policy, Sequence};
use control::{Machine, Scaling};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use service::doctor::xdp;

const PATIENCE: Duration = Duration::from_secs(120);

fn command(arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tailplane-lab"));
    command.arg("pareto").args(arguments);
    command
}

fn pareto(arguments: &[&str]) -> Output {
    command(arguments).output().expect("the command can be run")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn json(output: &Output) -> Value {
    let said = text(&output.stdout);
    serde_json::from_str(&said).unwrap_or_else(|error| {
        panic!("not JSON alone ({error}): {said}\n{}", text(&output.stderr))
    })
}

/// A directory that goes with its test.
struct Place(PathBuf);

impl Place {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("tailplane-pareto-test-{}-{number}", std::process::id());
        let place = Self(std::env::temp_dir().join(name));
        fs::create_dir_all(&place.0).expect("a directory for this test");
        place
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }

    fn put(&self, name: &str, text: &str) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().expect("in the place")).expect("directories");
        fs::write(path, text).expect("a file for this test");
    }

    /// A machine of four cores with two threads each, and clocks from 1.0 to 2.0 GHz.
    fn put_machine(&self) {
        let base = "sys/devices/system/cpu";
        self.put(&format!("{base}/online"), "0-7\n");
        for cpu in 0..8 {
            let topology = format!("{base}/cpu{cpu}/topology");
            self.put(&format!("{topology}/physical_package_id"), "0\n");
            self.put(&format!("{topology}/core_id"), &format!("{}\n", cpu % 4));
            let siblings = format!("{},{}\n", cpu % 4, cpu % 4 + 4);
            self.put(&format!("{topology}/thread_siblings_list"), &siblings);
        }
        let policy = format!("{base}/cpufreq/policy0");
        self.put(&format!("{policy}/affected_cpus"), "0 1 2 3 4 5 6 7\n");
        let clocks = "1000000 1500000 2000000\n";
        self.put(&format!("{policy}/scaling_available_frequencies"), clocks);
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // What is left in the temporary directory harms nobody.
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn the_papers_machine_with_all_that_can_be_written() {
    let place = Place::new();
    let (steps, plots) = (place.path("steps.toml"), place.path("plots"));
    let output = pareto(&["--sequence", &steps, "--plots", &plots, "--json", "-"]);
    assert!(output.status.success(), "{}", text(&output.stderr));
    let json = json(&output);
    assert_eq!((&json["format"], &json["mode"]), (&Value::from(1), &Value::from("sim")));
    assert_eq!(json["considered"], 224, "IX §5.3: eight cores, one or two threads, 14 clocks");
    assert_eq!(json["configurations"].as_array().map(Vec::len), Some(224));
    for key in ["kernel", "processor", "cores", "commit", "server", "objective"] {
        assert!(json["conditions"][key].is_string(), "{key} in {}", json["conditions"]);
    }
    // What is written is what the policy `file` reads, and what the JSON says.
    let written = fs::read_to_string(&steps).expect("the sequence");
    let read = Sequence::from_toml(&written, &Machine::ix(), Scaling::ix()).expect("readable");
    let told = json["sequence"].as_array().expect("a list");
    assert_eq!(read.steps().len(), told.len());
    for (step, told) in read.steps().iter().zip(told) {
        assert_eq!(told["cores"], step.configuration.cores);
        assert_eq!(told["hyperthreads"], step.configuration.hyperthreads);
        assert_eq!(told["speed"].as_f64(), Some(step.speed));
    }
    for name in ["fig8-energy.svg", "fig8-consolidation.svg", "fig9-clocks.svg"] {
        let drawn = fs::read_to_string(Path::new(&plots).join(name)).expect(name);
        assert!(drawn.starts_with("<svg") && drawn.contains("Pareto frontier"), "{name}");
    }
    // The table is beside it, for people.
    let said = text(&output.stderr);
    assert!(said.contains("power (W)") && said.contains("1 core, 1.2 GHz"), "{said}");
}

#[test]
fn this_machine_is_the_one_that_sysfs_shows() {
    let place = Place::new();
    place.put_machine();
    let sys = place.path("sys");
    let steps = place.path("steps.toml");
    let output = pareto(&["--machine", "this", "--sys", &sys, "--json", "-", "--sequence", &steps]);
    let json = json(&output);
    assert_eq!(json["machine"]["cores"], 4);
    assert_eq!(json["machine"]["clocks_khz"], serde_json::json!([1_000_000, 1_500_000, 2_000_000]));
    assert_eq!(json["considered"], 4 * 2 * 3);
    let notes = json["notes"].to_string();
    assert!(notes.contains("not measured here"), "whose power it is, is said: {notes}");
    let output = pareto(&["--machine", "this", "--sys", &place.path("none")]);
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("cpu/online is not there") && said.contains("--machine FILE"), "{said}");
}

#[test]
fn a_machine_is_saved_changed_and_read() {
    let place = Place::new();
    let mine = place.path("mine.toml");
    assert!(pareto(&["--save-machine", &mine]).status.success());
    let saved = fs::read_to_string(&mine).expect("saved");
    fs::write(&mine, saved.replace("cores = 8", "cores = 2")).expect("changed");
    let output = pareto(&["--machine", &mine, "--policy", "consolidation", "--json", "-"]);
    let json = json(&output);
    assert_eq!((&json["machine"]["cores"], &json["policy"]), (&2.into(), &"consolidation".into()));
    assert_eq!(json["sequence"][0]["background"], 1);
    fs::write(&mine, saved.replace("cores = 8", "cores = 0")).expect("changed");
    let output = pareto(&["--machine", &mine]);
    assert!(!output.status.success());
    let said = text(&output.stderr);
    assert!(said.contains("number of cores is 0") && said.contains("docs/pareto.md"), "{said}");
}

#[test]
fn what_cannot_be_is_said() {
    let failed = |arguments: &[&str]| {
        let output = pareto(arguments);
        assert!(!output.status.success(), "{arguments:?}");
        text(&output.stderr)
    };
    let said = failed(&["--machine", "none.toml"]);
    assert!(said.contains("'ix', 'this' or a TOML file"), "{said}");
    let said = failed(&["--slo-us", "20"]);
    assert!(said.contains("`--slo-us 20`") && said.contains("unloaded_p99_us"), "{said}");
    let said = failed(&["--app", "kv"]);
    assert!(said.contains("--measure"), "{said}");
    let said = failed(&["--measure", "--client-cpus", "9999"]);
    assert!(said.contains("--client-cpus") || said.contains("measuring needs two"), "{said}");
}

/// Whether this machine can be measured; prints why not.
fn possible() -> bool {
    let reason = if !rustix::process::geteuid().is_root() {
        "needs root".to_owned()
    } else if std::thread::available_parallelism().map_or(1, usize::from) < 2 {
        "needs two processors".to_owned()
    } else if Command::new("ip").arg("-V").stdout(Stdio::null()).status().is_err() {
        "needs iproute2".to_owned()
    } else if let Err(error) = xdp::probe() {
        format!("needs AF_XDP sockets: {error}")
    } else {
        return true;
    };
    println!("skipped: {reason}");
    false
}

/// Short windows and a long objective: the point is what is told, not how well.
const MEASURE: [&str; 7] = ["--measure", "--seconds", "0.1", "--slo-us", "20000", "--json", "-"];

#[test]
fn what_is_measured_is_told_and_what_is_not_has_a_reason() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let steps = place.path("steps.toml");
    // The first processor alone is the service's: one configuration, or as many as it has clocks.
    let online = fs::read_to_string("/sys/devices/system/cpu/online").expect("processors");
    let rest = format!("1-{}", online.trim().rsplit(['-', ',']).next().expect("a number"));
    let output = command(&MEASURE)
        .args(["--client-cpus", &rest, "--sequence", &steps])
        .output()
        .expect("run");
    let said = text(&output.stderr);
    assert!(output.status.success(), "{said}");
    let json = json(&output);
    assert_eq!((&json["mode"], &json["partial"]), (&"real".into(), &Value::Null));
    let all = json["configurations"].as_array().expect("a list");
    let measured: Vec<&Value> = all.iter().filter(|one| one["not_run"].is_null()).collect();
    assert!(!measured.is_empty(), "{said}");
    for one in &measured {
        assert!(one["throughput_at_slo_rps"].as_f64().is_some_and(|rps| rps > 100.0), "{one}");
        assert!(one["p99_us"].as_f64().is_some_and(|us| us <= 20_000.0), "{one}");
        assert_eq!(one["cpus"], serde_json::json!([0]));
    }
    // Power is there where it was measured, and nowhere else.
    let has_power = json["conditions"]["power"] == "RAPL";
    assert_eq!(measured[0]["watts_at_slo"].is_number(), has_power);
    assert_eq!(json["frontier"][0]["watts"].is_number(), has_power);
    assert_eq!(said.contains("power (W)"), has_power, "{said}");
    if !has_power {
        assert_eq!(json["policy"], "consolidation");
        assert!(said.contains("power is not measured"), "{said}");
    }
    for other in all.iter().filter(|one| !one["not_run"].is_null()) {
        assert!(other["throughput_at_slo_rps"].is_null(), "{other}");
    }
    assert!(fs::read_to_string(&steps).expect("written").contains("[[step]]"));
}

#[test]
fn a_measurement_that_is_interrupted_keeps_what_it_has() {
    if !possible() {
        return;
    }
    let place = Place::new();
    let log = fs::File::create(place.0.join("log")).expect("a file");
    let mut child = command(&MEASURE)
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .expect("the command can be run");
    // Until the first load was measured.
    let deadline = Instant::now() + PATIENCE;
    while !fs::read_to_string(place.0.join("log")).expect("there").contains("offered") {
        assert!(Instant::now() < deadline && child.try_wait().expect("asked").is_none());
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = Pid::from_raw(child.id() as i32).expect("a number");
    kill_process(pid, Signal::INT).expect("our child");
    let output = child.wait_with_output().expect("it ends");
    let said = fs::read_to_string(place.0.join("log")).expect("there");
    assert_eq!(output.status.code(), Some(1), "{said}");
    let json = json(&output);
    assert_eq!(json["partial"], "stopped on request");
    assert!(said.contains("partial: stopped on request"), "{said}");
    let all = json["configurations"].as_array().expect("a list");
    assert!(all.iter().any(|one| one["not_run"] == "the run ended before it"), "{json}");
}
