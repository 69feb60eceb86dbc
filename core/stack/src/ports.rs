//! The ports on which a dataplane receives, shared by its elastic threads and changed while they run.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU16, AtomicU32, Ordering};

/// The open ports of one transport.
///
/// Relaxed operations are enough for a port's word: no other memory is published with it, and a SYN or a datagram that
/// arrives while its port opens or closes may be judged either way.
pub(crate) struct OpenPorts {
    /// By port: connections that may be open and not accepted, one at least; 0: the port is closed.
    backlogs: Box<[AtomicU16]>,
    /// How often a port was closed. See [`closings`](Self::closings).
    closings: AtomicU32,
}

impl OpenPorts {
    /// Open are those of a configuration, with the configuration's backlog.
    pub fn new(open: &[u16]) -> Self {
        let mut backlogs: Vec<AtomicU16> = Vec::new();
        backlogs.resize_with(1 << 16, AtomicU16::default);
        for &port in open {
            *backlogs[usize::from(port)].get_mut() = u16::MAX;
        }
        Self { backlogs: backlogs.into(), closings: AtomicU32::new(0) }
    }

    fn word(&self, port: u16) -> &AtomicU16 {
        &self.backlogs[usize::from(port)]
    }

    /// Connections that may be open and not accepted on a port; `None`: it is closed.
    #[inline]
    pub fn backlog(&self, port: u16) -> Option<u32> {
        let backlog = self.word(port).load(Ordering::Relaxed);
        (backlog > 0).then_some(backlog.into())
    }

    /// Opens a port. Answers false where it was open: of several threads that open it, one does.
    pub fn open(&self, port: u16, backlog: u16) -> bool {
        let (relaxed, word) = (Ordering::Relaxed, self.word(port));
        word.compare_exchange(0, backlog.max(1), relaxed, relaxed).is_ok()
    }

    /// Closes a port. Answers false where it was closed.
    pub fn close(&self, port: u16) -> bool {
        let was_open = self.word(port).swap(0, Ordering::Relaxed) > 0;
        if was_open {
            // Release: a thread that sees the new count sees the port closed.
            self.closings.fetch_add(1, Ordering::Release);
        }
        was_open
    }

    /// How often a port was closed. A thread that sees a number that is new to it looks for connections of closed ports:
    /// the connections that it makes after that look are of ports that it saw open later.
    #[inline]
    pub fn closings(&self) -> u32 {
        self.closings.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_port_opens_once_and_closes_once() {
        let ports = OpenPorts::new(&[80, u16::MAX]);
        assert_eq!(
            [80, u16::MAX, 81].map(|port| ports.backlog(port).is_some()),
            [true, true, false]
        );
        assert!(ports.open(81, 5) && !ports.open(81, 6) && !ports.open(80, 1));
        assert_eq!((ports.backlog(81), ports.closings()), (Some(5), 0));
        assert!(ports.close(81) && !ports.close(81));
        assert_eq!((ports.backlog(81), ports.closings()), (None, 1));
        // A backlog of nothing lets one in.
        assert!(ports.open(81, 0));
        assert_eq!(ports.backlog(81), Some(1));
    }
}
