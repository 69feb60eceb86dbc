//! That the dataplane takes no address which the kernel has: the XDP program would take its packets from the kernel, and a
//! login by SSH to it would end.

use anyhow::{Context, bail};
use nic::Interface;
use nic::xdp_program::XdpFilter;

/// Checks the addresses of a filter in the calling thread's network namespace. With ports, the filter shares an address
/// with the kernel.
///
/// # Errors
/// The kernel has one of them, on this interface; what to do.
pub(super) fn check_unused(filter: &XdpFilter) -> anyhow::Result<()> {
    if !filter.ports.is_empty() {
        return Ok(());
    }
    for &address in &filter.addresses {
        let holder = Interface::name_with(address).context("cannot list the kernel's addresses")?;
        if let Some(interface) = holder {
            bail!(
                "cannot take {address}: found it on {interface} of this machine's kernel; set network.address to an unused \
                 one (in a cloud: a secondary address that no interface of the kernel has)"
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn an_address_of_the_kernel_is_refused() {
        let taken = check_unused(&XdpFilter::address(Ipv4Addr::LOCALHOST)).expect_err("lo has it");
        let start =
            "cannot take 127.0.0.1: found it on lo of this machine's kernel; set network.address";
        assert!(taken.to_string().starts_with(start), "{taken}");
        for filter in [
            XdpFilter::address(Ipv4Addr::new(192, 0, 2, 1)),
            XdpFilter::ports(Ipv4Addr::LOCALHOST, &[80]),
            XdpFilter::tunnel("::1".parse().expect("an address")),
        ] {
            check_unused(&filter).unwrap_or_else(|error| panic!("{filter:?}: {error}"));
        }
    }
}
