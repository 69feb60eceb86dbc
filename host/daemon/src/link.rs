//! A running service, as the daemon reaches it: requests over its control socket, numbers from its segment.
//!
//! [`Link`] is what the daemon's logic is written against. [`Connection`](crate::Connection) is a real service's
//! socket; the tests have services of their own. No call of it blocks.

use std::os::fd::BorrowedFd;

use endpoint::{Answer, Description, Request};
use statseg::{Reading, State};

/// The service does not answer any more: why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gone(pub String);

/// See the module's comment.
pub trait Link: Send {
    /// What the service said of itself when it was reached. It has as many threads and flow groups as its segment.
    fn description(&self) -> &Description;

    /// What it shows of itself.
    fn reading(&self) -> &Reading;

    /// Asks; the number that the answer will bear.
    ///
    /// # Errors
    /// The service is gone, or takes no more.
    fn ask(&mut self, request: Request) -> Result<u64, Gone>;

    /// Answers that have come since the last call.
    ///
    /// # Errors
    /// The service is gone; answers that came before were handed out.
    fn answers(&mut self) -> Result<Vec<Answer>, Gone>;

    /// What becomes readable when answers have come.
    fn descriptor(&self) -> Option<BorrowedFd<'_>>;
}

impl dyn Link + '_ {
    /// What a thread does.
    pub fn state(&self, thread: u16) -> State {
        self.reading().thread(thread).map_or(State::Unknown, |thread| thread.state)
    }

    /// The home of each flow group; thread 0 where the service does not say.
    pub fn homes(&self) -> Vec<u16> {
        self.reading().homes().into_iter().map(Option::unwrap_or_default).collect()
    }

    /// Whether the service is ending, or has: all of its threads say so.
    pub fn is_leaving(&self) -> bool {
        (0..self.description().threads).all(|thread| self.state(thread) == State::Leaving)
    }
}

/// A request in words.
pub fn words_of(request: &Request) -> String {
    match request {
        Request::Describe => "describe".to_owned(),
        Request::Grant { thread } => format!("grant thread {thread}"),
        Request::Park { thread } => format!("park thread {thread}"),
        Request::Move { from, to, groups } => {
            format!("move {} groups from {from} to {to}", groups.len())
        }
        Request::Place { thread, cpu } => format!("place thread {thread} on processor {cpu}"),
        Request::End => "end".to_owned(),
    }
}
