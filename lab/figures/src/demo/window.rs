//! One window of load from our own dataplane at the client's end, at real-time priority.

use std::net::SocketAddrV4;
use std::time::Duration;

use load::{LoadConfig, LoadReport};
use measure::{Disturbance, Kept, Plan, QUIET, until_quiet, watched};

use super::processors::{CLIENT_CPU, REALTIME};
use crate::commands::load::DataplaneClient;
use service::lab::Lab;

/// Longest window: at real-time priority on all cores, the rest of the machine waits for it.
pub(crate) const WINDOW_MAX_MS: u64 = 400;
/// Before each window, for the rest of the machine.
pub(crate) const PAUSE: Duration = Duration::from_millis(150);
/// Tries of a window that something disturbs: the host takes processor time in spells.
pub(crate) const TRIES: usize = 5;

/// So many rounds; one that was disturbed to its windows' last tries is left out, and not held again.
pub(crate) fn every_round(count: usize, seed: u64) -> Plan {
    Plan { windows: count, tries: count, pause: Duration::ZERO, quiet: QUIET, seed }
}

/// How much was left out of the rounds of our server, then of the kernel's, after `left_out` windows were measured again.
pub(crate) fn disturbed_words<T>(kept: &[Kept<T>], left_out: usize) -> String {
    let mut words = format!("{left_out} windows measured again");
    for (name, kept) in ["tailplane", "linux"].into_iter().zip(kept) {
        words += &match kept.disturbed {
            Some(disturbance) => format!("; {name}: no round was quiet: {disturbance}"),
            None => format!("; {name}: {} of {} rounds left out", kept.discarded, kept.held),
        };
    }
    words
}

/// Measures one window; again while something disturbs it, a few times. `others` are processes of ours whose time is not
/// foreign. Returns what disturbed the last one, too.
///
/// # Errors
/// What the client could not do.
pub(crate) fn window(
    lab: &Lab,
    others: &[u32],
    load: &LoadConfig,
    target: SocketAddrV4,
) -> anyhow::Result<(LoadReport, Disturbance)> {
    let tried = until_quiet(TRIES, &QUIET, || window_once(lab, others, load, target))?;
    Ok((tried.found, tried.disturbance))
}

/// Measures one window once, whatever disturbed it.
///
/// # Errors
/// As [`window`].
pub(crate) fn window_once(
    lab: &Lab,
    others: &[u32],
    load: &LoadConfig,
    target: SocketAddrV4,
) -> anyhow::Result<(LoadReport, Disturbance)> {
    window_of(others, load, target, &|| DataplaneClient::open(lab, 1, &[CLIENT_CPU]))
}

/// As [`window_once`], from the client that `open` opens.
///
/// # Errors
/// As [`window`].
pub(crate) fn window_of(
    others: &[u32],
    load: &LoadConfig,
    target: SocketAddrV4,
    open: &dyn Fn() -> anyhow::Result<DataplaneClient>,
) -> anyhow::Result<(LoadReport, Disturbance)> {
    std::thread::sleep(PAUSE);
    let mut client = open()?;
    client.realtime = Some(REALTIME);
    let (mut report, mut disturbance) = watched(others, || client.run(load, target))?;
    // The client's thread has ended, but has reported its wait.
    disturbance.waited_ns = disturbance.waited_ns.max((report.waited_us * 1e3) as u64);
    report.conditions.more.insert("disturbance".into(), disturbance.to_string());
    Ok((report, disturbance))
}
