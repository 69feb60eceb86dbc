//! The attacked service's client, on the kernel's stack: it opens, asks, closes and aborts, pings about every
//! millisecond, and hears what the service sends of itself.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::Context;
use rand::{RngExt, SeedableRng};
use rand_xoshiro::Xoshiro256PlusPlus;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, ipproto};
use service::lab::Lab;
use service::lab::constants::DATAPLANE_ADDRESS;
use wire::{IcmpRepr, Sum};

use super::super::pings::Counted;
use crate::crowd::{DATAGRAM_PORT, PORT, Seen};

const EVERY: Duration = Duration::from_millis(1);
/// How long a connection may take to open.
const OPENS_WITHIN: Duration = Duration::from_millis(20);
const LINES: usize = 12;
/// Above the attacked threads on its processor, which may always have work; both threads here sleep after each act.
const PRIORITY: u8 = 2;
/// How the pings are told from others.
const NAME: u16 = 0x7471;
/// Bytes of an IPv4 header without options.
const IP: usize = 20;

/// See the module's comment.
pub struct Client {
    stop: Arc<AtomicBool>,
    crowd: JoinHandle<anyhow::Result<Seen>>,
    pings: JoinHandle<anyhow::Result<()>>,
}

impl Client {
    /// Starts one in the lab's client namespace, on a processor.
    ///
    /// # Errors
    /// No thread could be started.
    pub fn start(lab: &Lab, counted: &Arc<Counted>, seed: u64, cpu: usize) -> anyhow::Result<Self> {
        let stop = Arc::new(AtomicBool::new(false));
        let theirs = Arc::clone(&stop);
        let crowd = inside(lab, cpu, "crowd", move || Crowd::new(seed)?.run(&theirs))?;
        let (theirs, counted) = (Arc::clone(&stop), Arc::clone(counted));
        let pings = inside(lab, cpu, "pings", move || ping(&counted, &theirs))?;
        Ok(Self { stop, crowd, pings })
    }

    /// Ends it.
    ///
    /// # Errors
    /// It could not do its part: nothing is known about the attack then.
    pub fn stop(self) -> anyhow::Result<Seen> {
        self.stop.store(true, Ordering::Relaxed);
        let panicked = |_| anyhow::anyhow!("a thread of the client panicked");
        self.pings.join().map_err(panicked)??;
        self.crowd.join().map_err(panicked)?
    }
}

/// A thread in the lab's client namespace, on a processor.
fn inside<R: Send + 'static>(
    lab: &Lab,
    cpu: usize,
    name: &str,
    body: impl FnOnce() -> anyhow::Result<R> + Send + 'static,
) -> anyhow::Result<JoinHandle<anyhow::Result<R>>> {
    let namespace = lab.client().clone();
    let inside = move || {
        measure::pin(cpu)?;
        // It is slower without.
        let _ = runtime::set_realtime(PRIORITY);
        namespace.enter()?;
        body()
    };
    std::thread::Builder::new().name(name.into()).spawn(inside).context("starting a thread")
}

struct Crowd {
    random: Xoshiro256PlusPlus,
    lines: Vec<TcpStream>,
    listener: TcpListener,
    datagrams: UdpSocket,
    seen: Seen,
}

impl Crowd {
    fn new(seed: u64) -> anyhow::Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, PORT)).context("listening")?;
        let datagrams =
            UdpSocket::bind((Ipv4Addr::UNSPECIFIED, DATAGRAM_PORT)).context("binding")?;
        listener.set_nonblocking(true)?;
        datagrams.set_nonblocking(true)?;
        let random = Xoshiro256PlusPlus::seed_from_u64(seed);
        Ok(Self { random, lines: Vec::new(), listener, datagrams, seen: Seen::default() })
    }

    fn run(mut self, stop: &AtomicBool) -> anyhow::Result<Seen> {
        while !stop.load(Ordering::Relaxed) {
            self.act();
            self.hear();
            std::thread::sleep(EVERY);
        }
        Ok(self.seen)
    }

    /// What the kernel has no room for, or the service ends, is not sent: the crowd has no plan.
    fn act(&mut self) {
        let server = SocketAddr::from((DATAPLANE_ADDRESS, PORT));
        if self.lines.len() < LINES
            && let Ok(line) = TcpStream::connect_timeout(&server, OPENS_WITHIN)
            && line.set_nonblocking(true).is_ok()
        {
            self.seen.connected += 1;
            self.lines.push(line);
        }
        let datagram = (DATAPLANE_ADDRESS, DATAGRAM_PORT);
        let act = self.random.random_range(0..32);
        let _ = match (act, self.lines.is_empty()) {
            (0, _) => self.datagrams.send_to(b"datagram", datagram).map(|_| ()),
            (_, true) => Ok(()),
            (1..=2, _) => {
                let line = self.random.random_range(0..self.lines.len());
                drop(self.lines.swap_remove(line));
                Ok(())
            }
            (act, _) => {
                let line = self.random.random_range(0..self.lines.len());
                let bytes: &[u8] = if act < 6 { &[b'x'; 4_000] } else { b"request" };
                self.lines[line].write(bytes).map(|_| ())
            }
        };
    }

    fn hear(&mut self) {
        let Self { lines, seen, .. } = self;
        let mut bytes = [0; 4_096];
        lines.retain_mut(|line| match line.read(&mut bytes) {
            Ok(0) => false,
            Ok(_) => {
                seen.answered += 1;
                true
            }
            Err(error) => error.kind() == ErrorKind::WouldBlock,
        });
        while self.listener.accept().is_ok() {
            self.seen.reached += 1;
        }
        while self.datagrams.recv(&mut bytes).is_ok() {
            self.seen.reached += 1;
        }
    }
}

/// Sends echo requests (RFC 792), and counts the answers.
fn ping(counted: &Counted, stop: &AtomicBool) -> anyhow::Result<()> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket =
        rustix::net::socket_with(AddressFamily::INET, SocketType::RAW, flags, Some(ipproto::ICMP))
            .context("opening a socket for pings")?;
    let server = SocketAddr::from((DATAPLANE_ADDRESS, 0));
    let mut answer = [0; 256];
    let mut sequence = 0_u16;
    while !stop.load(Ordering::Relaxed) {
        let mut request = [0; 24];
        IcmpRepr::EchoRequest { ident: NAME, seq: sequence }.emit(&mut request, Sum::of(&[]));
        sequence = sequence.wrapping_add(1);
        if rustix::net::sendto(&socket, &request, SendFlags::empty(), &server).is_ok() {
            counted.sent.fetch_add(1, Ordering::Relaxed);
        }
        std::thread::sleep(EVERY);
        while let Ok((bytes, _)) = rustix::net::recv(&socket, &mut answer[..], RecvFlags::empty()) {
            let icmp = answer.get(IP..bytes.min(answer.len())).unwrap_or_default();
            if icmp.first() == Some(&0) && icmp.get(4..6) == Some(&NAME.to_be_bytes()) {
                counted.answered.fetch_add(1, Ordering::Relaxed);
            }
        }
    }
    Ok(())
}
