//! The control socket of the real daemon, with callers of all manners.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::process::Uid;
use serde_json::{Value, json};

use crate::support::{Caller, Daemon, Dir, Service, until};

const QUIET: &str = "[metrics]\nlisten = \"\"";

#[test]
fn a_service_is_listed_steered_by_hand_and_followed() {
    let dir = Dir::new("hand");
    let config = dir.config(QUIET);
    dir.put("services/kv.toml", "[control]\npolicy = \"energy\"\n");
    let service = Service::start(&dir.path("run"), "kv", 4);
    let _daemon = Daemon::start(&config);
    let mut caller = Caller::connect(&dir);
    caller.wait_for_mode("kv", "policy");
    let mut follower = Caller::connect(&dir);
    follower.send(&json!({ "method": "io.tailplane.Control.Events", "more": true, "parameters": { "name": "kv" } }));
    // Its reply begins with the first event: it follows once another call of the same kind could be answered.
    std::thread::sleep(Duration::from_millis(100));
    assert_eq!(caller.call("Grant", json!({ "name": "kv", "thread": 2 }))["parameters"], json!({}));
    assert_eq!(service.inside.running(), [0, 2]);
    let moved =
        caller.call("Move", json!({ "name": "kv", "from": 0, "to": 2, "groups": [1, 2, 3] }));
    assert_eq!(moved["parameters"]["groups"], 3);
    assert_eq!(moved["parameters"]["phase_ns"], json!([1_000, 2_000, 3_000, 4_000]));
    assert_eq!(service.inside.spread(4), [61, 0, 3, 0]);
    let status = caller.status("kv");
    assert_eq!((&status["mode"], &status["running"]["homes"][2]), (&json!("hand"), &json!(2)));
    assert_eq!(status["running"]["threads"][2]["groups"], 3);
    let refused = caller.call("Park", json!({ "name": "kv", "thread": 2 }));
    assert_eq!(refused["error"], "io.tailplane.Control.Refused");
    assert_eq!(refused["parameters"]["kind"], "has-groups");
    let nobody = caller.call("Grant", json!({ "name": "kv", "thread": 9 }));
    assert_eq!(nobody["parameters"]["kind"], "no-such-thread");
    assert_eq!(
        caller.call("Pin", json!({ "name": "kv", "thread": 0, "cpu": 3 }))["parameters"],
        json!({})
    );
    assert_eq!(caller.status("kv")["running"]["threads"][0]["cpu"], 3);
    assert_eq!(caller.call("Resume", json!({ "name": "kv" }))["parameters"], json!({}));
    let list = caller.call("List", json!({}));
    assert_eq!(list["parameters"]["services"][0]["mode"], "policy");
    let mut kinds = Vec::new();
    while !kinds.contains(&"moved".to_owned()) {
        let event = follower.hear().expect("an event");
        assert_eq!(
            (&event["continues"], &event["parameters"]["event"]["service"]),
            (&json!(true), &json!("kv"))
        );
        kinds.push(event["parameters"]["event"]["kind"].as_str().expect("a kind").to_owned());
    }
    assert!(kinds.iter().any(|kind| kind == "policy-suspended"), "{kinds:?}");
}

#[test]
fn many_calls_at_once_are_answered_in_their_order() {
    let dir = Dir::new("pipeline");
    let _daemon = Daemon::start(&dir.config(QUIET));
    let mut caller = Caller::connect(&dir);
    let mut bytes = Vec::new();
    for number in 0..500 {
        let method =
            if number % 2 == 0 { "io.tailplane.Control.List" } else { "io.tailplane.Control.No" };
        bytes.extend(json!({ "method": method }).to_string().into_bytes());
        bytes.push(0);
        let oneway = json!({ "method": "io.tailplane.Control.List", "oneway": true });
        bytes.extend(oneway.to_string().into_bytes());
        bytes.push(0);
    }
    caller.stream.write_all(&bytes).expect("the daemon reads");
    // It has nothing more to say, and is answered all the same.
    caller.stream.shutdown(std::net::Shutdown::Write).expect("open");
    for number in 0..500 {
        let answer = caller.hear().expect("an answer");
        assert_eq!(answer.get("error").is_some(), number % 2 == 1, "{number}: {answer}");
    }
    assert_eq!(caller.hear(), None);
    let info = {
        let mut caller = Caller::connect(&dir);
        caller.send(&json!({ "method": "org.varlink.service.GetInfo" }));
        caller.hear().expect("an answer")
    };
    assert_eq!(info["parameters"]["interfaces"][1], "io.tailplane.Control");
}

#[test]
fn nonsense_and_messages_without_end_are_told_and_cut_off() {
    let dir = Dir::new("nonsense");
    let _daemon = Daemon::start(&dir.config(QUIET));
    for bytes in [&b"{\0"[..], b"\0", b"[1]\0", b"\xff\xfe\0", b"{\"method\":7}\0"] {
        let mut caller = Caller::connect(&dir);
        caller.stream.write_all(bytes).expect("the daemon reads");
        let answer = caller.hear().expect("an answer");
        assert_eq!(answer["error"], "io.tailplane.Control.Malformed", "{bytes:?}");
        assert_eq!(caller.hear(), None, "{bytes:?}");
    }
    let mut caller = Caller::connect(&dir);
    // The daemon may cut it off before all is written.
    let _ = caller.stream.write_all(&vec![b' '; 200_000]);
    let answer = caller.hear().expect("an answer");
    let reason = answer["parameters"]["reason"].as_str().expect("a reason");
    assert!(reason.contains("longer than 65536 bytes"), "{reason}");
    // One byte less than too long is a message.
    let mut caller = Caller::connect(&dir);
    let call = r#"{"method":"io.tailplane.Control.List"}"#;
    let padded = format!("{}{call}\0", " ".repeat(65_536 - call.len()));
    caller.stream.write_all(padded.as_bytes()).expect("the daemon reads");
    assert!(caller.hear().expect("an answer")["parameters"]["services"].is_array());
    // Half a message, and gone.
    drop(Caller::connect(&dir).stream.write_all(b"{\"method\""));
    assert!(Caller::connect(&dir).call("List", json!({}))["parameters"].is_object());
}

#[test]
fn who_does_not_read_harms_nobody_and_is_told_what_they_missed() {
    let dir = Dir::new("slow");
    let config = dir.config(QUIET);
    let service = Service::start(&dir.path("run"), "kv", 2);
    let _daemon = Daemon::start(&config);
    let mut caller = Caller::connect(&dir);
    caller.wait_for_mode("kv", "watch");
    let mut slow = Caller::connect(&dir);
    slow.send(&json!({ "method": "io.tailplane.Control.Events", "more": true }));
    let mut greedy = Caller::connect(&dir);
    greedy.stream.set_write_timeout(Some(Duration::from_millis(300))).expect("set");
    let call = format!(
        "{}\0",
        json!({ "method": "io.tailplane.Control.Status", "parameters": { "name": "kv" } })
    );
    // It asks and asks and never reads: after a while nothing more is taken from it.
    let mut asked = 0;
    while asked < 100_000 && greedy.stream.write_all(call.as_bytes()).is_ok() {
        asked += 1;
    }
    assert!(asked < 100_000, "all of it was taken");
    // Each command is some events; far more than fit between the daemon and the slow one.
    for _ in 0..1_500 {
        let answer = caller.call("Grant", json!({ "name": "kv", "thread": 7 }));
        assert_eq!(answer["parameters"]["kind"], "no-such-thread");
    }
    assert_eq!(service.inside.running(), [0]);
    let lost = loop {
        let event = slow.hear().expect("it is still there")["parameters"]["event"].clone();
        if event["kind"] == "events-lost" {
            break event["fields"]["events"].as_str().and_then(|n| n.parse::<u64>().ok());
        }
        // There is room again; something must happen for it to be told.
        caller.call("Grant", json!({ "name": "kv", "thread": 7 }));
    };
    assert!(lost.expect("a number") > 0);
}

#[test]
fn hundreds_of_connections_are_bounded_and_told() {
    let dir = Dir::new("crowd");
    let _daemon = Daemon::start(&dir.config(QUIET));
    let mut first = Caller::connect(&dir);
    first.call("List", json!({}));
    let mut crowd: Vec<Caller> = (0..300).map(|_| Caller::connect(&dir)).collect();
    let mut turned_away = 0;
    for caller in &mut crowd {
        let call = b"{\"method\":\"io.tailplane.Control.List\"}\0";
        // Who was turned away without a word finds the connection closed.
        let _ = caller.stream.write_all(call);
        match caller.hear() {
            Some(answer) if answer["error"] == "io.tailplane.Control.TooManyConnections" => {
                assert_eq!(answer["parameters"]["limit"], 256);
                turned_away += 1;
            }
            Some(answer) => assert!(answer["parameters"]["services"].is_array(), "{answer}"),
            None => turned_away += 1,
        }
    }
    assert_eq!(turned_away, 300 - 255, "one was there before");
    drop(crowd);
    until("there is room again", || {
        let mut caller = Caller::connect(&dir);
        let sent = caller.stream.write_all(b"{\"method\":\"io.tailplane.Control.List\"}\0");
        sent.is_ok() && caller.hear().is_some_and(|answer| answer.get("error").is_none())
    });
    assert!(first.call("List", json!({}))["parameters"].is_object());
}

/// What another user is answered.
fn as_nobody(dir: &Dir, call: Value) -> Value {
    let path = dir.path("run/control.sock");
    // A user is a thread's.
    let asking = std::thread::spawn(move || {
        let nobody = Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        let mut caller = Caller::over(UnixStream::connect(path).expect("the mode lets it in"));
        caller.send(&call);
        caller.hear().expect("an answer")
    });
    asking.join().expect("no panic")
}

#[test]
fn others_may_look_where_that_is_configured_and_change_nothing() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can be another user");
        return;
    }
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    let list = || json!({ "method": "io.tailplane.Control.List" });
    let stop = || json!({ "method": "io.tailplane.Control.Stop", "parameters": { "name": "kv" } });
    let dir = Dir::new("others");
    std::fs::set_permissions(dir.path(""), open).expect("it is ours");
    let _daemon = Daemon::start(&dir.config("[control]\nmode = 0o666\n[metrics]\nlisten = \"\""));
    Caller::connect(&dir).call("List", json!({}));
    let refused = as_nobody(&dir, list());
    assert_eq!(refused["error"], "io.tailplane.Control.NotPermitted");
    let reason = refused["parameters"]["reason"].as_str().expect("a reason");
    assert!(reason.contains("control.others_read"), "{reason}");
    let dir = Dir::new("readers");
    let config =
        dir.config("[control]\nmode = 0o666\nothers_read = true\n[metrics]\nlisten = \"\"");
    let _daemon = Daemon::start(&config);
    Caller::connect(&dir).call("List", json!({}));
    assert!(as_nobody(&dir, list())["parameters"]["services"].is_array());
    assert_eq!(as_nobody(&dir, stop())["error"], "io.tailplane.Control.NotPermitted");
    // The mode keeps it out altogether.
    let dir = Dir::new("closed");
    std::fs::set_permissions(dir.path(""), std::os::unix::fs::PermissionsExt::from_mode(0o755))
        .expect("it is ours");
    let _daemon = Daemon::start(&dir.config("[control]\nmode = 0o600\n[metrics]\nlisten = \"\""));
    Caller::connect(&dir).call("List", json!({}));
    let path = dir.path("run/control.sock");
    let asking = std::thread::spawn(move || {
        let nobody = Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        UnixStream::connect(path).is_err()
    });
    assert!(asking.join().expect("no panic"));
}
