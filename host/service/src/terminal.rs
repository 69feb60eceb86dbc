//! What this command prints beside processes that it does not trust.
//!
//! ```text
//! dataplane, application  -- a pipe for each output -->  a thread for each: bounded rate, controls as text  -->  terminal
//! ```
//!
//! Neither process holds a descriptor of the terminal: with one it could read what is typed there, and send the terminal
//! escape sequences. A pipe that is full is its writer's own matter. No write of this module waits for a reader of this
//! command's output longer than [`GIVES_UP_AFTER`]: the starter goes on beside an output that is stopped or full.

use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use endpoint::push_printable;
use rustix::event::PollFlags;
use rustix::io::{Errno, ioctl_fionbio};

use crate::budget::Budget;
use crate::ready::is_ready;

/// What one output of a process may print in a second, and at once, in bytes.
pub const BYTES_PER_S: usize = 1 << 20;
/// See [`BYTES_PER_S`].
pub const BURST_BYTES: usize = 128 << 10;
/// How long a line waits for room in this command's own output before it is dropped.
pub const GIVES_UP_AFTER: Duration = Duration::from_millis(50);
/// How long the last output of processes that have ended is copied.
const DRAINS_WITHIN: Duration = Duration::from_millis(200);
/// Bytes that a write to a pipe with room takes without a wait (`PIPE_BUF`).
const PIECE_BYTES: usize = 4_096;
/// Between two looks whether the processes have ended.
const LOOK: Duration = Duration::from_millis(20);

/// An output of this command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Output {
    /// The standard output.
    Standard,
    /// The standard error.
    Error,
}

impl Output {
    /// Prints text, or the part of it for which there is room in time. Never panics, unlike `println!`: who read this
    /// command's output may have gone.
    pub fn print(self, text: &str) {
        let by = Instant::now() + GIVES_UP_AFTER;
        match self {
            Self::Standard => print(io::stdout().as_fd(), text.as_bytes(), || Instant::now() >= by),
            Self::Error => print(io::stderr().as_fd(), text.as_bytes(), || Instant::now() >= by),
        }
    }
}

/// Writes bytes piece by piece, each when there is room, until `is_over`.
fn print(output: BorrowedFd<'_>, mut bytes: &[u8], is_over: impl Fn() -> bool) {
    while !bytes.is_empty() {
        // Files and terminals that take output have room at once.
        if !is_ready(&output, PollFlags::OUT, LOOK) {
            if is_over() {
                return;
            }
            continue;
        }
        match rustix::io::write(output, &bytes[..bytes.len().min(PIECE_BYTES)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(Errno::INTR | Errno::AGAIN) if !is_over() => {}
            // Nobody can read it any more.
            Err(_) => return,
        }
    }
}

/// Bytes of a stream as text that a terminal can show. A character that was cut by a read is kept for the next one.
#[derive(Debug, Default)]
struct Escaped {
    /// The beginning of a character: three bytes at most.
    rest: Vec<u8>,
}

impl Escaped {
    /// The text of the next bytes of the stream.
    fn text(&mut self, bytes: &[u8]) -> String {
        let mut all = std::mem::take(&mut self.rest);
        all.extend_from_slice(bytes);
        let mut text = String::with_capacity(all.len());
        let mut chunks = all.utf8_chunks().peekable();
        while let Some(chunk) = chunks.next() {
            for character in chunk.valid().chars() {
                match character {
                    '\n' | '\t' => text.push(character),
                    _ => push_printable(&mut text, character),
                }
            }
            let invalid = chunk.invalid();
            let is_cut = chunks.peek().is_none() && is_beginning(invalid);
            if is_cut {
                self.rest = invalid.to_vec();
            } else {
                invalid.iter().for_each(|byte| text += &format!("\\x{byte:02x}"));
            }
        }
        text
    }
}

/// Whether more bytes can make these a character.
fn is_beginning(bytes: &[u8]) -> bool {
    std::str::from_utf8(bytes).is_err_and(|error| error.error_len().is_none())
}

/// Copies what processes print, until it is told that they have ended.
#[derive(Debug, Default)]
pub struct Copies {
    over: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Copies {
    /// Has a program that is to be started print through this process.
    ///
    /// # Errors
    /// No descriptors, no threads.
    pub fn of(&mut self, command: &mut Command) -> io::Result<()> {
        let (reader, writer) = io::pipe()?;
        command.stdout(Stdio::from(writer));
        self.copy(reader, Output::Standard)?;
        let (reader, writer) = io::pipe()?;
        command.stderr(Stdio::from(writer));
        self.copy(reader, Output::Error)
    }

    fn copy(&mut self, reader: PipeReader, output: Output) -> io::Result<()> {
        // The reader's alone: the writer's end waits as ever.
        ioctl_fionbio(&reader, true)?;
        let over = Arc::clone(&self.over);
        let copy = move || match output {
            Output::Standard => copy(reader, io::stdout().as_fd(), &over),
            Output::Error => copy(reader, io::stderr().as_fd(), &over),
        };
        self.threads.push(std::thread::Builder::new().name("output".to_owned()).spawn(copy)?);
        Ok(())
    }

    /// Copies what is left in the pipes of processes that have ended, for a bounded time.
    pub fn end(self) {
        self.over.store(true, Ordering::Relaxed);
        let by = Instant::now() + DRAINS_WITHIN;
        while !self.threads.iter().all(JoinHandle::is_finished) && Instant::now() < by {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Copies a pipe until all its writers have gone, or until it is empty when the processes have ended.
fn copy(mut reader: PipeReader, output: BorrowedFd<'_>, over: &AtomicBool) {
    let mut bytes = [0; PIECE_BYTES];
    let mut escaped = Escaped::default();
    // Text that is printed may be four times as long as the bytes that it was read from.
    let mut budget = Budget::new(BYTES_PER_S, BURST_BYTES, Instant::now());
    loop {
        let is_over = over.load(Ordering::Relaxed);
        let most = match is_over {
            // No more than a pipe holds comes from those that have ended.
            true => PIECE_BYTES,
            false => budget.refill(Instant::now()).min(PIECE_BYTES),
        };
        if most == 0 {
            std::thread::sleep(LOOK);
            continue;
        }
        if !is_over && !is_ready(&reader, PollFlags::IN, LOOK) {
            continue;
        }
        match reader.read(&mut bytes[..most]) {
            Ok(0) => return,
            Ok(count) => {
                let text = escaped.text(&bytes[..count]);
                budget.spend(text.len());
                print(output, text.as_bytes(), || over.load(Ordering::Relaxed));
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if error.kind() == io::ErrorKind::WouldBlock && !is_over => {}
            Err(_) => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn streams_are_text_whatever_the_reads_cut() {
        let bytes = "line\n\ttab \x1b[2J \u{e4}\u{1F980} \r\n".as_bytes();
        let expected = "line\n\ttab \\x1b[2J \u{e4}\u{1F980} \\r\n";
        for cut in 1..bytes.len() {
            let mut escaped = Escaped::default();
            let text: String = bytes.chunks(cut).map(|piece| escaped.text(piece)).collect();
            assert_eq!(text, expected, "in pieces of {cut}");
        }
        let mut escaped = Escaped::default();
        let odd = [escaped.text(b"\x9b31m\xe4"), escaped.text(b"x\xf0\x9f"), escaped.text(b"\n")];
        assert_eq!(odd, ["\\x9b31m", "\\xe4x", "\\xf0\\x9f\n"]);
    }

    #[test]
    fn a_rate_has_a_burst_and_a_bound() {
        let began = Instant::now();
        let mut budget = Budget::new(BYTES_PER_S, BURST_BYTES, began);
        assert_eq!(budget.refill(began), BURST_BYTES);
        budget.spend(BURST_BYTES + BYTES_PER_S / 100);
        assert_eq!(budget.refill(began), 0);
        assert_eq!(budget.refill(began + Duration::from_millis(5)), 0, "it still owes some");
        let later = began + Duration::from_millis(20);
        assert_eq!(budget.refill(later), BYTES_PER_S / 100);
        assert_eq!(budget.refill(later + Duration::from_secs(100)), BURST_BYTES);
    }

    /// What is printed counts, not what was read.
    #[test]
    fn controls_are_copied_at_the_rate_of_their_text() {
        const CONTROLS: usize = 64 << 10;
        let text_bytes = CONTROLS * "\\x1b".len();
        let ((reader, mut writer), (mut copied, output)) =
            (io::pipe().expect("a pipe"), io::pipe().expect("a pipe"));
        let began = Instant::now();
        let writes = std::thread::spawn(move || writer.write_all(&[0x1b; CONTROLS]));
        let reads = std::thread::spawn(move || io::copy(&mut copied, &mut io::sink()));
        ioctl_fionbio(&reader, true).expect("a pipe of ours");
        copy(reader, output.as_fd(), &AtomicBool::new(false));
        drop(output);
        writes.join().expect("it ends").expect("all of it");
        assert_eq!(reads.join().expect("it ends").expect("all of it"), text_bytes as u64);
        let least = Duration::from_secs(1) * (text_bytes - BURST_BYTES) as u32 / BYTES_PER_S as u32;
        // The last piece is paid for by what comes after it.
        assert!(began.elapsed() > least * 3 / 4, "{:?}", began.elapsed());
    }

    #[test]
    fn a_pipe_that_nobody_reads_holds_up_nothing() {
        let (_reader, writer) = io::pipe().expect("a pipe");
        let began = Instant::now();
        let by = began + GIVES_UP_AFTER;
        print(writer.as_fd(), &vec![b'x'; 1 << 20], || Instant::now() >= by);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    }
}
