//! A way that frames travel between a device and packet memory.

use anyhow::{Context, bail};
use mem::ChunkBytes;
use nic::af_xdp::{AfXdpConfig, AfXdpError, BindMode, XdpSocket};
use nic::device::{Device, Mtu};
use nic::driver_rules::one_buffer_mtu;
use nic::xdp_program::AttachMode;

use crate::network_config::ChecksumsName;

/// How frames travel between a device and packet memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Way {
    /// Where the XDP program runs.
    pub program: AttachMode,
    /// Whether the device reads and writes packet memory itself.
    pub zero_copy: bool,
    /// The chunks that its frames fit into.
    pub chunk: ChunkBytes,
    /// Whether it may leave a frame in several of them.
    pub multi_buffer: bool,
    /// Whether the device completes the checksums of what is sent.
    pub tx_checksum_offload: bool,
}

impl Way {
    /// The largest packets that a device takes and gives by it.
    pub fn mtu(self, device: &Device) -> Mtu {
        let found = device.mtu(self.chunk, self.zero_copy, self.multi_buffer);
        // The kernel drops what the driver leaves in several of its own buffers.
        let is_one_buffer =
            self.program == AttachMode::Native && !self.zero_copy && !self.multi_buffer;
        let one_buffer = one_buffer_mtu(device).filter(|_| is_one_buffer && device.is_jumbo());
        Mtu { receive: one_buffer.map_or(found.receive, |most| found.receive.min(most)), ..found }
    }

    /// This way, with checksums of what is sent completed as `wanted`.
    ///
    /// # Errors
    /// The device is demanded, and its driver does not declare that it can, or the kernel cannot ask it.
    pub fn with_checksums(self, wanted: ChecksumsName, device: &Device) -> anyhow::Result<Self> {
        let name = &device.interface.name;
        let is_declared = self.zero_copy && device.xdp.is_some_and(|xdp| xdp.tx_checksum);
        let offload = Self { tx_checksum_offload: true, ..self };
        let tried = || XdpSocket::try_create(&offload.config(name, 0), self.chunk);
        match wanted {
            ChecksumsName::Auto if is_declared && tried().is_ok() => Ok(offload),
            ChecksumsName::Auto | ChecksumsName::Software => Ok(self),
            ChecksumsName::Device if self.zero_copy && !is_declared => bail!(
                "cannot leave checksums to '{name}': found that {} does not declare tx-checksum for zero-copy mode; do \
                 network.checksums = \"auto\"",
                device.driver
            ),
            ChecksumsName::Device => {
                tried().with_context(|| format!("cannot leave checksums to '{name}'"))?;
                Ok(offload)
            }
        }
    }

    /// Tries a queue with a socket that is closed again.
    ///
    /// # Errors
    /// Why it cannot be bound.
    pub fn try_on(self, interface: &str, queue: u32) -> Result<(), AfXdpError> {
        XdpSocket::try_bind(&self.config(interface, queue), self.chunk)
    }

    /// How a queue's socket is made for it.
    pub fn config(self, interface: &str, queue: u32) -> AfXdpConfig {
        AfXdpConfig {
            mode: if self.zero_copy { BindMode::ZeroCopy } else { BindMode::Copy },
            multi_buffer: self.multi_buffer,
            tx_checksum_offload: self.tx_checksum_offload,
            ..AfXdpConfig::new(interface, queue)
        }
    }
}

impl std::fmt::Display for Way {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mode = if self.zero_copy { "zero-copy" } else { "copy" };
        write!(f, "{mode}, {} XDP", self.program.name())
    }
}
