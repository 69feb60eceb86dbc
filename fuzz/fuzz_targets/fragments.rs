//! Bytes become fragments of a few datagrams, and time: see `fragment_map` among the stack's tests, whose model says what must
//! become of them. A script that fails here can be given to `fragment_map::run` in a test.
#![no_main]

#[allow(dead_code, reason = "shared with the stack's tests")]
#[path = "../../core/stack/tests/dialogues/fragment_map.rs"]
mod fragment_map;
#[allow(dead_code, unused_imports, reason = "shared with the stack's tests")]
#[path = "../../core/stack/tests/dialogues/support/mod.rs"]
mod support;

/// Whether the stack's tests move all flow groups: here there is one stack.
const WANDERS: bool = false;
/// Whether both ends speak IPv6.
const V6: bool = false;
/// Whether the device completes checksums.
const OFFLOADS: bool = false;

libfuzzer_sys::fuzz_target!(|script: &[u8]| fragment_map::run(script));
