//! A device's indirection table from the start of a service to its end.
#![allow(unsafe_code)]

#[path = "../../../core/nic/tests/unsafe_fake_device/mod.rs"]
mod unsafe_fake_device;

use std::collections::BTreeMap;
use std::sync::LazyLock;

use nic::Interface;
use nic::device::Device;
use nic::indirection::IndirectionTable;
use service::steering::Steering;
use tailplane::MacAddr;
use unsafe_fake_device::{fake, shown};

/// For the records of tables.
static RUN_DIR: LazyLock<tempfile::TempDir> = LazyLock::new(|| {
    let directory = tempfile::tempdir().expect("made");
    // SAFETY: tests come here before anything of theirs reads the environment.
    unsafe { std::env::set_var("TAILPLANE_RUN_DIR", directory.path()) };
    directory
});

/// The fake device of this name, of four queues.
fn device(name: &str) -> Device {
    LazyLock::force(&RUN_DIR);
    let (name, mac) = (name.to_owned(), MacAddr::default());
    Device {
        interface: Interface { name, index: 2, mac, mtu: 1500, hardware_type: 1 },
        driver: "igb".into(),
        is_up: true,
        queues: Some(4),
        queues_max: Some(8),
        rss_entries: None,
        features: BTreeMap::new(),
        xdp: None,
    }
}

#[test]
fn without_a_key_packets_are_forwarded() {
    fake("fake-no-key", 4, &[], false);
    let before = shown("fake-no-key");
    let steering = Steering::of(None, &device("fake-no-key"), 2, false);
    assert!(steering.table.is_none() && !steering.is_open, "{steering:?}");
    assert_eq!(steering.description, ", packets are forwarded between threads");
    // None come to queues without a thread.
    assert!(shown("fake-no-key").0.iter().all(|queue| *queue < 2));
    drop(steering);
    assert_eq!(shown("fake-no-key"), before);
}

#[test]
fn a_device_has_its_table_back_in_the_end() {
    fake("fake-key", 4, &[7; 40], false);
    let before = shown("fake-key");
    let mut steering = Steering::of(None, &device("fake-key"), 2, false);
    let table = steering.table.as_mut().expect("it has a key");
    table.write(&[(0, 1)]).expect("it is written");
    assert_eq!(shown("fake-key").0[..4], [1, 1, 0, 1]);
    drop(steering);
    assert_eq!(shown("fake-key"), before, "table, whether it is set");
}
