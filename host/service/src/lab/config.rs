//! Which lab to make: its name, its queues, how long it stays.

use std::sync::atomic::{AtomicU32, Ordering};

use super::constants::{DEFAULT_PREFIX, FAIR_CONGESTION_CONTROL, PREFIX_BYTES_MAX, QUEUES_MAX};
use super::error::LabError;

/// How long a lab stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Until its [`Lab`](super::Lab) is dropped or its process ends, however it ends.
    Process,
    /// Until it is removed ([`remove`](super::remove)).
    Persistent,
}

/// The congestion control of the kernel's stacks in the lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// The machine's default; nothing outside the lab is touched.
    KernelDefault,
    /// This one where the kernel has it, else the default. Where the machine does not allow it in
    /// namespaces, it is allowed as long as the lab stays.
    Named(String),
}

/// What lab to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabConfig {
    /// What its namespaces are called (`PREFIX-dp`, `PREFIX-client`): lower-case letters, digits, '-'.
    pub prefix: String,
    /// Queue pairs of each end, 1 to [`QUEUES_MAX`].
    pub queues: u32,
    /// The kernel's congestion control.
    pub congestion_control: CongestionControl,
    /// How long it stays.
    pub lifetime: Lifetime,
    /// Whether the client's kernel speaks IPv6 too.
    pub ipv6: bool,
}

impl Default for LabConfig {
    /// One queue, cubic, as long as the process; under the name that `tailplane lab` uses.
    fn default() -> Self {
        Self {
            prefix: DEFAULT_PREFIX.to_owned(),
            queues: 1,
            congestion_control: CongestionControl::Named(FAIR_CONGESTION_CONTROL.to_owned()),
            lifetime: Lifetime::Process,
            ipv6: false,
        }
    }
}

impl LabConfig {
    /// The default, under a name that no other lab of the machine has: beside the user's lab.
    pub fn unique(tag: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { prefix: format!("tp-{tag}-{}-{number}", std::process::id()), ..Self::default() }
    }

    pub(super) fn check(&self) -> Result<(), LabError> {
        check_prefix(&self.prefix)?;
        if !(1..=QUEUES_MAX).contains(&self.queues) {
            return Err(LabError::Failed(format!(
                "a lab has 1 to {QUEUES_MAX} queues, not {}",
                self.queues
            )));
        }
        Ok(())
    }
}

/// The prefix becomes a file's name: nothing in it may lead out of the directory.
pub(super) fn check_prefix(prefix: &str) -> Result<(), LabError> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = (1..=PREFIX_BYTES_MAX).contains(&prefix.len());
    if fits && !prefix.starts_with('-') && prefix.bytes().all(allowed) {
        Ok(())
    } else {
        Err(LabError::Failed(format!(
            "'{prefix}' is no lab name: use 1 to {PREFIX_BYTES_MAX} lower-case letters, digits and '-'"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for prefix in ["", "a/b", "..", "UP", "-x", "a b", &"x".repeat(PREFIX_BYTES_MAX + 1)] {
            let config = LabConfig { prefix: prefix.to_owned(), ..LabConfig::default() };
            let refused = config.check().expect_err(prefix).to_string();
            assert!(refused.contains("is no lab name"), "{refused}");
        }
        LabConfig::unique("test").check().unwrap();
    }

    #[test]
    fn queue_counts_out_of_range_are_refused() {
        for queues in [0, QUEUES_MAX + 1] {
            let config = LabConfig { queues, ..LabConfig::default() };
            let refused = config.check().expect_err("out of range").to_string();
            assert!(refused.contains("a lab has 1 to "), "{refused}");
        }
    }

    #[test]
    fn unique_labs_do_not_share_a_name() {
        assert_ne!(LabConfig::unique("x").prefix, LabConfig::unique("x").prefix);
    }
}
