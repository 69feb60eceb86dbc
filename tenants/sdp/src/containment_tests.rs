//! What tenants in processes of their own can do to each other: nothing.

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use crate::join::{self, Answer};
use crate::processes_tests::{PATIENCE, Process, Role, socket_path};
use crate::*;

pub(crate) fn plane(
    name: &str,
    change: impl FnOnce(&mut PlaneConfig),
) -> (Plane, std::path::PathBuf) {
    let socket = socket_path(name);
    let mut config = PlaneConfig { spin_looks: 200, ..PlaneConfig::new(&socket) };
    change(&mut config);
    (Plane::start(config, |_| Box::new(Echo)).expect("started"), socket)
}

/// Asserts that a plane could not do it, and says so in these words.
fn says<T: std::fmt::Debug>(done: Result<T, PlaneError>, words: &str) {
    let error = done.expect_err("refused").to_string();
    assert!(error.contains(words), "{error}");
}

pub(crate) fn until(what: &str, mut done: impl FnMut() -> bool) {
    let start = Instant::now();
    while !done() {
        assert!(start.elapsed() < PATIENCE, "{what}: it takes too long");
        std::thread::sleep(Duration::from_millis(2));
    }
}

pub(crate) fn honest(socket: &Path, count: usize, queues: u32, requests: u32) -> Vec<Process> {
    let role = Role::Honest { queues, requests, paged: false };
    let started: Vec<_> = (0..count).map(|_| Process::spawn(socket, role)).collect();
    started.into_iter().map(Process::joined).collect()
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn a_thousand_queues_of_fifty_processes_are_served_at_once() {
    let (plane, socket) = plane("thousand", |_| ());
    let mut processes = honest(&socket, 50, 20, 40);
    let report = plane.report();
    assert_eq!(report.tenants.len(), 50);
    assert_eq!(report.tenants.iter().map(|tenant| tenant.queues).sum::<u32>(), 1_000);
    let own = rustix::process::getuid().as_raw();
    assert!(report.tenants.iter().all(|tenant| tenant.uid == own && tenant.pid > 0));
    processes.iter_mut().for_each(Process::go);
    let done: u64 = processes.into_iter().map(Process::done).sum();
    assert_eq!(done, 50 * 20 * 40, "all of them, each checked by its tenant");
    until("all leave", || plane.report().tenants.is_empty());
    let report = plane.report();
    assert_eq!((report.total().served, report.gone.served), (done, done));
    assert_eq!((report.gone.lies, report.joins.left), (0, 50));
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn cores_that_share_queues_keep_their_order() {
    let pairs = std::thread::available_parallelism().map_or(1, usize::from) >= 2;
    for notify in [Notify::Qwait, Notify::Spin, Notify::SpinDpdk] {
        for arrangement in [Arrangement::ScaleOut, Arrangement::ScaleUp { cores_per_group: 2 }] {
            let (plane, socket) = plane("order", |config| {
                config.cores = 2;
                config.cpus = if pairs { vec![0, 1] } else { Vec::new() };
                (config.notify, config.arrangement) = (notify, arrangement);
            });
            let mut processes = honest(&socket, 4, 8, 200);
            processes.iter_mut().for_each(Process::go);
            let done: u64 = processes.into_iter().map(Process::done).sum();
            // Counted at the end of a visit, when its replies are there already.
            until("all is counted", || plane.report().total().served == done);
            let report = plane.report();
            assert_eq!(done, 6_400, "{notify:?} {arrangement:?}");
            assert_eq!(report.total().lies, 0, "{notify:?} {arrangement:?}");
            let least = report.cores.iter().map(|core| core.served).min();
            // Each core of a scale-out plane has half of the queues; a shared set's may be lucky.
            assert!(
                arrangement != Arrangement::ScaleOut || least == Some(3_200),
                "{notify:?}: {report:?}"
            );
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "maps memory files")]
fn a_tenant_has_its_users_class_and_no_better_one() {
    let own = rustix::process::getuid().as_raw();
    let join = |socket: &Path, class: Option<u8>| match class {
        None => Tenant::join(socket, Shape::default()),
        Some(class) => Tenant::join_in_class(socket, Shape::default(), class),
    };
    for wishes in [false, true] {
        let (plane, socket) = plane("classes", |config| {
            let by_uid = ClassPolicy::by_uid([(own, 3), (own.wrapping_add(1), 0)]);
            config.classes = ClassPolicy { wishes, ..by_uid };
        });
        let class = |tenant: &Tenant| {
            let tenants = plane.report().tenants;
            tenants.iter().find(|listed| listed.id == tenant.id()).map(|listed| listed.class)
        };
        let tenant = join(&socket, None).expect("joined");
        assert_eq!(class(&tenant), Some(3));
        assert_eq!(join(&socket, Some(3)).map(|tenant| class(&tenant)).ok(), Some(Some(3)));
        assert_eq!(
            join(&socket, Some(6)).ok().and_then(|tenant| class(&tenant)),
            wishes.then_some(6)
        );
        for above in [0, 2, 8, u8::MAX] {
            let refused = join(&socket, Some(above)).expect_err("it may not");
            assert!(refused.to_string().contains(&format!("class {above}")), "{refused}");
        }
        // The plane's owner may, at any time.
        plane.set_class(tenant.id(), 0).expect("it is there");
        assert_eq!(class(&tenant), Some(0));
        says(plane.set_class(tenant.id(), 8), "`class` is 8; allowed: 0 to 7");
        says(plane.set_class(999, 0), "tenant 999 is not there");
    }
    let classes = ClassPolicy::by_uid([(own, 9)]);
    let config = PlaneConfig { classes, ..PlaneConfig::new(socket_path("class9")) };
    let refused = Plane::start(config, |_| Box::new(Echo)).expect_err("there is no such class");
    assert!(refused.to_string().contains("`classes` is 9"), "{refused}");
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn liars_hurt_nobody_else() {
    for (notify, cores, each) in [
        (Notify::Qwait, 1, 1),
        (Notify::Qwait, 2, 2),
        (Notify::Spin, 1, 1),
        (Notify::SpinDpdk, 1, 1),
    ] {
        let (plane, socket) = plane("liars", |config| {
            (config.notify, config.cores) = (notify, cores);
            config.arrangement = Arrangement::ScaleUp { cores_per_group: each };
        });
        let liar = |seed| Process::spawn(&socket, Role::Liar { seed });
        let liars: Vec<_> = [1, 2].map(liar).into_iter().map(Process::joined).collect();
        let mut processes = honest(&socket, 4, 8, 100);
        let ids: Vec<_> = plane.report().tenants.iter().map(|tenant| tenant.id).collect();
        let mut liars = liars;
        liars.iter_mut().for_each(Process::go);
        // A driver's poll believes the slots and not the doorbell: to it most lies are no work at
        // all, and the liars' own slots are soon in disorder.
        let believes_slots = notify == Notify::SpinDpdk;
        until(&format!("{notify:?}: the plane sees lies"), || {
            let tenants = plane.report().tenants;
            believes_slots || tenants.iter().any(|tenant| tenant.counts.lies > 0)
        });
        processes.iter_mut().for_each(Process::go);
        let done: u64 = processes.into_iter().map(Process::done).sum();
        assert_eq!(done, 4 * 8 * 100, "{notify:?}: every request of the others");
        let report = plane.report();
        let counts = |liar: bool| {
            let side = report.tenants.iter().filter(|tenant| ids[..2].contains(&tenant.id) == liar);
            side.fold(Counts::default(), |mut sum, tenant| {
                sum += tenant.counts;
                sum
            })
        };
        let lies: u64 = liars.into_iter().map(Process::stop).sum();
        assert!(lies > 100, "{notify:?}: {lies} lies, {:?}", counts(true));
        assert_eq!((counts(false).lies, counts(false).refused), (0, 0), "{notify:?}");
        until("all leave", || plane.report().tenants.is_empty());
    }
}

/// Descriptors and mappings of this process.
pub(crate) fn footprint() -> (usize, usize) {
    let descriptors = std::fs::read_dir("/proc/self/fd").expect("readable").count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("readable");
    (descriptors, maps.lines().filter(|line| line.contains("tailplane-sdp")).count())
}

const STORM_MS: &str = "TAILPLANE_SDP_STORM_MS";

/// Processes are killed at random while others count; then nothing is left of any.
#[test]
#[ignore = "counts what its process has open: the two tests below run it in one of its own"]
fn kill_storm() {
    let length: u64 =
        std::env::var(STORM_MS).ok().and_then(|text| text.parse().ok()).unwrap_or(1_000);
    for (cores, arrangement) in
        [(1, Arrangement::ScaleOut), (2, Arrangement::ScaleUp { cores_per_group: 2 })]
    {
        let (plane, socket) = plane("storm", |config| {
            (config.cores, config.arrangement) = (cores, arrangement);
        });
        until("the plane runs", || plane.report().joins == JoinCounts::default());
        let before = footprint();
        let mut survivors = honest(&socket, 4, 8, 0);
        let victim = |seed: u64| {
            let paged = Role::Honest { queues: 5, requests: 0, paged: true };
            let role = if seed.is_multiple_of(4) { Role::Liar { seed } } else { paged };
            let mut victim = Process::spawn(&socket, role).joined();
            victim.go();
            victim
        };
        survivors.iter_mut().for_each(Process::go);
        let mut victims: Vec<_> = (1..7).map(victim).collect();
        let (start, mut seed) = (Instant::now(), 7_u64);
        while start.elapsed() < Duration::from_millis(length) {
            seed += 1;
            let random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
            victims.swap_remove(random as usize % victims.len()).kill();
            victims.push(victim(seed));
            std::thread::sleep(Duration::from_millis(random % 20));
        }
        let killed = seed - 7;
        victims.into_iter().for_each(Process::kill);
        let served: Vec<_> = survivors.into_iter().map(Process::stop).collect();
        assert!(served.iter().all(|&served| served > 100), "they went on: {served:?}");
        until("all leave", || plane.report().tenants.is_empty());
        let joins = plane.report().joins;
        assert_eq!((joins.joined, joins.left), (10 + killed, 10 + killed));
        until("nothing is left", || footprint() == before);
        println!("{arrangement:?}: {killed} killed, survivors served {served:?}");
    }
}

fn storm_in_a_process_of_its_own(length_ms: u64) {
    let output = std::process::Command::new(std::env::current_exe().expect("this binary"))
        .args(["--exact", "containment_tests::kill_storm", "--ignored", "--nocapture"])
        .env(STORM_MS, length_ms.to_string())
        .output()
        .expect("started");
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("killed, survivors served"), "it ran: {said}");
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn killed_processes_take_nothing_with_them() {
    storm_in_a_process_of_its_own(1_500);
}

#[test]
#[ignore = "two minutes; the same for a second and a half is in the ordinary run"]
fn killed_processes_take_nothing_with_them_for_a_minute() {
    storm_in_a_process_of_its_own(60_000);
}

/// The first half of a join, by hand.
pub(crate) fn offered(
    socket: &Path,
    shape: Shape,
) -> (OwnedFd, join::Offered, OwnedFd, Vec<OwnedFd>) {
    let end = connect(socket);
    let ask = join::ask(join::Ask { shape, class: None });
    rustix::net::send(&end, &ask, SendFlags::NOSIGNAL).expect("sent");
    let Answer::Offered(offered, memory, wakes) =
        join::receive_answer(end.as_fd()).expect("answered")
    else {
        panic!("not offered")
    };
    (end, offered, memory, wakes)
}

pub(crate) fn connect(socket: &Path) -> OwnedFd {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let end = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).expect("made");
    rustix::net::connect(&end, &SocketAddrUnix::new(socket).expect("a path")).expect("connected");
    end
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn joiners_that_misbehave_stall_nobody() {
    let (plane, socket) = plane("joiners", |config| {
        config.limits.joining = 16;
        config.limits.ask_timeout = Duration::from_millis(200);
    });
    let mut served = Tenant::join(&socket, Shape::default()).expect("joined");
    // Half-open ones, more than there are places; garbage; and asks in pieces.
    let silent: Vec<_> = (0..40).map(|_| connect(&socket)).collect();
    for length in [0, 1, 31, 33, 4096] {
        let end = connect(&socket);
        let _ = rustix::net::send(&end, &vec![0xa5; length], SendFlags::NOSIGNAL);
    }
    let ask = join::ask(join::Ask { shape: Shape::default(), class: None });
    let piecemeal = connect(&socket);
    rustix::net::send(&piecemeal, &ask[..16], SendFlags::NOSIGNAL).expect("sent");
    let answer = join::receive_answer(piecemeal.as_fd()).expect("answered");
    assert!(matches!(&answer, Answer::Refused(why) if why.contains("16 bytes")), "{answer:?}");
    let mut late = Tenant::join(&socket, Shape::default()).expect("joined among them");
    for tenant in [&mut served, &mut late] {
        tenant.submit(0, b"still here").expect("room");
        assert_eq!(tenant.wait(PATIENCE).expect("the plane is there"), Some(0));
        assert_eq!(tenant.poll(0).expect("ready").bytes, b"still here");
    }
    until("the silent ones are dropped", || plane.report().joins.dropped >= 40);
    drop(silent);
    // A tenant that goes on talking is disconnected, and only it.
    rustix::net::send(late.as_fd(), b"and another thing", SendFlags::NOSIGNAL).expect("sent");
    until("it is disconnected", || plane.report().tenants.len() == 1);
    assert_eq!(plane.report().joins.disconnected, 1);
    late.submit(0, b"x").expect("its own memory still");
    let error = late.wait(PATIENCE).expect_err("hung up");
    assert!(matches!(error, TenantError::Gone), "{error}");
    served.submit(0, b"on").expect("room");
    assert_eq!(served.wait(PATIENCE).expect("the plane is there"), Some(0));
    plane.stop();
    served.poll(0).expect("it was there");
    served.submit(0, b"nobody").expect("room");
    assert!(matches!(served.wait(PATIENCE), Err(TenantError::Gone)));
    let error = Tenant::join(&socket, Shape::default()).expect_err("nobody is there").to_string();
    assert!(error.contains("is the plane running"), "{error}");
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn limits_are_kept_and_given_back() {
    let (plane, socket) = plane("limits", |config| {
        config.limits.per_uid.tenants = 3;
        config.limits.all.queues = 10;
        config.limits.all.bytes = 1 << 20;
    });
    let ask = |queues, depth| {
        let shape = Shape { queues, depth, ..Shape::default() };
        Tenant::join(&socket, shape)
    };
    let refused = |queues, depth, why: &str| {
        let error = ask(queues, depth).expect_err("refused").to_string();
        assert!(error.contains(why), "{error}");
    };
    refused(0, 64, "allowed are 1 to 1024");
    refused(1, 60, "powers of two");
    refused(11, 32, "this plane with 0 queues, 11 more are over the limit of 10");
    refused(4, 1024, "bytes of shared memory");
    let (one, two) = (ask(4, 32).expect("joined"), ask(5, 32).expect("joined"));
    refused(2, 32, "over the limit of 10");
    let three = ask(1, 32).expect("joined");
    refused(1, 32, "with 3 tenants");
    let ids = [one.id(), two.id(), three.id()];
    assert!(ids[0] < ids[1] && ids[1] < ids[2], "numbers are not used again: {ids:?}");
    drop((one, two));
    until("two leave", || plane.report().tenants.len() == 1);
    assert!(ask(9, 32).is_ok(), "what they had is free");
    assert_eq!(plane.report().joins.refused, 6);
    assert!(
        plane.set_weight(ids[2], Some(0), 3).is_ok() && plane.set_weight(ids[2], None, 2).is_ok()
    );
    says(plane.set_weight(ids[2], Some(1), 3), "`queue` is 1; allowed");
    says(plane.set_weight(ids[2], None, 65), "`weight` is 65; allowed: 1 to 64");
    says(plane.set_weight(ids[0], None, 1), "is not there");
}

/// A tenant that makes its eventfd blocking and fills it, and stops reading its socket.
#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn descriptors_that_are_shared_cannot_be_made_to_block_a_core() {
    let (plane, socket) = plane("descriptors", |config| config.spin_looks = 10);
    let shape = Shape::default();
    let (end, offered, memory, wakes) = offered(&socket, shape);
    let wake = wakes[0].try_clone().expect("duplicated");
    let (geometry, id) = (shape.check().expect("allowed"), offered.id);
    tenant_memory::allocate(&memory, &geometry).expect("allocated");
    let liar = Tenant::over(end, offered, geometry, memory, wakes).expect("mapped");
    rustix::net::send(liar.as_fd(), &join::MAPPED, SendFlags::NOSIGNAL).expect("sent");
    assert!(matches!(join::receive_answer(liar.as_fd()), Ok(Answer::Joined)));
    rustix::fs::fcntl_setfl(&wake, rustix::fs::OFlags::empty()).expect("its own");
    rustix::io::write(&wake, &(u64::MAX - 1).to_ne_bytes()).expect("full");
    let mut honest = Tenant::join(&socket, shape).expect("joined");
    let word = |at| liar.memory.word(at).expect("inside");
    let word64 = |at| liar.memory.word64(at).expect("inside");
    let ready = geometry.word(0).expect("it has queues").ready;
    let counts = || {
        let report = plane.report();
        report.tenants.iter().find(|tenant| tenant.id == id).expect("still there").counts
    };
    let start = Instant::now();
    // Each asks for a wake-up, more than its socket holds; the core sleeps and is woken many times. By
    // hand, as ringing in the ordinary way would block in the liar's own eventfd.
    for number in 1..=1_100_u32 {
        let slot = (number % shape.depth) as usize * geometry.slot_stride();
        word64(geometry.submissions(0) + slot).store(u64::from(number), SeqCst);
        word(geometry.consumed(0)).store(number - 1, SeqCst);
        // One after the other: a number that is passed over is never served, nor any behind it.
        while counts().served < u64::from(number) {
            word(geometry::WAITING).store(1, SeqCst);
            word(geometry.doorbell(0)).fetch_add(1, SeqCst);
            word64(ready).fetch_or(1, SeqCst);
            honest.submit(0, b"x").expect("room");
            assert_eq!(honest.wait(PATIENCE).expect("there"), Some(0), "request {number}");
            honest.poll(0).expect("ready");
            assert!(start.elapsed() < PATIENCE, "{number} requests: {:?}", counts());
        }
        if number % 100 == 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
    let counts = counts();
    assert!(counts.wakes > 1_000 && counts.served >= 1_100, "{counts:?}");
}

#[test]
#[cfg_attr(miri, ignore = "starts threads")]
fn an_idle_plane_sleeps() {
    let (plane, socket) = plane("idle", |config| config.spin_looks = 2_000);
    let mut tenants: Vec<_> =
        (0..20).map(|_| Tenant::join(&socket, Shape::default()).expect("joined")).collect();
    std::thread::sleep(Duration::from_millis(50));
    let sleeps = || plane.report().total().sleeps;
    let before = sleeps();
    assert!(before > 0, "it went to sleep");
    std::thread::sleep(Duration::from_secs(1));
    // Each end of a sleep costs its empty looks, some 50 us: far below a hundredth of a core.
    let slept = sleeps() - before;
    assert!(slept <= 5, "nothing wakes it: {slept} sleeps in a second");
    tenants[7].submit(0, b"wake up").expect("room");
    assert_eq!(tenants[7].wait(Duration::from_secs(5)).expect("there"), Some(0));
    assert_eq!(tenants[7].poll(0).expect("ready").bytes, b"wake up");
}

#[test]
#[cfg_attr(miri, ignore = "opens sockets")]
fn senseless_configurations_and_taken_paths_are_refused() {
    let start = |change: fn(&mut PlaneConfig)| {
        let mut config = PlaneConfig::new(socket_path("config"));
        change(&mut config);
        Plane::start(config, |_| Box::new(Echo)).map(drop)
    };
    let wrong =
        |change| start(change).is_err_and(|error| error.to_string().contains("; allowed: "));
    assert!(wrong(|config| config.cores = 0) && wrong(|config| config.cores = 5));
    assert!(wrong(|config| config.batch = 0) && wrong(|config| config.weight = 0));
    assert!(wrong(|config| config.cpus = vec![0, 1]));
    assert!(wrong(|config| config.arrangement = Arrangement::ScaleUp { cores_per_group: 0 }));
    assert!(wrong(|config| config.arrangement = Arrangement::ScaleUp { cores_per_group: 2 }));
    let pinned = start(|config| config.cpus = vec![100_000]).expect_err("no such processor");
    assert!(pinned.to_string().contains("pinning core 0"), "{pinned}");
    let (first, socket) = plane("taken", |_| ());
    let again = || Plane::start(PlaneConfig::new(&socket), |_| Box::new(Echo));
    says(again(), "is in use: another plane listens there");
    first.stop();
    // A socket that was left behind is replaced; a file is not.
    drop(std::os::unix::net::UnixListener::bind(&socket).expect("bound"));
    assert!(socket.exists());
    again().expect("replaced").stop();
    std::fs::write(&socket, b"precious").expect("written");
    says(again(), "is no socket");
    std::fs::remove_file(&socket).expect("still there");
}
