//! What the requests are, and what their responses must be.
//!
//! A [`Request`] is eight bytes: what it asks for and of which key. Its bytes, and those of the
//! right response, are derived from it whenever they are needed, so that nothing is stored per
//! request and wrong bytes of any response can be detected.
//!
//! ```
//! use tailplane_load::{Request, Workload, WorkloadConfig};
//! let workload = Workload::new(&WorkloadConfig::usr(), 1)?;
//! let mut bytes = Vec::new();
//! workload.append(Request::get(7), &mut bytes);
//! assert_eq!(bytes, b"get k000000000000000007\r\n");
//! # Ok::<(), tailplane_load::ConfigError>(())
//! ```

use std::fmt;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::config::{ConfigError, check_range};
use crate::sizes::SizeDistribution;

/// Longest key of the memcached protocol, in bytes.
pub const KEY_BYTES_MAX: u32 = 250;
/// Longest value or echo message, in bytes: memcached's default item limit, less its header.
pub const VALUE_BYTES_MAX: u32 = 1_000_000;
/// Most keys.
pub const KEYS_MAX: u32 = 1 << 28;
/// Different contents that values can have: neighbouring keys differ, and the pattern that all
/// values are cut from stays in the first-level cache.
const PATTERN_OFFSETS: u64 = 4_096;

/// A kind of service and what it is asked.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase", tag = "kind")]
pub enum WorkloadConfig {
    /// GETs and SETs of the memcached text protocol.
    Memcached {
        /// Share of GETs among the requests, 0 to 1. Keys are chosen evenly.
        get_share: f64,
        /// Number of different keys.
        keys: u32,
        /// Length of the keys, in bytes.
        key_size: SizeDistribution,
        /// Length of the values, in bytes. A key's value always has the same length and content.
        value_size: SizeDistribution,
    },
    /// Messages that the service returns unchanged.
    Echo {
        /// Length of a message, in bytes.
        bytes: u32,
    },
}

impl WorkloadConfig {
    /// Facebook's USR pool as IX models it: keys under 20 bytes, values of 2 bytes, 99 % GETs
    /// (IX §5.5).
    pub const fn usr() -> Self {
        Self::Memcached {
            get_share: 0.99,
            keys: 100_000,
            key_size: SizeDistribution::Fixed(19),
            value_size: SizeDistribution::Fixed(2),
        }
    }

    /// Facebook's ETC pool as IX models it: keys of 20 to 70 bytes, values of 1 B to 1 KB, 75 %
    /// GETs (IX §5.5).
    pub const fn etc() -> Self {
        Self::Memcached {
            get_share: 0.75,
            keys: 100_000,
            key_size: SizeDistribution::Uniform { min: 20, max: 70 },
            value_size: SizeDistribution::Pareto {
                scale: 214.476,
                shape: 0.348_238,
                min: 1,
                max: 1_024,
            },
        }
    }

    /// The workload that a user names: `usr`, `etc`, or `echo:BYTES`.
    ///
    /// # Errors
    /// Any other name.
    pub fn named(name: &str) -> Result<Self, ConfigError> {
        match name {
            "usr" => Ok(Self::usr()),
            "etc" => Ok(Self::etc()),
            _ => name
                .strip_prefix("echo:")
                .and_then(|bytes| bytes.parse().ok())
                .map(|bytes| Self::Echo { bytes })
                .ok_or_else(|| ConfigError::new("workload", name, "usr, etc, echo:BYTES")),
        }
    }

    /// Checks every setting.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::Echo { bytes } => check_range("bytes", *bytes, 1, VALUE_BYTES_MAX),
            Self::Memcached { get_share, keys, key_size, value_size } => {
                check_range("get_share", *get_share, 0.0, 1.0)?;
                check_range("keys", *keys, 1, KEYS_MAX)?;
                // `k` and enough digits for the last key.
                let shortest = 2 + (*keys - 1).checked_ilog10().unwrap_or(0);
                key_size.validate("key_size", shortest, KEY_BYTES_MAX)?;
                value_size.validate("value_size", 1, VALUE_BYTES_MAX)
            }
        }
    }
}

impl fmt::Display for WorkloadConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Echo { bytes } => write!(f, "echo of {bytes} B"),
            Self::Memcached { get_share, keys, key_size, value_size } => write!(
                f,
                "memcached, {:.1} % GET, {keys} keys of {key_size} B, values of {value_size} B",
                get_share * 100.0
            ),
        }
    }
}

/// What a request asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// memcached `get`.
    Get,
    /// memcached `set`.
    Set,
    /// A message to be returned.
    Echo,
}

/// One request: everything that its bytes and its right response are derived from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What it asks for.
    pub kind: RequestKind,
    /// Index of the key; for an echo, any number: it chooses the message.
    pub key: u32,
}

impl Request {
    /// A GET of key `key`.
    pub const fn get(key: u32) -> Self {
        Self { kind: RequestKind::Get, key }
    }

    /// A SET of key `key` to its value.
    pub const fn set(key: u32) -> Self {
        Self { kind: RequestKind::Set, key }
    }

    /// An echo of message `key`.
    pub const fn echo(key: u32) -> Self {
        Self { kind: RequestKind::Echo, key }
    }
}

/// Lengths of the keys and values.
#[derive(Debug)]
enum Shapes {
    /// All keys alike: nothing to look up, no cache line to miss.
    Fixed { key_bytes: u32, value_bytes: u32 },
    /// One entry a key, drawn once.
    PerKey(Box<[(u8, u32)]>),
}

/// A checked [`WorkloadConfig`] with everything precomputed. Shared by the threads of a run.
#[derive(Debug)]
pub struct Workload {
    /// `None` for echo.
    memcached: Option<Memcached>,
    echo_bytes: u32,
    pattern: Box<[u8]>,
}

#[derive(Debug)]
struct Memcached {
    /// GET where 32 random bits are below this.
    get_threshold: u64,
    keys: u32,
    shapes: Shapes,
}

impl Workload {
    /// Precomputes `config`. Two workloads of the same configuration and seed agree on every
    /// byte, so that one may store what another reads.
    ///
    /// # Errors
    /// A setting that cannot be used.
    pub fn new(config: &WorkloadConfig, seed: u64) -> Result<Self, ConfigError> {
        config.validate()?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (memcached, longest) = match config {
            WorkloadConfig::Echo { bytes } => (None, *bytes),
            WorkloadConfig::Memcached { get_share, keys, key_size, value_size } => {
                let memcached = Memcached {
                    get_threshold: (get_share * (1u64 << 32) as f64) as u64,
                    keys: *keys,
                    shapes: draw_shapes(*keys, *key_size, *value_size, &mut rng),
                };
                (Some(memcached), value_size.max())
            }
        };
        let mut pattern = vec![0; longest as usize + PATTERN_OFFSETS as usize].into_boxed_slice();
        rng.fill_bytes(&mut pattern);
        let echo_bytes = if memcached.is_some() { 0 } else { longest };
        Ok(Self { memcached, echo_bytes, pattern })
    }

    /// Number of keys to store before the load: zero for echo.
    pub fn keys(&self) -> u32 {
        self.memcached.as_ref().map_or(0, |m| m.keys)
    }

    /// Chooses the next request.
    pub fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> Request {
        let random = rng.next_u64();
        let (high, low) = (random >> 32, random & 0xFFFF_FFFF);
        match &self.memcached {
            None => Request::echo(high as u32),
            Some(memcached) => {
                // Multiply and shift: even within 2^-32, without a division.
                let key = ((high * u64::from(memcached.keys)) >> 32) as u32;
                if low < memcached.get_threshold { Request::get(key) } else { Request::set(key) }
            }
        }
    }

    /// Appends the bytes of `request` to `out`.
    pub fn append(&self, request: Request, out: &mut Vec<u8>) {
        match request.kind {
            RequestKind::Echo => out.extend_from_slice(self.content(request)),
            RequestKind::Get => {
                out.extend_from_slice(b"get ");
                self.append_key(request.key, out);
                out.extend_from_slice(b"\r\n");
            }
            RequestKind::Set => {
                let content = self.content(request);
                out.extend_from_slice(b"set ");
                self.append_key(request.key, out);
                out.extend_from_slice(b" 0 0 ");
                append_decimal(content.len() as u32, out);
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(content);
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// The bytes that travel for `request`: the key's value, or the message to be returned.
    pub fn content(&self, request: Request) -> &[u8] {
        let bytes = match request.kind {
            RequestKind::Echo => self.echo_bytes,
            RequestKind::Get | RequestKind::Set => self.shape(request.key).1,
        };
        let start = (mix(request.key) % PATTERN_OFFSETS) as usize;
        &self.pattern[start..start + bytes as usize]
    }

    /// Whether `text` is the name of key `key`.
    pub(crate) fn is_key(&self, key: u32, text: &[u8]) -> bool {
        let (key_bytes, _) = self.shape(key);
        let Some((b'k', digits)) = text.split_first().map(|(first, rest)| (*first, rest)) else {
            return false;
        };
        if text.len() != key_bytes as usize {
            return false;
        }
        let mut rest = key;
        for &digit in digits.iter().rev() {
            if digit != b'0' + (rest % 10) as u8 {
                return false;
            }
            rest /= 10;
        }
        rest == 0
    }

    /// `k` and the key's index, filled up with zeros to the key's length: no two keys are alike.
    fn append_key(&self, key: u32, out: &mut Vec<u8>) {
        let (key_bytes, _) = self.shape(key);
        let start = out.len();
        out.resize(start + key_bytes as usize, b'0');
        out[start] = b'k';
        let mut rest = key;
        for place in out[start + 1..].iter_mut().rev() {
            if rest == 0 {
                break;
            }
            *place = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        debug_assert_eq!(rest, 0, "a checked configuration has room for every index");
    }

    /// Length of the key and of its value, in bytes. Keys that do not exist have no length.
    fn shape(&self, key: u32) -> (u32, u32) {
        match self.memcached.as_ref().map(|m| &m.shapes) {
            Some(Shapes::Fixed { key_bytes, value_bytes }) => (*key_bytes, *value_bytes),
            Some(Shapes::PerKey(shapes)) => {
                shapes.get(key as usize).map_or((0, 0), |(k, v)| (u32::from(*k), *v))
            }
            None => (0, 0),
        }
    }
}

fn draw_shapes(
    keys: u32,
    key_size: SizeDistribution,
    value_size: SizeDistribution,
    rng: &mut Xoshiro256PlusPlus,
) -> Shapes {
    if let (SizeDistribution::Fixed(key_bytes), SizeDistribution::Fixed(value_bytes)) =
        (key_size, value_size)
    {
        return Shapes::Fixed { key_bytes, value_bytes };
    }
    let shapes = (0..keys).map(|_| {
        let key_bytes = key_size.at(unit(rng.next_u64()));
        debug_assert!(key_bytes <= KEY_BYTES_MAX, "checked by the configuration");
        (key_bytes as u8, value_size.at(unit(rng.next_u64())))
    });
    Shapes::PerKey(shapes.collect())
}

/// 53 random bits as a number from 0 (included) to 1 (excluded).
fn unit(random: u64) -> f64 {
    (random >> 11) as f64 / (1u64 << 53) as f64
}

/// Spreads neighbouring indices (the finalizer of SplitMix64).
const fn mix(key: u32) -> u64 {
    let mut z = (key as u64).wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Appends `number` in decimal; `format!` would allocate.
fn append_decimal(number: u32, out: &mut Vec<u8>) {
    let mut digits = [0u8; 10];
    let mut at = digits.len();
    let mut rest = number;
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::sync::OnceLock;

    fn workload(config: &WorkloadConfig) -> Workload {
        Workload::new(config, 9).expect("a valid workload")
    }

    fn bytes_of(workload: &Workload, request: Request) -> Vec<u8> {
        let mut bytes = Vec::new();
        workload.append(request, &mut bytes);
        bytes
    }

    #[test]
    fn requests_are_those_of_the_memcached_protocol() {
        let workload = workload(&WorkloadConfig::Memcached {
            get_share: 0.5,
            keys: 1_000,
            key_size: SizeDistribution::Fixed(6),
            value_size: SizeDistribution::Fixed(12),
        });
        assert_eq!(bytes_of(&workload, Request::get(0)), b"get k00000\r\n");
        assert_eq!(bytes_of(&workload, Request::get(999)), b"get k00999\r\n");
        let mut expected = b"set k00042 0 0 12\r\n".to_vec();
        expected.extend_from_slice(workload.content(Request::get(42)));
        expected.extend_from_slice(b"\r\n");
        assert_eq!(bytes_of(&workload, Request::set(42)), expected);
        assert_ne!(workload.content(Request::get(42)), workload.content(Request::get(43)));
    }

    #[test]
    fn two_workloads_of_one_seed_agree_on_every_value() {
        let (a, b) = (workload(&WorkloadConfig::etc()), workload(&WorkloadConfig::etc()));
        for key in (0..a.keys()).step_by(997) {
            assert_eq!(bytes_of(&a, Request::set(key)), bytes_of(&b, Request::set(key)));
        }
    }

    #[test]
    fn the_share_of_gets_and_the_spread_of_keys_are_as_asked() {
        let config = WorkloadConfig::Memcached {
            get_share: 0.75,
            keys: 10,
            key_size: SizeDistribution::Fixed(2),
            value_size: SizeDistribution::Fixed(1),
        };
        let workload = workload(&config);
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
        let mut gets = 0;
        let mut per_key = [0u32; 10];
        for _ in 0..100_000 {
            let request = workload.draw(&mut rng);
            gets += u32::from(request.kind == RequestKind::Get);
            per_key[request.key as usize] += 1;
        }
        // Six standard deviations of a binomial.
        assert!((i64::from(gets) - 75_000).abs() < 6 * 137, "{gets} GETs of 100,000");
        assert!(per_key.iter().all(|&n| n.abs_diff(10_000) < 6 * 95), "{per_key:?}");
    }

    #[test]
    fn shares_of_zero_and_one_mean_never_and_always() {
        for (get_share, kind) in [(0.0, RequestKind::Set), (1.0, RequestKind::Get)] {
            let workload = workload(&WorkloadConfig::Memcached {
                get_share,
                keys: 3,
                key_size: SizeDistribution::Fixed(2),
                value_size: SizeDistribution::Fixed(1),
            });
            let mut rng = Xoshiro256PlusPlus::seed_from_u64(5);
            assert!((0..10_000).all(|_| workload.draw(&mut rng).kind == kind));
        }
    }

    #[test]
    fn keys_too_short_for_their_number_are_refused() {
        let config = |keys, bytes| WorkloadConfig::Memcached {
            get_share: 1.0,
            keys,
            key_size: SizeDistribution::Fixed(bytes),
            value_size: SizeDistribution::Fixed(1),
        };
        config(10, 2).validate().expect("k0 to k9");
        config(1, 2).validate().expect("k0");
        assert_eq!(
            config(11, 2).validate().expect_err("k10 has three").to_string(),
            "`key_size` is `2`; allowed: sizes from 3 to 250 bytes"
        );
        assert!(WorkloadConfig::named("echo:").is_err());
        assert_eq!(WorkloadConfig::named("echo:64"), Ok(WorkloadConfig::Echo { bytes: 64 }));
    }

    proptest! {
        #[test]
        fn a_key_is_recognized_and_no_other(a in 0u32..100_000, b in 0u32..100_000) {
            // Drawing 100,000 lengths for every case would take most of the tests' time.
            static ETC: OnceLock<Workload> = OnceLock::new();
            let workload = ETC.get_or_init(|| workload(&WorkloadConfig::etc()));
            let mut name = Vec::new();
            workload.append_key(a, &mut name);
            prop_assert!((20..=70).contains(&name.len()));
            prop_assert_eq!(workload.is_key(b, &name), a == b);
            prop_assert!(workload.is_key(a, &name));
            name.push(b'0');
            prop_assert!(!workload.is_key(a, &name));
        }

        #[test]
        fn decimals_are_right(number: u32) {
            let mut out = Vec::new();
            append_decimal(number, &mut out);
            prop_assert_eq!(out, number.to_string().into_bytes());
        }
    }
}
