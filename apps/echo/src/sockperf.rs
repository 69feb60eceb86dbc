//! The server's side of sockperf, so that a well-known latency tool can measure this stack.
//!
//! ```
//! use tailplane::Server;
//! use echo::Sockperf;
//! let service = Server::new(Sockperf);
//! assert_eq!(service.connections(), 0);
//! ```
//!
//! A message is a header of 14 bytes, in network order, and payload: sequence number (8), flags (2),
//! length with the header (4). The flags say that a client sent it, and whether it asks for an answer.
//! The answer is the message with the client's flag taken away. A plain echo leaves it, and sockperf
//! then takes its own messages for a second client's and reports nothing.

use tailplane::{Flow, Instant, Opened, Output, Protocol};

/// Bytes of a header.
const HEADER: usize = 14;
/// Where in it the flags stand.
const FLAGS: usize = 8;
/// A client sent it.
const CLIENT: u16 = 1;
/// It asks for an answer.
const PING: u16 = 2;

/// Answers sockperf's clients, over TCP and UDP: `ping-pong` and `under-load` with the messages that
/// ask for an answer, `throughput` with silence.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sockperf;

/// Where in its messages a connection is. Payload is passed on as it comes and never gathered.
#[derive(Clone, Copy, Debug, Default)]
pub struct Framing {
    header: [u8; HEADER],
    /// Bytes of the header that have come; all of them while payload comes.
    gathered: usize,
    /// Bytes of payload that are still to come.
    payload: usize,
    answers: bool,
}

impl Framing {
    /// Takes bytes of one connection, and gives what is to be sent back, piece by piece. `false`: this
    /// is not sockperf's protocol, and the bytes that follow mean nothing.
    fn take(&mut self, mut data: &[u8], reply: &mut dyn FnMut(&[u8])) -> bool {
        while !data.is_empty() {
            if self.gathered < HEADER {
                let count = data.len().min(HEADER - self.gathered);
                let (now, later) = data.split_at(count);
                self.header[self.gathered..self.gathered + count].copy_from_slice(now);
                self.gathered += count;
                data = later;
                if self.gathered < HEADER {
                    return true;
                }
                let Some(answer) = Answer::to(&self.header) else { return false };
                self.payload = answer.payload;
                self.answers = answer.wanted;
                if self.answers {
                    reply(&answer.header);
                }
            }
            let (now, later) = data.split_at(data.len().min(self.payload));
            if self.answers && !now.is_empty() {
                reply(now);
            }
            self.payload -= now.len();
            data = later;
            if self.payload == 0 {
                self.gathered = 0;
            }
        }
        true
    }
}

/// What a header asks for.
struct Answer {
    header: [u8; HEADER],
    wanted: bool,
    /// Bytes behind the header.
    payload: usize,
}

impl Answer {
    /// `None`: no header of a client.
    fn to(header: &[u8; HEADER]) -> Option<Self> {
        let [.., f0, f1, l0, l1, l2, l3] = *header;
        let flags = u16::from_be_bytes([f0, f1]);
        let length = u32::from_be_bytes([l0, l1, l2, l3]) as usize;
        if flags & CLIENT == 0 {
            return None;
        }
        let payload = length.checked_sub(HEADER)?;
        let mut header = *header;
        header[FLAGS..FLAGS + 2].copy_from_slice(&(flags & !CLIENT).to_be_bytes());
        Some(Self { header, wanted: flags & PING != 0, payload })
    }
}

impl Protocol for Sockperf {
    type Connection = Framing;

    fn open(&mut self, _: Instant, _: Opened) -> Option<Framing> {
        Some(Framing::default())
    }

    fn receive(
        &mut self,
        _: Instant,
        framing: &mut Framing,
        data: &[u8],
        output: &mut Output<'_, '_>,
    ) -> Flow {
        match framing.take(data, &mut |piece| output.put(piece)) {
            true => Flow::Continue,
            false => Flow::Abort,
        }
    }

    fn datagram(&mut self, _: Instant, data: &[u8], reply: &mut dyn FnMut(&[u8])) {
        let Some((header, payload)) = data.split_first_chunk::<HEADER>() else { return };
        let Some(answer) = Answer::to(header) else { return };
        // A datagram is one message, whole.
        if !answer.wanted || answer.payload != payload.len() {
            return;
        }
        let mut whole = [0; MAX_DATAGRAM];
        let Some(room) = whole.get_mut(..data.len()) else { return };
        room.copy_from_slice(data);
        room[..HEADER].copy_from_slice(&answer.header);
        reply(room);
    }
}

/// What an Ethernet frame carries over UDP: fragments are not taken.
const MAX_DATAGRAM: usize = 1_500 - 28;

#[cfg(test)]
mod tests {
    use super::*;

    fn message(sequence: u64, flags: u16, payload: &[u8]) -> Vec<u8> {
        let mut bytes = sequence.to_be_bytes().to_vec();
        bytes.extend(flags.to_be_bytes());
        bytes.extend((HEADER as u32 + payload.len() as u32).to_be_bytes());
        bytes.extend(payload);
        bytes
    }

    fn answers(pieces: &[&[u8]]) -> Option<Vec<u8>> {
        let (mut framing, mut sent) = (Framing::default(), Vec::new());
        for piece in pieces {
            if !framing.take(piece, &mut |bytes| sent.extend(bytes)) {
                return None;
            }
        }
        Some(sent)
    }

    #[test]
    fn only_messages_that_ask_are_answered_without_the_clients_flag() {
        let stream = [
            message(1, CLIENT | PING, b"abc"),
            message(2, CLIENT, b"a stream of throughput"),
            message(3, CLIENT | PING | 4, b""),
        ]
        .concat();
        let wanted = [message(1, PING, b"abc"), message(3, PING | 4, b"")].concat();
        assert_eq!(answers(&[&stream]), Some(wanted.clone()));
        for cut in 0..stream.len() {
            let (before, after) = stream.split_at(cut);
            assert_eq!(answers(&[before, after]), Some(wanted.clone()), "cut at {cut}");
        }
        let bytes: Vec<&[u8]> = stream.chunks(1).collect();
        assert_eq!(answers(&bytes), Some(wanted));
    }

    #[test]
    fn what_is_not_sockperf_ends_the_connection() {
        assert_eq!(answers(&[&message(1, PING, b"a server's own answer")]), None);
        let mut short = message(1, CLIENT | PING, b"");
        short[HEADER - 1] = HEADER as u8 - 1;
        assert_eq!(answers(&[&short]), None);
        assert_eq!(answers(&[b"GET / HTTP/1.1\r\n\r\n"]), None);
    }

    #[test]
    fn a_datagram_is_one_message() {
        let answer = |data: &[u8]| {
            let mut sent = None;
            Sockperf.datagram(Instant::ZERO, data, &mut |bytes| sent = Some(bytes.to_vec()));
            sent
        };
        assert_eq!(answer(&message(9, CLIENT | PING, b"xyz")), Some(message(9, PING, b"xyz")));
        assert_eq!(answer(&message(9, CLIENT, b"xyz")), None);
        assert_eq!(answer(&message(9, CLIENT | PING, b"xyz")[..HEADER + 2]), None);
        assert_eq!(answer(b"short"), None);
        let largest = message(9, CLIENT | PING, &vec![7; MAX_DATAGRAM - HEADER]);
        assert_eq!(answer(&largest).map(|bytes| bytes.len()), Some(MAX_DATAGRAM));
        assert_eq!(answer(&message(9, CLIENT | PING, &vec![7; MAX_DATAGRAM])), None);
    }
}
