//! What a [`Store`](crate::Store) may use, checked before anything is allocated.

use tailplane::{CONNECTION_MEMORY_BYTES, Duration};

use crate::WallTime;
use crate::store::slab::PAGE_BYTES;

/// The largest memory limit of one shard: chunk names are 32 bits of 16-byte units.
const SHARD_BYTES_MAX: usize = 32 << 30;

/// Upper bound on shards: a shard's number is kept in 16 bits.
const SHARDS_MAX: usize = 1 << 12;

/// The smallest item limit that leaves room for the longest key.
const ITEM_SIZE_MIN_BYTES: usize = 1024;

/// A request of the largest item has this long at 140 kbit/s; half a line needs no longer.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);

/// Limits of a store. `StoreConfig::default()` is memcached's: 64 MiB, items up to 1 MiB.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Bytes for items, their index and the page table together, over all shards.
    pub memory_limit_bytes: usize,
    /// The largest item, counted as memcached counts it (key, value and 56 to 63 bytes more), so
    /// that the same values fit here as there.
    pub item_size_max_bytes: usize,
    /// Number of independently locked parts. More than the cores that serve requests keeps them
    /// from waiting on one another.
    pub shards: usize,
    /// Bytes for what connections keep beside items, all together: requests and replies in part.
    pub connection_memory_bytes: usize,
    /// How long a request may be incomplete, or a peer take nothing of a reply, before the connection is
    /// reset; `None`: for ever.
    pub request_timeout: Option<Duration>,
    /// How long a connection may be idle between requests before it is closed; `None`, as in memcached: for
    /// ever.
    pub idle_timeout: Option<Duration>,
    /// Connections of one elastic thread; from 15/16 of them on the longest idle are reset for new ones. `None`: no
    /// limit.
    pub max_connections: Option<usize>,
    /// When the service started, for `stats` uptime.
    pub started: WallTime,
}

impl Default for StoreConfig {
    fn default() -> Self {
        Self {
            memory_limit_bytes: 64 << 20,
            item_size_max_bytes: 1 << 20,
            shards: 16,
            connection_memory_bytes: CONNECTION_MEMORY_BYTES,
            request_timeout: Some(REQUEST_TIMEOUT),
            idle_timeout: None,
            max_connections: None,
            started: WallTime::default(),
        }
    }
}

/// Why a [`StoreConfig`] can't be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ConfigError {
    /// `shards` is zero or more than the limit given.
    Shards {
        /// What was asked for.
        found: usize,
        /// The most that there can be.
        max: usize,
    },
    /// `item_size_max_bytes` is too small to hold a 250-byte key.
    ItemSize {
        /// What was asked for.
        found: usize,
        /// The least that is accepted.
        min: usize,
    },
    /// One shard's share of the memory does not hold two items of the largest size.
    Memory {
        /// The memory limit that was asked for, in bytes.
        found: usize,
        /// The least that these shards and this item size need, in bytes.
        min: usize,
    },
    /// The system has not so much address space to give.
    NoMemory {
        /// The memory limit that was asked for, in bytes.
        found: usize,
    },
    /// One shard's share of the memory is beyond what a chunk name can address.
    ShardTooLarge {
        /// The bytes of one shard.
        found: usize,
        /// The most that one shard can hold, in bytes.
        max: usize,
    },
}

impl std::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Shards { found, max } => {
                write!(f, "a store of {found} shards was asked for; give 1 to {max}")
            }
            Self::ItemSize { found, min } => {
                write!(f, "an item size limit of {found} bytes was asked for; give at least {min}")
            }
            Self::Memory { found, min } => write!(
                f,
                "a memory limit of {found} bytes does not hold two of the largest items in each \
                 shard; give at least {min} bytes, fewer shards or a smaller item size limit"
            ),
            Self::NoMemory { found } => write!(
                f,
                "the system did not give {found} bytes for the store; give a smaller memory limit"
            ),
            Self::ShardTooLarge { found, max } => write!(
                f,
                "one shard would hold {found} bytes, at most {max} can be addressed; give more shards"
            ),
        }
    }
}

impl std::error::Error for ConfigError {}

impl StoreConfig {
    /// Checks every limit.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        if self.shards == 0 || self.shards > SHARDS_MAX {
            return Err(ConfigError::Shards { found: self.shards, max: SHARDS_MAX });
        }
        if self.item_size_max_bytes < ITEM_SIZE_MIN_BYTES {
            return Err(ConfigError::ItemSize {
                found: self.item_size_max_bytes,
                min: ITEM_SIZE_MIN_BYTES,
            });
        }
        // Two largest items (append builds the new beside the old), their rounding to chunks, and
        // a twentieth for the index and the page table.
        let per_shard = 2 * self.item_size_max_bytes.saturating_add(2 * PAGE_BYTES);
        let min = self.shards.saturating_mul(per_shard + per_shard / 20);
        if self.memory_limit_bytes < min {
            return Err(ConfigError::Memory { found: self.memory_limit_bytes, min });
        }
        let shard_bytes = self.memory_limit_bytes / self.shards;
        if shard_bytes > SHARD_BYTES_MAX {
            return Err(ConfigError::ShardTooLarge { found: shard_bytes, max: SHARD_BYTES_MAX });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_is_checked_and_says_what_to_do() {
        let base = StoreConfig::default();
        assert_eq!(base.check(), Ok(()));
        let bad = [
            (StoreConfig { shards: 0, ..base.clone() }, "give 1 to"),
            (StoreConfig { shards: 1 << 20, ..base.clone() }, "give 1 to"),
            (StoreConfig { item_size_max_bytes: 10, ..base.clone() }, "at least"),
            (StoreConfig { memory_limit_bytes: 1 << 20, ..base.clone() }, "fewer shards"),
            (
                StoreConfig { memory_limit_bytes: 1 << 40, shards: 1, ..base.clone() },
                "give more shards",
            ),
        ];
        for (config, advice) in bad {
            let error = config.check().expect_err("a bad limit was accepted");
            assert!(error.to_string().contains(advice), "{error}");
        }
    }
}
