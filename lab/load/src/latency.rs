//! How latencies are recorded: the histogram, and the longest entry in it.

use hdrhistogram::Histogram;

/// Longest latency that is told apart, in nanoseconds; also the entry of requests whose answer can
/// no longer come.
pub const LATENCY_MAX_NS: u64 = 60_000_000_000;
/// Significant decimal digits of the histograms.
const DIGITS: u8 = 3;

/// A histogram of nanoseconds, allocated whole at the start of a run.
pub(crate) fn latency_histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, LATENCY_MAX_NS, DIGITS)
        .expect("1 to 60 s at 3 digits are bounds that the histogram accepts")
}
