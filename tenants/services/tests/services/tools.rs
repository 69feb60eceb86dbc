//! Programs that verify: `if !available("openssl", &["version"]) { return }`, then `run_with_input(..)`.

use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Whether the program runs. Under continuous integration (`CI=true`) it must: there a verification that does not
/// happen is a failure. Elsewhere the caller passes, and says that nothing was verified.
pub fn available(program: &str, arguments: &[&str]) -> bool {
    let status = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    let found = status.is_ok_and(|status| status.success());
    if !found {
        report_missing(program);
    }
    found
}

/// Fails under continuous integration, prints a notice elsewhere.
pub fn report_missing(what: &str) {
    let in_ci = std::env::var("CI").is_ok_and(|value| value == "true");
    assert!(!in_ci, "{what} is not installed, and CI=true: run scripts/setup.sh test");
    println!("NOT VERIFIED: {what} is not installed; run scripts/setup.sh test");
}

/// What a program writes when it reads `input`. Fails where the program fails.
pub fn run_with_input(command: &mut Command, input: &[u8]) -> Vec<u8> {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let mut stdin = child.stdin.take().expect("piped");
    // From a thread of its own: the program may write before it has read everything.
    let output = std::thread::scope(|scope| {
        // What the program does not read shows in what it answers.
        scope.spawn(move || drop(stdin.write_all(input)));
        child.wait_with_output().expect("the program ends")
    });
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}: {}: {error}", output.status);
    output.stdout
}

/// A path for a test's file, in a directory of cargo's for this; the name must be the test's own.
pub fn scratch(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{}-{name}", std::process::id()))
}

/// Bytes without pattern, the same for the same seed (xorshift, Marsaglia 2003).
pub fn noise(len: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 24) as u8
    };
    (0..len).map(|_| next()).collect()
}
