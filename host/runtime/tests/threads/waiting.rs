//! What the statistics segment shows of a service that is slower than its clients ask, under every scheduler and in
//! every domain: that much waits, how long that takes, and that the thread is not idle.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant as Wall};

use control::metrics::{Reader, Sample, ThreadId};
use mem::{HugePages, Region};
use nic::shm::ShmNic;
use process::{Geometry, Hello, Host, Placement, Waiting};
use runtime::{ConservingConfig, FLOW_GROUPS, ReadySetConfig};
use runtime::{RuntimeConfig, Scheduler, run, run_protected};
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use statseg::{Layout, Segment};
use tailplane::{MacAddr, Server, SharedSlots, application};

use crate::common::{CLIENT, CONNECTIONS, Counting, Echo, Ends, SERVER, config, wire};

/// What the application takes for what came on a connection, at least.
const WORK: Duration = Duration::from_micros(500);
/// Between two readings.
const PERIOD: Duration = Duration::from_millis(200);
const PATIENCE: Duration = Duration::from_secs(30);

/// What is seen of one elastic thread under overload; its application is linked in, or in another process.
fn overloaded(scheduler: Scheduler, domain: Option<Placement>) -> Sample {
    let (near, far) = wire();
    let layout = Layout { threads: 1, groups: FLOW_GROUPS as u16, batch_max: 64 };
    let segment = Segment::create("waiting-test", &layout).expect("memory");
    let mut server = config(SERVER.addr, MacAddr([2, 0, 0, 0, 0, 1]), scheduler);
    server.segment = Some(Arc::clone(&segment));
    let (region, heap) = (Region::map(8_192, HugePages::No).expect("mapped"), Region::heap(8_192));
    let [stop, done] = [const { AtomicBool::new(false) }; 2];
    let [heard, wrong] = [const { AtomicUsize::new(0) }; 2];
    std::thread::scope(|scope| {
        let _ends = Ends([&done, &stop]);
        let (region, heap, stop, done) = (&region, &heap, &stop, &done);
        let (heard, wrong) = (&heard, &wrong);
        scope.spawn(move || serve(&server, region, near, domain, stop));
        scope.spawn(move || {
            let config = config(CLIENT, MacAddr([2, 0, 0, 0, 0, 2]), Scheduler::RunToCompletion);
            let make = |_| Counting { asked: 0, lines: Vec::new(), heard, wrong };
            run(&config, heap, vec![far], make, done).map(|_| ())
        });
        // All connections have been served, and what an event takes is known.
        let began = Wall::now();
        while heard.load(Ordering::Relaxed) < 10 * CONNECTIONS {
            assert!(began.elapsed() < PATIENCE, "it does not go on");
            std::thread::sleep(Duration::from_millis(1));
        }
        let mut reader = Reader::new(ThreadId(0), 64);
        let mut read = || {
            let shown = segment.reading().thread(0).expect("there is one");
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
            let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
            reader.read(now_ns, &shown.counters(now_ns))
        };
        assert_eq!(read(), None, "the first one");
        std::thread::sleep(PERIOD);
        let sample = read().expect("time has passed");
        assert_eq!(wrong.load(Ordering::Relaxed), 0);
        sample
    })
}

fn serve(
    config: &RuntimeConfig,
    region: &Arc<Region>,
    near: ShmNic,
    domain: Option<Placement>,
    stop: &AtomicBool,
) {
    let slots = Arc::new(SharedSlots::new(1, 1_024));
    let make = move |core| Server::shared(core, Echo { takes: WORK }, Arc::clone(&slots));
    let Some(placement) = domain else {
        run(config, region, vec![near], make, stop).expect("it runs");
        return;
    };
    let flags = SocketFlags::CLOEXEC;
    let (near_socket, far_socket) =
        socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).expect("sockets");
    let waiting = Waiting { placement, looks: 1_000 };
    let hello = Hello { geometry: Geometry::default(), waiting, segment_bytes: 1_448, sums: true };
    let host = Host::new(hello, 1, region).expect("made");
    host.greet(near_socket.as_fd()).expect("sent");
    let gone = Arc::new(AtomicBool::new(false));
    std::thread::scope(|scope| {
        scope.spawn(move || application::serve_over(far_socket, make).map(|_| ()));
        let nears = host.meet(near_socket.as_fd(), &gone).expect("met");
        run_protected(config, region, vec![near], nears, || {}, None, stop).expect("it runs");
        // The dataplane hangs up.
        drop(near_socket);
    });
}

#[test]
fn a_service_that_falls_behind_is_seen_to() {
    for domain in [None, Some(Placement::Split), Some(Placement::SameCore)] {
        for scheduler in [
            Scheduler::RunToCompletion,
            Scheduler::WorkConserving(ConservingConfig::default()),
            Scheduler::ReadySet(ReadySetConfig::default()),
        ] {
            let sample = overloaded(scheduler.clone(), domain);
            let of = format!("{scheduler:?}, {domain:?}: {sample:?}");
            assert!(sample.idle < 0.5, "it is taken for idle: {of}");
            // Each connection has something to be served all the time. What comes with it takes half of the events.
            assert!(sample.waiting() >= CONNECTIONS as f64 / 4.0, "what waits is not seen: {of}");
            assert!(
                sample.delay_ns() >= 2.0 * WORK.as_nanos() as f64,
                "how long is not seen: {of}"
            );
        }
    }
}
