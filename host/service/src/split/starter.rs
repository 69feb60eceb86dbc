//! The starter of the `process` domain: opens what takes privileges, starts the two others, and watches.
//!
//! It touches no packet: once it has passed them on, it has neither packet memory nor sockets.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use endpoint::Description;
use rustix::net::Shutdown;
use sandbox::{Standing, Watched};
use tailplane::application::CPUS_VARIABLE;

use super::farewell;
use super::orders::Told;
use super::orphans::Orphans;
use super::placing::Placing;
use super::relay::{Heard, Relay};
use super::spawn::{self, MemoryBound, Started};
use super::wire::{Held, OpenWire};
use super::words::{Said, Word, Words, failure, said};
use crate::application::{self, End, JOINS_WITHIN, LOOK, Program};
use crate::config::{InputName, RunConfig};
use crate::control::{ControlSocket, describe};
use crate::identity;
use crate::lab::Lab;
use crate::port::LINK_WITHIN;
use crate::terminal::{Copies, Output};

/// How long the kernel may take to end what was killed. Longer than that it is not waited for.
const DIES_WITHIN: Duration = Duration::from_millis(150);
/// How long a dataplane may take until it serves: its application has to join, and packet memory to be mapped.
const SERVES_WITHIN: Duration = JOINS_WITHIN.saturating_mul(3);
/// When the control socket is served although the dataplane does not serve yet. Most serve before: their clients need
/// not ask twice.
const ANSWERS_AFTER: Duration = Duration::from_millis(500);
/// How long the last words of a dataplane that has ended are waited for.
const LAST_WORDS_WITHIN: Duration = Duration::from_millis(100);
/// How much later than its socket's hang-up the end of a program may be seen: its PID namespace ends with it.
const ENDS_ALONG: Duration = Duration::from_millis(200);
/// How often the wire is looked at.
const WIRE_LOOK: Duration = Duration::from_millis(100);
/// Words of the dataplane that are taken before all else is looked at again.
const WORDS_PER_TURN: usize = 16;

/// What runs, when it does.
#[derive(Debug, Default)]
pub struct Serving {
    /// How frames travel, for conditions.
    pub driver: String,
    /// What an interface's way costs, and why it is no better one.
    pub cost: Option<String>,
    /// Where the control socket is, or why there is none.
    pub control: String,
    /// Where the threads run, where the service chooses that.
    pub placement: Option<String>,
    /// How dataplane and application stand, as the kernel says, and what else they are kept from; then what protection
    /// is missing, and why.
    pub protection: Vec<String>,
}

/// Runs the configuration's built-in service, or `program`, until `stop` is set or one of the processes ends; all
/// have ended afterwards. Calls `announce` once it serves. To be called on a thread that lives as long as they shall.
///
/// # Errors
/// What could not be opened or started; what the dataplane could not do; that one of them ended by itself, and how.
pub fn run(
    config: &RunConfig,
    lab: Option<&Lab>,
    program: Option<Command>,
    announce: impl FnOnce(&Serving),
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let own = std::env::current_exe().context("finding this program's file")?;
    identity::check_apart(config, &identity::passwd())?;
    let (mut config, mut missing) = (config.clone(), identity::foreign_files(config));
    let placing = Placing::settle(&mut config, &mut missing);
    let config = &config;
    let socket = ControlSocket::open(config)?;
    let wire = OpenWire::open(config, lab)?;
    let orphans = Orphans::adopt()?;
    let mut boxes = Boxes::start(config, &own, program, wire)?;
    boxes.serving.control.clone_from(&socket.told);
    boxes.missing.extend(missing);
    boxes.serving.placement = placing.as_ref().map(Placing::describe);
    let end = Arc::new(AtomicBool::new(false));
    let seen = boxes.watch(config, &socket, placing, announce, stop, &end)?;
    let farewell = match seen.needs_farewell() {
        true => farewell::begin(config, &own, &mut boxes.held, &mut boxes.copies),
        false => Ok(None),
    };
    // Meanwhile: a farewell stays longer than an application may.
    let application = boxes.application.end(seen.ends_by());
    let is_asked = || stop.load(Ordering::Relaxed) || end.load(Ordering::Relaxed);
    let said = farewell.and_then(|begun| begun.map_or(Ok(()), |begun| begun.wait(is_asked)));
    if let Err(error) = said {
        // It is no worse without: peers find out by themselves, later.
        Output::Error.print(&format!("tailplane: peers could not be told: {error:#}\n"));
    }
    let dataplane = boxes.dataplane.program.end(seen.ends_by());
    let left_behind = orphans.end();
    boxes.copies.end();
    if left_behind > 0 {
        Output::Error.print(&format!(
            "tailplane: ended {left_behind} processes that the program had left behind\n"
        ));
    }
    let dataplane = dataplane.context("waiting for the dataplane's end")?;
    let application = application.context("waiting for the program's end")?;
    let dataplane = boxes.dataplane.memory.end_of(dataplane);
    let application = boxes.memory.end_of(application);
    seen.judge(dataplane, application, stop.load(Ordering::Relaxed))
}

/// The two others, and what they need this process for.
struct Boxes {
    // In the order in which they end where nothing is left to wait for.
    dataplane: Started,
    application: Program,
    serving: Serving,
    /// What the application is kept from.
    taken: Vec<String>,
    /// What protection is missing, and why.
    missing: Vec<String>,
    held: Held,
    copies: Copies,
    /// The application's.
    memory: MemoryBound,
}

impl Boxes {
    fn start(
        config: &RunConfig,
        own: &Path,
        program: Option<Command>,
        wire: OpenWire,
    ) -> anyhow::Result<Self> {
        let root = identity::is_root();
        let built_in = program.is_none().then_some(own);
        let mut command = match program {
            Some(command) => command,
            None => application::builtin(own, config)?,
        };
        if built_in.is_none() && config.application.stdin == InputName::Null {
            command.stdin(Stdio::null());
        }
        let mut copies = Copies::default();
        copies.of(&mut command).context("making pipes for the program's output")?;
        let name = command.get_program().to_string_lossy().into_owned();
        if !config.application.cpus.is_empty() {
            let cpus: Vec<_> = config.application.cpus.iter().map(usize::to_string).collect();
            command.env(CPUS_VARIABLE, cpus.join(","));
        }
        let threads = config.dataplane.threads;
        let mut boxed = identity::application(&config.application, threads, built_in, root)?;
        let groups = boxed.make_groups("application");
        let bytes = boxed.limits.memory_bytes;
        let memory = MemoryBound { groups, key: "application.memory_mb", bytes };
        let (near, far) = application::sockets()?;
        let application = application::start(command, &far, Some(&boxed.confinement))
            .with_context(|| match boxed.user {
                Some(user) => format!("as user {user} (`application.user`)"),
                None => "as the user of the starter".to_owned(),
            })?;
        drop(far);
        let dataplane = spawn::dataplane("dataplane", config, own, &mut copies)?;
        let missing = [boxed.missing, dataplane.missing.clone()].concat();
        let (driver, cost) = wire.conditions();
        let serving = Serving { driver, cost, ..Serving::default() };
        let held = wire.pass(&dataplane.control, config, name, near)?;
        let taken = boxed.taken;
        Ok(Self { dataplane, application, serving, taken, missing, held, copies, memory })
    }
}

/// How far they are.
#[derive(Default)]
struct Seen {
    /// How long dataplane and application may take to end, from the request or from the first end on.
    end_within: Duration,
    /// The dataplane's last word.
    told: Option<Told>,
    /// Why the dataplane is not believed any more.
    broken: Option<String>,
    /// What it has said for the control socket's clients.
    heard: Heard,
    serves: bool,
    control_closed: bool,
    /// The interface that is not there any more.
    gone: Option<String>,
    application_ended: bool,
    /// It ended before anybody asked for an end.
    application_left: bool,
    /// When the dataplane was asked to end.
    asked: Option<Instant>,
    /// When it was killed, since it did not, or broke the protocol.
    killed: Option<Instant>,
}

impl Boxes {
    /// Waits for the dataplane's end, and sees to it where somebody asks for one, where the application ends, and where
    /// the dataplane breaks the protocol. No turn of it waits longer than a [`LOOK`], whatever the others do.
    fn watch(
        &mut self,
        config: &RunConfig,
        socket: &ControlSocket,
        mut placing: Option<Placing>,
        announce: impl FnOnce(&Serving),
        stop: &AtomicBool,
        end: &Arc<AtomicBool>,
    ) -> anyhow::Result<Seen> {
        let (dataplane, application) = (self.dataplane.program.watch()?, self.application.watch()?);
        let end_within = Duration::from_millis(config.dataplane.end_ms);
        let mut seen = Seen { end_within, ..Seen::default() };
        let words = Words::of(&self.dataplane.control, said)?;
        let mut relay = Some(self.relay(config, &seen.heard, end)?);
        let (mut announce, began) = (Some(announce), Instant::now());
        let (mut looked, mut has_link, mut is_missing) = (began, false, false);
        loop {
            // Before its words: when it has ended, its last one is in the socket.
            let ended = dataplane.wait(if seen.control_closed { LOOK } else { Duration::ZERO })?;
            let within = if ended { LAST_WORDS_WITHIN } else { LOOK };
            seen.listen(&words, within, &self.dataplane.control, &mut self.held)?;
            if seen.serves || began.elapsed() > ANSWERS_AFTER {
                let served = relay.take().map_or(Ok(()), |relay| socket.serve(relay));
                if let Err(error) = served {
                    self.serving.control = format!("none: {error:#}");
                }
            }
            has_link = has_link || seen.serves && self.held.has_link();
            if looked.elapsed() > WIRE_LOOK {
                looked = Instant::now();
                let gone = self.held.gone();
                // Once more: the kernel hides an interface before it takes its queues back, and warns of one that is closed
                // in between.
                if is_missing {
                    seen.gone = seen.gone.or_else(|| gone.map(str::to_owned));
                }
                is_missing = gone.is_some();
            }
            if seen.serves
                && (has_link || began.elapsed() > LINK_WITHIN)
                && let Some(announce) = announce.take()
            {
                self.stands();
                announce(&self.serving);
            }
            if seen.serves
                && !seen.control_closed
                && let Some(placing) = &mut placing
            {
                let Started { program, control, bounds, .. } = &self.dataplane;
                let processes = [program.id(), self.application.id()];
                placing.turn(control, &seen.heard, bounds, &processes);
            }
            let is_asked =
                stop.load(Ordering::Relaxed) || end.load(Ordering::Relaxed) || seen.gone.is_some();
            let within = if seen.awaits_application() { ENDS_ALONG } else { Duration::ZERO };
            if !seen.application_ended && application.wait(within)? {
                seen.application_ended = true;
                seen.application_left = seen.asked.is_none() && !is_asked;
            }
            if !seen.serves && began.elapsed() > SERVES_WITHIN {
                seen.breaks(format!("it does not serve after {} s", SERVES_WITHIN.as_secs()));
            }
            if ended || seen.killed.is_some_and(|killed| killed.elapsed() > DIES_WITHIN) {
                let _ = rustix::net::shutdown(&self.dataplane.control, Shutdown::Both);
                return Ok(seen);
            }
            self.see_to_the_end(&mut seen, &dataplane, is_asked)?;
        }
    }

    /// Asks the dataplane to end where it is to, and kills one that does not or is not believed.
    fn see_to_the_end(
        &mut self,
        seen: &mut Seen,
        dataplane: &Watched,
        is_asked: bool,
    ) -> anyhow::Result<()> {
        let is_over = seen.told.is_some() || seen.control_closed;
        if seen.asked.is_none() && (is_asked || is_over || seen.application_ended) {
            // A dataplane that still waits for its application hears of its end.
            if !seen.serves {
                self.application.begin_to_kill();
            }
            let _ = rustix::net::shutdown(&self.dataplane.control, Shutdown::Write);
            seen.asked = Some(Instant::now());
        }
        let is_overdue = seen.asked.is_some_and(|asked| asked.elapsed() > seen.leaves_within());
        if seen.killed.is_none() && (seen.broken.is_some() || is_overdue) {
            dataplane.kill()?;
            seen.killed = Some(Instant::now());
        }
        Ok(())
    }

    /// What the control socket is served by.
    fn relay(
        &self,
        config: &RunConfig,
        heard: &Heard,
        end: &Arc<AtomicBool>,
    ) -> anyhow::Result<Relay> {
        let Started { control, bounds, .. } = &self.dataplane;
        let control = control.try_clone().context("duplicating the control socket")?;
        let steers = self.held.steers();
        let description = Description { steers, ..describe(config, &self.serving.driver) };
        let (heard, bounds, end) = (heard.clone(), bounds.clone(), Arc::clone(end));
        Ok(Relay { description, control, heard, bounds, end })
    }

    /// Writes down how the two stand.
    fn stands(&mut self) {
        let Started { program, taken, .. } = &self.dataplane;
        let boxes =
            [("dataplane", program, taken), ("application", &self.application, &self.taken)];
        let lines = boxes.into_iter().map(|(name, program, taken)| {
            let standing = Standing::of_program(program.id());
            let first = standing.map_or_else(|error| error.to_string(), |it| it.to_string());
            let phrases: String = taken.iter().map(|phrase| format!(", {phrase}")).collect();
            format!("{name}: {first}{phrases}")
        });
        let missing = self.missing.iter().map(|line| format!("missing: {line}"));
        self.serving.protection = lines.chain(missing).collect();
    }
}

impl Seen {
    /// Takes what the dataplane has said, and waits a little for it.
    /// What it asks for of the wire is done at once: an elastic thread waits for it.
    ///
    /// # Errors
    /// The queues that it has mapped cannot be bound.
    fn listen(
        &mut self,
        words: &Words<Said>,
        within: Duration,
        control: &OwnedFd,
        held: &mut Held,
    ) -> anyhow::Result<()> {
        let by = Instant::now() + within;
        for _ in 0..WORDS_PER_TURN {
            if self.control_closed {
                break;
            }
            match words.next(by.saturating_duration_since(Instant::now())) {
                Word::Said(_) if self.told.is_some() => self.breaks("it spoke after its last word"),
                Word::Said(said) => self.hear(said, control, held)?,
                Word::Broken(why) => self.breaks(why),
                Word::HungUp => self.control_closed = true,
                Word::None => break,
            }
        }
        Ok(())
    }

    /// Takes a word: that it serves once, an answer for each order that was given, and the last one.
    fn hear(&mut self, said: Said, control: &OwnedFd, held: &mut Held) -> anyhow::Result<()> {
        match said.told {
            Told::Mapped => {
                if !held.bind(control)? {
                    self.breaks("it has mapped queues that were not passed, or said so twice");
                }
            }
            Told::Table { number, request } => {
                // One that reads nothing waits in vain.
                _ = held.write_table(control, number, &request);
            }
            Told::Ready { .. } if self.serves => self.breaks("it said twice that it serves"),
            Told::Ready { movable } => {
                self.serves = true;
                self.heard.serves(said.shown, movable);
            }
            Told::Steered(answer) => {
                let id = answer.id;
                if !self.heard.answered(answer) {
                    self.breaks(format!(
                        "it answered order {id}, which has no such answer to come"
                    ));
                }
            }
            last @ (Told::Ended | Told::Failed(_) | Told::NotJoined(_)) => self.told = Some(last),
        }
        Ok(())
    }

    /// From now on no word of the dataplane counts.
    fn breaks(&mut self, why: impl Into<String>) {
        self.broken.get_or_insert(why.into());
        self.control_closed = true;
    }

    /// Whether the dataplane's last word is that its application hung up, and the application's end is due.
    fn awaits_application(&self) -> bool {
        self.asked.is_none() && matches!(self.told, Some(Told::NotJoined(_)))
    }

    /// Whether peers have connections of which the dataplane cannot have told them.
    fn needs_farewell(&self) -> bool {
        self.serves && (self.told.is_none() || self.killed.is_some())
    }

    /// When the others shall have ended.
    fn ends_by(&self) -> Instant {
        self.asked.unwrap_or_else(Instant::now) + self.end_within
    }

    /// How long a dataplane may take to reset its connections and to end, before it is killed. One that has said its
    /// last word is already dying, and only the kernel keeps it: it takes apart rings and memory, which takes longer where
    /// others do the same.
    fn leaves_within(&self) -> Duration {
        match self.told {
            Some(_) => self.end_within * 4 / 3,
            None => self.end_within * 2 / 3,
        }
    }

    /// What all that means.
    fn judge(self, dataplane: End, application: End, stopped: bool) -> anyhow::Result<()> {
        let within_ms = self.leaves_within().as_millis();
        if let Some(interface) = self.gone {
            bail!(
                "cannot serve any longer: found interface '{interface}' gone; start again when it is back"
            );
        }
        if let Some(why) = self.broken {
            bail!("the dataplane broke the protocol, and was killed: {why}; please report this");
        }
        match self.told {
            // It was interrupted where it still waited for its application.
            Some(Told::Failed(_) | Told::NotJoined(_)) if stopped && !self.serves => Ok(()),
            Some(Told::NotJoined(causes)) if self.application_left => {
                let ended = format!("the application ended ({application}) before it joined");
                Err(failure("the dataplane", &causes).context(ended))
            }
            Some(Told::Failed(causes) | Told::NotJoined(causes)) => {
                Err(failure("the dataplane", &causes))
            }
            Some(_) if self.killed.is_some() => bail!(
                "the dataplane lived on for {within_ms} ms after its last word, and was killed; please report this"
            ),
            Some(_) => application::judge(self.application_left, &application),
            None if self.killed.is_some() && self.control_closed => bail!(
                "the dataplane lived on for {within_ms} ms after it had hung up, and was killed; please report this"
            ),
            None if self.killed.is_some() => bail!(
                "the dataplane did not end within {within_ms} ms of being told to, and was killed: peers may not have \
                 been told"
            ),
            None => bail!(
                "the dataplane ended without a word ({dataplane}): its connections are lost; where nobody killed it, \
                 please report this"
            ),
        }
    }
}
