//! Wall-clock time as a parameter, and the protocol's expiration times.
//!
//! Nothing in this crate reads a clock: the caller passes [`WallTime`] to every call, so a test or a
//! simulation decides what time it is.

/// Seconds since the Unix epoch. Time may stand still between calls; it should not run backwards
/// (items would then only live longer).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct WallTime {
    /// Seconds since 1970-01-01T00:00:00Z.
    pub unix_s: u64,
}

/// Expiration times up to this many seconds count from now; larger ones are Unix times
/// (protocol.txt, "Expiration times").
const RELATIVE_EXPTIME_MAX_S: i32 = 60 * 60 * 24 * 30;

/// The stored expiry of an item that never expires.
pub(crate) const NEVER: u32 = 0;

/// A stored expiry that lies before any time a service runs at.
const LONG_AGO: u32 = 1;

impl WallTime {
    /// The time `unix_s` seconds after the Unix epoch.
    pub const fn from_unix_s(unix_s: u64) -> Self {
        Self { unix_s }
    }

    /// As stored in items: 32 bits reach the year 2106, beyond it time stands still.
    pub(crate) fn as_u32(self) -> u32 {
        u32::try_from(self.unix_s).unwrap_or(u32::MAX)
    }

    /// The Unix second at which an item with the client's `exptime` expires, or [`NEVER`].
    pub(crate) fn expiry(self, exptime: i32) -> u32 {
        match exptime {
            0 => NEVER,
            i32::MIN..0 => LONG_AGO,
            1..=RELATIVE_EXPTIME_MAX_S => self.as_u32().saturating_add(exptime.unsigned_abs()),
            _ => exptime.unsigned_abs(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn relative_absolute_negative_and_never() {
        let now = WallTime::from_unix_s(1_800_000_000);
        assert_eq!(now.expiry(0), NEVER);
        assert_eq!(now.expiry(10), 1_800_000_010);
        assert_eq!(now.expiry(RELATIVE_EXPTIME_MAX_S), 1_802_592_000);
        assert_eq!(now.expiry(RELATIVE_EXPTIME_MAX_S + 1), 2_592_001, "an absolute time in 1970");
        assert_eq!(now.expiry(1_900_000_000), 1_900_000_000);
        assert!(now.expiry(-1) < now.as_u32());
        assert!(now.expiry(i32::MIN) != NEVER);
    }
}
