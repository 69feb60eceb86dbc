//! A server that echoes and a client that counts, on real threads over shared memory.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;
use wire::Address;

use nic::shm::{ShmConfig, ShmNic};
use runtime::{ElasticConfig, IdlePolicy, ModerationPolicy, StackConfig};
use runtime::{RuntimeConfig, Scheduler};
use tailplane::{
    Calls, Cookie, Endpoint, Event, Events, Flow, Handle, Instant, Ipv4Addr, MacAddr, Opened,
    Output, Protocol, Service,
};

pub const SERVER: Endpoint = Endpoint::v4(Ipv4Addr::new(10, 9, 0, 1), 80);
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
/// Of each of the client's threads.
pub const CONNECTIONS: usize = 16;
/// Words under way on each.
pub const WINDOW: u64 = 4;

/// A wire, whose ends wake who sleeps.
pub fn wire() -> (ShmNic, ShmNic) {
    let config = ShmConfig::default();
    let (near, offer) = ShmNic::create(&config).expect("memory");
    (near, ShmNic::join(offer, &config.far()).expect("the other end"))
}

/// Sends every byte back.
#[derive(Default)]
pub struct Echo {
    /// What it takes for what came on a connection, at least.
    pub takes: Duration,
}

impl Protocol for Echo {
    type Connection = ();
    fn open(&mut self, _: Instant, _: Opened) -> Option<()> {
        Some(())
    }
    fn receive(
        &mut self,
        _: Instant,
        _: &mut (),
        data: &[u8],
        output: &mut Output<'_, '_>,
    ) -> Flow {
        std::thread::sleep(self.takes);
        output.put(data);
        Flow::Continue
    }
}

/// Counts on each connection, and expects to hear the same numbers.
pub struct Counting<'a> {
    pub asked: usize,
    pub lines: Vec<Line>,
    pub heard: &'a AtomicUsize,
    pub wrong: &'a AtomicUsize,
}

pub struct Line {
    handle: Handle,
    said: u64,
    heard: u64,
    part: Vec<u8>,
}

impl Line {
    fn speak(&mut self, calls: &mut Calls<'_>) {
        while self.said < self.heard + WINDOW
            && calls.sendv(self.handle, &[&self.said.to_be_bytes()]).is_ok()
        {
            self.said += 1;
        }
    }
}

impl Service for Counting<'_> {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            match event {
                Event::Connected { outcome, .. } => {
                    let handle = outcome.expect("it is let in").0;
                    self.lines.push(Line { handle, said: 0, heard: 0, part: Vec::new() });
                }
                Event::Recv { handle, data, .. } => {
                    let line = self.lines.iter_mut().find(|line| line.handle == handle);
                    let line = line.expect("it was told of");
                    line.part.extend_from_slice(data);
                    while let Some((word, rest)) = line.part.split_first_chunk::<8>() {
                        let right = u64::from_be_bytes(*word) == line.heard;
                        self.wrong.fetch_add(usize::from(!right), Ordering::Relaxed);
                        line.heard += 1;
                        self.heard.fetch_add(1, Ordering::Relaxed);
                        line.part = rest.to_vec();
                    }
                    calls.recv_done(handle, data.len()).expect("room");
                }
                Event::Dead { .. } | Event::Failed { .. } => {
                    self.wrong.fetch_add(1_000_000, Ordering::Relaxed);
                }
                _ => {}
            }
        }
        while self.asked < CONNECTIONS && calls.connect(Cookie(0), SERVER).is_ok() {
            self.asked += 1;
        }
        self.lines.iter_mut().for_each(|line| line.speak(calls));
    }
    fn wake_at(&self) -> Option<Instant> {
        let silent = |line: &Line| line.said < line.heard + WINDOW;
        (self.asked < CONNECTIONS || self.lines.iter().any(silent)).then_some(Instant::ZERO)
    }
}

pub fn config(address: impl Into<Address>, mac: MacAddr, scheduler: Scheduler) -> RuntimeConfig {
    let mut stack = StackConfig::new(address, 24, mac);
    stack.tcp_listen = vec![SERVER.port];
    RuntimeConfig {
        stack,
        elastic: ElasticConfig::default(),
        scheduler,
        // Two processors at the most, and other tests beside this one.
        idle: IdlePolicy { spin: Some(Duration::from_micros(20)), ..IdlePolicy::default() },
        moderation: ModerationPolicy::default(),
        cpus: Vec::new(),
        realtime: None,
        pool_keep: 512,
        segment: None,
        register: None,
    }
}

/// Whatever fails, the threads end.
pub struct Ends<'a>(pub [&'a AtomicBool; 2]);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.iter().for_each(|flag| flag.store(true, Ordering::Relaxed));
    }
}
