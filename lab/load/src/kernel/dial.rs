//! Connections that come and go over kernel sockets: [`Sockets`] as the [`ChurnEngine`]'s [`Dialer`].

use std::io::{self, ErrorKind};
use std::net::{Shutdown, TcpStream};

use rustix::event::epoll::EventFlags;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with, sockopt};

use super::part::Part;
use super::sockets::{Received, Slot, Sockets};
use crate::churn::{ChurnEngine, Dialer};
use crate::config::CloseMode;
use crate::connection::Sender;

/// Handles what epoll said about one socket.
pub(super) fn on_event(
    part: &Part<'_>,
    engine: &mut ChurnEngine,
    dialer: &mut Sockets,
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

impl Sockets {
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

impl Dialer for Sockets {
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
                if let Some(Slot { stream: Some(stream), .. }) = self.slots.get(slot as usize) {
                    // A socket that the peer has already reset fails here; its end is reported by
                    // the event that is on its way.
                    let _ = stream.shutdown(Shutdown::Write);
                }
            }
        }
    }
}
