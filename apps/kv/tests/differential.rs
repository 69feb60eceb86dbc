//! The same commands to memcached over loopback TCP and to the engine: the replies must be equal, but
//! for CAS values, times and the numbers of size classes.

mod common;

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use common::{Conversation, Rng, command};
use kv::{Flow, Store, StoreConfig, WallTime};

const MEMCACHED: &str = "/usr/bin/memcached";

/// A memcached of our own, ended with the value.
struct Memcached {
    child: Child,
    port: u16,
}

impl Memcached {
    /// None: it is not installed.
    ///
    /// Another process, this file's other test among them, may take the port between its choice and
    /// its use: the memcached that answers must say that it is this child, or another port is tried.
    fn start() -> Option<Self> {
        if !std::path::Path::new(MEMCACHED).exists() {
            println!("skipped: {MEMCACHED} is not installed (package memcached)");
            return None;
        }
        for _ in 0..10 {
            let free = TcpListener::bind("127.0.0.1:0").expect("a free loopback port");
            let port = free.local_addr().expect("its address").port();
            drop(free);
            let mut server = Self::spawn(port);
            if server.is_itself() {
                return Some(server);
            }
        }
        panic!("ten ports that were free were another's when memcached was to listen on them");
    }

    fn spawn(port: u16) -> Self {
        let child = Command::new(MEMCACHED)
            .args([
                "-l",
                "127.0.0.1",
                "-U",
                "0",
                "-B",
                "ascii",
                "-m",
                "64",
                "-t",
                "1",
                "-u",
                "nobody",
            ])
            .args(["-p", &port.to_string()])
            // Its background threads hold references for moments, and an increment then makes a new
            // item instead of padding the old one: keep them from running, for equal replies.
            .args(["-o", "no_lru_maintainer,no_lru_crawler"])
            .stdin(Stdio::null())
            .spawn()
            .expect("memcached starts");
        Self { child, port }
    }

    /// Waits until the port answers. Whether it is this child that answers.
    fn is_itself(&mut self) -> bool {
        for _ in 0..200 {
            if self.child.try_wait().expect("the child can be asked for").is_some() {
                return false;
            }
            if let Ok(mut stream) = TcpStream::connect(("127.0.0.1", self.port)) {
                stream
                    .set_read_timeout(Some(Duration::from_secs(5)))
                    .expect("a timeout can be set");
                // Another's server may end, or never answer, at any moment.
                if stream.write_all(b"stats\r\n").is_err() {
                    return false;
                }
                let mut reply = Vec::new();
                let mut buffer = [0; 4096];
                while !reply.ends_with(b"END\r\n") {
                    match stream.read(&mut buffer) {
                        Ok(0) | Err(_) => return false,
                        Ok(len) => reply.extend_from_slice(&buffer[..len]),
                    }
                }
                let own = format!("STAT pid {}\r\n", self.child.id());
                return String::from_utf8_lossy(&reply).contains(&own);
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        panic!("memcached does not listen on port {}", self.port);
    }

    fn connect(&self) -> TcpStream {
        let stream = TcpStream::connect(("127.0.0.1", self.port)).expect("memcached accepts");
        stream.set_read_timeout(Some(Duration::from_secs(5))).expect("a timeout can be set");
        stream.set_nodelay(true).expect("no delay can be set");
        stream
    }
}

impl Drop for Memcached {
    fn drop(&mut self) {
        // Only this process; if it is gone already there is nothing to do.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Sends a command and `mn`, and returns all before `MN`. None: it closed the connection.
fn ask_memcached(stream: &mut TcpStream, command: &[u8]) -> Option<Vec<u8>> {
    stream.write_all(&[command, b"mn\r\n"].concat()).expect("memcached takes a command");
    let mut reply = Vec::new();
    let mut buffer = vec![0; 1 << 16];
    while !reply.ends_with(b"MN\r\n") {
        match stream.read(&mut buffer) {
            Ok(0) => return None,
            Ok(len) => reply.extend_from_slice(&buffer[..len]),
            Err(error) => panic!(
                "no end of the reply to {:?}: {error}; so far {:?}",
                String::from_utf8_lossy(command),
                String::from_utf8_lossy(&reply)
            ),
        }
    }
    reply.truncate(reply.len() - 4);
    Some(reply)
}

struct Engine {
    store: Store,
    session: Conversation,
}

impl Engine {
    fn new() -> Self {
        let store = Store::new(StoreConfig::default(), [11, 13]).expect("default limits");
        Self { store, session: Conversation::new() }
    }

    fn ask(&mut self, command: &[u8]) -> Option<Vec<u8>> {
        let unix = SystemTime::now().duration_since(UNIX_EPOCH).expect("a time after 1970");
        let now = WallTime::from_unix_s(unix.as_secs());
        let mut reply = Vec::new();
        let input = [command, b"mn\r\n"].concat();
        match self.session.feed(&self.store, now, &input, &mut reply) {
            Flow::Close => {
                self.session = Conversation::new();
                None
            }
            _ => {
                let shown = String::from_utf8_lossy(command);
                assert!(reply.ends_with(b"MN\r\n"), "the engine waits for more after {shown:?}");
                reply.truncate(reply.len() - 4);
                Some(reply)
            }
        }
    }
}

/// Takes out what may differ.
fn masked(reply: &[u8]) -> String {
    let text = String::from_utf8_lossy(reply);
    let mask = |line: &str| -> String {
        let words: Vec<&str> = line.split(' ').collect();
        match words[0] {
            "VALUE" if words.len() == 5 => format!("{} <cas>", words[..4].join(" ")),
            "HD" | "VA" | "EN" | "NF" | "EX" | "NS" => {
                let hide = |word: &&str| match word.split_at_checked(1) {
                    Some((name @ ("c" | "t" | "l"), number))
                        if number.parse::<u64>().is_ok() && *word != "c0" =>
                    {
                        name.to_owned()
                    }
                    _ => (*word).to_owned(),
                };
                words.iter().map(hide).collect::<Vec<_>>().join(" ")
            }
            "ME" => words
                .iter()
                .filter(|word| {
                    !["exp", "la=", "cas", "cls", "siz"].iter().any(|p| word.starts_with(p))
                })
                .copied()
                .collect::<Vec<_>>()
                .join(" "),
            _ => line.to_owned(),
        }
    };
    text.split("\r\n").map(mask).collect::<Vec<_>>().join("\r\n")
}

/// The CAS value in a reply to `mg <key> c u`.
fn cas_in(reply: Option<Vec<u8>>) -> u64 {
    let reply = reply.expect("the connection is open");
    let text = String::from_utf8_lossy(&reply).into_owned();
    let word = text.split_whitespace().find_map(|word| word.strip_prefix('c')?.parse().ok());
    word.unwrap_or(1_000_000)
}

fn with_cas(command: &[u8], cas: u64) -> Vec<u8> {
    let text = String::from_utf8(command.to_vec()).expect("generated commands are text");
    let text = text.replace("{C}", &cas.to_string()).replace("{L}", &(cas - 1).to_string());
    text.replace("{H}", &(cas + 1).to_string()).into_bytes()
}

#[test]
fn thousands_of_random_commands_are_answered_alike() {
    let Some(server) = Memcached::start() else { return };
    let mut compared = 0;
    for seed in 1..=12 {
        let mut rng = Rng(0x9e37_79b9_7f4a_7c15_u64.wrapping_mul(seed));
        let mut stream = server.connect();
        let mut engine = Engine::new();
        let mut history: Vec<String> = Vec::new();
        assert_eq!(ask_memcached(&mut stream, b"flush_all\r\n"), Some(b"OK\r\n".to_vec()));
        // CAS values start above 1 on both sides, so that one less is still a value.
        for asked in [&b"set k0 0 0 1\r\nx\r\n"[..], b"delete k0\r\n"].repeat(40) {
            ask_memcached(&mut stream, asked);
            engine.ask(asked);
        }
        for key in 0..12 {
            for _ in 0..3 {
                let asked = format!("set k{key} 0 0 1\r\nx\r\ndelete k{key}\r\n");
                ask_memcached(&mut stream, asked.as_bytes());
                engine.ask(asked.as_bytes());
            }
        }
        for step in 0..1500 {
            let (key, asked) = command(&mut rng, seed % 2 == 0);
            let cas = asked.windows(3).any(|part| matches!(part, b"{C}" | b"{L}" | b"{H}"));
            let (theirs, ours) = if cas && key.len() <= 250 {
                let look = format!("mg {key} c u\r\n").into_bytes();
                let their_cas = cas_in(ask_memcached(&mut stream, &look));
                let our_cas = cas_in(engine.ask(&look));
                let theirs = ask_memcached(&mut stream, &with_cas(&asked, their_cas));
                (theirs, engine.ask(&with_cas(&asked, our_cas)))
            } else {
                let asked = with_cas(&asked, 77);
                (ask_memcached(&mut stream, &asked), engine.ask(&asked))
            };
            history.push(String::from_utf8_lossy(&asked).chars().take(120).collect());
            let (theirs, ours) = (theirs.map(|r| masked(&r)), ours.map(|r| masked(&r)));
            assert_eq!(
                ours,
                theirs,
                "seed {seed}, step {step}: ours on the left; the last commands with {key} were {:#?}",
                history.iter().filter(|line| line.contains(&key)).rev().take(8).collect::<Vec<_>>()
            );
            compared += 1;
        }
    }
    println!("{compared} random commands were answered alike");
    assert_eq!(compared, 12 * 1500);
}

/// Lines that random commands would hardly hit.
/// 200 KB; every other one is `a`.
fn thousand_long_keys() -> String {
    (0..1_000).map(|number| format!("{number:0198} a ")).collect()
}

#[test]
fn chosen_odd_lines_are_answered_alike() {
    let Some(server) = Memcached::start() else { return };
    let long = "k".repeat(251);
    let largest = 1024 * 1024 - 60;
    let lines: Vec<String> = [
        "get a\0b", "  get a", "get a ", "gets", "gat 10", "gat 1 a", "incr a", "version_", "get a\r",
        "set a 0 0 1 noreply x\r\nx", "set a 0 0 1\r\nxy", "set a 0 0 5\r\nabcdefg",
        "set a 0 0 1 noreply\r\nxy", "set a 0 4294967296 1\r\nx", "set a 0 0 4294967297\r\nx",
        "set a +5 0 +1\r\nx", "set a 5\t6 0 1\r\nx", "set a 0 0 2147483646", "set a 0 0 2147483648",
        "set n 0 0 3\r\n1 x\r\nincr n 1\r\nget n", "set n 0 0 3\r\n 12\r\nincr n 1\r\nget n",
        "set n 0 0 0\r\n\r\nincr n 1", "set n 0 0 2\r\n-1\r\nincr n 1", "set n 0 0 2\r\n+1\r\nincr n 1",
        "set n 7 0 20\r\n18446744073709551615\r\nincr n 1\r\nget n",
        "set n 7 0 2\r\n99\r\nincr n 1\r\nget n\r\ndecr n 1\r\nget n\r\nmg n s v f h",
        "set n 0 0 21\r\n118446744073709551615\r\nincr n 1",
        "set n 0 0 2\r\n10\r\nincr n -1\r\nincr n -18446744073709551615\r\nincr n 1 1",
        "ms YWJj 2 b k c\r\nhi\r\nmg YWJj b k v\r\nmg abc k v f t s\r\nget abc\r\nme abc\r\nme YWJj b",
        "ms YWJj 2 b\r\nhi\r\nmd YWJj b k q\r\nma YWJj b k O1", "mg !! b", "me !! b", "md !! b", "ma !! b",
        "ms !! 2 b\r\nhi", "mg a k O1 q", "mg a O0123456789012345678901234567890123", "ms a 1 S5\r\nx",
        "ms a 1 Tx\r\nx", "ms a 1 Fx\r\nx", "ms a 1 Tx Fx\r\nx", "ms a 1 M\r\nx", "ms a 1 MEE\r\nx",
        "ms a 1 T0 T0\r\nx", "ms a -1", "ms a 2147483646", "ms a x", "mg a \u{7f}",
        "ms a 1 O0123456789012345678901234567890123\r\nx", "ms a 1 k O1 c q MR\r\nx\r\nms zz 1 k q MR\r\nx",
        "mg new N30 t k\r\nmg new N30 t\r\nmg new v\r\nms new 2\r\nhi\r\nmg new v N30",
        "set r 0 20 1\r\nx\r\nmg r R10\r\nmg r R30\r\nmg r R30\r\nmg r T0 R30 t",
        "set s 0 0 1\r\nx\r\nmd s I T30\r\nmg s t v\r\nmg s v\r\nms s 1\r\ny\r\nmg s v",
        "set h 0 0 1\r\nx\r\nmg h h\r\nmg h h u\r\nmg h h l\r\nmg h h",
        "set h 0 0 1\r\nx\r\nmg h h u\r\nmg h h u", "set h 0 0 1\r\nx\r\ntouch h 10\r\nmg h h t",
        "ma num\r\nma num N0 J10 v t\r\nma num v\r\nma num MD D3 v\r\nma num M- D100 v\r\nma num M+ q v",
        "ma num2 N30 J5 q\r\nma num2 t v\r\nma num2 T60 t\r\nma num2 t T0 t", "ma num3 J7", "ma k Dx", "ma k MQ", "delete a b c d", "delete a 0 noreply", "delete a 0 x", "delete a noreply 0",
        "touch a 0 0 0", "verbosity x", "verbosity 1 noreply", "verbosity 1 2 3", "flush_all 0 noreply",
        "flush_all -5", "flush_all 1 2 3", "set f 0 0 1\r\nx\r\nflush_all 1000\r\nget f",
        "foo bar HTTP/1.0", "GET / HTTP/1.1", "get / HTTP/1.1", "put / HTTP/1.1", "replace HTTP/1.1", "quit",
        "quit now", "set x 0 -1 1\r\nx\r\nget x", "set x 0 2592001 1\r\nx\r\nget x",
        "set x 0 2592000 1\r\nx\r\nmg x t", "set x 0 0 1\r\nx\r\ntouch x -1\r\nget x",
        "set x 0 0 1\r\nx\r\ngat -1 x\r\nget x", "set x 0 0 1\r\nx\r\ngats 100 x x q",
        "set p 3 0 1\r\nx\r\nappend p 9 0 2\r\nyz\r\nprepend p 9 0 1\r\nw\r\nget p\r\nappend p 0 0 0\r\n\r\nget p",
        "cas q 0 0 1 1\r\nx\r\nset q 0 0 1\r\nx\r\ncas q 0 0 1 0\r\ny\r\nms q 1 C0\r\nz\r\nget q",
        "ms ap 2 MA N30\r\nhi", "ms q 2 MA C0 k\r\nhi", "stats foo", "stats detail", "stats sizes", "stats reset",
    ]
    .iter()
    .map(|line| (*line).to_owned())
    .chain([
        format!("get a {long}"),
        format!("gat 0 {long}"),
        format!("gat x {long}"),
        format!("set {long} 0 0 1\r\nx"),
        format!("set {long} 0 0 1 noreply\r\nx"),
        format!("delete {long}"),
        format!("touch {long} 0"),
        format!("incr {long} 1"),
        format!("mg {long}\r\nmd {long}\r\nma {long}\r\nme {long}"),
        format!("ms {long} 1\r\nx"),
        format!("mg a {}", "L1 ".repeat(20)),
        format!("mg a {}", "abcdefg".split("").collect::<Vec<_>>().join(" ")),
        format!("ms a 1 {}\r\nx", "L1 ".repeat(20)),
        format!("md a {}", "L1 ".repeat(17)),
        format!("md a {}", "L1 ".repeat(18)),
        format!("get {}", "a ".repeat(500)),
        format!("set a 0 0 1\r\nx\r\nget {}", thousand_long_keys()),
        "slabs automove x".to_owned(),
        format!("set b 0 0 {largest}\r\n{}\r\nget b", "v".repeat(largest)),
        format!("set b 0 0 {0}\r\n{1}\r\nget b", largest + 1, "v".repeat(largest + 1)),
        format!("set b 0 0 {0} noreply\r\n{1}\r\nget b", largest + 1, "v".repeat(largest + 1)),
        format!("set b 1 0 {0}\r\n{1}\r\nget b", largest - 3, "v".repeat(largest - 3)),
        format!("set b 0 0 1\r\nx\r\nms b {0} q\r\n{1}\r\nget b", largest + 1, "v".repeat(largest + 1)),
        format!("set b 0 0 1\r\nx\r\nadd b 0 0 {0}\r\n{1}\r\nget b", largest + 1, "v".repeat(largest + 1)),
    ])
    .collect();
    let mut engine = Engine::new();
    for line in &lines {
        let mut asked = line.clone().into_bytes();
        asked.extend_from_slice(b"\r\n");
        let shown: String = line.chars().take(100).collect();
        // A value that is announced and does not come leaves both waiting: nothing to compare.
        if line.ends_with("2147483646") {
            continue;
        }
        let theirs = ask_memcached(&mut server.connect(), &asked).map(|reply| masked(&reply));
        let ours = engine.ask(&asked).map(|reply| masked(&reply));
        assert_eq!(ours, theirs, "ours on the left, to {shown:?}");
    }
}
