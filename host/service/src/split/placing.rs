//! `placement = "auto"`: the starter's part, which sees the machine and asks the dataplane to follow its [`Plan`].

use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::{Duration, Instant};

use super::bounds::{self, Bounds};
use super::control::send;
use super::orders::Order;
use super::plan::{Foreign, Plan};
use super::processors::Processors;
use super::relay::Heard;
use crate::config::{PlacementName, RunConfig};

/// Between two looks at the machine.
const PERIOD: Duration = Duration::from_millis(100);
/// Looks between two times that the dataplane is told the same.
const TOLD_AGAIN: u32 = 10;
/// The priority of elastic threads that may have to share their processors: before all ordinary threads, the
/// application's among them, and behind whatever else has such a priority.
const LOWEST: u8 = 1;

/// See the module's comment.
#[derive(Debug)]
pub struct Placing {
    plan: Plan,
    processors: Processors,
    looked: Option<Instant>,
    told: Option<u32>,
}

impl Placing {
    /// Chooses processors and a priority where `config` leaves that to the service, and writes them into it. None where
    /// it does not, and where nothing of it can be had; `missing` says what.
    pub fn settle(config: &mut RunConfig, missing: &mut Vec<String>) -> Option<Self> {
        if config.dataplane.placement != PlacementName::Auto {
            return None;
        }
        if !config.application.cpus.is_empty() {
            let is_same = config.application.cpus == config.dataplane.cpus;
            config.dataplane.placement =
                if is_same { PlacementName::SameCore } else { PlacementName::Split };
            return None;
        }
        let allowed = match bounds::allowed() {
            Ok(allowed) => allowed,
            Err(errno) => {
                missing.push(format!("threads stay where the kernel puts them: {errno}"));
                return None;
            }
        };
        let (mut processors, root) = (Processors::new(Path::new("/")), [std::process::id()]);
        processors.look(Instant::now(), &root);
        std::thread::sleep(PERIOD);
        let foreign = processors.look(Instant::now(), &root).unwrap_or_else(|| {
            missing.push("nobody can tell who uses the processors: /proc cannot be read".into());
            Foreign::default()
        });
        let plane = &mut config.dataplane;
        let chosen: Vec<u32> = plane.cpus.iter().map(|&cpu| cpu as u32).collect();
        let plan = Plan::new(plane.threads as usize, &allowed, &chosen, &foreign)?;
        plane.cpus = plan.pairs().iter().map(|pair| pair.elastic as usize).collect();
        if plane.realtime.is_none() && plane.spin_us >= 0 {
            match runtime::may_have_realtime(LOWEST) {
                Ok(()) => plane.realtime = Some(LOWEST),
                Err(error) => missing.push(format!(
                    "an application on the dataplane's core keeps it until the kernel takes it away: no real-time \
                     priority: {error}"
                )),
            }
        }
        Some(Self { plan, processors, looked: None, told: None })
    }

    /// How it begins, for conditions.
    pub fn describe(&self) -> String {
        let pair = |pair: &super::plan::Pair| pair.elastic.to_string();
        let cpus: Vec<_> = self.plan.pairs().iter().map(pair).collect();
        format!(
            "auto: elastic threads on processors {}, the application's on the same ones while others use the rest",
            cpus.join(", ")
        )
    }

    /// Looks at the machine when it is time, moves the dataplane's `bounds`, and tells the dataplane at the other end of
    /// `control` where to run. `processes` are its own and its application's.
    pub fn turn(&mut self, control: &OwnedFd, heard: &Heard, bounds: &Bounds, processes: &[u32]) {
        let now = Instant::now();
        if self.looked.is_some_and(|looked| now < looked + PERIOD) {
            return;
        }
        for (thread, cpu) in heard.placed() {
            self.plan.placed(thread.into(), cpu as u32);
            self.told = None;
        }
        let foreign = self.processors.look(now, processes);
        // What was before the first look is the start of the processes.
        let has_changed = self.looked.replace(now).is_some()
            && foreign.is_some_and(|foreign| {
                let has_changed = self.plan.look(&foreign);
                if has_changed {
                    tracing::debug!(?foreign, pairs = ?self.plan.pairs(), "threads move");
                }
                has_changed
            });
        if has_changed || self.told.is_none_or(|told| told >= TOLD_AGAIN) {
            bounds.place(self.plan.pairs().iter().map(|pair| pair.elastic).collect());
            let order = Order::Place(self.plan.pairs().to_vec());
            // It has gone, or does not listen: that is seen to elsewhere.
            self.told = send(control, &order, &[]).is_ok().then_some(0);
        }
        self.told = self.told.map(|told| told + 1);
    }
}
