//! ZygOS: its theory, computed here by crate `queueing`.

mod fig2;

pub use fig2::FIG2;
