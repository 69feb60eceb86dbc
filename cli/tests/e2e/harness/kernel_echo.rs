//! The same service as ours, on kernel sockets: what ours is compared with.

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use service::lab::{Lab, in_namespace};

use super::{PATIENCE, kernel_at};

/// An echo server at the dataplane's end, on the kernel's address. It ends with this value.
#[derive(Debug)]
pub struct KernelEcho {
    stop: Arc<AtomicBool>,
    accepting: Option<JoinHandle<()>>,
}

impl KernelEcho {
    /// Starts it.
    pub fn start(lab: &Lab, port: u16) -> Self {
        let listener = in_namespace(lab.dataplane(), || TcpListener::bind(kernel_at(port)));
        let listener = listener.expect("the namespace").expect("the port is free");
        listener.set_nonblocking(true).expect("a listener of ours");
        let stop = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&stop);
        let accepting = Some(thread::spawn(move || accept(&listener, &seen)));
        Self { stop, accepting }
    }
}

impl Drop for KernelEcho {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.accepting.take() {
            let _ = thread.join();
        }
    }
}

fn accept(listener: &TcpListener, stop: &AtomicBool) {
    let mut connections = Vec::new();
    while !stop.load(Ordering::Relaxed) {
        match listener.accept() {
            Ok((stream, _)) => connections.push(thread::spawn(move || {
                // A peer that aborts is its own business.
                let _ = echo(stream);
            })),
            Err(_) => thread::sleep(Duration::from_millis(1)),
        }
    }
    // Their sockets have timeouts: each of them ends.
    for connection in connections {
        let _ = connection.join();
    }
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_nodelay(true)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut bytes = vec![0; 64 << 10];
    loop {
        match stream.read(&mut bytes) {
            Ok(0) => return stream.shutdown(Shutdown::Write),
            Ok(count) => stream.write_all(&bytes[..count])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}
