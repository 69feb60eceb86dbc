//! Why a way of frames was not chosen.

use nic::device::Device;
use nic::driver_rules::{Purpose, explain, one_buffer_mtu};
use nic::xdp_program::XdpProgramError;

/// Why a better way was not chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// What refused, with the kernel's error, and the driver's rule that explains it.
    pub reason: String,
    /// What to do, where a rule is known.
    pub remedy: Option<String>,
}

impl Refusal {
    /// Of a device, for a purpose: what was found, and the error's number.
    fn of(device: &Device, purpose: Purpose, found: String, errno: Option<i32>) -> Self {
        match explain(device, purpose, errno) {
            None => Self { reason: found, remedy: None },
            Some(rule) => Self {
                reason: format!("{found}; {}", rule.text(device)),
                remedy: Some(rule.remedy(device)),
            },
        }
    }

    /// Of both reasons, with the remedy of `self`, else of `other`.
    pub(super) fn and(self, other: Self) -> Self {
        Self {
            reason: format!("{}; {}", self.reason, other.reason),
            remedy: self.remedy.or(other.remedy),
        }
    }

    /// Of a program that was to be attached native.
    pub(super) fn of_program(device: &Device, error: &XdpProgramError) -> Self {
        let (found, errno) = match error {
            XdpProgramError::Attach { reason, errno, .. } => (reason.clone(), *errno),
            other => (other.to_string(), None),
        };
        let found = format!("{} refuses native XDP: {found}", device.driver);
        Self::of(device, Purpose::NativeXdp, found, errno)
    }

    /// Of a device whose driver took no program but a multi-buffer one, by a kernel whose sockets take no such frames.
    pub(super) fn of_multi_buffer(device: &Device) -> Self {
        let remedy = one_buffer_mtu(device).map(|most| format!("use an MTU of {most}"));
        let (driver, mtu) = (&device.driver, device.interface.mtu);
        Self {
            reason: format!(
                "{driver} leaves frames of an MTU of {mtu} in several buffers, and the kernel's AF_XDP takes no such \
                 frames (Linux 6.6)"
            ),
            remedy: Some(remedy.unwrap_or_else(|| "use a smaller MTU".to_owned())),
        }
    }

    /// Of a bind in zero-copy mode.
    pub(super) fn of_bind(device: &Device, source: &std::io::Error) -> Self {
        let found = format!("{} refuses zero-copy: {source}", device.driver);
        Self::of(device, Purpose::ZeroCopy, found, source.raw_os_error())
    }
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.reason)?;
        self.remedy.as_ref().map_or(Ok(()), |remedy| write!(f, "; {remedy}"))
    }
}
