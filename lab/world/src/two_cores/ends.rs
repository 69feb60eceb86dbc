//! The two ends of the wire: their addresses, and a stack for each.

use std::sync::Arc;

use stack::{Secrets, Shared, StackConfig};
use wire::{Ipv4Addr, MacAddr};

pub(super) const SERVER: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 1);
pub(super) const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 9, 0, 2);
pub(super) const MACS: [MacAddr; 2] = [MacAddr([2, 0, 0, 0, 0, 1]), MacAddr([2, 0, 0, 0, 0, 2])];
pub(super) const PORT: u16 = 2000;

pub(super) fn shared(address: Ipv4Addr, mac: MacAddr, cores: u8, seed: u64) -> Arc<Shared> {
    let mut config = StackConfig::new(address, 24, mac);
    config.tcp_listen = vec![PORT];
    config.rx_checksums_verified = true;
    let byte = |place: u8| place.wrapping_mul(31).wrapping_add(seed as u8);
    let secrets = Secrets {
        rss_key: wire::MICROSOFT_KEY,
        isn_key: [byte(1); 16],
        port_key: [byte(2); 16],
        offset: seed as u32,
    };
    Arc::new(Shared::new(config, &secrets, cores))
}
