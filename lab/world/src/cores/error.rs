//! Why a simulation has no result.

use crate::cores::costs::CostsError;

/// See the module's comment.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum WorldError {
    /// A setting is out of its range; nothing was run.
    #[error(transparent)]
    Invalid(#[from] queueing::Invalid),
    /// A constant of the cost model is out of its range.
    #[error(transparent)]
    Costs(#[from] CostsError),
    /// A scheduler made another number of threads than there are cores.
    #[error("the scheduler `{scheduler}` made {made} threads for {cores} cores")]
    Threads {
        /// Its name.
        scheduler: &'static str,
        /// Threads made.
        made: usize,
        /// Cores there are.
        cores: usize,
    },
    /// Virtual time does not move on, or nothing more will happen: something waits for ever.
    #[error(
        "{doing}: given up after {steps} steps at {now_ns} ns of virtual time, with {open} requests \
         unanswered; run the same seed to see it again"
    )]
    Stalled {
        /// What was going on.
        doing: &'static str,
        /// Steps taken.
        steps: u64,
        /// The moment.
        now_ns: u64,
        /// Requests without an answer.
        open: u64,
    },
    /// The run broke a promise: each request is answered once, in its connection's order.
    #[error(
        "{wrong} answers were wrong or out of their connection's order, {failures} calls failed, \
         {dropped} frames were dropped; run the same seed to see it again"
    )]
    Broken {
        /// Answers that were not the next one of their connection.
        wrong: u64,
        /// Calls that failed at either end, connections that ended.
        failures: u64,
        /// Frames that found a queue full.
        dropped: u64,
    },
    /// A parameter of the server that is governed is out of its range.
    #[error(transparent)]
    Model(#[from] crate::controlled::server::ModelError),
    /// The theory beside a curve could not be computed.
    #[error(transparent)]
    Theory(#[from] queueing::RunError),
}

/// Whether a number is in its range; what is no number never is.
pub(crate) fn check(
    what: &'static str,
    found: f64,
    least: f64,
    most: f64,
) -> Result<(), WorldError> {
    Ok(queueing::check(what, found, least..=most)?)
}
