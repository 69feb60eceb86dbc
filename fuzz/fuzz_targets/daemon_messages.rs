//! Bytes become what a client of the daemon sends: a Varlink call, and the head of an HTTP request.
#![no_main]

use daemon::Snapshot;
use daemon::metrics::http;
use daemon::varlink::{Access, Call, Role, asked};

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let _ = http::asked(bytes);
    let Ok(call) = Call::parse(bytes) else { return };
    let access = Access { own_uid: 1, group: None, others_read: true };
    for role in [Role::Nobody, Role::Read, Role::Change] {
        let _ = asked(&call, &access, role, &Snapshot::default());
    }
});
