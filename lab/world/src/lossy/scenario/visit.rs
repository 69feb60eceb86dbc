//! `churn`: connect, one request, one answer, close. The request says who closes first.

use clock::Instant;
use tailplane::{Flow, Opened, Output, Protocol};

use super::bytes::{Received, bytes_of};
use crate::dice::Dice;
use crate::lossy::client::{Io, Script};

/// Name, bytes wanted, who closes first.
const REQUEST: usize = 17;
const CLIENT_CLOSES: u8 = 0;
const CLIENT_CLOSES_EARLY: u8 = 1;
const SERVER_CLOSES: u8 = 2;

/// The client's side.
pub struct Visit {
    name: u64,
    wanted: u64,
    closes: u8,
    received: Received,
}

impl Visit {
    pub fn new(name: u64, mut dice: Dice) -> Self {
        let closes = dice.pick(&[CLIENT_CLOSES, CLIENT_CLOSES_EARLY, SERVER_CLOSES]);
        Self { name, wanted: dice.spread(1, 4_000), closes, received: Received::of(name) }
    }
}

impl Script for Visit {
    fn opened(&mut self, _: Instant, io: &mut Io) {
        io.put(&self.name.to_le_bytes());
        io.put(&self.wanted.to_le_bytes());
        io.put(&[self.closes]);
        if self.closes == CLIENT_CLOSES_EARLY {
            io.close = true;
        }
    }

    fn received(&mut self, _: Instant, data: &[u8], io: &mut Io) -> Result<(), String> {
        self.received.take(data, self.wanted)?;
        if self.received.bytes == self.wanted && self.closes == CLIENT_CLOSES {
            io.close = true;
        }
        Ok(())
    }

    fn finished(&self) -> Result<(), String> {
        self.received.is_whole(self.wanted)
    }
}

/// The server's side.
pub struct Host;

impl Protocol for Host {
    type Connection = Vec<u8>;

    fn open(&mut self, _: Instant, _: Opened) -> Option<Vec<u8>> {
        Some(Vec::new())
    }

    fn receive(
        &mut self,
        _: Instant,
        request: &mut Vec<u8>,
        data: &[u8],
        output: &mut Output<'_, '_>,
    ) -> Flow {
        request.extend_from_slice(data);
        let Some((name, rest)) = request.split_first_chunk() else { return Flow::Continue };
        let Some((wanted, &[closes])) = rest.split_first_chunk() else { return Flow::Continue };
        let (name, wanted) = (u64::from_le_bytes(*name), u64::from_le_bytes(*wanted));
        debug_assert_eq!(request.len(), REQUEST);
        output.put(&bytes_of(name, 0, wanted.min(1 << 20) as usize).collect::<Vec<_>>());
        if closes == SERVER_CLOSES { Flow::Close } else { Flow::Continue }
    }
}
