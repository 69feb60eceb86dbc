//! ZygOS: its theory, computed by crate `queueing`, and its evaluation on sixteen virtual cores, simulated
//! by crate `world`.

mod crossing;
mod curves;
mod fig2;
mod fig6;
mod fig8;
mod imbalance;
mod max_load;
mod preemption;
mod real;
pub(crate) mod systems;
mod throughput;
mod validate;

pub use crossing::CROSSING;
pub use fig2::FIG2;
pub use fig6::FIG6;
pub use fig8::FIG8;
pub use imbalance::IMBALANCE;
pub use max_load::{FIG3, FIG7};
pub use preemption::PREEMPTION;
pub use throughput::{FIG9, FIG11};
pub use validate::VALIDATE;
