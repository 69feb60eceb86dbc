//! Traffic: pings, items, connections, bytes.

use anyhow::{Context, bail, ensure};

use super::load::expect_answers;
use super::outcome::{not_possible, passed};
use super::start::mode_of;
use crate::guest::client::{Connection, PING_HEADER_BYTES, in_namespace, ping};
use crate::guest::command::{self, one_line};
use crate::guest::rig::{CLIENT, DATAPLANE, NAMESPACE, ip};
use crate::guest::service::{ADDRESS, Config};
use crate::guest::suite::Suite;
use crate::protocol::Outcome;

/// The interfaces' usual MTU.
const MTU: usize = 1500;
/// A large one.
const JUMBO_MTU: usize = 9000;
/// Largest data of a ping in one frame.
const PING_DATA_MAX: usize = MTU - PING_HEADER_BYTES;
/// From size to size where nothing is expected to change.
const PING_STRIDE: usize = 37;
/// Sizes that are lost until no more are tried.
const LOST_MAX: usize = 12;
/// Connections at once.
const CONNECTIONS: usize = 64;
/// Bytes of the largest item: its key and header count, too.
const LARGEST: usize = (1 << 20) - 1024;
/// Bytes of an item of the transfer.
const ITEM_BYTES: usize = 500_000;
/// Items of the transfer: 100 MB.
const ITEMS: usize = 200;
/// The same in the short form.
const ITEMS_SHORT: usize = 4;
/// Items behind netem: 8 MB.
const NETEM_ITEMS: usize = 16;
/// What netem does to the client's frames.
const IMPAIRMENT: &str = "loss 1% delay 2ms reorder 5%";

/// Sizes of pings: all near 1 KiB and near the MTU, and some between.
fn ping_sizes(is_short: bool) -> Vec<usize> {
    let stride = if is_short { 7 } else { 1 };
    let mut sizes: Vec<usize> = (0..PING_DATA_MAX).step_by(PING_STRIDE).collect();
    sizes.extend((900..1100).step_by(stride));
    sizes.extend(PING_DATA_MAX - 24..=PING_DATA_MAX);
    sizes.sort_unstable();
    sizes.dedup();
    sizes
}

/// Each size is answered.
pub fn pings(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    suite.service()?;
    let sizes = ping_sizes(suite.is_short);
    let (mut answered, mut lost) = (0, Vec::new());
    for &size in &sizes {
        // One more for a frame that an emulated machine lost.
        if ping(size, "1")? || ping(size, "1")? {
            answered += 1;
        } else {
            lost.push(size);
        }
        if lost.len() >= LOST_MAX {
            break;
        }
    }
    if let (Some(first), Some(last)) = (lost.first(), lost.last()) {
        let tried = answered + lost.len();
        bail!("{} of {tried} sizes lost, between {first} and {last} B of data", lost.len());
    }
    passed(format!("{answered} sizes up to {PING_DATA_MAX} B"))
}

/// Items of each size come back as they were.
pub fn items(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    suite.service()?;
    let sizes = [
        1, 2, 63, 64, 65, 500, 900, 1000, 1024, 1400, 1448, 1460, 1461, 1500, 2000, 2048, 4000,
        4096, 9000, 16_384, 65_535, 65_536, 100_000, 262_144, 500_000, 1_000_000, LARGEST,
    ];
    in_namespace(|| {
        let mut open = Connection::open()?;
        for size in sizes {
            let (key, value) =
                (format!("item-{size}"), crate::guest::client::pattern(size as u64, size));
            open.set(&key, &value).with_context(|| format!("an item of {size} B set"))?;
            open.get(&key, &value).with_context(|| format!("an item of {size} B got"))?;
        }
        Ok(())
    })?;
    passed(format!("{} sizes", sizes.len()))
}

/// All connections at once are answered.
pub fn connections(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    suite.service()?;
    expect_answers(CONNECTIONS)?;
    passed(format!("{CONNECTIONS}"))
}

/// Bytes each way, on four connections.
pub fn transfer(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    suite.service()?;
    let items = if suite.is_short { ITEMS_SHORT } else { ITEMS };
    let began = std::time::Instant::now();
    transfer_items(items)?;
    let megabytes = items * ITEM_BYTES / 1_000_000;
    passed(format!("{megabytes} MB each way in {:.0} s", began.elapsed().as_secs_f64()))
}

/// Stores and fetches so many items, on four connections.
fn transfer_items(items: usize) -> anyhow::Result<()> {
    in_namespace(|| {
        let mut open =
            [Connection::open()?, Connection::open()?, Connection::open()?, Connection::open()?];
        for number in 0..items {
            let value = crate::guest::client::pattern(number as u64 + 7, ITEM_BYTES);
            let key = format!("transfer-{}", number % 16);
            let connection = &mut open[number % 4];
            connection
                .set(&key, &value)
                .with_context(|| format!("item {number} of {items} set"))?;
            connection
                .get(&key, &value)
                .with_context(|| format!("item {number} of {items} got"))?;
        }
        Ok(())
    })
}

/// The client's frames are lost, late and out of order, and all bytes arrive.
pub fn netem(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    suite.service()?;
    let tc = |words: &str| command::run(&format!("tc -n {NAMESPACE} {words}"));
    if let Err(error) = tc(&format!("qdisc add dev {CLIENT} root netem {IMPAIRMENT}")) {
        return not_possible(format!("{error:#}"));
    }
    let arrived = expect_answers(16).and_then(|()| transfer_items(NETEM_ITEMS));
    let shown = tc(&format!("-s qdisc show dev {CLIENT}"));
    tc(&format!("qdisc del dev {CLIENT} root")).context("taking the impairment away")?;
    arrived?;
    let shown = one_line(&shown?);
    // `Sent 1 bytes 2 pkt (dropped 3, ...`
    let number = |before: &str| {
        let (_, rest) = shown.split_once(before)?;
        rest.split([' ', ',']).next()?.parse::<u64>().ok()
    };
    let (sent, lost) = number(" bytes ")
        .zip(number("(dropped "))
        .with_context(|| format!("no count of lost frames in: {shown}"))?;
    ensure!(lost > 0, "netem lost none of {sent} frames");
    let megabytes = NETEM_ITEMS * ITEM_BYTES / 1_000_000;
    passed(format!("{megabytes} MB each way, {lost} of the client's {sent} frames lost"))
}

/// A service that starts on an interface with a large MTU serves; peers may send it segments as large as packets that
/// it receives.
pub fn jumbo(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    drop(suite.take_service());
    let set = |mtu: usize| {
        ip(&format!("link set {DATAPLANE} mtu {mtu}"))?;
        ip(&format!("-n {NAMESPACE} link set {CLIENT} mtu {mtu}"))
    };
    let found = match set(JUMBO_MTU) {
        Ok(()) => serve_jumbo(suite),
        Err(error) => not_possible(format!("the driver refuses an MTU of {JUMBO_MTU}: {error}")),
    };
    set(MTU).context("the usual MTU again")?;
    found
}

fn serve_jumbo(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    let service = match suite.start(&Config::with_threads(suite.threads())) {
        // With such an MTU the driver has not the mode that is demanded.
        Err(refused) if suite.task.demanded.is_some() => {
            let said = format!("{refused:#}");
            ensure!(said.contains("refuses native XDP"), said);
            return passed(format!("refused: {said}"));
        }
        started => started?,
    };
    let has_several = service.driver.contains("several a frame");
    let segment = in_namespace(|| {
        let mut open = Connection::open()?;
        open.set("jumbo", &crate::guest::client::pattern(5, ITEM_BYTES))?;
        let shown = command::run(&format!("ip netns exec {NAMESPACE} ss -tin dst {ADDRESS}"))?;
        let words = shown.split_whitespace();
        let segments = words.filter_map(|word| word.strip_prefix("mss:")?.parse().ok());
        segments.max().with_context(|| format!("no segment size in: {}", one_line(&shown)))
    })?;
    transfer_items(ITEMS_SHORT * 4)?;
    let announced = one_line(&service.output());
    // Headers and timestamps.
    let least = if has_several { JUMBO_MTU - 60 } else { 1000 };
    if !(least..JUMBO_MTU).contains(&segment) {
        bail!("expected segments of {least} B and more, found {segment}: {announced}");
    }
    if !has_several && !announced.contains("are dropped") {
        bail!("larger packets are dropped, and nothing said so: {announced}");
    }
    let how = if has_several { "several chunks a frame" } else { "larger packets are dropped" };
    let mode = mode_of(&service.driver).context("no mode is announced")?;
    passed(format!("segments of {segment} B, {mode}; {how}"))
}
