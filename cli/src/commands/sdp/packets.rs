//! `tailplane sdp packets`: a tenant of a gateway. It sends UDP packets and waits for their echoes; or it
//! echoes what comes.

use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, bail};
use gateway::{ClientError, GatewayTenant, Refusal};
use hdrhistogram::Histogram;
use serde::Serialize;
use wire::{Endpoint, Ipv4View, UdpView, emit_udp_packet};

use super::json::write_or_print;

/// The first port that packets are sent from: one for each session.
const FIRST_PORT: u16 = 40_000;
/// Bytes before a payload: an IPv4 and a UDP header.
const HEADERS: usize = 28;
/// The longest payload: with the tunnel's headers it fits the smallest MTU that a gateway can have.
const PAYLOAD_MAX: usize = 1_160;
/// Longest packet that is received.
const PACKET_BYTES: u32 = 1_500;
/// How long an echoing tenant sleeps before it looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// Arguments of `tailplane sdp packets`.
#[derive(Debug, clap::Args)]
pub struct PacketArgs {
    /// Where the gateway's plane is.
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
    /// This tenant's address, one of the gateway's range.
    #[arg(long, value_name = "IPV4")]
    pub address: Ipv4Addr,
    /// Send to this address, and wait for the echoes. Without it: echo what comes.
    #[arg(long, value_name = "IPV4")]
    pub to: Option<Ipv4Addr>,
    /// The port that is sent to, and echoed at.
    #[arg(long, default_value_t = 7, value_name = "N")]
    pub port: u16,
    /// Packets to be sent, one after the other.
    #[arg(long, default_value_t = 1_000, value_name = "N")]
    pub count: u32,
    /// Sessions that they belong to, in turn: each has a port of its own.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub sessions: u16,
    /// Bytes of a packet's payload: 8 to 1,160.
    #[arg(long, default_value_t = 64, value_name = "N")]
    pub bytes: usize,
    /// How long an echo may take, in milliseconds.
    #[arg(long, default_value_t = 1_000, value_name = "MS")]
    pub timeout_ms: u64,
    /// Serve the gateway's virtual address, too, which this is (without `--to`): answers come from it.
    #[arg(long, value_name = "IPV4", conflicts_with = "to")]
    pub serves: Option<Ipv4Addr>,
    /// End an echoing tenant after this many seconds instead of at Ctrl-C.
    #[arg(long, value_name = "N", conflicts_with = "to")]
    pub seconds: Option<u64>,
    /// Write the result as JSON; `-`: to the standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// What was sent and came back.
#[derive(Debug, Serialize)]
struct Sent {
    sent: u32,
    answered: u32,
    bytes: usize,
    sessions: u16,
    p50_us: f64,
    p99_us: f64,
    max_us: f64,
}

/// What was echoed.
#[derive(Debug, Serialize)]
struct Echoed {
    echoed: u64,
    others: u64,
}

/// Runs `tailplane sdp packets`.
///
/// # Errors
/// A gateway that cannot be joined or refuses, echoes that are wrong or missing.
pub fn packets(args: &PacketArgs, stop: &AtomicBool) -> anyhow::Result<()> {
    if !(8..=PAYLOAD_MAX).contains(&args.bytes) {
        bail!("`--bytes` is {}; allowed: 8 to {PAYLOAD_MAX}", args.bytes);
    }
    let sessions_max = u16::MAX - FIRST_PORT;
    if args.sessions == 0 || args.sessions > sessions_max {
        bail!("`--sessions` is {}; allowed: 1 to {sessions_max}", args.sessions);
    }
    let joined =
        GatewayTenant::join(&args.socket, args.address, args.serves.is_some(), PACKET_BYTES);
    let mut tenant = joined.map_err(|error| match error {
        ClientError::Refused(Refusal::BadRequest) => anyhow::anyhow!(
            "the plane at {} serves something else than a gateway: start one with `tailplane sdp \
             serve --service gateway`",
            args.socket.display()
        ),
        error => error.into(),
    })?;
    match args.to {
        Some(to) => send(args, to, &mut tenant, stop),
        None => echo(args, &mut tenant, stop),
    }
}

/// A datagram: whence, whither and what. `None` for what is no sound UDP packet.
fn parse(packet: &[u8]) -> Option<(Endpoint, Endpoint, &[u8])> {
    let ip = Ipv4View::parse(packet).ok().filter(Ipv4View::verify_checksum)?;
    let udp = UdpView::parse(ip.payload()).ok()?;
    let sound = ip.protocol() == wire::Protocol::UDP && udp.verify_checksum(ip.src(), ip.dst());
    let (from, to) =
        (Endpoint::new(ip.src(), udp.src_port()), Endpoint::new(ip.dst(), udp.dst_port()));
    sound.then_some((from, to, udp.payload()))
}

/// Sends a packet, and again where the gateway had no room for it.
fn send_packet(tenant: &mut GatewayTenant, packet: &[u8]) -> anyhow::Result<()> {
    for _ in 0..1_000 {
        match tenant.send(packet) {
            Err(ClientError::Refused(Refusal::Busy)) => std::thread::yield_now(),
            done => return done.map_err(Into::into),
        }
    }
    bail!("the gateway has no room for a packet: its device sends nothing; is the link up?")
}

fn send(
    args: &PacketArgs,
    to: Ipv4Addr,
    tenant: &mut GatewayTenant,
    stop: &AtomicBool,
) -> anyhow::Result<()> {
    let mut packet = vec![0; HEADERS + args.bytes];
    let mut payload = vec![0; args.bytes];
    let mut latency_ns = Histogram::<u64>::new_with_bounds(1, 60_000_000_000, 3)?;
    let (mut sent, mut answered) = (0, 0);
    while sent < args.count && !stop.load(Ordering::Relaxed) {
        payload[..8].copy_from_slice(&u64::from(sent).to_le_bytes());
        let port = FIRST_PORT + (sent % u32::from(args.sessions)) as u16;
        let (us, them) = (Endpoint::new(args.address, port), Endpoint::new(to, args.port));
        emit_udp_packet(&mut packet, us, them, &payload);
        let start = Instant::now();
        send_packet(tenant, &packet)?;
        sent += 1;
        let end = start + Duration::from_millis(args.timeout_ms);
        loop {
            let left = end.saturating_duration_since(Instant::now());
            let Some(came) = tenant.receive(left)? else { break };
            // What is older than the last packet came too late, and was counted as missing.
            let echo = parse(&came) == Some((them, us, payload.as_slice()));
            if echo {
                answered += 1;
                let nanos = start.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
                latency_ns.saturating_record(nanos);
                break;
            }
        }
    }
    let at = |quantile: f64| latency_ns.value_at_quantile(quantile) as f64 / 1_000.0;
    let result = Sent {
        sent,
        answered,
        bytes: args.bytes,
        sessions: args.sessions,
        p50_us: at(0.5),
        p99_us: at(0.99),
        max_us: latency_ns.max() as f64 / 1_000.0,
    };
    let text = format!(
        "{answered} of {sent} packets of {} bytes came back; round trip p50 {:.1} us, p99 {:.1}, \
         max {:.1}\n",
        result.bytes, result.p50_us, result.p99_us, result.max_us
    );
    write_or_print(args.json.as_ref(), &result, &text)?;
    if answered < sent {
        bail!(
            "{} packets did not come back: is somebody at {to} who echoes (`tailplane sdp packets` \
             without `--to`), and do both gateways name each other's tunnel end?",
            sent - answered
        );
    }
    Ok(())
}

fn echo(args: &PacketArgs, tenant: &mut GatewayTenant, stop: &AtomicBool) -> anyhow::Result<()> {
    eprintln!("echoing at {}:{}", args.address, args.port);
    let start = Instant::now();
    let over = || args.seconds.is_some_and(|end| start.elapsed().as_secs() >= end);
    let mut packet = vec![0; PACKET_BYTES as usize];
    let mut counts = Echoed { echoed: 0, others: 0 };
    while !stop.load(Ordering::Relaxed) && !over() {
        let came = tenant.receive(LOOK).context("receiving")?;
        let Some(came) = came else { continue };
        let Some((from, to, payload)) = parse(&came).filter(|(_, to, _)| to.port == args.port)
        else {
            counts.others += 1;
            continue;
        };
        let us = Endpoint::new(args.serves.map_or(to.addr, Into::into), to.port);
        let len = emit_udp_packet(&mut packet, us, from, payload);
        send_packet(tenant, &packet[..len])?;
        counts.echoed += 1;
    }
    let text = format!("{} packets echoed, {} others\n", counts.echoed, counts.others);
    write_or_print(args.json.as_ref(), &counts, &text)
}
