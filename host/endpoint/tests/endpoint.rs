//! A control socket over a fake service, with clients of all manners.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use endpoint::{
    Answer, Ask, Client, ClientError, Description, Done, MESSAGE_MAX, MoveSummary, Outcome,
    PROTOCOL_VERSION, Refused, RefusedKind, Request, Server, Steering, services, socket_path,
};
use memfile::Memory;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType, connect, recv,
    send, socket_with,
};
use rustix::process::Uid;

const SECOND: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_secs(10);

/// A directory of its own, which goes with it.
struct Dir(PathBuf);

impl Dir {
    fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir()
            .join(format!("tailplane-endpoint-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).expect("a directory");
        Self(path)
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a fake service was asked, and moves that it holds back.
#[derive(Default)]
struct Seen {
    said: Mutex<Vec<String>>,
    held: Mutex<Vec<(u64, u32)>>,
    release: AtomicUsize,
}

impl Seen {
    fn note(&self, said: String) {
        self.said.lock().expect("whole").push(said);
    }
    fn said(&self) -> Vec<String> {
        self.said.lock().expect("whole").clone()
    }
    /// Waits until the service was asked so many things.
    fn wait_for(&self, count: usize) {
        let began = Instant::now();
        while self.said.lock().expect("whole").len() < count {
            assert!(began.elapsed() < PATIENCE, "only {:?}", self.said());
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// Threads 0 to 3; thread 2 has groups; moves end when they are let go.
struct Fake {
    seen: Arc<Seen>,
    segment: Arc<Memory>,
    text: String,
}

impl Fake {
    fn new(seen: &Arc<Seen>) -> Self {
        let segment = Memory::create_for_readers("endpoint-test", 4_096).expect("memory");
        Self { seen: Arc::clone(seen), segment, text: "[service]\napp = \"kv\"\n".into() }
    }
    fn check(thread: u16) -> Result<(), Refused> {
        let reason = "there are threads 0 to 3";
        if thread < 4 { Ok(()) } else { Err(Refused::new(RefusedKind::NoSuchThread, reason)) }
    }
}

impl Steering for Fake {
    fn describe(&self) -> Description {
        Description {
            name: "fake".into(),
            pid: std::process::id(),
            started_unix_ms: 1,
            config_path: "fake.toml".into(),
            config_text: self.text.clone(),
            threads: 4,
            cpus: vec![Some(0), None, None, Some(3)],
            batch_max: 64,
            groups: 128,
            scheduler: "run-to-completion".into(),
            domain: "inline".into(),
            driver: "fake".into(),
            steers: false,
            movable: true,
            version: PROTOCOL_VERSION,
        }
    }
    fn segment(&self) -> io::Result<OwnedFd> {
        self.segment.descriptor()
    }
    fn begin(&mut self, ask: Ask) -> Option<Outcome> {
        match ask.request {
            Request::Grant { thread } => {
                self.seen.note(format!("grant {thread}"));
                Some(Self::check(thread).map(|()| Done::Granted))
            }
            Request::Park { thread } => {
                self.seen.note(format!("park {thread}"));
                Some(match thread {
                    2 => Err(Refused::new(RefusedKind::HasGroups, "thread 2 has 32 flow groups")),
                    _ => Self::check(thread).map(|()| Done::Parked),
                })
            }
            Request::Move { from, to, groups } => {
                self.seen.note(format!("move {from} {to} {}", groups.len()));
                self.seen.held.lock().expect("whole").push((ask.id, groups.len() as u32));
                None
            }
            Request::Place { thread, cpu } => {
                self.seen.note(format!("place {thread} {cpu}"));
                Some(Ok(Done::Placed))
            }
            Request::End => {
                self.seen.note("end".into());
                Some(Ok(Done::Ending))
            }
            Request::Describe => panic!("the server describes"),
        }
    }
    fn reports(&mut self) -> Vec<Answer> {
        let mut held = self.seen.held.lock().expect("whole");
        let count = self.seen.release.swap(0, Ordering::Relaxed).min(held.len());
        let moved = |(id, groups)| Answer {
            id,
            result: Ok(Done::Moved(MoveSummary { groups, ..MoveSummary::default() })),
        };
        // The youngest first: answers come in any order.
        let kept = held.len() - count;
        let released = held.split_off(kept);
        released.into_iter().rev().map(moved).collect()
    }
}

fn serve(dir: &Dir) -> (Server, Arc<Seen>) {
    let seen = Arc::new(Seen::default());
    (Server::bind(&dir.0, "fake", Fake::new(&seen)).expect("a free name"), seen)
}

/// A socket that says what it likes.
fn raw(path: &Path) -> OwnedFd {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    connect(&socket, &SocketAddrUnix::new(path).expect("short")).expect("let in");
    socket
}

fn say(socket: &OwnedFd, bytes: &[u8]) {
    send(socket, bytes, SendFlags::NOSIGNAL).expect("sent");
}

/// The next answer; none: the server has hung up.
fn hear(socket: &OwnedFd) -> Option<Answer> {
    let mut bytes = vec![0; MESSAGE_MAX];
    let (len, _) = recv(socket, &mut bytes[..], RecvFlags::empty()).unwrap_or((0, 0));
    (len > 0).then(|| serde_json::from_slice(&bytes[..len]).expect("an answer"))
}

#[test]
fn a_client_learns_what_a_service_is_and_has_it_steered() {
    let dir = Dir::new();
    let (server, seen) = serve(&dir);
    assert_eq!(services(&dir.0).expect("a directory"), [("fake".into(), server.path().into())]);
    let mut client = Client::connect(server.path()).expect("it listens");
    let (description, segment) = client.describe().expect("described");
    assert_eq!((description.threads, &*description.config_path), (4, "fake.toml"));
    Memory::join_read_only(segment, 4_096).expect("the segment itself");
    let mut all = |request| {
        let id = client.ask(request).expect("asked");
        client.wait(id, PATIENCE).map_err(|error| match error {
            ClientError::Refused(refused) => refused.kind,
            other => panic!("{other}"),
        })
    };
    assert_eq!(all(Request::Grant { thread: 1 }), Ok(Done::Granted));
    assert_eq!(all(Request::Grant { thread: 9 }), Err(RefusedKind::NoSuchThread));
    assert_eq!(all(Request::Park { thread: 2 }), Err(RefusedKind::HasGroups));
    assert_eq!(all(Request::Park { thread: 3 }), Ok(Done::Parked));
    assert_eq!(all(Request::Place { thread: 0, cpu: 5 }), Ok(Done::Placed));
    assert_eq!(all(Request::End), Ok(Done::Ending));
    let expected = ["grant 1", "grant 9", "park 2", "park 3", "place 0 5", "end"];
    assert_eq!(seen.said(), expected);
    let path = server.path().to_owned();
    drop(server);
    assert!(!path.exists() && services(&dir.0).expect("a directory").is_empty());
    assert!(matches!(client.ask(Request::Describe), Err(ClientError::Gone)));
}

#[test]
fn answers_come_when_they_are_there_and_requests_do_not_wait_for_them() {
    let dir = Dir::new();
    let (server, seen) = serve(&dir);
    let mut client = Client::connect(server.path()).expect("it listens");
    let groups: Vec<u16> = (0..128).collect();
    let moves: Vec<u64> = (1..=3)
        .map(|n| client.ask(Request::Move { from: 0, to: 1, groups: groups[..n].to_vec() }))
        .map(|id| id.expect("asked"))
        .collect();
    let grant = client.ask(Request::Grant { thread: 0 }).expect("asked");
    assert_eq!(client.wait(grant, PATIENCE).expect("before the moves"), Done::Granted);
    assert!(client.answers().expect("connected").is_empty());
    let late = client.wait(moves[0], Duration::from_millis(5)).expect_err("it is held");
    assert!(matches!(late, ClientError::Late(_)), "{late}");
    seen.release.store(2, Ordering::Relaxed);
    let moved = |done| match done {
        Done::Moved(summary) => summary.groups,
        other => panic!("{other:?}"),
    };
    assert_eq!(moved(client.wait(moves[1], PATIENCE).expect("released")), 2);
    let answers = client.answers().expect("connected");
    assert_eq!(answers.len(), 1, "the other one was kept: {answers:?}");
    assert_eq!(moved(answers[0].result.clone().expect("moved")), 3);
    seen.release.store(1, Ordering::Relaxed);
    assert_eq!(moved(client.wait(moves[0], PATIENCE).expect("released")), 1);
}

#[test]
fn a_client_that_vanishes_in_the_middle_of_a_move_changes_nothing() {
    let dir = Dir::new();
    let (server, seen) = serve(&dir);
    let mut first = Client::connect(server.path()).expect("it listens");
    first.ask(Request::Move { from: 0, to: 1, groups: vec![1] }).expect("asked");
    seen.wait_for(1);
    drop(first);
    let mut second = Client::connect(server.path()).expect("it listens");
    let id = second.ask(Request::Move { from: 1, to: 0, groups: vec![2, 3] }).expect("asked");
    seen.wait_for(2);
    seen.release.store(2, Ordering::Relaxed);
    let Done::Moved(summary) = second.wait(id, PATIENCE).expect("complete") else { panic!("no") };
    assert_eq!(summary.groups, 2, "its own, and not the other's");
    assert!(second.answers().expect("connected").is_empty());
}

#[test]
fn nonsense_is_answered_where_it_has_a_number_and_ends_the_connection_else() {
    let dir = Dir::new();
    let (server, seen) = serve(&dir);
    let socket = raw(server.path());
    for (message, id) in [
        (&br#"{"id":1,"request":"fly"}"#[..], 1),
        (br#"{"id":2,"request":{"move":{"from":0,"to":1}}}"#, 2),
        (br#"{"id":3,"request":{"grant":{"thread":1,"hurry":true}}}"#, 3),
    ] {
        say(&socket, message);
        let answer = hear(&socket).expect("it has a number");
        let refused = answer.result.expect_err("no sense");
        assert_eq!((answer.id, refused.kind), (id, RefusedKind::Unsupported));
        assert!(refused.reason.contains("makes no sense"), "{refused}");
    }
    let mut long = br#"{"id":4,"request":"#.to_vec();
    long.resize(MESSAGE_MAX + 5_000, b' ');
    say(&socket, &long);
    let answer = hear(&socket).expect("it has a number");
    assert!(answer.id == 4 && answer.result.is_err_and(|why| why.reason.contains("65536 bytes")));
    say(&socket, br#"{"id":5,"request":{"grant":{"thread":1}}}"#);
    assert_eq!(hear(&socket).map(|answer| answer.result), Some(Ok(Done::Granted)));
    for message in [&b"\0"[..], b"[]", b"null", b"{\"request\":\"end\"}", &[b'{'; 70_000]] {
        let socket = raw(server.path());
        say(&socket, message);
        assert_eq!(hear(&socket), None, "hung up");
    }
    assert_eq!(seen.said(), ["grant 1"], "nothing else was carried out");
}

#[test]
fn descriptors_that_a_client_sends_are_not_kept() {
    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, sendmsg};
    use std::os::fd::AsFd;
    let dir = Dir::new();
    let (server, _) = serve(&dir);
    let socket = raw(server.path());
    let count = || std::fs::read_dir("/proc/self/fd").expect("listed").count();
    let before = count();
    for _ in 0..500 {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let sent = [socket.as_fd(); 4];
        assert!(ancillary.push(SendAncillaryMessage::ScmRights(&sent)));
        let ask = io::IoSlice::new(br#"{"id":5,"request":{"grant":{"thread":1}}}"#);
        sendmsg(&socket, &[ask], &mut ancillary, SendFlags::empty()).expect("sent");
        assert!(hear(&socket).is_some());
    }
    // Other tests of this process open a few meanwhile.
    assert!(count() < before + 400, "{} after {before}", count());
}

#[test]
fn a_client_that_never_reads_is_dropped_and_the_others_are_served() {
    let dir = Dir::new();
    let (server, _) = serve(&dir);
    let greedy = raw(server.path());
    let began = Instant::now();
    let mut id = 1;
    loop {
        assert!(began.elapsed() < PATIENCE, "it is still let talk after {id} requests");
        let ask = format!("{{\"id\":{id},\"request\":\"describe\"}}");
        if send(&greedy, ask.as_bytes(), SendFlags::NOSIGNAL).is_err() {
            break;
        }
        id += 1;
    }
    let mut other = Client::connect(server.path()).expect("it listens");
    other.describe().expect("it is served");
}

#[test]
fn who_asks_more_than_can_be_under_way_is_told_so() {
    let dir = Dir::new();
    let (server, seen) = serve(&dir);
    let mut client = Client::connect(server.path()).expect("it listens");
    let ask = |client: &mut Client| client.ask(Request::Move { from: 0, to: 1, groups: vec![1] });
    let ids: Vec<u64> = (0..65).map(|_| ask(&mut client).expect("asked")).collect();
    let refused = client.wait(ids[64], PATIENCE).expect_err("one too many");
    assert!(matches!(&refused, ClientError::Refused(why) if why.kind == RefusedKind::TooMany));
    seen.wait_for(64);
    seen.release.store(64, Ordering::Relaxed);
    for id in &ids[..64] {
        client.wait(*id, PATIENCE).expect("complete");
    }
    let id = ask(&mut client).expect("asked");
    seen.wait_for(65);
    seen.release.store(1, Ordering::Relaxed);
    client.wait(id, PATIENCE).expect("there is room again");
}

#[test]
fn many_clients_are_served_at_once_and_too_many_are_told() {
    let dir = Dir::new();
    let (server, seen) = serve(&dir);
    std::thread::scope(|scope| {
        for thread in 0..64u16 {
            let path = server.path();
            scope.spawn(move || {
                let mut client = Client::connect(path).expect("let in");
                for round in 0..20 {
                    let thread = (thread + round) % 4;
                    let id = client.ask(Request::Grant { thread }).expect("asked");
                    assert_eq!(client.wait(id, PATIENCE).expect("done"), Done::Granted);
                }
                client.describe().expect("described");
            });
        }
    });
    assert_eq!(seen.said().len(), 64 * 20);
    let mut inside = Vec::new();
    let refused = loop {
        let mut client = Client::connect(server.path()).expect("the door is open");
        match client.describe() {
            Ok(_) => inside.push(client),
            Err(error) => break error,
        }
        assert!(inside.len() <= 128, "there is no end");
    };
    assert!(refused.to_string().contains("128 clients"), "{refused}");
    drop(inside.pop());
    let began = Instant::now();
    while Client::connect(server.path()).and_then(|mut client| client.describe()).is_err() {
        assert!(began.elapsed() < PATIENCE, "nobody is let in any more");
        std::thread::sleep(Duration::from_millis(2));
    }
}

#[test]
fn a_live_service_keeps_its_name_and_a_dead_ones_is_free() {
    let dir = Dir::new();
    let (server, _) = serve(&dir);
    let seen = Arc::new(Seen::default());
    let error = Server::bind(&dir.0, "fake", Fake::new(&seen)).expect_err("it runs");
    let said = error.to_string();
    assert!(said.contains(&format!("process {}", std::process::id())), "{said}");
    drop(server);
    // A socket file that nobody listens at any more.
    let path = socket_path(&dir.0, "fake").expect("a name");
    drop(listen_at(&path));
    assert!(path.exists());
    let server = Server::bind(&dir.0, "fake", Fake::new(&seen)).expect("replaced");
    Client::connect(&path).expect("it listens").describe().expect("described");
    drop(server);
    // One of somebody who does not know of locks.
    let foreign = listen_at(&path);
    let error = Server::bind(&dir.0, "fake", Fake::new(&seen)).expect_err("somebody listens");
    let own = format!("runs already: process {} has '", std::process::id());
    assert!(error.to_string().contains(&own), "{error}");
    drop(foreign);
    std::fs::remove_file(&path).expect("it was there");
    std::fs::write(&path, "mine").expect("written");
    let error = Server::bind(&dir.0, "fake", Fake::new(&seen)).expect_err("a file");
    assert!(error.to_string().contains("no socket"), "{error}");
    assert_eq!(std::fs::read(&path).expect("still there"), b"mine");
    let error = Server::bind(&dir.0, "../x", Fake::new(&seen)).expect_err("no name");
    assert!(error.to_string().contains("letters"), "{error}");
    let error = Server::bind(&path, "x", Fake::new(&seen)).expect_err("no directory");
    assert!(error.to_string().contains("TAILPLANE_RUN_DIR"), "{error}");
}

fn listen_at(path: &Path) -> OwnedFd {
    let socket =
        socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    rustix::net::bind(&socket, &SocketAddrUnix::new(path).expect("short")).expect("bound");
    rustix::net::listen(&socket, 1).expect("listening");
    socket
}

#[test]
fn a_file_that_another_has_put_there_is_left() {
    let dir = Dir::new();
    let (server, _) = serve(&dir);
    std::fs::remove_file(server.path()).expect("it was there");
    std::fs::write(server.path(), "mine").expect("written");
    let path = server.path().to_owned();
    drop(server);
    assert_eq!(std::fs::read(path).expect("still there"), b"mine");
}

#[test]
fn a_configuration_too_long_for_a_message_is_left_out() {
    let dir = Dir::new();
    let seen = Arc::new(Seen::default());
    let fake = Fake { text: "#\n".repeat(40_000), ..Fake::new(&seen) };
    let server = Server::bind(&dir.0, "long", fake).expect("a free name");
    let (description, _) =
        Client::connect(server.path()).expect("it listens").describe().expect("it fits");
    assert_eq!((&*description.config_text, &*description.config_path), ("", "fake.toml"));
    let mut client = Client::connect(server.path()).expect("it listens");
    let refused = client.ask(Request::Move { from: 0, to: 1, groups: vec![9; 40_000] });
    assert!(refused.is_err_and(|error| error.to_string().contains("ask for less")));
}

#[test]
fn another_user_is_refused() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("SKIPPED: only root can be another user");
        return;
    }
    let dir = Dir::new();
    let (server, seen) = serve(&dir);
    // The file's mode alone would keep it out.
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o666);
    std::fs::set_permissions(server.path(), open).expect("it is ours");
    let path = server.path().to_owned();
    // A user is a thread's.
    let knock = std::thread::spawn(move || {
        let nobody = Uid::from_raw(65_534);
        rustix::thread::set_thread_res_uid(nobody, nobody, nobody).expect("root may");
        let mut client = Client::connect(&path).expect("the door is open");
        client.describe().expect_err("it is nobody's")
    });
    let said = knock.join().expect("no panic").to_string();
    assert!(said.contains("user 65534 may not control"), "{said}");
    assert!(seen.said().is_empty());
}

#[test]
fn errors_of_clients_say_where_they_looked() {
    let dir = Dir::new();
    let path = socket_path(&dir.0, "nobody").expect("a name");
    let error = Client::connect(&path).expect_err("nobody is there").to_string();
    assert!(error.contains("nobody.sock") && error.contains("tailplane status"), "{error}");
    assert!(services(&dir.0).expect("no directory is no error").is_empty());
    let began = Instant::now();
    let silent = {
        std::fs::create_dir_all(path.parent().expect("one")).expect("made");
        listen_at(&path)
    };
    let error = Client::connect(&path).and_then(|mut client| client.describe());
    assert!(matches!(error, Err(ClientError::Late(_))), "{error:?}");
    assert!(began.elapsed() >= SECOND);
    drop(silent);
}

/// A service that answers what it was not asked, without end: its client goes on after a bounded number of answers.
#[test]
fn a_service_that_floods_its_client_is_cut_off() {
    let dir = Dir::new();
    let path = dir.0.join("flood.sock");
    let address = SocketAddrUnix::new(&path).expect("short enough");
    let flags = SocketFlags::CLOEXEC;
    let listener = socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let listener = listener.expect("a socket");
    rustix::net::bind(&listener, &address)
        .and_then(|()| rustix::net::listen(&listener, 1))
        .expect("bound");
    let flood = std::thread::spawn(move || {
        let peer = rustix::net::accept(&listener).expect("a client");
        let answer = br#"{"id":7,"result":{"Ok":"granted"}}"#;
        // Until the client has gone.
        while send(&peer, answer, SendFlags::NOSIGNAL).is_ok() {}
    });
    let mut client = Client::connect(&path).expect("it listens");
    let began = Instant::now();
    assert!(client.answers().is_ok_and(|answers| answers.len() <= 512));
    // Answers to others are kept while this one is waited for.
    let error = client.wait(1, PATIENCE).expect_err("it is not answered");
    assert!(
        matches!(&error, ClientError::Sense(reason) if reason.contains("512 answers")),
        "{error}"
    );
    assert!(began.elapsed() < PATIENCE, "{:?}", began.elapsed());
    drop(client);
    flood.join().expect("no panic");
}
