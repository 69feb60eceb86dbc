//! A thread beside the elastic ones, for as long as these run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use crate::error::{RuntimeError, system};

/// Calls `work` with a thread of this name beside it. The thread calls `begin` before the work begins: afterwards a
/// dataplane may give up the right to change priorities. Then it calls `look` again and again, until the work is over or
/// `look` answers false.
///
/// # Errors
/// The thread cannot be started.
pub fn beside<R>(
    name: &str,
    begin: impl FnOnce() + Send,
    mut look: impl FnMut() -> bool + Send,
    work: impl FnOnce() -> R,
) -> Result<R, RuntimeError> {
    let over = AtomicBool::new(false);
    let (begins, has_begun) = channel::<()>();
    std::thread::scope(|scope| {
        let _over = Sets(&over);
        let over = &over;
        let looks = move || {
            begin();
            drop(begins);
            while !over.load(Ordering::Relaxed) {
                if !look() {
                    return;
                }
            }
        };
        let named = std::thread::Builder::new().name(name.to_owned());
        named.spawn_scoped(scope, looks).map_err(|source| system("starting a thread", source))?;
        // Nothing is ever sent: this ends when the sender does, be it by a panic.
        let _ = has_begun.recv();
        Ok(work())
    })
}

/// Sets a flag at its end, however that comes.
struct Sets<'a>(&'a AtomicBool);

impl Drop for Sets<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
