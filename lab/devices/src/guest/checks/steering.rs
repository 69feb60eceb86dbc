//! Queues, threads and flow groups: whose packets come to which thread.

use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::load::{expect_answers, under_load};
use super::outcome::passed;
use crate::guest::client::{Connection, in_namespace};
use crate::guest::command;
use crate::guest::rig::DATAPLANE;
use crate::guest::service::{Config, Ended, NAME, forwarded as forwarded_of, quoted};
use crate::guest::suite::Suite;
use crate::protocol::Outcome;

/// Connections that are enough to reach each queue.
const CONNECTIONS: usize = 16;
/// Packets that may be forwarded where the device's table can be written: those that were under way at a move.
const FORWARDED_SHARE_MAX: f64 = 0.02;
/// Time before, between and after two moves.
const MOVE_PAUSE: Duration = Duration::from_secs(1);
/// Requests of a connection for the share of forwarded packets.
const REQUESTS: usize = 50;

/// What the driver shows of its table; `None`: it has none, or no key for it.
fn table() -> Option<String> {
    let shown = command::run(&format!("ethtool -x {DATAPLANE}")).ok()?;
    let is_whole = shown.contains("hash key:") && !shown.contains("not supported");
    is_whole.then_some(shown)
}

/// The share of packets that threads forwarded to each other, by the report of a service that ended.
fn share(ended: &Ended) -> anyhow::Result<f64> {
    let (packets, forwarded) = forwarded_of(&ended.output)
        .with_context(|| format!("no report at the end, but: {}", quoted(&ended.output)))?;
    ensure!(packets > 0, "the threads report 0 packets");
    Ok(forwarded as f64 / packets as f64)
}

/// A service with so many threads answers connections of all queues.
fn any_threads(suite: &mut Suite<'_>, threads: u32) -> anyhow::Result<Outcome> {
    drop(suite.take_service());
    let service = suite.start(&Config::with_threads(threads))?;
    expect_answers(CONNECTIONS)?;
    let (share, queues) = (share(&service.terminate())?, suite.threads());
    let s = if queues == 1 { "" } else { "s" };
    passed(format!(
        "{queues} queue{s}, {CONNECTIONS} connections, {:.1} % forwarded",
        100.0 * share
    ))
}

/// One thread.
pub fn one_thread(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    any_threads(suite, 1)
}

/// Two threads.
pub fn two_threads(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    any_threads(suite, 2)
}

/// More threads than queues.
pub fn six_threads(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    any_threads(suite, 6)
}

/// Packets come to the thread that is home to their flow group.
pub fn forwarded(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    // A new one: others have moved flow groups.
    drop(suite.take_service());
    let service = suite.start(&Config::with_threads(suite.threads().max(2)))?;
    let has_table = table().is_some();
    in_namespace(|| {
        let opened: anyhow::Result<Vec<Connection>> =
            (0..CONNECTIONS).map(|_| Connection::open()).collect();
        let mut opened = opened?;
        for _ in 0..REQUESTS {
            opened.iter_mut().try_for_each(Connection::version)?;
        }
        Ok(())
    })?;
    let share = share(&service.terminate())?;
    let value = format!("{:.1} % forwarded", 100.0 * share);
    if has_table && share > FORWARDED_SHARE_MAX {
        let most = 100.0 * FORWARDED_SHARE_MAX;
        bail!(
            "expected {most:.0} % at most, since the driver has a table and a key; found {value}"
        );
    }
    let reason = if has_table { "" } else { "; the driver shows no table with a key" };
    passed(format!("{value}{reason}"))
}

/// Flow groups move there and back under load.
pub fn moves(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    let many = match suite.threads() {
        0 | 1 => {
            drop(suite.take_service());
            Some(suite.start(&Config::with_threads(2))?)
        }
        _ => {
            suite.service()?;
            None
        }
    };
    let (requests, tables) = under_load(CONNECTIONS, move_twice)?;
    drop(many);
    match tables {
        None => passed(format!("{requests} requests; the driver shows no table with a key")),
        Some(tables) if tables[0] == tables[1] => {
            bail!("the device's table is the same before and after a move")
        }
        Some(_) => passed(format!("{requests} requests, the table changed")),
    }
}

/// Moves all groups of thread 1 to thread 0 and back; returns the tables before and between, where there is one.
fn move_twice() -> anyhow::Result<Option<[String; 2]>> {
    std::thread::sleep(MOVE_PAUSE);
    let before = table();
    command::run(&format!("tailplane ctl {NAME} move 1 0 all"))?;
    std::thread::sleep(MOVE_PAUSE);
    let between = table();
    command::run(&format!("tailplane ctl {NAME} move 0 1 all"))?;
    std::thread::sleep(MOVE_PAUSE);
    Ok(before.zip(between).map(|(before, between)| [before, between]))
}
