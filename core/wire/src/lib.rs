//! Packet formats: checked views, meaningful structs, checksums, Toeplitz hash.
//!
//! Every header has two levels. A *view* (`TcpView`, `Ipv4View`, ...) borrows received bytes; `parse` checks every
//! length once, and after that no accessor can fail. A *representation* (`TcpRepr`, `Ipv4Repr`, ...) is a small
//! struct of the meaningful states only, and `emit` writes it into a frame.
//!
//! ```
//! use wire::{EtherType, EthernetView, Ipv4View, Protocol, TcpView, WireError};
//!
//! fn destination_port(frame: &[u8]) -> Result<u16, WireError> {
//!     let ethernet = EthernetView::parse(frame)?;
//!     if ethernet.ethertype() != EtherType::IPV4 {
//!         return Err(WireError::Unsupported);
//!     }
//!     let ip = Ipv4View::parse(ethernet.payload())?;
//!     if !ip.verify_checksum() {
//!         return Err(WireError::Checksum);
//!     }
//!     if ip.protocol() != Protocol::TCP || ip.is_fragment() {
//!         return Err(WireError::Unsupported);
//!     }
//!     let tcp = TcpView::parse(ip.payload())?;
//!     if !tcp.verify_checksum(ip.src(), ip.dst()) {
//!         return Err(WireError::Checksum);
//!     }
//!     Ok(tcp.dst_port())
//! }
//! # assert_eq!(destination_port(&[0; 4]), Err(WireError::Truncated));
//! ```
//!
//! Rules that hold for the whole crate: no `parse` panics on any bytes; an `emit` panics only when the caller's
//! buffer is shorter than the header it documents; nothing allocates. Transport checksums are the caller's to ask for
//! (`verify_checksum`), because a device may already have checked them.

#![no_std]

pub mod addr;
pub mod arp;
pub mod checksum;
pub mod established;
pub mod ethernet;
pub mod flow;
pub mod icmp;
pub mod icmpv6;
pub mod ip;
pub mod ipv4;
pub mod ipv6;
pub mod ipv6_extensions;
pub mod long_segment;
pub mod pseudo_header;
pub mod tcp;
pub mod tcp_options;
pub mod toeplitz;
pub mod udp;

pub use addr::{Address, Endpoint, Ipv4Addr, Ipv6Addr, MacAddr, ParseAddrError, Prefix};
pub use arp::{ArpOperation, ArpRepr};
pub use checksum::{Sum, complete_checksum, complete_checksum_before, copy_and_sum};
pub use established::{
    EstablishedFields, EstablishedHeaders, EstablishedTemplate, EstablishedView,
};
pub use ethernet::{EtherType, EthernetRepr, EthernetView};
pub use flow::{FlowKey, PairId};
pub use icmp::{IcmpRepr, IcmpView, QuotedTcp, TimeExceededCode, UnreachableCode};
pub use icmpv6::{Icmpv6Repr, Icmpv6View, ParameterProblemCode, UnreachableCodeV6};
pub use ipv4::{Ipv4Repr, Ipv4View, Protocol};
pub use ipv6::{Ipv6Repr, Ipv6View, multicast_mac, solicited_node};
pub use ipv6_extensions::{Fragment6, MAX_EXTENSION_BYTES, MAX_EXTENSION_HEADERS};
pub use long_segment::LongSegment;
pub use pseudo_header::pseudo_header_sum;
pub use tcp::{SeqNumber, TcpFlags, TcpRepr, TcpView};
pub use tcp_options::{MAX_OPTIONS_LEN, MAX_SACK_BLOCKS, SackBlocks, TcpOptions, Timestamp};
pub use toeplitz::{MICROSOFT_KEY, Toeplitz, toeplitz_reference};
pub use udp::{UdpRepr, UdpView, emit_udp_packet};

/// Why bytes from the network were not accepted. The packet is to be dropped and counted under this name.
#[derive(Debug, Copy, Clone, PartialEq, Eq, Hash, thiserror::Error)]
pub enum WireError {
    /// The buffer ends before the header, or before the length that the header claims.
    #[error("packet ends before the length its header claims")]
    Truncated,
    /// A field contradicts another field or the format's definition.
    #[error("packet header contradicts its own format")]
    Malformed,
    /// The checksum over the header or message is wrong.
    #[error("packet checksum is wrong")]
    Checksum,
    /// Well formed, but a variant that this crate does not interpret.
    #[error("packet format is not supported")]
    Unsupported,
}
