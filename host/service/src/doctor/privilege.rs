//! What the caller may do: capabilities, locked memory.

use super::check::Check;
use super::root::Root;

/// Capabilities that matter: name, bit of `CapEff`, what is impossible without it.
const CAPABILITIES: [(&str, u32, &str); 5] = [
    ("CAP_NET_ADMIN", 12, "no XDP program can be attached, no lab made, no RSS table programmed"),
    ("CAP_NET_RAW", 13, "no AF_XDP socket can be made: sockets must come from tailplaned"),
    ("CAP_BPF", 39, "no XDP program or map can be loaded (CAP_SYS_ADMIN serves as well)"),
    ("CAP_SYS_ADMIN", 21, "no network namespace can be made or entered: no lab, no demo"),
    ("CAP_IPC_LOCK", 14, "locked memory is limited (see below)"),
];
/// `CAP_SYS_ADMIN` includes `CAP_BPF`.
pub(super) const SYS_ADMIN_BIT: u32 = 21;
const BPF_BIT: u32 = 39;
const IPC_LOCK_BIT: u32 = 14;
pub(super) const SYS_NICE_BIT: u32 = 23;
/// A UMEM of 4,096 frames of 4 KiB for one queue: what must be lockable at the least, in bytes.
const UMEM_BYTES: u64 = 4096 * 4096;

/// The checks.
pub fn checks(root: &Root) -> Vec<Check> {
    let effective = effective(root);
    let capability = |&(name, bit, cost): &(&str, u32, &str)| {
        let remedy = "run as root, or grant it to the privileged side alone (tailplaned)";
        Check::of(name).either(has(effective, bit), "held", "not held").or_missing(cost, remedy)
    };
    CAPABILITIES.iter().map(capability).chain([locked_memory(root, effective)]).collect()
}

/// The effective capabilities; none where unreadable.
pub(super) fn effective(root: &Root) -> u64 {
    let text = root.field("proc/self/status", "CapEff").unwrap_or_default();
    u64::from_str_radix(&text, 16).unwrap_or(0)
}

/// Whether a capability is among the effective ones.
pub(super) fn has(effective: u64, bit: u32) -> bool {
    effective >> bit & 1 == 1 || (bit == BPF_BIT && effective >> SYS_ADMIN_BIT & 1 == 1)
}

/// A soft limit of `/proc/self/limits`; `None` where unlimited or unreadable.
pub(super) fn soft_limit(root: &Root, name: &str) -> Option<u64> {
    let limits = root.read("proc/self/limits")?;
    let line = limits.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

fn locked_memory(root: &Root, effective: u64) -> Check {
    let name = "locked memory";
    if has(effective, IPC_LOCK_BIT) {
        return Check::ok(name, "unlimited (CAP_IPC_LOCK)");
    }
    let Some(bytes) = soft_limit(root, "Max locked memory") else {
        return Check::ok(name, "unlimited");
    };
    Check::ok(name, format!("{} KiB", bytes / 1024)).fine_if(bytes >= UMEM_BYTES).or_warn(
        format!("a UMEM of {} KiB cannot be registered from here", UMEM_BYTES / 1024),
        "let the privileged side register it, or raise the limit (ulimit -l unlimited)",
    )
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::super::fake_tests::FakeRoot;
    use super::*;

    fn machine(effective: &str, limit: &str) -> Vec<Check> {
        let status = format!("Name:\tx\nCapEff:\t{effective}\n");
        let limits = format!(
            "Limit                     Soft Limit           Hard Limit           Units\n\
             Max locked memory         {limit}              {limit}              bytes\n"
        );
        let files = [("proc/self/status", status.as_str()), ("proc/self/limits", limits.as_str())];
        checks(&FakeRoot::with(&files).root())
    }

    fn status(checks: &[Check], name: &str) -> Status {
        checks.iter().find(|check| check.name == name).expect("no such check").status
    }

    #[test]
    fn root_holds_everything() {
        let checks = machine("000001ffffffffff", "8388608");
        assert!(checks.iter().all(|check| check.status == Status::Ok), "{checks:?}");
    }

    #[test]
    fn an_ordinary_user_holds_nothing_and_cannot_register_a_umem() {
        let checks = machine("0000000000000000", "8388608");
        assert_eq!(status(&checks, "CAP_NET_ADMIN"), Status::Missing);
        assert_eq!(status(&checks, "locked memory"), Status::Warn);
    }

    #[test]
    fn sys_admin_includes_bpf() {
        let checks = machine("0000000000200000", "unlimited");
        assert_eq!(status(&checks, "CAP_BPF"), Status::Ok);
        assert_eq!(status(&checks, "CAP_NET_RAW"), Status::Missing);
        assert_eq!(status(&checks, "locked memory"), Status::Ok);
    }
}
