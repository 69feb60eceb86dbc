//! Tenants that attack: what each gets, and that the plane goes on for the others.
//!
//! `every_attack` runs each of [`ATTACKS`] from processes of another user while an honest tenant counts. After
//! each the honest one has made progress without one wrong or missing reply, a new tenant is served, nothing
//! is left of the attackers (descriptors, mappings, tenants), and the plane's counters show what they did.

use std::io::{IoSlice, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::fs::{FallocateFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate};
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use crate::containment_tests::{connect, footprint, honest, offered, plane, until};
use crate::join::{self, Answer};
use crate::processes_tests::{Process, Role, socket_path};
use crate::*;

/// An attack: its name, what it does until told (how often), and a counter that shows it.
type Attack = (&'static str, fn(&Path, &AtomicBool) -> u64, fn(&PlaneReport) -> u64);

/// How long an attack lasts, at the least.
const ATTACK: Duration = Duration::from_millis(200);
/// Attackers at a time.
const ATTACKERS: usize = 2;

pub(crate) const ATTACKS: [Attack; 12] = [
    ("holes", punch, |report| report.joins.joined),
    ("garbage", garbage, |report| report.total().lies),
    ("join and leave", join_and_leave, |report| report.joins.over_limit),
    ("greed", greed, |report| report.joins.over_limit),
    ("descriptors", odd_descriptors, |report| report.joins.refused + report.joins.dropped),
    ("half messages", half_messages, |report| report.joins.refused),
    ("false confirmations", false_confirmations, |report| report.joins.unusable),
    ("connections", connections, |report| report.joins.dropped),
    ("never reads", never_reads, |report| report.total().no_room),
    ("rings", ring_without_work, |report| report.total().spurious),
    ("flood", flood, |report| report.total().served),
    ("talks", talks, |report| report.joins.disconnected),
];

/// Runs an attack.
pub(crate) fn attack(number: usize, socket: &Path, stop: &AtomicBool) -> u64 {
    ATTACKS[number].1(socket, stop)
}

fn goes_on(stop: &AtomicBool) -> bool {
    !stop.load(Ordering::Relaxed)
}

const SHAPE: Shape =
    Shape { queues: 8, depth: 32, slot_bytes: 256, doorbells: DoorbellLayout::Packed };

/// Joins, as soon as the rate lets it: `None` where it was told to stop before.
fn joined(socket: &Path, shape: Shape, stop: &AtomicBool) -> Option<Tenant> {
    while goes_on(stop) {
        if let Ok(tenant) = Tenant::join(socket, shape) {
            return Some(tenant);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    None
}

/// Holes and sizes, in memory that was offered and in memory that is served.
fn punch(socket: &Path, stop: &AtomicBool) -> u64 {
    let Some(tenant) = joined(socket, SHAPE, stop) else { return 0 };
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let (end, _, early, _) = offered(socket, SHAPE);
    let mut tried = 0;
    while goes_on(stop) {
        let (file, len) = (tenant.memory.file(), tenant.memory.len() as u64);
        assert_eq!(fallocate(file, hole, tried % 16 * 4096, 4096), Err(Errno::PERM));
        assert_eq!(ftruncate(file, tried % len), Err(Errno::PERM));
        // Before the seal it may; nobody looks there.
        let _ = fallocate(&early, FallocateFlags::empty(), 0, 65_536);
        let _ = fallocate(&early, hole, 0, 65_536);
        tried += 1;
    }
    drop(end);
    tried
}

/// A thread writes into every word all the time, while the other one submits and rings.
fn garbage(socket: &Path, stop: &AtomicBool) -> u64 {
    let Some(mut tenant) = joined(socket, SHAPE, stop) else { return 0 };
    let memory = Arc::clone(&tenant.memory);
    let write = || {
        let (mut state, mut rounds) = (0x9e37_79b9_7f4a_7c15_u64, 0);
        while goes_on(stop) {
            for at in (0..memory.len()).step_by(8) {
                state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
                let word = memory.word64(at).expect("inside");
                // All bits, few bits, and those that a length or a number could have.
                word.store(state >> (state % 64), Ordering::SeqCst);
            }
            rounds += 1;
        }
        rounds
    };
    std::thread::scope(|scope| {
        let writer = scope.spawn(write);
        while goes_on(stop) {
            for queue in 0..SHAPE.queues {
                let _ = tenant.submit(queue, &[7; 256]);
                tenant.ring(queue);
                let _ = tenant.poll(queue);
            }
        }
        writer.join().expect("it wrote")
    })
}

/// Megabytes, mapped and unmapped as fast as it can.
fn join_and_leave(socket: &Path, stop: &AtomicBool) -> u64 {
    let large = Shape { queues: 16, depth: 256, slot_bytes: 1024, ..SHAPE };
    let mut tried = 0;
    while goes_on(stop) {
        let shape = if tried % 2 == 0 { large } else { SHAPE };
        drop(Tenant::join(socket, shape));
        tried += 1;
    }
    tried
}

/// All that can be had, and more.
fn greed(socket: &Path, stop: &AtomicBool) -> u64 {
    let most = Shape { queues: 1024, depth: 1024, slot_bytes: 4096, ..SHAPE };
    let (mut held, mut tried) = (Vec::new(), 0);
    while goes_on(stop) {
        for shape in [most, Shape { queues: u32::MAX, ..SHAPE }, Shape { queues: 512, ..SHAPE }] {
            match Tenant::join(socket, shape) {
                Ok(tenant) => held.push(tenant),
                Err(TenantError::Refused(why)) => {
                    assert!(why.starts_with("cannot join: found"), "{why}")
                }
                Err(other) => panic!("{other}"),
            }
            tried += 1;
        }
    }
    tried
}

fn send_with(end: &OwnedFd, bytes: &[u8], given: &[BorrowedFd<'_>]) -> Result<usize, Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(253))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(given)));
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    sendmsg(end, &[IoSlice::new(bytes)], &mut ancillary, flags)
}

/// A connection with unsent bytes whose last close waits for an hour.
fn lingering() -> OwnedFd {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
    let address = listener.local_addr().expect("bound");
    let stream = std::net::TcpStream::connect(address).expect("connected");
    stream.set_nonblocking(true).expect("set");
    while (&stream).write(&[0; 65_536]).is_ok() {}
    rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::from_secs(3_600)))
        .expect("set");
    // Accepted by nobody, and open as long as this process.
    std::mem::forget(listener);
    stream.into()
}

/// Asks and confirmations with descriptors that nobody wants.
fn odd_descriptors(socket: &Path, stop: &AtomicBool) -> u64 {
    let (read, write) = std::io::pipe().expect("a pipe");
    let files = ["/", "/dev/zero", "/dev/urandom"]
        .map(|path| std::fs::File::open(path).map(OwnedFd::from).expect("readable by all"));
    let ask = join::ask(join::Ask { shape: SHAPE, class: None });
    let mut sent = 0;
    while goes_on(stop) {
        // A few: each holds megabytes that nobody takes.
        let linger = (sent < 8).then(lingering);
        let odd = [read.as_fd(), write.as_fd()].into_iter().chain(linger.iter().map(AsFd::as_fd));
        let odd: Vec<_> = odd.chain(files.iter().map(AsFd::as_fd)).collect();
        let many = vec![read.as_fd(); 253];
        for given in [&odd, &many] {
            let end = connect(socket);
            let _ = send_with(&end, &ask, given);
            let _ = send_with(&end, &[], given);
            drop(end);
            let (end, _) = offered_or(socket);
            let _ = send_with(&end, &join::MAPPED, given);
            sent += 1;
        }
        // Where the kernel refused it, this is the last close: it lasts until the process ends.
        std::thread::spawn(move || drop(linger));
        std::thread::sleep(Duration::from_millis(10));
    }
    sent
}

/// The first half of a join, where the plane gives it.
fn offered_or(socket: &Path) -> (OwnedFd, Option<OwnedFd>) {
    let end = connect(socket);
    let ask = join::ask(join::Ask { shape: SHAPE, class: None });
    let _ = rustix::net::send(&end, &ask, SendFlags::NOSIGNAL);
    match join::receive_answer(end.as_fd()) {
        Ok(Answer::Offered(_, memory, _)) => (end, Some(memory)),
        _ => (end, None),
    }
}

/// Pieces of asks and of confirmations, and silence after an offer.
fn half_messages(socket: &Path, stop: &AtomicBool) -> u64 {
    let ask = join::ask(join::Ask { shape: SHAPE, class: None });
    let (mut silent, mut sent) = (Vec::new(), 0);
    while goes_on(stop) {
        for len in 0..=ask.len() {
            let end = connect(socket);
            let _ = rustix::net::send(&end, &ask[..len], SendFlags::NOSIGNAL);
            sent += 1;
        }
        let (end, _) = offered_or(socket);
        let _ = rustix::net::send(&end, &join::MAPPED[..4], SendFlags::NOSIGNAL);
        silent.push(offered_or(socket));
        silent.truncate(32);
    }
    sent
}

/// Memory without pages, with holes, or sealed so that the plane cannot map or seal it.
fn false_confirmations(socket: &Path, stop: &AtomicBool) -> u64 {
    let geometry = SHAPE.check().expect("allowed");
    let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let mut tried = 0;
    while goes_on(stop) {
        let (end, memory) = offered_or(socket);
        let Some(memory) = memory else {
            std::thread::sleep(Duration::from_millis(5));
            continue;
        };
        match tried % 4 {
            0 => {}
            1 => {
                tenant_memory::allocate(&memory, &geometry).expect("allocated");
                fallocate(&memory, hole, 8192, 4096).expect("not sealed yet");
            }
            2 => {
                tenant_memory::allocate(&memory, &geometry).expect("allocated");
                fcntl_add_seals(&memory, SealFlags::SEAL).expect("not sealed yet");
            }
            _ => {
                tenant_memory::allocate(&memory, &geometry).expect("allocated");
                fcntl_add_seals(&memory, SealFlags::WRITE).expect("nobody has mapped it");
            }
        }
        let _ = rustix::net::send(&end, &join::MAPPED, SendFlags::NOSIGNAL);
        match join::receive_answer(end.as_fd()) {
            Ok(Answer::Refused(why)) => assert!(why.starts_with("cannot join: found"), "{why}"),
            other => panic!("not refused: {other:?}"),
        }
        tried += 1;
    }
    tried
}

/// Connections without end, of which some say nothing.
fn connections(socket: &Path, stop: &AtomicBool) -> u64 {
    let (mut held, mut made) = (std::collections::VecDeque::new(), 0);
    while goes_on(stop) {
        held.push_back(connect(socket));
        if held.len() > 200 {
            held.pop_front();
        }
        made += 1;
    }
    made
}

/// Fills its rings, asks to be woken, and reads neither replies nor wake-ups.
fn never_reads(socket: &Path, stop: &AtomicBool) -> u64 {
    let Some(mut tenant) = joined(socket, SHAPE, stop) else { return 0 };
    let (geometry, memory) = (tenant.geometry(), Arc::clone(&tenant.memory));
    let waiting = memory.word(geometry::WAITING).expect("inside");
    for queue in 0..SHAPE.queues {
        while tenant.submit(queue, b"x").is_ok() {}
    }
    // Served, all of them: what is written over a request before would never be found.
    let last = |queue: u32| memory.word64(geometry.completions(queue)).expect("inside");
    while goes_on(stop)
        && (0..SHAPE.queues).any(|queue| last(queue).load(Ordering::SeqCst) as u32 != SHAPE.depth)
    {
        std::thread::yield_now();
    }
    let mut asked = 0;
    while goes_on(stop) {
        waiting.store(1, Ordering::SeqCst);
        for queue in 0..SHAPE.queues {
            // Beyond its credits, over its own slots: the plane finds no room.
            let number = SHAPE.depth + 1;
            let slot = geometry.submissions(queue) + geometry.slot_stride();
            memory.word64(slot).expect("inside").store(number.into(), Ordering::SeqCst);
            tenant.ring(queue);
        }
        asked += 1;
    }
    asked
}

fn ring_without_work(socket: &Path, stop: &AtomicBool) -> u64 {
    let Some(tenant) = joined(socket, SHAPE, stop) else { return 0 };
    let mut rung = 0;
    while goes_on(stop) {
        (0..SHAPE.queues).for_each(|queue| tenant.ring(queue));
        rung += 1;
    }
    rung
}

fn flood(socket: &Path, stop: &AtomicBool) -> u64 {
    let Some(mut tenant) = joined(socket, SHAPE, stop) else { return 0 };
    let mut sent = 0;
    while goes_on(stop) {
        for queue in 0..SHAPE.queues {
            while tenant.submit(queue, &[7; 256]).is_ok() {
                sent += 1;
            }
            while tenant.poll(queue).is_some() {}
        }
    }
    sent
}

/// Goes on talking after it has joined.
fn talks(socket: &Path, stop: &AtomicBool) -> u64 {
    let mut said = 0;
    while goes_on(stop) {
        let Some(tenant) = joined(socket, SHAPE, stop) else { break };
        let _ = rustix::net::send(tenant.as_fd(), &[1; 900], SendFlags::NOSIGNAL);
        said += 1;
    }
    said
}

/// The suite, in a process of its own: it counts what its process has open.
#[test]
#[ignore = "counts what its process has open: `every_attack` runs it in one of its own"]
fn attacks_one_after_the_other() {
    if !rustix::process::geteuid().is_root() {
        println!("not root: attackers share the honest tenants' user and limits");
    }
    for notify in [Notify::Qwait, Notify::Spin] {
        let (plane, socket) = plane("hostile", |config| {
            (config.socket_mode, config.notify) = (0o666, notify);
            // Low enough for a busy machine to reach it.
            config.limits.joins_per_uid = RateLimit {
                requests_per_s: 20,
                burst_requests: 20,
                bytes_per_s: 32 << 20,
                burst_bytes: 32 << 20,
            };
        });
        let mut survivor = honest(&socket, 1, 8, 0).remove(0);
        survivor.go();
        survivor.progress();
        until("one tenant", || plane.report().tenants.len() == 1);
        let before = footprint();
        for (number, (name, _, counted)) in ATTACKS.iter().enumerate() {
            let role = Role::Hostile { attack: number as u64 };
            let shown = counted(&plane.report());
            let attackers = (0..ATTACKERS).map(|_| Process::spawn(&socket, role));
            let mut attackers: Vec<_> = attackers.map(Process::joined).collect();
            attackers.iter_mut().for_each(Process::go);
            std::thread::sleep(ATTACK);
            let within = |what: &str, done: &dyn Fn(&PlaneReport) -> bool| {
                let start = Instant::now();
                while !done(&plane.report()) {
                    let late = start.elapsed() > Duration::from_secs(30);
                    assert!(!late, "{name}: {what}: {:?}, {:?}", footprint(), plane.report());
                    std::thread::sleep(Duration::from_millis(2));
                }
            };
            // On a busy machine it takes longer to come so far.
            within("it is counted", &|report| counted(report) > shown);
            // Among them, and by the clock: one who joins now is served.
            let start = Instant::now();
            let mut newcomer = honest(&socket, 1, 8, 50).remove(0);
            newcomer.go();
            assert_eq!(newcomer.done(), 400, "{name}: all of its requests, in order");
            let took = start.elapsed();
            assert!(took < Duration::from_secs(20), "{name}: it took {took:?}");
            let tried: u64 = attackers.into_iter().map(Process::stop).sum();
            assert!(tried > 0, "{name}: it was at it");
            let had = survivor.fresh_progress();
            assert!(survivor.progress() > had, "{name}: the survivor goes on");
            within("they leave", &|report| report.tenants.len() == 1);
            // Connections that hung up at the end are still to be taken.
            within("nothing is left", &|_| footprint() == before);
            println!("{notify:?} {name}: {tried} times; a newcomer took {took:?}");
        }
        assert!(survivor.stop() > 100);
        println!("{notify:?}: every attack was borne");
    }
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn every_attack() {
    let output = std::process::Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "hostile_tests::attacks_one_after_the_other", "--ignored", "--nocapture"])
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(said.matches("every attack was borne").count(), 2, "it ran: {said}");
    println!("{said}");
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn a_tenant_cannot_punch_holes_into_its_memory_or_resize_it() {
    let socket = socket_path("holes");
    let plane = Plane::start(PlaneConfig::new(&socket), |_| Box::new(Echo)).expect("started");
    let tenant = Tenant::join(&socket, Shape::default()).expect("joined");
    let (file, len) = (tenant.memory.file(), tenant.memory.len() as u64);
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    assert_eq!(fallocate(file, punch, 0, len), Err(Errno::PERM), "pages stay in place");
    assert_eq!(ftruncate(file, 0), Err(Errno::PERM));
    assert_eq!(ftruncate(file, len * 2), Err(Errno::PERM));
    plane.stop();
}

#[test]
fn the_default_share_of_a_user_leaves_room_for_several() {
    let limits = Limits::default();
    assert!(limits.per_uid.tenants * 4 <= limits.all.tenants, "{limits:?}");
    assert!(limits.per_uid.queues * 4 <= limits.all.queues, "{limits:?}");
    assert!(limits.per_uid.bytes * 4 <= limits.all.bytes, "{limits:?}");
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn joining_and_leaving_in_a_loop_is_refused_above_a_rate() {
    let socket = socket_path("loop");
    let plane = Plane::start(PlaneConfig::new(&socket), |_| Box::new(Echo)).expect("started");
    let refused = (0..1_000).find_map(|_| {
        std::thread::sleep(Duration::from_micros(200));
        Tenant::join(&socket, Shape::default()).err()
    });
    let refused = refused.expect("within a thousand joins as fast as they go").to_string();
    assert!(refused.contains("cannot join: found") && refused.contains("joins"), "{refused}");
    assert!(plane.report().joins.refused > 0);
}
