//! Real-time priority, its throttling, and how the kernel groups threads.

use super::check::Check;
use super::privilege::{SYS_NICE_BIT, effective, has, soft_limit};
use super::root::Root;

/// The checks.
pub fn checks(root: &Root) -> Vec<Check> {
    // Worth knowing, not worth a warning: it only makes `nice` useless.
    let autogroups = match root.number("proc/sys/kernel/sched_autogroup_enabled") {
        Some(1) => "on: `nice` has no effect between sessions",
        Some(_) => "off",
        None => "not in this kernel",
    };
    vec![priority(root), throttling(root), Check::ok("autogroups", autogroups)]
}

fn priority(root: &Root) -> Check {
    let name = "real-time priority";
    if has(effective(root), SYS_NICE_BIT) {
        return Check::ok(name, "any (CAP_SYS_NICE)");
    }
    let highest = soft_limit(root, "Max realtime priority").unwrap_or(0);
    let found = format!("up to {highest}");
    Check::of(name).either(highest > 0, &found, "not allowed").or_missing(
        "no kick: a wake-up does not preempt the application, so a packet waits for the end of \
         the running request or the kernel's slice",
        "run as root, or raise the limit (ulimit -r 10)",
    )
}

fn throttling(root: &Root) -> Check {
    let runtime_us = root.number("proc/sys/kernel/sched_rt_runtime_us");
    let period_us = root.number("proc/sys/kernel/sched_rt_period_us");
    let check = |found: &str| Check::ok("real-time throttling", found);
    match (runtime_us, period_us) {
        (Some(-1), _) => check("off"),
        (Some(runtime_us), Some(period_us)) if runtime_us < period_us => {
            check(&format!("{runtime_us} us of every {period_us} us")).warn(
                format!(
                    "a core that spins at real-time priority is held for {} us of each period: it \
                     shows at p99.9",
                    period_us - runtime_us
                ),
                "sysctl -w kernel.sched_rt_runtime_us=-1, with a core left for everything else",
            )
        }
        (Some(_), Some(_)) => check("off (the runtime is the whole period)"),
        _ => check("unknown"),
    }
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::super::fake_tests::FakeRoot;
    use super::*;

    #[test]
    fn without_the_capability_the_limit_decides() {
        let with = |effective: &str, limit: &str| {
            let status = format!("CapEff:\t{effective}\n");
            let limits = format!("Max realtime priority     {limit}      {limit}     \n");
            let files =
                [("proc/self/status", status.as_str()), ("proc/self/limits", limits.as_str())];
            priority(&FakeRoot::with(&files).root()).status
        };
        assert_eq!(with("0000000000000000", "0"), Status::Missing);
        assert_eq!(with("0000000000000000", "10"), Status::Ok);
        assert_eq!(with("0000000000800000", "0"), Status::Ok);
    }

    #[test]
    fn throttling_says_how_long_a_spinner_is_held() {
        let with = |runtime: &str| {
            let files = [
                ("proc/sys/kernel/sched_rt_runtime_us", runtime),
                ("proc/sys/kernel/sched_rt_period_us", "1000000"),
            ];
            throttling(&FakeRoot::with(&files).root())
        };
        let throttled = with("950000");
        assert_eq!(throttled.status, Status::Warn);
        assert!(throttled.cost.contains("50000 us"), "{throttled:?}");
        assert_eq!(with("-1").status, Status::Ok);
        assert_eq!(with("1000000").status, Status::Ok);
    }
}
