//! The same client scripts against the kernel's TCP and against ours: both must pass.
//!
//! The kernel is the reference: a script that it does not pass is a wrong script.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use crate::harness::kernel_echo::KernelEcho;
use crate::harness::stream::{
    Buffers, abort, assert_echoes, assert_end, connect, connect_with, expect_pattern, send_pattern,
};
use crate::harness::{ECHO, PATIENCE, Testbed, kernel_at};

/// More than all buffers between a writer and a reader that does not read.
const BEYOND_BUFFERS: u64 = 16 << 20;
/// The client's buffers where they are to fill up soon.
const SMALL: Buffers = Buffers { receive: Some(16 << 10), send: Some(32 << 10) };

/// Runs a script on the kernel, then on ours, which must have forgotten its connections then.
fn on_both(tag: &str, script: impl Fn(SocketAddr) + Sync) {
    let Some(mut bed) = Testbed::with(tag, "echo") else { return };
    let kernel = KernelEcho::start(&bed.lab, ECHO.port());
    for (name, address) in [("kernel", kernel_at(ECHO.port())), ("tailplane", ECHO)] {
        let begun = Instant::now();
        bed.at_client(|| script(address));
        println!("{name} passes, {:?}", begun.elapsed());
    }
    drop(kernel);
    let summary = bed.stop();
    assert_eq!(summary.left, 0, "{}", summary.text);
}

fn open(to: SocketAddr) -> TcpStream {
    connect(to).expect("a connection")
}

/// The service still serves.
fn assert_serves(to: SocketAddr) {
    let mut stream = open(to);
    assert_echoes(&mut stream, b"still there?");
    stream.shutdown(Shutdown::Write).expect("open until now");
    assert_end(&mut stream);
}

#[test]
fn a_half_closed_client_gets_all_that_is_due() {
    on_both("half", |to| {
        for total in [0, 8, 1 << 16, 1 << 20] {
            let stream = open(to);
            thread::scope(|scope| {
                let writer = scope.spawn(|| send_pattern(&stream, total, total));
                // The end comes while the reply is still unread.
                thread::sleep(Duration::from_millis(20));
                expect_pattern(&stream, total, total);
                writer.join().expect("the writer").expect("all is taken");
            });
        }
        // Bytes and end in one go, and nothing read before.
        let mut stream = open(to);
        stream.write_all(b"bye").expect("open");
        stream.shutdown(Shutdown::Write).expect("open");
        let mut back = Vec::new();
        stream.read_to_end(&mut back).expect("an orderly end");
        assert_eq!(back, b"bye");
    });
}

#[test]
fn connections_without_a_byte_come_and_go() {
    on_both("empty", |to| {
        for _ in 0..50 {
            drop(open(to));
        }
        let mut streams: Vec<_> = (0..50).map(|_| open(to)).collect();
        // The last one first, each waiting for the peer's end.
        while let Some(mut stream) = streams.pop() {
            stream.shutdown(Shutdown::Write).expect("open");
            assert_end(&mut stream);
        }
        assert_serves(to);
    });
}

#[test]
fn clients_that_abort_harm_nobody() {
    on_both("abort", |to| {
        let mut bystander = open(to);
        for round in 0..20 {
            // Before a byte, in the middle of an exchange, and with much under way.
            abort(open(to));
            let mut stream = open(to);
            assert_echoes(&mut stream, b"so far so good");
            abort(stream);
            let mut stream = connect_with(to, SMALL).expect("a connection");
            stream.write_all(&[round; 20_000]).expect("open");
            abort(stream);
            // A close with unread bytes is an abort, too.
            let mut stream = open(to);
            stream.write_all(b"unread").expect("open");
            stream.peek(&mut [0]).expect("an answer");
            drop(stream);
        }
        assert_echoes(&mut bystander, b"unharmed");
        drop(bystander);
        assert_serves(to);
    });
}

/// Writes until nothing more is taken for a while. Answers how many bytes were.
fn write_until_it_stalls(mut stream: &TcpStream, limit: u64) -> u64 {
    stream.set_nonblocking(true).expect("a socket of ours");
    let piece = [0x5a; 8192];
    let (mut written, mut last_progress) = (0, Instant::now());
    let give_up = Instant::now() + PATIENCE;
    while written < limit && last_progress.elapsed() < Duration::from_millis(400) {
        assert!(Instant::now() < give_up, "it neither stalls nor ends");
        match stream.write(&piece) {
            Ok(count) => {
                written += count as u64;
                last_progress = Instant::now();
            }
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                thread::sleep(Duration::from_millis(2));
            }
            Err(error) => panic!("after {written} bytes: {error}"),
        }
    }
    stream.set_nonblocking(false).expect("a socket of ours");
    written
}

#[test]
fn a_slow_reader_stalls_the_writer_and_then_gets_every_byte() {
    on_both("slow", |to| {
        let mut stream = connect_with(to, SMALL).expect("a connection");
        let written = write_until_it_stalls(&stream, BEYOND_BUFFERS);
        assert!(written < BEYOND_BUFFERS, "the server buffers without bound");
        // Both windows are closed now. Long enough for probes of a zero window.
        thread::sleep(Duration::from_millis(900));
        let mut rest = written;
        let mut bytes = vec![0; 4096];
        while rest > 0 {
            let count = rest.min(bytes.len() as u64) as usize;
            stream.read_exact(&mut bytes[..count]).expect("every byte comes");
            assert!(bytes[..count].iter().all(|&byte| byte == 0x5a), "a wrong byte");
            rest -= count as u64;
        }
        // It goes on as if nothing had been.
        assert_echoes(&mut stream, b"and now?");
        stream.shutdown(Shutdown::Write).expect("open");
        assert_end(&mut stream);
    });
}

#[test]
fn a_slow_reader_that_closes_its_half_gets_all_before_the_end() {
    on_both("slow-half", |to| {
        let stream = connect_with(to, SMALL).expect("a connection");
        thread::scope(|scope| {
            let writer = scope.spawn(|| send_pattern(&stream, 3, 2 << 20));
            thread::sleep(Duration::from_millis(500));
            expect_pattern(&stream, 3, 2 << 20);
            writer.join().expect("the writer").expect("all is taken");
        });
    });
}

#[test]
fn a_client_that_stalls_may_abort() {
    on_both("slow-abort", |to| {
        let stream = connect_with(to, SMALL).expect("a connection");
        write_until_it_stalls(&stream, BEYOND_BUFFERS);
        abort(stream);
        assert_serves(to);
    });
}

#[test]
fn many_small_writes_keep_their_order() {
    on_both("small", |to| {
        let mut stream = open(to);
        for number in 0..500_u16 {
            assert_echoes(&mut stream, &[number as u8]);
        }
        let writes = 20_000_u32;
        thread::scope(|scope| {
            let mut writer = &stream;
            let writing = scope.spawn(move || {
                for number in 0..writes {
                    // 1 to 7 bytes, all of the number's last one.
                    let bytes = [number as u8; 7];
                    writer.write_all(&bytes[..1 + number as usize % 7])?;
                }
                writer.shutdown(Shutdown::Write)
            });
            let mut back = Vec::new();
            (&stream).read_to_end(&mut back).expect("an orderly end");
            writing.join().expect("the writer").expect("all is taken");
            let wanted: Vec<u8> = (0..writes)
                .flat_map(|number| std::iter::repeat_n(number as u8, 1 + number as usize % 7))
                .collect();
            assert!(back == wanted, "{} bytes back, {} sent", back.len(), wanted.len());
        });
    });
}
