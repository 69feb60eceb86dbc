//! The ports on which a dataplane receives, shared by its elastic threads and changed while they run.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::sync::atomic::{AtomicU32, Ordering};

/// The half of a word that has the backlog.
const BACKLOG: u32 = u16::MAX as u32;

/// The open ports of one transport.
///
/// Relaxed operations are enough for a port's word: no other memory is published with it, and a SYN or a datagram that
/// arrives while its port opens or closes may be judged either way.
pub(crate) struct OpenPorts {
    /// By port, in the lower half: connections that may be open and not accepted, one at least; 0: the port is closed. In
    /// the upper half the number of its opening.
    words: Box<[AtomicU32]>,
    /// How often a port was closed. See [`closings`](Self::closings).
    closings: AtomicU32,
}

impl OpenPorts {
    /// Open are those of a configuration, with the configuration's backlog.
    pub fn new(open: &[u16]) -> Self {
        let mut words: Vec<AtomicU32> = Vec::new();
        words.resize_with(1 << 16, AtomicU32::default);
        for &port in open {
            *words[usize::from(port)].get_mut() = BACKLOG;
        }
        Self { words: words.into(), closings: AtomicU32::new(0) }
    }

    fn word(&self, port: u16) -> &AtomicU32 {
        &self.words[usize::from(port)]
    }

    /// Connections that may be open and not accepted on a port; `None`: it is closed.
    #[inline]
    pub fn backlog(&self, port: u16) -> Option<u32> {
        let backlog = self.word(port).load(Ordering::Relaxed) & BACKLOG;
        (backlog > 0).then_some(backlog)
    }

    /// Whether a port is open.
    #[inline]
    pub fn is_open(&self, port: u16) -> bool {
        self.backlog(port).is_some()
    }

    /// The number of a port's opening: the last one, where it is closed.
    pub fn opening(&self, port: u16) -> u16 {
        (self.word(port).load(Ordering::Relaxed) >> u16::BITS) as u16
    }

    /// Whether a port has been open since this opening.
    pub fn is_open_since(&self, port: u16, opening: u16) -> bool {
        self.is_open(port) && self.opening(port) == opening
    }

    /// Opens a port. Answers false where it was open: of several threads that open it, one does.
    pub fn open(&self, port: u16, backlog: u16) -> bool {
        let (relaxed, word) = (Ordering::Relaxed, self.word(port));
        let closed = word.load(relaxed);
        let open = (closed & !BACKLOG).wrapping_add(BACKLOG + 1) | u32::from(backlog.max(1));
        closed & BACKLOG == 0 && word.compare_exchange(closed, open, relaxed, relaxed).is_ok()
    }

    /// Closes a port. Answers false where it was closed.
    pub fn close(&self, port: u16) -> bool {
        let was_open = self.word(port).fetch_and(!BACKLOG, Ordering::Relaxed) & BACKLOG > 0;
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
        let opening = ports.opening(81);
        assert!(!ports.is_open_since(81, opening));
        // A backlog of nothing lets one in.
        assert!(ports.open(81, 0));
        assert_eq!(ports.backlog(81), Some(1));
        assert!(!ports.is_open_since(81, opening) && ports.is_open_since(81, opening + 1));
        assert!(ports.is_open_since(80, 0) && ports.close(80) && !ports.is_open_since(80, 0));
    }
}
