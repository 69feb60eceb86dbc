//! All services: found, started, governed, ended; commands carried out. Time and the world are parameters.
//!
//! A daemon that begins knows nothing but its configuration, its records and what is in the run directory. It reaches
//! every service that is there, takes over what it finds, and goes on; whether an earlier daemon ended in order or was
//! killed makes no difference.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use endpoint::{MoveSummary, Refused, Request};

use crate::commands::{Answered, Command, Failure, PolicyChange, What};
use crate::config::Config;
use crate::events::{Event, Events, Severity};
use crate::governor::{Facts, Governor};
use crate::link::words_of;
use crate::records::Records;
use crate::service::{Around, Service};
use crate::status::Snapshot;
use crate::world::{Reached, World};
use configfile::{ControlConfig, PolicyName};

/// Most services that are looked after.
pub const SERVICES_MAX: usize = 256;
/// The run directory is looked through so often, in nanoseconds.
const SCAN_NS: u64 = 1_000_000_000;
/// Services start by themselves so long after the daemon, in nanoseconds: those that run were found by then.
const AUTOSTART_NS: u64 = 500_000_000;
/// A service that could not be reached is tried again after so long, in nanoseconds.
const RETRY_NS: u64 = 2_000_000_000;
/// A command by hand has its answer within so long, in seconds.
const HAND_S: u64 = 10;
/// Commands that wait for something.
const WAITING_MAX: usize = 1_024;

/// What a command waits for.
#[derive(Clone, Copy, PartialEq, Eq)]
enum For {
    Start,
    Stop,
    Hand,
}

/// What a command waits for, and for how many seconds at most; nothing where it is done.
type Begun = Result<Option<(For, u64)>, Failure>;

struct Waiting {
    ticket: u64,
    service: String,
    what: For,
    until_ns: u64,
    limit_s: u64,
}

/// Services that are being reached, or could not be.
#[derive(Default)]
struct Reaching {
    under_way: BTreeSet<String>,
    /// Until when they are left alone, and why.
    failed: BTreeMap<String, (u64, String)>,
}

/// See the module's comment.
pub struct Manager<W> {
    config: Config,
    facts: Facts,
    records: Records,
    world: W,
    events: Events,
    services: BTreeMap<String, Service>,
    reaching: Reaching,
    waiting: Vec<Waiting>,
    answers: Vec<Answered>,
    /// What is wrong with the machine or with files, for the status.
    problems: BTreeMap<String, String>,
    scan_ns: u64,
    autostart_ns: u64,
    now_ns: u64,
}

impl<W: World> Manager<W> {
    /// Begins: reads the services' files and its records. Nothing is started yet.
    pub fn new(config: Config, facts: Facts, world: W, now_ns: u64) -> Self {
        let records = Records::new(&config.records_directory());
        let mut this = Self {
            config,
            facts,
            records,
            world,
            events: Events::default(),
            services: BTreeMap::new(),
            reaching: Reaching::default(),
            waiting: Vec::new(),
            answers: Vec::new(),
            problems: BTreeMap::new(),
            scan_ns: now_ns,
            autostart_ns: now_ns + AUTOSTART_NS,
            now_ns,
        };
        this.read_files();
        let (services, mut around) = this.split();
        services.values_mut().for_each(|service| service.recall(&mut around));
        this
    }

    /// The services beside all that they need.
    fn split(&mut self) -> (&mut BTreeMap<String, Service>, Around<'_>) {
        let around = Around {
            config: &self.config,
            facts: &self.facts,
            records: &self.records,
            world: &mut self.world,
            events: &mut self.events,
            now_ns: self.now_ns,
        };
        (&mut self.services, around)
    }

    /// Something of the machine that does not work, for events and status.
    pub fn say_problem(&mut self, about: &str, problem: String) {
        let fields = [("about", about.to_owned()), ("reason", problem.clone())];
        self.events.say(Severity::Warning, "daemon", "problem", fields);
        self.problems.insert(about.to_owned(), problem);
    }

    /// Reads the services' files again: new ones are added, changed ones hold from now on.
    pub fn reload(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        self.read_files();
        self.events.say(Severity::Info, "daemon", "reloaded", []);
    }

    fn read_files(&mut self) {
        let directory = self.config.services_directory.clone();
        // A user who may write there can replace a file between the check of its author and its reading.
        let files = service_files(&directory)
            .map_err(|error| format!("{}: {error}", directory.display()))
            .and_then(|files| match endpoint::check_author(&directory) {
                Ok(()) => Ok(files),
                Err(why) => Err(format!("cannot take files from {why}")),
            });
        let files = match files {
            Ok(files) => files,
            Err(reason) => return self.say_problem("services_directory", reason),
        };
        self.problems
            .retain(|about, _| !about.starts_with("file ") && about != "services_directory");
        let mut named: BTreeMap<String, PathBuf> = BTreeMap::new();
        for file in files {
            let about = format!("file {}", file.display());
            // The daemon runs the commands of these files as its own user.
            if let Err(why) = endpoint::check_author(&file) {
                self.say_problem(&about, format!("cannot take {why}"));
                continue;
            }
            match ControlConfig::load(&file) {
                Ok((name, _)) if named.contains_key(&name) => {
                    let other = named[&name].display().to_string();
                    self.say_problem(
                        &about,
                        format!("'{name}' is the service of '{other}' already"),
                    );
                }
                Ok((name, control)) => {
                    self.take_file(&name, &file, control);
                    named.insert(name, file);
                }
                Err(error) => self.say_problem(&about, format!("{error:#}")),
            }
        }
        for (name, service) in &mut self.services {
            if !named.contains_key(name) {
                service.forget_file();
            }
        }
    }

    fn take_file(&mut self, name: &str, file: &Path, control: ControlConfig) {
        if self.services.contains_key(name) {
            let (services, mut around) = self.split();
            if let Some(service) = services.get_mut(name) {
                service.reread(file, control, &mut around);
            }
            return;
        }
        if self.services.len() >= SERVICES_MAX {
            let reason = format!("there are {SERVICES_MAX} services already");
            self.say_problem(&format!("file {}", file.display()), reason);
            return;
        }
        let service = Service::new(name, Some(file.to_owned()), control, &self.config);
        self.services.insert(name.to_owned(), service);
    }

    /// All that is due at this moment; when the next turn is due at the latest.
    pub fn turn(&mut self, now_ns: u64, unix_ms: u64) -> u64 {
        self.now_ns = now_ns;
        self.events.set_unix_ms(unix_ms);
        for (name, result) in self.world.connected() {
            self.reaching.under_way.remove(&name);
            self.connected(&name, result);
        }
        if now_ns >= self.scan_ns {
            self.scan_ns = now_ns + SCAN_NS;
            self.scan();
        }
        let starts_by_itself = now_ns >= self.autostart_ns;
        let under_way = std::mem::take(&mut self.reaching.under_way);
        let (services, mut around) = self.split();
        for (name, service) in services.iter_mut() {
            if starts_by_itself {
                service.start_by_itself(now_ns, under_way.contains(name));
            }
            service.turn(&mut around);
        }
        self.reaching.under_way = under_way;
        self.answer_waiting();
        let waiting = &self.waiting;
        self.services.retain(|name, service| {
            !service.is_stale() || waiting.iter().any(|one| one.service == *name)
        });
        self.due_ns()
    }

    fn due_ns(&self) -> u64 {
        let services = self.services.values().filter_map(Service::due_ns);
        let waiting = self.waiting.iter().map(|waiting| waiting.until_ns);
        let autostart = (self.now_ns < self.autostart_ns).then_some(self.autostart_ns);
        services.chain(waiting).chain(autostart).fold(self.scan_ns, u64::min)
    }

    /// Looks through the run directory for services that nobody has reached.
    fn scan(&mut self) {
        let listed = match self.world.list() {
            Ok(listed) => listed,
            Err(error) => {
                if !self.problems.contains_key("run_directory") {
                    self.say_problem("run_directory", error.to_string());
                }
                return;
            }
        };
        self.problems.remove("run_directory");
        self.reaching.failed.retain(|name, _| listed.iter().any(|(other, _)| other == name));
        for (name, path) in listed {
            let reached = self.services.get_mut(&name).is_some_and(|one| one.governor().is_some());
            let waits = self.reaching.failed.get(&name).is_some_and(|one| self.now_ns < one.0);
            let room = self.services.contains_key(&name) || self.services.len() < SERVICES_MAX;
            if !reached && !waits && room && self.reaching.under_way.insert(name.clone()) {
                self.world.connect(&name, &path);
            }
        }
    }

    fn connected(&mut self, name: &str, result: Result<Reached, String>) {
        let reached = result.and_then(|reached| {
            let said = &reached.link.description().name;
            let same = said == name;
            let wrong =
                format!("the service at its socket calls itself \"{}\"", said.escape_debug());
            if same { Ok(reached) } else { Err(wrong) }
        });
        let reached = match reached {
            Ok(reached) => reached,
            Err(reason) => {
                let until_ns = self.now_ns + RETRY_NS;
                let before =
                    self.reaching.failed.insert(name.to_owned(), (until_ns, reason.clone()));
                if before.is_none_or(|(_, before)| before != reason) {
                    self.events.say(Severity::Warning, name, "unreachable", [("reason", reason)]);
                }
                return;
            }
        };
        self.reaching.failed.remove(name);
        if !self.services.contains_key(name) {
            self.find(name, &reached);
        }
        let (services, mut around) = self.split();
        if let Some(service) = services.get_mut(name) {
            service.reached(reached, &mut around);
        }
    }

    /// A service that has no file here: the table of the file that it was started with chooses a policy, and gives no
    /// orders ([`ControlConfig::of_description`]).
    fn find(&mut self, name: &str, reached: &Reached) {
        let text = &reached.link.description().config_text;
        let (control, left_out) = ControlConfig::of_description(text).unwrap_or_else(|error| {
            let fields = [("reason", format!("{error:#}"))];
            self.events.say(Severity::Warning, name, "configuration-unreadable", fields);
            Default::default()
        });
        if !left_out.is_empty() {
            let directory = self.config.services_directory.display();
            let reason = format!("only a file in '{directory}' may set these keys of `[control]`");
            let fields = [("keys", left_out.join(" ")), ("reason", reason)];
            self.events.say(Severity::Warning, name, "control-ignored", fields);
        }
        let service = Service::new(name, None, control, &self.config);
        self.services.insert(name.to_owned(), service);
    }

    /// Carries out a command, or begins to: the answer is in [`answers`](Self::answers).
    pub fn command(&mut self, now_ns: u64, command: Command) {
        self.now_ns = now_ns;
        let Command { ticket, service: name, what } = command;
        let detail = describe(&what);
        self.events.say(Severity::Info, &name, "command", [("what", detail)]);
        if matches!(what, What::Start) && !self.services.contains_key(&name) {
            self.read_files();
        }
        let result = match what {
            _ if !self.services.contains_key(&name) => Err(Failure::NoSuchService),
            _ if self.waiting.len() >= WAITING_MAX => Err(Failure::Busy),
            What::Start => self.start(&name),
            What::Stop => self.stop(&name),
            What::Policy(change) => self.change_policy(&name, change),
            What::ByHand(request) => self.by_hand(ticket, &name, request),
            What::Resume => self.resume(&name),
        };
        match result {
            Ok(Some((what, limit_s))) => {
                let until_ns = now_ns.saturating_add(limit_s.saturating_mul(1_000_000_000));
                self.waiting.push(Waiting { ticket, service: name, what, until_ns, limit_s });
            }
            Ok(None) => self.answers.push(Answered { ticket, result: Ok(None) }),
            Err(failure) => self.answers.push(Answered { ticket, result: Err(failure) }),
        }
    }

    fn start(&mut self, name: &str) -> Begun {
        let service = self.services.get_mut(name).ok_or(Failure::NoSuchService)?;
        service.start(self.now_ns).map_err(Failure::Failed)?;
        Ok(Some((For::Start, self.config.supervision.start_timeout_s + 1)))
    }

    fn stop(&mut self, name: &str) -> Begun {
        self.services.get_mut(name).ok_or(Failure::NoSuchService)?.stop(self.now_ns);
        let limits = &self.config.supervision;
        Ok(Some((For::Stop, limits.stop_timeout_s + limits.kill_timeout_s + 5)))
    }

    fn change_policy(&mut self, name: &str, change: PolicyChange) -> Begun {
        let directory = self.config.services_directory.clone();
        let (services, mut around) = self.split();
        let service = services.get_mut(name).ok_or(Failure::NoSuchService)?;
        let mut control = service.control().clone();
        control.policy = change.policy;
        control.slo_us = change.slo_us.or(control.slo_us);
        control.period_ms = change.period_ms.unwrap_or(control.period_ms);
        if let Some(sequence) = change.sequence {
            control.sequence = Some(own_file(&directory, &sequence).map_err(Failure::Failed)?);
        }
        control.over = match change.policy {
            PolicyName::LatencyTarget => change.over.or(control.over),
            _ => change.over,
        };
        control.check().map_err(|error| Failure::Failed(format!("{error:#}")))?;
        service.reconfigure(control, &mut around);
        let problem = service.governor().and_then(|governor| governor.problem().map(str::to_owned));
        problem.map_or(Ok(None), |problem| Err(Failure::Failed(problem)))
    }

    /// The governor of a service that runs, beside all that it needs.
    fn governed(&mut self, name: &str) -> Result<(&mut Governor, Around<'_>), Failure> {
        let (services, around) = self.split();
        let service = services.get_mut(name).ok_or(Failure::NoSuchService)?;
        let phase = service.life().as_str();
        let not_running = || Failure::NotRunning(format!("it is {phase}"));
        Ok((service.governor().ok_or_else(not_running)?, around))
    }

    fn by_hand(&mut self, ticket: u64, name: &str, request: Request) -> Begun {
        let (governor, around) = self.governed(name)?;
        governor.by_hand(ticket, request, around.events);
        Ok(Some((For::Hand, HAND_S)))
    }

    fn resume(&mut self, name: &str) -> Begun {
        let (governor, around) = self.governed(name)?;
        governor.engage(around.now_ns, around.events);
        let problem = governor.problem().map(str::to_owned);
        problem.map_or(Ok(None), |problem| Err(Failure::Failed(problem)))
    }

    fn answer_waiting(&mut self) {
        let mut hands: Vec<Answered> = Vec::new();
        for service in self.services.values_mut() {
            let told = service.governor().map(|governor| governor.hands()).unwrap_or_default();
            hands.extend(told.into_iter().map(|(ticket, result)| {
                let refused =
                    |refused: Refused| Failure::Refused(refused.kind.into(), refused.reason);
                Answered { ticket, result: result.map_err(refused) }
            }));
        }
        // Those whose time is over have had their answer.
        hands.retain(|answer| self.waiting.iter().any(|one| one.ticket == answer.ticket));
        self.waiting.retain(|one| !hands.iter().any(|answer| answer.ticket == one.ticket));
        self.answers.append(&mut hands);
        let waiting = std::mem::take(&mut self.waiting);
        for one in waiting {
            match self.result_of(&one) {
                Some(result) => self.answers.push(Answered { ticket: one.ticket, result }),
                None => self.waiting.push(one),
            }
        }
    }

    fn result_of(&mut self, waiting: &Waiting) -> Option<Result<Option<MoveSummary>, Failure>> {
        let timed_out = self.now_ns >= waiting.until_ns;
        let service = self.services.get_mut(&waiting.service)?;
        let reason = || Failure::Failed(service.problem().unwrap_or("it has ended").to_owned());
        let life = service.life();
        match waiting.what {
            For::Start if life.is_up() => Some(Ok(None)),
            For::Start if life.is_down() || life.as_str() == "waiting" => Some(Err(reason())),
            For::Stop if life.is_down() => Some(Ok(None)),
            For::Hand if service.governor().is_none() => {
                Some(Err(Failure::NotRunning("it was lost before it answered".to_owned())))
            }
            _ if timed_out => Some(Err(Failure::TimedOut(waiting.limit_s))),
            _ => None,
        }
    }

    /// Answers to commands, since the last call.
    pub fn answers(&mut self) -> Vec<Answered> {
        std::mem::take(&mut self.answers)
    }

    /// What happened, since the last call.
    pub fn events(&mut self) -> Vec<Event> {
        self.events.take()
    }

    /// How things stand.
    pub fn snapshot(&mut self, now_ns: u64) -> Snapshot {
        Snapshot {
            services: self.services.values_mut().map(|service| service.status(now_ns)).collect(),
            events: self.events.counts().clone(),
            problems: self.problems.iter().map(|(about, why)| format!("{about}: {why}")).collect(),
        }
    }

    /// What becomes readable when something happens to a service.
    pub fn descriptors(&mut self) -> Vec<std::os::fd::BorrowedFd<'_>> {
        self.services.values_mut().flat_map(Service::descriptors).collect()
    }
}

/// All `*.toml` of a directory, by name; none where it is not there.
pub fn service_files(directory: &Path) -> std::io::Result<Vec<PathBuf>> {
    let entries = match std::fs::read_dir(directory) {
        Ok(entries) => entries,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut files: Vec<PathBuf> = entries
        .flatten()
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|ending| ending == "toml"))
        .take(4 * SERVICES_MAX)
        .collect();
    files.sort();
    Ok(files)
}

/// The path of a file that somebody names at the control socket, where it is one of the services directory's.
///
/// Members of `control.group` may change policies; what files root can read is not theirs to find out.
pub(crate) fn own_file(directory: &Path, named: &Path) -> Result<PathBuf, String> {
    let path = directory.join(named);
    let found = |path: &Path| std::fs::canonicalize(path).ok();
    let own = found(directory).zip(found(&path)).filter(|(own, path)| path.parent() == Some(own));
    own.map(|(_, path)| path).ok_or_else(|| {
        format!(
            "cannot read the sequence '{}': it is no file of the services directory '{}'; put it there",
            named.display(),
            directory.display()
        )
    })
}

fn describe(what: &What) -> String {
    match what {
        What::Start => "start".to_owned(),
        What::Stop => "stop".to_owned(),
        What::Policy(change) => format!("policy {}", change.policy.as_ref()),
        What::ByHand(request) => words_of(request),
        What::Resume => "resume".to_owned(),
    }
}
