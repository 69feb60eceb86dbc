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

mod check;
pub mod cpu;
#[cfg(test)]
mod fake_tests;
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
pub mod xdp;

use nic::device::Device;

pub use self::check::{Check, Report, Status, Summary};
pub use self::root::Root;

/// Looks at this machine. Makes and removes a small lab on the way (two network namespaces), since
/// only that tells whether a lab can be made. Interfaces in `probed` were tried by [`probe`].
pub fn examine(probed: &[String]) -> Vec<Check> {
    let root = Root::machine();
    let groups = [
        ("kernel", kernel::checks(&root)),
        ("xdp", xdp::checks(&root, xdp::probe())),
        ("privilege", privilege::checks(&root)),
        ("protection", protection::checks(&root, protection::probe())),
        ("memory", memory::checks(&root)),
        ("namespaces", namespaces::checks(&root, namespaces::probe())),
        ("cpu", cpu::checks(&root, cpu::probe_hypervisor())),
        ("scheduling", scheduling::checks(&root)),
        ("power", power::checks(&root)),
        ("nics", nics::checks(&root, Device::look, probed)),
        ("tools", tools::checks(&tools::search_path())),
    ];
    let of_group = |(group, checks): (_, Vec<Check>)| {
        checks.into_iter().map(move |check| check.of_group(group))
    };
    groups.into_iter().flat_map(of_group).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
