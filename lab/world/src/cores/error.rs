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
    /// The run stalled, as virtual time does not move on or nothing more will happen; or it broke a promise: each request
    /// is answered once, in its connection's order.
    #[error("{0}; run the same seed to see it again")]
    Failed(String),
    /// A parameter of the server that is governed is out of its range.
    #[error(transparent)]
    Model(#[from] crate::controlled::server::ModelError),
    /// The theory beside a curve could not be computed.
    #[error(transparent)]
    Theory(#[from] queueing::RunError),
}
