//! What this machine can and cannot do, and what each missing piece costs.
//!
//! ```no_run
//! let report = service::doctor::Report::of(service::doctor::examine(&[]));
//! println!("{}", service::doctor::render::table(&report));
//! ```
//!
//! One file per group of checks. A check reads files below a [`Root`] (the machine's, or a made-up
//! one in tests); what only a system call can tell is probed in [`examine`]'s callees named `probe`
//! and handed to the check as a value.
//!
//! Costs that are quoted as numbers were measured on the reference machine (two virtual CPUs, kernel
//! 6.18); they say what order of magnitude to expect. What was not measured has no number.

pub mod cpu;
pub mod kernel;
pub mod memory;
pub mod namespaces;
pub mod nics;
pub mod power;
pub mod privilege;
pub mod probe;
pub mod protection;
pub mod render;
mod root;
pub mod scheduling;
pub mod tools;
pub mod unsafe_options;
pub mod xdp;

use nic::device::Device;
use serde::Serialize;

pub use self::root::Root;

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// It works, at a cost.
    Warn,
    /// It is not there: something cannot be done.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The group: the name of the file that makes the check.
    pub group: &'static str,
    /// What was looked at.
    pub name: String,
    /// The verdict.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What the missing piece costs; empty where nothing is missing.
    pub cost: String,
    /// What to do about it; empty where there is nothing to do.
    pub remedy: String,
}

impl Check {
    /// A check that found things as they should be.
    pub fn ok(group: &'static str, name: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            group,
            name: name.into(),
            status: Status::Ok,
            found: found.into(),
            cost: String::new(),
            remedy: String::new(),
        }
    }

    /// The same check, of something that works at a cost.
    pub fn warn(self, cost: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: Status::Warn, cost: cost.into(), remedy: remedy.into(), ..self }
    }

    /// The same check, of something that is not there.
    pub fn missing(self, cost: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: Status::Missing, ..self.warn(cost, remedy) }
    }
}

/// How many checks came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// As they should be.
    pub ok: usize,
    /// At a cost.
    pub warn: usize,
    /// Not there.
    pub missing: usize,
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The checks, group by group.
    pub checks: Vec<Check>,
    /// How they came out.
    pub summary: Summary,
}

impl Report {
    /// Counts the checks.
    pub fn of(checks: Vec<Check>) -> Self {
        let count = |status| checks.iter().filter(|check| check.status == status).count();
        let summary = Summary {
            ok: count(Status::Ok),
            warn: count(Status::Warn),
            missing: count(Status::Missing),
        };
        Self { checks, summary }
    }
}

/// Looks at this machine. Makes and removes a small lab on the way (two network namespaces), since
/// only that tells whether a lab can be made. Interfaces in `probed` were tried by [`probe`].
pub fn examine(probed: &[String]) -> Vec<Check> {
    let root = Root::machine();
    let mut checks = kernel::checks(&root);
    checks.extend(xdp::checks(&root, xdp::probe()));
    checks.extend(privilege::checks(&root));
    checks.extend(protection::checks(&root, protection::probe()));
    checks.extend(memory::checks(&root));
    checks.extend(namespaces::checks(&root, namespaces::probe()));
    checks.extend(cpu::checks(&root, cpu::probe_hypervisor()));
    checks.extend(scheduling::checks(&root));
    checks.extend(power::checks(&root));
    checks.extend(nics::checks(&root, Device::look, probed));
    checks.extend(tools::checks(&tools::search_path()));
    checks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_every_check_once() {
        let check = || Check::ok("g", "n", "f");
        let report = Report::of(vec![check(), check().warn("c", "r"), check().missing("c", "r")]);
        assert_eq!(report.summary, Summary { ok: 1, warn: 1, missing: 1 });
    }

    #[test]
    fn this_machine_can_be_examined_and_every_finding_is_complete() {
        let report = Report::of(examine(&[]));
        let names: Vec<_> = report.checks.iter().map(|check| (check.group, &check.name)).collect();
        for group in
            ["kernel", "xdp", "privilege", "protection", "memory", "namespaces", "cpu", "tools"]
        {
            assert!(names.iter().any(|(other, _)| *other == group), "{group} in {names:?}");
        }
        for check in &report.checks {
            assert!(!check.found.is_empty(), "{check:?}");
            let explained = !check.cost.is_empty() && !check.remedy.is_empty();
            assert_eq!(explained, check.status != Status::Ok, "{check:?}");
        }
    }

    #[test]
    fn json_has_the_fields_that_scripts_read() {
        let report = Report::of(vec![Check::ok("kernel", "version", "6.18").warn("c", "r")]);
        let json = serde_json::to_value(&report).unwrap();
        let check = &json["checks"][0];
        assert_eq!(check["status"], "warn");
        assert_eq!(check["name"], "version");
        assert_eq!(check["cost"], "c");
        assert_eq!(json["summary"]["warn"], 1);
    }
}
