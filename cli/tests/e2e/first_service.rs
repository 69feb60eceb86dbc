//! The tutorial, `docs/first-service.md`: its program and its configuration serve as it says.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::path::Path;
use std::process::Command;

use rustix::process::Signal;

use crate::harness::process::Running;
use crate::harness::stream::connect;
use crate::harness::{Testbed, at, tailplane, wait_until};

const TUTORIAL: &str = include_str!("../../../docs/first-service.md");
const PROGRAM: &str = include_str!("../../../api/tailplane/examples/first_service.rs");

/// The tutorial's block of this language that has this in it.
fn block(language: &str, part: &str) -> &'static str {
    let blocks = TUTORIAL.split("```").skip(1).step_by(2);
    let mut of_language =
        blocks.filter_map(|block| block.strip_prefix(language)?.strip_prefix('\n'));
    of_language.find(|block| block.contains(part)).expect("the tutorial has it")
}

#[test]
fn the_tutorials_program_is_the_example() {
    assert_eq!(block("rust", "fn main"), PROGRAM);
}

#[test]
fn the_tutorials_service_answers_in_capitals() {
    let Some(bed) = Testbed::new("first", 1) else { return };
    let lab = format!("lab = \"{}\"", bed.lab.prefix());
    let config = block("toml", "[service]").replace("lab = \"tailplane\"", &lab);
    assert!(config.contains(&lab), "{config}");
    let path = bed.directory.write("capitals.toml", config);
    let program = Path::new(crate::PROGRAM).with_file_name("examples").join("first_service");
    assert!(
        program.is_file(),
        "no {}: `cargo test -p cli` builds it, as does `cargo build -p cli --example first_service`",
        program.display()
    );
    let mut command = tailplane(&["run", "--seconds", "300"]);
    command.arg(path).arg("--").arg(program);
    let mut service = Running::start(&bed.directory, "service", command, Command::spawn)
        .expect("the tailplane command starts");
    wait_until("the service serves", || {
        service.assert_runs();
        service.stdout().contains("scheduler")
    });
    let mut stream = bed.at_client(|| connect(at(7_000))).expect("let in");
    stream.write_all(b"hello, ").expect("sent");
    stream.write_all(b"dataplane\nand more\nunfinished").expect("sent");
    stream.shutdown(Shutdown::Write).expect("open until now");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it ends");
    assert_eq!(answer, "HELLO, DATAPLANE\nAND MORE\n");
    service.interrupt(Signal::TERM).assert_success();
}
