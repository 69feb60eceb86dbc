//! `read`, `recv`, `recvfrom`, `recvmsg`; `write`, `send`, `sendto`, `sendmsg`; what is queued.

use alloc::collections::VecDeque;

use wire::Endpoint;

use crate::datagram::{Datagram, Datagrams, EACH_BYTES};
use crate::errno::Errno;
use crate::sockets::{Answer, BLOCKED, Kind, Socket, Sockets, Stop, Wait};
use crate::stream::{CORKED_FOR, Phase};

/// Linux's flags of messages.
pub mod message {
    /// Urgent data: not served.
    pub const MSG_OOB: u32 = 0x1;
    /// Read without taking.
    pub const MSG_PEEK: u32 = 0x2;
    /// The bytes did not fit; asked for, the length that they had. Of a stream: take them without reading.
    pub const MSG_TRUNC: u32 = 0x20;
    /// Do not wait.
    pub const MSG_DONTWAIT: u32 = 0x40;
    /// Wait for all that was asked for.
    pub const MSG_WAITALL: u32 = 0x100;
    /// The queue of errors: always empty.
    pub const MSG_ERRQUEUE: u32 = 0x2000;
    /// No signal with `EPIPE`: there is none here; who drives the sockets sends it.
    pub const MSG_NOSIGNAL: u32 = 0x4000;
    /// More follows.
    pub const MSG_MORE: u32 = 0x8000;
}
use message::*;

/// What was received.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Received {
    /// How many bytes; with `MSG_TRUNC`, how many the datagram had.
    pub bytes: usize,
    /// From whom, of a datagram.
    pub from: Option<Endpoint>,
    /// `MSG_TRUNC` where a datagram did not fit.
    pub flags: u32,
}

/// Copies from the front of a queue.
fn copy(queue: &VecDeque<u8>, buffer: &mut [u8]) -> usize {
    let (first, second) = queue.as_slices();
    let len = buffer.len().min(queue.len());
    let split = first.len().min(len);
    buffer[..split].copy_from_slice(&first[..split]);
    buffer[split..len].copy_from_slice(&second[..len - split]);
    len
}

impl Sockets {
    /// `recvfrom`, of which `read`, `recv` and `recvmsg` are special cases. With `MSG_WAITALL`, [`Wait::done`]
    /// bytes are in `buffer`: ask again for the rest.
    ///
    /// # Errors
    /// `ENOTCONN`, `EAGAIN`, `EINVAL`, the socket's error.
    pub fn receive(&mut self, descriptor: i32, buffer: &mut [u8], flags: u32) -> Answer<Received> {
        let (slot, socket) = self.find(descriptor)?;
        let waits = !socket.is_nonblocking && flags & MSG_DONTWAIT == 0;
        let blocked = if waits { BLOCKED } else { Errno::EAGAIN.into() };
        if flags & MSG_OOB != 0 {
            return Err(Errno::EINVAL.into());
        }
        if flags & MSG_ERRQUEUE != 0 {
            return Err(Errno::EAGAIN.into());
        }
        let Socket { kind, error, .. } = socket;
        let stream = match kind {
            Kind::Stream(stream) => stream,
            Kind::Datagrams(datagrams) => {
                if let Some(error) = error.take() {
                    return Err(error.into());
                }
                return receive_datagram(datagrams, buffer, flags, blocked);
            }
            Kind::Epoll(_) => return Err(Errno::EINVAL.into()),
        };
        match stream.phase {
            Phase::Fresh => return Err(error.take().unwrap_or(Errno::ENOTCONN).into()),
            Phase::Listening(_) => return Err(Errno::ENOTCONN.into()),
            Phase::Connecting => return Err(blocked),
            Phase::Open => {}
        }
        if stream.received.is_empty() {
            return match error.take() {
                Some(error) => Err(error.into()),
                None if stream.is_at_end() || buffer.is_empty() => Ok(Received::default()),
                None => Err(blocked),
            };
        }
        let bytes = match flags & MSG_TRUNC {
            0 => copy(&stream.received, buffer),
            _ => buffer.len().min(stream.received.len()),
        };
        if flags & MSG_PEEK == 0 {
            stream.received.drain(..bytes);
            stream.read += bytes;
        }
        let is_end = stream.is_at_end() || error.is_some() || flags & MSG_PEEK != 0;
        self.touch(slot);
        if flags & MSG_WAITALL != 0 && waits && bytes < buffer.len() && !is_end {
            return Err(Stop::Blocked(Wait { until: None, done: bytes }));
        }
        Ok(Received { bytes, from: None, flags: 0 })
    }

    /// `sendto`, of which `write`, `send` and `sendmsg` are special cases. A blocking socket waits until all is queued:
    /// [`Wait::done`] bytes are, ask again with the rest.
    ///
    /// # Errors
    /// `EPIPE`, `EAGAIN`, `EDESTADDRREQ`, `EMSGSIZE`, `EAFNOSUPPORT`, `EOPNOTSUPP` of urgent data, the socket's error.
    pub fn send(
        &mut self,
        descriptor: i32,
        bytes: &[u8],
        flags: u32,
        to: Option<Endpoint>,
    ) -> Answer<usize> {
        let now = self.now;
        let most = self.config.datagram_bytes;
        let (slot, socket) = self.find(descriptor)?;
        let waits = !socket.is_nonblocking && flags & MSG_DONTWAIT == 0;
        let blocked = if waits { BLOCKED } else { Errno::EAGAIN.into() };
        if flags & MSG_OOB != 0 {
            return Err(Errno::EOPNOTSUPP.into());
        }
        let Socket { kind, error, options, is_v4, .. } = socket;
        if let Some(error) = error.take() {
            return Err(error.into());
        }
        let stream = match kind {
            Kind::Stream(stream) => stream,
            Kind::Datagrams(datagrams) => {
                let to = to.or(datagrams.peer).ok_or(Errno::EDESTADDRREQ)?;
                if to.addr.is_ipv4() != *is_v4 {
                    return Err(Errno::EAFNOSUPPORT.into());
                }
                if datagrams.sends_no_more {
                    return Err(Errno::EPIPE.into());
                }
                if bytes.len() > most {
                    return Err(Errno::EMSGSIZE.into());
                }
                if datagrams.unsent_bytes + bytes.len() + EACH_BYTES > options.send_bytes as usize {
                    return Err(blocked);
                }
                self.bind_datagrams(slot)?;
                return self.queue_datagram(slot, bytes, to);
            }
            Kind::Epoll(_) => return Err(Errno::EINVAL.into()),
        };
        if stream.phase == Phase::Connecting {
            return Err(blocked);
        }
        if !stream.may_send() {
            return Err(Errno::EPIPE.into());
        }
        let room = (options.send_bytes as usize).saturating_sub(stream.queued());
        let taken = bytes.len().min(room);
        stream.unsent.extend(&bytes[..taken]);
        let is_held = flags & MSG_MORE != 0 || options.cork;
        stream.hold_until = is_held.then(|| stream.hold_until.unwrap_or(now + CORKED_FOR));
        self.touch(slot);
        match taken {
            taken if taken == bytes.len() => Ok(taken),
            done if waits => Err(Stop::Blocked(Wait { until: None, done })),
            0 => Err(Errno::EAGAIN.into()),
            taken => Ok(taken),
        }
    }

    /// As [`receive`](Self::receive), for a call that is made again until it has its result: `done` bytes of `buffer` are
    /// filled. What came before an end or an error counts.
    ///
    /// # Errors
    /// Those of `receive`.
    pub fn receive_rest(
        &mut self,
        descriptor: i32,
        buffer: &mut [u8],
        flags: u32,
        done: &mut usize,
    ) -> Answer<Received> {
        match self.receive(descriptor, &mut buffer[*done..], flags) {
            Err(Stop::Failed(_)) if *done > 0 => {
                Ok(Received { bytes: *done, from: None, flags: 0 })
            }
            answer => continued(answer, done)
                .map(|received| Received { bytes: received.bytes + *done, ..received }),
        }
    }

    /// As [`send`](Self::send), for a call that is made again until it has its result: `done` bytes are queued.
    ///
    /// # Errors
    /// Those of `send`.
    pub fn send_rest(
        &mut self,
        descriptor: i32,
        bytes: &[u8],
        flags: u32,
        (to, done): (Option<Endpoint>, &mut usize),
    ) -> Answer<usize> {
        match self.send(descriptor, &bytes[*done..], flags, to) {
            Err(Stop::Failed(_)) if *done > 0 => Ok(*done),
            answer => continued(answer, done).map(|sent| sent + *done),
        }
    }

    fn queue_datagram(&mut self, slot: u32, bytes: &[u8], to: Endpoint) -> Answer<usize> {
        if let Some(Socket { kind: Kind::Datagrams(datagrams), local, .. }) =
            self.table.get_mut(slot)
        {
            let local = datagrams.source_to(to, self.config.name_of(*local));
            datagrams.unsent.push_back(Datagram { local, peer: to, bytes: bytes.into() });
            datagrams.unsent_bytes += bytes.len() + EACH_BYTES;
        }
        self.touch(slot);
        Ok(bytes.len())
    }

    /// `ioctl` with `FIONREAD`, which is `SIOCINQ`: bytes that can be read; of datagrams, those of the next one.
    ///
    /// # Errors
    /// `EINVAL` of a socket that listens.
    pub fn readable_bytes(&mut self, descriptor: i32) -> Answer<usize> {
        let (_, socket) = self.find(descriptor)?;
        match &socket.kind {
            Kind::Stream(stream) if matches!(stream.phase, Phase::Listening(_)) => {
                Err(Errno::EINVAL.into())
            }
            Kind::Stream(stream) => Ok(stream.received.len()),
            Kind::Datagrams(datagrams) => {
                Ok(datagrams.received.front().map_or(0, |datagram| datagram.bytes.len()))
            }
            Kind::Epoll(_) => Err(Errno::ENOTTY.into()),
        }
    }

    /// `ioctl` with `SIOCOUTQ`: bytes that were given and are not acknowledged; of
    /// datagrams, those that are not sent, with bookkeeping.
    ///
    /// # Errors
    /// `EINVAL` of a socket that listens.
    pub fn unsent_bytes(&mut self, descriptor: i32) -> Answer<usize> {
        let (_, socket) = self.find(descriptor)?;
        match &socket.kind {
            Kind::Stream(stream) if matches!(stream.phase, Phase::Listening(_)) => {
                Err(Errno::EINVAL.into())
            }
            Kind::Stream(stream) => Ok(stream.queued()),
            Kind::Datagrams(datagrams) => Ok(datagrams.unsent_bytes),
            Kind::Epoll(_) => Err(Errno::ENOTTY.into()),
        }
    }
}

/// Counts what a call that blocks has done.
fn continued<T>(answer: Answer<T>, done: &mut usize) -> Answer<T> {
    if let Err(Stop::Blocked(wait)) = answer {
        *done += wait.done;
    }
    answer
}

fn receive_datagram(
    datagrams: &mut Datagrams,
    buffer: &mut [u8],
    flags: u32,
    blocked: Stop,
) -> Answer<Received> {
    let Some(Datagram { local, peer, bytes }) = datagrams.received.front() else {
        return if datagrams.reads_no_more { Ok(Received::default()) } else { Err(blocked) };
    };
    let len = bytes.len().min(buffer.len());
    buffer[..len].copy_from_slice(&bytes[..len]);
    let (from, whole) = (Some(*peer), bytes.len());
    datagrams.last_read = Some((*local, *peer));
    if flags & MSG_PEEK == 0 {
        datagrams.received_bytes -= whole + EACH_BYTES;
        datagrams.received.pop_front();
    }
    let bytes = if flags & MSG_TRUNC != 0 { whole } else { len };
    Ok(Received { bytes, from, flags: if whole > len { MSG_TRUNC } else { 0 } })
}
