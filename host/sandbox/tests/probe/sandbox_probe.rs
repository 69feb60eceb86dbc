//! What the tests start and confine: `sandbox-probe <confinement> <attempt> [number]` confines itself
//! further as the first word says, tries what a broken-into process would try, and prints what came of it.
//!
//! The first word: `free` changes nothing; `strict` enforces the policy of a dataplane that serves; `begin` and `start`
//! that of one whose threads are to come, and `start` kills at a refusal, as does `kill` of one that serves.

use std::io::Read;
use std::os::fd::AsFd;
use std::process::{Command, ExitCode};
use std::time::Duration;

use sandbox::{Confinement, Refusal, Standing, SyscallPolicy};

mod unsafe_attempts;

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().collect();
    let [_, confinement, attempt, rest @ ..] = args.as_slice() else {
        eprintln!("sandbox-probe <free|strict|begin|start|kill> <attempt> [number]");
        return ExitCode::FAILURE;
    };
    let number = rest.first().and_then(|number| number.parse().ok()).unwrap_or(0);
    let confined = match confinement.as_str() {
        "strict" => SyscallPolicy::dataplane().enforce(),
        "begin" => SyscallPolicy::dataplane().with_threads().enforce(),
        "start" => SyscallPolicy::dataplane().with_threads().refusing_with(Refusal::Kill).enforce(),
        "kill" => SyscallPolicy::dataplane().refusing_with(Refusal::Kill).enforce(),
        _ => Ok(()),
    };
    if let Err(e) = confined {
        println!("{e}");
        return ExitCode::SUCCESS;
    }
    match attempt.as_str() {
        "wait" => wait(),
        "starter" => starter(true, false, ["strict", "wait"]),
        "careless starter" => starter(false, false, ["strict", "wait"]),
        "starter of one that clears its death signal" => starter(true, false, ["free", "clear"]),
        "the same in a namespace" => starter(true, true, ["free", "clear"]),
        "clear" => {
            println!("{}", unsafe_attempts::attempt("outlive the starter", 0));
            wait();
        }
        "chain" => {
            unsafe_attempts::chain(CHAIN_LASTS);
            wait();
        }
        "sweep dataplane" => println!("{}", sweep(SyscallPolicy::dataplane())),
        "sweep dataplane with threads" => {
            println!("{}", sweep(SyscallPolicy::dataplane().with_threads()));
        }
        "sweep dataplane that joins" => {
            println!("{}", sweep(SyscallPolicy::dataplane().with_threads().with_joining()));
        }
        "sweep dataplane that starts" => {
            let policy = SyscallPolicy::dataplane().with_threads().with_joining();
            println!("{}", sweep(policy.with_startup()));
        }
        "sweep plane" => println!("{}", sweep(SyscallPolicy::plane())),
        "sweep application" => println!("{}", sweep(SyscallPolicy::application())),
        "standing" => println!("{}", said(Standing::of_self().map(|s| format!("{s:?}")))),
        _ => println!("{}", unsafe_attempts::attempt(attempt, number)),
    }
    ExitCode::SUCCESS
}

/// How long a chain of forks goes on.
const CHAIN_LASTS: Duration = Duration::from_secs(2);

/// The numbers of all system calls that pass the policy's filter when made without sense in their arguments.
fn sweep(policy: SyscallPolicy) -> String {
    // Beyond the last one that a kernel has: what is not there yet is an answer, too.
    const LAST: i64 = 600;
    let policy = policy.refusing_with(Refusal::Kill);
    let passes = |number: &i64| unsafe_attempts::passes(*number, || policy.enforce().is_ok());
    let numbers: Vec<_> = (0..=LAST).filter(passes).map(|number| number.to_string()).collect();
    numbers.join(" ")
}

fn said(found: Result<String, sandbox::SandboxError>) -> String {
    found.unwrap_or_else(|e| e.to_string())
}

/// Says that it runs, and ends when its input does.
fn wait() {
    println!("ready");
    let mut end = Vec::new();
    // Whatever ends the input, an error too, ends the wait.
    let _ = std::io::stdin().read_to_end(&mut end);
}

/// Starts a confined child that never ends by itself, says its number, and waits.
fn starter(dies_with_it: bool, own_processes: bool, words: [&str; 2]) {
    let program = std::env::current_exe().expect("a running program");
    let mut command = Command::new(program);
    // The child's input is this pipe's end, which another process holds too: it will not end.
    let (input, held) = std::io::pipe().expect("a pipe");
    let keep = held.as_fd().try_clone_to_owned().expect("one more descriptor");
    command.args(words).stdin(input).stdout(std::process::Stdio::null());
    let mut confinement = Confinement::new().identity(30_001, 30_001);
    if words[0] == "strict" {
        confinement = confinement.syscalls(SyscallPolicy::dataplane().with_startup());
    }
    if own_processes {
        confinement = confinement.own_processes();
    }
    let confinement = if dies_with_it { confinement } else { confinement.outlives_parent() };
    match confinement.spawn(command, &[(keep.as_fd(), 3)]) {
        Ok(mut child) => {
            println!("{}", Standing::of_program(child.id()).map_or(0, |standing| standing.pid));
            wait();
            // The starter that ends in order waits for nobody: its child is to go with it.
            let _ = child.try_wait();
        }
        Err(e) => println!("{e}"),
    }
}
