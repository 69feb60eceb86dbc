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

/// Why a [`StoreConfig`] can't be used: the limit that was asked for, and what would do.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(pub(crate) String);

impl StoreConfig {
    /// Checks every limit.
    pub(crate) fn check(&self) -> Result<(), ConfigError> {
        let (shards, memory) = (self.shards, self.memory_limit_bytes);
        let item_size = self.item_size_max_bytes;
        // Two largest items (append builds the new beside the old), their rounding to chunks, and
        // a twentieth for the index and the page table.
        let per_shard = 2 * item_size.saturating_add(2 * PAGE_BYTES);
        let memory_min = shards.saturating_mul(per_shard + per_shard / 20);
        let wrong = if shards == 0 || shards > SHARDS_MAX {
            format!("a store of {shards} shards was asked for; give 1 to {SHARDS_MAX}")
        } else if item_size < ITEM_SIZE_MIN_BYTES {
            format!(
                "an item size limit of {item_size} bytes was asked for; give at least \
                 {ITEM_SIZE_MIN_BYTES}"
            )
        } else if memory < memory_min {
            format!(
                "a memory limit of {memory} bytes does not hold two of the largest items in each \
                 shard; give at least {memory_min} bytes, fewer shards or a smaller item size limit"
            )
        } else if memory / shards > SHARD_BYTES_MAX {
            format!(
                "one shard would hold {} bytes, at most {SHARD_BYTES_MAX} can be addressed; give \
                 more shards",
                memory / shards
            )
        } else {
            return Ok(());
        };
        Err(ConfigError(wrong))
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
