//! The guest's end of the channel: the second serial port, a line for each event.

use std::fs::{File, OpenOptions};
use std::io::Write;
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::Context;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};

use crate::protocol::Event;

const PORT: &str = "/dev/ttyS1";

/// Sends events to the host, from any thread.
#[derive(Clone, Debug)]
pub struct Channel {
    port: Arc<Mutex<File>>,
}

impl Channel {
    /// Opens it.
    ///
    /// # Errors
    /// The port cannot be opened.
    pub fn open() -> anyhow::Result<Self> {
        let port = OpenOptions::new().read(true).write(true).open(PORT);
        let port = port.with_context(|| format!("opening {PORT}"))?;
        let mut attributes = tcgetattr(&port).context("looking at the serial port")?;
        attributes.make_raw();
        tcsetattr(&port, OptionalActions::Now, &attributes).context("setting the serial port")?;
        Ok(Self { port: Arc::new(Mutex::new(port)) })
    }

    /// Sends an event. There is nobody to report a failure to: the host notices the silence.
    pub fn send(&self, event: &Event) {
        let mut line = serde_json::to_vec(event).unwrap_or_default();
        line.push(b'\n');
        let mut port = self.port.lock().unwrap_or_else(PoisonError::into_inner);
        let _ = port.write_all(&line);
    }
}
