//! Clients of the key-value service that ask for more than they read, or never finish a request: the service
//! stays within its memory, and a client beside them is answered throughout.

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use crate::harness::process::Running;
use crate::harness::stream::{Buffers, connect, connect_with};
use crate::harness::{KV, Testbed, wait_until};

/// Connections that ask for a value of 1 MiB some 32,000 times each, and never read.
const AMPLIFIERS: usize = 1_000;
/// Connections that send half a line each.
const HALF_LINES: usize = 4_000;
/// The line that is left half sent.
const HALF_LINE_BYTES: usize = 2_000;
/// `kv.memory_mb` and `kv.connection_memory_mb` of the service under test.
const MEMORY_MB: u64 = 64;
const CONNECTION_MEMORY_MB: u64 = 8;
/// What the process may have beside both: program, 16 MiB of packet memory, tables, the state of
/// connections.
const OTHER_MB: u64 = 64;
/// Bytes of a retrieval command that names one key as often as a line may.
const LINE_BYTES: usize = 64 << 10;

const CONFIG: &str = "request_timeout_s = 600\n";

fn resident_mb(service: &Running) -> u64 {
    let status = fs::read_to_string(format!("/proc/{}/status", service.id())).expect("it runs");
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a process has one");
    let kilobytes = line.trim().trim_end_matches("kB").trim();
    kilobytes.parse::<u64>().expect("a number") / 1024
}

/// A client that behaves.
struct Client(TcpStream);

impl Client {
    fn new() -> Self {
        Self(connect(KV).expect("a connection"))
    }

    fn ask(&mut self, request: &[u8], reply: &[u8]) {
        self.0.write_all(request).expect("the request");
        let mut found = vec![0; reply.len()];
        self.0.read_exact(&mut found).expect("the reply");
        assert!(found == reply, "a wrong reply");
    }
}

/// Writes as much as the peer takes now. Answers whether the connection is still open.
fn push(stream: &mut TcpStream, mut bytes: &[u8]) -> bool {
    let deadline = Instant::now() + Duration::from_millis(200);
    while !bytes.is_empty() && Instant::now() < deadline {
        match stream.write(bytes) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == ErrorKind::WouldBlock => return true,
            Err(_) => return false,
        }
    }
    true
}

fn attacker(bytes: &[u8]) -> TcpStream {
    // The kernel takes the whole request, and next to nothing of the reply.
    let buffers = Buffers { receive: Some(8 << 10), send: Some(256 << 10) };
    let mut stream = connect_with(KV, buffers).expect("a connection");
    stream.set_nonblocking(true).expect("a socket of ours");
    push(&mut stream, bytes);
    stream
}

#[test]
fn hostile_clients_stay_within_the_memory_and_others_are_answered() {
    if !crate::connections::may_open((AMPLIFIERS + HALF_LINES) as u64 + 256) {
        return;
    }
    let Some(mut bed) = Testbed::new("hostile-kv", 1) else { return };
    let more = format!(
        "[memory]\nchunks = 8192\nhuge_pages = \"no\"\n[kv]\nmemory_mb = {MEMORY_MB}\n\
         connection_memory_mb = {CONNECTION_MEMORY_MB}\n{CONFIG}"
    );
    bed.serve("kv", 1, &more);
    let service = bed.service().expect("a service runs");
    let value = vec![b'v'; (1 << 20) - 100];
    let large =
        [format!("VALUE k 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\nEND\r\n"].concat();
    let stored = [format!("set k 0 0 {}\r\n", value.len()).as_bytes(), &value, b"\r\n"].concat();
    let mut line = b"get".to_vec();
    while line.len() + 4 < LINE_BYTES {
        line.extend_from_slice(b" k");
    }
    line.extend_from_slice(b"\r\n");
    let half_line = [b"set ".to_vec(), vec![b'x'; HALF_LINE_BYTES - 4]].concat();
    let most_mb = MEMORY_MB + CONNECTION_MEMORY_MB + OTHER_MB;
    let check = |what: &str, count: usize| {
        let found = resident_mb(service);
        assert!(found <= most_mb, "{found} MiB after {count} {what}; at most {most_mb} MiB");
        found
    };
    bed.at_client(|| {
        fs::write("/proc/sys/net/ipv4/ip_local_port_range", "2000 65000").expect("its own range");
        let mut good = Client::new();
        good.ask(&stored, b"STORED\r\n");
        good.ask(b"set s 0 0 5\r\nsmall\r\n", b"STORED\r\n");
        let mut streams = Vec::new();
        for (what, bytes, count) in
            [("amplifiers", &line, AMPLIFIERS), ("half lines", &half_line, HALF_LINES)]
        {
            let mut highest = 0;
            for number in 0..count {
                streams.push(attacker(bytes));
                if number % 50 == 0 {
                    good.ask(b"get s\r\n", b"VALUE s 0 5\r\nsmall\r\nEND\r\n");
                    highest = highest.max(check(what, number));
                }
                if number % 200 == 0 {
                    good.ask(b"get k\r\n", &large);
                }
            }
            println!("{count} {what}: at most {highest} MiB resident");
        }
        wait_until("some of the half lines were ended", || {
            good.ask(b"get s\r\n", b"VALUE s 0 5\r\nsmall\r\nEND\r\n");
            check("connections", streams.len());
            streams[AMPLIFIERS..].iter_mut().any(|stream| {
                let read = stream.read(&mut [0; 64]);
                !matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
            })
        });
        good.ask(b"get k\r\n", &large);
    });
    bed.stop();
}
