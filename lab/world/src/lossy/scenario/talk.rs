//! `echo`: messages of some bytes to some thousand, each answered before the next, with pauses.

use clock::{Duration, Instant};

use super::bytes::{Received, bytes_of};
use crate::dice::Dice;
use crate::lossy::client::{Io, Script};
use crate::lossy::watch::ensure;

/// The client's side. The server is the echo service itself.
pub struct Talk {
    name: u64,
    messages: u64,
    sent: u64,
    received: Received,
    dice: Dice,
}

impl Talk {
    pub fn new(name: u64, mut dice: Dice) -> Self {
        Self { name, messages: dice.between(1, 30), sent: 0, received: Received::of(name), dice }
    }

    fn say(&mut self, io: &mut Io) {
        let count = self.dice.spread(1, 3_000);
        io.put(&bytes_of(self.name, self.sent, count as usize).collect::<Vec<_>>());
        self.sent += count;
        self.messages -= 1;
        if self.messages == 0 && self.dice.chance(0.5) {
            // The last answer comes back on a connection that is half closed.
            io.close = true;
        }
    }
}

impl Script for Talk {
    fn opened(&mut self, _: Instant, io: &mut Io) {
        self.say(io);
    }

    fn received(&mut self, now: Instant, data: &[u8], io: &mut Io) -> Result<(), String> {
        self.received.take(data, self.sent)?;
        if self.received.bytes == self.sent {
            match self.messages {
                0 => io.close = true,
                _ if self.dice.chance(0.5) => self.say(io),
                _ => {
                    let pause = self.dice.duration(Duration::ZERO, Duration::from_millis(60));
                    io.wake_at = Some(now + pause);
                }
            }
        }
        Ok(())
    }

    fn woken(&mut self, _: Instant, io: &mut Io) {
        self.say(io);
    }

    fn finished(&self) -> Result<(), String> {
        self.received.is_whole(self.sent)?;
        ensure(self.messages == 0, || format!("{} messages were not sent", self.messages))
    }
}
