//! The service's side: one ordinary thread that lets clients in, reads what they ask, and has it carried out.
//!
//! ```text
//! clients  ->  peer (one packet at a time, checked)  ->  desk (who asked what)  ->  Steering
//!                                                        <-  outcomes, when they come
//! ```
//!
//! Everything is bounded: clients, requests without an answer of each, answers that a client does not read.
//! Whoever goes beyond is told so, or dropped.

mod desk;
mod door;
mod peer;

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::protocol::{Answer, Ask, Description, Outcome};
use desk::Desk;
pub use door::{BindError, Door};

/// Between two looks for outcomes, where some are to come.
const LOOK: Duration = Duration::from_millis(1);
/// How long nobody is let in after there were no descriptors for one more.
const BREATHER: Duration = Duration::from_millis(100);

/// Who carries requests out. No call may wait.
pub trait Steering: Send + 'static {
    /// What the service is.
    fn describe(&self) -> Description;
    /// The descriptor of its statistics segment.
    ///
    /// # Errors
    /// There is none, or no descriptors are left.
    fn segment(&self) -> io::Result<OwnedFd>;
    /// Begins with any request but [`Request::Describe`](crate::Request), which the two above answer. None: one of the
    /// [`reports`](Self::reports) will answer it, once.
    fn begin(&mut self, ask: Ask) -> Option<Outcome>;
    /// What has become of requests since the last call.
    fn reports(&mut self) -> Vec<Answer>;
}

/// A control socket that is served until this is dropped.
#[derive(Debug)]
pub struct Server {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    bell: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Serves it from now on, until the server is dropped.
    ///
    /// # Errors
    /// No descriptors, no threads.
    pub fn serve(self, steering: impl Steering) -> Result<Server, BindError> {
        let path = self.path().to_owned();
        let bell = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK);
        let bell = Arc::new(bell.map_err(BindError::system(&path))?);
        let stop = Arc::new(AtomicBool::new(false));
        let (ring, flag) = (Arc::clone(&bell), Arc::clone(&stop));
        let serve = move || serve(&self, Desk::new(steering), &ring, &flag);
        let thread = std::thread::Builder::new().name("control-socket".into()).spawn(serve);
        let thread = Some(thread.map_err(BindError::system(&path))?);
        Ok(Server { path, stop, bell, thread })
    }
}

impl Server {
    /// Makes a control socket and serves it at once: [`Door::open`], [`Door::serve`].
    ///
    /// # Errors
    /// [`BindError`].
    pub fn bind(run_dir: &Path, name: &str, steering: impl Steering) -> Result<Self, BindError> {
        Door::open(run_dir, name)?.serve(steering)
    }

    /// Where the socket is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // A full counter wakes, too.
        let _ = rustix::io::write(&*self.bell, &1u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            // A steering that panicked has said so already.
            let _ = thread.join();
        }
    }
}

fn serve(door: &Door, mut desk: Desk<impl Steering>, bell: &OwnedFd, stop: &AtomicBool) {
    let mut full = false;
    while !stop.load(Ordering::Acquire) {
        let breather = full.then_some(BREATHER);
        let timeout = if desk.is_waiting() { Some(LOOK) } else { breather };
        if let Err(errno) = wait(door, &desk, bell, full, timeout) {
            tracing::warn!(%errno, "the control socket is not served any more");
            return;
        }
        full = !let_in(door, &mut desk);
        desk.turn();
    }
    desk.farewell();
}

/// Waits until there is something to do. An interruption is another look.
fn wait(
    door: &Door,
    desk: &Desk<impl Steering>,
    bell: &OwnedFd,
    full: bool,
    timeout: Option<Duration>,
) -> rustix::io::Result<()> {
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    let mut asked: Vec<PollFd<'_>> = vec![PollFd::new(bell, PollFlags::IN)];
    if !full {
        asked.push(PollFd::from_borrowed_fd(door.listener(), PollFlags::IN));
    }
    asked.extend(desk.peers().map(|(socket, flags)| PollFd::from_borrowed_fd(socket, flags)));
    match poll(&mut asked, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// Lets all in who knock. Answers false where there are no descriptors to do so.
fn let_in(door: &Door, desk: &mut Desk<impl Steering>) -> bool {
    loop {
        match door.accept() {
            Ok(Some(socket)) => desk.welcome(socket),
            Ok(None) => return true,
            Err(error) => {
                tracing::warn!(%error, "a client of the control socket cannot be let in");
                return false;
            }
        }
    }
}
