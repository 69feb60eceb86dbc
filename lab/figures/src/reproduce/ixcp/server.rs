//! The simulated server of these figures.

use reproduce::Recorder;
use world::controlled::server::ServerModel;

use crate::pareto::machine::IX_NOTE;

/// The server, with its conditions noted.
pub fn server(recorder: &mut Recorder<'_>) -> ServerModel {
    let model = ServerModel::ix();
    recorder.condition("server", format!("simulated: {}", model.name));
    recorder.condition("objective", format!("p99 < {} us", model.slo_us));
    recorder.note(IX_NOTE);
    model
}
