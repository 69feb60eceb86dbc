//! The plug-in as packetdrill calls it: a C program loads the shared object that was built with this test.

use std::path::Path;
use std::process::Command;

#[test]
fn packetdrills_call_order_is_served() {
    // Cargo builds the library beside the tests of its package.
    let tests = std::env::current_exe().expect("this test's path");
    let built = tests.parent().expect("a folder");
    let object = built.join("libtailplane_packetdrill.so");
    assert!(object.exists(), "{}", object.display());
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join("call_order");
    let compiled = Command::new("cc")
        .args(["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", "-o"])
        .arg(&program)
        .arg(here.join("call_order.c"))
        .args(["-ldl", "-lpthread"])
        .output()
        .expect("cc");
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let played = Command::new("timeout").arg("60").arg(&program).arg(&object).output();
    let played = played.expect("the program runs");
    let said = String::from_utf8_lossy(&played.stderr);
    assert!(played.status.success(), "{} {said}", played.status);
}
