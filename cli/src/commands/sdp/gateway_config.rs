//! The configuration file of `tailplane sdp serve --service gateway`; `docs/gateway.toml` shows every key.
//!
//! Every key has a default in a lab. An unknown key, a value of a wrong type and a value out of range are
//! errors that name the key, the value and what is allowed.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, bail};
use configfile::{in_range, network};
use mem::HugePages;
use serde::{Deserialize, Serialize};
use services::{SteeringConfig, TunnelConfig};
use tailplane::MacAddr;

use service::config::{HugePagesName, MemoryConfig};
use service::lab::constants::DEFAULT_PREFIX;

/// The tunnel's ends in a lab.
const LAB_DATAPLANE: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 2);
const LAB_CLIENT: Ipv6Addr = Ipv6Addr::new(0xfd77, 0, 0, 0, 0, 0, 0, 1);
/// Tenants of the gateway at each end of a lab.
const LAB_DATAPLANE_TENANTS: &str = "10.8.2.0/24";
const LAB_CLIENT_TENANTS: &str = "10.8.1.0/24";
/// A tunnel's MTU: chunks of packet memory hold no larger frames.
const MTU: (usize, usize) = (1_280, 1_500);

/// An end of the lab's veth pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "lowercase")]
pub enum LabEnd {
    /// The dataplane's.
    #[default]
    Dataplane,
    /// The client's.
    Client,
}

/// A whole file.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayFile {
    /// The device.
    pub network: Network,
    /// The tunnel.
    pub tunnel: Tunnel,
    /// Who may join.
    pub tenants: Tenants,
    /// The virtual address, if there is one.
    pub steering: Option<SteeringTable>,
    /// The packet memory.
    pub memory: Memory,
}

/// `[network]`: the lab, or an interface of this machine.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Network {
    /// The lab where no interface is named. Made if it is not up.
    pub lab: Option<String>,
    /// Which end of it.
    pub end: LabEnd,
    /// An interface in the namespace that the command runs in.
    pub interface: Option<String>,
    /// The link address of the next hop towards the tunnel's other end. In a lab it is known.
    pub next_hop: Option<String>,
    /// The interface's queue that the tunnel's packets come to.
    pub queue: u32,
}

/// `[tunnel]`: GRE over IPv6 (RFC 2784, RFC 2890, RFC 7676). The other end is set up alike.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tunnel {
    /// This end's address.
    pub local: Option<Ipv6Addr>,
    /// The other end's.
    pub remote: Option<Ipv6Addr>,
    /// The key that every packet carries.
    pub key: Option<u32>,
    /// Whether packets are numbered.
    pub sequence: bool,
    /// Whether a GRE checksum is sent.
    pub checksum: bool,
    /// Hop limit of the outer packets; 64 where nothing is said.
    pub hop_limit: Option<u8>,
    /// Most bytes of an outer packet; 1,500 where nothing is said.
    pub mtu: Option<usize>,
}

/// `[tenants]`
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tenants {
    /// Addresses that tenants may take: `10.8.0.0/24`.
    pub range: Option<String>,
}

/// `[steering]`: sessions of one address to the tenants that serve it.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SteeringTable {
    /// The address that clients send to. No tenant can take it.
    pub virtual_address: Ipv4Addr,
    /// Addresses of the tenants that may serve it; all of the range where nothing is said.
    pub servers: Option<String>,
    /// Sessions that are remembered, 64 bytes each; 65,536 where nothing is said.
    pub sessions: Option<usize>,
    /// Tenants that serve at a time; 64 where nothing is said.
    pub backends: Option<usize>,
    /// Seconds without a packet after which a session is forgotten; 300 where nothing is said.
    pub idle_s: Option<u64>,
}

/// `[memory]`: as in `tailplane run`'s file, with a default that fits one queue.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Memory {
    /// Packet buffers of 2 KiB.
    pub chunks: usize,
    /// `try`, `require` or `no`.
    #[serde(with = "HugePagesName")]
    pub huge_pages: HugePages,
}

impl Default for Memory {
    fn default() -> Self {
        Self { chunks: 8_192, huge_pages: MemoryConfig::default().huge_pages }
    }
}

/// Where the device is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Device {
    /// An end of a lab.
    Lab(String, LabEnd),
    /// An interface, and the next hop's link address.
    Interface(String, MacAddr),
}

/// A file that was checked.
#[derive(Clone, Debug)]
pub struct GatewaySettings {
    /// The device.
    pub device: Device,
    /// Its queue.
    pub queue: u32,
    /// The tunnel.
    pub tunnel: TunnelConfig,
    /// Addresses that tenants may take.
    pub tenants: (Ipv4Addr, u8),
    /// The steering, whose key is drawn by whoever uses it.
    pub steering: Option<SteeringConfig>,
    /// Addresses that may serve.
    pub servers: (Ipv4Addr, u8),
    /// The packet memory.
    pub memory: Memory,
}

impl GatewayFile {
    /// Reads a file: its text, and what that says.
    ///
    /// # Errors
    /// What is wrong with it: the key, the value, what is allowed.
    pub fn load(path: &Path) -> anyhow::Result<(String, GatewaySettings)> {
        configfile::load(path, |text| Ok((text.to_owned(), Self::parse(text)?)))
    }

    /// Reads and checks the text of a file.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(text: &str) -> anyhow::Result<GatewaySettings> {
        toml::from_str::<Self>(text)?.check()
    }

    /// Fills in what a lab knows, and checks the rest.
    fn check(&self) -> anyhow::Result<GatewaySettings> {
        in_range("memory.chunks", self.memory.chunks, 1_024, 1 << 26)?;
        let default = TunnelConfig::new(LAB_DATAPLANE, LAB_CLIENT);
        let mtu = self.tunnel.mtu.unwrap_or(default.mtu);
        in_range("tunnel.mtu", mtu, MTU.0, MTU.1)?;
        let hop_limit = self.tunnel.hop_limit.unwrap_or(default.hop_limit);
        in_range("tunnel.hop_limit", hop_limit, 1, u8::MAX)?;
        in_range("network.queue", self.network.queue, 0, 1_023)?;
        let device = self.device()?;
        let lab = match &device {
            Device::Interface(..) => None,
            Device::Lab(_, LabEnd::Dataplane) => {
                Some((LAB_DATAPLANE, LAB_CLIENT, LAB_DATAPLANE_TENANTS))
            }
            Device::Lab(_, LabEnd::Client) => Some((LAB_CLIENT, LAB_DATAPLANE, LAB_CLIENT_TENANTS)),
        };
        let needed = |key: &str| format!("`{key}` is missing: with an interface it must be said");
        let end = |given: Option<Ipv6Addr>, lab: Option<Ipv6Addr>, key: &str| {
            given.or(lab).with_context(|| needed(key))
        };
        let local = end(self.tunnel.local, lab.map(|lab| lab.0), "tunnel.local")?;
        let remote = end(self.tunnel.remote, lab.map(|lab| lab.1), "tunnel.remote")?;
        if local == remote {
            bail!("`tunnel.local` and `tunnel.remote` are both {local}: a tunnel has two ends");
        }
        let given = self.tenants.range.as_deref().or(lab.map(|lab| lab.2));
        let tenants = network("tenants.range", given.with_context(|| needed("tenants.range"))?)?;
        let (steering, servers) = self.steering(tenants)?;
        let Tunnel { key, sequence, checksum, .. } = self.tunnel;
        let tunnel =
            TunnelConfig { local, remote, key, sequence, checksum, hop_limit, mtu, ..default };
        let (queue, memory) = (self.network.queue, self.memory.clone());
        Ok(GatewaySettings { device, queue, tunnel, tenants, steering, servers, memory })
    }

    fn device(&self) -> anyhow::Result<Device> {
        let Network { lab, end, interface, next_hop, .. } = &self.network;
        let Some(interface) = interface else {
            if next_hop.is_some() {
                bail!("`network.next_hop` goes with `network.interface`; in a lab it is known");
            }
            let lab = lab.as_deref().unwrap_or(DEFAULT_PREFIX);
            return Ok(Device::Lab(lab.to_owned(), *end));
        };
        let text = next_hop.as_deref().with_context(|| {
            format!(
                "`network.next_hop` is missing: say the link address of the next hop towards the \
                 tunnel's other end; `ip -6 neigh show dev {interface}` lists those that are known"
            )
        })?;
        let next_hop = text.parse().ok().with_context(|| {
            format!(
                "`network.next_hop` is '{text}'; allowed: a MAC address such as 02:00:00:00:00:01"
            )
        })?;
        Ok(Device::Interface(interface.clone(), next_hop))
    }

    /// The steering without its key, and who may serve.
    fn steering(
        &self,
        tenants: (Ipv4Addr, u8),
    ) -> anyhow::Result<(Option<SteeringConfig>, (Ipv4Addr, u8))> {
        let Some(table) = &self.steering else { return Ok((None, tenants)) };
        let default = SteeringConfig::new(table.virtual_address, [0; 16]);
        let idle_s = table.idle_s.unwrap_or(default.idle_max.as_secs());
        in_range("steering.idle_s", idle_s, 1, 1 << 32)?;
        let servers = match &table.servers {
            Some(text) => network("steering.servers", text)?,
            None => tenants,
        };
        let steering = SteeringConfig {
            sessions_max: table.sessions.unwrap_or(default.sessions_max),
            backends_max: table.backends.unwrap_or(default.backends_max),
            idle_max: Duration::from_secs(idle_s),
            ..default
        };
        // Its own limits, with their reasons.
        services::Steering::new(steering).context("in `[steering]`")?;
        Ok((Some(steering), servers))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lab_needs_nothing_and_its_ends_fit() {
        let one = GatewayFile::parse("").expect("fine");
        let two = GatewayFile::parse("[network]\nend = \"client\"\n").expect("fine");
        assert_eq!(one.device, Device::Lab(DEFAULT_PREFIX.into(), LabEnd::Dataplane));
        assert_eq!(two.device, Device::Lab(DEFAULT_PREFIX.into(), LabEnd::Client));
        assert_eq!(
            (one.tunnel.local, one.tunnel.remote),
            (two.tunnel.remote, two.tunnel.local),
            "each end's other one"
        );
        assert_ne!(one.tenants, two.tenants);
    }

    #[test]
    fn the_example_shows_every_key() {
        let text = include_str!("../../../../docs/gateway.toml");
        let settings = GatewayFile::parse(text).expect("the example is fine");
        assert!(settings.steering.is_some());
        for key in [
            "lab",
            "end",
            "interface",
            "next_hop",
            "queue",
            "local",
            "remote",
            "key",
            "sequence",
            "checksum",
            "hop_limit",
            "mtu",
            "range",
            "virtual_address",
            "servers",
            "sessions",
            "backends",
            "idle_s",
            "chunks",
            "huge_pages",
        ] {
            assert!(text.contains(&format!("{key} = ")), "{key} is not shown");
        }
    }

    #[test]
    fn errors_name_the_key_the_value_and_what_is_allowed() {
        let device = "[network]\ninterface = \"eth0\"\nnext_hop = \"02:00:00:00:00:01\"\n";
        let cases: [(String, &[&str]); 12] = [
            ("[tunnel]\nmtu = 9000\n".into(), &["`tunnel.mtu` is 9000", "1280 to 1500"]),
            ("[tunnel]\nlocal = \"10.0.0.1\"\n".into(), &["local", "IPv6"]),
            ("[tunnel]\nremote = \"fd77::2\"\n".into(), &["fd77::2", "two ends"]),
            ("[tunnel]\nkeys = 7\n".into(), &["keys", "key"]),
            ("[tenants]\nrange = \"10.8.0.0\"\n".into(), &["`tenants.range`", "'10.8.0.0'"]),
            (
                "[network]\ninterface = \"eth0\"\n".into(),
                &["next_hop", "ip -6 neigh show dev eth0"],
            ),
            (
                "[network]\ninterface = \"eth0\"\nnext_hop = \"x\"\n".into(),
                &["`network.next_hop` is 'x'", "02:00:00:00:00:01"],
            ),
            ("[network]\nnext_hop = \"02:00:00:00:00:01\"\n".into(), &["network.interface"]),
            (device.into(), &["`tunnel.local` is missing"]),
            ("[network]\nend = \"middle\"\n".into(), &["middle", "dataplane", "client"]),
            ("[steering]\nservers = \"10.8.0.0/28\"\n".into(), &["virtual_address"]),
            (
                "[steering]\nvirtual_address = \"10.8.9.9\"\nbackends = 0\n".into(),
                &["[steering]", "backends_max = 0"],
            ),
        ];
        for (text, parts) in cases {
            let found = format!("{:#}", GatewayFile::parse(&text).expect_err("is refused"));
            for part in parts {
                assert!(found.contains(part), "{part:?} is not in: {found}");
            }
        }
    }
}
