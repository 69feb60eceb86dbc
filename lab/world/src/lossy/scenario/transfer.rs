//! `bulk`: bytes in both directions at once. The client says in its first bytes who it is, how much it
//! will send, and how much it wants.

use clock::Instant;
use tailplane::{Flow, Opened, Output, Protocol};

use super::bytes::{Received, bytes_of, compare};
use crate::dice::Dice;
use crate::lossy::client::{Io, Script};

/// Name, bytes to the server behind these, bytes back.
const HEADER: usize = 24;
const MAX_BYTES: u64 = 200_000;

/// Keys of the streams in the two directions.
fn keys(name: u64) -> (u64, u64) {
    (name << 1, name << 1 | 1)
}

/// The client's side.
pub struct Transfer {
    name: u64,
    there: u64,
    back: u64,
    received: Received,
}

impl Transfer {
    pub fn new(name: u64, mut dice: Dice) -> Self {
        let (there, back) = (dice.spread(1_000, MAX_BYTES), dice.spread(1_000, MAX_BYTES));
        Self { name, there, back, received: Received::of(keys(name).1) }
    }
}

impl Script for Transfer {
    fn opened(&mut self, _: Instant, io: &mut Io) {
        let (key, _) = keys(self.name);
        [self.name, self.there, self.back].iter().for_each(|word| io.put(&word.to_le_bytes()));
        io.put(&bytes_of(key, 0, self.there as usize).collect::<Vec<_>>());
        // The other direction goes on when this one is closed.
        io.close = true;
    }

    fn received(&mut self, _: Instant, data: &[u8], _: &mut Io) -> Result<(), String> {
        self.received.take(data, self.back)
    }

    fn finished(&self) -> Result<(), String> {
        self.received.is_whole(self.back)
    }
}

/// The server's side.
pub struct Exchange;

/// One connection of it.
#[derive(Default)]
pub struct Receiving {
    header: Vec<u8>,
    received: u64,
}

impl Receiving {
    fn word(&self, index: usize) -> u64 {
        let bytes = self.header.get(8 * index..8 * index + 8);
        bytes.and_then(|bytes| bytes.try_into().ok()).map_or(0, u64::from_le_bytes)
    }
}

impl Protocol for Exchange {
    type Connection = Receiving;

    fn open(&mut self, _: Instant, _: Opened) -> Option<Receiving> {
        Some(Receiving::default())
    }

    fn receive(
        &mut self,
        _: Instant,
        connection: &mut Receiving,
        data: &[u8],
        output: &mut Output<'_, '_>,
    ) -> Flow {
        let missing = (HEADER - connection.header.len()).min(data.len());
        let (header, body) = data.split_at(missing);
        connection.header.extend_from_slice(header);
        if connection.header.len() < HEADER {
            return Flow::Continue;
        }
        let [name, there, back] = [0, 1, 2].map(|index| connection.word(index));
        let (key, back_key) = keys(name);
        if missing > 0 {
            let count = back.min(MAX_BYTES) as usize;
            output.put(&bytes_of(back_key, 0, count).collect::<Vec<_>>());
        }
        // The client sees a reset, and says that it died: the run fails.
        if compare(key, connection.received, body).is_err() {
            return Flow::Abort;
        }
        connection.received += body.len() as u64;
        if connection.received > there { Flow::Abort } else { Flow::Continue }
    }

    fn end(&mut self, _: Instant, connection: &mut Receiving, _: &mut Output<'_, '_>) -> Flow {
        let whole = connection.received == connection.word(1);
        if whole { Flow::Close } else { Flow::Abort }
    }
}
