//! Bytes become a message of a service's control socket, to the service and to its client; and text that a terminal
//! is to show.
#![no_main]

use endpoint::{Answer, Ask, printable};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    if let Ok(ask) = serde_json::from_slice::<Ask>(bytes) {
        let text = serde_json::to_vec(&ask).expect("what was read can be written");
        assert_eq!(serde_json::from_slice::<Ask>(&text).ok(), Some(ask));
    }
    let _ = serde_json::from_slice::<Answer>(bytes);
    let shown = printable(&String::from_utf8_lossy(bytes));
    assert!(!shown.contains(|letter: char| letter.is_control()), "{shown:?}");
});
