//! The honest latency peer: an echo server on the kernel's sockets that spins, one thread on the
//! server's core.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddrV4, TcpListener, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;

use anyhow::Context;
use rustix::event::{Timespec, epoll};

use super::measure::{SERVER_CPU, pin};
use crate::lab::constants::DATAPLANE_KERNEL_ADDRESS;
use crate::lab::{Lab, in_namespace};

const PORT: u16 = 7;
/// Readiness reports taken at a time.
const BATCH: usize = 128;

/// A running server; it ends when dropped.
#[derive(Debug)]
pub struct KernelEcho {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<anyhow::Result<()>>>,
}

impl KernelEcho {
    /// Starts it in the dataplane's namespace.
    ///
    /// # Errors
    /// What the kernel refused.
    pub fn start(lab: &Lab) -> anyhow::Result<Self> {
        let listener = in_namespace(lab.dataplane(), || TcpListener::bind(Self::target()))?
            .context("binding the kernel's echo server")?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::Builder::new().name("kernel-echo".into()).spawn(move || {
            pin(SERVER_CPU)?;
            Echo::new(listener)?.serve(&flag)
        })?;
        Ok(Self { stop, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn target() -> SocketAddrV4 {
        SocketAddrV4::new(DATAPLANE_KERNEL_ADDRESS, PORT)
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

struct Echo {
    poller: OwnedFd,
    listener: TcpListener,
    streams: Vec<Option<TcpStream>>,
    free: Vec<usize>,
    buffer: Vec<u8>,
}

impl Echo {
    fn new(listener: TcpListener) -> anyhow::Result<Self> {
        let poller = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        let listening = epoll::EventData::new_u64(u64::MAX);
        epoll::add(&poller, listener.as_fd(), listening, epoll::EventFlags::IN)?;
        let buffer = vec![0; 64 << 10];
        Ok(Self { poller, listener, streams: Vec::new(), free: Vec::new(), buffer })
    }

    fn serve(&mut self, stop: &AtomicBool) -> anyhow::Result<()> {
        let mut ready = Vec::with_capacity(BATCH);
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        while !stop.load(Ordering::Relaxed) {
            ready.clear();
            epoll::wait(&self.poller, rustix::buffer::spare_capacity(&mut ready), Some(&now))?;
            for event in &ready {
                match event.data.u64() {
                    u64::MAX => self.accept()?,
                    index => self.echo(index as usize),
                }
            }
        }
        Ok(())
    }

    fn accept(&mut self) -> anyhow::Result<()> {
        while let Ok((stream, _)) = self.listener.accept() {
            stream.set_nonblocking(true)?;
            stream.set_nodelay(true)?;
            let index = self.free.pop().unwrap_or_else(|| {
                self.streams.push(None);
                self.streams.len() - 1
            });
            let data = epoll::EventData::new_u64(index as u64);
            epoll::add(&self.poller, stream.as_fd(), data, epoll::EventFlags::IN)?;
            self.streams[index] = Some(stream);
        }
        Ok(())
    }

    fn echo(&mut self, index: usize) {
        let Some(Some(stream)) = self.streams.get_mut(index) else { return };
        let goes_on = match stream.read(&mut self.buffer) {
            // The messages are small: the socket's buffer takes them whole.
            Ok(count @ 1..) => stream.write_all(&self.buffer[..count]).is_ok(),
            Err(error) => error.kind() == ErrorKind::WouldBlock,
            Ok(0) => false,
        };
        if !goes_on {
            self.streams[index] = None;
            self.free.push(index);
        }
    }
}
