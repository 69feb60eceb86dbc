//! What peers hear of a dataplane that was killed: it could not tell them, and what it knew of them is gone, but for the
//! register of who they are.
//!
//! A second one takes its place for a moment. It knows no connection, so that whatever arrives for one is answered
//! with a reset (RFC 9293 §3.10.7.1), as by a machine that has been started again. Peers that have something under
//! way hear so at once, or with their next retransmission; those that are silent are made to speak: see
//! [`half_open`](super::half_open).

use std::path::Path;
use std::time::Duration;

use super::half_open::STAYS_AT_MOST;
use super::spawn::dataplane;
use super::wire::Held;
use crate::service::config::RunConfig;

/// How long it may take to begin, beside other work of the machine; it is asked to end when this and the longest stay
/// are over. It ends by itself as a rule.
const BEGINS_WITHIN: Duration = Duration::from_secs(1);
/// How long it may take to end.
const ENDS_WITHIN: Duration = Duration::from_millis(500);

/// Has a dataplane without an application answer for one that was killed, for a moment. It has ended afterwards.
///
/// # Errors
/// What could not be opened or started.
pub fn send(config: &RunConfig, own: &Path, held: &mut Held) -> anyhow::Result<()> {
    if !matches!(held, Held::Port(..)) {
        return Ok(());
    }
    let mut calm = config.clone();
    // It has no time for a priority to matter.
    calm.dataplane.realtime = 0;
    let started = dataplane(&calm, own)?;
    held.pass_again(&started.control, config)?;
    let watched = started.program.watch()?;
    if !watched.wait(BEGINS_WITHIN + STAYS_AT_MOST)? {
        drop(started.control);
        watched.wait(ENDS_WITHIN)?;
    }
    Ok(())
}
