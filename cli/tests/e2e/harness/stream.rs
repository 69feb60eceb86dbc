//! Kernel TCP sockets as clients, and bytes that tell where they belong.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, ipproto, socket_with, sockopt};

use super::PATIENCE;

/// Bytes written and read at a time where the size does not matter.
const PIECE: usize = 64 << 10;

/// Buffers of a socket; `None` leaves the kernel's choice.
#[derive(Clone, Copy, Debug, Default)]
pub struct Buffers {
    pub receive: Option<usize>,
    pub send: Option<usize>,
}

/// Connects from the calling thread's namespace. Nothing on the socket waits for ever.
pub fn connect(to: SocketAddr) -> io::Result<TcpStream> {
    connect_with(to, Buffers::default())
}

/// The same, with small buffers: they must be set before the handshake to bound the window.
pub fn connect_with(to: SocketAddr, buffers: Buffers) -> io::Result<TcpStream> {
    let flags = SocketFlags::CLOEXEC;
    let family = if to.is_ipv6() { AddressFamily::INET6 } else { AddressFamily::INET };
    let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))?;
    if let Some(bytes) = buffers.receive {
        sockopt::set_socket_recv_buffer_size(&socket, bytes)?;
    }
    if let Some(bytes) = buffers.send {
        sockopt::set_socket_send_buffer_size(&socket, bytes)?;
    }
    // The send timeout bounds the connecting, too.
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Send, Some(PATIENCE))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(PATIENCE))?;
    retry(|| Ok(rustix::net::connect(&socket, &to)?))?;
    let stream = TcpStream::from(socket);
    stream.set_nodelay(true)?;
    Ok(stream)
}

/// Signals that nobody handles (a child has ended) interrupt sockets with timeouts.
fn retry<R>(mut call: impl FnMut() -> io::Result<R>) -> io::Result<R> {
    loop {
        match call() {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

/// Has the next close reset the connection.
pub fn abort(stream: TcpStream) {
    sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).expect("SO_LINGER");
    drop(stream);
}

/// Sends bytes and expects the same back.
#[track_caller]
pub fn assert_echoes(stream: &mut TcpStream, bytes: &[u8]) {
    stream.write_all(bytes).expect("the peer takes bytes");
    let mut back = vec![0; bytes.len()];
    stream.read_exact(&mut back).expect("the peer answers");
    assert!(back == bytes, "other bytes came back");
}

/// Expects that the peer has closed in order.
#[track_caller]
pub fn assert_end(stream: &mut TcpStream) {
    let mut byte = [0];
    let count = retry(|| stream.read(&mut byte)).expect("an orderly end");
    assert_eq!(count, 0, "a byte where the end should be");
}

/// The byte at a place of the stream of this seed. No two places near each other look alike.
fn pattern_word(seed: u64, index: u64) -> u64 {
    // One round of a multiply and shift mixer.
    let mut word = (index ^ seed.rotate_left(32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    word ^= word >> 29;
    word = word.wrapping_mul(0xbf58_476d_1ce4_e5b9);
    word ^ (word >> 32)
}

/// Fills `bytes`, which begin at `offset` of the stream. Both are multiples of 8.
fn fill(seed: u64, offset: u64, bytes: &mut [u8]) {
    for (index, word) in bytes.chunks_exact_mut(8).enumerate() {
        word.copy_from_slice(&pattern_word(seed, offset / 8 + index as u64).to_le_bytes());
    }
}

/// Sends `total` bytes of the stream of this seed, a multiple of 8, then no more.
pub fn send_pattern(mut stream: &TcpStream, seed: u64, total: u64) -> io::Result<()> {
    let mut piece = vec![0; PIECE];
    let mut offset = 0;
    while offset < total {
        let count = (total - offset).min(PIECE as u64) as usize;
        fill(seed, offset, &mut piece[..count]);
        stream.write_all(&piece[..count])?;
        offset += count as u64;
    }
    stream.shutdown(Shutdown::Write)
}

/// Expects `total` bytes of the stream of this seed, each one, and then the end.
#[track_caller]
pub fn expect_pattern(mut stream: &TcpStream, seed: u64, total: u64) {
    let (mut piece, mut wanted) = (vec![0; PIECE], vec![0; PIECE]);
    let mut offset = 0;
    while offset < total {
        let count = (total - offset).min(PIECE as u64) as usize;
        let result = stream.read_exact(&mut piece[..count]);
        result.unwrap_or_else(|error| panic!("after {offset} of {total} bytes: {error}"));
        fill(seed, offset, &mut wanted[..count]);
        if piece[..count] != wanted[..count] {
            let wrong = (0..count).find(|&at| piece[at] != wanted[at]).unwrap_or(0);
            panic!("byte {} of {total} is wrong", offset + wrong as u64);
        }
        offset += count as u64;
    }
    let mut byte = [0];
    let count = retry(|| stream.read(&mut byte)).expect("an orderly end");
    assert_eq!(count, 0, "more bytes than were sent");
}

/// Sends and receives at once, closing its half after the last byte.
pub fn transfer(stream: &TcpStream, seed: u64, total: u64) {
    thread::scope(|scope| {
        let writer = scope.spawn(|| send_pattern(stream, seed, total));
        expect_pattern(stream, seed, total);
        writer.join().expect("the writer").expect("the peer takes all bytes");
    });
}
