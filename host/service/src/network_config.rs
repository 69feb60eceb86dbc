//! `[network]`: where the dataplane's packets come from.
//!
//! ```toml
//! [network]
//! interface = "eth0"
//! address = "10.0.0.2/24"
//! mode = "auto"     # or one that is demanded: zero-copy, copy, generic
//! checksums = "auto" # or who completes those of sent segments: software, device
//! ```

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::str::FromStr;

use anyhow::{anyhow, bail};
use configfile::in_range;
use nic::xdp_program::MAX_ADDRESSES;
use runtime::Route;
use serde::Deserialize;
use tailplane::{Address, MacAddr, Prefix};

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

/// `network.checksums`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChecksumsName {
    /// The device where its driver declares that it can in zero-copy mode, else software.
    #[default]
    Auto,
    /// The dataplane computes them.
    Software,
    /// The device completes those of TCP segments with payload, in copy mode the kernel where the device cannot.
    Device,
}

/// A value, or a list of values.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
pub enum OneOrMore {
    /// One.
    One(String),
    /// A list, which may be empty.
    More(Vec<String>),
}

impl Default for OneOrMore {
    fn default() -> Self {
        Self::More(Vec::new())
    }
}

impl OneOrMore {
    /// All of them.
    pub fn as_slice(&self) -> &[String] {
        match self {
            Self::One(one) => std::slice::from_ref(one),
            Self::More(more) => more,
        }
    }
}

/// Routes that there may be: each packet to a peer that is no neighbour, and the first of its batch, has them looked through.
pub const MAX_ROUTES: usize = 256;

/// Reads the value of a key.
fn parse<T: FromStr>(key: &str, text: &str, allowed: &str) -> anyhow::Result<T> {
    text.parse().map_err(|_| anyhow!("`{key}` is '{text}'; allowed: {allowed}"))
}

/// An address of one of the dataplane's own versions.
fn parse_address(key: &str, text: &str) -> anyhow::Result<Address> {
    parse(key, text, "an address as in 10.0.0.1 or 2001:db8::1")
}

/// `[network]`: the lab, or an interface of this machine.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct NetworkConfig {
    /// The lab whose dataplane end is used: see [`lab`](Self::lab). Made if it is not up.
    pub lab: Option<String>,
    /// An interface in the namespace that the command runs in.
    pub interface: Option<String>,
    /// The dataplane's address and network on that interface, or a list of them: `10.0.0.2/24`, `2001:db8::2/64`.
    pub address: OneOrMore,
    /// The next hop beyond these networks, or a list of one for each version of IP.
    pub gateway: OneOrMore,
    /// Next hops to other networks: `{ "10.9.0.0/16" = "10.0.0.7" }`. The longest prefix counts.
    pub routes: BTreeMap<String, String>,
    /// Link addresses of neighbours, which are then never asked for: `{ "10.0.0.1" = "02:00:00:00:00:01" }`.
    pub neighbors: BTreeMap<String, String>,
    /// Time to live of packets that are sent.
    pub ttl: u8,
    /// Their Differentiated Services codepoint, six bits.
    pub dscp: u8,
    /// How frames travel between the interface and packet memory; [`ModeName::Auto`] where nothing is said.
    pub mode: ModeName,
    /// Who completes the checksums of TCP segments that are sent.
    pub checksums: ChecksumsName,
    /// Instead of lab and interface: a wire in shared memory, which another process of this machine
    /// joins at the socket of this path (`tailplane load --shm PATH`).
    pub shm: Option<std::path::PathBuf>,
}

impl Default for NetworkConfig {
    fn default() -> Self {
        Self {
            lab: None,
            interface: None,
            address: OneOrMore::default(),
            gateway: OneOrMore::default(),
            routes: BTreeMap::new(),
            neighbors: BTreeMap::new(),
            ttl: 64,
            dscp: 0,
            mode: ModeName::default(),
            checksums: ChecksumsName::default(),
            shm: None,
        }
    }
}

impl NetworkConfig {
    /// Neighbours whose link addresses are given.
    ///
    /// # Errors
    /// The key, the value and what is allowed.
    pub fn neighbors(&self) -> anyhow::Result<Vec<(Address, MacAddr)>> {
        let parsed = self.neighbors.iter().map(|(address, mac)| {
            let key = format!("network.neighbors.\"{address}\"");
            let allowed = "a link address as 02:00:00:00:00:01";
            Ok((parse_address("network.neighbors", address)?, parse(&key, mac, allowed)?))
        });
        parsed.collect()
    }

    /// The dataplane's addresses, each with its network: in the lab, where none is given, the lab's.
    ///
    /// # Errors
    /// The key, the value and what is allowed.
    pub fn own_addresses(&self) -> anyhow::Result<Vec<Prefix>> {
        let own = self.address.as_slice();
        if own.is_empty() {
            return Ok(vec![Prefix::new(DATAPLANE_ADDRESS.into(), SUBNET_BITS)]);
        }
        if own.len() > MAX_ADDRESSES {
            bail!(
                "`network.address` has {} addresses; allowed: at most {MAX_ADDRESSES}",
                own.len()
            );
        }
        let parsed = own.iter().map(|address| {
            let allowed = "an address and a prefix of 0 to 32, of IPv6 to 128, as in 10.0.0.2/24 or 2001:db8::2/64";
            let own: Prefix = parse("network.address", address, allowed)?;
            if own.address.is_martian() {
                bail!("`network.address` is '{address}'; allowed: the address of a host");
            }
            Ok(own)
        });
        parsed.collect()
    }

    /// The next hops to what is not in these networks: at most [`MAX_ROUTES`].
    ///
    /// # Errors
    /// The key, the value and what is allowed; a next hop that is not in one of the networks.
    pub fn routes(&self) -> anyhow::Result<Vec<Route>> {
        let everywhere = |via: Address| {
            let (v4, v6) = (Ipv4Addr::UNSPECIFIED.into(), Ipv6Addr::UNSPECIFIED.into());
            Prefix::new(if via.is_ipv4() { v4 } else { v6 }, 0)
        };
        let mut routes = Vec::new();
        for gateway in self.gateway.as_slice() {
            let via = parse_address("network.gateway", gateway)?;
            routes.push(("network.gateway", Route { to: everywhere(via), via }));
        }
        for (to, via) in &self.routes {
            let allowed = "a network as in 10.9.0.0/16 or 2001:db8:9::/48";
            let (to, via) =
                (parse("network.routes", to, allowed)?, parse_address("network.routes", via)?);
            routes.push(("network.routes", Route { to, via }));
        }
        if routes.len() > MAX_ROUTES {
            bail!("`network.routes` has {} networks; allowed: at most {MAX_ROUTES}", routes.len());
        }
        let own = self.own_addresses()?;
        // By its address alone a host with an IPv6 address is a neighbour (RFC 4291 §2.5.6).
        let link_local = Prefix::new(Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 0).into(), 10);
        for (key, Route { to, via }) in &routes {
            let is_own = own.iter().any(|own| own.address == *via);
            let is_neighbor = own.iter().any(|own| {
                own.contains(*via) || !own.address.is_ipv4() && link_local.contains(*via)
            });
            if is_own || !is_neighbor || to.address.is_ipv4() != via.is_ipv4() {
                bail!(
                    "`{key}` leads to {to} by {via}; allowed: a neighbour in a network of `network.address`"
                );
            }
        }
        Ok(routes.into_iter().map(|(_, route)| route).collect())
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
            if self.checksums == ChecksumsName::Device {
                bail!(
                    "cannot leave checksums to the device: found network.shm, which has none; remove network.checksums"
                );
            }
        } else if self.interface.is_some() && self.address.as_slice().is_empty() {
            bail!(
                "`network.interface` and `network.address` go together: set both, or none to use the lab"
            );
        }
        self.routes()?;
        in_range("network.ttl", self.ttl, 1, 255)?;
        in_range("network.dscp", self.dscp, 0, 63)?;
        self.neighbors().map(drop)
    }
}
