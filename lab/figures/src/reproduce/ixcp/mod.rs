//! IX's control plane: its static configurations and load patterns, on the simulated server of crate `control`; and
//! what moving flow groups takes, for real.

mod frontier;
mod governed;
mod patterns;
mod table4;
mod table5;

use ixserver::server::ServerModel;
use reproduce::Recorder;

use crate::pareto::draw::millions;
use crate::pareto::machine::IX_NOTE;

pub use frontier::{FIG8, FIG9};
pub use governed::GOVERNED;
pub use patterns::{FIG10, FIG11, FIG12};
pub use table4::TABLE4;
pub use table5::TABLE5;

/// The server, with its conditions noted.
fn server(recorder: &mut Recorder<'_>) -> ServerModel {
    let model = ServerModel::ix();
    recorder.condition("server", format!("simulated: {}", model.name));
    recorder.condition("objective", format!("p99 < {} us", model.slo_us));
    recorder.note(IX_NOTE);
    model
}
