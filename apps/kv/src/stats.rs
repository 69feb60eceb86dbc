//! Counters, as `stats`, `stats items` and `stats slabs` show them.
//!
//! Each shard counts under its own lock, so counting costs no atomic operation; a snapshot adds the
//! shards up.

use tailplane::ConnectionMemoryStats;

/// Declares a struct of counters that can be added up.
macro_rules! counters {
    ($(#[$meta:meta])* $visibility:vis struct $name:ident { $($(#[$doc:meta])* $field:ident,)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        $visibility struct $name { $($(#[$doc])* pub $field: u64,)* }

        impl $name {
            /// Adds every counter of `other`.
            pub(crate) fn add(&mut self, other: &Self) {
                $(self.$field = self.$field.wrapping_add(other.$field);)*
            }

            /// Names and values, in the order of the declaration.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($field), self.$field)),*].into_iter()
            }
        }
    };
}

counters! {
    /// What one shard counts, whatever the size class.
    pub struct Counters {
        /// Keys asked for by get, gets and mg.
        cmd_get,
        /// Keys asked for that were not there.
        get_misses,
        /// Keys found expired.
        get_expired,
        /// Keys found flushed.
        get_flushed,
        /// Keys touched (touch, gat, gats, mg with T).
        cmd_touch,
        /// Keys to touch that were not there.
        touch_misses,
        /// Keys to delete that were not there.
        delete_misses,
        /// Keys to increment that were not there.
        incr_misses,
        /// Keys to decrement that were not there.
        decr_misses,
        /// Compare-and-swaps whose key was not there.
        cas_misses,
        /// Values refused for their size.
        store_too_large,
        /// Values refused for want of memory.
        store_no_memory,
        /// Items ever stored.
        total_items,
        /// Items stored now.
        curr_items,
        /// Bytes of the items stored now, headers included.
        bytes,
        /// Replies broken off since the memory of their item was needed.
        reads_lost,
        /// Meta commands.
        cmd_meta,
        /// Pages moved from one size class to another.
        slabs_moved,
        /// Bytes of stored values that append and prepend copied into longer ones, and that arithmetic overwrote.
        copied_bytes,
    }
}

counters! {
    /// What is counted for each size class: the first [`ClassCounters::COMMANDS`] by `stats slabs`, the others by
    /// `stats items`, in this order.
    pub struct ClassCounters {
        /// Gets answered.
        get_hits,
        /// Values stored or offered.
        cmd_set,
        /// Items deleted.
        delete_hits,
        /// Items incremented.
        incr_hits,
        /// Items decremented.
        decr_hits,
        /// Compare-and-swaps that matched.
        cas_hits,
        /// Compare-and-swaps that did not match.
        cas_badval,
        /// Items touched.
        touch_hits,
        /// Items evicted.
        evicted,
        /// Items evicted that had an expiration time.
        evicted_nonzero,
        /// Items evicted that nobody had fetched.
        evicted_unfetched,
        /// Items evicted that were fetched since their last round.
        evicted_active,
        /// Items expired that nobody had fetched.
        expired_unfetched,
        /// Times that memory came from an expired or flushed item.
        reclaimed,
        /// Times that no memory was found.
        outofmemory,
    }
}

impl ClassCounters {
    /// Counters of commands, which come before those of memory.
    pub(crate) const COMMANDS: usize = 8;
}

/// One size class, added up over all shards.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ClassStats {
    /// Bytes of one chunk.
    pub chunk_bytes: u64,
    /// Chunks in a page.
    pub chunks_per_page: u64,
    /// Pages that the class holds.
    pub pages: u64,
    /// Chunks in use.
    pub used_chunks: u64,
    /// Items whose first chunk is of this class.
    pub items: u64,
    /// Seconds since the item next to be evicted was last fetched or stored.
    pub age_s: u64,
    /// What was counted.
    pub counters: ClassCounters,
}

/// A snapshot of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreStats {
    /// Seconds since `StoreConfig::started`.
    pub uptime_s: u64,
    /// The configured limit in bytes.
    pub limit_maxbytes: u64,
    /// Bytes allocated at start: arena, index and page table. Never more than the limit.
    pub allocated_bytes: u64,
    /// Connections open now, as the service has reported them.
    pub curr_connections: u64,
    /// Connections ever opened.
    pub total_connections: u64,
    /// flush_all commands.
    pub cmd_flush: u64,
    /// Values that have begun to arrive.
    pub pending_items: u64,
    /// Items that slow readers are being sent.
    pub pinned_items: u64,
    /// What connections keep beside items, and those that were ended for it.
    pub connections: ConnectionMemoryStats,
    /// Pages that no class holds.
    pub free_pages: u64,
    /// Counters that have no size class.
    pub counters: Counters,
    /// The size classes, smallest first.
    pub classes: Vec<ClassStats>,
}

impl StoreStats {
    /// The class counters of all classes together.
    pub fn class_totals(&self) -> ClassCounters {
        let mut total = ClassCounters::default();
        for class in &self.classes {
            total.add(&class.counters);
        }
        total
    }
}
