//! `kv`: memcached text requests, several on their way at a time, the answers compared with those of a
//! map. Each connection has keys of its own, so that the map need not know the others.

use std::collections::{HashMap, VecDeque};

use clock::{Duration, Instant};

use super::bytes::bytes_of;
use crate::dice::Dice;
use crate::lossy::client::{Io, Script};
use crate::lossy::watch::ensure;

const KEYS: u64 = 6;

/// The client's side. The server is the key-value service itself.
pub struct Requests {
    name: u64,
    left: u64,
    /// Requests on their way at a time.
    depth: usize,
    /// What each key holds: flags and value.
    model: HashMap<u64, (u64, Vec<u8>)>,
    /// Answers to come, one for each request on its way.
    expected: VecDeque<Vec<u8>>,
    /// The part of the first answer that has come.
    matched: usize,
    dice: Dice,
}

impl Requests {
    pub fn new(name: u64, mut dice: Dice) -> Self {
        Self {
            name,
            left: dice.between(5, 60),
            depth: dice.between(1, 5) as usize,
            model: HashMap::new(),
            expected: VecDeque::new(),
            matched: 0,
            dice,
        }
    }

    fn ask(&mut self, io: &mut Io) {
        while self.left > 0 && self.expected.len() < self.depth {
            self.left -= 1;
            let number = self.dice.below(KEYS);
            let key = format!("c{:x}-{number}", self.name);
            let answer = match self.dice.below(10) {
                0..4 => {
                    let (size, flags) = (self.dice.spread(1, 20_000), self.dice.below(1 << 16));
                    let value: Vec<u8> = bytes_of(self.dice.next(), 0, size as usize).collect();
                    io.put(format!("set {key} {flags} 0 {size}\r\n").as_bytes());
                    io.put(&value);
                    io.put(b"\r\n");
                    self.model.insert(number, (flags, value));
                    b"STORED\r\n".to_vec()
                }
                4..9 => {
                    io.put(format!("get {key}\r\n").as_bytes());
                    let mut answer = Vec::new();
                    if let Some((flags, value)) = self.model.get(&number) {
                        let size = value.len();
                        answer.extend(format!("VALUE {key} {flags} {size}\r\n").as_bytes());
                        answer.extend(value);
                        answer.extend(b"\r\n");
                    }
                    answer.extend(b"END\r\n");
                    answer
                }
                _ => {
                    io.put(format!("delete {key}\r\n").as_bytes());
                    match self.model.remove(&number) {
                        Some(_) => b"DELETED\r\n".to_vec(),
                        None => b"NOT_FOUND\r\n".to_vec(),
                    }
                }
            };
            self.expected.push_back(answer);
        }
        if self.left == 0 && self.expected.is_empty() {
            io.close = true;
        }
    }
}

impl Script for Requests {
    fn opened(&mut self, _: Instant, io: &mut Io) {
        self.ask(io);
    }

    fn received(&mut self, now: Instant, data: &[u8], io: &mut Io) -> Result<(), String> {
        for &byte in data {
            let Some(answer) = self.expected.front() else {
                return Err("an answer that nobody asked for".to_owned());
            };
            if answer[self.matched] != byte {
                let head = String::from_utf8_lossy(&answer[..answer.len().min(40)]);
                let at = self.matched;
                return Err(format!("byte {at} of the answer is wrong, expected {head:?}"));
            }
            self.matched += 1;
            if self.matched == answer.len() {
                self.matched = 0;
                self.expected.pop_front();
            }
        }
        if self.dice.chance(0.9) {
            self.ask(io);
        } else {
            let pause = self.dice.duration(Duration::ZERO, Duration::from_millis(30));
            io.wake_at = Some(now + pause);
        }
        Ok(())
    }

    fn woken(&mut self, _: Instant, io: &mut Io) {
        self.ask(io);
    }

    fn finished(&self) -> Result<(), String> {
        let is_done = self.left == 0 && self.expected.is_empty();
        ensure(is_done, || format!("{} answers are missing", self.expected.len()))
    }
}
