//! Reed-Solomon and P + Q against Intel's ISA-L (Debian's libisal-dev), byte for byte.
//!
//! The library is C: `isal.c` is compiled with `cc` by the test and fed with cases.

use std::path::{Path, PathBuf};
use std::process::Command;

use services::{Kernel, Raid, ReedSolomon, Service};

use crate::packets::serve;
use crate::tools::{available, noise, report_missing, run_with_input, scratch};

const SOURCE: &str = include_str!("isal.c");
const PROBE: &str = "#include <isa-l.h>\nint main(void) { return 0; }\n";

/// Compiles and links with ISA-L; the message where that fails.
fn compile(source: &str, output: &Path) -> Result<(), String> {
    let file = output.with_extension("c");
    std::fs::write(&file, source).expect("a writable directory");
    let result = Command::new("cc")
        .args(["-O1", "-Wall", "-Wextra", "-Werror", "-o"])
        .args([output, &file])
        .arg("-lisal")
        .output()
        .expect("cc runs");
    std::fs::remove_file(&file).expect("written above");
    let message = String::from_utf8_lossy(&result.stderr).into_owned();
    if result.status.success() { Ok(()) } else { Err(message) }
}

/// The program; `None` where compiler or library are not installed. Our own mistakes in it are no such reason.
fn program(name: &str) -> Option<PathBuf> {
    if !available("cc", &["--version"]) {
        return None;
    }
    let path = scratch(name);
    if let Err(message) = compile(PROBE, &path) {
        println!("{message}");
        report_missing("ISA-L (libisal-dev)");
        return None;
    }
    compile(SOURCE, &path).expect("the program compiles where the library is");
    Some(path)
}

/// A request to one of our services, and the same for the program.
struct Case {
    service: Box<dyn Service>,
    kind: u8,
    data: usize,
    parity: usize,
    request: Vec<u8>,
    what: String,
}

impl Case {
    /// As the program reads it.
    fn input(&self) -> Vec<u8> {
        let length = self.request.len() / self.data;
        let head = [u32::from(self.kind), self.data as u32, self.parity as u32, length as u32];
        [&head.map(u32::to_ne_bytes).concat(), &self.request[..]].concat()
    }
}

/// Runs all cases in one process and compares with our replies.
fn compare(name: &str, cases: Vec<Case>) {
    let Some(program) = program(name) else { return };
    let input: Vec<u8> = cases.iter().flat_map(Case::input).collect();
    let theirs = run_with_input(&mut Command::new(&program), &input);
    std::fs::remove_file(&program).expect("compiled above");
    let mut rest = &theirs[..];
    for Case { mut service, request, what, .. } in cases {
        let ours = serve(&mut *service, &request).expect("encoded");
        let (parity, after) = rest.split_at_checked(ours.len()).expect("an answer to each case");
        assert!(ours == parity, "{what}: the parity differs from ISA-L's");
        rest = after;
    }
    assert!(rest.is_empty(), "{} bytes too many", rest.len());
}

const LENGTHS: [usize; 9] = [1, 31, 32, 33, 64, 100, 410, 512, 4_096];

#[test]
#[cfg_attr(miri, ignore = "starts a program")]
fn isal_makes_the_same_reed_solomon_parity() {
    let mut cases = Vec::new();
    for (data, parity) in [(1, 1), (2, 1), (4, 2), (10, 4), (17, 3), (6, 9), (128, 16), (200, 56)] {
        for length in LENGTHS {
            for kernel in [Kernel::portable(), Kernel::detect()] {
                let request = noise(data * length, (data * length) as u64);
                let code = ReedSolomon::with_kernel(data, parity, kernel).expect("a shape");
                let what = format!("{data} + {parity} of {length} bytes, {}", kernel.name());
                let service = Box::new(code);
                cases.push(Case { service, kind: b'R', data, parity, request, what });
            }
        }
    }
    compare("reed-solomon", cases);
}

#[test]
#[cfg_attr(miri, ignore = "starts a program")]
fn isal_makes_the_same_p_and_q() {
    let mut cases = Vec::new();
    // ISA-L takes three data blocks at least (its own checks say so), and here 254 in all.
    for disks in [3, 4, 8, 16, 100, 254] {
        for length in LENGTHS {
            for kernel in [Kernel::portable(), Kernel::detect()] {
                let request = noise(disks * length, (disks * length) as u64);
                let raid = Raid::with_kernel(disks, kernel).expect("a number");
                let what = format!("{disks} disks, {length} bytes, {}", kernel.name());
                let service = Box::new(raid);
                cases.push(Case { service, kind: b'P', data: disks, parity: 2, request, what });
            }
        }
    }
    compare("p-and-q", cases);
}
