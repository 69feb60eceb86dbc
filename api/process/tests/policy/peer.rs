//! A peer: a real stack with an address of its own, whose application connects, sends and keeps what it hears.

use std::sync::Arc;

use clock::Instant;
use domain::{CallArray, Calls, Cookie, Event, EventArray, Handle};
use mem::{Mbuf, Pool, TxFrame};
use stack::{Secrets, Shared, Stack, StackConfig};
use wire::{Endpoint, Ipv4Addr, MICROSOFT_KEY, MacAddr};

use crate::application::message;
use crate::world::{PEER_PORTS, SEGMENT, SERVER};

const EVENTS: usize = 512;
const CALLS: usize = 128;
const TX_FRAMES: usize = 256;

/// A connection as its peer sees it.
#[derive(Clone, Debug)]
pub struct Connection {
    /// The peer's own port, and the server's.
    pub ports: (u16, u16),
    /// None: not open yet, refused, or over.
    pub handle: Option<Handle>,
    /// The attempt failed, or the connection ended.
    pub is_over: bool,
    /// Bytes of the server that arrived.
    pub received: usize,
}

/// What a peer does.
#[derive(Clone, Copy, Debug)]
pub enum Act {
    /// Connects from the first port to the server's second one.
    Connect(u16, u16),
    /// On the connection of this number.
    Send(usize),
    Close(usize),
    Abort(usize),
    /// A datagram from the first port to the server's second one.
    Datagram(u16, u16),
}

pub struct Peer {
    pub address: Ipv4Addr,
    pub connections: Vec<Connection>,
    /// Datagrams that arrived: the server's port and the peer's own.
    pub datagrams: Vec<(u16, u16)>,
    pub acts: Vec<Act>,
    pub frames: Vec<Mbuf>,
    stack: Stack,
    events: EventArray,
    calls: CallArray,
    buffers: Vec<(Option<Handle>, Mbuf)>,
}

/// Secrets that tests know.
pub fn secrets() -> Secrets {
    Secrets { rss_key: MICROSOFT_KEY, isn_key: [1; 16], port_key: [2; 16], offset: 3 }
}

impl Peer {
    /// The settings of a peer, and its secrets.
    pub fn shared(address: Ipv4Addr, mac: MacAddr) -> Arc<Shared> {
        let mut config = StackConfig::new(address, 8, mac);
        config.tcp_listen = PEER_PORTS.to_vec();
        config.udp_bind = PEER_PORTS.to_vec();
        Arc::new(Shared::new(config, &secrets(), 1))
    }

    pub fn new(shared: &Arc<Shared>, now: Instant) -> Self {
        Self {
            address: shared.config.address().v4().expect("peers speak IPv4"),
            connections: Vec::new(),
            datagrams: Vec::new(),
            acts: Vec::new(),
            frames: Vec::new(),
            stack: Stack::new(Arc::clone(shared), 0, now, TX_FRAMES),
            events: EventArray::new(EVENTS),
            calls: CallArray::new(CALLS, SEGMENT),
            buffers: Vec::new(),
        }
    }

    /// The server's end is at this link address.
    pub fn learn(&self, server: MacAddr, now: Instant) {
        self.stack.shared().neighbors.learn(SERVER.into(), server, now);
    }

    /// One cycle. Answers the frames that it sends.
    pub fn cycle(&mut self, now: Instant, pool: &mut Pool) -> &mut Vec<TxFrame> {
        let Self { stack, events, calls, buffers, frames, .. } = self;
        stack.deliver(now, pool, events);
        stack.input(now, frames, pool, events, |_, mbuf, pool| pool.free(mbuf));
        let seen = events.view(&());
        let mut issued = Calls::new(calls, pool);
        for event in seen.iter() {
            hear(event, &mut self.connections, &mut self.datagrams, &mut issued);
        }
        for act in self.acts.drain(..) {
            perform(act, self.address, &mut self.connections, &mut issued);
        }
        events.take_buffers(buffers);
        stack.execute(now, calls, buffers, pool, events);
        stack.run_timers(now, pool, events);
        stack.flush(now, pool, events);
        stack.frames()
    }

    /// Gives all packet memory back.
    pub fn leave(mut self, pool: &mut Pool) {
        self.frames.drain(..).for_each(|mbuf| pool.free(mbuf));
        self.events.drain().for_each(|(_, mbuf)| pool.free(mbuf));
        self.buffers.drain(..).for_each(|(_, mbuf)| pool.free(mbuf));
        self.stack.close(pool);
    }
}

/// Takes an event in. A peer accepts each connection of the server's.
fn hear(
    event: Event<'_>,
    connections: &mut Vec<Connection>,
    datagrams: &mut Vec<(u16, u16)>,
    calls: &mut Calls<'_>,
) {
    let of = |cookie: Cookie| cookie.0 as usize;
    match event {
        Event::Knock { handle, local, peer, .. } => {
            calls.accept(handle, Cookie(connections.len() as u64)).expect("room for few calls");
            let ports = (local.port(), peer.port);
            connections.push(Connection {
                ports,
                handle: Some(handle),
                is_over: false,
                received: 0,
            });
        }
        Event::Connected { cookie, outcome, .. } => {
            let connection = &mut connections[of(cookie)];
            connection.handle = outcome.ok().map(|(handle, _)| handle);
            connection.is_over = outcome.is_err();
        }
        Event::Recv { handle, cookie, data, .. } => {
            connections[of(cookie)].received += data.len();
            calls.recv_done(handle, data.len()).expect("room for few calls");
        }
        Event::Dead { cookie, .. } => {
            let connection = &mut connections[of(cookie)];
            (connection.handle, connection.is_over) = (None, true);
        }
        Event::Datagram { local, peer, .. } => datagrams.push((peer.port, local.port())),
        Event::Sent { .. }
        | Event::Eof { .. }
        | Event::Again { .. }
        | Event::Listening { .. }
        | Event::Info { .. }
        | Event::Failed { .. } => {}
    }
}

fn perform(act: Act, address: Ipv4Addr, connections: &mut Vec<Connection>, calls: &mut Calls<'_>) {
    let open = |number: usize| Some((number, connections.get(number)?.handle?));
    let done = match act {
        Act::Connect(own, port) => {
            let cookie = Cookie(connections.len() as u64);
            let ports = (own, port);
            connections.push(Connection { ports, handle: None, is_over: false, received: 0 });
            calls.connect_from(cookie, own, Endpoint::new(SERVER, port))
        }
        Act::Send(number) => open(number).map_or(Ok(()), |(number, handle)| {
            let (own, port) = connections[number].ports;
            calls.sendv(handle, &[&message(Endpoint::new(address, own), port)])
        }),
        Act::Close(number) => open(number).map_or(Ok(()), |(_, handle)| calls.close(handle)),
        Act::Abort(number) => open(number).map_or(Ok(()), |(_, handle)| calls.abort(handle)),
        Act::Datagram(own, port) => {
            let bytes = message(Endpoint::new(address, own), port);
            calls.udp_sendv(own, Endpoint::new(SERVER, port), &[&bytes])
        }
    };
    done.expect("room for few calls");
}
