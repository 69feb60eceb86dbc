//! Removals that must happen even when the process is interrupted.
//!
//! `Drop` covers a return and a panic, not Ctrl-C. Whatever outlives the process (a namespace, a
//! sysctl) is therefore also registered here:
//!
//! ```
//! # fn put_back() {}
//! let registration = service::cleanup::register(put_back)?;
//! // ... SIGINT, SIGTERM or SIGHUP here runs the action, then ends the process by that signal ...
//! put_back();
//! drop(registration); // from here on a signal does not run it
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A command that can end by itself asks to be told first ([`first_signal_sets`]): the first signal
//! then only sets its flag, and it returns, cleans up and ends with status 0. A second signal, from
//! somebody who has waited long enough, does what is said above.
//!
//! Registering starts one thread for the process that waits for those signals. A process that never
//! registers keeps its signal dispositions.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;

/// A removal. Runs on the signal thread; must not itself register or drop a
/// registration (the list is locked).
type Action = Box<dyn FnOnce() + Send>;

/// The actions not yet run, oldest first, each under the number that its registration holds.
struct Registry {
    next: u64,
    actions: Vec<(u64, Action)>,
    /// What the next signal runs instead of ending the process.
    asked_to_stop: Option<Action>,
}

impl Registry {
    const fn new() -> Self {
        Self { next: 0, actions: Vec::new(), asked_to_stop: None }
    }

    /// Whether a signal was passed on to a command that ends by itself.
    fn ask_to_stop(&mut self) -> bool {
        let Some(stop) = self.asked_to_stop.take() else { return false };
        stop();
        true
    }
}

static REGISTRY: Mutex<Registry> = Mutex::new(Registry::new());
/// Whether the waiting thread runs, or why it could not be started.
static WATCHER: OnceLock<Result<(), io::ErrorKind>> = OnceLock::new();

/// A panic in one action must not keep the others from running.
fn registry() -> MutexGuard<'static, Registry> {
    REGISTRY.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Proof that an action stands in the list. Dropping it takes the action out without running it.
///
/// Remove first and drop this afterwards: a signal in between then runs the action once more, which
/// must find nothing to do. While a signal's actions run, dropping blocks and the process ends.
#[derive(Debug)]
#[must_use = "dropping a registration cancels its action"]
pub struct Registration {
    number: u64,
}

impl Drop for Registration {
    fn drop(&mut self) {
        registry().actions.retain(|(number, _)| *number != self.number);
    }
}

/// Has `action` run if SIGINT, SIGTERM or SIGHUP arrives; the process then ends by that signal.
/// Actions run newest first.
///
/// # Errors
/// The thread that waits for signals could not be started.
pub fn register(action: impl FnOnce() + Send + 'static) -> io::Result<Registration> {
    watch()?;
    let mut registry = registry();
    let number = registry.next;
    registry.next += 1;
    registry.actions.push((number, Box::new(action)));
    Ok(Registration { number })
}

/// Has the next SIGINT, SIGTERM or SIGHUP set `stop` and do nothing else; the one after that runs
/// the actions and ends the process. For a command that looks at `stop` and then returns.
///
/// # Errors
/// The thread that waits for signals could not be started.
pub fn first_signal_sets(stop: Arc<AtomicBool>) -> io::Result<()> {
    first_signal_calls(move || stop.store(true, Ordering::Relaxed))
}

/// The same with `stop` called, on the signal thread.
///
/// # Errors
/// As [`first_signal_sets`].
pub fn first_signal_calls(stop: impl FnOnce() + Send + 'static) -> io::Result<()> {
    watch()?;
    registry().asked_to_stop = Some(Box::new(stop));
    Ok(())
}

fn watch() -> io::Result<()> {
    WATCHER.get_or_init(|| start_watcher().map_err(|error| error.kind())).map_err(|kind| {
        io::Error::new(kind, "cannot wait for SIGINT, SIGTERM and SIGHUP on a thread")
    })
}

fn start_watcher() -> io::Result<()> {
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])?;
    thread::Builder::new().name("cleanup".to_owned()).spawn(move || {
        // `forever` ends only when the handle is closed, which nobody holds.
        for signal in signals.forever() {
            let mut registry = registry();
            if registry.ask_to_stop() {
                continue;
            }
            run_all(&mut registry);
            // The list stays locked: no thread may begin or finish a removal between here and the
            // end of the process.
            if emulate_default_handler(signal).is_err() {
                std::process::exit(128 + signal);
            }
        }
    })?;
    Ok(())
}

/// Newest first, as `Drop` does: what was built upon goes last.
fn run_all(registry: &mut Registry) {
    while let Some((_, action)) = registry.actions.pop() {
        action();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn actions_run_newest_first_and_once() {
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut own = Registry::new();
        for number in 0..3 {
            let order = Arc::clone(&order);
            own.actions.push((number, Box::new(move || order.lock().unwrap().push(number))));
        }
        run_all(&mut own);
        run_all(&mut own);
        assert_eq!(*order.lock().unwrap(), [2, 1, 0]);
    }

    #[test]
    fn a_command_is_asked_once() {
        let stop = Arc::new(AtomicBool::new(false));
        let mut own = Registry::new();
        assert!(!own.ask_to_stop(), "nobody wants to be asked");
        let asked = Arc::clone(&stop);
        own.asked_to_stop = Some(Box::new(move || asked.store(true, Ordering::Relaxed)));
        assert!(own.ask_to_stop() && stop.load(Ordering::Relaxed));
        assert!(!own.ask_to_stop(), "the second signal ends the process");
    }

    #[test]
    fn a_dropped_registration_takes_its_action_along() {
        let kept = register(|| {}).unwrap();
        let number = register(|| {}).unwrap().number;
        assert!(registry().actions.iter().all(|(other, _)| *other != number));
        assert!(registry().actions.iter().any(|(other, _)| *other == kept.number));
    }
}
