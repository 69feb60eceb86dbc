//! The kernel's echo server: one thread on the server's core, which spins (the honest latency peer) or
//! blocks (as servers do, and as in IX's figures).

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::{Context, bail};
use load::Wait;
use measure::pin;
use rustix::event::epoll::{EventData, EventFlags};
use rustix::event::{Timespec, epoll};

use super::processors::SERVER_CPU;
use service::lab::constants::DATAPLANE_KERNEL_ADDRESS;
use service::lab::{Lab, in_namespace};

const PORT: u16 = 7;
/// Readiness reports taken at a time.
const BATCH: usize = 128;
/// Longest that a blocking server sleeps without looking whether it is to end.
const NAP: Timespec = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };

/// A running server; it ends when dropped.
#[derive(Debug)]
pub struct KernelEcho {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl KernelEcho {
    /// Where it listens in the dataplane's namespace.
    pub const TARGET: SocketAddrV4 = SocketAddrV4::new(DATAPLANE_KERNEL_ADDRESS, PORT);

    /// Starts it in the dataplane's namespace.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn start(lab: &Lab, wait: Wait) -> anyhow::Result<Self> {
        in_namespace(lab.dataplane(), || Self::start_at(Self::TARGET, wait))?
            .map(|(server, _)| server)
    }

    /// Starts it in the caller's namespace. Answers where it listens, too.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn start_at(target: SocketAddrV4, wait: Wait) -> anyhow::Result<(Self, SocketAddrV4)> {
        let listener = TcpListener::bind(target).context("binding the kernel's echo server")?;
        listener.set_nonblocking(true)?;
        let SocketAddr::V4(target) = listener.local_addr()? else {
            bail!("the kernel's echo server was bound to an IPv4 address and is at another");
        };
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("kernel-echo".into()).spawn(move || {
            pin(SERVER_CPU)?;
            let timeout = match wait {
                Wait::Spin => Timespec { tv_sec: 0, tv_nsec: 0 },
                Wait::Block => NAP,
            };
            Echo::new(listener)?.serve(&flag, timeout)
        })?;
        Ok((Self { stop, thread: Some(thread) }, target))
    }
}

impl Drop for KernelEcho {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only echoes: what it failed with shows in the client's numbers.
            let _ = thread.join();
        }
    }
}

/// A connection, and what its socket had no room for.
struct Peer {
    stream: TcpStream,
    unsent: VecDeque<u8>,
}

struct Echo {
    poller: OwnedFd,
    listener: TcpListener,
    /// By the numbers of their descriptors.
    peers: Vec<Option<Peer>>,
    buffer: Vec<u8>,
}

impl Echo {
    fn new(listener: TcpListener) -> anyhow::Result<Self> {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        epoll::add(&poller, listener.as_fd(), EventData::new_u64(u64::MAX), EventFlags::IN)?;
        let buffer = vec![0; 64 << 10];
        Ok(Self { poller, listener, peers: Vec::new(), buffer })
    }

    fn serve(&mut self, stop: &AtomicBool, timeout: Timespec) -> anyhow::Result<()> {
        let mut ready = Vec::with_capacity(BATCH);
        while !stop.load(Ordering::Relaxed) {
            ready.clear();
            epoll::wait(&self.poller, rustix::buffer::spare_capacity(&mut ready), Some(&timeout))?;
            for event in &ready {
                match event.data.u64() {
                    u64::MAX => self.accept()?,
                    index => self.serve_one(index as usize)?,
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> anyhow::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            // The kernel gives the lowest free number: few places stay empty.
            let index = stream.as_raw_fd() as usize;
            self.peers.resize_with(self.peers.len().max(index + 1), || None);
            let data = EventData::new_u64(index as u64);
            epoll::add(&self.poller, stream.as_fd(), data, EventFlags::IN)?;
            self.peers[index] = Some(Peer { stream, unsent: VecDeque::new() });
        }
        Ok(())
    }

    fn serve_one(&mut self, index: usize) -> anyhow::Result<()> {
        let Some(Some(peer)) = self.peers.get_mut(index) else { return Ok(()) };
        let waited = !peer.unsent.is_empty();
        let goes_on = match waited {
            true => flush(peer),
            false => echo(peer, &mut self.buffer),
        };
        if !goes_on {
            self.peers[index] = None;
            return Ok(());
        }
        let waits = !peer.unsent.is_empty();
        if waits != waited {
            // What the socket has no room for comes first: nothing is read meanwhile.
            let interest = if waits { EventFlags::OUT } else { EventFlags::IN };
            let data = EventData::new_u64(index as u64);
            epoll::modify(&self.poller, peer.stream.as_fd(), data, interest)?;
        }
        Ok(())
    }
}

/// Answers whether the connection goes on.
fn echo(peer: &mut Peer, buffer: &mut [u8]) -> bool {
    match peer.stream.read(buffer) {
        Ok(0) => false,
        Ok(count) => {
            // Small messages go at once, without a copy.
            let sent = match peer.stream.write(&buffer[..count]) {
                Ok(sent) => sent,
                Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
                Err(_) => return false,
            };
            peer.unsent.extend(&buffer[sent..count]);
            true
        }
        Err(error) => error.kind() == ErrorKind::WouldBlock,
    }
}

fn flush(peer: &mut Peer) -> bool {
    while !peer.unsent.is_empty() {
        let (front, _) = peer.unsent.as_slices();
        match peer.stream.write(front) {
            Ok(sent) => drop(peer.unsent.drain(..sent)),
            Err(error) => return error.kind() == ErrorKind::WouldBlock,
        }
    }
    true
}
