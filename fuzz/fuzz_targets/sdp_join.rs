//! Bytes become what a tenant sends to join a data plane, and what a plane answers.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    sdp::read_ask(bytes);
});
