//! What tenants and the gateway say to each other over a queue pair.
//!
//! ```text
//! request   0 ATTACH, 4 bytes address, 1 byte: 1 to serve the virtual address, too
//!           1 SEND, an IPv4 packet
//!           2 RECEIVE
//! reply     0 DONE, and to RECEIVE an IPv4 packet
//!           otherwise a refusal's number, and its reason in words
//! ```
//!
//! A RECEIVE is answered when there is a packet, and everything behind it on its queue waits so long: a
//! tenant keeps queues for receiving apart from those for sending.

use std::net::Ipv4Addr;

/// Bytes of a reply before a packet, and of a request before one.
pub const PREFIX: usize = 1;
const ATTACH: u8 = 0;
const SEND: u8 = 1;
const RECEIVE: u8 = 2;
const DONE: u8 = 0;

/// What a tenant asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request<'a> {
    /// To have an address, for as long as it is joined.
    Attach {
        /// Which.
        address: Ipv4Addr,
        /// Whether sessions of the virtual address may be steered to it.
        serves: bool,
    },
    /// To send a packet.
    Send(&'a [u8]),
    /// To get the next packet, when there is one.
    Receive,
}

impl<'a> Request<'a> {
    /// Reads a request.
    ///
    /// # Errors
    /// [`Refusal::BadRequest`].
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Refusal> {
        match bytes {
            [ATTACH, a, b, c, d, serves @ (0 | 1)] => {
                Ok(Self::Attach { address: Ipv4Addr::new(*a, *b, *c, *d), serves: *serves == 1 })
            }
            [SEND, packet @ ..] => Ok(Self::Send(packet)),
            [RECEIVE] => Ok(Self::Receive),
            _ => Err(Refusal::BadRequest),
        }
    }

    /// Writes it to `out`, in place of what is there.
    pub fn emit(self, out: &mut Vec<u8>) {
        out.clear();
        match self {
            Self::Attach { address, serves } => {
                out.push(ATTACH);
                out.extend(address.octets());
                out.push(u8::from(serves));
            }
            Self::Send(packet) => {
                out.push(SEND);
                out.extend_from_slice(packet);
            }
            Self::Receive => out.push(RECEIVE),
        }
    }
}

/// Why a tenant's request was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error, strum::FromRepr)]
#[repr(u8)]
pub enum Refusal {
    /// No such request.
    #[error("no such request, or one of the wrong size")]
    BadRequest = 1,
    /// The address is outside the gateway's range, or the virtual one.
    #[error("the address is not one that the gateway gives to tenants")]
    NotGiven = 2,
    /// Another tenant has it.
    #[error("another tenant has the address")]
    Taken = 3,
    /// The tenant has an address.
    #[error("the tenant has an address already")]
    HasOne = 4,
    /// It has none yet.
    #[error("the tenant has no address yet: attach first")]
    NotAttached = 5,
    /// The packet's source is not the tenant's.
    #[error("the packet's source address is not the tenant's")]
    Source = 6,
    /// The packet cannot be sent: malformed, or too big for the tunnel.
    #[error("the packet is malformed, or too big for the tunnel")]
    Packet = 7,
    /// The transmit ring or packet memory is full.
    #[error("the gateway has no room for the packet at present: try again")]
    Busy = 8,
    /// As many tenants serve the virtual address as may.
    #[error("no more tenants can serve the virtual address, or there is none")]
    NoPlace = 9,
    /// Its address is not one that may serve the virtual address.
    #[error("the address is not one that may serve the virtual address")]
    NotServer = 10,
}

impl Refusal {
    /// Writes the refusal and as much of its words as there is room for. Answers its size in bytes.
    pub(crate) fn emit(self, reply: &mut [u8]) -> usize {
        let Some((first, rest)) = reply.split_first_mut() else { return 0 };
        *first = self as u8;
        let words = self.to_string();
        let len = words.len().min(rest.len());
        rest[..len].copy_from_slice(&words.as_bytes()[..len]);
        1 + len
    }
}

/// Writes a reply that is no refusal before `packet_len` bytes that stand at [`PREFIX`] already.
pub(crate) fn emit_done(reply: &mut [u8], packet_len: usize) -> usize {
    let Some(first) = reply.first_mut() else { return 0 };
    *first = DONE;
    PREFIX + packet_len
}

/// Reads a reply: the packet, if there is one.
///
/// # Errors
/// The refusal; [`Refusal::BadRequest`] also for what no gateway says.
pub fn parse_reply(bytes: &[u8]) -> Result<&[u8], Refusal> {
    match bytes {
        [DONE, packet @ ..] => Ok(packet),
        [number, ..] => Err(Refusal::from_repr(*number).unwrap_or(Refusal::BadRequest)),
        [] => Err(Refusal::BadRequest),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let address = Ipv4Addr::new(10, 8, 0, 1);
        let mut written = Vec::new();
        for request in [
            Request::Attach { address, serves: true },
            Request::Attach { address, serves: false },
            Request::Send(b"packet"),
            Request::Send(b""),
            Request::Receive,
        ] {
            request.emit(&mut written);
            assert_eq!(Request::parse(&written), Ok(request));
        }
        for bad in [&b""[..], b"\x03", b"\x02x", b"\x00abcd", b"\x00abcd\x02", b"\xff"] {
            assert_eq!(Request::parse(bad), Err(Refusal::BadRequest), "{bad:?}");
        }
        let mut out = [0; 16];
        for refusal in (1..).map_while(Refusal::from_repr) {
            let len = refusal.emit(&mut out);
            assert_eq!(parse_reply(&out[..len]), Err(refusal));
        }
        out[1..4].copy_from_slice(b"abc");
        let len = emit_done(&mut out, 3);
        assert_eq!(parse_reply(&out[..len]), Ok(&b"abc"[..]));
        assert_eq!(parse_reply(b""), Err(Refusal::BadRequest));
    }
}
