//! Tens of thousands of connections are normal: all of them stay usable, and idle ones are cheap.

use bench::connections::{IDLE_BYTES_LIMIT, run};

#[test]
fn fifty_thousand_connections_stay_usable_and_cheap() {
    const CONNECTIONS: usize = 50_000;
    let found = run(CONNECTIONS, CONNECTIONS).expect("all open and all answer");
    assert_eq!(found.connections, CONNECTIONS);
    assert_eq!(found.echoed, CONNECTIONS as u64, "one echo on each");
    assert!(
        found.server_bytes <= IDLE_BYTES_LIMIT && found.client_bytes <= IDLE_BYTES_LIMIT,
        "{:.1} and {:.1} bytes, limit {IDLE_BYTES_LIMIT}",
        found.server_bytes,
        found.client_bytes
    );
}
