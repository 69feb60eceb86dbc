//! Floods of spoofed SYNs for real: from a raw socket at one end of a veth pair, against a service that `tailplane run`
//! started at the other end, with a client whose requests are checked and timed meanwhile.

use std::io::Write;
use std::net::SocketAddrV4;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use measure::shuffled;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use reproduce::Grid;
use rustix::net::{AddressFamily, SendFlags, SocketType, ipproto, sendto, socket};
use service::lab::constants::{CLIENT_ADDRESS, DATAPLANE_ADDRESS};
use service::lab::{Lab, LabConfig, Namespace};
use wire::{Endpoint, EthernetRepr, Ipv4Addr};

use super::super::gate::{Ends, Gate};
use super::super::measured::Measured;
use super::super::requests::Requests;
use super::super::{SETTLE, own};
use super::neighbour::Neighbour;
use super::{RATIO_MAX, WINDOW};
use crate::crowd::PORT;
use crate::tcp::frames::Segment;

/// A flood's name, what it sends, whether its addresses are the network's own, and the time between its SYNs: none where
/// they follow as fast as a core sends them.
const FLOODS: [(&str, &str, bool, Duration); 4] = [
    ("far-fast", "SYNs from behind the gateway, as fast as one core sends", false, Duration::ZERO),
    ("near-fast", "the same from addresses that do not answer ARP", true, Duration::ZERO),
    ("far-slow", "SYNs from behind the gateway, 50 a second", false, Duration::from_millis(20)),
    (
        "near-slow",
        "the same from addresses that do not answer ARP",
        true,
        Duration::from_millis(20),
    ),
];

/// Runs each flood for so many seconds, half of them with the client alone, and prints what came of it. Answers whether no
/// request was lost, and no client noticed a flood.
///
/// # Errors
/// This user is not root, or the machine has no AF_XDP or no second processor.
pub fn run(seconds: f64, seed: u64, out: &mut impl Write) -> anyhow::Result<bool> {
    let cpus = own::processors()?;
    ensure!(cpus.len() > 1, "cannot flood a service: found one processor; use two");
    let folder = service::private::directory("flooded")?;
    let columns = ["flood", "SYNs", "honest requests", "lost", "p99 us quiet/attacked", "verdict"];
    let (mut table, mut failures) = (Grid::new(columns), Vec::new());
    for (name, what, is_near, gap) in FLOODS {
        let lab = Lab::create(LabConfig::unique("flooded")).context("making a lab")?;
        let gate = Arc::new(Gate::default());
        gate.close();
        let (from, passes, cpu) = (lab.client().clone(), Arc::clone(&gate), cpus[0]);
        let mut client = Neighbour::start(lab, folder.path(), cpus[cpus.len() - 1])?;
        let ends = Ends(&gate);
        let flood = std::thread::Builder::new().name(name.into());
        let flood = flood.spawn(move || flood_from(&from, cpu, is_near, gap, seed, &passes));
        let flood = flood.context("starting a thread")?;
        let (mut measured, began, mut rounds) = (Measured::new(RATIO_MAX), Instant::now(), 0);
        while began.elapsed().as_secs_f64() < seconds && !flood.is_finished() {
            rounds += 1;
            for attacked in shuffled(vec![false, true], seed.wrapping_add(rounds)) {
                if attacked {
                    gate.open()
                } else {
                    gate.close()
                }
                std::thread::sleep(SETTLE);
                measured.take(attacked, client.window(WINDOW));
            }
        }
        drop(ends);
        let sent = flood.join().map_err(|_| anyhow::anyhow!("the flood panicked"))??;
        let Requests { asked, lost, .. } = client.requests;
        let failed = measured.noticed();
        let failed = failed.or_else(|| (lost > 0).then(|| format!("{lost} requests were lost")));
        let failed = failed.or_else(|| (sent == 0).then(|| "no SYN was sent".to_owned()));
        let [quiet, attacked] = [false, true].map(|kind| measured.quartiles(kind)[1] as f64 / 1e3);
        table.row([
            format!("{name}: {what}"),
            sent.to_string(),
            asked.to_string(),
            lost.to_string(),
            format!("{quiet:.1}/{attacked:.1}"),
            if failed.is_some() { "FAILED" } else { "passed" }.to_owned(),
        ]);
        failures.extend(failed.map(|why| format!("{name}: {why}")));
    }
    writeln!(out, "{table}")?;
    failures.iter().try_for_each(|failure| writeln!(out, "{failure}"))?;
    Ok(failures.is_empty())
}

/// Sends SYNs while `gate` is open, until the attack is over. Answers how many.
fn flood_from(
    from: &Namespace,
    cpu: usize,
    is_near: bool,
    gap: Duration,
    seed: u64,
    gate: &Gate,
) -> anyhow::Result<u64> {
    measure::pin(cpu)?;
    from.enter()?;
    // With this protocol what is sent is a whole IPv4 packet, whatever its source.
    let raw = socket(AddressFamily::INET, SocketType::RAW, Some(ipproto::RAW))
        .context("opening a raw socket")?;
    let to = SocketAddrV4::new(DATAPLANE_ADDRESS, PORT);
    let mut random = Xoshiro256PlusPlus::seed_from_u64(seed);
    let [a, b, c, _] = CLIENT_ADDRESS.octets();
    let mut sent = 0;
    while !gate.is_over() {
        gate.pass();
        let source = match is_near {
            true => Ipv4Addr::new(a, b, c, random.random_range(5..255)),
            false => Ipv4Addr::new(198, 18, random.random(), random.random()),
        };
        let source = Endpoint::new(source, random.random_range(1_024..=u16::MAX));
        let syn = Segment {
            dst: Endpoint::new(DATAPLANE_ADDRESS, PORT),
            ..Segment::syn(source, random.random(), u16::MAX)
        };
        let packet = &syn.frame()[EthernetRepr::HEADER_LEN..];
        // What the socket has no room for is not sent: the next one follows at once.
        sent += u64::from(sendto(&raw, packet, SendFlags::empty(), &to).is_ok());
        if !gap.is_zero() {
            std::thread::sleep(gap);
        }
    }
    Ok(sent)
}
