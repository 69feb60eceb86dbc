//! A server on the kernel's own stack: `epoll_wait` for one event (ZygOS §3.3), `read`, `write`, over the
//! loopback interface.
//!
//! There, receiving is done by whoever sends: the server's `write` pays for the client's reception, the
//! client's for the server's. As the two directions carry the same, the server's thread pays what it would
//! pay for itself.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use measure::stats::median_of;
use measure::{Disturbance, Place, Stopwatch, Watch, WindowError, contest, together};
use rustix::event::epoll;

use super::SOCKET_LINES;
use super::found::{CalibrateError, Measuring};
use crate::cores::LinuxCosts;

const CONNECTIONS: usize = 32;
/// A request, and a reply.
const BYTES: usize = 64;
/// Requests between two looks at the clock: so few that an undisturbed lot is no stall.
const LOT: usize = 4;

/// How the server waits for events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Pool {
    /// Its own, level-triggered.
    Own,
    /// As if shared: one thread gets an event and arms the connection again when it is served.
    Shared,
}

/// Measures both, after the machine's own operations.
pub(super) fn measure(into: &mut Measuring<'_>) -> Result<(), CalibrateError> {
    let os = |tried| move |source| CalibrateError::Os { tried, source };
    let listener =
        TcpListener::bind("127.0.0.1:0").map_err(os("listening on the loopback interface"))?;
    let address = listener.local_addr().map_err(os("listening on the loopback interface"))?;
    let (mut clients, mut servers) = (Vec::new(), Vec::new());
    for _ in 0..CONNECTIONS {
        let client = TcpStream::connect(address).map_err(os("connecting on loopback"))?;
        let (server, _) = listener.accept().map_err(os("accepting on loopback"))?;
        for stream in [&client, &server] {
            stream.set_nodelay(true).map_err(os("setting TCP_NODELAY"))?;
            stream.set_nonblocking(true).map_err(os("making a socket non-blocking"))?;
        }
        clients.push(client);
        servers.push(Mutex::new(server));
    }
    let mut asked = vec![false; CONNECTIONS];
    let mut all = [Pool::Own, Pool::Shared];
    let (length, place) = (into.effort.window, into.place);
    let kept = contest(&mut all, into.effort.plan(), |pool| {
        window(*pool, length, place, &mut clients, &mut asked, &servers)
    })?;
    let own = into.add("a request on the kernel's stack, own connections", &kept[0])?;
    let shared = into.add("a request on the kernel's stack, a pool of connections", &kept[1])?;
    // Taking the socket's lock and arming it again; and what moves with it: its own lines, its lock's, its epoll item's.
    let floating = (shared - own).max(0.0) + SOCKET_LINES * into.costs.cache_line;
    into.costs.linux = LinuxCosts { request: own, floating, wake: into.costs.wake };
    Ok(())
}

/// Serves as fast as requests come, all connections busy; nanoseconds a request.
fn window(
    pool: Pool,
    window: Duration,
    place: Place<'_>,
    clients: &mut [TcpStream],
    asked: &mut [bool],
    servers: &[Mutex<TcpStream>],
) -> Result<(f64, Disturbance), WindowError> {
    let over = AtomicBool::new(false);
    let consumer = |watch: &mut Watch| {
        let result = serve(pool, window, servers, watch).unwrap_or(f64::NAN);
        over.store(true, Ordering::Release);
        result
    };
    let other = |_: &mut Watch| {
        let mut reply = [0u8; BYTES];
        while !over.load(Ordering::Acquire) {
            for (client, asked) in clients.iter_mut().zip(asked.iter_mut()) {
                // A socket that has nothing yet says so; one that broke gives the server nothing to do.
                if *asked && !matches!(client.read(&mut reply), Ok(BYTES)) {
                    continue;
                }
                *asked = client.write(&[1; BYTES]).is_ok();
            }
        }
    };
    together(place, consumer, other).map(|(ns, (), disturbance)| (ns, disturbance))
}

fn serve(
    pool: Pool,
    window: Duration,
    servers: &[Mutex<TcpStream>],
    watch: &mut Watch,
) -> rustix::io::Result<f64> {
    let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let flags = match pool {
        Pool::Own => epoll::EventFlags::IN,
        Pool::Shared => epoll::EventFlags::IN | epoll::EventFlags::ONESHOT,
    };
    let lock =
        |index: usize| servers[index].lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    for index in 0..servers.len() {
        epoll::add(&poller, &*lock(index), epoll::EventData::new_u64(index as u64), flags)?;
    }
    let clock = Stopwatch::start();
    let mut samples = Vec::new();
    let mut bytes = [0u8; BYTES];
    let zero = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
    watch.lap_ns();
    while clock.now_ns() < window.as_nanos() as u64 {
        let (mut served, mut empty) = (0, 0);
        while served < LOT {
            let mut events = [epoll::Event { flags, data: epoll::EventData::new_u64(0) }];
            if epoll::wait(&poller, &mut events, Some(&zero))? == 0 {
                empty += 1;
                if empty > 100_000 {
                    return Ok(f64::NAN);
                }
                continue;
            }
            let index = events[0].data.u64() as usize;
            let mut stream = lock(index);
            if matches!(stream.read(&mut bytes), Ok(BYTES)) && stream.write(&bytes).is_ok() {
                served += 1;
            }
            if pool == Pool::Shared {
                epoll::modify(&poller, &*stream, epoll::EventData::new_u64(index as u64), flags)?;
            }
        }
        let took_ns = watch.lap_ns();
        // A lot in which the server waited for the client says nothing of the server.
        if empty == 0 {
            samples.push(took_ns as f64 / LOT as f64);
        }
    }
    Ok(median_of(samples))
}
