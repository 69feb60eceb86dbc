//! Event conditions: what the dataplane tells the application.

use mem::Mbuf;
use wire::Endpoint;

use crate::{Cookie, Handle, LocalEndpoint};

/// Why `connect` failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ConnectError {
    /// The peer answered with a reset: nothing listens there.
    Refused,
    /// No answer to any of the SYNs.
    TimedOut,
    /// Nobody answers ARP for the next hop, or a router said so.
    Unreachable,
    /// No ephemeral port towards this peer leads back to this core.
    NoPort,
    /// The table of connections is full.
    NoMemory,
    /// The operator's policy does not allow this application to connect there.
    Forbidden,
    /// The dataplane does not have the local address that the call names, or the address has another version than the
    /// peer's.
    BadAddress,
}

/// Why a connection ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeadReason {
    /// Both directions were closed in order.
    Closed,
    /// The peer sent a reset.
    Reset,
    /// The peer stopped answering.
    TimedOut,
    /// The application aborted it, or closed it and received bytes were left or came later.
    Aborted,
}

/// Which call, for error events.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "named after the calls")]
pub enum CallKind {
    Connect,
    Accept,
    Sendv,
    RecvDone,
    Close,
    Abort,
    UdpSendv,
    Shutdown,
    Listen,
    Unlisten,
    Inform,
}

/// Why a call was not, or not wholly, executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CallError {
    /// The handle names no connection, or one that has ended.
    BadHandle,
    /// The call makes no sense in the connection's state (sending after close, accepting twice), or in the port's
    /// (opening an open one, closing a closed one).
    BadState,
    /// Only the first `accepted` bytes were taken: the window, or the packet memory, was smaller.
    Trimmed {
        /// Bytes taken.
        accepted: u32,
    },
    /// More bytes were to be returned than had been received.
    TooMuch,
    /// A datagram did not fit one frame, or no route leads there.
    Unsendable,
    /// The operator's policy does not allow this application to send there, or from that port, or to open that port.
    Forbidden,
    /// The connection is on its way to another core, and as many calls wait for it as may, or there is no packet memory
    /// to answer in: try again.
    Busy,
    /// The dataplane does not have the local address that the call names, or the address has another version than the
    /// peer's.
    BadAddress,
}

/// One event condition (IX Table II), as the application sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Event<'a> {
    /// A remotely initiated connection was opened. Answer with `accept` or `close`.
    Knock {
        /// The connection.
        handle: Handle,
        /// The own address and the port that the peer connected to.
        local: LocalEndpoint,
        /// The peer.
        peer: Endpoint,
        /// Bytes that may be sent now.
        window: u32,
    },
    /// A locally initiated connection finished opening.
    Connected {
        /// As passed to `connect`.
        cookie: Cookie,
        /// The own address and the port of the connection; unspecified where there is none.
        local: LocalEndpoint,
        /// The connection and the bytes that may be sent now, or why there is none.
        outcome: Result<(Handle, u32), ConnectError>,
    },
    /// Bytes were received; they stand where the NIC put them. Give them back with `recv_done`.
    Recv {
        /// The connection.
        handle: Handle,
        /// As passed to `accept` or `connect`.
        cookie: Cookie,
        /// The bytes, in the order of the stream.
        data: &'a [u8],
        /// Bytes that the same segment newly acknowledged: where a request comes with the
        /// acknowledgment of the last reply, one event tells of both.
        acked: u32,
        /// Bytes that may be sent now, as of the event: what is sent in answer to earlier events of
        /// the same batch is to be taken off.
        window: u32,
    },
    /// The peer acknowledged bytes, and the window may have changed, without bytes for us.
    Sent {
        /// The connection.
        handle: Handle,
        /// As passed to `accept` or `connect`.
        cookie: Cookie,
        /// Bytes newly acknowledged.
        bytes: u32,
        /// Bytes that may be sent now, as of the event: see [`Recv`](Self::Recv).
        window: u32,
    },
    /// The peer will send no more (its FIN came, behind all `Recv` events). We still may.
    Eof {
        /// The connection.
        handle: Handle,
        /// As passed to `accept` or `connect`.
        cookie: Cookie,
    },
    /// Nothing came, but [`Calls::again`](crate::Calls::again) asked to be told of the connection.
    Again {
        /// The connection.
        handle: Handle,
        /// As passed to `accept` or `connect`.
        cookie: Cookie,
        /// Bytes that may be sent now, as of the event: see [`Recv`](Self::Recv).
        window: u32,
    },
    /// The connection ended; its handle is stale from now on.
    Dead {
        /// The connection.
        handle: Handle,
        /// As passed to `accept` or `connect`; zero where `accept` had not been called yet.
        cookie: Cookie,
        /// Why.
        reason: DeadReason,
    },
    /// A datagram was received. Its bytes are valid during this batch only.
    Datagram {
        /// The own address and the port that it was sent to: a reply leaves from there (RFC 1122 §4.1.3.5).
        local: LocalEndpoint,
        /// Its sender.
        peer: Endpoint,
        /// Its payload.
        data: &'a [u8],
    },
    /// A port is open: see [`Calls::listen`](crate::Calls::listen).
    Listening {
        /// As passed to `listen`.
        cookie: Cookie,
    },
    /// What is known of a connection: see [`Calls::inform`](crate::Calls::inform).
    Info {
        /// The connection.
        handle: Handle,
        /// As passed to `accept` or `connect`.
        cookie: Cookie,
        /// A [`ConnectionInfo`](crate::ConnectionInfo) as bytes.
        info: &'a [u8],
    },
    /// A call was not, or not wholly, executed.
    Failed {
        /// Which call.
        call: CallKind,
        /// The handle that it named, as far as it had one.
        handle: Handle,
        /// The connection's cookie, where the handle names one, or the cookie that came with the call.
        cookie: Cookie,
        /// Why.
        error: CallError,
    },
}

/// A frame trimmed to its payload, with the connection that received it (`None`: UDP).
pub type Received = (Option<Handle>, Mbuf);

/// Where the bytes of an event stand: a buffer of the batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BufferRef {
    /// Index into the batch's buffers.
    pub index: u32,
}

/// Bytes that may be sent on a connection that knocks, in two bytes beside the addresses of both ends: 65,535 where more
/// may be sent, until the next event of the connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FirstWindow(u16);

impl FirstWindow {
    /// So many bytes, or 65,535.
    pub const fn new(bytes: u32) -> Self {
        Self(if bytes < u16::MAX as u32 { bytes as u16 } else { u16::MAX })
    }

    /// How many.
    pub const fn bytes(self) -> u32 {
        self.0 as u32
    }
}

/// One event condition as a record of fixed size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[expect(missing_docs, reason = "the fields are those of `Event`")]
pub enum EventRecord {
    Knock { handle: Handle, local: LocalEndpoint, peer: Endpoint, window: FirstWindow },
    Connected { cookie: Cookie, local: LocalEndpoint, handle: Handle, window: u32 },
    ConnectFailed { cookie: Cookie, error: ConnectError },
    Recv { handle: Handle, cookie: Cookie, buffer: BufferRef, acked: u32, window: u32 },
    Sent { handle: Handle, cookie: Cookie, bytes: u32, window: u32 },
    Eof { handle: Handle, cookie: Cookie },
    Again { handle: Handle, cookie: Cookie, window: u32 },
    Dead { handle: Handle, cookie: Cookie, reason: DeadReason },
    Datagram { local: LocalEndpoint, peer: Endpoint, buffer: BufferRef },
    Listening { cookie: Cookie },
    Info { handle: Handle, cookie: Cookie, buffer: BufferRef },
    Failed { call: CallKind, handle: Handle, cookie: Cookie, error: CallError },
}

const _: () = assert!(size_of::<EventRecord>() <= 32);

impl EventRecord {
    /// Where its bytes stand, if it has any.
    pub fn buffer(&self) -> Option<BufferRef> {
        match *self {
            Self::Recv { buffer, .. }
            | Self::Datagram { buffer, .. }
            | Self::Info { buffer, .. } => Some(buffer),
            _ => None,
        }
    }

    /// The same, with its bytes, if it has any, in another place.
    pub(crate) fn with_buffer(mut self, place: BufferRef) -> Self {
        if let Self::Recv { buffer, .. }
        | Self::Datagram { buffer, .. }
        | Self::Info { buffer, .. } = &mut self
        {
            *buffer = place;
        }
        self
    }

    /// The connection that it is about, where there is one.
    pub fn connection(&self) -> Option<Handle> {
        match *self {
            Self::Knock { handle, .. }
            | Self::Connected { handle, .. }
            | Self::Recv { handle, .. }
            | Self::Sent { handle, .. }
            | Self::Eof { handle, .. }
            | Self::Again { handle, .. }
            | Self::Dead { handle, .. }
            | Self::Info { handle, .. }
            | Self::Failed { handle, .. } => Some(handle),
            Self::ConnectFailed { .. } | Self::Datagram { .. } | Self::Listening { .. } => None,
        }
    }

    /// The event, with its bytes, if it has any.
    #[inline(always)]
    pub fn event<'a>(&self, bytes: impl FnOnce(BufferRef) -> &'a [u8]) -> Event<'a> {
        match *self {
            Self::Knock { handle, local, peer, window } => {
                Event::Knock { handle, local, peer, window: window.bytes() }
            }
            Self::Connected { cookie, local, handle, window } => {
                Event::Connected { cookie, local, outcome: Ok((handle, window)) }
            }
            Self::ConnectFailed { cookie, error } => {
                let local = LocalEndpoint::UNSPECIFIED;
                Event::Connected { cookie, local, outcome: Err(error) }
            }
            Self::Recv { handle, cookie, buffer, acked, window } => {
                Event::Recv { handle, cookie, data: bytes(buffer), acked, window }
            }
            Self::Sent { handle, cookie, bytes, window } => {
                Event::Sent { handle, cookie, bytes, window }
            }
            Self::Eof { handle, cookie } => Event::Eof { handle, cookie },
            Self::Again { handle, cookie, window } => Event::Again { handle, cookie, window },
            Self::Dead { handle, cookie, reason } => Event::Dead { handle, cookie, reason },
            Self::Datagram { local, peer, buffer } => {
                Event::Datagram { local, peer, data: bytes(buffer) }
            }
            Self::Listening { cookie } => Event::Listening { cookie },
            Self::Info { handle, cookie, buffer } => {
                Event::Info { handle, cookie, info: bytes(buffer) }
            }
            Self::Failed { call, handle, cookie, error } => {
                Event::Failed { call, handle, cookie, error }
            }
        }
    }
}
