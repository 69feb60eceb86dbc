//! The dialogues once more, word for word, with stacks of which none keeps a flow group for more than a cycle:
//! after each one all flow groups move to another core's stack and, a cycle later, back (IX §4.5). Calls
//! are executed, every third time, while the groups are sealed.
//!
//! So whatever the dialogues say of timers, memory, order and what the application is told holds of a
//! connection that has moved. The NIC completes checksums.

/// Whether all flow groups move to another stack after each cycle.
const WANDERS: bool = true;
const V6: bool = false;
const OFFLOADS: bool = true;

mod moving;

#[path = "../dialogues/addresses.rs"]
mod addresses;
#[path = "../dialogues/again.rs"]
mod again;
#[path = "../dialogues/arp_icmp_udp.rs"]
mod arp_icmp_udp;
#[path = "../dialogues/attacks.rs"]
mod attacks;
#[path = "../dialogues/chaos.rs"]
mod chaos;
#[path = "../dialogues/close.rs"]
mod close;
#[path = "../dialogues/ecn.rs"]
mod ecn;
#[path = "../dialogues/fragment_map.rs"]
mod fragment_map;
#[path = "../dialogues/fragments.rs"]
mod fragments;
#[path = "../dialogues/handshake.rs"]
mod handshake;
#[path = "../dialogues/info.rs"]
mod info;
#[path = "../dialogues/isn.rs"]
mod isn;
#[path = "../dialogues/jumbo.rs"]
mod jumbo;
#[path = "../dialogues/keepalive.rs"]
mod keepalive;
#[path = "../dialogues/leave.rs"]
mod leave;
#[path = "../dialogues/listening.rs"]
mod listening;
#[path = "../dialogues/loss.rs"]
mod loss;
#[path = "../dialogues/path_mtu.rs"]
mod path_mtu;
#[path = "../dialogues/predicted.rs"]
mod predicted;
#[path = "../dialogues/properties.rs"]
mod properties;
#[path = "../dialogues/receive.rs"]
mod receive;
#[path = "../dialogues/register.rs"]
mod register;
#[path = "../dialogues/sack.rs"]
mod sack;
#[path = "../dialogues/segment_script.rs"]
mod segment_script;
#[path = "../dialogues/send.rs"]
mod send;
#[path = "../dialogues/spurious.rs"]
mod spurious;
#[path = "../dialogues/support/mod.rs"]
mod support;
