//! A dataplane of this process (the `inline` domain): a port, its elastic threads, and a service on each.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::{Context, bail};
use nic::device::{Mtu, Watch};
use runtime::{Controls, CoreReport, RuntimeConfig, Scheduler};
use runtime::{
    ElasticConfig, IdlePolicy, Keepalive, ModerationPolicy, ReadySetConfig, StackConfig,
};
use statseg::{Layout, Segment};
use tailplane::{MacAddr, Prefix, Service};

use super::builtin::{self, Runner};
use super::config::{App, DataplaneConfig, RunConfig, SchedulerName};

use crate::lab::{Lab, LabConfig, LabError, Lifetime};
use crate::local_wire::LocalWire;
use crate::port::Port;
use crate::split::wire::OpenWire;

/// A wire and how its threads run; the service comes later.
#[derive(Debug)]
pub struct Host {
    /// How frames travel, for conditions.
    pub driver: String,
    wire: Wire,
    /// What an interface's way costs.
    pub cost: Option<String>,
    /// Sees whether the interface is there, where there is one.
    pub watch: Option<Arc<Watch>>,
    /// The threads.
    pub runtime: RuntimeConfig,
    /// What they are steered by.
    pub controls: Arc<Controls>,
}

/// Where frames come from.
#[derive(Debug)]
enum Wire {
    Port(Box<Port>),
    Local(Box<LocalWire>),
}

/// The lab that a configuration uses, made now if it was not up.
///
/// # Errors
/// What the lab could not do.
pub fn lab(config: &RunConfig) -> anyhow::Result<Option<Lab>> {
    if config.network.interface.is_some() || config.network.shm.is_some() {
        return Ok(None);
    }
    let own = config.network.own_addresses()?;
    let ipv6 = own.iter().any(|own| !own.address.is_ipv4());
    lab_named(config.network.lab(), config.dataplane.threads, ipv6).map(Some)
}

/// The lab of this name, made now with so many queues, and with IPv6 if it is to be, if it was not up.
///
/// # Errors
/// What the lab could not do.
pub fn lab_named(name: &str, queues: u32, ipv6: bool) -> anyhow::Result<Lab> {
    match Lab::attach(name) {
        Err(LabError::NotUp { .. }) => {
            let (prefix, lifetime) = (name.to_owned(), Lifetime::Process);
            let wanted = LabConfig { prefix, queues, lifetime, ipv6, ..LabConfig::default() };
            Lab::create(wanted).context("cannot make the lab")
        }
        attached => Ok(attached?),
    }
}

/// Bytes of an IPv6 packet that every link carries (RFC 8200 §5).
const MIN_MTU_V6: u16 = 1280;

/// How the threads of a configuration run, on a wire whose end has this link address and takes IP packets of these
/// sizes.
///
/// # Errors
/// Classes of connections, or an address, that there are not; IPv6 on a wire whose packets are too small for it.
pub fn runtime(config: &RunConfig, mac: MacAddr, mtu: Mtu) -> anyhow::Result<RuntimeConfig> {
    let addresses = config.network.own_addresses()?;
    let smallest = mtu.send.min(mtu.receive);
    if smallest < MIN_MTU_V6 && addresses.iter().any(|own| !own.address.is_ipv4()) {
        bail!(
            "cannot speak IPv6: found an MTU of {smallest} bytes; raise it to {MIN_MTU_V6} (ip link set INTERFACE mtu), \
             or leave IPv6 addresses out of `network.address`"
        );
    }
    let Prefix { address, bits } = addresses[0];
    let mut stack = StackConfig::new(address, bits, mac);
    stack.addresses = addresses;
    stack.mtu_bytes = mtu.send;
    stack.frame_chunks = mtu.frame_chunks;
    stack.receive_mtu_bytes = Some(mtu.receive);
    stack.routes = config.network.routes()?;
    stack.neighbors = config.network.neighbors()?;
    (stack.ttl, stack.dscp) = (config.network.ttl, config.network.dscp);
    stack.tcp_listen = config.service.all_ports().collect();
    stack.udp_bind = config.service.all_ports().collect();
    stack.backlog = config.tcp.backlog;
    stack.max_connections = config.tcp.max_connections;
    stack.receive_window_bytes = config.tcp.receive_window_kb << 10;
    stack.delayed_ack = Duration::from_millis(config.tcp.delayed_ack_ms);
    stack.time_wait = Duration::from_secs(config.tcp.time_wait_s);
    stack.keepalive = (config.tcp.keepalive_s > 0).then(|| Keepalive {
        idle: Duration::from_secs(config.tcp.keepalive_s),
        interval: Duration::from_secs(75),
        probes: 9,
    });
    (stack.congestion, stack.ecn) = (config.tcp.congestion, config.tcp.ecn);
    stack.nagle = config.tcp.nagle;
    if config.service.app == App::Kv {
        // A reply that a client does not acknowledge is one that it does not take.
        stack.user_timeout = config.kv.request_timeout();
    }
    let chunks_each = config.memory.chunks / config.dataplane.threads as usize;
    let sharing = config.dataplane.sharing(chunks_each);
    let applications_own = match config.dataplane.scheduler {
        SchedulerName::RunToCompletion => 0,
        SchedulerName::WorkConserving | SchedulerName::ReadySet => sharing.pool_keep,
    };
    let spin = u64::try_from(config.dataplane.spin_us).ok().map(Duration::from_micros);
    Ok(RuntimeConfig {
        stack,
        elastic: ElasticConfig { batch: config.dataplane.batch, ..ElasticConfig::default() },
        scheduler: match config.dataplane.scheduler {
            SchedulerName::RunToCompletion => Scheduler::RunToCompletion,
            SchedulerName::WorkConserving => Scheduler::WorkConserving(sharing),
            SchedulerName::ReadySet => Scheduler::ReadySet(ReadySetConfig {
                classes: config.dataplane.ready_set_classes()?,
                sharing,
            }),
        },
        idle: IdlePolicy { spin, ..IdlePolicy::default() },
        moderation: ModerationPolicy {
            longest: Duration::from_micros(config.dataplane.moderation_us),
        },
        cpus: config.dataplane.cpus.clone(),
        realtime: config.dataplane.realtime.filter(|&priority| priority > 0),
        pool_keep: chunks_each / 2 - applications_own,
        segment: None,
        register: None,
    })
}

/// What the elastic threads of a configuration are steered by.
pub fn controls(config: &RunConfig) -> Controls {
    let DataplaneConfig { threads, .. } = config.dataplane;
    Controls::with_granted(threads as usize, config.dataplane.granted() as usize)
}

/// The statistics segment of a configuration's dataplane.
///
/// # Errors
/// No memory, no descriptors.
pub fn segment(config: &RunConfig) -> anyhow::Result<Arc<Segment>> {
    let layout = Layout {
        threads: config.dataplane.threads as u16,
        groups: runtime::FLOW_GROUPS as u16,
        batch_max: config.dataplane.batch as u32,
    };
    Segment::create("tailplane-statistics", &layout).context("making the statistics segment")
}

impl Host {
    /// Opens the port that a configuration describes.
    ///
    /// # Errors
    /// What could not be opened.
    pub fn open(config: &RunConfig, lab: Option<&Lab>) -> anyhow::Result<Self> {
        let segment = Some(segment(config)?);
        let mut controls = controls(config);
        let (mut watch, mut tx_checksum_offload) = (None, false);
        let opened = OpenWire::open(config, lab)?;
        let (driver, cost) = opened.conditions();
        let (wire, mac, mtu) = match opened {
            OpenWire::Local(offered) => {
                let local = LocalWire::of(offered)?;
                let mac = local.mac;
                (Wire::Local(Box::new(local)), mac, Mtu::ETHERNET)
            }
            OpenWire::Port(opened, port_config) => {
                let mut port = Port::driven(&port_config, *opened)?;
                watch = Some(Arc::clone(&port.opened.watch));
                if let Some(table) = port.opened.steering.table.take() {
                    controls = controls.with_table(table)?;
                }
                let (mac, mtu) = (port.mac(), port.mtu);
                tx_checksum_offload = port.opened.way.tx_checksum_offload;
                (Wire::Port(Box::new(port)), mac, mtu)
            }
        };
        let mut runtime = RuntimeConfig { segment, ..runtime(config, mac, mtu)? };
        runtime.stack.tx_checksum_offload = tx_checksum_offload;
        Ok(Self { driver, wire, cost, watch, runtime, controls: Arc::new(controls) })
    }

    /// Runs services on all threads until `stop` is set. Calls `ready` once they serve.
    ///
    /// # Errors
    /// What the runtime could not do.
    pub fn run<S: Service + Send>(
        self,
        make_service: impl Fn(usize) -> S + Sync,
        ready: impl Fn() + Sync,
        stop: &AtomicBool,
    ) -> anyhow::Result<Vec<(CoreReport, S)>> {
        let (wire, config, controls) = (self.wire, &self.runtime, Some(&*self.controls));
        Ok(match wire {
            Wire::Port(mut port) => {
                let queues = port.take_queues();
                let region = &port.region;
                runtime::run_controlled(config, region, queues, make_service, ready, controls, stop)
            }
            Wire::Local(mut local) => {
                let queues = local.take_queues();
                let region = &local.region;
                runtime::run_controlled(config, region, queues, make_service, ready, controls, stop)
            }
        }?)
    }

    /// Runs the built-in service that the configuration names, linked in (the `inline` domain), until `stop` is set.
    /// Calls `ready` once it serves.
    ///
    /// # Errors
    /// What the service or the runtime could not do.
    pub fn run_app(
        self,
        config: &RunConfig,
        ready: impl Fn() + Sync,
        stop: &AtomicBool,
    ) -> anyhow::Result<Vec<CoreReport>> {
        builtin::run(config, Inline { host: self, ready, stop })
    }
}

/// A dataplane with its application linked in.
struct Inline<'a, R> {
    host: Host,
    ready: R,
    stop: &'a AtomicBool,
}

impl<R: Fn() + Sync> Runner for Inline<'_, R> {
    type Outcome = Vec<CoreReport>;

    fn run<S: Service + Send>(
        self,
        make_service: impl Fn(usize) -> S + Sync,
    ) -> anyhow::Result<Vec<CoreReport>> {
        let ran = self.host.run(make_service, self.ready, self.stop)?;
        Ok(ran.into_iter().map(|(report, _)| report).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The device borrows half of the memory at most ([`Queues`](crate::port::Queues)); what others keep is the rest.
    #[test]
    fn no_scheduler_deals_out_more_memory_than_there_is() {
        for scheduler in ["run-to-completion", "work-conserving", "ready-set"] {
            for (chunks, threads) in [(1024, 1), (4096, 4), (32_768, 1), (1 << 20, 16)] {
                let text = format!(
                    "[service]\napp = \"echo\"\n[dataplane]\nscheduler = \"{scheduler}\"\nthreads = {threads}\n\
                     [memory]\nchunks = {chunks}\n"
                );
                let config = RunConfig::parse(&text).expect("valid settings");
                let runtime = runtime(&config, MacAddr([2; 6]), Mtu::ETHERNET).expect("settings");
                let own = match &runtime.scheduler {
                    Scheduler::RunToCompletion => 0,
                    Scheduler::WorkConserving(sharing) => sharing.pool_keep,
                    Scheduler::ReadySet(config) => config.sharing.pool_keep,
                };
                assert_eq!(runtime.pool_keep + own, chunks / threads / 2, "{text}");
                assert!(own == 0 || own >= 128, "{own} to send from: {text}");
            }
        }
    }

    #[test]
    fn ipv6_wants_a_wire_that_carries_its_packets() {
        let start = |addresses: &str, mtu| {
            let text = format!("[service]\napp = \"echo\"\n[network]\naddress = {addresses}\n");
            let config = RunConfig::parse(&text).expect("valid settings");
            let mtu = Mtu { send: mtu, ..Mtu::ETHERNET };
            runtime(&config, MacAddr([2; 6]), mtu).map(drop).map_err(|error| error.to_string())
        };
        let both = "[\"10.9.0.1/24\", \"fd09::1/64\"]";
        assert_eq!((start(both, 1280), start("\"10.9.0.1/24\"", 1279)), (Ok(()), Ok(())));
        let refused = start(both, 1279).expect_err("too small");
        assert!(refused.contains("found an MTU of 1279 bytes; raise it to 1280"), "{refused}");
    }

    #[test]
    fn kv_limits_unacknowledged_replies_by_its_request_timeout() {
        let user_timeout = |text: &str| {
            let config = RunConfig::parse(text).expect("valid settings");
            runtime(&config, MacAddr([2; 6]), Mtu::ETHERNET).expect("an address").stack.user_timeout
        };
        let kv = "[service]\napp = \"kv\"\n";
        assert_eq!(user_timeout(kv), Some(Duration::from_secs(60)));
        let seconds = |value: u64| format!("{kv}[kv]\nrequest_timeout_s = {value}\n");
        assert_eq!(user_timeout(&seconds(7)), Some(Duration::from_secs(7)));
        assert_eq!(user_timeout(&seconds(0)), None);
        let echo = user_timeout("[service]\napp = \"echo\"\n");
        assert_eq!(echo, Some(Duration::from_secs(100)), "the stack's own");
    }
}
