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

use crate::network::Capture;

/// Says that times are in nanoseconds.
const MAGIC: u32 = 0xa1b2_3c4d;
const VERSION: [u16; 2] = [2, 4];
const SNAP_LEN: u32 = 65_535;
const ETHERNET: u32 = 1;

/// Writes `capture` to `out`.
///
/// # Errors
/// What `out` says.
pub fn write(out: &mut impl Write, capture: &Capture) -> io::Result<()> {
    out.write_all(&MAGIC.to_le_bytes())?;
    for number in VERSION {
        out.write_all(&number.to_le_bytes())?;
    }
    // Time zone and accuracy: always zero.
    out.write_all(&[0; 8])?;
    out.write_all(&SNAP_LEN.to_le_bytes())?;
    out.write_all(&ETHERNET.to_le_bytes())?;
    for (at, frame) in capture {
        let (seconds, nanos) = (at.as_nanos() / 1_000_000_000, at.as_nanos() % 1_000_000_000);
        let len = frame.len() as u32;
        for word in [seconds as u32, nanos as u32, len, len] {
            out.write_all(&word.to_le_bytes())?;
        }
        out.write_all(frame)?;
    }
    out.flush()
}
