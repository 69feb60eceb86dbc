//! Request dispatching (HyperPlane §V-A): the front end of a microservice. It identifies a request's method, picks a
//! worker and prepares the remote procedure call.
//!
//! Request and reply, all numbers big-endian:
//!
//! | Bytes | Request | Reply |
//! | --- | --- | --- |
//! | 0 | version, 1 | the same |
//! | 1 | flags: 1 keyed, 2 one way; the others zero | the same |
//! | 2–3 | method | the same |
//! | 4–5 | length of the key | the same |
//! | 6–7 | zero | the worker |
//! | 8–11 | length of the payload | the same |
//! | 12–15 | the client's number for the request | the same |
//! | 16–23 | | sequence number, from 0, without gaps |
//! | then | key, payload | the same |
//!
//! The worker is that with the fewest requests outstanding, of those in the method's pool that have fewer than the
//! bound: join the bounded shortest queue, JBSQ(n) (Kogias et al., "R2P2", ATC 2019, §4). A keyed request goes to the
//! worker that its key belongs to, within the same bound. [`Dispatcher::done`] gives a worker's credit back. When all are
//! at the bound the request is refused as busy, and waits where it lies: in the queue of the data plane.
//!
//! ```
//! use services::{DispatchConfig, Dispatcher, Refused, RequestHeader, Service};
//!
//! let mut config = DispatchConfig::new(2, 1, [0x5a; 16]); // two workers, one request each
//! config.pools.push(vec![0, 1]);
//! config.methods.push((7, 0));
//! let mut dispatcher = Dispatcher::new(&config)?;
//!
//! let mut request = [0; 64];
//! let header = RequestHeader { flags: 0, method: 7, key_len: 0, payload_len: 48, request_id: 1 };
//! header.emit(&mut request);
//! let mut reply = [0; 72];
//! assert_eq!(dispatcher.serve(&request, &mut reply), Ok(72));
//! assert_eq!(dispatcher.serve(&request, &mut reply), Ok(72));
//! assert_eq!(dispatcher.serve(&request, &mut reply), Err(Refused::Busy { pool: 0 }));
//! dispatcher.done(1)?;
//! assert_eq!(dispatcher.serve(&request, &mut reply), Ok(72));
//! assert_eq!(reply[6..8], [0, 1]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use siphasher::sip::SipHasher13;

use crate::refused::{Layer, Refused};
use crate::service::{Service, room};

/// The version of the format.
pub const DISPATCH_VERSION: u8 = 1;
/// Bytes of a request's header.
pub const REQUEST_HEADER_LEN: usize = 16;
/// Bytes of a reply's header.
pub const PREPARED_HEADER_LEN: usize = 24;
/// Flag: the same key goes to the same worker.
pub const FLAG_KEYED: u8 = 1;
/// Flag: the client wants no answer. For the worker; the dispatcher passes it on.
pub const FLAG_ONE_WAY: u8 = 2;
/// Most workers: one bit each in a word.
pub const WORKERS_MAX: usize = 64;
/// Most requests that a worker may have outstanding.
const BOUND_MAX: usize = 64;
/// Most pools.
const POOLS_MAX: usize = 1_024;
/// A method that no pool serves.
const NO_POOL: u16 = u16::MAX;

/// The meaning of a request's header.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestHeader {
    /// [`FLAG_KEYED`], [`FLAG_ONE_WAY`].
    pub flags: u8,
    /// What is to be called.
    pub method: u16,
    /// Bytes of the key, behind the header.
    pub key_len: u16,
    /// Bytes of the payload, behind the key.
    pub payload_len: u32,
    /// The client's own number for the request; passed on.
    pub request_id: u32,
}

impl RequestHeader {
    /// Writes the header to the first 16 bytes of `out`.
    ///
    /// # Panics
    /// When `out` has fewer bytes.
    pub fn emit(&self, out: &mut [u8]) {
        out[0] = DISPATCH_VERSION;
        out[1] = self.flags;
        out[2..4].copy_from_slice(&self.method.to_be_bytes());
        out[4..6].copy_from_slice(&self.key_len.to_be_bytes());
        out[6..8].fill(0);
        out[8..12].copy_from_slice(&self.payload_len.to_be_bytes());
        out[12..16].copy_from_slice(&self.request_id.to_be_bytes());
    }

    /// Reads a whole request: its header, and key and payload together behind it.
    ///
    /// # Errors
    /// `Truncated`, `Version`, and `Malformed` for flags that do not exist, a reserved field that is not zero, a keyed
    /// request without a key, and bytes behind the payload.
    #[inline]
    pub fn parse(request: &[u8]) -> Result<(RequestHeader, &[u8]), Refused> {
        const TRUNCATED: Refused = Refused::Truncated { layer: Layer::Dispatch };
        let malformed = |field| Err(Refused::Malformed { layer: Layer::Dispatch, field });
        let (bytes, body) = request.split_first_chunk::<REQUEST_HEADER_LEN>().ok_or(TRUNCATED)?;
        let [version, flags, m0, m1, k0, k1, r0, r1, p0, p1, p2, p3, i0, i1, i2, i3] = *bytes;
        if version != DISPATCH_VERSION {
            let (found, expected) = (version, DISPATCH_VERSION);
            return Err(Refused::Version { layer: Layer::Dispatch, found, expected });
        }
        if flags & !(FLAG_KEYED | FLAG_ONE_WAY) != 0 {
            return malformed("flags");
        }
        if [r0, r1] != [0, 0] {
            return malformed("reserved field");
        }
        let header = RequestHeader {
            flags,
            method: u16::from_be_bytes([m0, m1]),
            key_len: u16::from_be_bytes([k0, k1]),
            payload_len: u32::from_be_bytes([p0, p1, p2, p3]),
            request_id: u32::from_be_bytes([i0, i1, i2, i3]),
        };
        if flags & FLAG_KEYED != 0 && header.key_len == 0 {
            return malformed("key length");
        }
        // Below 2^33: no overflow in 64 bits, whatever the request says.
        let claimed = u64::from(header.key_len) + u64::from(header.payload_len);
        match (body.len() as u64).cmp(&claimed) {
            core::cmp::Ordering::Less => Err(TRUNCATED),
            core::cmp::Ordering::Equal => Ok((header, body)),
            core::cmp::Ordering::Greater => malformed("payload length"),
        }
    }
}

/// How a dispatcher is set up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DispatchConfig {
    /// Workers, numbered from 0; at most [`WORKERS_MAX`].
    pub workers: usize,
    /// Most requests outstanding at one worker: the n of JBSQ(n), 1 to 64.
    pub bound: usize,
    /// The secret key of the hash that keyed requests are placed by.
    pub key: [u8; 16],
    /// The workers of each pool. A worker may be in several: its bound counts all its requests.
    pub pools: Vec<Vec<u16>>,
    /// Which pool serves a method.
    pub methods: Vec<(u16, u16)>,
}

impl DispatchConfig {
    /// `workers` workers with `bound` requests each, without pools and methods yet.
    pub fn new(workers: usize, bound: usize, key: [u8; 16]) -> Self {
        Self { workers, bound, key, pools: Vec::new(), methods: Vec::new() }
    }
}

/// A dispatcher's configuration that cannot be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a dispatcher was configured with {what} {found}: {expected}")]
pub struct DispatchConfigError {
    what: &'static str,
    found: usize,
    expected: &'static str,
}

/// A worker is said to be done with a request that it does not have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("worker {worker} is done, but has no request outstanding: it reported one twice")]
pub struct NotOutstanding {
    /// The worker's number.
    pub worker: u16,
}

/// Workers that serve the same methods.
#[derive(Debug)]
struct Pool {
    /// A bit for each.
    mask: u64,
    /// For keyed requests: the workers by index.
    members: Box<[u8]>,
    /// Where the search among equals begins: behind the last one that was picked.
    cursor: u32,
}

/// The front end: from methods to workers.
pub struct Dispatcher {
    bound: usize,
    hasher: SipHasher13,
    /// For each number of outstanding requests, the workers that have so many: the shortest queue is found by a look at
    /// the lowest words, not at every worker.
    at_depth: [u64; BOUND_MAX + 1],
    depths: [u8; WORKERS_MAX],
    pools: Box<[Pool]>,
    /// By method; as long as the highest one.
    pool_of: Box<[u16]>,
    sequence: u64,
}

impl Dispatcher {
    /// A dispatcher whose workers are idle.
    ///
    /// # Errors
    /// [`DispatchConfigError`] for numbers out of range, an empty pool, a method named twice, and for pools and workers
    /// that do not exist.
    pub fn new(config: &DispatchConfig) -> Result<Self, DispatchConfigError> {
        let error = |what, found, expected| Err(DispatchConfigError { what, found, expected });
        if !(1..=WORKERS_MAX).contains(&config.workers) {
            return error("workers", config.workers, "1 to 64 are possible");
        }
        if !(1..=BOUND_MAX).contains(&config.bound) {
            return error("a bound of", config.bound, "1 to 64 are possible");
        }
        if config.pools.len() > POOLS_MAX {
            return error("pools", config.pools.len(), "up to 1024 are possible");
        }
        let mut pools = Vec::with_capacity(config.pools.len());
        for (number, workers) in config.pools.iter().enumerate() {
            let unknown = workers.iter().find(|&&worker| usize::from(worker) >= config.workers);
            if let Some(&worker) = unknown {
                return error("a pool with worker", worker.into(), "there is no such worker");
            }
            let mask = workers.iter().fold(0u64, |mask, worker| mask | 1 << worker);
            if mask == 0 {
                return error("pool", number, "it has no workers: give it one, or leave it out");
            }
            let members = (0..WORKERS_MAX as u8).filter(|worker| mask >> worker & 1 == 1).collect();
            pools.push(Pool { mask, members, cursor: 0 });
        }
        let methods = config.methods.iter().map(|&(method, _)| usize::from(method) + 1).max();
        let mut pool_of = vec![NO_POOL; methods.unwrap_or(0)];
        for &(method, pool) in &config.methods {
            if usize::from(pool) >= pools.len() {
                return error("a method of pool", pool.into(), "there is no such pool");
            }
            if pool_of[usize::from(method)] != NO_POOL {
                return error("method", method.into(), "it is named twice");
            }
            pool_of[usize::from(method)] = pool;
        }
        let mut at_depth = [0; BOUND_MAX + 1];
        at_depth[0] = u64::MAX >> (WORKERS_MAX - config.workers);
        Ok(Self {
            bound: config.bound,
            hasher: SipHasher13::new_with_key(&config.key),
            at_depth,
            depths: [0; WORKERS_MAX],
            pools: pools.into(),
            pool_of: pool_of.into(),
            sequence: 0,
        })
    }

    /// A worker has finished one of its requests: it may have another.
    ///
    /// # Errors
    /// [`NotOutstanding`] where it had none.
    pub fn done(&mut self, worker: u16) -> Result<(), NotOutstanding> {
        let error = NotOutstanding { worker };
        let depth = self.depths.get(usize::from(worker)).ok_or(error)?;
        let below = depth.checked_sub(1).ok_or(error)?;
        self.set_depth(usize::from(worker), below);
        Ok(())
    }

    /// Requests that a worker has outstanding; zero for one that does not exist.
    pub fn outstanding(&self, worker: u16) -> usize {
        self.depths.get(usize::from(worker)).map_or(0, |&depth| depth.into())
    }

    fn set_depth(&mut self, worker: usize, depth: u8) {
        let bit = 1u64 << worker;
        self.at_depth[usize::from(self.depths[worker])] &= !bit;
        self.at_depth[usize::from(depth)] |= bit;
        self.depths[worker] = depth;
    }

    /// A worker of the pool with the fewest requests, below the bound; equals take turns.
    #[inline]
    fn shortest(&self, pool: &Pool) -> Option<usize> {
        let shortest = self.at_depth[..self.bound].iter().find(|&&at| at & pool.mask != 0)?;
        let equals = shortest & pool.mask;
        let behind = equals & (u64::MAX << pool.cursor);
        let chosen = if behind != 0 { behind } else { equals };
        Some(chosen.trailing_zeros() as usize)
    }

    /// The worker that a key belongs to, if it is below the bound.
    #[inline]
    fn owner(&self, pool: &Pool, key: &[u8]) -> Option<usize> {
        let hash = u128::from(self.hasher.hash(key));
        let index = ((hash * pool.members.len() as u128) >> 64) as usize;
        let worker = usize::from(pool.members[index]);
        (usize::from(self.depths[worker]) < self.bound).then_some(worker)
    }
}

impl Service for Dispatcher {
    fn name(&self) -> &'static str {
        "request dispatching"
    }

    fn serve(&mut self, request: &[u8], reply: &mut [u8]) -> Result<usize, Refused> {
        let (header, body) = RequestHeader::parse(request)?;
        let unknown = Refused::Method { method: header.method };
        let &number = self.pool_of.get(usize::from(header.method)).ok_or(unknown)?;
        let pool = self.pools.get(usize::from(number)).ok_or(unknown)?;
        let out = room(reply, PREPARED_HEADER_LEN + body.len())?;
        let worker = if header.flags & FLAG_KEYED == 0 {
            self.shortest(pool)
        } else {
            self.owner(pool, &body[..usize::from(header.key_len)])
        };
        let worker = worker.ok_or(Refused::Busy { pool: number })?;
        // The bound is at most 64.
        self.set_depth(worker, self.depths[worker] + 1);
        self.pools[usize::from(number)].cursor = (worker as u32 + 1) % WORKERS_MAX as u32;
        let (prepared, out_body) = out.split_at_mut(PREPARED_HEADER_LEN);
        prepared[..REQUEST_HEADER_LEN].copy_from_slice(&request[..REQUEST_HEADER_LEN]);
        prepared[6..8].copy_from_slice(&(worker as u16).to_be_bytes());
        prepared[16..].copy_from_slice(&self.sequence.to_be_bytes());
        out_body.copy_from_slice(body);
        self.sequence = self.sequence.wrapping_add(1);
        Ok(PREPARED_HEADER_LEN + body.len())
    }

    fn reply_len_max(&self, request_len: usize) -> usize {
        request_len + (PREPARED_HEADER_LEN - REQUEST_HEADER_LEN)
    }
}
