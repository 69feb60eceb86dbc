//! Events and calls as words. Whatever words come, reading them gives an event or a call, or nothing.

use domain::{
    BufferRef, CallError, CallKind, CallRecord, ConnectError, Cookie, DeadReason, Event,
    EventRecord, Handle, Staged,
};
use wire::{Endpoint, Ipv4Addr};

use crate::geometry::{CALL_WORDS, EVENT_WORDS};

pub(crate) type EventWords = [u64; EVENT_WORDS];
pub(crate) type CallWords = [u64; CALL_WORDS];

/// Where an event's bytes stand in the packet memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub offset: u64,
    pub len: u32,
}

fn endpoint_word(endpoint: Endpoint) -> u64 {
    u64::from(u32::from_be_bytes(endpoint.addr.octets())) << 16 | u64::from(endpoint.port)
}

fn endpoint(word: u64) -> Endpoint {
    let [a, b, c, d] = ((word >> 16) as u32).to_be_bytes();
    Endpoint::new(Ipv4Addr::new(a, b, c, d), word as u16)
}

/// A list of values that have one byte each: their place is their number.
macro_rules! bytes {
    ($to:ident, $from:ident, $type:ty, [$($value:path),* $(,)?]) => {
        fn $to(value: $type) -> u64 {
            const ALL: &[$type] = &[$($value),*];
            ALL.iter().position(|one| *one == value).unwrap_or(0) as u64
        }
        fn $from(word: u64) -> Option<$type> {
            const ALL: &[$type] = &[$($value),*];
            ALL.get(word as usize).copied()
        }
    };
}

bytes!(
    connect_error_word,
    connect_error,
    ConnectError,
    [
        ConnectError::Refused,
        ConnectError::TimedOut,
        ConnectError::Unreachable,
        ConnectError::NoPort,
        ConnectError::NoMemory,
    ]
);
bytes!(
    reason_word,
    reason,
    DeadReason,
    [DeadReason::Closed, DeadReason::Reset, DeadReason::TimedOut, DeadReason::Aborted]
);
bytes!(
    call_kind_word,
    call_kind,
    CallKind,
    [
        CallKind::Connect,
        CallKind::Accept,
        CallKind::Sendv,
        CallKind::RecvDone,
        CallKind::Close,
        CallKind::Abort,
        CallKind::UdpSendv,
    ]
);

fn call_error_words(error: CallError) -> (u64, u64) {
    match error {
        CallError::BadHandle => (0, 0),
        CallError::BadState => (1, 0),
        CallError::Trimmed { accepted } => (2, u64::from(accepted)),
        CallError::TooMuch => (3, 0),
        CallError::Unsendable => (4, 0),
    }
}

fn call_error(word: u64, accepted: u64) -> Option<CallError> {
    Some(match word {
        0 => CallError::BadHandle,
        1 => CallError::BadState,
        2 => CallError::Trimmed { accepted: accepted as u32 },
        3 => CallError::TooMuch,
        4 => CallError::Unsendable,
        _ => return None,
    })
}

/// An event as words; `offset` tells where bytes of its stand in the packet memory.
pub(crate) fn event_words(event: &Event<'_>, offset: impl Fn(&[u8]) -> u64) -> EventWords {
    let two = |low: u32, high: u32| u64::from(low) | u64::from(high) << 32;
    match *event {
        Event::Knock { handle, local_port, peer, window } => [
            u64::from(local_port) << 32,
            handle.to_bits(),
            endpoint_word(peer),
            0,
            0,
            window.into(),
        ],
        Event::Connected { cookie, outcome: Ok((handle, window)) } => {
            [1, handle.to_bits(), cookie.0, 0, 0, window.into()]
        }
        Event::Connected { cookie, outcome: Err(error) } => {
            [2 | connect_error_word(error) << 8, 0, cookie.0, 0, 0, 0]
        }
        Event::Recv { handle, cookie, data, acked, window } => {
            let len = two(data.len() as u32, acked);
            [3, handle.to_bits(), cookie.0, offset(data), len, window.into()]
        }
        Event::Sent { handle, cookie, bytes, window } => {
            [4, handle.to_bits(), cookie.0, 0, two(0, bytes), window.into()]
        }
        Event::Eof { handle, cookie } => [5, handle.to_bits(), cookie.0, 0, 0, 0],
        Event::Again { handle, cookie, window } => {
            [6, handle.to_bits(), cookie.0, 0, 0, window.into()]
        }
        Event::Dead { handle, cookie, reason } => {
            [7 | reason_word(reason) << 8, handle.to_bits(), cookie.0, 0, 0, 0]
        }
        Event::Datagram { local_port, peer, data } => {
            let kind = 8 | u64::from(local_port) << 32;
            [kind, 0, endpoint_word(peer), offset(data), data.len() as u64, 0]
        }
        Event::Failed { call, handle, cookie, error } => {
            let (word, accepted) = call_error_words(error);
            let kind = 9 | call_kind_word(call) << 8 | word << 16;
            [kind, handle.to_bits(), cookie.0, accepted, 0, 0]
        }
    }
}

/// The event that words tell, with the place of its bytes; none where they tell nothing.
pub(crate) fn event(words: &EventWords) -> Option<(EventRecord, Option<Span>)> {
    let [kind, handle, cookie, offset, lengths, window] = *words;
    let (handle, window) = (Handle::from_bits(handle), window as u32);
    let (peer, local_port) = (endpoint(cookie), (kind >> 32) as u16);
    let cookie = Cookie(cookie);
    // Numbered anew where the bytes are found.
    let buffer = BufferRef { index: 0 };
    let span = Span { offset, len: lengths as u32 };
    let record = match kind & 0xff {
        0 => EventRecord::Knock { handle, local_port, peer, window },
        1 => EventRecord::Connected { cookie, handle, window },
        2 => EventRecord::ConnectFailed { cookie, error: connect_error(kind >> 8 & 0xff)? },
        3 => {
            let acked = (lengths >> 32) as u32;
            return Some((EventRecord::Recv { handle, cookie, buffer, acked, window }, Some(span)));
        }
        4 => EventRecord::Sent { handle, cookie, bytes: (lengths >> 32) as u32, window },
        5 => EventRecord::Eof { handle, cookie },
        6 => EventRecord::Again { handle, cookie, window },
        7 => EventRecord::Dead { handle, cookie, reason: reason(kind >> 8 & 0xff)? },
        8 => return Some((EventRecord::Datagram { local_port, peer, buffer }, Some(span))),
        9 => {
            let error = call_error(kind >> 16 & 0xff, offset)?;
            EventRecord::Failed { call: call_kind(kind >> 8 & 0xff)?, handle, cookie, error }
        }
        _ => return None,
    };
    Some((record, None))
}

/// A call as words. The places of staged buffers are those of the call array's pieces.
pub(crate) fn call_words(record: &CallRecord) -> CallWords {
    let pieces = |staged: Staged| u64::from(staged.first) | u64::from(staged.count) << 32;
    match *record {
        CallRecord::Connect { cookie, peer } => [0, cookie.0, endpoint_word(peer), 0],
        CallRecord::Accept { handle, cookie } => [1, handle.to_bits(), cookie.0, 0],
        CallRecord::Sendv { handle, staged } => [2, handle.to_bits(), 0, pieces(staged)],
        CallRecord::RecvDone { handle, bytes } => [3, handle.to_bits(), bytes.into(), 0],
        CallRecord::Close { handle } => [4, handle.to_bits(), 0, 0],
        CallRecord::Abort { handle } => [5, handle.to_bits(), 0, 0],
        CallRecord::Again { handle } => [6, handle.to_bits(), 0, 0],
        CallRecord::UdpSendv { local_port, peer, staged } => {
            [7 | u64::from(local_port) << 32, 0, endpoint_word(peer), pieces(staged)]
        }
    }
}

/// The call that words tell; none where they tell nothing. Neither its handle nor its pieces are checked.
pub(crate) fn call(words: &CallWords) -> Option<CallRecord> {
    let [kind, first, second, pieces] = *words;
    let handle = Handle::from_bits(first);
    let staged = Staged { first: pieces as u32, count: (pieces >> 32) as u32 };
    Some(match kind & 0xff {
        0 => CallRecord::Connect { cookie: Cookie(first), peer: endpoint(second) },
        1 => CallRecord::Accept { handle, cookie: Cookie(second) },
        2 => CallRecord::Sendv { handle, staged },
        3 => CallRecord::RecvDone { handle, bytes: u32::try_from(second).unwrap_or(u32::MAX) },
        4 => CallRecord::Close { handle },
        5 => CallRecord::Abort { handle },
        6 => CallRecord::Again { handle },
        7 => {
            let local_port = (kind >> 32) as u16;
            CallRecord::UdpSendv { local_port, peer: endpoint(second), staged }
        }
        _ => return None,
    })
}
