//! A machine that QEMU emulates: started, watched, and ended with this process, however that ends.

use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context;

use super::arguments::{Files, arguments};
use super::contents::{self, Programs};
use super::fetch::Fetched;
use super::paths::Paths;
use super::taps;
use crate::boots::Boot;
use crate::protocol::{Driver, Event, HEARTBEAT_S, Work};

/// How often to look for events.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// A kernel that has not booted after this time hangs.
const BOOT_LIMIT: Duration = Duration::from_secs(90);
/// A guest that reports nothing for this time hangs; the guest's clock runs slower than the host's under load.
const SILENCE_LIMIT: Duration = Duration::from_secs(20 * HEARTBEAT_S);
/// What a console's end shows, in lines.
const CONSOLE_LINES: usize = 15;

/// How a machine ended; shown as what that means for a check that has no result.
#[derive(Clone, Debug, PartialEq, Eq, strum::Display)]
pub enum End {
    /// The guest has done what it was asked.
    #[strum(to_string = "the guest ended early")]
    Done,
    /// The guest reported nothing, or did not boot, for so many seconds: the emulator is at fault.
    #[strum(to_string = "the guest was silent for {0} s")]
    Hangs(u64),
    /// The machine ended by itself before its guest was done: a panic, or QEMU failed.
    #[strum(to_string = "the machine ended before its guest was done")]
    Ended,
    /// The time for the whole boot is over.
    #[strum(to_string = "the guest was not done after {0} s")]
    TimeIsUp(u64),
}

/// A machine that runs; dropped, it ends.
#[derive(Debug)]
pub struct Machine {
    /// When QEMU was started.
    pub began: Instant,
    child: Child,
    image: PathBuf,
    tail: Tail,
    console: PathBuf,
    errors: PathBuf,
}

impl Machine {
    /// Writes the image and starts a machine with it. [`Work::Shell`] has the guest's console on the terminal, other work
    /// in a file.
    ///
    /// # Errors
    /// The image cannot be written, or QEMU not be started.
    pub fn start(
        paths: &Paths,
        fetched: &Fetched,
        programs: &Programs,
        boot: &Boot,
        work: Work,
        script: &[u8],
    ) -> anyhow::Result<Self> {
        let terminal = work == Work::Shell;
        let file = |ending| paths.of_boot(boot.name, ending);
        let (image, events) = (file("image"), file("events"));
        let (console, errors) = (file("console.log"), file("qemu.log"));
        contents::write(&image, fetched, programs, boot, work, script)?;
        for old in [&events, &console] {
            File::create(old).with_context(|| format!("making '{}'", old.display()))?;
        }
        let tail = Tail::open(&events).context("reading the guest's events")?;
        let qemu = fetched.qemu.as_deref().context("QEMU was not fetched")?;
        let files = Files {
            qemu,
            kernel: &fetched.kernel(boot.kernel)?.image,
            image: &image,
            console: (!terminal).then_some(console.as_path()),
            events: &events,
        };
        let mut command = wrapped(boot)?;
        add_emulator(&mut command, qemu);
        command.args(arguments(boot, &files));
        if !terminal {
            let log = File::create(&errors).context("making QEMU's log")?;
            command.stdin(Stdio::null()).stdout(log.try_clone()?).stderr(log);
        }
        let began = Instant::now();
        let child = command.spawn().context("cannot start setpriv: is util-linux installed?")?;
        Ok(Self { began, child, image, tail, console, errors })
    }

    /// Calls `on_event` for each event until the guest is done, hangs or ends, or until `limit` is over.
    pub fn watch(&mut self, limit: Duration, mut on_event: impl FnMut(Event)) -> End {
        let began = Instant::now();
        let (mut last, mut has_booted) = (began, false);
        loop {
            // Looked at before the events: what it wrote before its end is read in any case.
            let has_ended = !matches!(self.child.try_wait(), Ok(None));
            for event in self.tail.events() {
                (last, has_booted) = (Instant::now(), true);
                if event == Event::Done {
                    return End::Done;
                }
                on_event(event);
            }
            if has_ended {
                return End::Ended;
            }
            let silence = if has_booted { SILENCE_LIMIT } else { BOOT_LIMIT };
            if last.elapsed() > silence {
                return End::Hangs(silence.as_secs());
            }
            if began.elapsed() > limit {
                return End::TimeIsUp(limit.as_secs());
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    }

    /// Waits until it ends.
    ///
    /// # Errors
    /// The process cannot be waited for.
    pub fn wait(&mut self) -> anyhow::Result<()> {
        self.child.wait().context("waiting for QEMU")?;
        Ok(())
    }

    /// The last lines of its console and of QEMU's own output.
    pub fn last_words(&self) -> String {
        let texts = [&self.console, &self.errors].map(|file| fs::read(file).unwrap_or_default());
        let text: String = texts.iter().map(|bytes| String::from_utf8_lossy(bytes)).collect();
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        lines[lines.len().saturating_sub(CONSOLE_LINES)..].join("\n")
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        // One that has ended cannot be killed.
        let _ = self.child.kill();
        let _ = self.child.wait();
        // Large, and made anew for each boot.
        let _ = fs::remove_file(&self.image);
    }
}

/// What QEMU runs under: it is killed when this process ends, and with tap devices has a network namespace.
fn wrapped(boot: &Boot) -> anyhow::Result<Command> {
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "KILL"]);
    if boot.driver == Driver::VirtioNet {
        let own = std::env::current_exe().context("finding this program's file")?;
        command.args(["unshare", "--net"]);
        if !rustix::process::geteuid().is_root() {
            command.args(["--user", "--map-root-user"]);
        }
        command.arg(own).arg(taps::COMMAND);
    }
    Ok(command)
}

/// QEMU with the libraries that were unpacked beside it.
fn add_emulator(command: &mut Command, prefix: &Path) {
    if prefix != Path::new("/") {
        let directories = ["usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu"];
        let libraries = directories.map(|below| prefix.join(below).to_string_lossy().into_owned());
        command.arg("env").arg(format!("LD_LIBRARY_PATH={}", libraries.join(":")));
    }
    command.arg(prefix.join("usr/bin/qemu-system-x86_64"));
}

/// Reads a file of lines that another process writes.
#[derive(Debug)]
struct Tail {
    reader: BufReader<File>,
    /// The beginning of a line whose end is not written yet.
    line: Vec<u8>,
}

impl Tail {
    fn open(file: &Path) -> std::io::Result<Self> {
        Ok(Self { reader: BufReader::new(File::open(file)?), line: Vec::new() })
    }

    /// The events that have come since the last call.
    fn events(&mut self) -> Vec<Event> {
        let mut found = Vec::new();
        // What cannot be read now is read at the next call.
        while self.reader.read_until(b'\n', &mut self.line).is_ok() && self.line.ends_with(b"\n") {
            // A kernel's line among them is none of the guest's.
            found.extend(serde_json::from_slice::<Event>(&self.line).ok());
            self.line.clear();
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    #[test]
    fn events_are_read_as_they_are_written() {
        let path = std::env::temp_dir().join(format!("devices-events-{}", std::process::id()));
        let mut file = File::create(&path).expect("made");
        let mut tail = Tail::open(&path).expect("opened");
        file.write_all(b"noise\n{\"event\":\"heartbeat\"}\r\n{\"event\":").expect("written");
        assert_eq!(tail.events(), [Event::Heartbeat]);
        file.write_all(b"\"done\"}\n").expect("written");
        assert_eq!(tail.events(), [Event::Done]);
        fs::remove_file(&path).expect("removed");
        assert!(tail.events().is_empty());
    }
}
