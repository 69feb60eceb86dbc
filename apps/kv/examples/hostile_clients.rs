//! A client's latency beside hostile ones, over kernel sockets:
//!
//! ```sh
//! # In the client's namespace of a lab in which `tailplane run docs/kv.toml` (with ports = 2) serves:
//! ulimit -n 110000; sysctl -w net.ipv4.ip_local_port_range="2000 65000"
//! cargo run --release -p kv --example hostile_clients -- 10.99.0.2:11211 2 100000 1000 PID
//! ```
//!
//! Arguments: the service's first address, its ports, connections with half a line each, connections with an
//! amplifying retrieval, and the process whose resident memory is printed. Prints the latency of one
//! well-behaved client before and beside them.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Requests of one measurement.
const REQUESTS: usize = 20_000;
/// The half of a line that is sent.
const HALF_LINE_BYTES: usize = 1_000;
/// An item as large as the default limit allows.
const LARGE_BYTES: usize = (1 << 20) - 100;

fn ask(stream: &mut TcpStream, request: &[u8], reply: &[u8]) -> io::Result<()> {
    stream.write_all(request)?;
    let mut found = vec![0; reply.len()];
    stream.read_exact(&mut found)?;
    if found != reply {
        return Err(io::Error::new(ErrorKind::InvalidData, "another reply than the one expected"));
    }
    Ok(())
}

fn measure(what: &str, stream: &mut TcpStream, process: &str) -> io::Result<()> {
    let mut times = Vec::with_capacity(REQUESTS);
    for _ in 0..REQUESTS {
        let begun = Instant::now();
        ask(stream, b"get s\r\n", b"VALUE s 0 5\r\nsmall\r\nEND\r\n")?;
        times.push(begun.elapsed());
    }
    times.sort_unstable();
    let at = |share: f64| times[(share * (REQUESTS - 1) as f64) as usize].as_micros();
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let resident =
        status.lines().find(|line| line.starts_with("VmRSS")).unwrap_or("VmRSS: unknown");
    println!("{what}: p50 {} us, p99 {} us, p99.9 {} us; {resident}", at(0.5), at(0.99), at(0.999));
    Ok(())
}

fn attack(to: SocketAddr, bytes: &[u8]) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(10))?;
    stream.set_nonblocking(true)?;
    match stream.write(bytes) {
        Err(error) if error.kind() != ErrorKind::WouldBlock => Err(error),
        _ => Ok(stream),
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let usage = "arguments: ADDRESS PORTS HALF_LINES AMPLIFIERS PID";
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, ports, half_lines, amplifiers, process] = &arguments[..] else {
        return Err(usage.into());
    };
    let (first, ports): (SocketAddr, u16) = (address.parse()?, ports.parse()?);
    let (half_lines, amplifiers): (usize, usize) = (half_lines.parse()?, amplifiers.parse()?);
    let mut good = TcpStream::connect(first)?;
    good.set_nodelay(true)?;
    good.set_read_timeout(Some(Duration::from_secs(10)))?;
    ask(&mut good, b"set s 0 0 5\r\nsmall\r\n", b"STORED\r\n")?;
    let large = vec![b'v'; LARGE_BYTES];
    let set = [format!("set k 0 0 {LARGE_BYTES}\r\n").as_bytes(), &large, b"\r\n"].concat();
    ask(&mut good, &set, b"STORED\r\n")?;
    measure("alone", &mut good, process)?;
    let half_line = vec![b'x'; HALF_LINE_BYTES];
    let retrieval = [b"get".to_vec(), b" k".repeat(32_000), b"\r\n".to_vec()].concat();
    let mut streams = Vec::with_capacity(half_lines + amplifiers);
    for (bytes, count) in [(&half_line, half_lines), (&retrieval, amplifiers)] {
        for number in 0..count {
            let port = first.port() + (number % usize::from(ports)) as u16;
            streams.push(attack(SocketAddr::new(first.ip(), port), bytes)?);
        }
        measure(&format!("beside {} hostile connections", streams.len()), &mut good, process)?;
    }
    let ended = streams.iter().filter(|stream| {
        let mut stream: &TcpStream = stream;
        let read = stream.read(&mut [0; 1 << 10]);
        !matches!(read, Err(error) if error.kind() == ErrorKind::WouldBlock)
    });
    println!("{} of them were ended, or have something to read", ended.count());
    Ok(())
}
