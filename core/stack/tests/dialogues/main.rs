//! Dialogues with the stack: "send this segment, expect these", on a virtual clock.
//!
//! `support` has the two ends: a `World` with the stack, its pool and an application that notes what
//! it is told, and a `Peer` whose segments are written in sequence numbers relative to the
//! handshake. What the stack sends is checked bit by bit (lengths, every checksum, the payload's
//! contents) and then compared in tcpdump's notation:
//!
//! ```text
//! world.hear(&peer.seg(1, 1).len(1));
//! world.expect(&peer, &[". 1 ack 2"]);
//! ```
//!
//! Every world, when it goes out of scope, ends all connections, lets all timers run and asserts
//! that each chunk of packet memory came back.

/// Whether all flow groups move to another stack after each cycle: see `tests/wandering`.
const WANDERS: bool = false;
/// Whether both ends speak IPv6: see `tests/v6`.
const V6: bool = false;
/// Whether the NIC completes checksums: see `tests/wandering`.
const OFFLOADS: bool = false;

mod addresses;
mod again;
mod arp_icmp_udp;
mod attacks;
mod chaos;
mod close;
mod ecn;
mod fragment_map;
mod fragments;
mod handshake;
mod info;
mod isn;
mod jumbo;
mod keepalive;
mod leave;
mod listening;
mod loss;
mod path_mtu;
mod predicted;
mod properties;
mod receive;
mod register;
mod sack;
mod segment_script;
mod send;
mod spurious;
mod support;
mod timers;
mod user_timeout;
