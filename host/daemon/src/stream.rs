//! A connection that is read and written without waiting, and holds a bounded number of bytes each way.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::{SendFlags, Shutdown, send, shutdown};

/// Bytes that are read at a time.
const READ_BYTES: usize = 16 * 1024;

/// A peer that was told everything has so long to close the connection, in nanoseconds.
const LINGER_NS: u64 = 1_000_000_000;

/// See the module's comment.
#[derive(Debug)]
pub struct Pipe {
    stream: OwnedFd,
    /// What has come and was not taken.
    pub input: Vec<u8>,
    output: Vec<u8>,
    sent: usize,
    progress_ns: u64,
    /// Nothing more is said; until then the peer may still send what nobody wants.
    lingers_ns: Option<u64>,
    /// The peer sends nothing more.
    pub ended: bool,
}

impl Pipe {
    /// Over a stream's socket, at a Unix socket's or over TCP, which does not wait.
    pub fn new(stream: OwnedFd, now_ns: u64) -> Self {
        let (input, output) = (Vec::new(), Vec::new());
        Self { stream, input, output, sent: 0, progress_ns: now_ns, lingers_ns: None, ended: false }
    }

    /// Reads what is there, until `most` bytes are.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn fill(&mut self, most: usize) -> io::Result<()> {
        while !self.ended && self.input.len() < most {
            let mut bytes = [0; READ_BYTES];
            let room = READ_BYTES.min(most - self.input.len());
            match rustix::io::read(&self.stream, &mut bytes[..room]) {
                Ok(0) => self.ended = true,
                Ok(len) => self.input.extend_from_slice(&bytes[..len]),
                Err(Errno::WOULDBLOCK) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        Ok(())
    }

    /// Appends what is to be written.
    pub fn put(&mut self, bytes: &[u8], now_ns: u64) {
        if self.output.is_empty() {
            self.progress_ns = now_ns;
        }
        self.output.extend_from_slice(bytes);
    }

    /// Writes what can be.
    ///
    /// # Errors
    /// The connection is broken.
    pub fn flush(&mut self, now_ns: u64) -> io::Result<()> {
        while self.sent < self.output.len() {
            match send(&self.stream, &self.output[self.sent..], SendFlags::NOSIGNAL) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(len) => (self.sent, self.progress_ns) = (self.sent + len, now_ns),
                Err(Errno::WOULDBLOCK) => break,
                Err(Errno::INTR) => {}
                Err(errno) => return Err(errno.into()),
            }
        }
        // What was sent is let go when it is all, or most of a lot.
        if self.sent == self.output.len() || self.sent > READ_BYTES {
            self.output.drain(..self.sent);
            self.sent = 0;
        }
        Ok(())
    }

    /// Everything was said: the connection ends once all is written and the peer has closed it, or after a while.
    /// Closing it at once would take what was written away from a peer that still sends. Whether it is over.
    pub fn linger(&mut self, now_ns: u64) -> bool {
        if self.unsent() > 0 {
            return false;
        }
        let until_ns = *self.lingers_ns.get_or_insert_with(|| {
            // It fails where the peer has gone first.
            let _ = shutdown(&self.stream, Shutdown::Write);
            now_ns + LINGER_NS
        });
        self.input.clear();
        let broken = self.fill(READ_BYTES).is_err();
        broken || self.ended || now_ns >= until_ns
    }

    /// Bytes that are still to be written.
    pub fn unsent(&self) -> usize {
        self.output.len() - self.sent
    }

    /// For how long nothing of what is to be written could be.
    pub fn stalled_ns(&self, now_ns: u64) -> u64 {
        if self.unsent() == 0 { 0 } else { now_ns.saturating_sub(self.progress_ns) }
    }

    /// What to poll for: to be read where `reads`, to be written where there is something.
    pub fn interest(&self, reads: bool) -> PollFlags {
        let mut flags = PollFlags::empty();
        flags.set(PollFlags::IN, reads && !self.ended);
        flags.set(PollFlags::OUT, self.unsent() > 0);
        flags
    }
}

impl AsFd for Pipe {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.stream.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    use super::*;

    fn pair() -> (Pipe, UnixStream) {
        let (near, far) = UnixStream::pair().expect("sockets");
        near.set_nonblocking(true).expect("set");
        (Pipe::new(near.into(), 0), far)
    }

    #[test]
    fn no_more_is_read_than_there_is_room_for() {
        let (mut pipe, mut far) = pair();
        far.write_all(&[7; 50_000]).expect("written");
        pipe.fill(40_000).expect("read");
        assert_eq!((pipe.input.len(), pipe.ended), (40_000, false));
        pipe.fill(40_000).expect("read");
        assert_eq!(pipe.input.len(), 40_000);
        pipe.input.clear();
        drop(far);
        pipe.fill(40_000).expect("read");
        assert_eq!((pipe.input.len(), pipe.ended), (10_000, true));
        assert!(pipe.interest(true).is_empty());
    }

    #[test]
    fn a_peer_that_still_sends_reads_what_it_was_told() {
        let (mut pipe, mut far) = pair();
        far.write_all(&[7; 30_000]).expect("written");
        pipe.put(b"enough", 0);
        assert!(!pipe.linger(0), "it is not written yet");
        pipe.flush(0).expect("written");
        assert!(!pipe.linger(0) && !pipe.linger(1), "the peer has not closed it");
        far.write_all(&[7; 30_000]).expect("it is still read");
        assert!(!pipe.linger(2) && !pipe.linger(3) && !pipe.linger(4));
        let mut told = String::new();
        far.read_to_string(&mut told).expect("the whole of it");
        assert_eq!(told, "enough");
        assert!(pipe.linger(LINGER_NS), "it does not close it");
        drop(far);
        assert!(pipe.linger(5));
    }

    #[test]
    fn what_cannot_be_written_waits_and_its_time_is_known() {
        let (mut pipe, mut far) = pair();
        pipe.put(&vec![1; 1 << 20], 5);
        pipe.flush(10).expect("written");
        let left = pipe.unsent();
        assert!(left > 0 && left < 1 << 20 && pipe.interest(false) == PollFlags::OUT);
        assert_eq!(pipe.stalled_ns(25), 15);
        let mut read = vec![0; 1 << 20];
        let mut at = 0;
        while at < read.len() {
            pipe.flush(30).expect("written");
            at += far.read(&mut read[at..]).expect("read");
        }
        assert_eq!((pipe.unsent(), pipe.stalled_ns(99)), (0, 0));
        assert!(read.iter().all(|byte| *byte == 1));
        drop(far);
        pipe.put(b"x", 31);
        assert!(pipe.flush(32).is_err());
    }
}
