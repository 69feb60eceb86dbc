//! Bytes become frames, time and calls of the application, and go into the stack: see `chaos` among
//! the stack's tests, which also says what must hold. A script that fails here can be given to
//! `chaos::run` in a test.
#![no_main]

#[allow(dead_code, reason = "shared with the stack's tests")]
#[path = "../../core/stack/tests/dialogues/chaos.rs"]
mod chaos;
#[allow(dead_code, reason = "shared with the stack's tests")]
#[path = "../../core/stack/tests/dialogues/support/mod.rs"]
mod support;

/// Whether the stack's tests move all flow groups: here there is one stack.
const WANDERS: bool = false;
/// Whether both ends speak IPv6.
const V6: bool = false;
/// Whether the device completes checksums.
const OFFLOADS: bool = false;

libfuzzer_sys::fuzz_target!(|script: &[u8]| chaos::run(script));
