//! One echo costs no more than it may: `scripts/bench-instructions.sh --gate`.
//!
//! Instructions are only worth counting in what is shipped, so this builds the release binaries. They
//! are in the cache of an ordinary working tree; where they are not, most of the time goes there.

use std::path::Path;
use std::process::Command;

#[test]
fn an_echo_costs_no_more_than_it_may() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        println!("skipped: no valgrind here (apt-get install valgrind)");
        return;
    }
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let output = Command::new(root.join("scripts/bench-instructions.sh"))
        .env("INSTRUCTIONS", env!("CARGO_BIN_EXE_instructions"))
        .args(["--gate", "--profile"])
        .output()
        .expect("the script can be run");
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    println!("{said}");
    assert!(output.status.success(), "{said}\n{complained}");
    assert!(said.contains(" stack "), "built without lines, no instruction is any crate's: {said}");
    assert_eq!(said.matches("limit").count(), 3, "all verdicts are told: {said}");
}
