//! Bytes become what an application writes into its arrays before and, from a thread of its own, while they are read:
//! see `application` among the tests of `process`, which also says what must hold.
#![no_main]

#[allow(dead_code, reason = "shared with the tests of the crate")]
#[path = "../../api/process/tests/hostile/application.rs"]
mod application;

libfuzzer_sys::fuzz_target!(|script: &[u8]| {
    application::arrays(script);
    application::race(script, 50);
});
