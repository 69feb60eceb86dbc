//! What both ends do with a connection: each sends its stream, reads the other's and checks each byte.

/// What came of a read or a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Got {
    Bytes(usize),
    /// Nothing yet.
    Nothing,
    /// The other end sends no more.
    End,
    /// The connection is gone.
    Failed,
}

/// One end of a connection, which never blocks.
pub trait Stream {
    fn send(&mut self, bytes: &[u8]) -> Got;
    fn receive(&mut self, buffer: &mut [u8]) -> Got;
    /// Sends no more.
    fn shutdown(&mut self);
}

/// The plan of one end, and how far it has come.
#[derive(Clone, Copy, Debug, Default)]
pub struct Talk {
    /// Bytes to send; the end sends its FIN behind them where `ends`.
    pub bytes: usize,
    pub ends: bool,
    /// It does not read.
    pub is_deaf: bool,
    /// It does not send yet.
    pub is_mute: bool,
    pub sent: usize,
    pub received: usize,
    /// It has sent its last byte and said so.
    pub has_ended: bool,
    /// It has read the other's last byte.
    pub heard_end: bool,
    pub has_failed: bool,
}

impl Talk {
    /// Sends so many bytes and then its end.
    pub fn of(bytes: usize) -> Self {
        Self { bytes, ends: true, ..Self::default() }
    }

    /// Sends so many bytes, and keeps the connection open.
    pub fn open(bytes: usize) -> Self {
        Self { bytes, ..Self::default() }
    }

    /// All that was to be done is done.
    pub fn is_done(&self) -> bool {
        self.sent == self.bytes && self.has_ended == self.ends
    }

    /// Does what can be done now.
    pub fn go_on(&mut self, stream: &mut impl Stream) {
        if self.sent < self.bytes && !self.is_mute && !self.has_failed {
            let len = (self.bytes - self.sent).min(4_096);
            match stream.send(&pattern(self.sent, len)) {
                Got::Bytes(bytes) => self.sent += bytes,
                Got::Failed => self.has_failed = true,
                Got::Nothing | Got::End => {}
            }
        }
        if self.sent == self.bytes && self.ends && !self.has_ended {
            stream.shutdown();
            self.has_ended = true;
        }
        let mut buffer = [0; 4_096];
        while !self.is_deaf && !self.heard_end && !self.has_failed {
            match stream.receive(&mut buffer) {
                Got::Bytes(bytes) => {
                    let expected = pattern(self.received, bytes);
                    assert!(buffer[..bytes] == expected, "wrong bytes behind {}", self.received);
                    self.received += bytes;
                }
                Got::Nothing => break,
                Got::End => self.heard_end = true,
                Got::Failed => self.has_failed = true,
            }
        }
    }
}

/// Bytes of the stream that both ends send. The period is no divisor of any segment's length.
fn pattern(from: usize, len: usize) -> Vec<u8> {
    (from..from + len).map(|offset| ((offset % 65_521 * 7) >> 3) as u8).collect()
}
