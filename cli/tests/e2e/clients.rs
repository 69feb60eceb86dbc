//! Clients that nobody wrote for us: ping, netcat, Python's and C's memcached clients.

use std::fmt::Write as _;
use std::io::{BufRead, BufReader, Write};
use std::process::{Command, Stdio};

use crate::harness::stream::connect;
use crate::harness::{KV, Testbed};

/// The distribution's Python, which has the distribution's packages.
const PYTHON: &str = "/usr/bin/python3";
/// Runs a program for so many seconds at most.
const TIMEOUT: [&str; 2] = ["--kill-after=1", "20"];

/// A client that cannot run for ever.
fn client(program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(TIMEOUT).arg(program).args(arguments);
    command
}

/// Whether a program is installed; prints it where it is not.
fn is_installed(program: &str, package: &str) -> bool {
    let mut command = Command::new(program);
    let installed = command.arg("--help").stdin(Stdio::null()).output().is_ok();
    if !installed {
        println!("skipped: needs {program} (package {package})");
    }
    installed
}

#[test]
fn ping_gets_every_size_back() {
    let Some(mut bed) = Testbed::with("ping", "echo") else { return };
    if !is_installed("ping", "iputils-ping") {
        return;
    }
    for size in ["0", "1", "56", "999", "1471", "1472"] {
        let arguments = ["-n", "-c", "3", "-i", "0.02", "-W", "5", "-M", "do", "-s", size];
        let mut command = client("ping", &arguments);
        command.arg("10.77.0.2");
        let Some(finished) = bed.run(command) else { return };
        let text = &finished.assert_success().stdout;
        assert!(text.contains(" 3 received, 0% packet loss"), "{size} bytes: {text}");
        // ping compares the bytes that come back.
        assert!(!text.contains("wrong") && !text.contains("DUP"), "{size} bytes: {text}");
    }
    bed.stop();
}

#[test]
fn netcat_gets_its_file_back_and_then_the_end() {
    let Some(mut bed) = Testbed::with("netcat", "echo") else { return };
    let help = Command::new("nc").arg("-h").stdin(Stdio::null()).output();
    let closes_its_half = help.is_ok_and(|help| {
        String::from_utf8_lossy(&[help.stdout, help.stderr].concat()).contains("-N")
    });
    if !closes_its_half {
        println!("skipped: needs nc with -N (package netcat-openbsd)");
        return;
    }
    let mut sent = String::new();
    for line in 0..50_000 {
        writeln!(sent, "{line} of a file").expect("memory");
    }
    let file = bed.directory.write("sent", &sent);
    let script = format!("exec nc -N 10.77.0.2 7 < '{}'", file.display());
    let finished = bed.run(client("sh", &["-c", &script])).expect("there is a shell");
    assert!(finished.assert_success().stdout == sent, "{} bytes back", finished.stdout.len());
    let summary = bed.stop();
    assert_eq!((summary.accepted, summary.left), (vec![1], 0), "{}", summary.text);
}

#[test]
fn sockperf_measures_and_misses_nothing() {
    let Some(mut bed) = Testbed::with("sockperf", "sockperf") else { return };
    if !is_installed("sockperf", "sockperf") {
        return;
    }
    let ping_pong = ["ping-pong", "-i", "10.77.0.2", "-p", "11111", "-t", "1", "-m", "64"];
    for transport in [&["--tcp"][..], &[]] {
        let arguments = [&ping_pong[..], transport].concat();
        let Some(finished) = bed.run(client("sockperf", &arguments)) else { return };
        let text = &finished.assert_success().stdout;
        assert!(
            text.contains("dropped messages = 0; # duplicated messages = 0; # out-of-order")
                && text.contains("percentile 50.000"),
            "{transport:?}: {text}"
        );
    }
    let summary = bed.stop();
    assert_eq!((summary.accepted, summary.left), (vec![1], 0), "{}", summary.text);
}

/// Speaks the protocol by itself: what no library would send, and large values.
const PYTHON_RAW: &str = r#"
import socket
s = socket.create_connection(("10.77.0.2", 11211), timeout=20)
f = s.makefile("rb")
def ask(request, reply):
    s.sendall(request)
    got = f.read(len(reply))
    assert got == reply, (request[:60], got[:60], reply[:60])
ask(b"set a 5 0 3\r\nabc\r\n", b"STORED\r\n")
ask(b"get a\r\n", b"VALUE a 5 3\r\nabc\r\nEND\r\n")
ask(b"get a nobody a\r\n", b"VALUE a 5 3\r\nabc\r\n" * 2 + b"END\r\n")
# One byte at a time.
for byte in b"append a 0 0 1\r\nd\r":
    s.sendall(bytes([byte]))
ask(b"\n", b"STORED\r\n")
ask(b"get a\r\n", b"VALUE a 5 4\r\nabcd\r\nEND\r\n")
# A thousand requests in one go.
ask(b"".join(b"set k%d 0 0 4 noreply\r\n%04d\r\n" % (i, i) for i in range(1000)) + b"mn\r\n", b"MN\r\n")
ask(b"".join(b"get k%d\r\n" % i for i in range(1000)),
    b"".join(b"VALUE k%d 0 4\r\n%04d\r\nEND\r\n" % (i, i) for i in range(1000)))
# As large as an item may be, less what it needs besides.
large = bytes(range(256)) * 3900
ask(b"set large 0 0 %d\r\n" % len(large) + large + b"\r\n", b"STORED\r\n")
ask(b"get large\r\n", b"VALUE large 0 %d\r\n" % len(large) + large + b"\r\nEND\r\n")
ask(b"nonsense\r\n", b"ERROR\r\n")
s.sendall(b"quit\r\n")
assert f.read() == b"", "the server closes after quit"
print("all well")
"#;

const PYTHON_PYMEMCACHE: &str = r#"
from pymemcache.client.base import Client
from pymemcache.exceptions import MemcacheClientError
c = Client(("10.77.0.2", 11211), connect_timeout=20, timeout=20, no_delay=True, default_noreply=False)
assert c.version().startswith(b"1.6."), c.version()
assert c.set("a", "one") and c.get("a") == b"one"
assert c.add("a", "two") is False and c.replace("a", "two") and c.get("a") == b"two"
assert c.append("a", "+") and c.prepend("a", "-") and c.get("a") == b"-two+"
assert c.set("n", "41") and c.incr("n", 1) == 42 and c.decr("n", 50) == 0
value, token = c.gets("a")
assert c.cas("a", "swapped", token) is True and c.cas("a", "late", token) is False
many = {"key%d" % i: b"v" * (i * 7 % 4000) for i in range(500)}
assert c.set_many(many) == []
assert c.get_many(list(many)) == many
assert c.touch("a", 100) and not c.touch("nobody", 100)
assert c.delete("a") and c.get("a") is None and not c.delete("a")
assert int(c.stats()[b"curr_items"]) >= 500
try:
    c.get("a" * 251)
    raise SystemExit("a key of 251 bytes was taken")
except MemcacheClientError:
    pass
assert c.flush_all() and c.get("key1") is None
c.quit()
print("all well")
"#;

fn run_python(tag: &str, script: &str) {
    let Some(mut bed) = Testbed::with(tag, "kv") else { return };
    let path = bed.directory.write("client.py", script);
    let Some(path) = path.to_str() else { return };
    let finished = bed.run(client(PYTHON, &[path])).expect("timeout is there");
    assert!(finished.assert_success().stdout.contains("all well"));
    let summary = bed.stop();
    // After `quit` the service may close first, and then keeps the connection in TIME-WAIT.
    assert_eq!(summary.accepted, [1], "{}", summary.text);
    assert!(summary.left <= 1, "{}", summary.text);
}

#[test]
fn python_speaks_to_the_kv_service() {
    if is_installed(PYTHON, "python3") {
        run_python("python", PYTHON_RAW);
    }
}

#[test]
fn pymemcache_speaks_to_the_kv_service() {
    let import = Command::new(PYTHON).args(["-c", "import pymemcache"]).output();
    if import.is_ok_and(|import| import.status.success()) {
        run_python("pymemcache", PYTHON_PYMEMCACHE);
    } else {
        println!("skipped: needs pymemcache (package python3-pymemcache)");
    }
}

#[test]
fn libmemcached_speaks_to_the_kv_service() {
    if !is_installed("memccat", "libmemcached-tools") {
        return;
    }
    let Some(mut bed) = Testbed::with("libmemcached", "kv") else { return };
    let file = bed.directory.write("stored", "what was stored\n");
    let file = file.to_str().expect("a plain path");
    // The key is the file's name without its directories.
    let steps: [(&str, &[&str], bool, &str); 11] = [
        ("memcping", &[], true, ""),
        ("memccp", &[file], true, ""),
        ("memccat", &["stored"], true, "what was stored"),
        ("memcexist", &["stored"], true, ""),
        ("memctouch", &["stored"], true, ""),
        ("memcstat", &[], true, "curr_items: 1"),
        ("memcrm", &["stored"], true, ""),
        ("memccat", &["stored"], false, ""),
        ("memcslap", &["--concurrency=4", "--execute-number=200", "--test=set"], true, ""),
        ("memcslap", &["--concurrency=4", "--execute-number=200", "--test=mget"], true, ""),
        ("memcflush", &[], true, ""),
    ];
    for (program, arguments, succeeds, prints) in steps {
        let mut command = client(program, &["--servers=10.77.0.2:11211"]);
        command.args(arguments);
        let finished = bed.run(command).expect("timeout is there");
        // `timeout` says 127 where the program is not there: an older package has fewer.
        if finished.status.code() == Some(127) {
            println!("skipped: needs {program} (package libmemcached-tools)");
            continue;
        }
        assert_eq!(finished.status.success(), succeeds, "{program}: {finished:?}");
        assert!(finished.stdout.contains(prints), "{program}: {finished:?}");
    }
    bed.stop();
}

#[test]
fn libmemcached_finds_the_text_protocol_complete() {
    if !is_installed("memccapable", "libmemcached-tools") {
        return;
    }
    let Some(mut bed) = Testbed::with("memccapable", "kv") else { return };
    let command = client("memccapable", &["-a", "-h", "10.77.0.2", "-p", "11211"]);
    let finished = bed.run(command).expect("timeout is there");
    let text = &finished.assert_success().stdout;
    assert!(text.contains("All tests passed") && !text.contains("[FAIL"), "{text}");
    bed.stop();
}

/// One connection that asks line by line.
struct Asking(BufReader<std::net::TcpStream>);

impl Asking {
    fn ask(&mut self, request: &str, replies: &[&str]) {
        self.0.get_mut().write_all(request.as_bytes()).expect("open");
        for wanted in replies {
            let mut line = String::new();
            self.0.read_line(&mut line).expect("an answer");
            assert_eq!(line.trim_end(), *wanted, "to {request:?}");
        }
    }
}

#[test]
fn two_elastic_threads_share_one_store() {
    const CONNECTIONS: usize = 48;
    let Some(mut bed) = Testbed::new("two", 2) else { return };
    bed.serve("kv", 2, "");
    let mut asking: Vec<Asking> = bed.at_client(|| {
        let open = |_| Asking(BufReader::new(connect(KV).expect("a connection")));
        (0..CONNECTIONS).map(open).collect()
    });
    for (number, connection) in asking.iter_mut().enumerate() {
        connection.ask(&format!("set k{number} 0 0 2\r\n{number:02}\r\n"), &["STORED"]);
    }
    // Every key through every connection.
    for connection in &mut asking {
        for number in 0..CONNECTIONS {
            let value = format!("VALUE k{number} 0 2");
            let wanted = [value.as_str(), &format!("{number:02}"), "END"];
            connection.ask(&format!("get k{number}\r\n"), &wanted);
        }
    }
    for connection in &mut asking {
        connection.ask("incr k0 1\r\n", &[]);
    }
    let mut counts: Vec<u64> = asking
        .iter_mut()
        .map(|connection| {
            let mut line = String::new();
            connection.0.read_line(&mut line).expect("an answer");
            line.trim_end().parse().expect("a number")
        })
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, (1..=CONNECTIONS as u64).collect::<Vec<_>>(), "increments are lost");
    for mut connection in asking {
        connection.ask("quit\r\n", &[]);
        assert_eq!(connection.0.read_line(&mut String::new()).expect("an orderly end"), 0);
    }
    let summary = bed.stop();
    assert_eq!(summary.accepted.iter().sum::<u64>(), CONNECTIONS as u64, "{}", summary.text);
    // The chance that a random distribution leaves one thread out is one in 2^47.
    assert!(summary.accepted.iter().all(|&count| count > 0), "{}", summary.text);
    assert_eq!(summary.accepted.len(), 2, "{}", summary.text);
}
