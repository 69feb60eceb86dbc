//! The built-in services, for whoever runs them: a dataplane of this process, or an application of another one.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context, bail};
use echo::{Echo, Sockperf};
use kv::{KvProtocol, Store, StoreConfig, WallTime};
use spin::{DelayedSpin, Spin};
use tailplane::{MonotonicClock, Protocol, Server, Service, SharedSlots};

use super::config::{App, RunConfig};

/// Who runs a service: one value of it for each elastic thread.
pub trait Runner {
    /// What comes of it.
    type Outcome;

    /// Runs it.
    ///
    /// # Errors
    /// What the runner could not do.
    fn run<S: Service + Send>(
        self,
        make_service: impl Fn(usize) -> S + Sync,
    ) -> anyhow::Result<Self::Outcome>;
}

/// Runs the built-in service that the configuration names.
///
/// # Errors
/// What the service or its runner could not do.
pub fn run<R: Runner>(config: &RunConfig, runner: R) -> anyhow::Result<R::Outcome> {
    match config.service.app {
        App::Echo => protocol(config, || Echo, runner),
        App::Kv => {
            let store = store(config)?;
            let origin = wall_time()?;
            protocol(config, || KvProtocol::new(Arc::clone(&store), origin), runner)
        }
        App::Sockperf => protocol(config, || Sockperf, runner),
        // Its timers are its elastic thread's: it serves no other's connections.
        App::Delay => runner.run(|_| DelayedSpin::parallel()),
        App::Spin => protocol(config, || Spin::new(MonotonicClock::new()), runner),
        App::Program => bail!(
            "cannot serve: found neither `service.app` in the configuration nor a program; name a built-in service, or do \
             `tailplane run CONFIG.toml -- PROGRAM`"
        ),
    }
}

/// A server of a protocol on each thread, its connections where the scheduler wants them.
fn protocol<P, R>(
    config: &RunConfig,
    make: impl Fn() -> P + Sync,
    runner: R,
) -> anyhow::Result<R::Outcome>
where
    P: Protocol + Send,
    P::Connection: Send,
    R: Runner,
{
    if !config.dataplane.is_movable() {
        return runner.run(|_| Server::new(make()));
    }
    let most = config.tcp.max_connections as usize;
    let slots = Arc::new(SharedSlots::new(config.dataplane.threads as usize, most));
    runner.run(|core| Server::shared(core, make(), Arc::clone(&slots)))
}

/// An empty store with a hash key from the operating system.
///
/// # Errors
/// Settings that cannot be used, or no randomness.
pub fn store(config: &RunConfig) -> anyhow::Result<Arc<Store>> {
    let settings = StoreConfig {
        memory_limit_bytes: config.kv.memory_mb << 20,
        item_size_max_bytes: config.kv.item_max_kb << 10,
        connection_memory_bytes: config.kv.connection_memory_mb << 20,
        request_timeout: config.kv.request_timeout(),
        idle_timeout: config.kv.idle_timeout(),
        max_connections: Some(config.tcp.max_connections as usize),
        started: wall_time()?,
        ..StoreConfig::default()
    };
    let secrets = runtime::draw_secrets()?;
    let word = |from: usize| u64::from_ne_bytes(std::array::from_fn(|i| secrets.isn_key[from + i]));
    Ok(Arc::new(Store::new(settings, [word(0), word(8)])?))
}

fn wall_time() -> anyhow::Result<WallTime> {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the system's clock stands before 1970: set it")?;
    Ok(WallTime::from_unix_s(since.as_secs()))
}
