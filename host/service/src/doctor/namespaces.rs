//! Whether a lab can be made: network namespaces, veth with several queues, offloads that go off.

use super::check::Check;
use super::root::Root;
use crate::lab::{CongestionControl, Lab, LabConfig, LabError};

/// Queues of the lab that is tried: more than one, which old kernels refuse to create.
const QUEUES: u32 = 2;

/// Makes a small lab and removes it. Settings of the machine stay as they are.
///
/// # Errors
/// Why it cannot be made.
pub fn probe() -> Result<(), LabError> {
    let config = LabConfig {
        queues: QUEUES,
        congestion_control: CongestionControl::KernelDefault,
        ..LabConfig::unique("doctor")
    };
    Lab::create(config)?.remove()
}

/// The checks, given what [`probe`] found.
pub fn checks(root: &Root, lab: Result<(), LabError>) -> Vec<Check> {
    let are_there = root.exists("proc/self/ns/net");
    let found = lab
        .as_ref()
        .map_or_else(ToString::to_string, |()| format!("made with {QUEUES} queues, and removed"));
    vec![
        Check::of("network namespaces").either(are_there, "supported", "not supported").or_missing(
            "no lab can be made, no conformance test against the kernel's stack can run",
            "boot a kernel with CONFIG_NET_NS",
        ),
        Check::ok("lab", found).fine_if(lab.is_ok()).or_missing(
            "no playground: `tailplane lab` and `tailplane demo` cannot run without a NIC",
            "see what was found; a lab needs root, iproute2, network namespaces and veth",
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::super::fake_tests::FakeRoot;
    use super::*;

    #[test]
    fn what_stood_in_the_way_of_the_lab_is_what_was_found() {
        let fake = FakeRoot::with(&[("proc/self/ns/net", "")]);
        let refused = LabError::Failed("a lab needs root (this is uid 1000)".into());
        let found = checks(&fake.root(), Err(refused));
        assert_eq!(found[0].status, Status::Ok);
        assert_eq!(found[1].status, Status::Missing);
        assert!(found[1].found.contains("uid 1000"), "{found:?}");
    }

    #[test]
    fn a_kernel_without_namespaces_is_named() {
        let found = checks(&FakeRoot::with(&[]).root(), Ok(()));
        assert_eq!(found[0].status, Status::Missing);
        assert_eq!(found[1].status, Status::Ok);
    }
}
