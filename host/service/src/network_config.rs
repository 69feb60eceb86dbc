//! `[network]`: where the dataplane's packets come from.
//!
//! ```toml
//! [network]
//! interface = "eth0"
//! address = "10.0.0.2/24"
//! mode = "auto"     # or one that is demanded: zero-copy, copy, generic
//! ```

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use anyhow::bail;
use configfile::in_range;
use serde::Deserialize;
use tailplane::MacAddr;

use crate::lab::constants::{DATAPLANE_ADDRESS, DEFAULT_PREFIX, SUBNET_BITS};

/// `network.mode`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, strum::AsRefStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum ModeName {
    /// The best of the three below that the device can do.
    #[default]
    Auto,
    /// The device reads and writes packet memory itself.
    ZeroCopy,
    /// The driver runs the XDP program, and the kernel copies frames to and from packet memory.
    Copy,
    /// The kernel runs the XDP program on a socket buffer, then copies: on every interface.
    Generic,
}

/// `[network]`: the lab, or an interface of this machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkConfig {
    /// The lab whose dataplane end is used: see [`lab`](Self::lab). Made if it is not up.
    pub lab: Option<String>,
    /// An interface in the namespace that the command runs in.
    pub interface: Option<String>,
    /// The dataplane's address and prefix on that interface: `10.0.0.2/24`.
    pub address: Option<String>,
    /// The next hop beyond the prefix.
    pub gateway: Option<Ipv4Addr>,
    /// Link addresses of neighbours, which are then never asked for: `{ "10.0.0.1" = "02:00:00:00:00:01" }`.
    pub neighbors: BTreeMap<Ipv4Addr, String>,
    /// Time to live of packets that are sent.
    pub ttl: u8,
    /// Their Differentiated Services codepoint, six bits.
    pub dscp: u8,
    /// How frames travel between the interface and packet memory; [`ModeName::Auto`] where nothing is said.
    pub mode: ModeName,
    /// Instead of lab and interface: a wire in shared memory, which another process of this machine
    /// joins at the socket of this path (`tailplane load --shm PATH`).
    pub shm: Option<std::path::PathBuf>,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            lab: None,
            interface: None,
            address: None,
            gateway: None,
            neighbors: BTreeMap::new(),
            ttl: 64,
            dscp: 0,
            mode: ModeName::default(),
            shm: None,
        }
    }
}

impl NetworkConfig {
    /// Neighbours whose link addresses are given.
    ///
    /// # Errors
    /// The key, the value and what is allowed.
    pub fn neighbors(&self) -> anyhow::Result<Vec<(Ipv4Addr, MacAddr)>> {
        let parsed = self.neighbors.iter().map(|(&address, mac)| match mac.parse() {
            Ok(mac) => Ok((address, mac)),
            Err(_) => bail!(
                "`network.neighbors.\"{address}\"` is {mac:?}; allowed: a link address as 02:00:00:00:00:01"
            ),
        });
        parsed.collect()
    }

    /// The dataplane's address, and its prefix.
    ///
    /// # Errors
    /// The key, the value and what is allowed.
    pub fn own_address(&self) -> anyhow::Result<(Ipv4Addr, u8)> {
        match &self.address {
            Some(address) => configfile::network("network.address", address),
            None => Ok((DATAPLANE_ADDRESS, SUBNET_BITS)),
        }
    }

    /// The lab's name, for a service on neither an interface nor shared memory.
    pub fn lab(&self) -> &str {
        self.lab.as_deref().unwrap_or(DEFAULT_PREFIX)
    }

    pub(super) fn check(&self, threads: usize) -> anyhow::Result<()> {
        let wires = [
            ("lab", self.lab.is_some()),
            ("interface", self.interface.is_some()),
            ("shm", self.shm.is_some()),
        ];
        let named: Vec<&str> =
            wires.into_iter().filter_map(|(key, is_named)| is_named.then_some(key)).collect();
        if named.len() > 1 {
            bail!("cannot choose a wire: found network.{}; keep one", named.join(" and network."));
        }
        if self.shm.is_some() {
            in_range("dataplane.threads", threads, 1, 1)?;
            if self.mode != ModeName::Auto {
                bail!(
                    "cannot set network.mode: found network.shm, which is no interface; remove one"
                );
            }
        } else if self.interface.is_some() != self.address.is_some() {
            bail!(
                "`network.interface` and `network.address` go together: set both, or none to use the lab"
            );
        }
        if let Some(address) = &self.address {
            configfile::network("network.address", address)?;
        }
        in_range("network.ttl", self.ttl, 1, 255)?;
        in_range("network.dscp", self.dscp, 0, 63)?;
        self.neighbors().map(drop)
    }
}
