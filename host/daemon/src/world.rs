//! What is outside of the daemon: services in the run directory, and processes. [`World`] is what the daemon's logic is
//! written against.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};

use crate::link::Link;
use crate::process::{Identity, Process};

/// A program to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Launch {
    /// Its name, or a path to it.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

/// A service that was reached.
pub struct Reached {
    /// The connection to it.
    pub link: Box<dyn Link>,
    /// Its process, which answered after it was held; or why it could not be held.
    pub process: Result<Box<dyn Process>, String>,
}

/// See the module's comment. Nothing of it waits for a service.
pub trait World {
    /// Services whose control sockets are in the run directory: names, and where.
    ///
    /// # Errors
    /// The directory cannot be read; one that is not there has no services.
    fn list(&mut self) -> io::Result<Vec<(String, PathBuf)>>;

    /// Begins to reach a service; what becomes of it is in [`connected`](Self::connected).
    fn connect(&mut self, name: &str, path: &Path);

    /// Services that were reached, or could not be, since the last call.
    fn connected(&mut self) -> Vec<(String, Result<Reached, String>)>;

    /// Starts a program in a session of its own.
    ///
    /// # Errors
    /// What the system says.
    fn spawn(&mut self, launch: &Launch) -> io::Result<Box<dyn Process>>;

    /// Holds a process that was held before.
    ///
    /// # Errors
    /// It has ended, whatever bears its number now.
    fn again(&mut self, identity: &Identity) -> io::Result<Box<dyn Process>>;

    /// Holds the process that was started so, where there is one: by its whole command line.
    fn find(&mut self, launch: &Launch) -> Option<Box<dyn Process>>;
}
