//! A service whose elastic threads are granted and parked, and whose flow groups move, while clients talk to it.

use std::net::TcpStream;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use serde_json::Value;

use crate::harness::stream::{assert_echoes, connect};
use crate::harness::{ECHO, Testbed, tailplane, wait_until};

const CONNECTIONS: usize = 32;
const ROUNDS: usize = 5;

/// Runs a command beside the service. Answers what it said, and whether it went well.
fn say(bed: &Testbed, arguments: &[&str]) -> (bool, String) {
    let mut command = tailplane(arguments);
    let said = command.env("TAILPLANE_RUN_DIR", bed.directory.file("run")).output();
    let said = said.expect("the command starts");
    let text = [said.stdout, said.stderr].concat();
    (said.status.success(), String::from_utf8_lossy(&text).into_owned())
}

fn done(bed: &Testbed, arguments: &[&str]) -> String {
    let (well, said) = say(bed, arguments);
    assert!(well, "{arguments:?}: {said}");
    said
}

fn status(bed: &Testbed) -> Value {
    let said = done(bed, &["status", "--json", "--over-ms", "100"]);
    let json: Value = serde_json::from_str(&said).expect("JSON");
    json["services"][0].clone()
}

/// `domain`: lines of the configuration.
fn steered(tag: &str, scheduler: &str, domain: &str) {
    steered_on(tag, 2, scheduler, domain);
}

/// The same for two threads on so many queues.
fn steered_on(tag: &str, queues: u32, scheduler: &str, domain: &str) {
    let Some(mut bed) = Testbed::new(tag, queues) else { return };
    bed.serve("echo", 2, &format!("granted = 1\nscheduler = \"{scheduler}\"\n{domain}\n"));
    let seen = status(&bed);
    assert_eq!(seen["threads"][1]["state"], "parked", "{seen}");
    assert_eq!(seen["threads"][0]["flow_groups"], 128, "{seen}");
    let mut streams: Vec<TcpStream> =
        bed.at_client(|| (0..CONNECTIONS).map(|_| connect(ECHO).expect("a connection")).collect());
    let (stop, echoed) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        let ends = Sets(&stop);
        for (number, stream) in streams.iter_mut().enumerate() {
            let (stop, echoed) = (&stop, &echoed);
            scope.spawn(move || {
                let mut word = number as u64;
                while !stop.load(Ordering::Relaxed) {
                    assert_echoes(stream, &word.to_le_bytes());
                    word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    echoed.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        let goes_on = || {
            let before = echoed.load(Ordering::Relaxed);
            wait_until("it goes on", || echoed.load(Ordering::Relaxed) > before + 200);
        };
        goes_on();
        for round in 0..ROUNDS {
            assert!(done(&bed, &["ctl", "run", "grant", "1"]).contains("is granted"));
            let said = done(&bed, &["ctl", "run", "move", "0", "1", "half"]);
            assert!(said.contains("64 flow groups"), "round {round}: {said}");
            goes_on();
            let (well, said) = say(&bed, &["ctl", "run", "park", "1"]);
            assert!(!well && said.contains("64 flow groups"), "{said}");
            done(&bed, &["ctl", "run", "move", "1", "0", "all"]);
            assert!(done(&bed, &["ctl", "run", "park", "1"]).contains("is parked"));
            goes_on();
        }
        let seen = status(&bed);
        assert_eq!(seen["migrations"]["completed"], 2 * ROUNDS as u64, "{seen}");
        assert_eq!(seen["threads"][1]["state"], "parked", "{seen}");
        assert_eq!(seen["threads"][0]["connections"], CONNECTIONS as u64, "{seen}");
        let frame = done(&bed, &["top", "--once", "--slo-us", "1000000"]);
        assert!(frame.contains("SLO 1000000 us: met") && frame.contains("parked"), "{frame}");
        drop(ends);
    });
    drop(streams);
    bed.stop();
}

/// Sets a flag at its end, however that comes.
struct Sets<'a>(&'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn threads_are_granted_and_parked_while_clients_talk() {
    steered("steered-rtc", "run-to-completion", "domain = \"inline\"");
}

#[test]
fn a_service_in_its_own_process_that_keeps_to_its_threads_is_not_moved() {
    let Some(mut bed) = Testbed::new("steered-apart", 2) else { return };
    bed.serve(
        "echo",
        2,
        "granted = 1\nscheduler = \"run-to-completion\"\ndomain = \"process\"\nmovable = false\n",
    );
    let mut streams: Vec<TcpStream> =
        bed.at_client(|| (0..CONNECTIONS).map(|_| connect(ECHO).expect("a connection")).collect());
    for round in 0..50_u64 {
        streams.iter_mut().for_each(|stream| assert_echoes(stream, &round.to_le_bytes()));
        if round == 25 {
            assert!(done(&bed, &["ctl", "run", "grant", "1"]).contains("is granted"));
            assert!(done(&bed, &["ctl", "run", "park", "1"]).contains("is parked"));
        }
    }
    let seen = status(&bed);
    assert_eq!(seen["threads"][1]["state"], "parked", "{seen}");
    assert_eq!(seen["threads"][0]["connections"], CONNECTIONS as u64, "{seen}");
    assert_eq!(seen["movable"], false, "{seen}");
    let (well, said) = say(&bed, &["ctl", "run", "move", "0", "1", "half"]);
    assert!(!well && said.contains("cannot be moved"), "{said}");
    drop(streams);
    bed.stop();
}

#[test]
fn the_same_where_one_thread_sends_for_the_other() {
    steered_on("steered-host", 1, "run-to-completion", "domain = \"inline\"");
    steered_on("steered-host-wc", 1, "work-conserving", "domain = \"process\"");
}

#[test]
fn the_same_where_each_thread_has_two_queues() {
    steered_on("steered-two", 4, "run-to-completion", "domain = \"process\"");
}

#[test]
fn the_same_where_idle_threads_take_work_of_others() {
    steered("steered-wc", "work-conserving", "domain = \"inline\"");
}

#[test]
fn the_same_where_dataplane_and_service_are_processes() {
    steered("steered-split", "run-to-completion", "domain = \"process\"");
}

#[test]
fn the_same_where_processes_share_work() {
    steered("steered-split-wc", "work-conserving", "domain = \"process\"");
}

#[test]
fn the_same_where_service_and_dataplane_have_the_same_cores() {
    steered("steered-same", "run-to-completion", "domain = \"process\"\nplacement = \"same-core\"");
}
