//! What `--so_flags` says.
//!
//! Key and value pairs with commas between them: `local_ip=192.168.0.1,gateway_ip=192.168.0.2,prefix_len=16`, which are
//! packetdrill's own defaults; `congestion=newreno`, `cubic` or `dctcp`; `ecn=ask`, `accept` or `off`; `mtu=1500`. The
//! address must be that of packetdrill's `--local_ip`, which it does not pass on.

use stack::{CongestionAlgorithm, Ecn, StackConfig};
use wire::{Address, MacAddr, Prefix};

/// The link address of the gateway, through which all of packetdrill's packets come.
pub const GATEWAY_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);
/// Ours.
pub const OWN_MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
/// The receive window: the largest that a window scale of 8 names, which scripts expect.
const WINDOW_BYTES: u32 = (16 << 20) - 1;

/// The stack's settings.
///
/// # Errors
/// What is wrong with the flags.
pub fn parse(flags: &str) -> Result<StackConfig, String> {
    let mut local: Address = address("192.168.0.1")?;
    let mut gateway: Address = address("192.168.0.2")?;
    let mut prefix_len = 16;
    let mut config = StackConfig::new(local, prefix_len, OWN_MAC);
    for pair in flags.split([',', ' ']).filter(|pair| !pair.is_empty()) {
        let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
        let wrong =
            || format!("cannot use so_flags: found `{pair}`; see lab/packetdrill/src/settings.rs");
        let number = || value.parse::<u16>().map_err(|_| wrong());
        match key.trim_start_matches('-') {
            "local_ip" => local = address(value)?,
            "gateway_ip" => gateway = address(value)?,
            "prefix_len" => prefix_len = number()?.min(128) as u8,
            "mtu" => config.mtu_bytes = number()?.clamp(576, 1_500),
            "congestion" => {
                config.congestion = match value {
                    "newreno" => CongestionAlgorithm::NewReno,
                    "cubic" => CongestionAlgorithm::Cubic,
                    "dctcp" => CongestionAlgorithm::Dctcp,
                    _ => return Err(wrong()),
                }
            }
            "ecn" => {
                config.ecn = match value {
                    "ask" => Ecn::Ask,
                    "accept" => Ecn::Accept,
                    "off" => Ecn::Off,
                    _ => return Err(wrong()),
                }
            }
            _ => return Err(wrong()),
        }
    }
    config.addresses = vec![Prefix::new(local, prefix_len)];
    config.set_gateway(gateway);
    // It is never asked for: packetdrill speaks IP.
    config.neighbors = vec![(gateway, GATEWAY_MAC)];
    config.receive_window_bytes = WINDOW_BYTES;
    config.policy.listen = vec![1..=u16::MAX];
    Ok(config)
}

fn address(text: &str) -> Result<Address, String> {
    text.parse().map_err(|_| format!("cannot use so_flags: found `{text}`; write an address"))
}
