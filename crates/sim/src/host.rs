//! A simulated host: elastic threads of the real dataplane on virtual cores, each with its service.
//!
//! A core runs a cycle when a frame came, when a timer is due, when its service wished for it, or
//! when the last cycle left something undone. Nothing is polled in fixed steps, so a second in which
//! nothing happens costs nothing.

use std::sync::Arc;

use clock::{Duration, Instant};
use dataplane::{ElasticConfig, ElasticThread, forwarding_mesh};
use mem::{Pool, Region};
use stack::{Secrets, Shared, StackConfig};
use tailplane::Service;
use wire::MacAddr;

use crate::dice::Dice;
use crate::network::{SharedNetwork, Spread};
use crate::port::{SimNic, SimNicConfig};

/// Doublings of the pause of a core that has work and cannot do it.
const MAX_STALL_SHIFT: u32 = 6;

/// What a host is made of.
#[derive(Clone, Debug)]
pub struct HostConfig {
    /// Elastic threads.
    pub cores: u8,
    /// Chunks of packet memory, for all cores together.
    pub chunks: u32,
    /// Chunks that a core keeps to itself.
    pub pool_keep: usize,
    /// Packets that fit the ring between two cores.
    pub forward_ring: usize,
    /// Limits of an elastic thread.
    pub elastic: ElasticConfig,
    /// Frames with a queue's device at a time, and how long they stay there.
    pub nic: SimNicConfig,
    /// The stack.
    pub stack: StackConfig,
    /// Shortest and longest time that one cycle takes.
    pub cycle: (Duration, Duration),
}

/// A virtual core.
struct Core {
    thread: ElasticThread<SimNic>,
    service: Box<dyn Service>,
    /// When it next looks for work.
    next_poll: Instant,
    /// Until when the last cycle keeps it busy.
    busy_until: Instant,
    /// Cycles in a row that had work and got nothing done.
    stalled: u32,
    dice: Dice,
}

/// See the module's comment.
pub struct Host {
    cores: Vec<Core>,
    region: Arc<Region>,
    config: HostConfig,
    port: usize,
}

/// Secrets of a simulated stack. This is the only place where they come from a seed: a simulation
/// has no strangers.
fn secrets(dice: &mut Dice) -> Secrets {
    let mut secrets = Secrets {
        rss_key: [0; 40],
        isn_key: [0; 16],
        port_key: [0; 16],
        offset: dice.next() as u32,
    };
    dice.fill(&mut secrets.rss_key);
    dice.fill(&mut secrets.isn_key);
    dice.fill(&mut secrets.port_key);
    secrets
}

impl Host {
    /// Host `number`, plugged into `network`; `service` makes each core's service.
    pub fn new(
        seed: u64,
        number: u64,
        config: HostConfig,
        network: &SharedNetwork,
        mut service: impl FnMut(u8) -> Box<dyn Service>,
    ) -> Self {
        let mut dice = Dice::new(seed, "host", number);
        let shared = Arc::new(Shared::new(config.stack.clone(), &secrets(&mut dice), config.cores));
        let region = Region::heap(config.chunks);
        let spread = if config.cores > 1 { Spread::Random } else { Spread::OneQueue };
        let mac: MacAddr = config.stack.mac;
        let port = network.borrow_mut().attach(mac, config.cores as usize, spread);
        let meshes = forwarding_mesh(config.cores as usize, config.forward_ring);
        let cores = meshes.into_iter().enumerate().map(|(core, ports)| {
            let stream = number << 8 | core as u64;
            let device = Dice::new(seed, "device", stream);
            let nic = SimNic::new(network.clone(), port, core, config.nic, device);
            let pool = Pool::new(&region, config.pool_keep);
            let shared = Arc::clone(&shared);
            let (core, start) = (core as u8, Instant::ZERO);
            let thread = ElasticThread::new(core, shared, nic, pool, ports, config.elastic, start);
            Core {
                thread,
                service: service(core),
                next_poll: start,
                busy_until: start,
                stalled: 0,
                dice: Dice::new(seed, "core", stream),
            }
        });
        let cores = cores.collect();
        Self { cores, region, config, port }
    }

    /// The host's port of the network.
    pub fn port(&self) -> usize {
        self.port
    }

    /// When a core of this host next has something to do.
    pub fn next_poll(&self) -> Instant {
        self.cores.iter().map(|core| core.next_poll).min().unwrap_or(Instant::FAR_FUTURE)
    }

    /// A frame came to `queue`, or a packet was forwarded to that core.
    pub fn wake(&mut self, queue: usize, now: Instant) {
        if let Some(core) = self.cores.get_mut(queue) {
            core.next_poll = core.next_poll.min(core.busy_until.max(now));
        }
    }

    /// Runs one cycle of each core that has something to do at `now`.
    pub fn run(&mut self, now: Instant) {
        let mut forwarded = 0;
        for core in &mut self.cores {
            if core.next_poll <= now {
                core.run(now, self.config.cycle);
                forwarded |= core.thread.take_forwarded();
            }
        }
        for queue in 0..self.cores.len() {
            if forwarded >> queue & 1 != 0 {
                self.wake(queue, now);
            }
        }
    }

    /// Frames handed to the devices.
    pub fn frames_sent(&self) -> u64 {
        self.cores.iter().map(|core| core.thread.nic_stats().tx_frames).sum()
    }

    /// Frames taken from the receive queues, received or not.
    pub fn frames_taken(&self) -> u64 {
        let of = |core: &Core| {
            let nic = core.thread.nic_stats();
            nic.rx_frames + nic.rx_no_buffer + nic.rx_dropped
        };
        self.cores.iter().map(of).sum()
    }

    /// Each core's counters that are not zero, for a failure's text.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        for (number, core) in self.cores.iter().enumerate() {
            let (stack, pool) = (core.thread.stack(), core.thread.pool());
            let entries = stack.stats();
            let counters: Vec<String> = entries
                .entries()
                .filter(|(_, value)| *value > 0)
                .map(|(name, value)| format!("{name} {value}"))
                .collect();
            text.push_str(&format!(
                "\n  {} core {number}: {} connections, {} of {} chunks free, exhausted {}, next poll \
                 {} us; {}",
                self.config.stack.address,
                stack.connections(),
                pool.available(),
                self.config.chunks,
                pool.stats().exhausted,
                core.next_poll.as_micros(),
                counters.join(", ")
            ));
        }
        text
    }

    /// Counters of all cores' stacks, added up.
    pub fn stack_total(&self, name: &str) -> u64 {
        let of = |core: &Core| -> u64 {
            let entries = core.thread.stack().stats();
            entries.entries().filter(|(entry, _)| *entry == name).map(|(_, value)| value).sum()
        };
        self.cores.iter().map(of).sum()
    }

    /// Allocations that found no chunk, on all cores.
    pub fn exhausted(&self) -> u64 {
        self.cores.iter().map(|core| core.thread.pool().stats().exhausted).sum()
    }

    /// What does not add up, now that all connections have ended and nothing is on its way.
    ///
    /// # Errors
    /// Which counter, in words.
    pub fn audit(&self) -> Result<(), String> {
        let name = self.config.stack.address;
        let mut available = 0;
        for (number, core) in self.cores.iter().enumerate() {
            let thread = &core.thread;
            let (pool, nic) = (thread.pool(), thread.nic_stats());
            // The depot is common to all pools: count it once.
            available += if number == 0 { pool.available() } else { pool.free_len() };
            if pool.kept() > 0 {
                return Err(format!("{name} core {number} counts {} kept buffers", pool.kept()));
            }
            if pool.stats().foreign > 0 {
                return Err(format!("{name} core {number} got chunks of another region"));
            }
            if nic.tx_dropped > 0 {
                return Err(format!("{name} core {number} made frames that are too long: {nic:?}"));
            }
            if thread.stack().connections() > 0 {
                return Err(format!(
                    "{name} core {number}: connections are left: {:?}",
                    thread.stack()
                ));
            }
        }
        let total = |value: &dyn Fn(&Core) -> u64| self.cores.iter().map(value).sum::<u64>();
        let (taken, received) = (
            total(&|core| core.thread.stats().packets),
            total(&|core| core.thread.nic_stats().rx_frames),
        );
        let dropped = total(&|core| core.thread.stats().forward_drops);
        let forwarded = self.stack_total("forwarded");
        if taken + dropped != received + forwarded {
            return Err(format!(
                "{name}: {taken} packets taken and {dropped} dropped, {received} received and \
                 {forwarded} forwarded"
            ));
        }
        if available != self.config.chunks as usize {
            let lost = self.config.chunks as i64 - available as i64;
            return Err(format!("{name} lost {lost} of {} chunks", self.config.chunks));
        }
        debug_assert!(Arc::strong_count(&self.region) > self.cores.len());
        Ok(())
    }
}

impl Core {
    fn run(&mut self, now: Instant, cycle: (Duration, Duration)) {
        let before = self.done();
        let progress = self.thread.run_cycle(now, &mut self.service);
        let got_on = self.done() != before;
        let took = self.dice.duration(cycle.0, cycle.1);
        self.busy_until = now + took;
        self.stalled = if got_on { 0 } else { (self.stalled + 1).min(MAX_STALL_SHIFT) };
        let waits = progress.worked
            || self.thread.nic().rx_waits()
            || self.thread.has_forwarded()
            || progress.next_deadline.is_some_and(|due| due <= now);
        self.next_poll = if waits {
            // Work that cannot be done now (no memory, a full ring) is tried less and less often.
            now + took * (1 << self.stalled)
        } else {
            progress.next_deadline.unwrap_or(Instant::FAR_FUTURE).max(self.busy_until)
        };
    }

    /// Changes whenever a cycle got something done.
    fn done(&self) -> (u64, u64, u64, u64) {
        let (cycle, nic) = (self.thread.stats(), self.thread.nic_stats());
        (cycle.packets, cycle.events, cycle.calls, nic.tx_frames)
    }
}
