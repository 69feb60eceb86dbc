//! What can be asked of a region, and what can go wrong.

use crate::CHUNKS_MAX;

/// Whether a region should lie in huge pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum HugePages {
    /// 2 MB pages where there are some, else normal pages with a warning.
    #[default]
    Try,
    /// 2 MB pages, or an error.
    Require,
    /// Normal pages, without a warning.
    No,
}

/// Why a region could not be made.
#[derive(Debug, thiserror::Error)]
pub enum RegionError {
    /// A region needs at least one chunk, and at most 2^31.
    #[error("a region of {chunks} chunks was asked for; allowed: 1 to {CHUNKS_MAX}")]
    BadSize {
        /// Chunks that were asked for.
        chunks: usize,
    },
    /// The operating system refused the memory.
    #[cfg(feature = "std")]
    #[error(
        "mapping {bytes} bytes of packet memory in {} failed: {error}{}",
        if *huge { "2 MB huge pages" } else { "normal pages" },
        if *huge { "; raise /proc/sys/vm/nr_hugepages or allow normal pages" } else { "" }
    )]
    Map {
        /// Bytes that were asked for.
        bytes: usize,
        /// Whether huge pages were asked for.
        huge: bool,
        /// What the operating system said.
        error: std::io::Error,
    },
    /// A memory file that was passed on is no region, or cannot be mapped.
    #[cfg(feature = "std")]
    #[error(
        "the packet memory that was passed on cannot be used: {error}; pass the memory file of a `Region::map` of the \
         same version"
    )]
    Join {
        /// What the operating system said.
        error: std::io::Error,
    },
}
