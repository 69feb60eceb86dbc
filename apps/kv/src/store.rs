//! The store: shards of items, each behind its own lock, shared by all cores.

pub(crate) mod evict;
pub(crate) mod item;
pub(crate) mod lru;
pub(crate) mod operations;
pub(crate) mod pending;
pub(crate) mod pinned;
pub(crate) mod shard;
pub(crate) mod slab;
#[cfg(test)]
mod tests;
mod unsafe_memory;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use shard::{KeyHash, Shard};
use siphasher::sip::SipHasher13;
use unsafe_memory::Memory;

use tailplane::ConnectionMemory;

use crate::stats::{ClassStats, Counters, StoreStats};
use crate::{ConfigError, StoreConfig, WallTime};

/// A key-value store with a fixed memory limit, `Send + Sync`; share it as `Arc<Store>`.
///
/// Every shard is behind a mutex because any core may execute any connection's requests (an idle
/// core steals them); taking one that nobody else wants costs about 10 ns, and no lock is held
/// longer than one key's operation. All memory for items is reserved by [`Store::new`].
#[derive(Debug)]
pub struct Store {
    shards: Box<[Mutex<Shard>]>,
    /// The key stays in the hasher: cloning it saves mixing the key in for every request.
    hasher: SipHasher13,
    config: StoreConfig,
    /// What connections keep beside items: requests and replies in part.
    connection_memory: Arc<ConnectionMemory>,
    // Counted once per connection or flush, not per request.
    cmd_flush: AtomicU64,
    curr_connections: AtomicU64,
    total_connections: AtomicU64,
}

/// What each shard carves from the store's memory: its buckets and its arena.
const SLICES: usize = 2;

impl Store {
    /// A store within `config`'s limits. `hash_key` must come from the operating system's random
    /// numbers and be kept secret: with it, a client could make all keys collide.
    ///
    /// # Errors
    /// A [`ConfigError`] names the limit that can't be met and what would do.
    pub fn new(config: StoreConfig, hash_key: [u64; 2]) -> Result<Self, ConfigError> {
        config.check()?;
        let bytes = config.memory_limit_bytes / config.shards;
        let none = || {
            let found = config.memory_limit_bytes;
            ConfigError(format!(
                "the system did not give {found} bytes for the store; give a smaller memory limit"
            ))
        };
        let mut memory =
            Memory::new(config.memory_limit_bytes, SLICES * config.shards).map_err(|_| none())?;
        let shards = (0..config.shards)
            .map(|shard| {
                let place = (shard, config.shards);
                Shard::new(&mut memory, bytes, config.item_size_max_bytes, place).map(Mutex::new)
            })
            .collect::<Option<_>>()
            .ok_or_else(none)?;
        Ok(Self {
            shards,
            hasher: SipHasher13::new_with_keys(hash_key[0], hash_key[1]),
            connection_memory: Arc::new(ConnectionMemory::new(config.connection_memory_bytes)),
            config,
            cmd_flush: AtomicU64::new(0),
            curr_connections: AtomicU64::new(0),
            total_connections: AtomicU64::new(0),
        })
    }

    /// The limits the store was made with.
    pub fn config(&self) -> &StoreConfig {
        &self.config
    }

    /// The memory that connections keep beside items.
    pub fn connection_memory(&self) -> &Arc<ConnectionMemory> {
        &self.connection_memory
    }

    /// Counts a connection that was opened, for `stats`.
    pub fn connection_opened(&self) {
        self.curr_connections.fetch_add(1, Ordering::Relaxed);
        self.total_connections.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a connection that was closed, for `stats`.
    pub fn connection_closed(&self) {
        let less = |open: u64| Some(open.saturating_sub(1));
        // The closure always answers Some, so this can't fail.
        let _ = self.curr_connections.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
    }

    /// A snapshot of all counters. Shards are looked at one after another: the sum is exact only
    /// while no request runs.
    pub fn stats(&self, now: WallTime) -> StoreStats {
        let mut counters = Counters::default();
        let mut classes: Vec<ClassStats> = Vec::new();
        let (mut pending_items, mut pinned_items) = (0, 0);
        let (mut free_pages, mut allocated_bytes) = (0, 0);
        for shard in &self.shards {
            let shard = lock(shard);
            counters.add(&shard.counters);
            pending_items += shard.pending.len() as u64;
            pinned_items += shard.pinned.len() as u64;
            free_pages += shard.slab.free_page_count() as u64;
            allocated_bytes += shard.allocated_bytes() as u64;
            classes.resize_with(shard.slab.classes().len(), ClassStats::default);
            for (index, class) in shard.slab.classes().iter().enumerate() {
                let sum = &mut classes[index];
                sum.chunk_bytes = u64::from(class.chunk_bytes);
                sum.chunks_per_page = u64::from(class.per_page);
                sum.pages += u64::from(class.pages);
                sum.used_chunks += class.used_chunks;
                sum.items += shard.lru[index].len();
                sum.counters.add(&shard.class_counters[index]);
                let oldest = shard.lru[index].tail();
                if !oldest.is_nil() {
                    let age = now.as_u32().saturating_sub(shard.slab.header(oldest).accessed.get());
                    sum.age_s = sum.age_s.max(u64::from(age));
                }
            }
        }
        StoreStats {
            uptime_s: now.unix_s.saturating_sub(self.config.started.unix_s),
            limit_maxbytes: self.config.memory_limit_bytes as u64,
            allocated_bytes,
            curr_connections: self.curr_connections.load(Ordering::Relaxed),
            total_connections: self.total_connections.load(Ordering::Relaxed),
            cmd_flush: self.cmd_flush.load(Ordering::Relaxed),
            pending_items,
            pinned_items,
            connections: self.connection_memory.stats(),
            free_pages,
            counters,
            classes,
        }
    }

    /// `stats reset`: sets to zero what counts events, not what counts items there are.
    pub(crate) fn reset_stats(&self) {
        for shard in &self.shards {
            let mut shard = lock(shard);
            shard.counters = Counters {
                curr_items: shard.counters.curr_items,
                bytes: shard.counters.bytes,
                ..Counters::default()
            };
            shard.class_counters.fill(Default::default());
        }
        self.cmd_flush.store(0, Ordering::Relaxed);
    }

    /// Counts a flush_all, valid or not.
    pub(crate) fn count_flush(&self) {
        self.cmd_flush.fetch_add(1, Ordering::Relaxed);
    }

    /// Flushes everything, at once or from `at` (Unix seconds) on. False: items of long ago had to be taken out
    /// first, and more than `purges` chunks of them; the flush is to be called again.
    pub(crate) fn flush(&self, at: u32, now: WallTime, mut purges: u32) -> bool {
        // No shard is flushed before all can be: a flush that is called again would otherwise use up epochs.
        self.shards.iter().all(|shard| lock(shard).free_next_epoch(&mut purges))
            && self.shards.iter().all(|shard| lock(shard).flush(at, now.as_u32(), &mut purges))
    }

    pub(crate) fn hash(&self, key: &[u8]) -> KeyHash {
        KeyHash(self.hasher.hash(key))
    }

    /// The shard of a key, locked.
    pub(crate) fn shard(&self, hash: KeyHash) -> MutexGuard<'_, Shard> {
        // The high half picks the shard by multiplication, so any number of shards is even.
        let index = ((hash.0 >> 32) * self.shards.len() as u64) >> 32;
        lock(&self.shards[index as usize])
    }
}

/// A shard is left as it is by a panic in another thread: its operations hold no lock across foreign
/// code except the output's, and change nothing while that runs.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}
