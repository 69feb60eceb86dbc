//! HyperPlane on real cores: spin polling as the paper has it in §II, and the software ready set beside
//! it, measured between two cores of this machine by crate `notify`.

mod bench;
mod fig3;
mod findings;
mod services;
mod software;
mod task;

pub use fig3::FIG3;
pub use software::SOFTWARE;
