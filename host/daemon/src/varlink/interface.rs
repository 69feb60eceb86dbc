//! What the control socket understands: methods of `io.tailplane.Control` and of `org.varlink.service`.

use endpoint::Request;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::access::{Access, Role};
use super::message::{Call, error, reply};
use crate::commands::{Failure, PolicyChange, What};
use crate::status::{ServiceStatus, Snapshot};

/// The interface's name.
pub const INTERFACE: &str = "io.tailplane.Control";
/// Its description.
pub const DESCRIPTION: &str = include_str!("io.tailplane.Control.varlink");
/// The interface that every Varlink service has.
const SERVICE: &str = "org.varlink.service";
/// And its description, as it is published.
const SERVICE_DESCRIPTION: &str = include_str!("org.varlink.service.varlink");

/// What a call comes to.
#[derive(Clone, Debug, PartialEq)]
pub enum Asked {
    /// This is the reply, whole.
    Reply(Vec<u8>),
    /// The service of this name is asked that; the answer follows.
    Command(String, What),
    /// Events of this service, or of all, from now on.
    Follow(Option<String>),
    /// The files are to be read again.
    Reload,
}

/// Looks at a call of somebody with this role.
pub fn asked(call: &Call, access: &Access, role: Role, snapshot: &Snapshot) -> Asked {
    let needed = match call.method.strip_prefix("io.tailplane.Control.") {
        Some("Daemon" | "List" | "Status" | "Events") | None => Role::Read,
        Some(_) => Role::Change,
    };
    if role < needed {
        let reason = access.describe(needed);
        return Asked::Reply(own_error("NotPermitted", json!({ "reason": reason })));
    }
    if call.upgrade {
        let parameters = json!({ "method": call.method });
        return Asked::Reply(error(&format!("{SERVICE}.MethodNotImplemented"), parameters));
    }
    match look_at(call, snapshot) {
        Ok(asked) => asked,
        Err(reply) => Asked::Reply(reply),
    }
}

fn look_at(call: &Call, snapshot: &Snapshot) -> Result<Asked, Vec<u8>> {
    let Some((interface, method)) = call.method.rsplit_once('.') else {
        return Err(service_error("InterfaceNotFound", "interface", &call.method));
    };
    let mut given = Parameters(call.parameters.clone());
    let asked = match interface {
        INTERFACE => control(method, call, &mut given, snapshot)?,
        SERVICE => Asked::Reply(service(method, &mut given)?),
        _ => return Err(service_error("InterfaceNotFound", "interface", interface)),
    };
    given.no_more()?;
    Ok(asked)
}

fn service(method: &str, given: &mut Parameters) -> Result<Vec<u8>, Vec<u8>> {
    let parameters = match method {
        "GetInfo" => json!({
            "vendor": "tailplane",
            "product": "tailplaned",
            "version": env!("CARGO_PKG_VERSION"),
            "url": "",
            "interfaces": [SERVICE, INTERFACE],
        }),
        "GetInterfaceDescription" => match given.take::<String>("interface")?.as_str() {
            INTERFACE => json!({ "description": DESCRIPTION }),
            SERVICE => json!({ "description": SERVICE_DESCRIPTION }),
            other => return Err(service_error("InterfaceNotFound", "interface", other)),
        },
        _ => return Err(service_error("MethodNotFound", "method", &format!("{SERVICE}.{method}"))),
    };
    Ok(reply(parameters, false))
}

fn control(
    method: &str,
    call: &Call,
    given: &mut Parameters,
    snapshot: &Snapshot,
) -> Result<Asked, Vec<u8>> {
    let by_hand = |name, request| Ok(Asked::Command(name, What::ByHand(request)));
    match method {
        "Daemon" => {
            let version = env!("CARGO_PKG_VERSION");
            let parameters = json!({ "version": version, "problems": snapshot.problems });
            Ok(Asked::Reply(reply(parameters, false)))
        }
        "List" => {
            let services: Vec<Value> = snapshot.services.iter().map(summary).collect();
            Ok(Asked::Reply(reply(json!({ "services": services }), false)))
        }
        "Status" => {
            let name: String = given.take("name")?;
            let service = snapshot.services.iter().find(|service| service.name == name);
            let no_such = || own_error("NoSuchService", json!({ "name": name }));
            let service = service.ok_or_else(no_such)?;
            Ok(Asked::Reply(reply(json!({ "service": service }), false)))
        }
        "Start" => Ok(Asked::Command(given.take("name")?, What::Start)),
        "Stop" => Ok(Asked::Command(given.take("name")?, What::Stop)),
        "Resume" => Ok(Asked::Command(given.take("name")?, What::Resume)),
        "Policy" => Ok(Asked::Command(given.take("name")?, What::Policy(policy(given)?))),
        "Grant" => by_hand(given.take("name")?, Request::Grant { thread: given.take("thread")? }),
        "Park" => by_hand(given.take("name")?, Request::Park { thread: given.take("thread")? }),
        "Move" => {
            let (from, to) = (given.take("from")?, given.take("to")?);
            let request = Request::Move { from, to, groups: given.take("groups")? };
            by_hand(given.take("name")?, request)
        }
        "Pin" => {
            let (thread, cpu) = (given.take("thread")?, usize::from(given.take::<u16>("cpu")?));
            by_hand(given.take("name")?, Request::Place { thread, cpu })
        }
        "Reload" => Ok(Asked::Reload),
        "Events" if !call.more => Err(error(&format!("{SERVICE}.ExpectedMore"), json!({}))),
        "Events" => Ok(Asked::Follow(given.take("name")?)),
        _ => Err(service_error("MethodNotFound", "method", &call.method)),
    }
}

fn policy(given: &mut Parameters) -> Result<PolicyChange, Vec<u8>> {
    let name = |text: String, parameter| text.parse().map_err(|_| invalid(parameter));
    let over: Option<String> = given.take("over")?;
    Ok(PolicyChange {
        policy: name(given.take("policy")?, "policy")?,
        slo_us: given.take("slo_us")?,
        period_ms: given.take("period_ms")?,
        sequence: given.take("sequence")?,
        over: over.map(|over| name(over, "over")).transpose()?,
    })
}

fn summary(service: &ServiceStatus) -> Value {
    let threads = service.running.as_ref().map_or(&[][..], |running| &running.threads);
    let granted = threads.iter().filter(|thread| thread.state == "running").count();
    json!({
        "name": service.name,
        "phase": service.phase,
        "mode": service.mode,
        "policy": service.policy,
        "problem": service.problem,
        "threads": threads.len(),
        "granted": granted,
    })
}

/// A failed command as a reply.
pub fn failure(service: &str, failure: &Failure) -> Vec<u8> {
    match failure {
        Failure::NoSuchService => own_error("NoSuchService", json!({ "name": service })),
        Failure::NotRunning(reason) => {
            own_error("NotRunning", json!({ "name": service, "reason": reason }))
        }
        Failure::Refused(kind, reason) => {
            own_error("Refused", json!({ "kind": kind, "reason": reason }))
        }
        Failure::Failed(reason) => own_error("Failed", json!({ "reason": reason })),
        Failure::TimedOut(seconds) => own_error("TimedOut", json!({ "seconds": seconds })),
        Failure::Busy => own_error("Busy", json!({})),
    }
}

pub(super) fn own_error(name: &str, parameters: Value) -> Vec<u8> {
    error(&format!("{INTERFACE}.{name}"), parameters)
}

fn service_error(name: &str, parameter: &str, value: &str) -> Vec<u8> {
    error(&format!("{SERVICE}.{name}"), json!({ parameter: value }))
}

fn invalid(parameter: &str) -> Vec<u8> {
    service_error("InvalidParameter", "parameter", parameter)
}

/// A call's parameters, each taken once; what is left over is wrong.
struct Parameters(Map<String, Value>);

impl Parameters {
    /// One of them; what is optional may be missing, or null.
    fn take<T: DeserializeOwned>(&mut self, name: &str) -> Result<T, Vec<u8>> {
        let value = self.0.remove(name).unwrap_or(Value::Null);
        serde_json::from_value(value).map_err(|_| invalid(name))
    }

    fn no_more(&self) -> Result<(), Vec<u8>> {
        self.0.keys().next().map_or(Ok(()), |name| Err(invalid(name)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};

    use configfile::PolicyName;

    use super::*;

    fn ask(role: Role, text: &str) -> Asked {
        let call = Call::parse(text.as_bytes()).expect("a call");
        let access = Access { own_uid: 0, group: Some(7), others_read: false };
        asked(&call, &access, role, &Snapshot::default())
    }

    fn said(asked: Asked) -> Value {
        let Asked::Reply(bytes) = asked else { panic!("no reply: {asked:?}") };
        let text = bytes.strip_suffix(b"\0").expect("a zero at its end");
        serde_json::from_slice(text).expect("JSON")
    }

    fn call(method: &str, parameters: &str) -> Asked {
        let text =
            format!(r#"{{"method":"io.tailplane.Control.{method}","parameters":{parameters}}}"#);
        ask(Role::Change, &text)
    }

    #[test]
    fn calls_become_what_they_say() {
        let hand = |request| Asked::Command("kv".to_owned(), What::ByHand(request));
        let moved = r#"{"name":"kv","from":0,"to":1,"groups":[3,4]}"#;
        assert_eq!(call("Move", moved), hand(Request::Move { from: 0, to: 1, groups: vec![3, 4] }));
        assert_eq!(
            call("Pin", r#"{"name":"kv","thread":1,"cpu":3}"#),
            hand(Request::Place { thread: 1, cpu: 3 })
        );
        assert_eq!(call("Start", r#"{"name":"kv"}"#), Asked::Command("kv".to_owned(), What::Start));
        let change = PolicyChange {
            policy: PolicyName::LatencyTarget,
            slo_us: Some(500.0),
            period_ms: None,
            sequence: None,
            over: Some(PolicyName::Consolidation),
        };
        let text = r#"{"name":"kv","policy":"latency-target","slo_us":500,"period_ms":null,"over":"consolidation"}"#;
        assert_eq!(call("Policy", text), Asked::Command("kv".to_owned(), What::Policy(change)));
        let more = r#"{"method":"io.tailplane.Control.Events","more":true}"#;
        assert_eq!(ask(Role::Read, more), Asked::Follow(None));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let error = |asked| {
            let said = said(asked);
            (said["error"].as_str().expect("an error").to_owned(), said["parameters"].clone())
        };
        for (method, parameters, wrong) in [
            ("Grant", r#"{"name":"kv"}"#, "thread"),
            ("Grant", r#"{"name":"kv","thread":-1}"#, "thread"),
            ("Grant", r#"{"name":"kv","thread":65536}"#, "thread"),
            ("Grant", r#"{"name":"kv","thread":1,"cpu":2}"#, "cpu"),
            ("Move", r#"{"name":"kv","from":0,"to":1,"groups":[1.5]}"#, "groups"),
            ("Policy", r#"{"name":"kv","policy":"fast"}"#, "policy"),
            ("Status", r#"{"name":7}"#, "name"),
        ] {
            let (name, parameters) = error(call(method, parameters));
            assert_eq!(name, "org.varlink.service.InvalidParameter");
            assert_eq!(parameters["parameter"], wrong);
        }
        let of = |text| error(ask(Role::Change, text)).0;
        assert_eq!(of(r#"{"method":"x.y.Z"}"#), "org.varlink.service.InterfaceNotFound");
        assert_eq!(of(r#"{"method":"Z"}"#), "org.varlink.service.InterfaceNotFound");
        assert_eq!(
            of(r#"{"method":"io.tailplane.Control.Z"}"#),
            "org.varlink.service.MethodNotFound"
        );
        assert_eq!(
            of(r#"{"method":"io.tailplane.Control.Events"}"#),
            "org.varlink.service.ExpectedMore"
        );
        let upgrade = r#"{"method":"io.tailplane.Control.List","upgrade":true}"#;
        assert_eq!(of(upgrade), "org.varlink.service.MethodNotImplemented");
        assert_eq!(
            error(call("Status", r#"{"name":"no"}"#)).0,
            "io.tailplane.Control.NoSuchService"
        );
    }

    #[test]
    fn who_may_not_is_told_so() {
        for (role, method, reason) in [
            (Role::Nobody, "io.tailplane.Control.List", "look at things"),
            (Role::Nobody, "org.varlink.service.GetInfo", "look at things"),
            (Role::Read, "io.tailplane.Control.Stop", "group 7 may change things"),
            (Role::Read, "io.tailplane.Control.Reload", "may change things"),
        ] {
            let said = said(ask(role, &format!(r#"{{"method":"{method}"}}"#)));
            assert_eq!(said["error"], "io.tailplane.Control.NotPermitted");
            let found = said["parameters"]["reason"].as_str().expect("a reason");
            assert!(found.contains(reason), "{found}");
        }
        let said = said(ask(Role::Read, r#"{"method":"io.tailplane.Control.List"}"#));
        assert_eq!(said["parameters"]["services"], json!([]));
    }

    /// Fields of each type, and parameters of each method's reply, of a description.
    fn fields(description: &str) -> BTreeMap<String, BTreeSet<String>> {
        let plain: String = description
            .lines()
            .filter(|line| !line.trim_start().starts_with('#'))
            .collect::<Vec<_>>()
            .join(" ");
        let mut found = BTreeMap::new();
        for part in plain.split("type ").skip(1) {
            let (name, rest) = part.split_once('(').expect("a type's fields");
            let inside = rest.split_once(')').expect("their end").0;
            let names = inside.split(',').map(|field| field.split(':').next().unwrap_or_default());
            let names = names.map(|name| name.trim().to_owned()).collect();
            found.insert(name.trim().to_owned(), names);
        }
        found
    }

    fn keys(value: &Value) -> BTreeSet<String> {
        value.as_object().expect("an object").keys().cloned().collect()
    }

    #[test]
    fn the_description_says_what_is_said() {
        use crate::governor::{Facts, Governor};
        use crate::tests::fake::Fake;
        let (_fake, link) = Fake::start("kv", 2, 4);
        let facts = Facts { topology: None, clocks: None, scaling: control::Scaling::ix() };
        let control = configfile::ControlConfig::default();
        let mut governor = Governor::new("kv", link, &control, &facts, None, 0);
        let mut running = governor.status(1);
        running.step = Some(crate::status::StepStatus {
            at: 0,
            of: 1,
            configuration: String::new(),
            background_cores: 0,
        });
        running.background =
            Some(crate::status::BackgroundStatus { alive: true, cpus: vec![], cpu_seconds: 0.0 });
        let service = ServiceStatus {
            name: "kv".to_owned(),
            phase: "up",
            mode: "policy",
            policy: "energy",
            slo_us: None,
            period_ms: 100,
            file: None,
            problem: None,
            starts: 0,
            running: Some(running),
        };
        let mut events = crate::Events::default();
        events.say(crate::Severity::Info, "kv", "x", [("a", "b".to_owned())]);
        let event = serde_json::to_value(&events.take()[0]).expect("JSON");
        let summary = summary(&service);
        let service = serde_json::to_value(&service).expect("JSON");
        let running = &service["running"];
        let described = fields(DESCRIPTION);
        for (name, value) in [
            ("Service", &service),
            ("Running", running),
            ("Thread", &running["threads"][0]),
            ("Step", &running["step"]),
            ("Background", &running["background"]),
            ("Totals", &running["totals"]),
            ("Event", &event),
            ("Summary", &summary),
        ] {
            assert_eq!(described[name], keys(value), "{name}");
        }
        assert_eq!(described.len(), 8);
        let said = said(ask(
            Role::Read,
            r#"{"method":"org.varlink.service.GetInterfaceDescription","parameters":{"interface":"io.tailplane.Control"}}"#,
        ));
        assert_eq!(said["parameters"]["description"], DESCRIPTION);
    }
}
