//! Counting instructions with callgrind: the cases, the limit, the table.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::profile::Profile;

/// Instructions that one 64-byte echo may cost the server, driver to driver, at B = 64.
pub const ECHO_LIMIT: f64 = 1350.0;

/// The USR workload's request for a key of 19 bytes, and what it is answered with (2 bytes).
pub const REQUEST_KV: &[u8] = b"get usr:000000000000042\r\n";
/// See [`REQUEST_KV`].
pub const ANSWER_KV: &[u8] = b"VALUE usr:000000000000042 0 2\r\nhi\r\nEND\r\n";
/// Stores that value.
pub const STORE_KV: &[u8] = b"set usr:000000000000042 0 0 2\r\nhi\r\n";
/// The answer to [`STORE_KV`].
pub const STORED_KV: &[u8] = b"STORED\r\n";

const _: () = assert!(REQUEST_KV.len() == "get \r\n".len() + 19);

/// What is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Workload {
    /// A 64-byte echo straight on the `Service` trait.
    RawEcho,
    /// A 64-byte echo as a `Protocol` of the server layer.
    Echo,
    /// The same of clients with an IPv4 address for each connection.
    EchoAddresses,
    /// The same over IPv6.
    EchoIpv6,
    /// The same with a device that completes the checksums of what is sent and verifies those of what is received.
    EchoOffloads,
    /// `get` of a 19-byte key with a 2-byte value from the key-value service.
    KvGet,
}

impl Workload {
    /// As on the command line and in results.
    pub fn name(self) -> &'static str {
        match self {
            Self::RawEcho => "raw-echo",
            Self::Echo => "echo",
            Self::EchoAddresses => "echo-addresses",
            Self::EchoIpv6 => "echo-ipv6",
            Self::EchoOffloads => "echo-offloads",
            Self::KvGet => "kv-get",
        }
    }
}

/// The cases in the order of the table: what is served, B, and whether the server shows what it does.
pub const CASES: [(Workload, u32, bool); 13] = [
    (Workload::RawEcho, 64, false),
    (Workload::RawEcho, 8, false),
    (Workload::RawEcho, 1, false),
    (Workload::Echo, 64, false),
    (Workload::Echo, 64, true),
    (Workload::Echo, 8, false),
    (Workload::Echo, 8, true),
    (Workload::Echo, 1, false),
    (Workload::Echo, 1, true),
    (Workload::EchoAddresses, 64, false),
    (Workload::EchoIpv6, 64, false),
    (Workload::EchoOffloads, 64, false),
    (Workload::KvGet, 64, false),
];

/// The case that [`ECHO_LIMIT`] is on.
pub const GATED: (Workload, u32, bool) = (Workload::Echo, 64, false);
/// The same, shown: [`SHOWING_LIMIT`].
pub const GATED_SHOWN: (Workload, u32, bool) = (Workload::Echo, 64, true);

/// The same over IPv6: [`IPV6_LIMIT`].
pub const GATED_IPV6: (Workload, u32, bool) = (Workload::EchoIpv6, 64, false);

/// What an echo may cost more over IPv6 than over IPv4, as a share of it.
pub const IPV6_LIMIT: f64 = 0.08;

/// What showing itself (`runtime::Shown`) may cost a server in that case, as a share of the echo.
pub const SHOWING_LIMIT: f64 = 0.01;

/// One case's result.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// What was served.
    pub workload: Workload,
    /// B.
    pub batch: u32,
    /// Whether the server showed what it did, as one in a service does.
    pub shown: bool,
    /// Established connections, each with one request at a time.
    pub connections: u32,
    /// Requests that were counted.
    pub requests: u64,
    /// Cycles of the server in which they were served.
    pub cycles: u64,
    /// Instructions of the server per request, driver to driver.
    pub instructions_per_request: f64,
    /// The same by crate of the source line, dearest first.
    pub by_crate: Vec<(String, f64)>,
}

/// What `cost` prints.
#[derive(Deserialize)]
struct Served {
    requests: u64,
    cycles: u64,
}

/// Where a run puts callgrind's output for a person to look into with `callgrind_annotate`.
pub fn profile_path(directory: &Path, workload: Workload, batch: u32, shown: bool) -> PathBuf {
    let shown = if shown { ".shown" } else { "" };
    directory.join(format!("callgrind.{}.b{batch}{shown}.out", workload.name()))
}

/// Runs one case of the `cost` binary under callgrind. The profile stays in `directory`.
///
/// # Errors
/// Where valgrind or the binary cannot be run, fails, or writes what cannot be read.
pub fn measure(
    cost: &Path,
    directory: &Path,
    workload: Workload,
    batch: u32,
    shown: bool,
    connections: u32,
) -> anyhow::Result<(Measured, Profile)> {
    let out = profile_path(directory, workload, batch, shown);
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--collect-atstart=no", "--error-exitcode=9"])
        .arg("--toggle-collect=*measured_server_cycle*")
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(cost)
        .args(["--workload", workload.name()])
        .args(["--batch", &batch.to_string(), "--connections", &connections.to_string()])
        .args(shown.then_some("--shown"))
        .output()
        .context("running valgrind failed; install the package valgrind")?;
    if !run.status.success() {
        let said = String::from_utf8_lossy(&run.stderr);
        bail!("{} under valgrind ended with {}:\n{said}", cost.display(), run.status);
    }
    let served: Served = serde_json::from_slice(&run.stdout)
        .with_context(|| format!("{} printed no result", cost.display()))?;
    let text = std::fs::read_to_string(&out)
        .with_context(|| format!("reading callgrind's output {}", out.display()))?;
    let profile = Profile::parse(&text)?;
    if profile.total == 0 || served.requests == 0 {
        bail!("nothing was counted: is measured_server_cycle still a function of its own?");
    }
    let per_request = |cost: u64| cost as f64 / served.requests as f64;
    let by_crate = profile.crates().into_iter().map(|(name, cost)| (name, per_request(cost)));
    let measured = Measured {
        workload,
        batch,
        shown,
        connections,
        requests: served.requests,
        cycles: served.cycles,
        instructions_per_request: per_request(profile.total),
        by_crate: by_crate.collect(),
    };
    Ok((measured, profile))
}
