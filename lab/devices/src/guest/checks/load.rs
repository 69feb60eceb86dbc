//! Connections that checks ask things of: at once, or beside something else.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use anyhow::bail;

use crate::guest::client::{self, Connection, in_namespace, pattern};

/// Does `work` while so many connections store and fetch items, and returns the number of their requests with what it
/// returned.
///
/// # Errors
/// Those of `work`; a connection that was lost.
pub fn under_load<R>(
    connections: usize,
    work: impl FnOnce() -> anyhow::Result<R>,
) -> anyhow::Result<(u64, R)> {
    let (stop, requests) = (AtomicBool::new(false), AtomicU64::new(0));
    let load = || {
        in_namespace(|| {
            let (mut open, value) = (Connection::open()?, pattern(3, 1000));
            while !stop.load(Ordering::Relaxed) {
                open.set("loaded", &value)?;
                open.get("loaded", &value)?;
                requests.fetch_add(2, Ordering::Relaxed);
            }
            Ok(())
        })
    };
    let (done, results) = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..connections).map(|_| scope.spawn(load)).collect();
        let done = work();
        stop.store(true, Ordering::Relaxed);
        let results: Vec<_> = threads.into_iter().filter_map(|thread| thread.join().ok()).collect();
        (done, results)
    });
    let done = done?;
    let lost: Vec<String> =
        results.into_iter().filter_map(Result::err).map(|error| format!("{error:#}")).collect();
    if let Some(first) = lost.first() {
        bail!("{} of {connections} connections lost; the first: {first}", lost.len());
    }
    Ok((requests.load(Ordering::Relaxed), done))
}

/// Expects `count` connections at once to be answered.
pub fn expect_answers(count: usize) -> anyhow::Result<()> {
    let (good, error) = client::answered(count);
    if good < count {
        bail!(
            "{good} of {count} connections answered; the first error: {}",
            error.unwrap_or_default()
        );
    }
    Ok(())
}
