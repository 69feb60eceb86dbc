//! One running service under control: its samples, its control loop, and what the loop decides (IX §4.6).
//!
//! A governor is made when a service has been reached and dropped when it is gone; what is true lives in the service.
//! It is in one of three modes: the policy decides; a person does, until they say otherwise; or nobody does.

use std::cell::RefCell;
use std::rc::Rc;

use control::actuator::{ActuatorError, Missing};
use control::metrics::{Sample, Sampler};
use control::{
    Clock, ControlLoop, Decision, Event as LoopEvent, Machine, Outcome, Scaling, Topology,
};
use endpoint::Request;

use crate::background::Background;
use crate::clocks::{ClockHand, Clocks};
use crate::elastic::{EndpointThreads, HandReply, Note};
use crate::events::{Events, Severity};
use crate::link::{Link, words_of};
use crate::placement::{Placement, placement};
use crate::policies;
use configfile::{ControlConfig, PolicyName};
use statseg::ThreadCounters;

use crate::status::{BackgroundStatus, Running, StepStatus, ThreadStatus, Totals};

/// Rounds of decisions and outcomes that one turn follows up at once.
const ROUNDS_MAX: usize = 8;
/// Threads are looked for at their places so often, in nanoseconds.
const PLACE_NS: u64 = 5_000_000_000;
/// What the loop knows is compared with what the service shows so often, in nanoseconds.
const COMPARE_NS: u64 = 200_000_000;
/// Missed turns are said at most so often, in nanoseconds.
const MISSED_NS: u64 = 10_000_000_000;

/// What of the machine policies can use.
#[derive(Clone)]
pub struct Facts {
    /// Its processors; none where they cannot be read.
    pub topology: Option<Topology>,
    /// Its clocks, where they may be set.
    pub clocks: Option<Rc<RefCell<Clocks>>>,
    /// How throughput grows.
    pub scaling: Scaling,
}

/// Who decides.
enum Mode {
    Watch,
    Policy(Box<ControlLoop>),
    ByHand,
}

/// See the module's comment.
pub struct Governor {
    name: String,
    control: ControlConfig,
    facts: Facts,
    placement: Result<Placement, String>,
    hands: Hands,
    mode: Mode,
    problem: Option<String>,
    sampler: Sampler,
    /// For what is shown, over longer periods.
    shown: Sampler,
    shown_samples: Vec<Sample>,
    next_ns: u64,
    place_ns: u64,
    compare_ns: u64,
    said_missed_ns: Option<u64>,
    totals: Totals,
}

/// What carries out decisions: elastic threads, and a clock and a background job where there are any.
struct Hands {
    threads: EndpointThreads,
    clock: Option<ClockHand>,
    background: Option<Rc<RefCell<Background>>>,
    /// Processors of the cores, in the order of allocation: the background job gets the last ones.
    cores: Vec<Vec<u32>>,
    /// Why clocks and the background job failed, until the end of the turn: a turn has a bounded number of decisions.
    errors: Vec<ActuatorError>,
}

impl Hands {
    /// Begins all of it, in order; what is known of it at once.
    fn execute(&mut self, decisions: &[Decision]) -> Vec<Outcome> {
        let mut outcomes = Vec::new();
        for decision in decisions {
            match decision {
                Decision::Grant(thread) => self.threads.grant(*thread),
                Decision::Park(thread) => self.threads.park(*thread),
                Decision::Migrate { request, to, groups, .. } => {
                    self.threads.migrate(*request, *to, groups);
                }
                Decision::SetClock(clock) => {
                    let done = self.set_clock(*clock);
                    outcomes.extend(self.failure(done, Outcome::ClockFailed(*clock)));
                }
                Decision::Background(cores) => {
                    let done = self.give(*cores);
                    outcomes.extend(self.failure(done, Outcome::BackgroundFailed(*cores)));
                }
            }
        }
        outcomes.extend(self.threads.outcomes());
        outcomes
    }

    fn set_clock(&mut self, clock: Clock) -> Result<(), ActuatorError> {
        let missing = Missing {
            what: "setter of clocks",
            looked_at: vec!["the executor's hands".into()],
            costs: "decisions about it are not carried out",
        };
        self.clock.as_mut().ok_or(missing)?.set(clock)
    }

    /// Gives the last cores to the background job; without one, nothing has to be done.
    fn give(&mut self, cores: u32) -> Result<(), ActuatorError> {
        let Some(job) = &self.background else { return Ok(()) };
        let left = self.cores.len().saturating_sub(cores as usize);
        job.borrow_mut().run_on(&self.cores[left..].concat())
    }

    fn failure(&mut self, done: Result<(), ActuatorError>, failed: Outcome) -> Option<Outcome> {
        self.errors.push(done.err()?);
        Some(failed)
    }
}

impl Governor {
    /// Takes charge of a service that was reached; its policy decides from the first turn on.
    pub fn new(
        name: &str,
        link: Box<dyn Link>,
        control: &ControlConfig,
        facts: &Facts,
        background: Option<Rc<RefCell<Background>>>,
        now_ns: u64,
    ) -> Self {
        let described = link.description();
        let (threads, batch_max) = (described.threads, described.batch_max);
        let placement = match &facts.topology {
            Some(topology) => placement(topology, &control.cores, &described.cpus),
            None => Err("the machine's processors cannot be read".to_owned()),
        };
        let (cpus, cores) = match &placement {
            Ok(placed) => (placed.cpus.clone(), placed.cores.clone()),
            Err(_) => Default::default(),
        };
        let clocks = facts.clocks.as_ref().filter(|_| placement.is_ok());
        let hands = Hands {
            threads: EndpointThreads::new(link, cpus),
            clock: clocks.map(|clocks| ClockHand::new(clocks, name, cores.concat())),
            background,
            cores,
            errors: Vec::new(),
        };
        Self {
            name: name.to_owned(),
            control: control.clone(),
            facts: facts.clone(),
            placement,
            hands,
            mode: Mode::Watch,
            problem: None,
            sampler: Sampler::new(threads, batch_max),
            shown: Sampler::new(threads, batch_max),
            shown_samples: Vec::new(),
            next_ns: now_ns,
            place_ns: now_ns,
            compare_ns: now_ns,
            said_missed_ns: None,
            totals: Totals::default(),
        }
    }

    /// The policy decides from now on, beginning with what there is.
    pub fn engage(&mut self, now_ns: u64, events: &mut Events) {
        self.problem = None;
        self.hands.threads.forget_loop();
        self.withdraw_clock();
        (self.next_ns, self.place_ns) = (now_ns, now_ns);
        self.mode = match self.make_loop() {
            Ok(Some(control_loop)) => Mode::Policy(Box::new(control_loop)),
            Ok(None) => Mode::Watch,
            Err(problem) => {
                let said = [("reason", problem.clone())];
                events.say(Severity::Error, &self.name, "not-governed", said);
                self.problem = Some(problem);
                Mode::Watch
            }
        };
    }

    /// Another table, as somebody asked; the policy decides from now on.
    pub fn reconfigure(&mut self, control: ControlConfig, now_ns: u64, events: &mut Events) {
        self.control = control;
        self.engage(now_ns, events);
    }

    fn make_loop(&mut self) -> Result<Option<ControlLoop>, String> {
        if self.control.policy == PolicyName::None {
            return Ok(None);
        }
        let described = self.hands.threads.link().description();
        if described.threads > 1 && !described.movable {
            return Err(format!(
                "flow groups of this service cannot be moved (scheduler {}, domain {}), so no thread can be taken \
                 from it",
                described.scheduler, described.domain
            ));
        }
        let placed = self.placement.as_ref().map_err(Clone::clone)?;
        if self.hands.background.is_some() && placed.cores.is_empty() {
            return Err(
                "elastic threads are not pinned, so no core can be kept from the background job: set \
                 `control.cores`, or `dataplane.cpus`"
                    .to_owned(),
            );
        }
        let mut machine = placed.machine.clone();
        let in_force = self.facts.clocks.as_ref().map(|clocks| clocks.borrow().in_force());
        if in_force.is_none() {
            machine = Machine { clocks_khz: Vec::new(), turbo: false, ..machine };
        }
        let scaling = self.facts.scaling;
        let Some(policy) = policies::policy(&self.control, &machine, scaling)? else {
            return Ok(None);
        };
        let places = placed.places.clone();
        let mut found = self.hands.threads.found();
        found.clock = in_force.flatten().unwrap_or(Clock::Fixed);
        // What the job has is not known: as if it had all, so that the first turn gives it what it may have.
        found.background_cores = if self.hands.background.is_some() { machine.cores } else { 0 };
        let config = policies::loop_config(&self.control);
        let made = ControlLoop::new(policy, machine, scaling, places, found, config);
        made.map(Some).map_err(|error| error.to_string())
    }

    fn withdraw_clock(&mut self) {
        if let Some(clocks) = &self.facts.clocks {
            clocks.borrow_mut().withdraw(&self.name);
        }
    }

    /// A person decides: what they ask is carried out, and the policy rests until [`engage`](Self::engage).
    pub fn by_hand(&mut self, ticket: u64, request: Request, events: &mut Events) {
        if !matches!(self.mode, Mode::ByHand) {
            self.hands.threads.forget_loop();
            self.mode = Mode::ByHand;
            events.say(Severity::Info, &self.name, "policy-suspended", []);
        }
        self.hands.threads.ask_by_hand(ticket, request);
    }

    /// Asks the service to end.
    ///
    /// # Errors
    /// It is gone.
    pub fn ask_to_end(&mut self) -> Result<(), String> {
        // Nobody decides any more: the control loop would grant what is leaving.
        self.mode = Mode::Watch;
        self.hands.threads.ask_to_end()
    }

    /// What is due. Answers are taken in whenever this is called, the loop turns when its period is over.
    pub fn turn(&mut self, now_ns: u64, events: &mut Events) {
        self.hands.threads.set_now(now_ns);
        let outcomes = self.hands.threads.outcomes();
        self.hear(&outcomes);
        if matches!(self.mode, Mode::Policy(_)) {
            if now_ns >= self.next_ns {
                self.keep_time(now_ns, events);
                if now_ns >= self.compare_ns {
                    self.compare_ns = now_ns + COMPARE_NS;
                    self.compare(events);
                }
                self.step(now_ns);
            }
            if now_ns >= self.place_ns {
                self.place_ns = now_ns + PLACE_NS;
                self.put_in_place(events);
            }
        }
        self.tell(events);
    }

    /// The next turn is a period later, on the same beat; turns that are over are left out.
    fn keep_time(&mut self, now_ns: u64, events: &mut Events) {
        let period_ns = self.control.period_ms * 1_000_000;
        let missed = (now_ns - self.next_ns) / period_ns;
        self.next_ns += (missed + 1) * period_ns;
        self.totals.turns += 1;
        self.totals.missed += missed;
        let said = self.said_missed_ns.is_some_and(|then| now_ns.saturating_sub(then) < MISSED_NS);
        if missed > 0 && !said {
            self.said_missed_ns = Some(now_ns);
            events.say(
                Severity::Warning,
                &self.name,
                "turns-missed",
                [("turns", missed.to_string()), ("since_start", self.totals.missed.to_string())],
            );
        }
    }

    /// Tells the loop what happened without its doing: an order of a daemon that was killed may be carried out after
    /// the next one has looked at the service.
    fn compare(&mut self, events: &mut Events) {
        let Mode::Policy(control_loop) = &mut self.mode else { return };
        let (running, homes) = (control_loop.running(), control_loop.homes());
        let found = self.hands.threads.differences(&running, homes);
        let groups = |one: &Outcome| match one {
            Outcome::Migrated { groups, .. } => groups.len(),
            _ => 0,
        };
        if !found.is_empty() {
            let groups_moved: usize = found.iter().map(groups).sum();
            let threads = found.iter().filter(|one| groups(one) == 0).count();
            let fields = [("threads", threads.to_string()), ("groups", groups_moved.to_string())];
            events.say(Severity::Info, &self.name, "found-changed", fields);
        }
        found.iter().for_each(|one| control_loop.outcome(one));
    }

    fn step(&mut self, now_ns: u64) {
        let Mode::Policy(control_loop) = &mut self.mode else { return };
        let link = self.hands.threads.link();
        let mut samples = self.sampler.threads(now_ns, |thread| link.reading().thread(thread));
        let groups = self.sampler.groups(now_ns, &link.reading().groups());
        // Parked threads are idle by decision: they say nothing of the load.
        let running = control_loop.running();
        samples.retain(|sample| running.contains(&sample.thread));
        let decisions = control_loop.step(now_ns, &samples, &groups);
        let outcomes = self.hands.execute(&decisions);
        self.hear(&outcomes);
    }

    /// Tells the loop what happened, and does what that makes possible, for some rounds.
    fn hear(&mut self, outcomes: &[Outcome]) {
        let Mode::Policy(control_loop) = &mut self.mode else { return };
        let mut outcomes = outcomes.to_vec();
        for _ in 0..ROUNDS_MAX {
            if outcomes.is_empty() {
                return;
            }
            for outcome in outcomes.drain(..) {
                count(&mut self.totals, &outcome);
                control_loop.outcome(&outcome);
            }
            let decisions = control_loop.proceed();
            outcomes = self.hands.execute(&decisions);
        }
        // What is left is known by the next turn.
        outcomes.iter().for_each(|outcome| control_loop.outcome(outcome));
    }

    fn put_in_place(&mut self, events: &mut Events) {
        if self.control.cores.is_empty() {
            return;
        }
        let displaced = self.hands.threads.put_in_place();
        if displaced > 0 {
            let fields = [("threads", displaced.to_string())];
            events.say(Severity::Warning, &self.name, "threads-displaced", fields);
        }
    }

    fn tell(&mut self, events: &mut Events) {
        if let Mode::Policy(control_loop) = &mut self.mode {
            for (_, event) in control_loop.take_events() {
                tell_loop_event(&self.name, &event, control_loop, events);
            }
        }
        for error in self.hands.errors.drain(..) {
            let fields = [("reason", error.to_string())];
            events.say(Severity::Warning, &self.name, "actuator-failed", fields);
        }
        for note in self.hands.threads.notes() {
            tell_note(&self.name, note, events);
        }
    }

    /// What became of commands by hand, since the last call.
    pub fn hands(&mut self) -> Vec<HandReply> {
        self.hands.threads.hands()
    }

    /// The service.
    pub fn link(&self) -> &dyn Link {
        self.hands.threads.link()
    }

    /// Why the service does not answer any more, once it does not.
    pub fn gone(&self) -> Option<String> {
        self.hands.threads.gone().map(str::to_owned)
    }

    /// When a turn is due; none where only answers are waited for.
    pub fn due_ns(&self) -> Option<u64> {
        match self.mode {
            Mode::Policy(_) => Some(self.next_ns.min(self.place_ns)),
            Mode::Watch | Mode::ByHand => None,
        }
    }

    /// Who decides, in a word.
    pub fn mode(&self) -> &'static str {
        match self.mode {
            Mode::Watch => "watch",
            Mode::Policy(_) => "policy",
            Mode::ByHand => "hand",
        }
    }

    /// Why the policy does not decide, where it should and cannot.
    pub fn problem(&self) -> Option<&str> {
        self.problem.as_deref()
    }

    /// How things stand.
    pub fn status(&mut self, now_ns: u64) -> Running {
        let link = self.hands.threads.link();
        let samples = self.shown.threads(now_ns, |thread| link.reading().thread(thread));
        if !samples.is_empty() {
            self.shown_samples = samples;
        }
        let described = link.description().clone();
        let homes = link.homes();
        let thread = |(number, shown): (u16, ThreadCounters)| {
            let groups = homes.iter().filter(|home| **home == number).count() as u32;
            let sample = self.shown_samples.iter().find(|sample| sample.thread.0 == number);
            ThreadStatus::new(number, groups, now_ns, shown, sample)
        };
        let threads = (0u16..).zip(link.reading().threads()).map(thread).collect();
        let (group_packets, stack_names) =
            (link.reading().groups(), shown::stack_counters(link.reading()));
        let clocks = self.facts.clocks.as_ref().and_then(|clocks| clocks.borrow().in_force());
        let background = self.hands.background.as_ref().map(|job| {
            let mut job = job.borrow_mut();
            BackgroundStatus {
                alive: job.is_alive(),
                cpus: job.cpus().unwrap_or_default().to_vec(),
                cpu_seconds: job.progress_s(),
            }
        });
        Running {
            pid: described.pid,
            started_unix_ms: described.started_unix_ms,
            config_path: described.config_path,
            scheduler: described.scheduler,
            domain: described.domain,
            driver: described.driver,
            version: described.version,
            batch_max: described.batch_max,
            movable: described.movable,
            steers: described.steers,
            threads,
            homes,
            step: self.step_status(),
            clock: clocks.map(|clock| clock.to_string()),
            clock_hertz: clocks.map(|clock| match clock {
                Clock::Khz(khz) => u64::from(khz) * 1_000,
                Clock::Turbo | Clock::Fixed => 0,
            }),
            background,
            totals: self.totals,
            under_way: self.hands.threads.under_way(),
            group_packets,
            stack_names,
        }
    }

    fn step_status(&self) -> Option<StepStatus> {
        let Mode::Policy(control_loop) = &self.mode else { return None };
        let step = control_loop.current();
        Some(StepStatus {
            at: control_loop.at(),
            of: control_loop.steps(),
            configuration: step.configuration.to_string(),
            background_cores: step.background_cores,
        })
    }
}

fn count(totals: &mut Totals, outcome: &Outcome) {
    match outcome {
        Outcome::Granted(_) => totals.grants += 1,
        Outcome::Parked(_) => totals.parks += 1,
        Outcome::Migrated { groups, .. } => totals.moved_groups += groups.len() as u64,
        Outcome::GrantFailed(_)
        | Outcome::MigrationFailed { .. }
        | Outcome::Vanished(_)
        | Outcome::ClockFailed(_)
        | Outcome::BackgroundFailed(_) => totals.failures += 1,
    }
}

fn tell_loop_event(name: &str, event: &LoopEvent, from: &ControlLoop, events: &mut Events) {
    use Severity::{Info, Warning};
    let thread = |thread: &control::metrics::ThreadId| [("thread", thread.0.to_string())];
    match event {
        LoopEvent::Step { from: before, to, because } => {
            let because = format!("{because:?}").to_lowercase();
            let fields = [
                ("from", before.to_string()),
                ("to", to.to_string()),
                ("because", because),
                ("configuration", from.current().configuration.to_string()),
            ];
            events.say(Info, name, "step", fields);
        }
        LoopEvent::GrantFailed(one) => events.say(Warning, name, "grant-failed", thread(one)),
        LoopEvent::Vanished(one) => events.say(Warning, name, "thread-vanished", thread(one)),
        LoopEvent::MigrationFailed(groups) => {
            events.say(Warning, name, "migration-failed", [("groups", groups.to_string())]);
        }
        LoopEvent::ClockFailed(clock) => {
            events.say(Warning, name, "clock-failed", [("clock", clock.to_string())]);
        }
        LoopEvent::BackgroundFailed(cores) => {
            events.say(Warning, name, "background-failed", [("cores", cores.to_string())]);
        }
        LoopEvent::TimeWentBack(ns) => {
            events.say(Warning, name, "time-went-back", [("ns", ns.to_string())]);
        }
        LoopEvent::Gap(ns) => {
            events.say(Warning, name, "gap", [("ms", (ns / 1_000_000).to_string())]);
        }
        LoopEvent::Unresponsive(one) => events.say(Warning, name, "unresponsive", thread(one)),
        LoopEvent::Rebalanced(groups) => {
            events.say(Info, name, "rebalanced", [("groups", groups.to_string())]);
        }
    }
}

fn tell_note(name: &str, note: Note, events: &mut Events) {
    match note {
        Note::Refused(request, refused) => {
            let fields = [
                ("request", words_of(&request)),
                ("kind", <&str>::from(refused.kind).to_owned()),
                ("reason", refused.reason),
            ];
            events.say(Severity::Warning, name, "refused", fields);
        }
        Note::Unanswered(request) => {
            events.say(Severity::Warning, name, "unanswered", [("request", words_of(&request))]);
        }
        Note::Moved { from, to, moved } => {
            // The service's own numbers, which may be any.
            let total_ns = moved.phase_ns.iter().copied().fold(0, u64::saturating_add);
            let total_us = total_ns / 1_000;
            let fields = [
                ("from", from.to_string()),
                ("to", to.to_string()),
                ("groups", moved.groups.to_string()),
                ("connections", moved.connections.to_string()),
                ("deferred", moved.packets_deferred.to_string()),
                ("us", total_us.to_string()),
            ];
            events.say(Severity::Info, name, "moved", fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use control::RequestId;
    use control::metrics::{GroupId, ThreadId};

    use super::*;
    use crate::config::MachineConfig;
    use crate::records::Records;
    use crate::tests::fake::{Directory, Fake, FakeWorld};
    use configfile::BackgroundConfig;

    #[test]
    fn decisions_are_carried_out_in_order_and_failures_said() {
        let directory = Directory::new("hands");
        directory.put_batch();
        let cgroup = directory.path().join("cg");
        let machine = MachineConfig { cgroup, ..MachineConfig::default() };
        let config = BackgroundConfig { cgroup: Some("batch".to_owned()), command: Vec::new() };
        let records = Records::new(directory.path());
        let job = Background::new("kv", &config, &machine, &records, &mut FakeWorld::default());
        let (fake, link) = Fake::start("kv", 3, 4);
        let mut hands = Hands {
            threads: EndpointThreads::new(link, vec![None; 3]),
            clock: None,
            background: Some(job.expect("taken hold of")),
            cores: vec![vec![0, 4], vec![1, 5], vec![2, 6]],
            errors: Vec::new(),
        };
        let (clock, request) = (Clock::Khz(1), RequestId(7));
        let (from, to, groups) = (ThreadId(0), ThreadId(1), vec![GroupId(3)]);
        let outcomes = hands.execute(&[
            Decision::Background(2),
            Decision::SetClock(clock),
            Decision::Grant(to),
            Decision::Migrate { request, from, to, groups: groups.clone() },
            Decision::Park(ThreadId(2)),
        ]);
        let expected = [
            Outcome::ClockFailed(clock),
            Outcome::Granted(to),
            Outcome::Migrated { request: Some(request), to, groups },
            Outcome::Parked(ThreadId(2)),
        ];
        assert_eq!(outcomes, expected);
        assert_eq!(directory.get("cg/batch/cpuset.cpus"), "1-2,5-6");
        assert_eq!(hands.execute(&[Decision::Background(0)]), []);
        assert_eq!(directory.get("cg/batch/cgroup.freeze"), "1");
        assert_eq!(fake.homes(), [0, 0, 0, 1]);
        let said = hands.errors[0].to_string();
        assert!(said.starts_with("no setter of clocks"), "{said}");
        hands.background = None;
        assert_eq!(hands.execute(&[Decision::Background(1)]), [], "nothing has to be done");
    }
}
