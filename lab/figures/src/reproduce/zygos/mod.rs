//! ZygOS: its theory, computed by crate `queueing`, and its evaluation on sixteen virtual cores, simulated
//! by crate `world`.

mod crossing;
mod curves;
mod fig11;
mod fig2;
mod fig3;
mod fig6;
mod fig7;
mod fig8;
mod fig9;
mod imbalance;
mod max_load;
mod preemption;
mod real;
pub(crate) mod systems;
mod validate;

pub use crossing::CROSSING;
pub use fig2::FIG2;
pub use fig3::FIG3;
pub use fig6::FIG6;
pub use fig7::FIG7;
pub use fig8::FIG8;
pub use fig9::FIG9;
pub use fig11::FIG11;
pub use imbalance::IMBALANCE;
pub use preemption::PREEMPTION;
pub use validate::VALIDATE;
