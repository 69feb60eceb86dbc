//! Where agents come in: accepts, and shakes hands with each comer on a thread of its own, so that a
//! stranger who says nothing keeps nobody waiting.

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::mpsc::Sender;
use std::sync::{Arc, OnceLock};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::frame::FrameError;
use super::handshake::{Introduced, Secret, introduce};
use super::message::ToCoordinator;

/// How often to look whether the door is to be taken away.
const LOOK_EVERY: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// Most handshakes at a time; whoever comes beyond is turned away at once.
const HANDSHAKES_MAX: u32 = 256;
/// How long to wait where nothing can be accepted, as when no file is free.
const PAUSE: Duration = Duration::from_millis(50);

/// What happens to a coordinator.
#[derive(Debug)]
pub(super) enum Event {
    /// Somebody has shaken hands: the connection, where it comes from, and who it is.
    Came(TcpStream, SocketAddr, Box<Introduced>),
    /// Somebody was turned away, for a reason.
    Refused(SocketAddr, String),
    /// The agent of this number said something, at a moment.
    Said(usize, Instant, ToCoordinator),
    /// The agent of this number is gone.
    Gone(usize, FrameError),
}

/// What the threads have in common.
#[derive(Debug)]
struct Shared {
    secret: Option<Secret>,
    /// Why nobody is wanted any more.
    closed: OnceLock<String>,
    gone: AtomicBool,
    handshakes: AtomicU32,
}

/// The door. Taken away when dropped.
#[derive(Debug)]
pub(super) struct Door {
    shared: Arc<Shared>,
    events: Sender<Event>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    /// Lets in who connects to `listener`; what happens is told to `events`.
    pub fn open(
        listener: TcpListener,
        secret: Option<Secret>,
        events: Sender<Event>,
    ) -> std::io::Result<Self> {
        listener.set_nonblocking(true)?;
        let shared = Arc::new(Shared {
            secret,
            closed: OnceLock::new(),
            gone: AtomicBool::new(false),
            handshakes: AtomicU32::new(0),
        });
        let (theirs, sender) = (Arc::clone(&shared), events.clone());
        let thread = std::thread::Builder::new()
            .name("load door".into())
            .spawn(move || accept(&listener, &theirs, &sender))?;
        Ok(Self { shared, events, thread: Some(thread) })
    }

    /// From now on turns away whoever comes, with `reason`.
    pub fn close(&self, reason: String) {
        // Closed for the first reason.
        let _ = self.shared.closed.set(reason);
    }

    /// Where events are told.
    pub fn events(&self) -> Sender<Event> {
        self.events.clone()
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.shared.gone.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked has ended, too.
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>, events: &Sender<Event>) {
    while !shared.gone.load(Ordering::Acquire) {
        let mut watched = [PollFd::new(listener, PollFlags::IN)];
        if !matches!(poll(&mut watched, Some(&LOOK_EVERY)), Ok(1..)) {
            continue;
        }
        let Ok((stream, peer)) = listener.accept() else {
            std::thread::sleep(PAUSE);
            continue;
        };
        if shared.handshakes.fetch_add(1, Ordering::AcqRel) >= HANDSHAKES_MAX {
            shared.handshakes.fetch_sub(1, Ordering::AcqRel);
            continue;
        }
        let (theirs, sender) = (Arc::clone(shared), events.clone());
        let spawned = std::thread::Builder::new().name("load handshake".into()).spawn(move || {
            let event = shake_hands(stream, peer, &theirs);
            theirs.handshakes.fetch_sub(1, Ordering::AcqRel);
            // A coordinator that has ended needs no guests.
            let _ = sender.send(event);
        });
        if spawned.is_err() {
            shared.handshakes.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

fn shake_hands(stream: TcpStream, peer: SocketAddr, shared: &Shared) -> Event {
    let full = || shared.closed.get().cloned();
    // Accepted sockets block, whatever the listener does; said again, since not every system agrees.
    let introduced = stream
        .set_nonblocking(false)
        .map_err(|error| error.to_string())
        .and_then(|()| introduce(&stream, shared.secret.as_ref(), full));
    match introduced {
        Ok(introduced) => Event::Came(stream, peer, Box::new(introduced)),
        Err(reason) => Event::Refused(peer, reason),
    }
}
