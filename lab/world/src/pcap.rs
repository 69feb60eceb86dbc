//! Writes a run's capture as a pcap file with nanoseconds, for Wireshark.
//!
//! ```
//! let frames = vec![(clock::Instant::from_micros(3), vec![0; 60])];
//! let mut file = Vec::new();
//! world::pcap::write(&mut file, &frames)?;
//! assert_eq!(file.len(), 24 + 16 + 60);
//! # Ok::<(), std::io::Error>(())
//! ```

use std::io::{self, Write};

use clock::Instant;

use crate::network::Capture;

/// Writes `capture` to `out`.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut impl Write, capture: &Capture) -> io::Result<()> {
    let mut file = nic::pcap::start(&mut *out).map_err(io::Error::other)?;
    for (at, frame) in capture {
        nic::pcap::write_frame(&mut file, at.since(Instant::ZERO), frame)
            .map_err(io::Error::other)?;
    }
    out.flush()
}
