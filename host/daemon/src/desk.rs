//! What passes between the thread that controls services and the one that talks to people.
//!
//! Each side leaves things for the other and rings; nobody ever waits for the other, but for the few instructions that
//! the other holds the lock.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::bell::Bell;
use crate::commands::{Answered, Command};
use crate::events::Event;
use crate::status::Snapshot;

/// Commands that wait to be taken.
const COMMANDS_MAX: usize = 1_024;
/// Events that wait to be taken.
const EVENTS_MAX: usize = 8_192;

#[derive(Default)]
struct Left {
    snapshot: Arc<Snapshot>,
    commands: Vec<Command>,
    answers: Vec<Answered>,
    events: VecDeque<Event>,
    lost: u64,
    reload: bool,
}

/// See the module's comment.
pub struct Desk {
    left: Mutex<Left>,
    /// Rings for the thread that controls services.
    pub control: Arc<Bell>,
    /// Rings for the thread that talks to people.
    pub front: Bell,
    /// When the latter was last known to live.
    front_alive_ns: AtomicU64,
    stop: AtomicBool,
}

impl Desk {
    /// An empty one.
    ///
    /// # Errors
    /// No descriptors are left.
    pub fn new() -> io::Result<Self> {
        Ok(Self {
            left: Mutex::default(),
            control: Arc::new(Bell::new()?),
            front: Bell::new()?,
            front_alive_ns: AtomicU64::new(0),
            stop: AtomicBool::new(false),
        })
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        // What is left is whole whatever panicked beside it.
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Leaves a command; false where too many wait.
    #[must_use]
    pub fn ask(&self, command: Command) -> bool {
        let mut left = self.left();
        if left.commands.len() >= COMMANDS_MAX {
            return false;
        }
        left.commands.push(command);
        drop(left);
        self.control.ring();
        true
    }

    /// Asks for the services' files to be read again.
    pub fn ask_to_reload(&self) {
        self.left().reload = true;
        self.control.ring();
    }

    /// Whether that was asked since the last call.
    pub fn take_reload(&self) -> bool {
        std::mem::take(&mut self.left().reload)
    }

    /// Commands since the last call.
    pub fn commands(&self) -> Vec<Command> {
        std::mem::take(&mut self.left().commands)
    }

    /// Leaves answers and events; of too many events, the latest.
    pub fn tell(&self, answers: Vec<Answered>, events: Vec<Event>) {
        if answers.is_empty() && events.is_empty() {
            return;
        }
        let mut left = self.left();
        left.answers.extend(answers);
        for event in events {
            if left.events.len() >= EVENTS_MAX {
                left.events.pop_front();
                left.lost += 1;
            }
            left.events.push_back(event);
        }
        drop(left);
        self.front.ring();
    }

    /// Answers, events, and how many events were lost, since the last call.
    pub fn told(&self) -> (Vec<Answered>, Vec<Event>, u64) {
        let mut left = self.left();
        let events = left.events.drain(..).collect();
        (std::mem::take(&mut left.answers), events, std::mem::take(&mut left.lost))
    }

    /// Leaves how things stand.
    pub fn show(&self, snapshot: Snapshot) {
        let snapshot = Arc::new(snapshot);
        self.left().snapshot = snapshot;
    }

    /// How things stand.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        Arc::clone(&self.left().snapshot)
    }

    /// The thread that talks to people lives.
    pub fn set_front_alive(&self, now_ns: u64) {
        self.front_alive_ns.store(now_ns, Ordering::Relaxed);
    }

    /// When it was last known to live.
    pub fn front_alive_ns(&self) -> u64 {
        self.front_alive_ns.load(Ordering::Relaxed)
    }

    /// The thread that talks to people shall end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
        self.front.ring();
    }

    /// Whether it shall.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}
