//! Serves a fixed number of requests, to be observed by callgrind: `instructions` runs it.
//!
//! ```text
//! valgrind --tool=callgrind --toggle-collect='*measured_server_cycle*' cost --service echo
//! ```
//!
//! Prints one line of JSON: requests served and cycles of the server in which they were.

use std::sync::Arc;

use bench::instructions::{ANSWER_KV, REQUEST_KV, STORE_KV, STORED_KV, Workload};
use clap::Parser;
use domain::Service;
use kv::{KvProtocol, Store, StoreConfig, WallTime};
use tailplane::Server;
use world::rig::{RawEcho, Rig, RigConfig};

/// Serves a fixed number of requests between two dataplanes in one thread.
#[derive(Parser)]
struct Arguments {
    /// What is served.
    #[arg(long, value_enum, default_value = "echo")]
    workload: Workload,
    /// Established connections; each sends one request per round.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=512))]
    connections: u32,
    /// B: packets that one cycle of the server takes at most.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=512))]
    batch: u32,
    /// The server shows what it does, as one in a service does.
    #[arg(long)]
    shown: bool,
    /// Rounds that are counted.
    #[arg(long, default_value_t = 200)]
    rounds: u32,
    /// Rounds before them, which warm up and are not counted.
    #[arg(long, default_value_t = 50)]
    warm_rounds: u32,
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    match arguments.workload {
        Workload::RawEcho => run(&arguments, RawEcho::default(), |_| Ok(())),
        Workload::Echo | Workload::EchoAddresses | Workload::EchoIpv6 | Workload::EchoOffloads => {
            run(&arguments, Server::new(echo::Echo), |_| Ok(()))
        }
        Workload::KvGet => {
            let store = Arc::new(Store::new(StoreConfig::default(), [1, 2])?);
            let started = WallTime::from_unix_s(1_800_000_000);
            run(&arguments, Server::new(KvProtocol::new(store, started)), |rig| {
                rig.caller.set_request(STORE_KV, STORED_KV);
                rig.exchange(false, 0..1)?;
                rig.caller.set_request(REQUEST_KV, ANSWER_KV);
                Ok(())
            })
        }
    }
}

fn run<S: Service>(
    arguments: &Arguments,
    service: S,
    prepare: impl FnOnce(&mut Rig<S>) -> anyhow::Result<()>,
) -> anyhow::Result<()> {
    let config = RigConfig {
        connections: arguments.connections as usize,
        batch: arguments.batch as usize,
        shown: arguments.shown,
        client_addresses: match arguments.workload {
            // Those of its network, where there are more connections.
            Workload::EchoAddresses => arguments.connections.min(253) as usize,
            _ => 1,
        },
        ipv6: arguments.workload == Workload::EchoIpv6,
        offloads: arguments.workload == Workload::EchoOffloads,
        ..RigConfig::default()
    };
    let mut rig = Rig::open(config, service)?;
    prepare(&mut rig)?;
    for _ in 0..arguments.warm_rounds {
        rig.exchange_all()?;
    }
    let requests = rig.exchange_measured(arguments.rounds)?;
    println!("{}", serde_json::json!({ "requests": requests, "cycles": rig.measured_cycles }));
    Ok(())
}
