//! Bytes become calls of two hosts' applications, in any order, and time: see `call_script` among the tests of `sockets`,
//! which also says what must hold. A script that fails here can be given to `call_script::run` in a test.
#![no_main]

#[path = "../../api/sockets/tests/posix/call_script.rs"]
mod call_script;
#[allow(dead_code, reason = "shared with the tests of the crate")]
#[path = "../../api/sockets/tests/posix/support.rs"]
mod support;

libfuzzer_sys::fuzz_target!(|script: &[u8]| call_script::run(script));
