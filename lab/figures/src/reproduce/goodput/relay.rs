//! Between two interfaces of one namespace: a frame that comes to one leaves by the other, when and if the path between
//! them lets it.

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, ensure};
use mem::{HugePages, Pool, Region};
use nic::af_xdp::{AfXdp, AfXdpConfig, XdpSocket};
use nic::xdp_program::{XdpFilter, XdpProgram};
use nic::{Armed, Nic, NicStats};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tailplane::{Clock, Duration, Instant, MonotonicClock};
use world::path::{Link, Path};

/// Chunks of packet memory of an end: what its rings hold, twice over. Frames on their way lie elsewhere.
const CHUNKS: usize = 16_384;
/// Frames that are taken at a time.
const BATCH: usize = 64;
/// Longest that the relay sleeps without looking whether it is to end.
const NAP: Duration = Duration::from_millis(10);
/// A frame that leaves so long after its time is late.
const LATE: Duration = Duration::from_millis(1);

/// An interface of the relay.
struct End {
    nic: AfXdp,
    pool: Pool,
    carried: Carried,
    /// It takes the frames as long as it lives; the socket goes first.
    _program: XdpProgram,
}

impl End {
    fn open(interface: &str, takes: &[Ipv4Addr]) -> anyhow::Result<Self> {
        let region = Region::map(CHUNKS, HugePages::No)?;
        let addresses = takes.iter().map(|&address| address.into()).collect();
        let filter = XdpFilter { addresses, ..XdpFilter::default() };
        let mut program = XdpProgram::attach(interface, &filter)?;
        let mapped = XdpSocket::open(&AfXdpConfig::new(interface, 0), &region)?;
        program.register(0, mapped.socket().fd())?;
        Ok(Self {
            nic: AfXdp::new(mapped)?,
            pool: Pool::new(&region, CHUNKS),
            carried: Carried::default(),
            _program: program,
        })
    }

    /// Gives the path what has come.
    fn take(&mut self, now: Instant, link: &mut Link, is_doomed: &mut impl FnMut(&[u8]) -> bool) {
        let Self { nic, pool, .. } = self;
        let mut received = Vec::new();
        while nic.receive(now, pool, &mut received, BATCH) > 0 {
            for mbuf in received.drain(..) {
                let doomed = is_doomed(mbuf.bytes());
                link.send(now, mbuf.bytes().to_vec(), doomed);
                pool.free(mbuf);
            }
        }
    }

    /// Sends what the path has let through.
    fn send(&mut self, now: Instant, link: &mut Link) -> anyhow::Result<()> {
        let Self { nic, pool, carried, .. } = self;
        let mut outgoing = Vec::new();
        // The others of a late one's batch are late as well, or nearly.
        let is_late = link.next().is_some_and(|due| now.since(due) > LATE);
        for frame in link.receive(now) {
            let mut mbuf = pool.alloc().context("the relay has no packet memory left")?;
            mbuf.append(&frame).context("the relay got a frame that is too long")?;
            outgoing.push(mbuf.into_tx());
            carried.frames += 1;
            carried.late += u64::from(is_late);
        }
        if !outgoing.is_empty() {
            nic.transmit(now, pool, &mut outgoing);
        }
        nic.reclaim(pool);
        ensure!(outgoing.is_empty(), "the relay found the device's ring full");
        Ok(())
    }
}

/// What the relay carried.
#[derive(Clone, Copy, Debug, Default)]
pub struct Carried {
    /// Frames that left.
    pub frames: u64,
    /// Those that left more than a millisecond after their time.
    pub late: u64,
}

/// See the module's comment.
pub struct Relay {
    /// Towards the client, towards the servers.
    ends: [End; 2],
}

impl Relay {
    /// Opens the relay in the calling thread's namespace, on interfaces with the addresses that frames coming there are for.
    ///
    /// # Errors
    /// What could not be opened.
    pub fn open(ends: [(&str, &[Ipv4Addr]); 2]) -> anyhow::Result<Self> {
        let [client, servers] = ends.map(|(interface, takes)| {
            End::open(interface, takes).with_context(|| format!("cannot relay over '{interface}'"))
        });
        Ok(Self { ends: [client?, servers?] })
    }

    /// Relays until it is stopped. Frames of the servers that `is_doomed` names are lost.
    ///
    /// # Errors
    /// What the relay could not do.
    pub fn run(
        &mut self,
        path: Path,
        mut is_doomed: impl FnMut(&[u8]) -> bool,
        stop: &AtomicBool,
    ) -> anyhow::Result<Carried> {
        let clock = MonotonicClock::new();
        let mut links = [0, 1].map(|direction| Link::new(path, direction, clock.now()));
        let [client, servers] = &mut self.ends;
        (client.carried, servers.carried) = Default::default();
        let mut looked = clock.now();
        while !stop.load(Ordering::Relaxed) {
            let [down, up] = &mut links;
            // What came meanwhile is late already, however soon it leaves now.
            let is_late = clock.now().since(looked) > NAP + LATE;
            client.carried.late += u64::from(is_late);
            looked = clock.now();
            servers.take(clock.now(), down, &mut is_doomed);
            client.take(clock.now(), up, &mut |_| false);
            client.send(clock.now(), down)?;
            servers.send(clock.now(), up)?;
            let next = links.iter().filter_map(Link::next).min();
            sleep([client, servers], &clock, next)?;
        }
        for end in [&*client, &*servers] {
            let NicStats { rx_no_buffer, rx_dropped, tx_dropped, .. } = end.nic.stats();
            let lost = rx_no_buffer + rx_dropped + tx_dropped;
            ensure!(
                lost == 0,
                "cannot use the run: found {lost} frames lost by the relay's device"
            );
        }
        let [down, up] = [client.carried, servers.carried];
        Ok(Carried { frames: down.frames + up.frames, late: down.late + up.late })
    }
}

/// Sleeps until a frame comes, or is due.
fn sleep(ends: [&mut End; 2], clock: &MonotonicClock, next: Option<Instant>) -> anyhow::Result<()> {
    let [client, servers] = ends.map(|end| &mut end.nic);
    if client.arm() == Armed::Quiet && servers.arm() == Armed::Quiet {
        let now = clock.now();
        let nap = next.map_or(NAP, |due| due.since(now).min(NAP));
        let nap = Timespec { tv_sec: 0, tv_nsec: nap.as_nanos() as i64 };
        let fds = [client.wait_fd(), servers.wait_fd()].map(|fd| fd.context("no descriptor"));
        let [first, second] = fds;
        let (first, second) = (first?, second?);
        let mut fds = [PollFd::new(&first, PollFlags::IN), PollFd::new(&second, PollFlags::IN)];
        match poll(&mut fds, Some(&nap)) {
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error).context("waiting for frames"),
        }
    }
    client.disarm();
    servers.disarm();
    Ok(())
}
