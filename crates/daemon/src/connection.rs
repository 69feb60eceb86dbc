//! A real service: its control socket and its statistics segment, reached without making anybody wait.
//!
//! A service may be stopped in a debugger, or mean harm. Reaching it is therefore the business of a thread of its own,
//! for a bounded time, and nothing of what it says of itself is believed that can be checked: who listens at its
//! socket is asked of the kernel, and its segment is read only where it is sealed.

use std::os::fd::BorrowedFd;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};

use endpoint::{Answer, Client, ClientError, Description, Request};
use statseg::{Reading, Segment};

use crate::bell::Bell;
use crate::link::{Gone, Link};
use crate::process::{Held, Process};
use crate::world::Reached;

/// Services that are being reached at a time.
const REACHING_MAX: usize = 32;

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
        let mut client = Client::connect(path).map_err(said)?;
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
        if description.cpus.len() != usize::from(threads) {
            let named = description.cpus.len();
            return Err(format!("the service names {named} processors for {threads} threads"));
        }
        Ok(Self { client, description, reading })
    }

    /// Holds the process that listens at the socket. It answers after it is held: so it is not another one that was
    /// given its number.
    ///
    /// # Errors
    /// It cannot be held, or says that it is another one.
    pub fn hold(&mut self, proc: &Path) -> Result<Held, String> {
        let credentials = rustix::net::sockopt::socket_peercred(self.client.fd())
            .map_err(|error| format!("who listens cannot be known: {error}"))?;
        let listens = credentials.pid.as_raw_nonzero().get();
        let says = self.description.pid;
        if u32::try_from(listens).ok() != Some(says) {
            return Err(format!(
                "it says that it is process {says}, and process {listens} listens"
            ));
        }
        let mut held = Held::adopt(proc, says).map_err(|error| error.to_string())?;
        let again = self.client.describe().map_err(|error| error.to_string())?;
        if again.0.pid != says || held.ended().is_some() {
            return Err(format!("process {says} ended while it was looked at"));
        }
        Ok(held)
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
        let told = (self.sender.clone(), Arc::clone(&self.bell));
        let (name, path, proc) = (name.to_owned(), path.to_owned(), self.proc.clone());
        let tell = move |told: (Sender<Told>, Arc<Bell>), name, result| {
            // Nobody listens where the daemon ends.
            let _ = told.0.send((name, result));
            told.1.ring();
        };
        if self.under_way > REACHING_MAX {
            tell(told, name, Err(format!("{REACHING_MAX} services are being reached already")));
            return;
        }
        let spawned = std::thread::Builder::new().name("reach".to_owned()).spawn({
            let (told, name) = (told.clone(), name.clone());
            move || {
                let reached = Connection::reach(&path).map(|mut connection| {
                    let process = connection.hold(&proc);
                    let process = process.map(|held| Box::new(held) as Box<dyn Process>);
                    Reached { link: Box::new(connection), process }
                });
                tell(told, name, reached);
            }
        });
        if let Err(error) = spawned {
            let _ = told.0.send((name, Err(format!("no thread to reach it: {error}"))));
            told.1.ring();
        }
    }

    /// What has become known since the last call.
    pub fn connected(&mut self) -> Vec<Told> {
        let results: Vec<Told> = self.results.try_iter().collect();
        self.under_way -= results.len().min(self.under_way);
        results
    }
}
