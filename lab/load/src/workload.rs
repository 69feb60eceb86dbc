//! What the requests are, and what their responses must be.
//!
//! A [`Request`] is eight bytes: what it asks for and of which key. Its bytes, and those of the
//! right response, are derived from it whenever they are needed, so that nothing is stored per
//! request and wrong bytes of any response can be detected.
//!
//! ```
//! use load::{Request, Workload, WorkloadConfig};
//! let workload = Workload::new(&WorkloadConfig::usr(), 1)?;
//! let mut bytes = Vec::new();
//! workload.append(Request::get(7), &mut bytes);
//! assert_eq!(bytes, b"get k000000000000000007\r\n");
//! # Ok::<(), load::ConfigError>(())
//! ```

use std::fmt;

use rand::{Rng, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use serde::{Deserialize, Serialize};

use crate::service_times::{ServiceTable, ServiceTimes};
use crate::setting::{ConfigError, as_text, check_range};
use crate::sizes::SizeDistribution;

mod named;

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
        #[serde(with = "as_text")]
        key_size: SizeDistribution,
        /// Length of the values, in bytes. A key's value always has the same length and content.
        #[serde(with = "as_text")]
        value_size: SizeDistribution,
    },
    /// Messages that the service returns unchanged.
    Echo {
        /// Length of a message, in bytes.
        bytes: u32,
    },
    /// Requests that carry their own service time, for the synthetic service (ZygOS §3).
    Spin {
        /// How the service times are distributed.
        #[serde(with = "as_text")]
        times: ServiceTimes,
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

    /// Facebook's ETC pool with the key and value sizes that were published for it: generalized
    /// extreme value keys, generalized Pareto values (Atikoglu et al., SIGMETRICS 2012, §5), 75 %
    /// GETs. The publication gives values below 15 bytes as a table; here they follow the formula
    /// as well. Keys have at least the six bytes that tell 100,000 of them apart.
    pub const fn etc_facebook() -> Self {
        Self::Memcached {
            get_share: 0.75,
            keys: 100_000,
            key_size: SizeDistribution::Gev {
                location: 30.798_4,
                scale: 8.204_49,
                shape: 0.078_688,
                min: 6,
                max: KEY_BYTES_MAX,
            },
            value_size: SizeDistribution::Pareto {
                scale: 214.476,
                shape: 0.348_238,
                min: 1,
                max: VALUE_BYTES_MAX,
            },
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

    /// Checks every setting.
    ///
    /// # Errors
    /// The first setting that cannot be used.
    pub fn validate(&self) -> Result<(), ConfigError> {
        match self {
            Self::Echo { bytes } => check_range("bytes", *bytes, 1, VALUE_BYTES_MAX),
            Self::Spin { times } => times.validate(),
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
            Self::Spin { times } => write!(f, "spin, service times {times} us"),
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
    /// To be busy for a while, and to return the request.
    Spin,
}

/// One request: everything that its bytes and its right response are derived from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// What it asks for.
    pub kind: RequestKind,
    /// Index of the key; for an echo, any number: it chooses the message; for a spin, the draw
    /// that the service time follows from.
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

    /// A spin for the service time of the draw `key`.
    pub const fn spin(key: u32) -> Self {
        Self { kind: RequestKind::Spin, key }
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
    service: Asked,
    /// What values and messages are cut from.
    pattern: Box<[u8]>,
}

/// What the service is asked, made ready.
#[derive(Debug)]
enum Asked {
    Memcached {
        /// GET where 32 random bits are below this.
        get_threshold: u64,
        keys: u32,
        shapes: Shapes,
    },
    Echo {
        bytes: u32,
    },
    Spin(ServiceTable),
}

/// Bytes of a request of the synthetic service, and of its response: the service time in
/// nanoseconds and a number to tell requests apart, big endian.
const SPIN_BYTES: usize = 16;

impl Workload {
    /// Precomputes `config`. Two workloads of the same configuration and seed agree on every
    /// byte, so that one may store what another reads.
    ///
    /// # Errors
    /// A setting that cannot be used, or a trace that cannot be read.
    pub fn new(config: &WorkloadConfig, seed: u64) -> Result<Self, ConfigError> {
        config.validate()?;
        let mut rng = Xoshiro256PlusPlus::seed_from_u64(seed);
        let (service, longest) = match config {
            WorkloadConfig::Echo { bytes } => (Asked::Echo { bytes: *bytes }, *bytes),
            WorkloadConfig::Spin { times } => (Asked::Spin(ServiceTable::new(times)?), 0),
            WorkloadConfig::Memcached { get_share, keys, key_size, value_size } => {
                let get_threshold = (get_share * (1u64 << 32) as f64) as u64;
                let shapes = draw_shapes(*keys, *key_size, *value_size, &mut rng);
                (Asked::Memcached { get_threshold, keys: *keys, shapes }, value_size.max())
            }
        };
        let mut pattern = vec![0; longest as usize + PATTERN_OFFSETS as usize].into_boxed_slice();
        rng.fill_bytes(&mut pattern);
        Ok(Self { service, pattern })
    }

    /// Number of keys to store before the load: zero but for memcached.
    pub fn keys(&self) -> u32 {
        match &self.service {
            Asked::Memcached { keys, .. } => *keys,
            Asked::Echo { .. } | Asked::Spin(_) => 0,
        }
    }

    /// Chooses the next request.
    pub fn draw(&self, rng: &mut Xoshiro256PlusPlus) -> Request {
        let random = rng.next_u64();
        let (high, low) = (random >> 32, random & 0xFFFF_FFFF);
        match &self.service {
            Asked::Echo { .. } => Request::echo(high as u32),
            Asked::Spin(_) => Request::spin(high as u32),
            Asked::Memcached { get_threshold, keys, .. } => {
                // Multiply and shift: even within 2^-32, without a division.
                let key = ((high * u64::from(*keys)) >> 32) as u32;
                if low < *get_threshold { Request::get(key) } else { Request::set(key) }
            }
        }
    }

    /// Appends the bytes of `request` to `out`.
    pub fn append(&self, request: Request, out: &mut Vec<u8>) {
        match request.kind {
            RequestKind::Echo => out.extend_from_slice(self.content(request)),
            RequestKind::Spin => out.extend_from_slice(&self.spin_bytes(request)),
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
                out.extend_from_slice(itoa::Buffer::new().format(content.len()).as_bytes());
                out.extend_from_slice(b"\r\n");
                out.extend_from_slice(content);
                out.extend_from_slice(b"\r\n");
            }
        }
    }

    /// The bytes that travel for `request`: the key's value, or the message to be returned. None
    /// for a spin, whose bytes are computed.
    pub fn content(&self, request: Request) -> &[u8] {
        let is_computed = request.kind == RequestKind::Spin;
        let bytes = if is_computed { 0 } else { self.content_len(request) };
        let start = (mix(request.key) % PATTERN_OFFSETS) as usize;
        &self.pattern[start..start + bytes]
    }

    /// Number of bytes of the value or message in the right response to `request`.
    pub(crate) fn content_len(&self, request: Request) -> usize {
        match (request.kind, &self.service) {
            (RequestKind::Echo, Asked::Echo { bytes }) => *bytes as usize,
            (RequestKind::Get | RequestKind::Set, _) => self.shape(request.key).1 as usize,
            (RequestKind::Spin, _) => SPIN_BYTES,
            (RequestKind::Echo, _) => 0,
        }
    }

    /// Whether `part` is what stands in the right response's value or message from byte `from` on.
    pub(crate) fn is_content(&self, request: Request, from: usize, part: &[u8]) -> bool {
        let until = from.saturating_add(part.len());
        match request.kind {
            RequestKind::Spin => self.spin_bytes(request).get(from..until) == Some(part),
            _ => self.content(request).get(from..until) == Some(part),
        }
    }

    /// The service time that `request` asks for, in nanoseconds; zero where it is no spin.
    pub fn service_ns(&self, request: Request) -> u64 {
        match &self.service {
            Asked::Spin(times) => times.at(request.key),
            Asked::Memcached { .. } | Asked::Echo { .. } => 0,
        }
    }

    /// A spin and the response to it. The number that tells requests apart follows from the draw,
    /// so that nothing is stored to check the response.
    fn spin_bytes(&self, request: Request) -> [u8; SPIN_BYTES] {
        let mut bytes = [0; SPIN_BYTES];
        bytes[..8].copy_from_slice(&self.service_ns(request).to_be_bytes());
        bytes[8..].copy_from_slice(&mix(request.key).to_be_bytes());
        bytes
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
        let Asked::Memcached { shapes, .. } = &self.service else { return (0, 0) };
        match shapes {
            Shapes::Fixed { key_bytes, value_bytes } => (*key_bytes, *value_bytes),
            Shapes::PerKey(shapes) => {
                shapes.get(key as usize).map_or((0, 0), |(k, v)| (u32::from(*k), *v))
            }
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
pub(crate) fn unit(random: u64) -> f64 {
    (random >> 11) as f64 / (1u64 << 53) as f64
}

/// Spreads neighbouring indices.
const fn mix(key: u32) -> u64 {
    finalize((key as u64).wrapping_add(0x9E37_79B9_7F4A_7C15))
}

/// The finalizer of SplitMix64.
pub(crate) const fn finalize(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests;
