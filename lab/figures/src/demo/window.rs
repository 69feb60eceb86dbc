//! One window of load from our own dataplane at the client's end, at real-time priority.

use std::net::SocketAddrV4;
use std::time::Duration;

use load::{LoadConfig, LoadReport};

use super::machine::{Disturbance, Usage};
use super::processors::{CLIENT_CPU, REALTIME};
use crate::commands::load::DataplaneClient;
use service::lab::Lab;

/// Longest window: at real-time priority on all cores, the rest of the machine waits for it.
pub(crate) const WINDOW_MAX_MS: u64 = 400;
/// Between two windows, for the rest of the machine.
pub(crate) const PAUSE: Duration = Duration::from_millis(150);
/// Further tries of a window that somebody else disturbed.
const RETRIES: u32 = 2;
/// Further tries of a window from which the host took processor time: it comes in spells.
const STOLEN_RETRIES: u32 = 6;
/// More than [`PAUSE`], for such a spell to pass.
const SPELL: Duration = Duration::from_millis(300);

/// Measures one window; again where somebody else used the machine, a few times. `others` are
/// processes of ours whose time is not foreign. Answers what was done to the last one, too.
///
/// # Errors
/// What the client could not do.
pub(crate) fn window(
    lab: &Lab,
    others: &[u32],
    load: &LoadConfig,
    target: SocketAddrV4,
) -> anyhow::Result<(LoadReport, Disturbance)> {
    let mut tries = 0;
    loop {
        let (mut report, disturbance) = window_once(lab, others, load, target)?;
        let stolen = disturbance.stolen_s > 0.0;
        let limit = if stolen { STOLEN_RETRIES } else { RETRIES };
        if disturbance.is_quiet() || tries >= limit {
            report.conditions.more.insert("disturbance".into(), disturbance.to_string());
            return Ok((report, disturbance));
        }
        tries += 1;
        if stolen {
            std::thread::sleep(SPELL);
        }
    }
}

/// Measures one window once, whoever disturbed it.
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
    let before = Usage::now(others);
    let report = client.run(load, target)?;
    let mut disturbance = before.disturbance_since(others);
    // The client's thread has ended, but has told.
    disturbance.waited_s = disturbance.waited_s.max(report.waited_us / 1e6);
    Ok((report, disturbance))
}
