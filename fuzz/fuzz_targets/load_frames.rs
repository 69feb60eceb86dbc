//! Bytes become what the other end of a load generator's connection sends: frames of the handshake and of a run.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    load::remote::read_frames(bytes);
});
