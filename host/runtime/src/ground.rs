//! What is there before there are threads: secrets, the shared part of the stacks, and what wakes threads.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize};

use clock::{Clock, MonotonicClock};
use dataplane::{MAX_CORES, Parts, forwarding_mesh};
use mem::{Pool, Region};
use nic::{Nic, QueueSet};
use rustix::time::{ClockId, clock_gettime};
use stack::{FLOW_GROUPS, RssKey, Secrets, Shared, StackConfig};

use crate::bells::Bell;
use crate::config::RuntimeConfig;
use crate::controls::Controls;
use crate::error::{RuntimeError, system, threads};
use crate::kicks::Kicks;
use crate::stage::Stage;

/// Packets that may be under way between two cores.
const FORWARD_RING: usize = 1024;

/// Draws the stack's secrets from the operating system.
///
/// # Errors
/// Where it has none to give.
pub fn draw_secrets() -> Result<Secrets, RuntimeError> {
    let mut bytes = [0u8; 76];
    let mut filled = 0;
    while filled < bytes.len() {
        let got =
            rustix::rand::getrandom(&mut bytes[filled..], rustix::rand::GetRandomFlags::empty())
                .map_err(|errno| system("drawing secrets (getrandom)", errno))?;
        filled += got;
    }
    let part = |from: usize| -> [u8; 16] { core::array::from_fn(|i| bytes[from + i]) };
    Ok(Secrets {
        rss_key: core::array::from_fn(|i| bytes[i]),
        isn_key: part(40),
        port_key: part(56),
        offset: u32::from_ne_bytes(core::array::from_fn(|i| bytes[72 + i])),
    })
}

impl<'a> Stage<'a> {
    /// For a thread for each device in `nics`, until `stop` is set; with the parts of each.
    pub fn new<N: Nic>(
        config: &'a RuntimeConfig,
        region: &Arc<Region>,
        nics: Vec<QueueSet<N>>,
        controls: Option<&'a Controls>,
        stop: &'a AtomicBool,
    ) -> Result<(Self, Vec<Parts<N>>), RuntimeError> {
        let cores = nics.len();
        if !(1..=128).contains(&cores) {
            return Err(threads(cores));
        }
        if config.scheduler.shares() && cores > MAX_CORES {
            return Err(RuntimeError(format!(
                "{cores} elastic threads are more than can share their work: {MAX_CORES}; run two dataplanes, or run \
                 to completion"
            )));
        }
        let secrets = draw_secrets()?;
        // That of the device's hash, where there is a table of which the configuration does not know.
        let rss_key: Option<RssKey> = controls.and_then(Controls::key).or(config.stack.rss_key);
        let stack = StackConfig { rss_key, ..config.stack.clone() };
        let shared = Shared::new(stack, &secrets, cores as u8);
        let shared = Arc::new(shared.with_register(config.register.clone()));
        deal(&shared, config, cores, controls)?;
        let bells: Arc<[Bell]> = (0..cores).map(|_| Bell::new()).collect::<Result<_, _>>()?;
        let priority = config.realtime.unwrap_or(0);
        let kicks = match config.scheduler.kicks() {
            true if !(1..=98).contains(&priority) => {
                return Err(RuntimeError(format!(
                    "kicks interrupt the application by a thread of higher real-time priority, and the real-time \
                     priority is {priority}; allowed with kicks: 1 to 98; set it, or have network layers borrowed \
                     instead"
                )));
            }
            true => Kicks::new(cores).map_err(|source| system("making an eventfd", source))?,
            false => Kicks::default(),
        };
        if let Some(controls) = controls {
            if !controls.start(&shared, &bells) {
                return Err(RuntimeError(format!(
                    "the `Controls` is for another number of elastic threads than {cores}, or was used before"
                )));
            }
            controls
                .deal(&shared)
                .map_err(|error| system("writing the device's indirection table", error))?;
        }
        let clock = MonotonicClock::new();
        let now = clock_gettime(ClockId::Monotonic);
        let now_ns = now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64;
        let epoch_ns = now_ns - clock.now().as_nanos();
        let part =
            |(queues, ports)| Parts { queues, pool: Pool::new(region, config.pool_keep), ports };
        let parts = nics.into_iter().zip(forwarding_mesh(cores, FORWARD_RING)).map(part).collect();
        let stage = Self {
            config,
            shared,
            clock,
            epoch_ns,
            bells,
            kicks,
            controls,
            is_movable: true,
            stop,
            starting: AtomicUsize::new(cores),
            placers: Vec::new(),
            callers: Vec::new(),
        };
        Ok((stage, parts))
    }
}

/// Deals flow groups out to the threads that are granted at first, and says so in the segment.
fn deal(
    shared: &Shared,
    config: &RuntimeConfig,
    cores: usize,
    controls: Option<&Controls>,
) -> Result<(), RuntimeError> {
    if let Some(controls) = controls {
        let granted = controls.granted().min(cores);
        (0..FLOW_GROUPS).for_each(|group| shared.set_home(group as u16, (group % granted) as u8));
    }
    let Some(segment) = &config.segment else { return Ok(()) };
    let statseg::Layout { threads, groups, .. } = segment.layout();
    if usize::from(threads) < cores || usize::from(groups) != FLOW_GROUPS {
        return Err(RuntimeError(format!(
            "the statistics segment is for {threads} elastic threads and {groups} flow groups, and there are {cores} \
             and {FLOW_GROUPS}"
        )));
    }
    (0..groups).for_each(|group| segment.set_home(group, shared.home_of(group).into()));
    Ok(())
}
