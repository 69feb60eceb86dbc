//! Why a service did not serve a request: `match` on [`Refused`], count it under its variant, or print it.

use wire::WireError;

/// The part of a request that a refusal is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, strum::Display)]
pub enum Layer {
    /// The Ethernet header.
    Ethernet,
    /// The IPv4 header: of a tunnel's inner packet, or of a packet to steer.
    #[strum(to_string = "IPv4")]
    Ipv4,
    /// The tunnel's IPv6 header, its destination options included.
    #[strum(to_string = "IPv6")]
    Ipv6,
    /// The GRE header.
    #[strum(to_string = "GRE")]
    Gre,
    /// The TCP header.
    #[strum(to_string = "TCP")]
    Tcp,
    /// The UDP header.
    #[strum(to_string = "UDP")]
    Udp,
    /// The header of a request to dispatch.
    #[strum(to_string = "dispatch")]
    Dispatch,
}

/// A request that was not served, and why. The reply holds nothing of meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The caller's room for the reply is too small.
    #[error("the reply needs {needed} bytes, the buffer has {room}: give reply_len_max() bytes")]
    ReplyRoom {
        /// Bytes that the reply has.
        needed: usize,
        /// Bytes that were given.
        room: usize,
    },
    /// The request ends before what its header claims, or before the header's end.
    #[error("the request ends inside its {layer} part: drop it")]
    Truncated {
        /// What is not complete.
        layer: Layer,
    },
    /// A field contradicts the format or another field.
    #[error("the {layer} header has a wrong {field}: drop the request")]
    Malformed {
        /// Whose header.
        layer: Layer,
        /// The field, as its specification names it.
        field: &'static str,
    },
    /// A version of the format that this service does not speak.
    #[error("the {layer} header says version {found}, expected {expected}")]
    Version {
        /// Whose header.
        layer: Layer,
        /// What the header says.
        found: u8,
        /// What it should say.
        expected: u8,
    },
    /// A checksum does not match: the request was damaged on the way.
    #[error("the {layer} checksum is wrong: drop the request")]
    Checksum {
        /// Whose checksum.
        layer: Layer,
    },
    /// What follows a header is a protocol that this service does not take.
    #[error("protocol {found:#x} behind the {layer} header is not served here")]
    Protocol {
        /// Whose header.
        layer: Layer,
        /// The protocol's number (EtherType, IP protocol, GRE protocol type).
        found: u16,
    },
    /// The reply would not fit the tunnel's path: answer with ICMP "fragmentation needed" (RFC 1191).
    #[error("a packet of {length} bytes is above the tunnel's {mtu}: tell its sender that MTU")]
    TooBig {
        /// Bytes of the packet to be sent through the tunnel.
        length: usize,
        /// Most bytes that the tunnel carries: the MTU to tell the sender.
        mtu: usize,
    },
    /// The packet may not be forwarded once more: answer with ICMP "time exceeded" (RFC 792).
    #[error("the packet's time to live is used up: answer with ICMP time exceeded")]
    HopLimit,
    /// The addresses are not those that this service was set up for.
    #[error("the {layer} addresses are not this service's: check the routes that lead here")]
    Address {
        /// Whose addresses.
        layer: Layer,
    },
    /// Congestion was marked on the way of a packet whose sender cannot be told otherwise (RFC 6040 §4.2).
    #[error("congestion was marked on the way and the sender knows no ECN: the loss tells it")]
    Congestion,
    /// The tunnel's key is absent, unexpected, or another (RFC 2890 §2.1).
    #[error("the GRE key is {found:?}, this tunnel's is {expected:?}: check both ends' set-up")]
    TunnelKey {
        /// In the packet.
        found: Option<u32>,
        /// In the configuration.
        expected: Option<u32>,
    },
    /// The tunnel's packet is late or a copy (RFC 2890 §2.2), or has no number where one is required.
    #[error("the GRE sequence number is {found:?} after {last:?}: a late packet or a copy")]
    Sequence {
        /// In the packet.
        found: Option<u32>,
        /// The last one that was accepted.
        last: Option<u32>,
    },
    /// A fragment of a datagram: it does not tell its session. Reassemble before this service.
    #[error("a fragment does not tell its session: reassemble before steering")]
    Fragment,
    /// No backend takes new sessions.
    #[error("no backend takes new sessions: add one")]
    NoBackend,
    /// The request's length is not one that the service's shape allows.
    #[error("a request of {found} bytes: it must be {multiple} equal parts, at least a byte each")]
    Length {
        /// Bytes of the request.
        found: usize,
        /// Its length must be a positive multiple of this.
        multiple: usize,
    },
    /// The message does not end in a valid padding (RFC 5652 §6.3): another key, or damage. Tell the peer no more than
    /// that it failed: the difference between this and other failures helps who tampers with messages.
    #[error("the message's padding is wrong: another key, or a damaged message")]
    Padding,
    /// So many messages were encrypted that an initialisation vector would come again.
    #[error("all initialisation vectors of this key are used: make a service with new keys")]
    KeyExhausted,
    /// No pool serves the method.
    #[error("method {method} is served by no pool: check the dispatcher's table")]
    Method {
        /// From the request's header.
        method: u16,
    },
    /// Every worker of the pool has as many requests as it may: keep the request, and serve it after a `done`.
    #[error("all workers of pool {pool} are at their bound: keep the request until one is done")]
    Busy {
        /// The pool's number.
        pool: u16,
    },
}

impl Refused {
    /// A packet view's reason, with the header that it was about. What is no contradiction of a header's is that of
    /// its lengths.
    pub(crate) fn at(layer: Layer) -> impl Fn(WireError) -> Refused {
        move |error| match error {
            WireError::Truncated => Refused::Truncated { layer },
            WireError::Checksum => Refused::Checksum { layer },
            WireError::Malformed | WireError::Unsupported => {
                Refused::Malformed { layer, field: "version or length" }
            }
        }
    }
}
