//! What other processes did to a window.

use std::collections::HashMap;
use std::time::Instant;

use crate::disturbance::Disturbance;
use crate::process::{Machine, Thread, process_s};

/// A thread is busy where it ran for this share of the window.
const BUSY_SHARE: f64 = 0.2;

/// Processor time at a moment: of the whole machine, and of ours.
#[derive(Clone, Debug)]
pub struct Usage {
    machine: Machine,
    ours_s: f64,
    /// Of each of our threads.
    threads: HashMap<String, Thread>,
    at: Instant,
}

impl Usage {
    /// Now; `others` are processes that we started.
    pub fn now(others: &[u32]) -> Self {
        let ours: Vec<String> =
            std::iter::once("self".to_owned()).chain(others.iter().map(u32::to_string)).collect();
        let threads = ours.iter().flat_map(|pid| Thread::all(pid));
        Self {
            machine: Machine::now().unwrap_or_default(),
            ours_s: ours.iter().filter_map(|pid| process_s(pid)).sum(),
            threads: threads.map(|thread| (thread.name.clone(), thread)).collect(),
            at: Instant::now(),
        }
    }

    /// What others did since `self`. Threads that began since are judged by all of their life.
    pub fn disturbance_since(&self, others: &[u32]) -> Disturbance {
        let now = Self::now(others);
        let span_s = now.at.duration_since(self.at).as_secs_f64().max(0.001);
        // Interrupts that our own packets cause are charged to the machine, within our cores. A process that ended
        // meanwhile takes its time along: what is left must not go below.
        let foreign_s = (now.machine.busy_s - self.machine.busy_s) - (now.ours_s - self.ours_s);
        let waits = now.threads.values().filter_map(|thread| {
            let before = self.threads.get(&thread.name).cloned().unwrap_or_default();
            let ran_ns = thread.ran_ns.saturating_sub(before.ran_ns);
            let is_busy = ran_ns as f64 / 1e9 > BUSY_SHARE * span_s;
            is_busy.then_some(thread.waited_ns.saturating_sub(before.waited_ns))
        });
        let stolen_s = (now.machine.stolen_s - self.machine.stolen_s).max(0.0);
        Disturbance {
            foreign: foreign_s.max(0.0) / span_s,
            stolen_ms: (stolen_s * 1e3).round() as u64,
            waited_ns: waits.max().unwrap_or(0),
            ..Disturbance::default()
        }
    }
}

/// A window of this process, and what other processes did to it meanwhile; `others` are processes that we started.
///
/// # Errors
/// Those of the window.
pub fn watched<T, E>(
    others: &[u32],
    window: impl FnOnce() -> Result<T, E>,
) -> Result<(T, Disturbance), E> {
    let before = Usage::now(others);
    let found = window()?;
    Ok((found, before.disturbance_since(others)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_our_own_work_is_not_foreign() {
        let (turns, disturbance) = watched(&[], || {
            let began = Instant::now();
            Ok::<_, ()>((0_u64..).take_while(|_| began.elapsed().as_millis() < 100).count())
        })
        .expect("no window fails");
        assert!(turns > 0 && disturbance.switches == 0 && disturbance.foreign.is_finite());
        // A process that is gone leaves no negative time behind.
        let gone = Usage { ours_s: 1e9, ..Usage::now(&[u32::MAX]) };
        assert!(gone.disturbance_since(&[]).foreign.is_finite());
        let later = Usage { ours_s: -1e9, ..Usage::now(&[]) };
        assert_eq!(later.disturbance_since(&[]).foreign, 0.0);
    }
}
