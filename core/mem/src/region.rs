//! What can be asked of a region, and what can go wrong.

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
#[derive(Debug)]
pub enum RegionError {
    /// A region needs at least one chunk, and at most 2^31.
    BadSize {
        /// Chunks that were asked for.
        chunks: usize,
    },
    /// The operating system refused the memory.
    #[cfg(feature = "std")]
    Map {
        /// Bytes that were asked for.
        bytes: usize,
        /// Whether huge pages were asked for.
        huge: bool,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// A memory file that was passed on is no region, or cannot be mapped.
    #[cfg(feature = "std")]
    Join {
        /// What the operating system said.
        source: std::io::Error,
    },
}

impl core::fmt::Display for RegionError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::BadSize { chunks } => {
                write!(f, "a region of {chunks} chunks was asked for; allowed: 1 to {}", 1u32 << 31)
            }
            #[cfg(feature = "std")]
            Self::Map { bytes, huge, source } => {
                let kind = if *huge { "2 MB huge pages" } else { "normal pages" };
                write!(f, "mapping {bytes} bytes of packet memory in {kind} failed: {source}")?;
                if *huge {
                    f.write_str("; raise /proc/sys/vm/nr_hugepages or allow normal pages")?;
                }
                Ok(())
            }
            #[cfg(feature = "std")]
            Self::Join { source } => write!(
                f,
                "the packet memory that was passed on cannot be used: {source}; pass the memory file of a \
                 `Region::map` of the same version"
            ),
        }
    }
}

impl core::error::Error for RegionError {}
