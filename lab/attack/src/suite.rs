//! All attacks, one after the other, each on a dataplane of its own, with a second dataplane beside it that must
//! not notice.

mod bystander;
mod gate;
mod measured;
mod own;
mod pings;
mod requests;
pub mod services;
mod victim;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::Context;
use measure::shuffled;
use reproduce::Grid;
use serde::{Deserialize, Serialize};

use crate::acts::{Act, Allowed, Attack};
use crate::crowd::Seen;
use bystander::Bystander;
use gate::{Ends, Gate};
use measured::{LENGTHS_MAX, Measured, WINDOWS_MIN};
use pings::Counted;

/// A window of requests, and what is left for attackers and their like to settle.
const WINDOW: Duration = Duration::from_millis(6);
const SETTLE: Duration = Duration::from_millis(2);
/// More than this times the quiet p99 is noticed.
const RATIO_MAX: f64 = 1.2;
/// How long the attacked network layer may be silent: some hundred pings.
const ANSWERS_WITHIN: Duration = Duration::from_millis(500);
/// An episode of an attack that ends by itself.
const SHORT_EPISODE: Duration = Duration::from_millis(400);
/// Bytes that the allocator and the threads' stacks come and go with.
const RESIDENT_MORE: u64 = 48 << 20;
/// How long the process of one attack may take beyond its attacks.
const ENDS_WITHIN: Duration = Duration::from_secs(20);
/// Real-time priority of the second dataplane while it measures: it never spins longer than a window.
const PRIORITY: u8 = 50;

/// What came of one attack.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Outcome {
    /// Its name.
    pub attack: String,
    /// What it did.
    pub what: String,
    /// Dataplanes that were attacked, and those that let the application in.
    pub episodes: u64,
    /// See above.
    pub joined: u64,
    /// With what words the others were refused, each once.
    pub refusals: std::collections::BTreeSet<String>,
    /// Batches, calls without sense, beyond the room, forbidden.
    pub crossings: u64,
    /// See above.
    pub violations: u64,
    /// See above.
    pub refused: u64,
    /// See above.
    pub forbidden: u64,
    /// Pings that the attacked network layer was sent, and answered.
    pub pings_sent: u64,
    /// See above.
    pub pings_answered: u64,
    /// Connections that the attacked dataplane's client opened, and answers that it had.
    pub connected: u64,
    /// See above.
    pub answered: u64,
    /// The longest that the attacked network layer was silent, in milliseconds.
    pub silence_ms: u64,
    /// The longest that an attacked dataplane took to end, in milliseconds.
    pub ended_in_ms: u64,
    /// Applications that ended by a fault of their own.
    pub faulted: u64,
    /// Requests of the second application, and those lost or answered wrong.
    pub others_requests: u64,
    /// See above.
    pub others_lost: u64,
    /// Medians of the windows' p99, in nanoseconds, and their quartiles.
    pub quiet_p99_ns: [u64; 3],
    /// See above.
    pub attacked_p99_ns: [u64; 3],
    /// Windows, quiet and attacked: all that were held.
    pub windows: [usize; 2],
    /// Windows of each kind with a request of over 50 us.
    pub slow: [usize; 2],
    /// What was not as it has to be; empty: passed.
    pub failures: Vec<String>,
}

impl Outcome {
    /// In a word or two.
    pub fn verdict(&self) -> &'static str {
        if self.failures.is_empty() { "passed" } else { "FAILED" }
    }

    /// Something was not as it has to be.
    fn fail(&mut self, text: impl Into<String>) {
        self.failures.push(text.into());
    }

    /// No ping was answered for so long.
    fn silent(&mut self, silence: Duration) {
        self.silence_ms = self.silence_ms.max(silence.as_millis() as u64);
        if silence > ANSWERS_WITHIN {
            let ms = silence.as_millis();
            self.fail(format!("the network layer answered nothing for {ms} ms"));
        }
    }

    /// Pings that the attacked network layer was sent, and answered.
    fn pinged(&mut self, counted: &Counted) {
        self.pings_sent += counted.sent.load(Ordering::Relaxed);
        self.pings_answered += counted.answered.load(Ordering::Relaxed);
    }

    /// What a client saw: of a dataplane whose policy denies everything, nothing.
    fn saw(&mut self, allowed: Allowed, Seen { connected, answered, reached }: Seen) {
        self.connected += connected;
        self.answered += answered;
        let seen = connected + answered + reached;
        if allowed == Allowed::Nothing && seen > 0 {
            self.fail(format!("{seen} connections and messages passed a policy that denies all"));
        }
    }

    /// An attacked dataplane took so long to end.
    fn ended_in(&mut self, took: Duration) {
        self.ended_in_ms = self.ended_in_ms.max(took.as_millis() as u64);
    }

    /// Takes over what the second application (`other`) asked, lost and noticed.
    fn take(&mut self, measured: &Measured, [asked, lost]: [u64; 2], other: &str) {
        (self.others_requests, self.others_lost) = (asked, lost);
        if lost > 0 {
            self.fail(format!("{lost} requests of the other {other} lost"));
        }
        self.quiet_p99_ns = measured.quartiles(false);
        self.attacked_p99_ns = measured.quartiles(true);
        self.windows = measured.windows();
        self.slow = measured.slow();
        self.failures.extend(measured.noticed());
    }

    /// Whether nothing was attacked yet: an application that dies at a random moment may do so before it serves, and one
    /// that answers the greeting with nonsense may be refused with each of the seeds that there was time for.
    fn is_missing(&self, attack: &Attack) -> bool {
        let joins = matches!(attack.act, Act::Joined(_));
        attack.refusal.is_none() && self.joined == 0 && (self.refusals.is_empty() || joins)
    }

    /// Whether another length would say nothing new.
    fn suffices(&self, attack: &Attack, measured: &Measured) -> bool {
        !self.failures.is_empty() || measured.noticed().is_none() && !self.is_missing(attack)
    }

    /// Requires that the attack took place: that it was let in, or refused with the words that are due.
    fn judge(&mut self, attack: &Attack) {
        if let Some(words) = attack.refusal {
            let told = self.refusals.iter().any(|why| why.contains(words));
            if self.joined > 0 || !told {
                self.fail(format!(
                    "it was let in {} times; refused with: {:?}; expected: never, and \"{words}\"",
                    self.joined, self.refusals
                ));
            }
        }
        if self.is_missing(attack) {
            self.fail("no application ever joined: nothing was attacked");
        }
        if attack.name == "write-received-packets" && self.faulted == 0 {
            self.fail("no store into received packets was ever a fault");
        }
    }
}

/// Runs one attack in a process of its own: one that ends a dataplane ends that process, and nothing else.
///
/// # Errors
/// It could not be started.
pub fn apart(attack: &Attack, seconds: f64, seed: u64) -> anyhow::Result<Outcome> {
    let program = std::env::current_exe().context("finding this program's file")?;
    let mut command = std::process::Command::new(program);
    command.args(["suite", "--alone", "--json", "-", "--only", attack.name]);
    command.args(["--seconds", &seconds.to_string(), "--seed", &seed.to_string()]);
    command.stdout(std::process::Stdio::piped());
    if std::env::var_os("ATTACK_VERBOSE").is_none() {
        command.stderr(std::process::Stdio::null());
    }
    let mut child = command.spawn().context("starting this program for one attack")?;
    // The outcome is a few kilobytes at most, which the pipe holds.
    let most = Duration::from_secs_f64(seconds * f64::from(LENGTHS_MAX)) + ENDS_WITHIN;
    let began = Instant::now();
    let mut failure = None;
    while child.try_wait().context("waiting for one attack")?.is_none() {
        if began.elapsed() > most {
            failure = Some(format!("did not end within {} s", most.as_secs()));
            child.kill().context("ending one attack")?;
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    let ended = child.wait_with_output().context("waiting for one attack")?;
    let told: Option<Vec<Outcome>> = serde_json::from_slice(&ended.stdout).ok();
    Ok(told.and_then(|mut told| told.pop()).unwrap_or_else(|| {
        let how =
            failure.unwrap_or_else(|| format!("the dataplane's process died: {}", ended.status));
        let (attack, what) = (attack.name.into(), attack.what.into());
        Outcome { attack, what, failures: vec![how], ..Outcome::default() }
    }))
}

/// Where everything runs.
pub struct Suite {
    bystander: Bystander,
    /// The attacked dataplane's processor; none where there is one for all, and nothing is measured.
    attacked_cpu: Option<usize>,
    seconds: f64,
    seed: u64,
}

impl Suite {
    /// For attacks of so many seconds each.
    ///
    /// # Errors
    /// The second dataplane does not work.
    pub fn new(seconds: f64, seed: u64) -> anyhow::Result<Self> {
        let cpus = own::processors()?;
        let attacked_cpu = match cpus[..] {
            [first, .., last] => {
                measure::pin(last)?;
                Some(first)
            }
            _ => None,
        };
        if let Err(error) = runtime::set_realtime(PRIORITY) {
            crate::say(&format!("latencies are measured without priority: {error}"));
        }
        Ok(Self { bystander: Bystander::new()?, attacked_cpu, seconds, seed })
    }

    /// Runs one attack.
    ///
    /// # Errors
    /// The machine has no means for it: nothing is known about the attack then.
    pub fn run(&mut self, attack: &'static Attack) -> anyhow::Result<Outcome> {
        let before = own::holds()?;
        let asked = (self.bystander.requests.asked, self.bystander.requests.lost);
        let mut outcome =
            Outcome { attack: attack.name.into(), what: attack.what.into(), ..Outcome::default() };
        let mut measured = Measured::new(RATIO_MAX);
        for part in 0..LENGTHS_MAX {
            let kinds = attack.kinds();
            let length = Duration::from_secs_f64(self.seconds / kinds.len() as f64);
            for kind in kinds {
                outcome = self.attack(kind, part, length, &mut measured, outcome)?;
            }
            if outcome.suffices(attack, &measured) {
                break;
            }
        }
        let others =
            [self.bystander.requests.asked - asked.0, self.bystander.requests.lost - asked.1];
        outcome.take(&measured, others, "application");
        check_holds(&before, &mut outcome)?;
        outcome.judge(attack);
        Ok(outcome)
    }

    /// Attacks once, for so long, and measures meanwhile; what came of it is added to `outcome`.
    fn attack(
        &mut self,
        attack: Attack,
        part: u32,
        length: Duration,
        measured: &mut Measured,
        outcome: Outcome,
    ) -> anyhow::Result<Outcome> {
        let gate = Arc::new(Gate::default());
        let _ends = Ends(&gate);
        let attacker = {
            let (gate, cpu) = (Arc::clone(&gate), self.attacked_cpu);
            let seed = self.seed.wrapping_add(u64::from(part) << 32);
            std::thread::Builder::new()
                .name("attacker".into())
                .spawn(move || attack_for(&attack, seed, length, cpu, &gate, outcome))
                .context("starting a thread")?
        };
        let (began, mut rounds) = (Instant::now(), 0);
        while !attacker.is_finished() && began.elapsed() < length {
            rounds += 1;
            for attacked in shuffled(vec![false, true], self.seed.wrapping_add(rounds)) {
                match attacked {
                    true => gate.open(),
                    false => gate.close(),
                }
                std::thread::sleep(SETTLE);
                if self.attacked_cpu.is_some() {
                    let window = self.bystander.window(WINDOW);
                    measured.take(attacked, window);
                }
            }
        }
        gate.end();
        gate.open();
        attacker.join().map_err(|_| anyhow::anyhow!("the attacking thread panicked"))?
    }
}

/// One dataplane after the other is attacked, on one processor, until it is over.
fn attack_for(
    attack: &Attack,
    seed: u64,
    length: Duration,
    cpu: Option<usize>,
    gate: &Gate,
    mut outcome: Outcome,
) -> anyhow::Result<Outcome> {
    if let Some(cpu) = cpu {
        measure::pin(cpu)?;
    }
    crate::unsafe_os::no_priority()?;
    let began = Instant::now();
    let most = if attack.short { SHORT_EPISODE.min(length) } else { length };
    let (before, failed) = (outcome.episodes, outcome.failures.len());
    while !gate.is_over() && began.elapsed() < length && outcome.failures.len() == failed {
        gate.pass();
        let seed = seed.wrapping_add(outcome.episodes - before);
        victim::episode(attack, seed, most, gate, &mut outcome)?;
    }
    Ok(outcome)
}

/// This process holds what it held before.
fn check_holds(before: &own::Holds, outcome: &mut Outcome) -> anyhow::Result<()> {
    // Threads that were waited for may be about to end.
    let began = Instant::now();
    loop {
        let now = own::holds()?;
        let more = [
            ("descriptors", now.descriptors > before.descriptors, now.descriptors),
            ("threads", now.threads > before.threads, now.threads),
            (
                "bytes in memory",
                now.resident > before.resident + RESIDENT_MORE,
                now.resident as usize,
            ),
        ];
        let mapped = now.mapped_more_than(before);
        if mapped.is_empty() && more.iter().all(|(_, more, _)| !more) {
            return Ok(());
        }
        if began.elapsed() > Duration::from_millis(300) {
            for (what, _, many) in more.into_iter().filter(|(_, more, _)| *more) {
                outcome.failures.push(format!("{many} {what} are left; before: {before:?}"));
            }
            if !mapped.is_empty() {
                outcome.failures.push(format!("still mapped: {mapped}"));
            }
            return Ok(());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Prints what came of the attacks.
///
/// # Errors
/// Nobody listens.
pub fn print(outcomes: &[Outcome], out: &mut impl Write) -> std::io::Result<()> {
    let mut table = Grid::new([
        "attack",
        "dataplanes",
        "batches",
        "senseless",
        "refused",
        "pings answered",
        "silence ms",
        "end ms",
        "others lost",
        "others p99 us quiet/attacked",
        "verdict",
    ]);
    let microseconds = |ns: u64| ns as f64 / 1_000.0;
    for outcome in outcomes {
        table.row([
            outcome.attack.clone(),
            format!("{} ({} joined)", outcome.episodes, outcome.joined),
            outcome.crossings.to_string(),
            outcome.violations.to_string(),
            (outcome.refused + outcome.forbidden).to_string(),
            format!("{}/{}", outcome.pings_answered, outcome.pings_sent),
            outcome.silence_ms.to_string(),
            outcome.ended_in_ms.to_string(),
            format!("{}/{}", outcome.others_lost, outcome.others_requests),
            match outcome.windows.iter().all(|many| *many >= WINDOWS_MIN) {
                true => format!(
                    "{:.2}/{:.2} ({}+{} windows, {}+{} slow)",
                    microseconds(outcome.quiet_p99_ns[1]),
                    microseconds(outcome.attacked_p99_ns[1]),
                    outcome.windows[0],
                    outcome.windows[1],
                    outcome.slow[0],
                    outcome.slow[1]
                ),
                // Nothing is said where there is next to nothing to say it by.
                false => {
                    format!("too few windows ({}+{})", outcome.windows[0], outcome.windows[1])
                }
            },
            outcome.verdict().to_owned(),
        ]);
    }
    writeln!(out, "{table}")?;
    for outcome in outcomes {
        for failure in &outcome.failures {
            writeln!(out, "{}: {failure}", outcome.attack)?;
        }
    }
    Ok(())
}
