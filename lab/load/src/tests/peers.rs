//! Peers for tests: a memcached of a few lines, an echo server thread, and the real memcached.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Just enough of memcached's text protocol to answer what the generator sends.
#[derive(Debug, Default)]
pub(crate) struct MiniCache {
    values: HashMap<Vec<u8>, Vec<u8>>,
    /// SETs that were executed.
    pub sets: u64,
    /// Every n-th GET is answered with a changed byte; zero for never.
    corrupt_every: u64,
    gets: u64,
}

impl MiniCache {
    /// Answers every n-th GET with a changed byte.
    pub fn corrupting(every: u64) -> Self {
        Self { corrupt_every: every, ..Self::default() }
    }

    /// Keys that are stored.
    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// The answers to the whole requests at the start of `input`, which are taken out of it.
    pub fn answer_stream(&mut self, input: &mut Vec<u8>) -> Vec<u8> {
        let mut whole = 0;
        while let Some(end) = input[whole..].windows(2).position(|w| w == b"\r\n") {
            let line = &input[whole..whole + end];
            let body = match line.strip_prefix(b"set ") {
                None => 0,
                Some(fields) => {
                    let length = fields.rsplit(|&b| b == b' ').next().expect("a length");
                    let length = std::str::from_utf8(length).expect("text");
                    length.parse::<usize>().expect("a length") + 2
                }
            };
            if input.len() < whole + end + 2 + body {
                break;
            }
            whole += end + 2 + body;
        }
        let requests: Vec<u8> = input.drain(..whole).collect();
        self.answer(&requests)
    }

    /// The answers to the whole requests in `bytes`, which holds nothing else.
    pub fn answer(&mut self, mut bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        while !bytes.is_empty() {
            let end = bytes.windows(2).position(|w| w == b"\r\n").expect("a whole line");
            let line = std::str::from_utf8(&bytes[..end]).expect("a text line");
            let fields: Vec<_> = line.split(' ').collect();
            bytes = &bytes[end + 2..];
            match fields[..] {
                ["get", key] => {
                    self.gets += 1;
                    if let Some(value) = self.values.get(key.as_bytes()) {
                        let header = format!("VALUE {key} 0 {}\r\n", value.len());
                        out.extend_from_slice(header.as_bytes());
                        out.extend_from_slice(value);
                        if self.corrupt_every > 0 && self.gets.is_multiple_of(self.corrupt_every) {
                            *out.last_mut().expect("values are not empty") ^= 0x55;
                        }
                        out.extend_from_slice(b"\r\n");
                    }
                    out.extend_from_slice(b"END\r\n");
                }
                ["set", key, "0", "0", length] => {
                    let length: usize = length.parse().expect("a length");
                    self.values.insert(key.as_bytes().to_vec(), bytes[..length].to_vec());
                    assert_eq!(&bytes[length..length + 2], b"\r\n");
                    bytes = &bytes[length + 2..];
                    self.sets += 1;
                    out.extend_from_slice(b"STORED\r\n");
                }
                _ => panic!("not a request: {line:?}"),
            }
        }
        out
    }
}

/// A kernel echo server on a loopback port: one thread a connection, which ends with it. Stops
/// accepting when it is dropped.
pub(crate) struct EchoServer {
    pub address: SocketAddr,
    stop: Arc<AtomicBool>,
    accepting: Option<std::thread::JoinHandle<()>>,
}

impl EchoServer {
    /// Returns every byte with `change` applied.
    pub fn start(change: fn(u8) -> u8) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
        let address = listener.local_addr().expect("a bound address");
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let accepting = std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stopped.load(Ordering::Acquire) {
                    return;
                }
                if let Ok(stream) = stream {
                    std::thread::spawn(move || echo(stream, change));
                }
            }
        });
        Self { address, stop, accepting: Some(accepting) }
    }
}

impl Drop for EchoServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        // Wakes the accepting thread, so that it sees the flag.
        let _ = TcpStream::connect(self.address);
        if let Some(thread) = self.accepting.take() {
            let _ = thread.join();
        }
    }
}

fn echo(mut stream: TcpStream, change: fn(u8) -> u8) {
    let _ = stream.set_nodelay(true);
    // A test that fails must not leave a thread behind for long.
    let _ = stream.set_read_timeout(Some(Duration::from_secs(5)));
    let mut buffer = [0; 16 << 10];
    while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
        buffer[..bytes].iter_mut().for_each(|byte| *byte = change(*byte));
        if stream.write_all(&buffer[..bytes]).is_err() {
            return;
        }
    }
}

/// The distribution's memcached on a loopback port, ended when dropped.
pub(crate) struct RealMemcached {
    pub address: SocketAddr,
    child: Child,
}

impl RealMemcached {
    /// `None` where it is not installed.
    pub fn start() -> Option<Self> {
        let program = "/usr/bin/memcached";
        if !std::path::Path::new(program).exists() {
            return None;
        }
        // The port is free now; should another process take it first, memcached ends at once and
        // the next port is tried.
        for _ in 0..5 {
            let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
            let address = listener.local_addr().expect("a bound address");
            drop(listener);
            let mut child = Command::new(program)
                .args(["-l", "127.0.0.1", "-U", "0", "-t", "1", "-m", "64", "-u", "nobody"])
                .args(["-p", &address.port().to_string()])
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("memcached starts");
            let deadline = Instant::now() + Duration::from_secs(1);
            while Instant::now() < deadline && matches!(child.try_wait(), Ok(None)) {
                if TcpStream::connect(address).is_ok_and(|stream| is_process(stream, child.id())) {
                    return Some(Self { address, child });
                }
                std::thread::sleep(Duration::from_millis(2));
            }
            let _ = child.kill();
            let _ = child.wait();
        }
        panic!("memcached did not listen on any of five free ports");
    }
}

/// Whether the memcached at the other end is this process: another test's may have been quicker to
/// take the port, and would end with that test.
fn is_process(mut stream: TcpStream, process: u32) -> bool {
    let _ = stream.set_read_timeout(Some(Duration::from_secs(1)));
    let mut reply = Vec::new();
    let mut buffer = [0; 4096];
    if stream.write_all(b"stats\r\n").is_err() {
        return false;
    }
    while !reply.ends_with(b"END\r\n") {
        match stream.read(&mut buffer) {
            Ok(0) | Err(_) => return false,
            Ok(len) => reply.extend_from_slice(&buffer[..len]),
        }
    }
    String::from_utf8_lossy(&reply).contains(&format!("STAT pid {process}\r\n"))
}

impl Drop for RealMemcached {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
