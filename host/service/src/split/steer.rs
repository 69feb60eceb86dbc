//! What elastic threads are told, as it is passed to their process.

use serde::{Deserialize, Serialize};

/// An order for the dataplane.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Steer {
    /// The starter's number for it.
    pub number: u64,
    /// What is to be done.
    pub what: Steered,
}

/// What a dataplane can be told.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Steered {
    /// A thread shall serve.
    Grant(u16),
    /// A thread shall leave its processor to others.
    Park(u16),
    /// A thread shall run on this processor.
    Place(u16, usize),
    /// A thread shall move flow groups to another.
    Move {
        /// Their home.
        from: u16,
        /// Their home from then on.
        to: u16,
        /// Which.
        groups: Vec<u16>,
    },
}
