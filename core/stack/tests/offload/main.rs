//! The dialogues about what is sent once more, word for word, over IPv6 and with a NIC that completes checksums: payloads
//! are never summed, and what leaves is right all the same.

const WANDERS: bool = false;
const V6: bool = true;
/// Whether the NIC completes checksums.
const OFFLOADS: bool = true;

#[path = "../dialogues/chaos.rs"]
mod chaos;
#[path = "../dialogues/close.rs"]
mod close;
#[path = "../dialogues/fragment_map.rs"]
mod fragment_map;
#[path = "../dialogues/loss.rs"]
mod loss;
#[path = "../dialogues/path_mtu.rs"]
mod path_mtu;
#[path = "../dialogues/predicted.rs"]
mod predicted;
#[path = "../dialogues/properties.rs"]
mod properties;
#[path = "../dialogues/sack.rs"]
mod sack;
#[path = "../dialogues/send.rs"]
mod send;
#[path = "../dialogues/spurious.rs"]
mod spurious;
#[path = "../dialogues/support/mod.rs"]
mod support;
