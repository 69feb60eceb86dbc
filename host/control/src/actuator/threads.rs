//! Elastic threads, as the control plane sees them: a dataplane implements this over its shared memory.

use crate::control_loop::{Outcome, RequestId};
use crate::metrics::{GroupId, ThreadId};

/// Who carries out what is decided on elastic threads and flow groups. Calls may return before it has happened:
/// what became of them is in [`outcomes`](Self::outcomes), of each exactly once.
pub trait ElasticThreads {
    /// Resumes a thread on its processor.
    fn grant(&mut self, thread: ThreadId);
    /// Suspends a thread that has no flow group.
    fn park(&mut self, thread: ThreadId);
    /// Moves flow groups in one request. Several may be under way at a time.
    fn migrate(&mut self, request: RequestId, from: ThreadId, to: ThreadId, groups: &[GroupId]);
    /// What has become known since the last call.
    fn outcomes(&mut self) -> Vec<Outcome>;
}

/// A dataplane for tests: it does everything at once, writes it down, and fails where it is told to.
#[derive(Debug, Default)]
pub struct Recorder {
    /// All calls, in words.
    pub said: Vec<String>,
    /// Threads that cannot be granted.
    pub refuses: Vec<ThreadId>,
    /// Nothing ever comes back.
    pub silent: bool,
    outcomes: Vec<Outcome>,
}

impl Recorder {
    fn note(&mut self, said: String, outcome: Outcome) {
        self.said.push(said);
        if !self.silent {
            self.outcomes.push(outcome);
        }
    }
}

impl ElasticThreads for Recorder {
    fn grant(&mut self, thread: ThreadId) {
        let refused = self.refuses.contains(&thread);
        let outcome = if refused { Outcome::GrantFailed(thread) } else { Outcome::Granted(thread) };
        self.note(format!("grant {}", thread.0), outcome);
    }

    fn park(&mut self, thread: ThreadId) {
        self.note(format!("park {}", thread.0), Outcome::Parked(thread));
    }

    fn migrate(&mut self, request: RequestId, from: ThreadId, to: ThreadId, groups: &[GroupId]) {
        let outcome = Outcome::Migrated { request: Some(request), to, groups: groups.to_vec() };
        self.note(format!("migrate {} groups from {} to {}", groups.len(), from.0, to.0), outcome);
    }

    fn outcomes(&mut self) -> Vec<Outcome> {
        std::mem::take(&mut self.outcomes)
    }
}
