//! The attacks through `tailplane run`: root's starter, a confined dataplane and a hostile program, three users, over
//! AF_XDP on a veth pair, with a second service beside them.
//!
//! The attacked service has the first processor and the placement that is the default; its client opens, asks and
//! closes there, and pings. The second service and the thread that times its requests have the last processor.

mod client;
pub mod flood;
mod neighbour;
mod process;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use measure::shuffled;
use service::lab::constants::{CLIENT_ADDRESS, DATAPLANE_ADDRESS};
use service::lab::{Lab, LabConfig};
use tempfile::TempDir;

use super::measured::{LENGTHS_MAX, Measured};
use super::pings::Counted;
use super::victim::Silence;
use super::{Outcome, SETTLE, own};
use crate::acts::{Allowed, Attack};
use client::Client;
use neighbour::Neighbour;
use process::Service;

/// The schedulers, as a configuration names them.
pub const SCHEDULERS: [&str; 3] = ["run-to-completion", "work-conserving", "ready-set"];
/// A window of the second service's requests.
const WINDOW: Duration = Duration::from_millis(8);
/// More than this times the quiet p99 is noticed: processors share caches, and the kernel's work for either veth pair.
const RATIO_MAX: f64 = 2.0;
/// How long a service may take to begin.
const PATIENCE: Duration = Duration::from_secs(20);
/// A starter answers at its control socket, and ends when it is to, within this.
const WITHIN: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(5);

/// Labs for those that are attacked, and the service that is not attacked.
pub struct Services {
    /// For attacks on one elastic thread, and on two: a lab has a queue for each.
    attacked: [Lab; 2],
    neighbour: Neighbour,
    folder: TempDir,
    cpu: usize,
    seconds: f64,
    seed: u64,
}

impl Services {
    /// For attacks of so many seconds each.
    ///
    /// # Errors
    /// This user is not root, or the machine has no AF_XDP or no second processor.
    pub fn new(seconds: f64, seed: u64) -> anyhow::Result<Self> {
        let cpus = own::processors()?;
        ensure!(
            cpus.len() > 1,
            "cannot attack a service beside another: found one processor; use two"
        );
        let folder = service::private::directory("attacked")?;
        let lab = |queues| {
            let config = LabConfig { queues, ..LabConfig::unique("attacked") };
            Lab::create(config).context("making a lab")
        };
        let (attacked, other) = ([lab(1)?, lab(2)?], lab(1)?);
        let neighbour = Neighbour::start(other, folder.path(), cpus[cpus.len() - 1])?;
        Ok(Self { attacked, neighbour, folder, cpu: cpus[0], seconds, seed })
    }

    /// Runs one attack under a scheduler.
    ///
    /// # Errors
    /// The machine has no means for it: nothing is known about the attack then.
    pub fn run(&mut self, attack: &'static Attack, scheduler: &str) -> anyhow::Result<Outcome> {
        let name = format!("{}, {scheduler}", attack.name);
        let mut outcome = Outcome { attack: name, what: attack.what.into(), ..Outcome::default() };
        let asked = (self.neighbour.requests.asked, self.neighbour.requests.lost);
        let mut measured = Measured::new(RATIO_MAX);
        for part in 0..LENGTHS_MAX {
            let began = Instant::now();
            let length = Duration::from_secs_f64(self.seconds);
            while outcome.failures.is_empty() && began.elapsed() < length {
                let seed = self.seed + (u64::from(part) << 32) + outcome.episodes;
                self.episode(attack, scheduler, seed, &mut measured, &mut outcome)?;
            }
            if outcome.suffices(attack, &measured) {
                break;
            }
        }
        let others =
            [self.neighbour.requests.asked - asked.0, self.neighbour.requests.lost - asked.1];
        outcome.take(&measured, others, "service");
        outcome.judge(attack);
        Ok(outcome)
    }

    /// One service, attacked until its program ends, or for the time of an attack.
    fn episode(
        &mut self,
        attack: &Attack,
        scheduler: &str,
        seed: u64,
        measured: &mut Measured,
        outcome: &mut Outcome,
    ) -> anyhow::Result<()> {
        let config = self.config(attack, scheduler);
        let mut program = vec!["act".into(), attack.name.into(), format!("--seed={seed}")];
        program.push(format!("--server={DATAPLANE_ADDRESS}"));
        program.push(format!("--client={CLIENT_ADDRESS}"));
        if scheduler != SCHEDULERS[0] {
            program.push("--anywhere".into());
        }
        outcome.episodes += 1;
        let mut service =
            Service::start(self.folder.path(), "attacked", &config, &program, self.cpu)?;
        if !service.serves(PATIENCE)? {
            outcome.refusals.insert(service.refusal());
            service.check_remains(outcome);
            return Ok(());
        }
        outcome.joined += 1;
        let counted = Arc::new(Counted::default());
        let client = Client::start(self.lab(attack), &counted, seed, self.cpu)?;
        let stop = Arc::new(AtomicBool::new(false));
        let watch = watch(&counted, &stop)?;
        let (began, length) = (Instant::now(), Duration::from_secs_f64(self.seconds));
        let mut rounds = 0;
        while began.elapsed() < length && !service.has_ended()? {
            rounds += 1;
            for attacked in shuffled(vec![false, true], seed.wrapping_add(rounds)) {
                service.let_act(attacked);
                std::thread::sleep(SETTLE);
                measured.take(attacked, self.neighbour.window(WINDOW));
            }
        }
        let lives = !service.has_ended()?;
        stop.store(true, Ordering::Relaxed);
        let silence = watch.join().map_err(|_| anyhow::anyhow!("the watching thread panicked"))?;
        if lives {
            outcome.silent(silence);
            service.check_answers(outcome);
        }
        service.end(outcome)?;
        outcome.saw(attack.allowed, client.stop()?);
        outcome.pinged(&counted);
        service.check_remains(outcome);
        Ok(())
    }

    fn lab(&self, attack: &Attack) -> &Lab {
        &self.attacked[attack.threads_max() as usize - 1]
    }

    fn config(&self, attack: &Attack, scheduler: &str) -> String {
        let policy = match attack.allowed {
            Allowed::Everything => "",
            Allowed::Client => {
                "[policy]\noutgoing = \"deny\"\nincoming = \"deny\"\n[[policy.rules]]\nverdict = \"allow\"\n\
                 direction = \"in\"\nnetwork = \"10.77.0.1/32\"\n"
            }
            Allowed::Nothing => "[policy]\noutgoing = \"deny\"\nincoming = \"deny\"\n",
        };
        format!(
            "[service]\napp = \"echo\"\n[network]\nlab = \"{}\"\n[dataplane]\nthreads = {}\nspin_us = 20\n\
             scheduler = \"{scheduler}\"\ndomain = \"process\"\n[memory]\nchunks = 16384\n[control]\n\
             name = \"attacked\"\nsocket = true\n{policy}",
            self.lab(attack).prefix(),
            attack.threads_max(),
        )
    }
}

/// The longest that no ping is answered until `stop`.
fn watch(
    counted: &Arc<Counted>,
    stop: &Arc<AtomicBool>,
) -> anyhow::Result<std::thread::JoinHandle<Duration>> {
    let (counted, stop) = (Arc::clone(counted), Arc::clone(stop));
    let body = move || {
        let (mut longest, mut last, mut heard) = (Duration::ZERO, 0, Silence::begin());
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
            let answered = counted.answered.load(Ordering::Relaxed);
            longest = longest.max(heard.lasted());
            if answered != last {
                (last, heard) = (answered, Silence::begin());
            }
        }
        longest
    };
    std::thread::Builder::new().name("watch".into()).spawn(body).context("starting a thread")
}
