//! Why a call is not recorded.

/// The array of calls, or the packet memory for what is to be sent, is full. Nothing was
/// recorded; try again in the next batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
#[error("the batch of calls is full: go on in the next batch")]
pub struct Full;
