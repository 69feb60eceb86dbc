//! A seeded source of valid, odd and wrong commands, shared by the tests.
#![allow(dead_code, reason = "each test uses its part")]

mod conversation;

pub use conversation::Conversation;
use kv::{Flow, Store, StoreConfig, WallTime};

/// xorshift64*: small, seeded, and the same everywhere.
pub struct Rng(pub u64);

impl Rng {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, limit: usize) -> usize {
        (self.next() >> 16) as usize % limit
    }

    pub fn one_in(&mut self, chances: usize) -> bool {
        self.below(chances) == 0
    }

    pub fn pick<'a, T: ?Sized>(&mut self, from: &[&'a T]) -> &'a T {
        from[self.below(from.len())]
    }
}

pub const NOW: WallTime = WallTime::from_unix_s(1_800_000_000);

pub fn store() -> Store {
    Store::new(StoreConfig::default(), [3, 5]).expect("the default limits are valid")
}

/// A store that is quickly made.
pub fn small_store() -> Store {
    let config = StoreConfig { memory_limit_bytes: 6 << 20, shards: 1, ..StoreConfig::default() };
    Store::new(config, [3, 5]).expect("one shard of 6 MiB holds two largest items")
}

/// Feeds a whole stream at once to a new session.
pub fn talk(store: &Store, now: WallTime, input: &[u8]) -> (Vec<u8>, Flow) {
    let mut out = Vec::new();
    let verdict = Conversation::new().feed(store, now, input, &mut out);
    (out, verdict)
}

/// Expects exactly this reply, and that the connection goes on.
#[track_caller]
pub fn expect(store: &Store, now: WallTime, input: &str, reply: &str) {
    let (out, verdict) = talk(store, now, input.as_bytes());
    let shown = String::from_utf8_lossy(&out).into_owned();
    assert_eq!(shown, reply, "reply to {input:?}");
    assert_eq!(verdict, Flow::Continue, "after {input:?}");
}

/// A random command. `{C}`, `{L}` and `{H}` stand for the CAS value of the key named, one less and one
/// more; `large` also makes values of many chunks.
pub fn command(rng: &mut Rng, large: bool) -> (String, Vec<u8>) {
    let name = format!("k{}", rng.below(12));
    let key = match rng.below(40) {
        0 => "x".repeat(250),
        1 => "y".repeat(251),
        _ => name,
    };
    let flags = rng.pick(&["0", "1", "7", "4294967295", "4294967296", "-1", "x"]);
    let flags = if rng.one_in(4) { flags } else { "5" };
    let exptime =
        if rng.one_in(3) { rng.pick(&["-1", "1000", "86400", "2592001", "z"]) } else { "0" };
    let noreply = if rng.one_in(6) { " noreply" } else { "" };
    let value = value(rng, large);
    let declared = if rng.one_in(25) { value.len().saturating_sub(1) } else { value.len() };
    let text = match rng.below(26) {
        0..=4 => format!("get {key}"),
        5 => format!("get {key} k1 k2  k3 {}", "k4 ".repeat(rng.below(30))),
        6 => format!("{} {key} k5", rng.pick(&["gets", "bget"])),
        7 => format!("{} {exptime} {key} k1", rng.pick(&["gat", "gats"])),
        8..=13 => {
            let verb = rng.pick(&["set", "set", "set", "add", "replace", "append", "prepend"]);
            return with_value(
                &key,
                format!("{verb} {key} {flags} {exptime} {declared}{noreply}"),
                &value,
            );
        }
        14 => {
            let cas = rng.pick(&["{C}", "{C}", "{L}", "{H}", "0", "x"]);
            return with_value(
                &key,
                format!("cas {key} {flags} {exptime} {declared} {cas}{noreply}"),
                &value,
            );
        }
        15 => format!("delete {key}{}{noreply}", rng.pick(&["", "", " 0", " 1"])),
        16 => {
            let delta = rng.pick(&["1", "10", "18446744073709551615", "-1", "a"]);
            format!("{} {key} {delta}{noreply}", rng.pick(&["incr", "decr"]))
        }
        17 => format!("touch {key} {exptime}{noreply}"),
        18..=19 => format!("mg {key}{}", meta_flags(rng, "vtcfhkOquslNRT")),
        20..=21 => {
            let flags = meta_flags(rng, "ckOqTFCMI");
            return with_value(&key, format!("ms {key} {declared}{flags}"), &value);
        }
        22 => format!("md {key}{}", meta_flags(rng, "qkOCIT")),
        23 => format!("ma {key}{}", meta_flags(rng, "tcvqkONJDTCM")),
        24 => format!("me {key}"),
        _ => rng
            .pick(&[
                "verbosity 1",
                "verbosity",
                "flush_all",
                "flush_all noreply",
                "flush_all x",
                "",
                " ",
                "\r",
                "get",
                "set k1 0 0",
                "set k1 0 0 -1",
                "nonsense",
                "delete",
                "incr k1",
                "touch k1",
                "mg",
                "ms k1",
                "md",
                "ma",
                "me",
                "mx",
                "GET k1",
                "get\tk1",
                "stats detail",
                "shutdown",
                "cas k1 0 0 1",
                "gat 0",
                "gat x k1",
                "mg k1 v v",
                "mg k1 !",
                "ms k1 2 MQ\r\nhi",
            ])
            .to_string(),
    };
    (key, format!("{text}\r\n").into_bytes())
}

fn with_value(key: &str, line: String, value: &[u8]) -> (String, Vec<u8>) {
    let mut bytes = format!("{line}\r\n").into_bytes();
    bytes.extend_from_slice(value);
    bytes.extend_from_slice(b"\r\n");
    (key.to_owned(), bytes)
}

fn value(rng: &mut Rng, large: bool) -> Vec<u8> {
    match rng.below(10) {
        0 => Vec::new(),
        1..=4 => rng.below(1_000_000).to_string().into_bytes(),
        5 => b"12 ab".to_vec(),
        // With newlines: a value whose command was refused is read as command lines, and those have a limit.
        6 if large => (0..rng.below(60_000))
            .map(|at| if at % 701 == 700 { b'\n' } else { b'a' + (at % 23) as u8 })
            .collect(),
        _ => (0..rng.below(400)).map(|at| b'a' + (at % 23) as u8).collect(),
    }
}

fn meta_flags(rng: &mut Rng, allowed: &str) -> String {
    let mut text = String::new();
    for flag in allowed.chars() {
        if !rng.one_in(3) {
            continue;
        }
        let argument = match flag {
            'O' => rng.pick(&["", "123", "opaque"]),
            'N' | 'T' => rng.pick(&["0", "30", "1000"]),
            // Never what T says: two servers' seconds do not begin together.
            'R' => rng.pick(&["0", "60", "500"]),
            'F' => rng.pick(&["0", "9"]),
            'C' => rng.pick(&["{C}", "{C}", "{L}", "{H}"]),
            'M' if allowed.contains('F') => rng.pick(&["E", "A", "P", "R", "S", "s"]),
            'M' => rng.pick(&["I", "D", "+", "-", "x"]),
            'J' | 'D' => rng.pick(&["0", "7", "99999"]),
            _ => "",
        };
        text.push_str(&format!(" {flag}{argument}"));
    }
    text
}

/// A stream of random commands.
pub fn stream(seed: u64, commands: usize, large: bool) -> Vec<u8> {
    let mut rng = Rng(seed | 1);
    let mut stream = Vec::new();
    for _ in 0..commands {
        let text = String::from_utf8(command(&mut rng, large).1).expect("commands are text");
        stream.extend_from_slice(
            text.replace("{C}", "1").replace("{L}", "1").replace("{H}", "2").as_bytes(),
        );
    }
    stream
}
