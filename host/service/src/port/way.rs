//! A way that frames travel between a device and packet memory.

use mem::ChunkBytes;
use nic::af_xdp::{AfXdpConfig, AfXdpError, BindMode, XdpSocket};
use nic::device::{Device, Mtu};
use nic::driver_rules::one_buffer_mtu;
use nic::xdp_program::AttachMode;

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
}

impl Way {
    /// The largest packets that a device takes and gives by it.
    pub fn mtu(self, device: &Device) -> Mtu {
        let Mtu { send, receive } = device.mtu(self.chunk, self.zero_copy, self.multi_buffer);
        // The kernel drops what the driver leaves in several of its own buffers.
        let is_one_buffer =
            self.program == AttachMode::Native && !self.zero_copy && !self.multi_buffer;
        let one_buffer = one_buffer_mtu(device).filter(|_| is_one_buffer && device.is_jumbo());
        Mtu { send, receive: one_buffer.map_or(receive, |most| receive.min(most)) }
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
