//! A connection after its handshake, at either end: a thread that reads, a thread that tells the
//! other end that this one is alive, and a way to send.
//!
//! A peer that closes is noticed at once, one that falls silent (its machine is gone) after
//! [`SILENCE_MAX`].

use std::net::{Shutdown, TcpStream};
use std::sync::mpsc::{self, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde::Serialize;
use serde::de::DeserializeOwned;

use super::frame::{self, FRAME_BYTES_MAX, FrameError, Seal};

/// How often either end says that it is alive. A wake-up a second does not disturb a generator.
const ALIVE_EVERY: Duration = Duration::from_secs(1);
/// A peer from which nothing was heard for so long is lost.
pub(super) const SILENCE_MAX: Duration = Duration::from_secs(10);

/// One end of a connection. Ends it when dropped.
#[derive(Debug)]
pub(super) struct Link {
    writer: Arc<Mutex<Writer>>,
    /// For ending it while somebody sends.
    control: TcpStream,
    /// Dropped to end the thread that says it is alive.
    alive: Option<Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

/// What is sent on, and how it is sealed.
#[derive(Debug)]
struct Writer {
    stream: TcpStream,
    seal: Option<Seal>,
}

/// How both directions of a connection are sealed, as seen from one of its ends.
#[derive(Debug, Clone)]
pub(super) struct Seals {
    /// What this end sends.
    pub sent: Seal,
    /// What it receives.
    pub received: Seal,
}

impl Link {
    /// Takes over `stream`, whose frames have `seals` where both ends have a secret: each message goes to `deliver` with the moment at which it came, the end
    /// of the connection as the last; `false` from it ends the reading.
    pub fn new<M: DeserializeOwned>(
        stream: TcpStream,
        seals: Option<Seals>,
        mut deliver: impl FnMut(Instant, Result<M, FrameError>) -> bool + Send + 'static,
    ) -> std::io::Result<Self> {
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(SILENCE_MAX))?;
        stream.set_write_timeout(Some(SILENCE_MAX))?;
        let mut reader = stream.try_clone()?;
        let control = stream.try_clone()?;
        let (sent, mut received) = seals.map(|seals| (seals.sent, seals.received)).unzip();
        let writer = Arc::new(Mutex::new(Writer { stream, seal: sent }));
        let reading = std::thread::Builder::new().name("load link".into()).spawn(move || {
            loop {
                let read = frame::read(&mut reader, FRAME_BYTES_MAX, received.as_mut());
                let at = Instant::now();
                let goes_on = match read {
                    Ok(None) => true,
                    Ok(Some(message)) => deliver(at, Ok(message)),
                    Err(error) => {
                        deliver(at, Err(error));
                        false
                    }
                };
                if !goes_on {
                    return;
                }
            }
        })?;
        let (alive, ended) = mpsc::channel::<()>();
        let ours = Arc::clone(&writer);
        let telling = std::thread::Builder::new().name("load alive".into()).spawn(move || {
            while ended.recv_timeout(ALIVE_EVERY) == Err(RecvTimeoutError::Timeout) {
                let Writer { stream, seal } =
                    &mut *ours.lock().unwrap_or_else(PoisonError::into_inner);
                // The reader notices what is wrong with the connection.
                let _ = frame::write_alive(stream, seal.as_mut());
            }
        })?;
        Ok(Self { writer, control, alive: Some(alive), threads: vec![reading, telling] })
    }

    /// Sends `message`.
    pub fn send<M: Serialize>(&self, message: &M) -> Result<(), FrameError> {
        let Writer { stream, seal } =
            &mut *self.writer.lock().unwrap_or_else(PoisonError::into_inner);
        frame::write(stream, message, seal.as_mut())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.alive = None;
        // Frees the reader; a connection that is already gone needs no end.
        let _ = self.control.shutdown(Shutdown::Both);
        for thread in self.threads.drain(..) {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}
