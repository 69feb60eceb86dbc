//! Batches that last longer than the cycle that hands them over: the elastic thread goes on without the application.
//!
//! ```text
//! on_batch   events -> event array, batch += 1; back at once
//! is_away    ... the network layer goes on, and events wait ...
//! collect    done == batch: calls checked, issued
//! ```
//!
//! For a thread that runs to completion. While the application works on one batch on a core of its own, the thread
//! receives the next one and sends the answers to the one before: of the two cores' work each hides behind the
//! other's. Where it shares the thread's core, the thread sleeps at once, for as long as somebody who
//! [attends](Near::attended) to it lets it: most batches are over by then, and the others are taken for away from there
//! on. Nothing of the application's makes the thread wait for longer: a batch that does not come back only keeps the
//! events of its own connections waiting.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clock::Instant;
use domain::{Calls, Events, Service};
use handshake::One;
use memfile::Memory;
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};

use crate::layout;
use crate::near::{Apart, Near, sleep_for};
use crate::near_stats::NearStats;
use crate::place::Placement;
use crate::waiting;

/// A batch of so few events is soon over: worth some looks before the network's next turn, as an answer that is seen
/// then leaves a cycle earlier.
const FEW: usize = 2;
/// So many, without a pause between two: about as long as a short request takes there and back.
const LOOKS: u32 = 3_072;
/// Bytes that are taken from a bell at a time. An application that writes more only keeps its own dataplane awake.
const RINGS: usize = 64;

impl Near<'_> {
    /// From now on [`on_batch`](domain::Service::on_batch) does not wait for the application: the calls come with
    /// [`collect`](domain::Service::collect). To be run by a thread that asks ([`is_away`](domain::Service::is_away)).
    /// Answers what wakes that thread when it sleeps meanwhile. None, and nothing changes, where it was made without
    /// a bell.
    ///
    /// A batch must not have more events than the array has room for.
    pub fn go_apart(&mut self) -> Option<NearBell> {
        let socket = self.parts.bell.take()?;
        self.apart = Some(Apart::default());
        let (events, calls) = (Arc::clone(&self.parts.events), Arc::clone(&self.parts.calls));
        let (stats, is_mute) = (Arc::clone(&self.stats), AtomicBool::new(false));
        Some(NearBell { socket, is_mute, events, calls, stats })
    }

    /// Events that one batch can have.
    pub fn events_max(&self) -> usize {
        self.parts.geometry.events as usize
    }

    fn begin_apart(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        if self.has_gone() || self.is_to_stop() {
            self.wish = None;
            return;
        }
        self.now = now;
        self.given = None;
        let count = self.tell_mirrored(&events, calls).unwrap_or_else(|| {
            let mut rest = events.iter();
            let count = self.tell_batch(&mut rest, calls);
            debug_assert!(rest.next().is_none(), "the array has room for all that a thread has");
            count
        });
        self.stats.outstanding.store(self.batch, Ordering::Relaxed);
        self.publish();
        // The application has it from here on: what is only this side's may as well be done now.
        self.apart = Some(Apart { has_batch: true, ..Apart::default() });
        // Whatever it wished was for this batch.
        self.wish = None;
        self.call_for_lines(count);
        let is_answered = match self.placement() {
            Placement::SameCore => self.is_answered_below(),
            Placement::Split => count <= FEW && self.is_answered_soon(),
        };
        if is_answered {
            self.collect(now, calls);
        }
    }

    /// Whether the batch at hand is over once the application has had this thread's core for a while.
    fn is_answered_below(&self) -> bool {
        let words = (self.parts.calls.word(layout::BATCH), self.parts.events.word(layout::ASLEEP));
        let (Some(done), Some(asleep)) = words else { return false };
        sleep_for(self.batch, (done, asleep), self.is_attended, &self.stats);
        self.is_answered()
    }

    /// Whether the batch at hand is over within some looks.
    fn is_answered_soon(&self) -> bool {
        let Some(done) = self.parts.calls.word(layout::BATCH) else { return false };
        (0..LOOKS).any(|_| done.load(Ordering::Acquire) == self.batch)
    }

    /// Whether the batch at hand is over.
    #[inline]
    fn is_answered(&self) -> bool {
        let done = self.parts.calls.word(layout::BATCH);
        done.is_some_and(|done| done.load(Ordering::Acquire) == self.batch)
    }
}

impl Service for Near<'_> {
    fn on_batch(&mut self, now: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        match self.apart {
            Some(_) => self.begin_apart(now, events, calls),
            None => self.cross_all(now, events, calls),
        }
    }

    fn is_away(&mut self, now: Instant) -> bool {
        let is_ending = self.has_gone() || self.is_to_stop();
        let is_over = is_ending || self.is_answered();
        let Some(apart) = &mut self.apart else { return false };
        if apart.has_batch {
            if is_over {
                return false;
            }
            self.stats.note_wait(*apart.since.get_or_insert(now), now);
            return true;
        }
        let Some(toll) = &self.toll else { return false };
        let free_at = toll.free_at();
        if free_at <= now || is_ending {
            apart.in_debt = None;
            return false;
        }
        if apart.in_debt.replace(free_at).is_none() {
            NearStats::add(&self.stats.held_back);
        }
        true
    }

    fn collect(&mut self, now: Instant, calls: &mut Calls<'_>) {
        let Some(apart) = &mut self.apart else { return };
        let Apart { has_batch, .. } = std::mem::take(apart);
        self.stats.outstanding.store(0, Ordering::Relaxed);
        self.stats.note_answer();
        // It may have gone with the batch.
        if has_batch && self.is_answered() {
            self.now = now;
            self.take_calls(calls);
        }
    }

    fn has_batch(&self) -> bool {
        self.apart.as_ref().is_some_and(|apart| apart.has_batch)
    }

    fn wake_at(&self) -> Option<Instant> {
        // What waits for an application in debt is handed over as soon as it is out of it.
        self.apart.as_ref().and_then(|apart| apart.in_debt).or(self.wish)
    }

    fn runs_anywhere(&self) -> bool {
        self.parts.runs_anywhere
    }
}

/// Wakes an elastic thread that sleeps while its application has a batch. For the one who puts it to sleep.
#[derive(Debug)]
pub struct NearBell {
    socket: OwnedFd,
    /// The application has closed its end, or shut it down.
    is_mute: AtomicBool,
    events: Arc<Memory>,
    calls: Arc<Memory>,
    stats: Arc<NearStats>,
}

impl NearBell {
    /// Asks the application to ring when it is done. Answers whether the thread may sleep: false where it is done
    /// already.
    pub fn arm(&self) -> bool {
        let Some(asleep) = self.events.word(layout::ASLEEP) else { return false };
        let is_over = || {
            let outstanding = self.stats.outstanding.load(Ordering::Relaxed);
            let done = self.calls.word(layout::BATCH).map(|done| done.load(Ordering::Acquire));
            outstanding != 0 && done == Some(outstanding)
        };
        waiting::side(asleep).arm(layout::AT_THE_BELL, |One| is_over()).is_quiet()
    }

    /// What becomes readable when the application rings. `None` once it cannot any more: its end would be taken for a
    /// ring for ever, and on its own core keep it from ending, or from whatever else it does.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        (!self.is_mute.load(Ordering::Relaxed)).then(|| self.socket.as_fd())
    }

    /// Undoes it.
    pub fn disarm(&self) {
        if let Some(asleep) = self.events.word(layout::ASLEEP) {
            waiting::side(asleep).disarm(layout::AT_THE_BELL);
        }
        let mut rings = [0u8; RINGS];
        // Never waits, whatever the application does with its end. What is left ends the next sleep.
        match recv(&self.socket, &mut rings, RecvFlags::DONTWAIT) {
            Ok((_, 1..)) | Err(Errno::AGAIN | Errno::INTR) => {}
            Ok(_) | Err(_) => self.is_mute.store(true, Ordering::Relaxed),
        }
    }
}
