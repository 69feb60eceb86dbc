//! What peers hear of a dataplane that was killed: it could not tell them, and what it knew of them is gone, but for the
//! register of who they are.
//!
//! A second one takes its place for a moment. It knows no connection, so that whatever arrives for one is answered
//! with a reset (RFC 9293 §3.10.7.1), as by a machine that has been started again. Peers that have something under
//! way hear so at once, or with their next retransmission; those that are silent are made to speak: see
//! [`half_open`](super::half_open).

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::bail;
use sandbox::Watched;

use super::half_open::STAYS_AT_MOST;
use super::orders::Told;
use super::spawn::{self, Started};
use super::wire::Held;
use super::words::{Said, Word, Words, said};
use crate::application::LOOK;
use crate::config::RunConfig;
use crate::terminal::Copies;

/// How long it may take to begin, beside other work of the machine; it is asked to end when this and the longest stay
/// are over. It ends by itself as a rule.
const BEGINS_WITHIN: Duration = Duration::from_secs(1);
/// How long it stays where somebody waits for the service's end.
const STAYS_WHEN_ASKED: Duration = Duration::from_millis(200);
/// How long it may take to end.
const ENDS_WITHIN: Duration = Duration::from_millis(50);

/// A dataplane without an application, which answers for one that was killed.
#[derive(Debug)]
pub struct Farewell {
    started: Started,
    watched: Watched,
    began: Instant,
}

/// Starts a farewell. None: the wire has no place for it.
///
/// # Errors
/// What could not be opened or started.
pub fn begin(
    config: &RunConfig,
    own: &Path,
    held: &mut Held,
    copies: &mut Copies,
) -> anyhow::Result<Option<Farewell>> {
    if !matches!(held, Held::Port(_)) {
        return Ok(None);
    }
    let mut calm = config.clone();
    // It has no time for a priority to matter.
    calm.dataplane.realtime = None;
    let started = spawn::dataplane("farewell", &calm, own, copies)?;
    held.pass_again(&started.control, config)?;
    let watched = started.program.watch()?;
    match Words::of(&started.control, said)?.next(BEGINS_WITHIN) {
        Word::Said(Said { told: Told::Mapped, .. }) => held.bind(&started.control)?,
        word => bail!("the process that resets connections did not begin: found {word:?}"),
    };
    Ok(Some(Farewell { started, watched, began: Instant::now() }))
}

impl Farewell {
    /// Waits until it has ended: for its longest stay, or a moment where `is_asked` for the service's end.
    ///
    /// # Errors
    /// The operating system does not know it.
    pub fn wait(mut self, is_asked: impl Fn() -> bool) -> anyhow::Result<()> {
        let mut until = self.began + BEGINS_WITHIN + STAYS_AT_MOST;
        while !self.watched.wait(LOOK)? && Instant::now() < until {
            if is_asked() {
                until = until.min(Instant::now() + STAYS_WHEN_ASKED);
            }
        }
        drop(self.started.control);
        self.started.program.end(Instant::now() + ENDS_WITHIN)?;
        Ok(())
    }
}
