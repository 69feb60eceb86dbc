//! Bulk transfers: every byte right, every checksum right, no reset.

use crate::harness::capture::{Capture, Sent};
use crate::harness::process::Running;
use crate::harness::stream::{connect, transfer};
use crate::harness::{ECHO, Testbed, config, is_full};

#[test]
fn megabytes_go_both_ways_and_each_byte_and_checksum_is_right() {
    let Some(mut bed) = Testbed::with("transfer", "echo") else { return };
    let total = if is_full() { 100 << 20 } else { 20 << 20 };
    let capture = Capture::start(&bed);
    let stream = bed.at_client(|| connect(ECHO)).expect("a connection");
    transfer(&stream, 1, total);
    drop(stream);
    let summary = bed.stop();
    assert_eq!((summary.accepted, summary.left), (vec![1], 0), "{}", summary.text);

    let Some(capture) = capture else { return };
    let sent = capture.finish();
    assert!(sent.payload_bytes >= total / 2, "the capture missed most of it: {sent:?}");
    let Sent { tcp_segments, payload_bytes, .. } = sent;
    // Nothing else is counted: no reset of either side, no bad checksum, nothing malformed.
    assert_eq!(sent, Sent { tcp_segments, payload_bytes, ..Sent::default() });
}

/// The kernel completes them when it sends, as the lab's veth does not. The application's sums are not made, in either
/// domain.
#[test]
fn checksums_that_are_left_to_the_device_arrive_right() {
    for (tag, domain) in [("offload", ""), ("offload-process", "domain = \"process\"\n")] {
        let Some(mut bed) = Testbed::new(tag, 1) else { return };
        let text = config("echo", bed.lab.prefix(), 1, domain);
        bed.serve_with(&text.replace("[dataplane]", "checksums = \"device\"\n[dataplane]"));
        let said = bed.service().map(Running::stdout).unwrap_or_default();
        assert!(said.contains("checksums by the device"), "{said}");
        let capture = Capture::start(&bed);
        let stream = bed.at_client(|| connect(ECHO)).expect("a connection");
        transfer(&stream, 1, 4 << 20);
        drop(stream);
        let summary = bed.stop();
        assert_eq!((summary.accepted, summary.left), (vec![1], 0), "{}", summary.text);
        let Some(capture) = capture else { continue };
        let sent = capture.finish();
        let Sent { tcp_segments, payload_bytes, .. } = sent;
        assert!(payload_bytes >= 2 << 20, "the capture missed most of it: {sent:?}");
        assert_eq!(sent, Sent { tcp_segments, payload_bytes, ..Sent::default() });
    }
}

#[test]
fn transfers_at_the_same_time_do_not_mix() {
    eight_transfers("transfers", "");
}

/// The longest moderation, under which waits are as long as a transfer's round trips.
#[test]
fn moderation_holds_up_no_transfer() {
    eight_transfers("moderated", "moderation_us = 1000\n");
}

/// Two threads share the connections' work, of whichever core they are.
#[test]
fn transfers_do_not_mix_where_any_core_serves_any_connection() {
    eight_transfers_on("shared", 2, "scheduler = \"work-conserving\"\n");
    eight_transfers_on("classed", 2, "scheduler = \"ready-set\"\npolicy = \"round-robin\"\n");
}

fn eight_transfers(tag: &str, settings: &str) {
    eight_transfers_on(tag, 1, settings);
}

fn eight_transfers_on(tag: &str, threads: u32, settings: &str) {
    let Some(mut bed) = Testbed::new(tag, threads) else { return };
    bed.serve("echo", threads, settings);
    let streams: Vec<_> =
        (0..8).map(|_| bed.at_client(|| connect(ECHO)).expect("a connection")).collect();
    std::thread::scope(|scope| {
        for (seed, stream) in streams.iter().enumerate() {
            scope.spawn(move || transfer(stream, seed as u64, 1 << 20));
        }
    });
    drop(streams);
    let summary = bed.stop();
    let accepted: u64 = summary.accepted.iter().sum();
    assert_eq!((accepted, summary.left), (8, 0), "{}", summary.text);
}
