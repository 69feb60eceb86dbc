//! The same dialogues with our stack, in virtual time, and with the kernel's, over a TAP device in a network namespace:
//! each difference between the transcripts has its row, with its reason, in `docs/linux.md`.
//!
//! The kernel is asked for its answers step by step, so that it does not matter how late they are. Root is needed.

mod dialogue;
mod host;
#[allow(dead_code, unused_imports, reason = "shared with the dialogues")]
#[path = "../dialogues/support/mod.rs"]
mod support;
mod table;
mod unsafe_tap;

use std::collections::BTreeSet;
use std::path::Path;
use std::thread;

use dialogue::Dialogue;
use host::{Host, Linux, ours};
use table::{DIALOGUES, Script};

const WANDERS: bool = false;
const V6: bool = false;
const OFFLOADS: bool = false;
/// The page of differences.
const PAGE: &str = "docs/linux.md";

/// The peer's port in a dialogue.
fn port(number: usize) -> u16 {
    3_000 + number as u16
}

fn play(host: &mut dyn Host, number: usize, script: Script) -> Vec<String> {
    let mut dialogue = Dialogue::new(host, port(number));
    script(&mut dialogue);
    dialogue.finish()
}

/// Where two transcripts part: the step, and what each does in it.
fn first_difference(ours: &[String], linux: &[String]) -> Option<(usize, [String; 2])> {
    let at = ours.iter().zip(linux).position(|(ours, linux)| ours != linux)?;
    Some((at + 1, [ours[at].clone(), linux[at].clone()]))
}

/// The row of a difference, up to its reason.
fn row(name: &str, (step, [ours, linux]): &(usize, [String; 2])) -> String {
    format!("| {name} | {step} | `{ours}` | `{linux}` |")
}

/// The rows of the page, up to their reasons.
fn listed() -> BTreeSet<String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let page = std::fs::read_to_string(root.join(PAGE)).expect("the page of differences");
    let rows = page.lines().filter(|line| line.starts_with("| ")).skip(1);
    let rows = rows.filter(|line| !line.starts_with("| ---"));
    rows.map(|line| {
        let (row, reason) = line.trim_end_matches(" |").rsplit_once(" | ").expect("columns");
        assert!(reason.len() > 10, "a reason: {line}");
        format!("{row} |")
    })
    .collect()
}

#[test]
fn each_difference_from_linux_has_its_reason() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: needs root for a network namespace");
        return;
    }
    let kernel = thread::spawn(|| {
        let mut linux = Linux::new().expect("a network namespace");
        let play = |(number, &(_, script)): (usize, &(&str, Script))| {
            linux.begin(port(number));
            play(&mut linux, number, script)
        };
        DIALOGUES.iter().enumerate().map(play).collect::<Vec<_>>()
    });
    let kernel = kernel.join().expect("the kernel's part");
    let mut found = BTreeSet::new();
    for ((number, &(name, script)), linux) in DIALOGUES.iter().enumerate().zip(kernel) {
        let mut world = ours();
        let ours = play(&mut world, number, script);
        println!("{name}\n  ours:  {ours:?}\n  Linux: {linux:?}");
        assert_eq!(ours.len(), linux.len(), "a line for each step");
        found.extend(first_difference(&ours, &linux).map(|difference| row(name, &difference)));
    }
    let listed = listed();
    let unlisted: Vec<_> = found.difference(&listed).collect();
    let gone: Vec<_> = listed.difference(&found).collect();
    assert!(
        unlisted.is_empty() && gone.is_empty(),
        "not in {PAGE}: {unlisted:#?}\nnot found: {gone:#?}"
    );
}
