//! The dialogues once more, word for word, over IPv6, and as `tests/wandering` has them: what is said of connections
//! holds with either version of IP.

/// Whether all flow groups move to another stack after each cycle.
const WANDERS: bool = true;
/// Whether both ends speak IPv6.
const V6: bool = true;
const OFFLOADS: bool = false;

mod forged;
mod nd;

#[path = "../dialogues/addresses.rs"]
mod addresses;
#[path = "../dialogues/again.rs"]
mod again;
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
