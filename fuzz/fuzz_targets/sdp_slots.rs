//! Bytes become what a tenant writes into its queue's memory before and, from a thread of its own, while the plane looks
//! at it: see `written_tests` in `sdp`, which also says what must hold.
#![no_main]

libfuzzer_sys::fuzz_target!(|script: &[u8]| sdp::serve_written(script));
