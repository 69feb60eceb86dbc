//! Drives the [`ChurnEngine`] over kernel sockets: connections that come and go.
//!
//! Sockets are watched edge-triggered for everything at once, so that a connection's life needs
//! one `epoll_ctl` and not three.

use std::io::{self, ErrorKind};
use std::net::{Shutdown, SocketAddr, TcpStream};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use super::config::Wait;
use super::drive::preload_only;
use super::part::Part;
use super::poller::Poller;
use super::sockets::{Received, advice, close_by_reset, read_buffer, read_once, write_once};
use crate::churn::{ChurnEngine, Dialer};
use crate::config::CloseMode;
use crate::connection::Sender;
use crate::engine::Phase;
use crate::error::LoadError;
use crate::measurement::Ran;
use crate::usage::WindowUsage;

/// Connections over which the keys are stored before the churn.
const PRELOAD_CONNECTIONS: u32 = 4;

/// Stores the keys, waits for the other threads, and runs the load.
pub(super) fn run(part: &Part<'_>) -> Result<Ran, LoadError> {
    let load = &part.load;
    if load.preloads() && part.workload.keys() > 0 {
        preload_only(part, PRELOAD_CONNECTIONS)?;
    }
    let mut dialer = KernelDialer {
        target: part.transport.target,
        poller: Poller::new(part.transport.wait)?,
        slots: (0..load.connections).map(|_| Slot::default()).collect(),
        broken: Vec::new(),
        first_failure: None,
    };
    let mut engine = ChurnEngine::new(load, std::sync::Arc::clone(&part.workload))?;
    let mut buffer = read_buffer();
    let mut ready = Vec::new();
    let mut usage = WindowUsage::default();
    engine.start(part.rendezvous.meet(part.now_ns()).ok_or(LoadError::OtherThread)?);
    loop {
        let now_ns = part.now_ns();
        let poll = engine.poll(now_ns, &mut dialer);
        usage.on_phase(poll.phase);
        if poll.phase == Phase::Done {
            let mut measured = engine.finish(now_ns);
            usage.add_to(&mut measured, part.transport.wait == Wait::Spin);
            return Ok(Ran { measured, first_failure: dialer.first_failure.take() });
        }
        if part.is_stopped() {
            return Err(LoadError::OtherThread);
        }
        dialer.poller.wait(now_ns, poll.wake_ns, &mut ready)?;
        for &(token, flags) in &ready {
            on_event(part, &mut engine, &mut dialer, token, flags, &mut buffer);
        }
        while let Some(slot) = dialer.broken.pop() {
            engine.on_failed(slot, part.now_ns());
        }
    }
}

/// Handles what epoll said about one socket.
fn on_event(
    part: &Part<'_>,
    engine: &mut ChurnEngine,
    dialer: &mut KernelDialer,
    token: u64,
    flags: EventFlags,
    buffer: &mut [u8],
) {
    let slot = token as u32;
    let Some(connecting) = dialer.state_of(token) else { return };
    if connecting {
        if !flags.intersects(EventFlags::OUT | EventFlags::ERR | EventFlags::HUP) {
            return;
        }
        match dialer.finish_connect(slot) {
            Ok(()) => engine.on_connected(slot, part.now_ns(), dialer),
            Err(error) => {
                dialer.fail(slot, "connect", &error);
                engine.on_failed(slot, part.now_ns());
                return;
            }
        }
    } else if flags.contains(EventFlags::OUT) {
        engine.on_writable(slot, dialer);
    }
    if !flags.intersects(EventFlags::IN | EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR) {
        return;
    }
    // Edge-triggered: read until there is no more. A short read has emptied the socket, unless
    // the peer's FIN came with it.
    let until_closed = flags.intersects(EventFlags::RDHUP | EventFlags::HUP | EventFlags::ERR);
    loop {
        // The slot may have begun its next cycle: what follows belongs to the old one.
        if dialer.state_of(token) != Some(false) {
            return;
        }
        match dialer.receive(slot, buffer) {
            Received::Nothing => return,
            Received::Closed => return engine.on_peer_closed(slot, part.now_ns()),
            Received::Bytes(bytes) => {
                engine.on_received(slot, &buffer[..bytes], part.now_ns(), dialer);
                if bytes < buffer.len() && !until_closed {
                    return;
                }
            }
        }
    }
}

/// The socket of a slot. The generation tells its events from those of earlier sockets.
#[derive(Debug, Default)]
struct Slot {
    stream: Option<TcpStream>,
    connecting: bool,
    generation: u32,
}

#[derive(Debug)]
struct KernelDialer {
    target: SocketAddr,
    poller: Poller,
    slots: Vec<Slot>,
    /// Slots whose last send failed.
    broken: Vec<u32>,
    first_failure: Option<String>,
}

impl KernelDialer {
    /// Whether the socket that `token` stands for is connecting; `None` when it is gone.
    fn state_of(&self, token: u64) -> Option<bool> {
        let slot = self.slots.get(token as u32 as usize)?;
        let current = slot.stream.is_some() && slot.generation == (token >> 32) as u32;
        current.then_some(slot.connecting)
    }

    fn finish_connect(&mut self, slot: u32) -> io::Result<()> {
        let state = &mut self.slots[slot as usize];
        state.connecting = false;
        let stream = state.stream.as_ref().ok_or(ErrorKind::NotConnected)?;
        stream.take_error()?.map_or(Ok(()), Err)
    }

    fn receive(&mut self, slot: u32, buffer: &mut [u8]) -> Received {
        let Some(stream) = self.slots[slot as usize].stream.as_mut() else {
            return Received::Nothing;
        };
        let received = read_once(stream, buffer);
        if matches!(received, Received::Closed) {
            self.slots[slot as usize].stream = None;
        }
        received
    }

    /// Lets go of a slot's socket, and keeps the reason of the first failure.
    fn fail(&mut self, slot: u32, call: &str, error: &io::Error) {
        self.slots[slot as usize].stream = None;
        let target = self.target;
        self.first_failure
            .get_or_insert_with(|| format!("{call} to {target}: {error}; {}", advice(error)));
    }

    /// A socket that is on its way to the target.
    fn dial(&mut self, slot: u32) -> Result<(), (&'static str, Errno)> {
        let family = if self.target.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = socket_with(family, SocketType::STREAM, flags, None)
            .map_err(|errno| ("socket", errno))?;
        sockopt::set_tcp_nodelay(&socket, true).map_err(|errno| ("setsockopt", errno))?;
        match rustix::net::connect(&socket, &self.target) {
            Ok(()) | Err(Errno::INPROGRESS) => {}
            Err(errno) => return Err(("connect", errno)),
        }
        let state = &mut self.slots[slot as usize];
        state.generation = state.generation.wrapping_add(1);
        let token = u64::from(slot) | u64::from(state.generation) << 32;
        let interest = EventFlags::IN | EventFlags::OUT | EventFlags::RDHUP | EventFlags::ET;
        self.poller.add(&socket, token, interest).map_err(|errno| ("epoll_ctl", errno))?;
        state.stream = Some(TcpStream::from(socket));
        state.connecting = true;
        Ok(())
    }
}

impl Sender for KernelDialer {
    fn send(&mut self, slot: u32, bytes: &[u8]) -> usize {
        let Some(stream) = self.slots.get_mut(slot as usize).and_then(|s| s.stream.as_mut()) else {
            return 0;
        };
        match write_once(stream, bytes) {
            // Where it is short, the edge of OUT follows by itself.
            Ok(taken) => taken,
            Err(error) => {
                self.fail(slot, "send", &error);
                self.broken.push(slot);
                0
            }
        }
    }

    fn abort(&mut self, slot: u32) {
        if let Some(stream) = self.slots.get_mut(slot as usize).and_then(|s| s.stream.take()) {
            close_by_reset(stream);
        }
    }
}

impl Dialer for KernelDialer {
    fn connect(&mut self, slot: u32) -> bool {
        match self.dial(slot) {
            Ok(()) => true,
            Err((call, errno)) => {
                self.fail(slot, call, &errno.into());
                false
            }
        }
    }

    fn close(&mut self, slot: u32, how: CloseMode) {
        match how {
            CloseMode::Rst => self.abort(slot),
            CloseMode::Fin => {
                let Some(stream) = self.slots.get(slot as usize).and_then(|s| s.stream.as_ref())
                else {
                    return;
                };
                // A socket that the peer has already reset fails here; its end is reported by
                // the event that is on its way.
                let _ = stream.shutdown(Shutdown::Write);
            }
        }
    }
}

impl Drop for KernelDialer {
    /// Ends by reset the cycles that the end of the run has cut off.
    fn drop(&mut self) {
        for slot in 0..self.slots.len() as u32 {
            self.abort(slot);
        }
    }
}
