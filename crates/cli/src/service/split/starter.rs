//! The starter of the `process` domain: opens what takes privileges, starts the two others, and watches.
//!
//! It touches no packet: once it has passed them on, it has neither packet memory nor sockets.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, ExitStatus};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use endpoint::Description;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::net::Shutdown;
use sandbox::{Standing, Watched};
use tailplane::application::CPUS_VARIABLE;

use statseg::Segment;

use super::control::receive;
use super::orphans::Orphans;
use super::relay::{Answers, Relay};
use super::spawn::{self, Started};
use super::wire::{Held, OpenWire};
use super::{Told, farewell};
use crate::lab::Lab;
use crate::service::application::{self, LOOK, Program};
use crate::service::config::RunConfig;
use crate::service::control::{ControlSocket, describe};
use crate::service::identity;

/// How long a dataplane may take to reset its connections and to end.
const LEAVES_WITHIN: Duration = Duration::from_secs(3);

/// What runs, when it does.
#[derive(Debug)]
pub struct Serving {
    /// How frames travel, for conditions.
    pub driver: String,
    /// Where the control socket is, or why there is none.
    pub control: String,
    /// How dataplane and application stand, as the kernel says; then what protection is missing, and why.
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
    let socket = ControlSocket::open(config)?;
    let wire = OpenWire::open(config, lab)?;
    let orphans = Orphans::adopt()?;
    let mut boxes = Boxes::start(config, &own, program, wire)?;
    boxes.serving.control.clone_from(&socket.told);
    let end = Arc::new(AtomicBool::new(false));
    let steer = |boxes: &Boxes, shown| boxes.steer(config, &socket, shown, &end);
    let seen = boxes.watch(announce, steer, stop, &end)?;
    if seen.serves && seen.told.is_none() {
        // It is no worse without: peers find out by themselves, later.
        if let Err(error) = farewell::send(config, &own, &mut boxes.held) {
            eprintln!("tailplane: peers could not be told: {error:#}");
        }
    }
    let dataplane = boxes.dataplane.end().context("waiting for the dataplane's end")?;
    let application = boxes.application.end().context("waiting for the program's end")?;
    let left_behind = orphans.end();
    if left_behind > 0 {
        eprintln!("tailplane: ended {left_behind} processes that the program had left behind");
    }
    seen.judge(dataplane, application, stop.load(Ordering::Relaxed))
}

/// The two others, and what they need this process for.
struct Boxes {
    // In the order in which they end where nothing is left to wait for.
    dataplane: Program,
    application: Program,
    control: OwnedFd,
    serving: Serving,
    held: Held,
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
        let name = command.get_program().to_string_lossy().into_owned();
        if !config.application.cpus.is_empty() {
            let cpus: Vec<_> = config.application.cpus.iter().map(usize::to_string).collect();
            command.env(CPUS_VARIABLE, cpus.join(","));
        }
        let boxed = identity::application(&config.application, built_in, root)?;
        let mut protection = boxed.missing;
        let (near, far) = application::sockets()?;
        let application = application::start(command, &far, boxed.confinement.as_ref())
            .with_context(|| match boxed.user {
                Some(user) => format!("as user {user} (`application.user`)"),
                None => "as the user of the starter".to_owned(),
            })?;
        drop(far);
        let Started { program: dataplane, control, missing } = spawn::dataplane(config, own)?;
        protection.extend(missing);
        let driver = wire.driver().to_owned();
        let held = wire.pass(&control, config, name, near)?;
        let serving = Serving { driver, control: String::new(), protection };
        Ok(Self { dataplane, application, control, serving, held })
    }
}

/// What a dataplane that serves can be steered by.
struct Steerable {
    /// Its statistics segment.
    shown: Option<OwnedFd>,
    /// What it says of orders.
    answers: Answers,
    /// Whether flow groups can be moved, as it says.
    movable: bool,
}

/// How far they are.
#[derive(Default)]
struct Seen {
    /// The dataplane's last word.
    told: Option<Told>,
    /// Its statistics segment, until somebody takes it.
    shown: Option<OwnedFd>,
    /// What it says of orders.
    answers: Answers,
    serves: bool,
    movable: bool,
    control_closed: bool,
    application_ended: bool,
    /// It ended before anybody asked for an end.
    application_left: bool,
    /// When the dataplane was asked to end, and whether it was killed since it did not.
    asked: Option<Instant>,
    overdue: bool,
}

impl Boxes {
    /// Waits for the dataplane's end, and sees to it where somebody asks for one or the application ends.
    fn watch(
        &mut self,
        announce: impl FnOnce(&Serving),
        steer: impl FnOnce(&Self, Steerable) -> anyhow::Result<()>,
        stop: &AtomicBool,
        end: &AtomicBool,
    ) -> anyhow::Result<Seen> {
        let (dataplane, application) = (self.dataplane.watch()?, self.application.watch()?);
        let (mut seen, mut begin) = (Seen::default(), Some((announce, steer)));
        loop {
            wait(&self.control, &dataplane, &application, &seen);
            // Before what came of it: its last word is in the socket when it has ended.
            let ended = dataplane.wait(Duration::ZERO)?;
            seen.listen(&self.control);
            if seen.serves
                && let Some((announce, steer)) = begin.take()
            {
                self.stands();
                let (shown, answers) = (seen.shown.take(), seen.answers.clone());
                let steerable = Steerable { shown, answers, movable: seen.movable };
                if let Err(error) = steer(self, steerable) {
                    self.serving.control = format!("none: {error:#}");
                }
                announce(&self.serving);
            }
            if !seen.application_ended && application.wait(Duration::ZERO)? {
                seen.application_ended = true;
                let is_asked = stop.load(Ordering::Relaxed) || end.load(Ordering::Relaxed);
                seen.application_left = seen.asked.is_none() && !is_asked;
            }
            if ended {
                return Ok(seen);
            }
            let is_to_end = seen.application_ended
                || stop.load(Ordering::Relaxed)
                || end.load(Ordering::Relaxed);
            match seen.asked {
                None if is_to_end => {
                    // A dataplane that still waits for its application hears of its end.
                    if !seen.serves {
                        let _ = self.application.kill();
                    }
                    let _ = rustix::net::shutdown(&self.control, Shutdown::Write);
                    seen.asked = Some(Instant::now());
                }
                Some(asked) if !seen.overdue && asked.elapsed() > LEAVES_WITHIN => {
                    dataplane.kill()?;
                    seen.overdue = true;
                }
                _ => {}
            }
        }
    }

    /// Has the control socket served, for a dataplane that shows this.
    fn steer(
        &self,
        config: &RunConfig,
        socket: &ControlSocket,
        Steerable { shown, answers, movable }: Steerable,
        end: &Arc<AtomicBool>,
    ) -> anyhow::Result<()> {
        let shown = shown.context("the dataplane shows no statistics")?;
        // It is not trusted to have made one.
        let segment = Segment::join(shown).context("the dataplane's statistics")?;
        let control = self.control.try_clone().context("duplicating the control socket")?;
        let description = Description { movable, ..describe(config, &self.serving.driver) };
        socket.serve(Relay::new(description, segment, control, answers, Arc::clone(end)))
    }

    /// Writes down how the two stand.
    fn stands(&mut self) {
        let boxes = [("dataplane", &self.dataplane), ("application", &self.application)];
        let lines = boxes.map(|(name, program)| match Standing::of(program.id()) {
            Ok(standing) => format!("{name}: {standing}"),
            Err(error) => format!("{name}: {error}"),
        });
        self.serving.protection.splice(0..0, lines);
    }
}

impl Seen {
    /// Takes what the dataplane has said.
    fn listen(&mut self, control: &OwnedFd) {
        while !self.control_closed && is_readable(control) {
            match receive::<Told>(control) {
                Ok(Some((Told::Ready { movable }, descriptors))) => {
                    (self.serves, self.movable) = (true, movable);
                    self.shown = descriptors.into_iter().next();
                }
                Ok(Some((Told::Steered { number, result }, _))) => {
                    self.answers.put(number, result);
                }
                Ok(Some((told, _))) => self.told = Some(told),
                Ok(None) => self.control_closed = true,
                // It may not speak so: no word of it counts any more.
                Err(error) => {
                    let causes = error.chain().map(ToString::to_string);
                    let said = "the dataplane's message makes no sense".to_owned();
                    self.told = Some(Told::Failed([said].into_iter().chain(causes).collect()));
                    self.control_closed = true;
                }
            }
        }
    }

    /// What all that means.
    fn judge(
        self,
        dataplane: ExitStatus,
        application: ExitStatus,
        stopped: bool,
    ) -> anyhow::Result<()> {
        match self.told {
            // It was interrupted where it still waited for its application.
            Some(Told::Failed(_)) if stopped && !self.serves => Ok(()),
            Some(Told::Failed(causes)) => Err(chain(causes)),
            Some(_) => application::judge(self.application_left, application),
            None if self.overdue => bail!(
                "the dataplane did not end within {} s of being told to, and was killed: peers were not told",
                LEAVES_WITHIN.as_secs()
            ),
            None => bail!(
                "the dataplane ended without a word ({dataplane}): its connections are lost; where nobody killed it, \
                 please report this"
            ),
        }
    }
}

/// An error of these causes, the outermost first.
fn chain(causes: Vec<String>) -> anyhow::Error {
    let mut causes = causes.into_iter().rev();
    let first = causes.next().unwrap_or_else(|| "the dataplane did not say why it ended".into());
    causes.fold(anyhow::Error::msg(first), anyhow::Error::context)
}

fn is_readable(socket: &OwnedFd) -> bool {
    poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&Timespec::default()))
        .is_ok_and(|count| count > 0)
}

/// Waits for something to happen, or a little.
fn wait(control: &OwnedFd, dataplane: &Watched, application: &Watched, seen: &Seen) {
    let most = Timespec { tv_sec: 0, tv_nsec: LOOK.subsec_nanos().into() };
    let mut asked = vec![PollFd::new(dataplane, PollFlags::IN)];
    if !seen.control_closed {
        asked.push(PollFd::new(control, PollFlags::IN));
    }
    if !seen.application_ended {
        asked.push(PollFd::new(application, PollFlags::IN));
    }
    // An interrupted poll is another look.
    let _ = poll(&mut asked, Some(&most));
}
