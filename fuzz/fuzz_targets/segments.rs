//! Bytes become segments near what a connection has reached, calls of its application, and time: see `segment_script` among
//! the stack's tests, which also says what must hold. A script that fails here can be given to `segment_script::run` in a
//! test.
#![no_main]

#[allow(dead_code, reason = "shared with the stack's tests")]
#[path = "../../core/stack/tests/dialogues/segment_script.rs"]
mod segment_script;
#[allow(dead_code, unused_imports, reason = "shared with the stack's tests")]
#[path = "../../core/stack/tests/dialogues/support/mod.rs"]
mod support;

/// Whether the stack's tests move all flow groups: here there is one stack.
const WANDERS: bool = false;
/// Whether both ends speak IPv6.
const V6: bool = false;
/// Whether the device completes checksums.
const OFFLOADS: bool = false;

libfuzzer_sys::fuzz_target!(|script: &[u8]| segment_script::run(script));
