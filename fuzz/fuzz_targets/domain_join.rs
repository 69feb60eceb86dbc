//! Bytes become an application's answer to a dataplane's greeting, with odd words and descriptors: see `application`
//! among the tests of `process`, which also says what must hold.
#![no_main]

#[allow(dead_code, reason = "shared with the tests of the crate")]
#[path = "../../api/process/tests/hostile/application.rs"]
mod application;

libfuzzer_sys::fuzz_target!(|script: &[u8]| {
    application::join(script);
});
