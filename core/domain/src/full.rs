//! Why a call is not recorded.

/// The array of calls, or the packet memory for what is to be sent, is full. Nothing was
/// recorded; try again in the next batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Full;

impl core::fmt::Display for Full {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.write_str("the batch of calls is full: go on in the next batch")
    }
}

impl core::error::Error for Full {}
