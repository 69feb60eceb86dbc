//! Drives the [`Generator`] over kernel sockets: one thread's part of a load.

use std::time::Duration;

use rustix::event::epoll::EventFlags;

use super::config::{KernelConfig, Wait};
use super::dial::on_event;
use super::part::Part;
use super::sockets::{Received, Sockets, read_buffer};
use crate::config::Mode;
use crate::course::{Phase, Poll};
use crate::error::LoadError;
use crate::generator::Generator;
use crate::measurement::Ran;
use crate::usage::WindowUsage;

/// A spinning thread with at most this many connections reads each of them in turn: asking epoll
/// first would be a second system call before every byte (sockperf's non-blocking mode).
const READ_DIRECTLY_MAX: usize = 4;

/// Opens the connections, stores the keys, waits for the other threads, and runs the load.
pub(super) fn run(part: &Part<'_>) -> Result<Ran, LoadError> {
    let (load, workload) = (&part.load, &part.workload);
    let KernelConfig { target, wait, .. } = *part.transport;
    let (generator, connections) = Generator::first(load, workload)?;
    let limit = Duration::from_millis(load.connect_timeout_ms);
    let to_dial = || Sockets::to_dial(target, load.connections, wait);
    let sockets = match generator {
        Generator::Load(_) => Sockets::connect(target, connections, limit, wait)?,
        Generator::Churn(_) => to_dial()?,
    };
    let mut driver = Driver::new(part, generator, sockets);
    if let Generator::Load(_) = driver.generator {
        if load.preloads() {
            driver.preload()?;
        }
        if matches!(load.mode, Mode::Churn { .. }) {
            driver = Driver::new(part, Generator::churn(load, workload)?, to_dial()?);
        }
    }
    let start_ns = part.rendezvous.meet(part.now_ns()).ok_or(LoadError::OtherThread)?;
    driver.generator.start(start_ns + part.whole.phase_shift_ns(part.index));
    driver.measure()
}

struct Driver<'a> {
    part: &'a Part<'a>,
    generator: Generator,
    sockets: Sockets,
    buffer: Vec<u8>,
    ready: Vec<(u64, EventFlags)>,
    read_directly: bool,
}

impl<'a> Driver<'a> {
    fn new(part: &'a Part<'a>, mut generator: Generator, sockets: Sockets) -> Self {
        let count = sockets.len();
        let mut read_directly = false;
        if let Generator::Load(engine) = &mut generator {
            (0..count as u32).for_each(|connection| engine.on_opened(connection));
            read_directly = part.transport.wait == Wait::Spin && count <= READ_DIRECTLY_MAX;
        }
        Self { part, generator, sockets, buffer: read_buffer(), ready: Vec::new(), read_directly }
    }

    /// Stores this thread's share of the keys.
    fn preload(&mut self) -> Result<(), LoadError> {
        let keys = u64::from(self.part.workload.keys());
        let (index, shares) = self.part.keys_share;
        let bound = |index: u64| (keys * index / shares) as u32;
        if let Generator::Load(engine) = &mut self.generator {
            engine.begin_preload(bound(index)..bound(index + 1));
        }
        let limit_ms = self.part.load.preload_timeout_ms;
        let deadline_ns = self.part.now_ns().saturating_add(limit_ms * 1_000_000);
        loop {
            let (poll, now_ns) = self.step()?;
            match poll.phase {
                Phase::Ready => return Ok(()),
                Phase::Preloading if now_ns < deadline_ns => {}
                Phase::Preloading => {
                    return Err(LoadError::PreloadTimeout { keys: keys as u32, limit_ms });
                }
                _ => {
                    let violation = self.generator.finish(now_ns).violation;
                    return Err(LoadError::preload_ended(violation));
                }
            }
            if self.part.is_stopped() {
                return Err(LoadError::OtherThread);
            }
        }
    }

    /// Runs the load to its end.
    fn measure(mut self) -> Result<Ran, LoadError> {
        let mut usage = WindowUsage::default();
        loop {
            let (poll, now_ns) = self.step()?;
            usage.on_phase(poll.phase);
            if poll.phase == Phase::Done {
                let mut measured = self.generator.finish(now_ns);
                usage.add_to(&mut measured, self.part.transport.wait == Wait::Spin);
                return Ok(Ran { measured, first_failure: self.sockets.first_failure.take() });
            }
            if self.part.is_stopped() {
                return Err(LoadError::OtherThread);
            }
        }
    }

    /// One round: send what is due, wait, and take what has arrived.
    fn step(&mut self) -> Result<(Poll, u64), LoadError> {
        let now_ns = self.part.now_ns();
        let poll = self.generator.poll(now_ns, &mut self.sockets);
        self.report_broken();
        if poll.phase == Phase::Done {
            return Ok((poll, now_ns));
        }
        if self.read_directly {
            // Nobody tells of room for what the socket did not take: try.
            for connection in std::mem::take(&mut self.sockets.blocked) {
                self.sockets.on_writable(connection);
                self.generator.on_writable(connection, &mut self.sockets);
            }
            (0..self.sockets.len() as u32).for_each(|connection| self.receive(connection));
        } else {
            self.sockets.blocked.clear();
            self.sockets.poller.wait(now_ns, poll.wake_ns, &mut self.ready)?;
            for at in 0..self.ready.len() {
                let (token, flags) = self.ready[at];
                if let Generator::Churn(engine) = &mut self.generator {
                    let sockets = &mut self.sockets;
                    on_event(self.part, engine, sockets, token, flags, &mut self.buffer);
                    continue;
                }
                let connection = token as u32;
                if flags.contains(EventFlags::OUT) {
                    self.sockets.on_writable(connection);
                    self.generator.on_writable(connection, &mut self.sockets);
                }
                self.receive(connection);
            }
        }
        self.report_broken();
        Ok((poll, now_ns))
    }

    fn receive(&mut self, connection: u32) {
        match self.sockets.receive(connection, &mut self.buffer) {
            Received::Nothing => {}
            Received::Closed => self.generator.on_lost(connection, self.part.now_ns()),
            Received::Bytes(bytes) => {
                // Read after the bytes are here, for each connection: a response must not look
                // younger because others were handled before it.
                let now_ns = self.part.now_ns();
                let bytes = &self.buffer[..bytes];
                self.generator.on_received(connection, bytes, now_ns, &mut self.sockets);
            }
        }
    }

    fn report_broken(&mut self) {
        while let Some(connection) = self.sockets.broken.pop() {
            self.generator.on_lost(connection, self.part.now_ns());
        }
    }
}
