//! Hostile dataplanes: what the process between a starter and an application can do to both, and to whoever reads its
//! statistics segment.
//!
//! `tailplane-attack run CONFIG.toml` is the starter of `tailplane run`, which starts its own program as dataplane,
//! confined like the real one. That program takes the starter's first order and then does what the configuration names:
//!
//! ```text
//! # attack: flood-words
//! ```
//!
//! Where none is named it is the dataplane of `tailplane run`.

use std::ffi::OsString;
use std::io::{Write, stdin};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use clap::Parser;
use cli::commands::Cli;
use endpoint::{Answer, Done};
use memfile::{Memory, passing};
use rand::{Rng, RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::fs::{MemfdFlags, ftruncate, memfd_create};
use rustix::net::{RecvFlags, SendFlags, recv};
use service::split::control::{DESCRIPTORS_MAX, MESSAGE_MAX, receive, send};
use service::split::{Order, Told};
use statseg::Layout;
use statseg::layout as at;

use crate::unsafe_os::highest_priority;

/// The line of a configuration that names the attack.
const NAMED_BY: &str = "# attack: ";
/// Descriptors of one message at most (linux/scm.h, `SCM_MAX_FD`).
const SCM_MAX_FD: usize = 253;
/// Escape sequences, line breaks and a C1 control: what a terminal would obey.
const FOR_TERMINALS: &str = "\x1b]0;owned\x07\x1b[2J\n\r\u{9b}31m\x08and text";
/// For how long spinning threads run, should nobody end them.
const SPINS: Duration = Duration::from_secs(3);
/// They sleep for a nanosecond as often: the kernel's limit of real-time use (`RLIMIT_RTTIME`) counts anew from there.
const SPINS_BETWEEN_SLEEPS: Duration = Duration::from_millis(4_900);
/// Most memory that is hoarded, should nobody stop it.
const HOARDED_MIB_MAX: usize = 512;
const FOREVER: Duration = Duration::from_secs(3_600);

/// An attack of a dataplane.
pub struct Act {
    /// Its name in the configuration.
    pub name: &'static str,
    /// What it does, in a line.
    pub what: &'static str,
    run: Run,
}

type Run = fn(&Starter) -> anyhow::Result<()>;

const fn act(name: &'static str, what: &'static str, run: Run) -> Act {
    Act { name, what, run }
}

/// All of them.
pub const ACTS: &[Act] = &[
    act("flood-words", "answers orders that were never given, without end", |to| {
        flood(to, &unasked())
    }),
    act("flood-ready", "reports its start again and again", flood_ready),
    act("flood-garbage", "sends bytes that are no message, without end", |to| {
        flood(to, b"\x1b[2J{no message")
    }),
    act("oversize", "sends messages longer than any may be", |to| {
        flood(to, &[b'['; MESSAGE_MAX + 9])
    }),
    act("descriptors", "sends 253 descriptors with each message", descriptors),
    act("never-serves", "takes its orders and never serves", |_| never()),
    act("says-ended", "reports its end and lives on", says_ended),
    act("ignores-end", "serves and ignores the request to end", ignores_end),
    act("deaf", "serves and never reads an order", ignores_end),
    act("escapes", "reports an error of 64 KiB of escape sequences", escapes),
    act("prints", "prints escape sequences to its output, without end", prints),
    act("refuses", "refuses each order in escape sequences", refuses),
    act("scribbles", "writes random words to its statistics segment", scribbles),
    act("unsealed", "shows a segment that it can still cut off", unsealed),
    act(
        "spins",
        "has threads of the highest priority that it can get on each processor that it can reach, which never wait",
        spins,
    ),
    act("hoards", "writes to memory of its own, without end", hoards),
    act("hangs-up", "closes its socket and lives on", hangs_up),
];

/// The starter, and what it said first.
struct Starter {
    control: OwnedFd,
    _descriptors: Vec<OwnedFd>,
    layout: Layout,
}

/// Runs the command line where it is one of a starter, of what a starter starts, or of a reader; none otherwise.
pub fn as_started() -> Option<ExitCode> {
    let arguments: Vec<OsString> = std::env::args_os().collect();
    let ran = match arguments.get(1)?.to_str()? {
        "dataplane" => match is_to_attack() {
            Ok(true) => play().map(|()| ExitCode::SUCCESS),
            Ok(false) => Cli::parse_from(arguments).run(),
            Err(error) => Err(error),
        },
        "run" | "application" | "status" | "top" | "ctl" => Cli::parse_from(arguments).run(),
        _ => return None,
    };
    Some(ran.unwrap_or_else(|error| {
        super::say(&format!("{error:#}"));
        ExitCode::FAILURE
    }))
}

/// Whether the starter's first order, which stays where it is, has a configuration that names an attack. Where none is
/// named, the dataplane is the real one.
fn is_to_attack() -> anyhow::Result<bool> {
    let mut message = vec![0; MESSAGE_MAX];
    let control = stdin();
    let (bytes, _) = recv(&control, &mut message[..], RecvFlags::PEEK)
        .context("looking at the starter's first order")?;
    let message = &message[..bytes.min(MESSAGE_MAX)];
    Ok(message.windows(NAMED_BY.len()).any(|window| window == NAMED_BY.as_bytes()))
}

fn play() -> anyhow::Result<()> {
    let control = stdin().as_fd().try_clone_to_owned().context("taking the control socket")?;
    let Some((Order::Start(start), descriptors)) = receive(&control, DESCRIPTORS_MAX)? else {
        bail!("the first order is not the start");
    };
    let Some((Order::Alone, _)) = receive(&control, 0)? else {
        bail!("the second order is not that the dataplane is alone");
    };
    let name = start.config.lines().find_map(|line| line.strip_prefix(NAMED_BY));
    let name = name.with_context(|| format!("the configuration has no line '{NAMED_BY}NAME'"))?;
    let act = ACTS.iter().find(|act| act.name == name);
    let act = act.with_context(|| format!("there is no attack '{name}'"))?;
    let layout = Layout { threads: 1, groups: runtime::FLOW_GROUPS as u16, batch_max: 64 };
    (act.run)(&Starter { control, _descriptors: descriptors, layout })
}

impl Starter {
    /// Reports that it serves, with a segment as the real dataplane makes it.
    fn serve(&self) -> anyhow::Result<Arc<Memory>> {
        let memory = Memory::create_for_readers("hostile-statistics", self.layout.bytes())?;
        self.write_header(&memory);
        self.ready(memory.file())?;
        Ok(memory)
    }

    fn write_header(&self, memory: &Memory) {
        let words = [
            (at::HEADER_VERSION, at::VERSION),
            (at::HEADER_BYTES_TOTAL, self.layout.bytes() as u64),
            (at::HEADER_THREADS, self.layout.threads.into()),
            (at::HEADER_GROUPS, self.layout.groups.into()),
            (at::HEADER_BATCH_MAX, self.layout.batch_max.into()),
            (at::HEADER_MAGIC, at::MAGIC),
        ];
        for (word, value) in words {
            memory.word64(8 * word).expect("inside").store(value, Ordering::Relaxed);
        }
    }

    fn ready(&self, segment: BorrowedFd<'_>) -> anyhow::Result<()> {
        send(&self.control, &Told::Ready { movable: true }, &[segment])
    }

    /// Sends bytes with descriptors, as long as the starter takes them.
    fn send_raw(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) -> rustix::io::Result<()> {
        passing::send(&self.control, bytes, descriptors, SendFlags::empty())
    }
}

/// Neither ends nor answers. A starter that hangs up is ignored.
fn never() -> anyhow::Result<()> {
    loop {
        std::thread::sleep(FOREVER);
    }
}

/// An answer to an order that the starter never gave.
fn unasked() -> Vec<u8> {
    let answer = Answer { id: u64::MAX, result: Ok(Done::Granted) };
    serde_json::to_vec(&Told::Steered(answer)).expect("plain data")
}

/// Serves, and sends the same without end.
fn flood(starter: &Starter, bytes: &[u8]) -> anyhow::Result<()> {
    let _segment = starter.serve()?;
    while starter.send_raw(bytes, &[]).is_ok() {}
    never()
}

fn flood_ready(starter: &Starter) -> anyhow::Result<()> {
    let segment = starter.serve()?;
    while starter.ready(segment.file()).is_ok() {}
    never()
}

fn descriptors(starter: &Starter) -> anyhow::Result<()> {
    let segment = starter.serve()?;
    let (word, many) = (unasked(), [segment.file(); SCM_MAX_FD]);
    while starter.send_raw(&word, &many).is_ok() {}
    never()
}

fn says_ended(starter: &Starter) -> anyhow::Result<()> {
    let _segment = starter.serve()?;
    send(&starter.control, &Told::Ended, &[])?;
    never()
}

fn ignores_end(starter: &Starter) -> anyhow::Result<()> {
    let _segment = starter.serve()?;
    never()
}

fn escapes(starter: &Starter) -> anyhow::Result<()> {
    let cause = FOR_TERMINALS.repeat((64 << 10) / FOR_TERMINALS.len() / 2);
    send(&starter.control, &Told::Failed(vec![cause.clone(), cause]), &[])
}

fn prints(starter: &Starter) -> anyhow::Result<()> {
    let _segment = starter.serve()?;
    loop {
        // Where nobody reads, the next attempt waits or fails.
        let _ = std::io::stdout().write_all(FOR_TERMINALS.as_bytes());
        let _ = std::io::stderr().write_all(FOR_TERMINALS.as_bytes());
    }
}

fn refuses(starter: &Starter) -> anyhow::Result<()> {
    let _segment = starter.serve()?;
    while let Some((order, _)) = receive::<Order>(&starter.control, 0)? {
        let Order::Steer(ask) = order else { continue };
        // Built as text: it is the starter's reader that is attacked.
        let refused =
            serde_json::json!({ "reason": FOR_TERMINALS.repeat(1_000), "kind": "system" });
        let told = serde_json::json!({ "Steered": { "id": ask.id, "result": { "Err": refused } } });
        starter.send_raw(&serde_json::to_vec(&told)?, &[])?;
    }
    never()
}

fn scribbles(starter: &Starter) -> anyhow::Result<()> {
    let segment = starter.serve()?;
    let mut random = Xoshiro256PlusPlus::seed_from_u64(1);
    loop {
        for offset in (0..segment.len()).step_by(8) {
            // Readers that join later find a header most of the time.
            let is_header = offset < 8 * at::HEADER_NAMES;
            if !is_header || random.random_range(0..1_000) == 0 {
                let word = segment.word64(offset).expect("inside");
                word.store(senseless(&mut random), Ordering::Relaxed);
            }
        }
        starter.write_header(&segment);
    }
}

/// Words at the edges of what numbers and states are.
fn senseless(random: &mut impl Rng) -> u64 {
    match random.random_range(0..4) {
        0 => u64::MAX - random.random_range(0..3),
        1 => 1 << random.random_range(0..64),
        2 => random.random_range(0..9),
        _ => random.random(),
    }
}

fn unsealed(starter: &Starter) -> anyhow::Result<()> {
    let file = memfd_create("hostile", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
    ftruncate(&file, starter.layout.bytes() as u64)?;
    starter.ready(file.as_fd())?;
    loop {
        ftruncate(&file, 0)?;
        ftruncate(&file, starter.layout.bytes() as u64)?;
    }
}

fn hangs_up(starter: &Starter) -> anyhow::Result<()> {
    let _segment = starter.serve()?;
    // All that it has of the socket: its duplicate, and the standard input.
    rustix::net::shutdown(&starter.control, rustix::net::Shutdown::Both)?;
    never()
}

fn hoards(starter: &Starter) -> anyhow::Result<()> {
    let _segment = starter.serve()?;
    let mut hoard = Vec::new();
    // Random, so that no page is like another.
    let mut random = Xoshiro256PlusPlus::seed_from_u64(2);
    while hoard.len() < HOARDED_MIB_MAX {
        let mut bytes = vec![0u8; 1 << 20];
        random.fill(&mut bytes[..]);
        hoard.push(bytes);
    }
    never()
}

/// The dataplane's group takes only so many threads: the attempts end with the first that is refused.
fn spins(starter: &Starter) -> anyhow::Result<()> {
    let _segment = starter.serve()?;
    let until = Instant::now() + SPINS;
    let mut threads = Vec::new();
    for cpu in (0..8).cycle().take(64) {
        let body = move || {
            let _ = highest_priority();
            // A processor that is out of reach leaves the thread where it may run.
            let _ = measure::pin(cpu);
            let mut slept = Instant::now();
            while Instant::now() < until {
                if slept.elapsed() > SPINS_BETWEEN_SLEEPS {
                    std::thread::sleep(Duration::from_nanos(1));
                    slept = Instant::now();
                }
            }
        };
        match std::thread::Builder::new().spawn(body) {
            Ok(thread) => threads.push(thread),
            Err(_) => break,
        }
    }
    threads.into_iter().for_each(|thread| _ = thread.join());
    never()
}
