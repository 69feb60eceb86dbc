//! One service, whether it runs or not: its file, its process, its life, and who governs it while it runs.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use crate::background::Background;
use crate::config::Config;
use crate::events::{Events, Severity};
use crate::governor::{Facts, Governor};
use crate::lifecycle::{Act, Lifecycle};
use crate::process::{Ended, Process};
use crate::records::{Records, Started};
use crate::status::ServiceStatus;
use crate::world::{Launch, Reached, World};
use configfile::ControlConfig;

/// A service that was about to be started when an earlier daemon was killed is looked for after so long: by then its
/// process has its own command line, in nanoseconds.
pub const UNCERTAIN_NS: u64 = 1_000_000_000;

/// What all services need.
pub struct Around<'a> {
    /// The daemon's configuration.
    pub config: &'a Config,
    /// What of the machine policies can use.
    pub facts: &'a Facts,
    /// What is written down.
    pub records: &'a Records,
    /// What is outside.
    pub world: &'a mut dyn World,
    /// What happens.
    pub events: &'a mut Events,
    /// The moment.
    pub now_ns: u64,
}

/// See the module's comment.
pub struct Service {
    name: String,
    file: Option<PathBuf>,
    control: ControlConfig,
    life: Lifecycle,
    process: Option<Box<dyn Process>>,
    governor: Option<Governor>,
    background: Option<Rc<RefCell<Background>>>,
    problem: Option<String>,
    /// Perhaps it was started by a daemon that was killed; from then on it is known.
    uncertain_ns: Option<u64>,
    autostart: bool,
    starts: u64,
    /// When it was seen last, all of its threads were leaving.
    was_leaving: bool,
}

impl Service {
    /// One that has a file, or that was found running without one.
    pub fn new(name: &str, file: Option<PathBuf>, control: ControlConfig, config: &Config) -> Self {
        let life = Lifecycle::new(control.restart, config.supervision);
        Self {
            name: name.to_owned(),
            autostart: control.autostart && file.is_some(),
            file,
            control,
            life,
            process: None,
            governor: None,
            background: None,
            problem: None,
            uncertain_ns: None,
            starts: 0,
            was_leaving: false,
        }
    }

    fn record(&self) -> String {
        format!("service-{}", self.name)
    }

    /// Looks for what an earlier daemon wrote down of it.
    pub fn recall(&mut self, around: &mut Around<'_>) {
        match around.records.read(&self.record()) {
            Ok(Some(Started::Process(identity))) => match around.world.again(&identity) {
                Ok(process) => {
                    self.process = Some(process);
                    self.life.found(around.now_ns);
                }
                Err(_) => around.records.forget(&self.record()),
            },
            Ok(Some(Started::Intended(_))) => {
                self.uncertain_ns = Some(around.now_ns + UNCERTAIN_NS);
            }
            Ok(None) => {}
            Err(error) => {
                let fields = [("reason", error.to_string())];
                around.events.say(Severity::Warning, &self.name, "record-unreadable", fields);
                around.records.forget(&self.record());
            }
        }
    }

    /// Another table, as its file says now.
    pub fn reread(&mut self, file: &Path, control: ControlConfig, around: &mut Around<'_>) {
        self.file = Some(file.to_owned());
        self.life.set_restart(control.restart);
        if self.control != control {
            self.reconfigure(control, around);
        }
    }

    /// Another table, from now on.
    pub fn reconfigure(&mut self, control: ControlConfig, around: &mut Around<'_>) {
        self.control = control;
        if let Some(governor) = &mut self.governor {
            governor.reconfigure(self.control.clone(), around.now_ns, around.events);
        }
    }

    /// Its file is gone: it goes on, and cannot be started again.
    pub fn forget_file(&mut self) {
        self.file = None;
        self.autostart = false;
    }

    /// It shall run.
    ///
    /// # Errors
    /// No file says how it is started.
    pub fn start(&mut self, now_ns: u64) -> Result<(), String> {
        self.autostart = false;
        if self.life.is_up() {
            return Ok(());
        }
        if self.life.is_stopping() {
            return Err("it is being stopped; wait until it has ended".to_owned());
        }
        if self.file.is_none() {
            let problem = "no file in the services directory says how it is started";
            return Err(problem.to_owned());
        }
        self.problem = None;
        self.life.start(now_ns);
        Ok(())
    }

    /// It shall end.
    pub fn stop(&mut self, now_ns: u64) {
        self.autostart = false;
        self.life.stop(now_ns);
    }

    /// It was reached, or could not be.
    pub fn reached(&mut self, reached: Reached, around: &mut Around<'_>) {
        let Reached { link, process } = reached;
        match process {
            Ok(process) if self.process.is_none() => self.process = Some(process),
            Ok(_) => {}
            Err(reason) => {
                let fields = [("reason", reason)];
                around.events.say(Severity::Warning, &self.name, "process-not-held", fields);
            }
        }
        (self.uncertain_ns, self.autostart, self.was_leaving) = (None, false, false);
        let described = link.description();
        let fields = [
            ("pid", described.pid.to_string()),
            ("threads", described.threads.to_string()),
            ("scheduler", described.scheduler.clone()),
            ("driver", described.driver.clone()),
        ];
        around.events.say(Severity::Info, &self.name, "reached", fields);
        self.problem = None;
        self.take_job(around);
        let job = self.background.clone();
        let mut governor =
            Governor::new(&self.name, link, &self.control, around.facts, job, around.now_ns);
        governor.engage(around.now_ns, around.events);
        self.governor = Some(governor);
        self.life.reached(around.now_ns);
    }

    fn take_job(&mut self, around: &mut Around<'_>) {
        let Some(config) = self.control.background.as_ref().filter(|_| self.background.is_none())
        else {
            return;
        };
        let machine = &around.config.machine;
        let made = Background::new(&self.name, config, machine, around.records, around.world);
        match made {
            Ok(job) => self.background = Some(job),
            Err(reason) => {
                let fields = [("reason", reason.clone())];
                around.events.say(Severity::Error, &self.name, "background-missing", fields);
                self.problem = Some(reason);
            }
        }
    }

    /// What is due.
    pub fn turn(&mut self, around: &mut Around<'_>) {
        if let Some(governor) = &mut self.governor {
            governor.turn(around.now_ns, around.events);
        }
        self.watch_link(around);
        self.watch_process(around);
        self.resolve(around);
        let can_ask = self.governor.is_some();
        if let Some(act) = self.life.turn(around.now_ns, can_ask) {
            self.act(act, around);
        }
    }

    fn watch_link(&mut self, around: &mut Around<'_>) {
        let Some(governor) = &mut self.governor else { return };
        let Some(reason) = governor.gone() else { return };
        self.was_leaving = governor.link().is_leaving();
        self.governor = None;
        let severity = if self.was_leaving { Severity::Info } else { Severity::Warning };
        around.events.say(severity, &self.name, "lost", [("reason", reason)]);
        if self.process.is_none() {
            self.has_ended(Ended::Unseen, around);
        }
    }

    fn watch_process(&mut self, around: &mut Around<'_>) {
        let Some(ended) = self.process.as_mut().and_then(|process| process.ended()) else {
            return;
        };
        if let Some(governor) = &mut self.governor {
            self.was_leaving = governor.link().is_leaving();
        }
        self.process = None;
        self.has_ended(ended, around);
    }

    fn has_ended(&mut self, ended: Ended, around: &mut Around<'_>) {
        self.governor = None;
        around.records.forget(&self.record());
        let in_order = match ended {
            Ended::Status(status) => status == 0,
            Ended::Signal(_) => false,
            Ended::Unseen => self.was_leaving,
        };
        let asked = self.life.is_stopping();
        self.life.ended(around.now_ns, in_order);
        let fields = [("how", ended.to_string()), ("asked", asked.to_string())];
        let severity = if in_order || asked { Severity::Info } else { Severity::Error };
        around.events.say(severity, &self.name, "ended", fields);
        if !in_order && !asked {
            self.problem = Some(format!("it ended: {ended}"));
        }
    }

    /// Whether it was started by a daemon that was killed meanwhile.
    fn resolve(&mut self, around: &mut Around<'_>) {
        if self.uncertain_ns.is_none_or(|until_ns| around.now_ns < until_ns) {
            return;
        }
        self.uncertain_ns = None;
        let found = self.launch(around.config).and_then(|launch| around.world.find(&launch));
        match found {
            Some(process) => {
                self.write_down(&Started::Process(process.identity().clone()), around);
                self.process = Some(process);
                self.life.found(around.now_ns);
            }
            None => around.records.forget(&self.record()),
        }
    }

    fn launch(&self, config: &Config) -> Option<Launch> {
        let file = self.file.as_ref()?;
        let mut arguments = vec!["run".into(), file.clone().into_os_string()];
        if !self.control.program.is_empty() {
            arguments.push("--".into());
            arguments.extend(self.control.program.iter().map(Into::into));
        }
        Some(Launch { program: config.command.clone(), arguments })
    }

    fn act(&mut self, act: Act, around: &mut Around<'_>) {
        match act {
            Act::Spawn => self.spawn(around),
            Act::AskToEnd => {
                // What fails is made up for by the signals that follow.
                if let Some(Err(reason)) = self.governor.as_mut().map(Governor::ask_to_end) {
                    let fields = [("reason", reason)];
                    around.events.say(Severity::Warning, &self.name, "cannot-ask-to-end", fields);
                }
            }
            Act::Terminate => self.signal(rustix::process::Signal::TERM, around),
            Act::Kill => self.signal(rustix::process::Signal::KILL, around),
        }
    }

    fn signal(&mut self, signal: rustix::process::Signal, around: &mut Around<'_>) {
        let Some(process) = &mut self.process else {
            // Nothing is known that could be signalled, or waited for.
            if self.governor.is_none() {
                self.has_ended(Ended::Unseen, around);
            }
            return;
        };
        let fields =
            [("signal", signal.as_raw().to_string()), ("pid", process.identity().pid.to_string())];
        around.events.say(Severity::Warning, &self.name, "signalled", fields);
        if let Err(error) = process.signal(signal) {
            let fields = [("reason", error.to_string())];
            around.events.say(Severity::Error, &self.name, "signal-failed", fields);
        }
    }

    fn spawn(&mut self, around: &mut Around<'_>) {
        let Some(launch) = self.launch(around.config) else {
            self.life.ended(around.now_ns, true);
            return;
        };
        self.write_down(&Started::Intended(around.now_ns), around);
        match around.world.spawn(&launch) {
            Ok(process) => {
                self.starts += 1;
                let fields = [("pid", process.identity().pid.to_string())];
                self.write_down(&Started::Process(process.identity().clone()), around);
                around.events.say(Severity::Info, &self.name, "started", fields);
                self.process = Some(process);
            }
            Err(error) => {
                let program = launch.program.display();
                let problem = format!("cannot start \"{program}\": {error}");
                let fields = [("reason", problem.clone())];
                around.events.say(Severity::Error, &self.name, "start-failed", fields);
                around.records.forget(&self.record());
                self.problem = Some(problem);
                self.life.ended(around.now_ns, false);
            }
        }
    }

    /// Without a record it runs all the same; a daemon that is started anew reaches it at its socket.
    fn write_down(&self, started: &Started, around: &mut Around<'_>) {
        if let Err(error) = around.records.write(&self.record(), started) {
            let fields = [("reason", error.to_string())];
            around.events.say(Severity::Warning, &self.name, "record-failed", fields);
        }
    }

    /// Starts it with the daemon, once it is known that it does not run already.
    pub fn start_by_itself(&mut self, now_ns: u64, is_connecting: bool) {
        let known = self.uncertain_ns.is_none() && !is_connecting;
        if self.autostart && known && self.process.is_none() && self.governor.is_none() {
            // It has a file: that was looked at when it was made.
            let _ = self.start(now_ns);
        }
    }

    /// When a turn is due.
    pub fn due_ns(&self) -> Option<u64> {
        let governor = self.governor.as_ref().and_then(Governor::due_ns);
        [governor, self.life.due_ns(), self.uncertain_ns].into_iter().flatten().min()
    }

    /// Whether it can be forgotten: it does not run and nobody configured it.
    pub fn is_stale(&self) -> bool {
        self.file.is_none() && self.life.is_down() && self.process.is_none()
    }

    /// Its life.
    pub fn life(&self) -> &Lifecycle {
        &self.life
    }

    /// Its table.
    pub fn control(&self) -> &ControlConfig {
        &self.control
    }

    /// Who governs it, while it can be reached.
    pub fn governor(&mut self) -> Option<&mut Governor> {
        self.governor.as_mut()
    }

    /// What becomes readable when something happens to it: answers, its end.
    pub fn descriptors(&mut self) -> impl Iterator<Item = std::os::fd::BorrowedFd<'_>> {
        let link = self.governor.as_mut().and_then(|governor| governor.link().descriptor());
        let process = self.process.as_ref().and_then(|process| process.descriptor());
        [link, process].into_iter().flatten()
    }

    /// Why something does not work.
    pub fn problem(&self) -> Option<&str> {
        let governor = self.governor.as_ref().and_then(Governor::problem);
        governor.or(self.problem.as_deref())
    }

    /// How things stand.
    pub fn status(&mut self, now_ns: u64) -> ServiceStatus {
        ServiceStatus {
            name: self.name.clone(),
            phase: self.life.as_str(),
            mode: self.governor.as_ref().map_or("watch", Governor::mode),
            policy: self.control.policy.into(),
            slo_us: self.control.slo_us,
            period_ms: self.control.period_ms,
            file: self.file.as_ref().map(|file| file.display().to_string()),
            problem: self.problem().map(str::to_owned),
            starts: self.starts,
            running: self.governor.as_mut().map(|governor| governor.status(now_ns)),
        }
    }
}
