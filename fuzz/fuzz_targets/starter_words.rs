//! Bytes become what a dataplane or a plane says to its starter, and what a starter says to it.
#![no_main]

use cli::commands::sdp::{PlaneOrder, PlaneTold};
use service::split::{Order, Told};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = serde_json::from_slice::<Told>(bytes);
    let _ = serde_json::from_slice::<Order>(bytes);
    let _ = serde_json::from_slice::<PlaneTold>(bytes);
    let _ = serde_json::from_slice::<PlaneOrder>(bytes);
});
