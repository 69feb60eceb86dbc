//! Workloads: what clients ask, what the server answers, and how both are checked.
//!
//! - `bulk`: each connection carries bytes in both directions at once, every one of them checked;
//!   both ends close their half when they are done.
//! - `echo`: small messages over several connections, with pauses.
//! - `churn`: connect, one request, close; the server or the client closes first.
//! - `kv`: memcached text requests, several at a time, checked against a model.

mod bytes;
mod requests;
mod talk;
mod transfer;
mod visit;

use std::sync::Arc;

use kv::{ConfigError, KvProtocol, Store, StoreConfig, WallTime};
use tailplane::{Protocol, Server, Service, SharedSlots};

use crate::dice::{Dice, mix};
use crate::lossy::client::Script;

pub use bytes::{byte_at, bytes_of, compare};

/// The server's port in all scenarios.
pub const PORT: u16 = 7;

/// A workload.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash, strum::Display, serde::Serialize)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Scenario {
    /// Both directions at once.
    Bulk,
    /// Small messages.
    Echo,
    /// Short connections.
    Churn,
    /// Key-value requests.
    Kv,
}

impl Scenario {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Bulk, Self::Echo, Self::Churn, Self::Kv];
}

/// Further connections of a client where there are to be many.
const CROWD: u64 = 48;

/// How much is asked for, drawn from the seed.
#[derive(Clone, Copy, Debug)]
pub struct Load {
    /// Connections that each client makes.
    pub connections: u64,
    /// Connections of a client at a time.
    pub slots: usize,
}

impl Load {
    /// A load that takes a few ten milliseconds to simulate.
    pub fn draw(scenario: Scenario, dice: &mut Dice) -> Self {
        let (connections, slots) = match scenario {
            Scenario::Bulk => (dice.between(1, 4), dice.between(1, 3)),
            Scenario::Echo => (dice.between(2, 10), dice.between(1, 10)),
            Scenario::Churn => (dice.between(10, 60), dice.between(1, 20)),
            Scenario::Kv => (dice.between(1, 6), dice.between(1, 6)),
        };
        Self { connections, slots: slots.min(connections) as usize }
    }

    /// The same with many connections at a time.
    #[must_use]
    pub fn crowded(self) -> Self {
        let connections = self.connections + CROWD;
        Self { connections, slots: connections as usize }
    }
}

/// The next script of client `client`'s connection number `number`.
pub fn script(scenario: Scenario, seed: u64, client: u64, number: u64) -> Box<dyn Script> {
    let name = client << 32 | number;
    let dice = Dice::new(seed, "script", name);
    match scenario {
        Scenario::Bulk => Box::new(transfer::Transfer::new(name, dice)),
        Scenario::Echo => Box::new(talk::Talk::new(name, dice)),
        Scenario::Churn => Box::new(visit::Visit::new(name, dice)),
        Scenario::Kv => Box::new(requests::Requests::new(name, dice)),
    }
}

/// Makes the service of a core.
pub type MakeService = Box<dyn FnMut(u8) -> Box<dyn Service>>;

/// Makes the server's service of each core; `shared`: connections stand in one table for so many cores.
///
/// # Errors
/// The store's limits make no sense.
pub fn server(
    scenario: Scenario,
    seed: u64,
    shared: Option<u8>,
) -> Result<MakeService, ConfigError> {
    Ok(match scenario {
        Scenario::Bulk => serving(shared, || transfer::Exchange),
        Scenario::Echo => serving(shared, || echo::Echo),
        Scenario::Churn => serving(shared, || visit::Host),
        Scenario::Kv => {
            let config = StoreConfig { shards: 1, ..StoreConfig::default() };
            let store = Arc::new(Store::new(config, [mix(seed), mix(!seed)])?);
            let started = WallTime::from_unix_s(1_800_000_000);
            serving(shared, move || KvProtocol::new(Arc::clone(&store), started))
        }
    })
}

/// Connections of one core at a time: more than any scenario has.
const MAX_CONNECTIONS: usize = 10_000;

fn serving<P>(shared: Option<u8>, make: impl Fn() -> P + 'static) -> MakeService
where
    P: Protocol + 'static,
    P::Connection: Send,
{
    match shared {
        None => Box::new(move |_| Box::new(Server::new(make()))),
        Some(cores) => {
            let slots = Arc::new(SharedSlots::new(cores as usize, MAX_CONNECTIONS));
            Box::new(move |core| {
                Box::new(Server::shared(core as usize, make(), Arc::clone(&slots)))
            })
        }
    }
}
