//! A real service: its control socket and its statistics segment, reached without making anybody wait.
//!
//! A service may be stopped in a debugger, or mean harm. Reaching it is therefore the business of a thread of its own,
//! for a bounded time, and nothing of what it says of itself is believed that can be checked: the kernel names the
//! process and the user that listen at its socket, and its segment is read only where it is sealed. A service of
//! another user than root and the daemon's own is refused before it has said a word.

use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use endpoint::{Answer, Client, ClientError, Description, Request};
use rustix::process::geteuid;
use statseg::{Reading, Segment};

use crate::bell::Bell;
use crate::link::{Gone, Link};
use crate::process::{Held, Process};
use crate::unsafe_peer::Peer;
use crate::world::Reached;

/// Services that are being reached at a time.
const REACHING_MAX: usize = 32;

/// Longest name in a description (scheduler, domain, driver), in bytes.
const WORD_BYTES_MAX: usize = 128;
/// Largest batch in a description, in packets.
const BATCH_MAX: u32 = 65_536;

/// See the module's comment.
pub struct Connection {
    client: Client,
    description: Description,
    reading: Arc<Reading>,
}

impl Connection {
    /// Connects, asks what the service is, and joins its segment. Waits for some seconds at most.
    ///
    /// # Errors
    /// What did not work, and where.
    pub fn reach(path: &Path) -> Result<Self, String> {
        let said = |error: ClientError| error.to_string();
        let file = std::fs::symlink_metadata(path).map_err(|error| error.to_string())?;
        // Before the connection: a stranger's socket may keep whoever connects waiting.
        check_user(file.uid())?;
        let mut client = Client::connect(path).map_err(said)?;
        let peer = Peer::of(&client.fd())
            .map_err(|error| format!("cannot read the credentials of its socket: {error}"))?;
        check_user(peer.uid)?;
        let (description, segment) = client.describe().map_err(said)?;
        let reading = Segment::join(segment).map_err(|error| error.to_string())?;
        let layout = reading.layout();
        let (threads, groups) = (description.threads, description.groups);
        if (layout.threads, layout.groups) != (threads, groups) {
            return Err(format!(
                "the service says that it has {threads} elastic threads and {groups} flow groups, and its segment \
                 is for {} and {}",
                layout.threads, layout.groups
            ));
        }
        check_description(&description)?;
        Ok(Self { client, description, reading })
    }

    /// Holds the process that listens at the socket, by the pidfd that the kernel gives ([`Held::peer`]). It answers
    /// after it is held: where the kernel gives no more than a number, that is not another process's by then.
    ///
    /// # Errors
    /// It cannot be held, or says that it is another one.
    pub fn hold(&mut self, proc: &Path) -> Result<Held, String> {
        let mut held = Held::peer(proc, &self.client.fd())
            .map_err(|error| format!("cannot hold the process that listens: {error}"))?;
        let (listens, says) = (held.identity().pid, self.description.pid);
        if listens != says {
            return Err(format!(
                "it says that it is process {says}, and process {listens} listens"
            ));
        }
        let again = self.client.describe().map_err(|error| error.to_string())?;
        if again.0.pid != says || held.ended().is_some() {
            return Err(format!("process {says} ended while it was looked at"));
        }
        Ok(held)
    }
}

/// Whether the daemon governs services of this user: root's, and those of its own user.
fn check_user(uid: u32) -> Result<(), String> {
    let own = geteuid().as_raw();
    if uid == 0 || uid == own {
        return Ok(());
    }
    Err(format!(
        "cannot govern a service of user {uid}: only those of root and of user {own} are; remove its socket, or start \
         it as one of them"
    ))
}

/// Whether the numbers and names of a description are in their ranges.
fn check_description(description: &Description) -> Result<(), String> {
    let Description { threads, cpus, batch_max, scheduler, domain, driver, .. } = description;
    if cpus.len() != usize::from(*threads) {
        return Err(format!("the service names {} processors for {threads} threads", cpus.len()));
    }
    let cpu_max = control::sysfs::CPU_MAX as usize;
    if let Some(cpu) = cpus.iter().flatten().find(|cpu| **cpu > cpu_max) {
        return Err(format!("the service names processor {cpu}; allowed: 0 to {cpu_max}"));
    }
    if !(1..=BATCH_MAX).contains(batch_max) {
        return Err(format!("the service names a batch of {batch_max}; allowed: 1 to {BATCH_MAX}"));
    }
    let is_word = |word: &&String| {
        word.len() <= WORD_BYTES_MAX
            && word.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
    };
    match [scheduler, domain, driver].into_iter().find(|word| !is_word(word)) {
        None => Ok(()),
        Some(word) => Err(format!(
            "the service describes itself with a name of {} bytes; allowed: {WORD_BYTES_MAX} visible ASCII letters",
            word.len()
        )),
    }
}

impl Link for Connection {
    fn description(&self) -> &Description {
        &self.description
    }

    fn reading(&self) -> &Reading {
        &self.reading
    }

    fn ask(&mut self, request: Request) -> Result<u64, Gone> {
        self.client.ask(request).map_err(|error| Gone(error.to_string()))
    }

    fn answers(&mut self) -> Result<Vec<Answer>, Gone> {
        self.client.answers().map_err(|error| Gone(error.to_string()))
    }

    fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        Some(self.client.fd())
    }
}

/// What became of reaching a service of this name.
type Told = (String, Result<Reached, String>);

/// Reaches services on threads of their own.
pub struct Connector {
    proc: std::path::PathBuf,
    bell: Arc<Bell>,
    sender: Sender<Told>,
    results: Receiver<Told>,
    under_way: usize,
}

impl Connector {
    /// `proc` is where processes are shown; `bell` rings when there is a result.
    pub fn new(proc: &Path, bell: &Arc<Bell>) -> Self {
        let (sender, results) = channel();
        let (proc, bell) = (proc.to_owned(), Arc::clone(bell));
        Self { proc, bell, sender, results, under_way: 0 }
    }

    /// Begins to reach a service.
    pub fn connect(&mut self, name: &str, path: &Path) {
        self.under_way += 1;
        let (sender, bell) = (self.sender.clone(), Arc::clone(&self.bell));
        let (owned, path, proc) = (name.to_owned(), path.to_owned(), self.proc.clone());
        let reach = move || {
            let reached = Connection::reach(&path).map(|mut connection| {
                let process = connection.hold(&proc);
                let process = process.map(|held| Box::new(held) as Box<dyn Process>);
                Reached { link: Box::new(connection), process }
            });
            // Nobody listens where the daemon ends.
            let _ = sender.send((owned, reached));
            bell.ring();
        };
        let begun = if self.under_way > REACHING_MAX {
            Err(format!("{REACHING_MAX} services are being reached already"))
        } else {
            let thread = std::thread::Builder::new().name("reach".to_owned()).spawn(reach);
            thread.map(drop).map_err(|error| format!("no thread to reach it: {error}"))
        };
        if let Err(reason) = begun {
            // It cannot fail: the other end is ours.
            let _ = self.sender.send((name.to_owned(), Err(reason)));
            self.bell.ring();
        }
    }

    /// What has become known since the last call.
    pub fn connected(&mut self) -> Vec<Told> {
        let results: Vec<Told> = self.results.try_iter().collect();
        self.under_way -= results.len().min(self.under_way);
        results
    }
}
