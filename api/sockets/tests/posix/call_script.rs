//! Any calls in any order: a script of bytes becomes calls of both hosts' applications, and time.
//!
//! What must hold, whatever the script has: nothing panics; a call answers within what it was given room for; a stream has
//! the bytes that were sent, each once and in order; and in the end every descriptor, connection and chunk of memory is
//! free ([`World`]).
//!
//! The fuzzer runs the same interpreter.

use clock::{Duration, Instant};
use sockets::socket_type::{AF_INET, AF_INET6, SOCK_DGRAM, SOCK_NONBLOCK, SOCK_STREAM};
use sockets::{Answer, EpollEvent, EpollOperation, Errno, PollFd, Sockets, Stop, message, option};

use crate::support::{World, at, bytes};

/// Bytes of a script that are carried out.
const MAX_SCRIPT: usize = 1_500;
/// Descriptors that a script names; the world has sixteen.
const NAMED: usize = 18;
const PERIOD: usize = 251;
/// Bytes of one call at most.
const MOST: usize = 4_000;
const LEVELS: [i32; 4] = [option::SOL_SOCKET, option::SOL_TCP, 0, 41];

/// How far the streams of a host's descriptors are, where they began with a connection of this script.
type Progress = [[usize; 2]; NAMED];

/// A script's call of one host.
struct Call<'a> {
    sockets: &'a mut Sockets,
    host: usize,
    progress: &'a mut Progress,
    descriptor: i32,
    words: [u8; 2],
}

/// The value, where there is one.
fn value<T>(answer: Answer<T>) -> Option<T> {
    if let Err(Stop::Blocked(wait)) = &answer {
        assert!(wait.done <= MOST, "more is done than was given");
    }
    answer.ok()
}

impl Call<'_> {
    fn is_stream(&mut self) -> bool {
        let kind = self.sockets.option(self.descriptor, option::SOL_SOCKET, option::SO_TYPE);
        kind == Ok(SOCK_STREAM)
    }

    /// The streams of a descriptor begin.
    fn begins(&mut self, descriptor: i32) {
        if let Some(progress) = self.progress.get_mut(descriptor as usize) {
            *progress = [0; 2];
        }
    }

    fn send(&mut self, len: usize, flags: u32) {
        let is_stream = self.is_stream();
        let to = (!is_stream && len & 1 == 1)
            .then(|| at(1 - self.host, 100 + u16::from(self.words[1] & 7)));
        let index = self.descriptor as usize;
        let from = self.progress.get(index).map_or(0, |progress| progress[0]);
        let data = bytes(PERIOD + MOST);
        let data = &data[from % PERIOD..][..len];
        let answer = self.sockets.send(self.descriptor, data, flags, to);
        let sent = match answer {
            Ok(sent) => sent,
            Err(Stop::Blocked(wait)) => wait.done,
            Err(Stop::Failed(_)) => 0,
        };
        assert!(sent <= len, "{sent} of {len} bytes sent");
        if let Some(progress) = self.progress.get_mut(index) {
            progress[0] += sent;
        }
    }

    fn receive(&mut self, len: usize, flags: u32) {
        let is_stream = self.is_stream();
        let mut buffer = vec![0; len];
        let answer = self.sockets.receive(self.descriptor, &mut buffer, flags);
        let got = match answer {
            Ok(received) => received.bytes,
            Err(Stop::Blocked(wait)) => wait.done,
            Err(Stop::Failed(_)) => 0,
        };
        let Some(progress) = self.progress.get_mut(self.descriptor as usize) else { return };
        if is_stream {
            assert!(got <= len, "{got} bytes in {len}");
            if flags & message::MSG_TRUNC == 0 {
                let expected = &bytes(PERIOD + MOST)[progress[1] % PERIOD..][..got];
                assert!(buffer[..got] == *expected, "wrong bytes behind {}", progress[1]);
            }
            if flags & message::MSG_PEEK == 0 {
                progress[1] += got;
            }
        }
    }

    fn carry_out(mut self, kind: u8) {
        let Self { descriptor, words: [first, second], host, .. } = self;
        let len = usize::from(first) * usize::from(second) % MOST;
        let port = 100 + u16::from(first & 7);
        let flag =
            [0, message::MSG_DONTWAIT, message::MSG_PEEK, message::MSG_TRUNC, message::MSG_MORE];
        let flags =
            flag[usize::from(second) % flag.len()] | (message::MSG_DONTWAIT * u32::from(first & 1));
        let sockets = &mut *self.sockets;
        match kind % 24 {
            0 | 1 => {
                let family = if second == 255 { AF_INET6 } else { AF_INET };
                let kind = if first & 3 == 3 { SOCK_DGRAM } else { SOCK_STREAM };
                let wait = if first & 4 == 0 { SOCK_NONBLOCK } else { 0 };
                if let Some(new) = value(sockets.socket(family, kind | wait, 0)) {
                    self.begins(new);
                }
            }
            2 => drop(value(sockets.bind(descriptor, at(host, port)))),
            3 => drop(value(sockets.listen(descriptor, i32::from(second as i8)))),
            4 | 5 => {
                let wait = if first & 4 == 0 { SOCK_NONBLOCK } else { 0 };
                if let Some((new, _)) = value(sockets.accept(descriptor, wait)) {
                    self.begins(new);
                }
            }
            6 | 7 => {
                let had_peer = sockets.peer(descriptor).is_ok();
                let answer = sockets.connect(descriptor, at(1 - host, port));
                // One whose connection is over is refused, and may have more to read.
                let is_refused = answer == Err(Stop::Failed(Errno::EISCONN));
                let _ = value(answer);
                if !had_peer && !is_refused && self.is_stream() {
                    self.begins(descriptor);
                }
            }
            8..=10 => self.send(len, flags),
            11..=13 => self.receive(len, flags),
            14 => drop(value(sockets.shutdown(descriptor, i32::from(first % 4)))),
            15 => drop(value(sockets.close(descriptor))),
            16 => {
                let level = LEVELS[usize::from(first) % LEVELS.len()];
                let (name, number) =
                    (i32::from(first >> 2), i32::from(second as i8) << (first & 15));
                let _ = value(sockets.set_option(descriptor, level, name, number));
                let _ = value(sockets.option(descriptor, level, name));
            }
            17 => {
                let linger = Duration::from_millis(u64::from(second));
                let _ = value(sockets.set_linger(descriptor, (first & 1 == 1).then_some(linger)));
            }
            18 => drop(value(sockets.epoll_create())),
            19 | 20 => self.epoll(),
            21 => {
                let polled =
                    |descriptor| PollFd { descriptor, events: u32::from(second), found: 0 };
                let mut polled = [polled(descriptor), polled(i32::from(first % 20) - 1)];
                let ready = value(sockets.poll(&mut polled, Some(Instant::ZERO)));
                assert!(ready.is_none_or(|ready| ready <= 2));
            }
            22 => {
                let _ =
                    (value(sockets.local(descriptor)), value(sockets.readable_bytes(descriptor)));
            }
            _ => {
                let _ = (value(sockets.peer(descriptor)), value(sockets.info(descriptor)));
            }
        }
    }

    fn epoll(&mut self) {
        let [first, second] = self.words;
        let operations = [EpollOperation::Add, EpollOperation::Change, EpollOperation::Remove];
        let events = u32::from(second) | u32::from(first & 0xf0) << 24;
        let event = EpollEvent { events, data: u64::from(first) };
        let other = i32::from(first % 18);
        let set = self.descriptor;
        if second & 1 == 1 {
            let operation = operations[usize::from(second >> 1) % 3];
            let _ = value(self.sockets.epoll_control(set, operation, other, event));
        } else {
            let mut found = [event; 4];
            let most = 1 + usize::from(first % 4);
            let ready =
                value(self.sockets.epoll_wait(set, &mut found[..most], Some(Instant::ZERO)));
            assert!(ready.is_none_or(|ready| ready <= most));
        }
    }
}

/// Carries out a script and checks what must hold.
pub fn run(script: &[u8]) {
    let mut world = World::new();
    // The first two descriptors are a connection.
    world.connected();
    let mut progress: [Progress; 2] = [[[0; 2]; NAMED]; 2];
    for step in script[..script.len().min(MAX_SCRIPT)].chunks_exact(4) {
        let &[kind, name, first, second] = step else { continue };
        match kind {
            0..=191 => {
                let host = usize::from(name & 1);
                let now = world.now;
                world.sockets[host].set_now(now);
                let (sockets, progress) = (&mut world.sockets[host], &mut progress[host]);
                // Half of the calls are of the first descriptors, which most often are open.
                let most = if name & 128 == 0 { NAMED } else { 3 };
                let descriptor = i32::from(name >> 1 & 63) % most as i32;
                Call { sockets, host, progress, descriptor, words: [first, second] }
                    .carry_out(kind);
            }
            192..=239 => (0..=first % 16).for_each(|_| world.step()),
            240..=249 => world.skip(Duration::from_millis(u64::from(first) << (second % 4))),
            250.. => world.is_joined = first & 1 == 0,
        }
    }
}
