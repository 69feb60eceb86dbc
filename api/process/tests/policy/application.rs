//! The hostile application: issues the calls of a script on whatever handles the script names.

use std::collections::VecDeque;

use clock::Instant;
use domain::{CallError, Calls, ConnectError, Cookie, Event, Events, Handle, Service};
use wire::Endpoint;

/// Bytes of every message: the sender's address and port, and the receiver's port.
pub const MESSAGE: usize = 8;

/// A message that names its flow.
pub fn message(from: Endpoint, to_port: u16) -> [u8; MESSAGE] {
    let ([a, b, c, d], [e, f], [g, h]) = (
        from.addr.v4().expect("peers speak IPv4").octets(),
        from.port.to_be_bytes(),
        to_port.to_be_bytes(),
    );
    [a, b, c, d, e, f, g, h]
}

/// One call of the script.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Accept(Handle),
    Send(Handle),
    RecvDone(Handle, usize),
    Close(Handle),
    Abort(Handle),
    Again(Handle),
    Connect(u64, Endpoint),
    Datagram(u16, Endpoint),
}

/// What the application learned from one event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Heard {
    Knock {
        handle: Handle,
        peer: Endpoint,
        local_port: u16,
    },
    Connected {
        cookie: u64,
        outcome: Result<Handle, ConnectError>,
    },
    Bytes {
        handle: Handle,
        data: Vec<u8>,
    },
    Datagram {
        peer: Endpoint,
        local_port: u16,
        data: Vec<u8>,
    },
    Failed(CallError),
    Dead(Handle),
    /// Any other event of a connection.
    Of(Handle),
}

/// Runs the script, and keeps what it hears.
#[derive(Debug, Default)]
pub struct Application {
    pub script: VecDeque<Call>,
    pub heard: Vec<Heard>,
    /// Accepts each knock and gives back all bytes, as an honest application does.
    pub is_honest: bool,
}

impl Application {
    fn hear(&mut self, event: Event<'_>, calls: &mut Calls<'_>) {
        let heard = match event {
            Event::Knock { handle, peer, local, .. } => {
                if self.is_honest {
                    calls.accept(handle, Cookie(handle.to_bits())).expect("room for few calls");
                }
                Heard::Knock { handle, peer, local_port: local.port() }
            }
            Event::Connected { cookie, outcome, .. } => {
                Heard::Connected { cookie: cookie.0, outcome: outcome.map(|(handle, _)| handle) }
            }
            Event::Recv { handle, data, .. } => {
                if self.is_honest {
                    calls.recv_done(handle, data.len()).expect("room for few calls");
                }
                Heard::Bytes { handle, data: data.to_vec() }
            }
            Event::Datagram { peer, local, data } => {
                Heard::Datagram { peer, local_port: local.port(), data: data.to_vec() }
            }
            Event::Failed { error, .. } => Heard::Failed(error),
            Event::Dead { handle, .. } => Heard::Dead(handle),
            Event::Listening { .. } => return,
            Event::Sent { handle, .. }
            | Event::Info { handle, .. }
            | Event::Eof { handle, .. }
            | Event::Again { handle, .. } => Heard::Of(handle),
        };
        self.heard.push(heard);
    }

    fn issue(&mut self, call: Call, calls: &mut Calls<'_>) {
        let issued = match call {
            Call::Accept(handle) => calls.accept(handle, Cookie(handle.to_bits())),
            Call::Send(handle) => calls.sendv(handle, &[&[0x5e; MESSAGE]]),
            Call::RecvDone(handle, bytes) => calls.recv_done(handle, bytes),
            Call::Close(handle) => calls.close(handle),
            Call::Abort(handle) => calls.abort(handle),
            Call::Again(handle) => {
                calls.again(handle);
                Ok(())
            }
            Call::Connect(cookie, peer) => calls.connect(Cookie(cookie), peer),
            Call::Datagram(local_port, peer) => {
                calls.udp_sendv(local_port, peer, &[&[0x5e; MESSAGE]])
            }
        };
        // Where there is no room now, the next batch has some.
        if issued.is_err() {
            self.script.push_back(call);
        }
    }
}

impl Service for Application {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            self.hear(event, calls);
        }
        for _ in 0..self.script.len() {
            let Some(call) = self.script.pop_front() else { break };
            self.issue(call, calls);
        }
    }
}
