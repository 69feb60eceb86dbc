//! The kernel's version, its clock source, its TCP settings that a comparison depends on.

use super::check::Check;
use super::root::Root;
use crate::lab::constants::FAIR_CONGESTION_CONTROL;

/// The oldest kernel that the whole suite of `make test-devices` passes on. Older ones were not tried: `close_range`,
/// which a confined start takes, is of 5.9.
const OLDEST: (u32, u32) = (5, 10);
/// AF_XDP takes frames of several chunks since 6.6.
const COMPLETE: (u32, u32) = (6, 6);

/// The checks.
pub fn checks(root: &Root) -> Vec<Check> {
    let is_constant = root.has_cpu_flag("constant_tsc") && root.has_cpu_flag("nonstop_tsc");
    let tsc = Check::of("time-stamp counter");
    let tsc = tsc.either(is_constant, "invariant", "not known to be invariant").or_warn(
        "cycle counts are no measure of time here; cost tables come from the kernel's clock",
        "nothing: measurements fall back to the kernel's clock",
    );
    vec![version(root), clock_source(root), tsc, congestion_control(root)]
}

fn version(root: &Root) -> Check {
    let release = root.read("proc/sys/kernel/osrelease").unwrap_or_else(|| "unknown".to_owned());
    let check = Check::ok("version", &release);
    match parse_release(&release) {
        Some(version) if version >= COMPLETE => check,
        Some(version) if version >= OLDEST => check.warn(
            "with an MTU above 3,500, larger packets are dropped (AF_XDP takes frames of several chunks since 6.6); \
             TCP's segments are smaller then",
            "boot kernel 6.6 or later where the MTU is that large",
        ),
        _ => check.missing(
            "nothing was tried on such a kernel (5.10 is the oldest)",
            "boot kernel 5.10 or later, better 6.6",
        ),
    }
}

fn parse_release(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|character: char| !character.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn clock_source(root: &Root) -> Check {
    // Read in the vDSO, without a system call.
    const QUICK: [&str; 4] =
        ["tsc", "kvm-clock", "hyperv_clocksource_tsc_page", "arch_sys_counter"];
    let path = "sys/devices/system/clocksource/clocksource0/current_clocksource";
    let found = root.read(path).unwrap_or_else(|| "unknown".to_owned());
    Check::ok("clock source", &found).fine_if(QUICK.contains(&found.as_str())).or_warn(
        "every reading of the clock, at least one per iteration, is a system call (124 ns \
         instead of 21) or a slow device access",
        "boot with clocksource=tsc tsc=reliable where the processor's TSC is invariant",
    )
}

fn congestion_control(root: &Root) -> Check {
    let read = |name: &str| root.read(format!("proc/sys/net/ipv4/{name}")).unwrap_or_default();
    let default = read("tcp_congestion_control");
    let available = read("tcp_available_congestion_control");
    let is_fair = available.split_whitespace().any(|name| name == FAIR_CONGESTION_CONTROL);
    let found = format!("default {default}, available: {available}");
    Check::ok("TCP congestion control", found).fine_if(is_fair).or_warn(
        format!(
            "the kernel's side of a comparison runs {default} instead of {FAIR_CONGESTION_CONTROL}; \
             bbr costs it about 20 % on echo"
        ),
        format!("load the module tcp_{FAIR_CONGESTION_CONTROL}"),
    )
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::super::fake_tests::FakeRoot;
    use super::*;

    fn status_of_release(release: &str) -> Status {
        version(&FakeRoot::with(&[("proc/sys/kernel/osrelease", release)]).root()).status
    }

    #[test]
    fn kernels_are_judged_by_what_their_af_xdp_lacks() {
        assert_eq!(status_of_release("6.18.44-generic\n"), Status::Ok);
        assert_eq!(status_of_release("6.1.0-26-amd64"), Status::Warn);
        assert_eq!(status_of_release("5.10.0-32-amd64"), Status::Warn);
        assert_eq!(status_of_release("5.4.0"), Status::Missing);
        assert_eq!(status_of_release("nonsense"), Status::Missing);
    }

    #[test]
    fn a_slow_clock_source_is_a_warning() {
        let path = "sys/devices/system/clocksource/clocksource0/current_clocksource";
        for (name, status) in [("tsc", Status::Ok), ("hpet", Status::Warn)] {
            assert_eq!(clock_source(&FakeRoot::with(&[(path, name)]).root()).status, status);
        }
    }

    #[test]
    fn a_kernel_without_cubic_is_named_as_unfair() {
        let fake = FakeRoot::with(&[
            ("proc/sys/net/ipv4/tcp_congestion_control", "bbr"),
            ("proc/sys/net/ipv4/tcp_available_congestion_control", "reno bbr"),
        ]);
        let check = congestion_control(&fake.root());
        assert_eq!(check.status, Status::Warn);
        assert!(check.found.contains("default bbr"), "{check:?}");
    }
}
