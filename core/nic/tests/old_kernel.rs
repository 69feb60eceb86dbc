//! A device's indirection table on kernels before 6.8.

mod unsafe_fake_device;

use nic::indirection::IndirectionTable;
use nic::rss::EthtoolRss;
use unsafe_fake_device::{fake, shown};

fn a_table_and_a_key_are_set(name: &str, before_6_8: bool) {
    fake(name, 4, &[7; 40], before_6_8);
    let mut rss = EthtoolRss::open(name, 4).expect("it has a table");
    let set = rss.write(&[(0, 3)]);
    assert!(set.is_ok(), "setting the table, before 6.8: {before_6_8}: {set:?}");
    assert_eq!(shown(name).0[..4], [3, 1, 2, 3]);
    let set = rss.set_key(&[9; 40]);
    assert!(set.is_ok(), "setting the key, before 6.8: {before_6_8}: {set:?}");
    assert_eq!(EthtoolRss::open(name, 4).expect("as before").key(), [9; 40]);
}

#[test]
fn a_kernel_of_today_takes_a_table_and_a_key() {
    a_table_and_a_key_are_set("fake-new", false);
}

/// The igb of Linux 6.1 in `make test-devices` (check `threads-1`), without a boot.
#[test]
fn a_kernel_before_6_8_takes_a_table_and_a_key() {
    a_table_and_a_key_are_set("fake-old", true);
}
