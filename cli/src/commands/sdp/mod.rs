//! `tailplane sdp`: the many-tenant software data plane, to try.
//!
//! ```text
//! tailplane sdp serve --socket /tmp/sdp.sock          in one terminal; Ctrl-C ends it
//! tailplane sdp tenant --socket /tmp/sdp.sock --queues 20   in as many others as you like
//! tailplane sdp serve --socket /tmp/gw.sock --service gateway     in a lab: tenants' packets to a tunnel
//! tailplane sdp packets --socket /tmp/gw.sock --address 10.8.2.1  one that sends or echoes packets
//! ```

mod gateway;
mod gateway_config;
mod json;
mod opener;
pub mod packets;
mod plane;
mod report;
pub mod serve;
pub mod serve_args;
pub mod services;
pub mod tenant;

#[doc(hidden)]
pub use self::gateway_config::GatewayFile;
pub use self::json::write_json;
#[doc(hidden)]
pub use self::opener::{Order as PlaneOrder, Told as PlaneTold};

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;

use self::packets::PacketArgs;
use self::serve_args::ServeArgs;
use self::tenant::TenantArgs;
use service::cleanup;

/// What `--help` teaches beside the options.
const HELP: &str = "\
A data plane serves queue pairs of many processes, which it does not trust, on a few cores (HyperPlane,
MICRO 2020, section II-A). `serve` is the plane; `tenant` is a process that joins it, sends requests on
N queues, checks the replies, and reports their latency. Run as many tenants as you like; kill them; the
plane and the others go on.

How a core learns of work (--notify): `qwait` keeps a ready set, and sleeps when nothing is ready; `spin`
looks at every queue in turn; `spin-dpdk` does so at the cost of a poll-mode driver's poll.

A GATEWAY (--service gateway) gives tenants a network: what they send goes out through a GRE tunnel over
IPv6, on an AF_XDP queue of an interface, and what comes back is theirs. A file names interface, tunnel
ends, the tenants' addresses and the virtual address that is steered to them; docs/gateway.toml shows every
key. In a lab nothing need be said. Both ends of a tunnel, in four terminals:

  tailplane lab up
  tailplane sdp serve --socket /tmp/one.sock --service gateway
  tailplane sdp serve --socket /tmp/two.sock --service gateway --lab-end client
  tailplane sdp packets --socket /tmp/one.sock --address 10.8.2.1
  tailplane sdp packets --socket /tmp/two.sock --address 10.8.1.1 --to 10.8.2.1

EXAMPLES
  tailplane sdp serve --socket /tmp/sdp.sock --service work:1000
  tailplane sdp serve --socket /tmp/sdp.sock --mode 666 --class 0:0,1000:3    root's tenants go first
  tailplane sdp serve --socket /tmp/sdp.sock --one-user --user inherit            for a test by oneself
  tailplane sdp serve --socket /tmp/sdp.sock --cores 2 --arrangement scale-up:2 --cpus 0,1
  tailplane sdp tenant --socket /tmp/sdp.sock --queues 200 --active 1 --doorbells paged --rate 10000
  tailplane sdp tenant --socket /tmp/sdp.sock --count 100000 --json -
  tailplane sdp-bench --queues 1,100,1000 --shape FB,SQ --json bench.json";

/// Arguments of `tailplane sdp`.
#[derive(Debug, clap::Args)]
#[command(after_long_help = HELP)]
pub struct Args {
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
}

/// What `tailplane sdp` does.
#[derive(Debug, clap::Subcommand)]
pub enum Action {
    /// Serve tenants.
    Serve(ServeArgs),
    /// Be a tenant: a small load.
    Tenant(TenantArgs),
    /// Be a tenant of a gateway: packets through its tunnel.
    Packets(PacketArgs),
    /// The plane's process: started by `serve`.
    #[command(hide = true)]
    Plane,
}

/// Runs `tailplane sdp`.
///
/// # Errors
/// A plane that cannot be started or joined, a reply that is not what was sent, or a file that cannot
/// be written.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    if let Action::Plane = args.action {
        // Signals of the terminal are the opener's.
        plane::serve()?;
        return Ok(ExitCode::SUCCESS);
    }
    let stop = Arc::new(AtomicBool::new(false));
    cleanup::first_signal_sets(Arc::clone(&stop)).context("catching signals")?;
    match args.action {
        Action::Serve(args) => serve::serve(&args, &stop),
        Action::Tenant(args) => tenant::tenant(&args, &stop),
        Action::Packets(args) => packets::packets(&args, &stop),
        Action::Plane => Ok(()),
    }?;
    Ok(ExitCode::SUCCESS)
}
