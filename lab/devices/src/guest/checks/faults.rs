//! What others do to the interface while a service runs.

use std::fs;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail, ensure};

use super::load::expect_answers;
use super::outcome::{not_possible, passed};
use crate::guest::client::{self, Connection, in_namespace};
use crate::guest::command::{self, wait_until};
use crate::guest::processes;
use crate::guest::rig::{self, CLIENT, DATAPLANE, NAMESPACE, ip};
use crate::guest::service::{Config, START_LIMIT, STOP_LIMIT, Service, quoted};
use crate::guest::suite::Suite;
use crate::protocol::{Driver, Outcome};

/// Connections that show that it serves again.
const CONNECTIONS: usize = 8;
/// How long a link is down.
const DOWN_TIME: Duration = Duration::from_millis(500);
/// How long a service is watched on an interface that is down.
const DOWN_LIMIT: Duration = Duration::from_secs(15);
/// Longest time for a service to notice that its interface is gone.
const REMOVAL_LIMIT: Duration = Duration::from_secs(20);

/// A second service on the same interface is refused, with the owner of its XDP program.
pub fn taken(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    suite.service()?;
    let owners = processes::named("tailplane");
    let second = Config { host: 4, ..Config::with_threads(suite.threads()) };
    let mut service = Service::begin(suite.task, &second)?;
    wait_until(START_LIMIT, || service.has_ended() || service.is_announced());
    if !service.has_ended() {
        bail!("a second service runs on {DATAPLANE}: {}", quoted(&service.terminate().output));
    }
    let ended = service.wait(STOP_LIMIT);
    let said = quoted(&ended.output);
    if ended.status.is_none_or(|status| status.success()) {
        bail!("the second service {}: {said}", ended.how());
    }
    expect_answers(CONNECTIONS).context("the first service, after the second was refused")?;
    let names_owner = owners.iter().any(|pid| words(&said).any(|word| word == pid));
    if !names_owner {
        bail!("expected the queue and the owner's process ({}), found: {said}", owners.join(" "));
    }
    passed(said)
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_alphanumeric())
}

/// A connection from before a disturbance still answers after it, and so do new ones.
fn survives(
    suite: &mut Suite<'_>,
    disturb: impl FnOnce() -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    suite.service()?;
    let mut open = in_namespace(Connection::answered).context("before")?;
    disturb()?;
    rig::wait_for_links().context("after")?;
    ensure!(suite.wait_for_answer(), "answers no ping after it");
    in_namespace(|| open.version()).context("the connection from before")?;
    expect_answers(CONNECTIONS).context("after it")
}

/// A service on an interface that is down announces nothing before it has a link: it sets the interface up, waits, or
/// ends with the reason.
pub fn down(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    drop(suite.take_service());
    ip(&format!("link set {DATAPLANE} down"))?;
    let mut service = Service::begin(suite.task, &Config::with_threads(suite.threads()))?;
    wait_until(DOWN_LIMIT, || service.has_ended() || service.is_announced());
    let (was_announced, had_carrier) = (service.is_announced(), rig::has_carrier());
    let has_ended = service.has_ended();
    ip(&format!("link set {DATAPLANE} up"))?;
    let links = rig::wait_for_links();
    ensure!(had_carrier || !was_announced, "announced on an interface that is down");
    if has_ended {
        let ended = service.wait(STOP_LIMIT);
        let said = quoted(&ended.output);
        let names_it =
            ["down", "link", "carrier"].iter().any(|word| words(&said).any(|found| found == *word));
        if !names_it || ended.status.is_none_or(|status| status.success()) {
            bail!("expected a reason and a status other than 0; it {}: {said}", ended.how());
        }
        return passed(format!("refused: {said}"));
    }
    links?;
    if !wait_until(START_LIMIT, || service.is_announced()) {
        bail!("announced nothing after the link came up: {}", quoted(&service.terminate().output));
    }
    ensure!(suite.wait_for_answer(), "announced after the link came up, and answers no ping");
    passed(if was_announced { "it set the interface up" } else { "announced when the link was up" })
}

/// A link goes down and up, which these words of `ip` name.
fn down_and_up(suite: &mut Suite<'_>, link: &str) -> anyhow::Result<Outcome> {
    survives(suite, || {
        ip(&format!("{link} down"))?;
        std::thread::sleep(DOWN_TIME);
        ip(&format!("{link} up"))
    })?;
    passed("")
}

/// The client's link goes down and up.
pub fn client_link(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    down_and_up(suite, &format!("-n {NAMESPACE} link set {CLIENT}"))
}

/// The dataplane's link goes down and up.
pub fn own_link(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    down_and_up(suite, &format!("link set {DATAPLANE}"))
}

/// The MTU changes and changes back.
pub fn mtu(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    suite.service()?;
    if let Err(error) = ip(&format!("link set {DATAPLANE} mtu 1400")) {
        expect_answers(CONNECTIONS).context("after a change of the MTU that was refused")?;
        return not_possible(format!("the driver refuses it: {error}"));
    }
    let after = survives(suite, || Ok(()));
    ip(&format!("link set {DATAPLANE} mtu 1500"))?;
    after.context("with an MTU of 1400")?;
    survives(suite, || Ok(())).context("with an MTU of 1500 again")?;
    if !client::ping(1472, "2")? && !client::ping(1472, "2")? {
        bail!("a ping of 1472 B is lost after the MTU went to 1400 and back to 1500");
    }
    passed("")
}

/// The link is negotiated anew, the rings are made anew.
pub fn reset(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    suite.service()?;
    let mut done = Vec::new();
    let mut lines = vec![format!("-r {DATAPLANE}")];
    if let Some(entries) = ring_entries() {
        lines.push(format!("-G {DATAPLANE} rx {}", entries * 2));
        lines.push(format!("-G {DATAPLANE} rx {entries}"));
    }
    for line in lines {
        if command::run(&format!("ethtool {line}")).is_ok() {
            survives(suite, || Ok(())).with_context(|| format!("ethtool {line}"))?;
            done.push(format!("ethtool {line}"));
        }
    }
    match done.is_empty() {
        true => not_possible("the driver has neither resets nor rings to change"),
        false => passed(done.join(", ")),
    }
}

/// Entries of the receive rings, where the driver shows them.
fn ring_entries() -> Option<u32> {
    let shown = command::run(&format!("ethtool -g {DATAPLANE}")).ok()?;
    let (_, current) = shown.split_once("Current")?;
    let line = current.lines().find_map(|line| line.strip_prefix("RX:"))?;
    line.trim().parse().ok()
}

/// The interface goes while the service runs.
pub fn removed(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    let mut service = suite.take_running()?;
    let before = service.output().len();
    remove(suite.task.driver).context("removing the interface")?;
    wait_until(REMOVAL_LIMIT, || service.has_ended());
    let (has_ended, output) = (service.has_ended(), service.output());
    let said = quoted(output.get(before..).unwrap_or_default());
    ensure!(!output.contains("panicked"), "it panicked: {said}");
    let limit_s = REMOVAL_LIMIT.as_secs();
    if !has_ended && output.len() <= before {
        bail!("{limit_s} s after its interface had gone it neither ended nor reported");
    }
    let ended = service.terminate();
    if ended.status.is_none() {
        bail!("it hangs: SIGTERM did not end it within {} s; {said}", STOP_LIMIT.as_secs());
    }
    passed(format!("{}: {said}", if has_ended { "ended" } else { "reported" }))
}

/// Takes the interface away, as pulling the card would.
fn remove(driver: Driver) -> anyhow::Result<()> {
    if driver == Driver::Veth {
        return ip(&format!("link del {DATAPLANE}"));
    }
    let link = Path::new("/sys/class/net").join(DATAPLANE).join("device");
    let mut device = link.canonicalize().context("finding the device")?;
    if driver == Driver::VirtioNet {
        // The virtio device is a child of the PCI device.
        device.pop();
    }
    let slot = device.file_name().context("the device has no name")?.to_string_lossy().into_owned();
    let file = device.join("driver/unbind");
    // A driver that waits for its users does not return.
    let unbind = std::thread::spawn(move || fs::write(file, slot));
    if !wait_until(REMOVAL_LIMIT, || unbind.is_finished()) {
        bail!("the kernel did not let the device go within {} s", REMOVAL_LIMIT.as_secs());
    }
    unbind.join().ok().context("the thread panicked")?.context("unbinding the device")
}
