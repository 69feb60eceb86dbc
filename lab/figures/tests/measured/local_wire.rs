//! A service and its load on a wire in shared memory, for which no privilege is needed.

use std::process::Command;

use rustix::process::Signal;

use crate::harness::process::Running;
use crate::harness::{TemporaryDirectory, start, tailplane};

#[test]
fn a_service_of_three_processes_is_loaded_over_a_local_wire() {
    let directory = TemporaryDirectory::new();
    let socket = directory.file("wire.sock");
    let text = format!(
        "[service]\napp = \"kv\"\n[network]\nshm = \"{}\"\n[dataplane]\nspin_us = 50\n\
         domain = \"process\"\n[memory]\nchunks = 16384\n",
        socket.display()
    );
    let service = start(&directory, &text);
    let mut load = tailplane(&["load", "10.77.0.2:11211", "--shm"]);
    load.arg(&socket).args(["--rate", "500", "--seconds", "1"]);
    let loaded =
        Running::start(&directory, "load", load, Command::spawn).expect("it starts").finish();
    // It may complain of the machine, which others use too; not of what came back.
    assert!(loaded.stdout.contains(" 0 errors, 0 misses, 0 unanswered"), "{loaded:?}");
    service.interrupt(Signal::TERM).assert_success();
    assert!(!socket.exists());
}
