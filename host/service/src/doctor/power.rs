//! What the control plane moves: frequency, idle states, control groups.

use control::actuator::{Cpuset, Hierarchy};

use super::check::Check;
use super::root::Root;

const CPUS: &str = "sys/devices/system/cpu";

/// The checks.
pub fn checks(root: &Root) -> Vec<Check> {
    let idle = root.read(format!("{CPUS}/cpuidle/current_driver"));
    let idle = Check::ok("idle driver", idle.unwrap_or_else(|| "none".to_owned()));
    vec![frequency(root), idle, turbo(root), control_groups(root)]
}

fn frequency(root: &Root) -> Check {
    let name = "frequency scaling";
    let read = |file: &str| root.read(format!("{CPUS}/cpu0/cpufreq/{file}"));
    let Some(governor) = read("scaling_governor") else {
        return Check::ok(name, "no cpufreq").missing(
            "the energy policy can take cores away but not slow them down (IX §5.4 needs both)",
            "use bare metal with a cpufreq driver, or the simulator's energy model",
        );
    };
    let driver = read("scaling_driver").unwrap_or_else(|| "unknown".to_owned());
    let stays = ["performance", "userspace"].contains(&governor.as_str());
    Check::ok(name, format!("{driver}, governor {governor}")).fine_if(stays).or_warn(
        "the governor changes frequency behind the dataplane's back: measurements vary",
        "set the governor to performance while measuring (cpupower frequency-set)",
    )
}

fn turbo(root: &Root) -> Check {
    let intel = root.number(format!("{CPUS}/intel_pstate/no_turbo")).map(|off| off == 0);
    let other = root.number(format!("{CPUS}/cpufreq/boost")).map(|on| on == 1);
    let found = match intel.or(other) {
        Some(true) => "on",
        Some(false) => "off",
        None => "cannot be told (no switch)",
    };
    Check::ok("Turbo", found)
}

fn control_groups(root: &Root) -> Check {
    let name = "control groups";
    match Cpuset::find(&root.path("sys/fs/cgroup")) {
        Ok((Hierarchy::V2, _)) => Check::ok(name, "version 2, with cpuset"),
        Ok((Hierarchy::V1, _)) => Check::ok(name, "version 1, with cpuset").warn(
            "cores are moved between cpusets without partitions: the kernel's own threads stay",
            "boot with systemd.unified_cgroup_hierarchy=1",
        ),
        Err(_) => Check::ok(name, "no cpuset controller").warn(
            "cores are given and taken by plain affinity: a background job can undo it",
            "enable the cpuset controller (cgroup.subtree_control)",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::super::fake_tests::FakeRoot;
    use super::*;

    #[test]
    fn governors_that_move_on_their_own_are_a_warning() {
        let with = |governor| {
            let path = "sys/devices/system/cpu/cpu0/cpufreq/scaling_governor";
            frequency(&FakeRoot::with(&[(path, governor)]).root()).status
        };
        assert_eq!(with("performance"), Status::Ok);
        assert_eq!(with("schedutil"), Status::Warn);
        assert_eq!(frequency(&FakeRoot::with(&[]).root()).status, Status::Missing);
    }

    #[test]
    fn turbo_is_read_from_either_switch() {
        let intel = FakeRoot::with(&[("sys/devices/system/cpu/intel_pstate/no_turbo", "1")]);
        let other = FakeRoot::with(&[("sys/devices/system/cpu/cpufreq/boost", "1")]);
        assert_eq!(turbo(&intel.root()).found, "off");
        assert_eq!(turbo(&other.root()).found, "on");
    }

    #[test]
    fn the_control_groups_that_hold_cpuset_are_found() {
        let of = |files: &[(&str, &str)]| control_groups(&FakeRoot::with(files).root());
        let second = of(&[("sys/fs/cgroup/cgroup.controllers", "cpuset cpu io")]);
        assert_eq!((second.status, second.found.as_str()), (Status::Ok, "version 2, with cpuset"));
        let first = of(&[
            ("sys/fs/cgroup/unified/cgroup.controllers", "hugetlb"),
            ("sys/fs/cgroup/cpuset/cpuset.cpus", "0-1"),
        ]);
        assert_eq!(first.found, "version 1, with cpuset");
        let neither = of(&[("sys/fs/cgroup/cgroup.controllers", "cpu io")]);
        assert_eq!(neither.found, "no cpuset controller");
    }
}
