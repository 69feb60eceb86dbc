//! Events and calls as words. Whatever words come, reading them gives an event or a call, or nothing.

use domain::{
    BufferRef, CallError, CallKind, CallRecord, ConnectError, Cookie, DeadReason, Event,
    EventRecord, FirstWindow, Handle, LocalEndpoint, Placed, SharedMemory, Staged, Transport,
};
use wire::{Address, Endpoint};

use std::sync::atomic::{AtomicU64, Ordering};

use crate::layout::{RECORD_WORDS, both, two};

/// An event or a call.
pub(crate) type Words = [u64; RECORD_WORDS];

/// The kind of an event that tells of received bytes.
const RECEIVED: u64 = 3;
/// The first word of a call that sends one piece, and may say in its last that received bytes are done with.
pub(crate) const SEND_ONE: u64 = 2 | 1 << 32;
/// The first word of a call that gives received bytes back.
pub(crate) const RECEIVED_DONE: u64 = 3;
/// The first word of a call that sends one piece of the packet memory, and may say in its last that received bytes are
/// done with.
pub(crate) const SEND_RECEIVED: u64 = 8;

/// Writes an event or a call down.
#[inline]
pub(crate) fn write(record: &[AtomicU64; RECORD_WORDS], [first, second, third, fourth]: Words) {
    record[0].store(first, Ordering::Relaxed);
    record[1].store(second, Ordering::Relaxed);
    record[2].store(third, Ordering::Relaxed);
    record[3].store(fourth, Ordering::Relaxed);
}

/// Reads one, each word once.
#[inline]
pub(crate) fn read(record: &[AtomicU64; RECORD_WORDS]) -> Words {
    record.each_ref().map(|word| word.load(Ordering::Relaxed))
}

/// Where an event's bytes stand in the packet memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    pub offset: u64,
    pub len: u32,
}

/// An address as the last two words of an event or a call; its port is in the first.
fn address_words(address: Address) -> (u64, u64) {
    let bits = u128::from_be_bytes(address.octets());
    ((bits >> 64) as u64, bits as u64)
}

fn endpoint(third: u64, fourth: u64, port: u16) -> Endpoint {
    let bits = u128::from(third) << 64 | u128::from(fourth);
    Endpoint::new(Address::from_octets(bits.to_be_bytes()), port)
}

// Values that have one byte each: their place is their number.
const CONNECT_ERRORS: [ConnectError; 7] = [
    ConnectError::Refused,
    ConnectError::TimedOut,
    ConnectError::Unreachable,
    ConnectError::NoPort,
    ConnectError::NoMemory,
    ConnectError::Forbidden,
    ConnectError::BadAddress,
];
const REASONS: [DeadReason; 4] =
    [DeadReason::Closed, DeadReason::Reset, DeadReason::TimedOut, DeadReason::Aborted];
const CALL_KINDS: [CallKind; 11] = [
    CallKind::Connect,
    CallKind::Accept,
    CallKind::Sendv,
    CallKind::RecvDone,
    CallKind::Close,
    CallKind::Abort,
    CallKind::UdpSendv,
    CallKind::Shutdown,
    CallKind::Listen,
    CallKind::Unlisten,
    CallKind::Inform,
];
const TRANSPORTS: [Transport; 2] = [Transport::Tcp, Transport::Udp];
const CALL_ERRORS: [CallError; 8] = [
    CallError::BadHandle,
    CallError::BadState,
    CallError::Trimmed { accepted: 0 },
    CallError::TooMuch,
    CallError::Unsendable,
    CallError::Forbidden,
    CallError::Busy,
    CallError::BadAddress,
];

/// The number of a value.
fn number_of<T: PartialEq>(all: &[T], value: T) -> u64 {
    all.iter().position(|one| *one == value).unwrap_or(0) as u64
}

/// The value of this number.
fn value_of<T: Copy>(all: &[T], number: u64) -> Option<T> {
    all.get(number as usize).copied()
}

/// The number of an error, and how many bytes were accepted.
fn call_error_words(error: CallError) -> (u64, u64) {
    let accepted = if let CallError::Trimmed { accepted } = error { accepted } else { 0 };
    let plain = if accepted > 0 { CallError::Trimmed { accepted: 0 } } else { error };
    (number_of(&CALL_ERRORS, plain), accepted.into())
}

fn call_error(number: u64, accepted: u64) -> Option<CallError> {
    Some(match value_of(&CALL_ERRORS, number)? {
        CallError::Trimmed { .. } => CallError::Trimmed { accepted: accepted as u32 },
        other => other,
    })
}

/// Kind, two small numbers behind it, and a larger one, as the first word.
fn first(kind: u8, byte: u64, short: u16, large: u32) -> u64 {
    u64::from(kind) | byte << 8 | u64::from(short) << 16 | u64::from(large) << 32
}

/// Kind, an own end behind it, and a larger number, as the first word.
fn first_with(kind: u8, local: LocalEndpoint, large: u32) -> u64 {
    u64::from(kind) | u64::from(local.to_bits()) << 8 | u64::from(large) << 32
}

/// The own end in such a word.
fn local_in(first: u64) -> LocalEndpoint {
    LocalEndpoint::from_bits((first >> 8) as u32)
}

/// Received bytes as words, with where they stand and how many there are.
#[inline]
pub(crate) fn received(
    handle: Handle,
    cookie: Cookie,
    (place, len): (u64, usize),
    acked: u32,
    window: u32,
) -> Words {
    // A buffer's bytes are fewer than a chunk's.
    let kind = first(RECEIVED as u8, place >> 32 & 0xff, len as u16, window);
    [kind, handle.to_bits(), cookie.0, two(place as u32, acked)]
}

/// An event as words; `offset` tells where bytes of its stand in the packet memory.
#[inline]
pub(crate) fn event_words(event: &Event<'_>, offset: impl Fn(&[u8]) -> u64) -> Words {
    match *event {
        Event::Knock { handle, local, peer, window } => {
            let window = FirstWindow::new(window).bytes();
            let (third, fourth) = address_words(peer.addr);
            let kind = first_with(0, local, window << 16 | u32::from(peer.port));
            [kind, handle.to_bits(), third, fourth]
        }
        Event::Connected { cookie, local, outcome: Ok((handle, window)) } => {
            [first_with(1, local, window), handle.to_bits(), cookie.0, 0]
        }
        Event::Connected { cookie, outcome: Err(error), .. } => {
            [first(2, number_of(&CONNECT_ERRORS, error), 0, 0), 0, cookie.0, 0]
        }
        Event::Recv { handle, cookie, data, acked, window } => {
            received(handle, cookie, (offset(data), data.len()), acked, window)
        }
        Event::Sent { handle, cookie, bytes, window } => {
            [first(4, 0, 0, window), handle.to_bits(), cookie.0, two(0, bytes)]
        }
        Event::Eof { handle, cookie } => [5, handle.to_bits(), cookie.0, 0],
        Event::Again { handle, cookie, window } => {
            [first(6, 0, 0, window), handle.to_bits(), cookie.0, 0]
        }
        Event::Dead { handle, cookie, reason } => {
            [first(7, number_of(&REASONS, reason), 0, 0), handle.to_bits(), cookie.0, 0]
        }
        Event::Datagram { local, peer, data } => {
            let place = offset(data);
            let kind = first(8, place >> 32 & 0xff, data.len() as u16, peer.port.into());
            let (third, fourth) = address_words(peer.addr);
            [kind, two(place as u32, local.to_bits()), third, fourth]
        }
        Event::Failed { call, handle, cookie, error } => {
            let (word, accepted) = call_error_words(error);
            let kind = first(9, number_of(&CALL_KINDS, call), word as u16, 0);
            [kind, handle.to_bits(), cookie.0, accepted]
        }
        Event::Listening { cookie } => [10, 0, cookie.0, 0],
        Event::Info { handle, cookie, info } => {
            let place = offset(info);
            let kind = first(11, place >> 32 & 0xff, info.len() as u16, 0);
            [kind, handle.to_bits(), cookie.0, place & 0xffff_ffff]
        }
    }
}

/// What words tell that tell of received bytes, and what else the segment told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Received {
    pub connection: (Handle, Cookie),
    pub span: Span,
    pub acked: u32,
    pub window: u32,
}

/// What words tell of received bytes; none where they tell something else.
#[inline]
pub(crate) fn received_at(words: &Words) -> Option<Received> {
    let [kind, handle, cookie, fourth] = *words;
    let connection = (Handle::from_bits(handle), Cookie(cookie));
    let (place, acked) = both(fourth);
    let received =
        Received { connection, span: span(kind, place), acked, window: (kind >> 32) as u32 };
    (kind & 0xff == RECEIVED).then_some(received)
}

/// Where the bytes of an event stand whose first word is this one, and whose last begins so.
#[inline]
fn span(first: u64, place: u32) -> Span {
    Span { offset: two(place, (first >> 8) as u32 & 0xff), len: (first >> 16) as u32 & 0xffff }
}

/// The event that other words tell, with the place of its bytes; none where they tell nothing.
#[inline]
pub(crate) fn other_event(words: &Words) -> Option<(EventRecord, Option<Span>)> {
    let [kind, second, third, fourth] = *words;
    let (handle, window) = (Handle::from_bits(second), (kind >> 32) as u32);
    let (peer, cookie) = (endpoint(third, fourth, window as u16), Cookie(third));
    let (_, high) = both(fourth);
    let byte = kind >> 8 & 0xff;
    let record = match kind & 0xff {
        0 => {
            let window = FirstWindow::new(window >> 16);
            EventRecord::Knock { handle, local: local_in(kind), peer, window }
        }
        1 => EventRecord::Connected { cookie, local: local_in(kind), handle, window },
        2 => EventRecord::ConnectFailed { cookie, error: value_of(&CONNECT_ERRORS, byte)? },
        4 => EventRecord::Sent { handle, cookie, bytes: high, window },
        5 => EventRecord::Eof { handle, cookie },
        6 => EventRecord::Again { handle, cookie, window },
        7 => EventRecord::Dead { handle, cookie, reason: value_of(&REASONS, byte)? },
        8 => {
            // Numbered anew where the bytes are found.
            let buffer = BufferRef { index: 0 };
            let (place, local) = both(second);
            let local = LocalEndpoint::from_bits(local);
            let record = EventRecord::Datagram { local, peer, buffer };
            return Some((record, Some(span(kind, place))));
        }
        9 => {
            let error = call_error(kind >> 16 & 0xffff, fourth)?;
            EventRecord::Failed { call: value_of(&CALL_KINDS, byte)?, handle, cookie, error }
        }
        10 => EventRecord::Listening { cookie },
        11 => {
            let record = EventRecord::Info { handle, cookie, buffer: BufferRef { index: 0 } };
            return Some((record, Some(span(kind, fourth as u32))));
        }
        _ => return None,
    };
    Some((record, None))
}

/// The call at the front of `records` as words, and how many of them it is: a message of one piece and the request
/// that it answers, given back, are one. `piece` answers the words of the call array's pieces.
#[inline]
pub(crate) fn calls_words(
    records: &[CallRecord],
    piece: impl Fn(u32) -> u64,
) -> Option<(Words, usize)> {
    let mut words = call_words(records.first()?, piece);
    if let (
        SEND_ONE | SEND_RECEIVED,
        [sent, CallRecord::RecvDone { handle: same, bytes: bytes @ 1.. }, ..],
    ) = (words[0], records)
        && words[1] == same.to_bits()
        && !matches!(sent, CallRecord::UdpSendv { .. })
    {
        words[3] = u64::from(*bytes);
        return Some((words, 2));
    }
    Some((words, 1))
}

/// Where a piece stands in its memory, and how many bytes it has, as one word.
#[inline]
pub(crate) fn piece_word(offset: u64, len: usize) -> u64 {
    offset << 16 | len as u64
}

#[inline]
fn call_words(record: &CallRecord, piece: impl Fn(u32) -> u64) -> Words {
    let count = |staged: Staged| u64::from(staged.count) << 32;
    match *record {
        // From which port is the dataplane's to choose: a port that others listen on is not an application's to
        // speak from.
        CallRecord::Connect { cookie, local, peer } => {
            let (third, fourth) = address_words(peer.addr);
            let kind = first_with(0, local.with_port(0), peer.port.into());
            [kind, cookie.0, third, fourth]
        }
        CallRecord::Accept { handle, cookie } => [1, handle.to_bits(), cookie.0, 0],
        CallRecord::Sendv { handle, staged: Staged { first, count: 1 } } => {
            [SEND_ONE, handle.to_bits(), piece(first), 0]
        }
        CallRecord::Sendv { handle, staged } => {
            [2 | count(staged), handle.to_bits(), 0, staged.first.into()]
        }
        CallRecord::SendvPlaced { handle, placed: Placed { memory, offset, len } } => {
            let kind = match memory {
                SharedMemory::Arena => SEND_ONE,
                SharedMemory::Packets => SEND_RECEIVED,
            };
            [kind, handle.to_bits(), piece_word(offset, len as usize), 0]
        }
        CallRecord::RecvDone { handle, bytes } => [3, handle.to_bits(), bytes.into(), 0],
        CallRecord::Close { handle } => [4, handle.to_bits(), 0, 0],
        CallRecord::Shutdown { handle } => [9, handle.to_bits(), 0, 0],
        CallRecord::Abort { handle } => [5, handle.to_bits(), 0, 0],
        CallRecord::Again { handle } => [6, handle.to_bits(), 0, 0],
        CallRecord::Listen { cookie, transport, port, backlog } => {
            let transport = number_of(&TRANSPORTS, transport);
            [first(10, transport, port, backlog.into()), cookie.0, 0, 0]
        }
        CallRecord::Unlisten { cookie, transport, port } => {
            [first(11, number_of(&TRANSPORTS, transport), port, 0), cookie.0, 0, 0]
        }
        CallRecord::Inform { handle } => [12, handle.to_bits(), 0, 0],
        CallRecord::UdpSendv { local, peer, staged } => {
            let kind = |is_only: u32| first_with(7, local, is_only << 16 | u32::from(peer.port));
            let (third, fourth) = address_words(peer.addr);
            match staged {
                Staged { first, count: 1 } => [kind(1), piece(first), third, fourth],
                Staged { first, .. } => [kind(0), count(staged) | u64::from(first), third, fourth],
            }
        }
    }
}

/// The call that words tell, with the word of its only piece if it has just one; nothing where they tell nothing.
/// Neither its handle nor its pieces are checked, and what a send of one piece says beside that is not looked at.
#[inline]
pub(crate) fn call(words: &Words) -> Option<(CallRecord, Option<u64>)> {
    let [kind, second, third, fourth] = *words;
    let handle = Handle::from_bits(second);
    let staged = Staged { first: fourth as u32, count: (kind >> 32) as u32 };
    let only = |word| (staged.count == 1).then_some(word);
    let record = match kind & 0xff {
        0 => {
            let (cookie, peer) = (Cookie(second), endpoint(third, fourth, (kind >> 32) as u16));
            CallRecord::Connect { cookie, local: local_in(kind).with_port(0), peer }
        }
        1 => CallRecord::Accept { handle, cookie: Cookie(third) },
        2 => return Some((CallRecord::Sendv { handle, staged }, only(third))),
        3 => CallRecord::RecvDone { handle, bytes: u32::try_from(third).unwrap_or(u32::MAX) },
        4 => CallRecord::Close { handle },
        5 => CallRecord::Abort { handle },
        6 => CallRecord::Again { handle },
        7 => {
            let peer = endpoint(third, fourth, (kind >> 32) as u16);
            let (staged, only) = match kind >> 48 {
                1 => (Staged { first: 0, count: 1 }, Some(second)),
                _ => (Staged { first: second as u32, count: (second >> 32) as u32 }, None),
            };
            let record = CallRecord::UdpSendv { local: local_in(kind), peer, staged };
            return Some((record, only));
        }
        8 => {
            let (memory, offset, len) = (SharedMemory::Packets, third >> 16, third as u32 & 0xffff);
            CallRecord::SendvPlaced { handle, placed: Placed { memory, offset, len } }
        }
        9 => CallRecord::Shutdown { handle },
        10 | 11 => {
            let (cookie, port) = (Cookie(second), (kind >> 16) as u16);
            let transport = value_of(&TRANSPORTS, kind >> 8 & 0xff)?;
            match kind & 0xff {
                10 => CallRecord::Listen { cookie, transport, port, backlog: (kind >> 32) as u16 },
                _ => CallRecord::Unlisten { cookie, transport, port },
            }
        }
        12 => CallRecord::Inform { handle },
        _ => return None,
    };
    Some((record, None))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Neither by what a well-behaved application asks for nor by any other words.
    #[test]
    fn no_words_choose_the_port_that_a_connection_is_opened_from() {
        let (cookie, peer) = (Cookie(5), Endpoint::new(wire::Ipv4Addr::new(10, 0, 0, 1), 7));
        let asked = CallRecord::Connect { cookie, local: LocalEndpoint::new(2, 80), peer };
        let heard = CallRecord::Connect { cookie, local: LocalEndpoint::new(2, 0), peer };
        let words = call_words(&asked, |_| unreachable!("it has no pieces"));
        assert_eq!(words, call_words(&heard, |_| unreachable!("it has no pieces")));
        let [kind, second, third, fourth] = words;
        // Bits 8 to 15 are the own address, 32 to 47 the peer's port.
        for bit in (16..32).chain(48..64) {
            let words = [kind | 1 << bit, second, third, fourth];
            assert_eq!(call(&words), Some((heard, None)), "{words:x?}");
        }
    }

    /// Of a broken application too: any own end comes over, and the stack looks whether the dataplane has it.
    #[test]
    fn own_ends_come_over() {
        let (cookie, handle) = (Cookie(u64::MAX - 3), Handle::from_bits(1 << 63 | 5));
        for (last, local) in
            [(9, LocalEndpoint::new(254, 65_001)), (1, LocalEndpoint::new(0, 1)), (7, 53.into())]
        {
            let peer = Endpoint::new(wire::Ipv4Addr::new(10, 0, 0, last), 60_001);
            let connect = CallRecord::Connect { cookie, local: local.with_port(0), peer };
            let words = call_words(&connect, |_| unreachable!("it has no pieces"));
            assert_eq!(call(&words), Some((connect, None)));
            for (count, only) in [(1, Some(9 << 16 | 4)), (3, None)] {
                let first = if count == 1 { 0 } else { 7 };
                let send = CallRecord::UdpSendv { local, peer, staged: Staged { first, count } };
                let words = call_words(&send, |_| 9 << 16 | 4);
                assert_eq!(call(&words), Some((send, only)));
            }
            let events = [
                EventRecord::Knock { handle, local, peer, window: FirstWindow::new(u32::MAX) },
                EventRecord::Connected { cookie, local, handle, window: u32::MAX },
                EventRecord::Datagram { local, peer, buffer: BufferRef { index: 0 } },
            ];
            for record in events {
                let at = |_: &[u8]| 0x12_3456_789a;
                let words = event_words(&record.event(|_| &[0; 300]), at);
                let span = record.buffer().map(|_| Span { offset: at(&[]), len: 300 });
                assert_eq!(other_event(&words), Some((record, span)));
            }
        }
    }

    #[test]
    fn calls_and_events_about_ports_and_information_come_over() {
        let (cookie, handle, port) = (Cookie(u64::MAX - 3), Handle::from_bits(1 << 63 | 5), 60_001);
        for transport in TRANSPORTS {
            for record in [
                CallRecord::Listen { cookie, transport, port, backlog: 511 },
                CallRecord::Unlisten { cookie, transport, port },
                CallRecord::Inform { handle },
            ] {
                let words = call_words(&record, |_| unreachable!("it has no pieces"));
                assert_eq!(call(&words), Some((record, None)));
            }
        }
        assert_eq!(call(&[10 | 2 << 8, 0, 0, 0]), None, "no such transport");
        let at = |_: &[u8]| 0x12_3456_789a;
        let words = event_words(&Event::Listening { cookie }, at);
        assert_eq!(other_event(&words), Some((EventRecord::Listening { cookie }, None)));
        let words = event_words(&Event::Info { handle, cookie, info: &[0; 208] }, at);
        let info = EventRecord::Info { handle, cookie, buffer: BufferRef { index: 0 } };
        let span = Span { offset: at(&[]), len: 208 };
        assert_eq!(other_event(&words), Some((info, Some(span))));
    }

    #[test]
    fn a_message_of_one_piece_takes_along_the_request_that_it_answers() {
        let [handle, other] = [5, 6].map(Handle::from_bits);
        let send = |count| CallRecord::Sendv { handle, staged: Staged { first: 7, count } };
        let done = |handle, bytes| CallRecord::RecvDone { handle, bytes };
        let words = |records: &[CallRecord]| calls_words(records, |index| u64::from(index) << 16);
        let both = [send(1), done(handle, 64), done(handle, 9)];
        assert_eq!(words(&both), Some(([SEND_ONE, 5, 7 << 16, 64], 2)));
        // Nothing else is put together: several pieces need the word, and nothing given back is a call all the same.
        let alone = [SEND_ONE, 5, 7 << 16, 0];
        for next in [done(other, 64), done(handle, 0), send(1)] {
            assert_eq!(words(&[send(1), next]), Some((alone, 1)));
        }
        assert_eq!(words(&[send(1)]), Some((alone, 1)));
        let several = [2 | 3 << 32, 5, 0, 7];
        assert_eq!(words(&[send(3), done(handle, 64)]), Some((several, 1)));
        assert_eq!(words(&[done(handle, 64), send(1)]), Some(([RECEIVED_DONE, 5, 64, 0], 1)));
        assert_eq!(words(&[]), None);
        // What is told by place is the same call, of its memory.
        let placed = |memory| CallRecord::SendvPlaced {
            handle,
            placed: Placed { memory, offset: 9, len: 4 },
        };
        for (memory, kind) in
            [(SharedMemory::Arena, SEND_ONE), (SharedMemory::Packets, SEND_RECEIVED)]
        {
            let both = [placed(memory), done(handle, 64)];
            assert_eq!(words(&both), Some(([kind, 5, 9 << 16 | 4, 64], 2)));
            assert_eq!(
                words(&[placed(memory), done(other, 64)]),
                Some(([kind, 5, 9 << 16 | 4, 0], 1))
            );
        }
        let Some((told, 1)) = words(&[placed(SharedMemory::Packets)]) else { panic!("one call") };
        assert_eq!(call(&told), Some((placed(SharedMemory::Packets), None)));
    }
}
