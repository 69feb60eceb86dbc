//! `--probe INTERFACE`: the mode that the device gets, tried on its last queue, and whether its RSS table can be written.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! for check in service::doctor::probe::checks("eth0")? {
//!     println!("{}: {}", check.name, check.found);
//! }
//! # Ok(()) }
//! ```
//!
//! The steps are those of `tailplane run`: [`Attached::to`] attaches the XDP program and binds a socket. No packet is sent to
//! the address of the program's filter, and no socket is registered with the program, so it passes every packet to the
//! kernel. [`EthtoolRss::try_write`] resets a table that is the default, else sets the hash's key that the device has:
//! neither changes anything.

use std::fmt::Display;
use std::net::Ipv4Addr;

use anyhow::Context;
use nic::device::Device;
use nic::driver_rules::copies_passed;
use nic::indirection::IndirectionTable;
use nic::rss::EthtoolRss;
use nic::xdp_program::{AttachMode, XdpFilter};

use super::check::Check;
use super::nics::GOOD_NIC;
use crate::network_config::{ChecksumsName, ModeName};
use crate::port::{Attached, Refusal};

/// Tries an interface of the calling thread's network namespace.
///
/// # Errors
/// It is not there, it is down, another XDP program is attached to it, or its last queue has another socket; what to do.
pub fn checks(interface: &str) -> anyhow::Result<Vec<Check>> {
    tried(interface).with_context(|| format!("cannot probe interface '{interface}'"))
}

fn tried(interface: &str) -> anyhow::Result<Vec<Check>> {
    let spare =
        Device::look(interface).ok().and_then(|device| device.queues).map_or(0, |all| all - 1);
    let filter = XdpFilter::address(Ipv4Addr::UNSPECIFIED);
    let mut attached = Attached::to(interface, &filter, ModeName::Auto, spare)?;
    attached.way = attached.way.with_checksums(ChecksumsName::Auto, &attached.device)?;
    if !attached.way.zero_copy {
        attached.way.try_on(interface, spare)?;
    }
    let checks = [mode(&attached, spare), steering(&attached.device)];
    Ok(checks.map(|check| check.of_group("probe")).into())
}

fn mode(attached: &Attached, queue: u32) -> Check {
    let Attached { device, way, why, .. } = attached;
    let name = &device.interface.name;
    let mut found = format!(
        "{way}, {} KiB chunks, sent checksums {}, tried on queue {queue}; MTU {}",
        way.chunk.get() >> 10,
        if way.tx_checksum_offload { "by the device" } else { "in software" },
        device.interface.mtu
    );
    if let Some(source) = copies_passed(&device.driver).filter(|_| way.zero_copy) {
        found.push_str(&format!("; packets for the kernel are copied ({source})"));
    }
    let check = Check::ok(format!("{name}: mode"), found);
    let Some(Refusal { reason, remedy }) = why else { return check };
    let cost = match way.program {
        // The reason names the packets that are dropped.
        AttachMode::Native if way.zero_copy => "",
        AttachMode::Native => "each packet is copied once by the kernel: ",
        AttachMode::Generic => "the kernel makes a socket buffer per packet before XDP runs: ",
    };
    check.warn(format!("{cost}{reason}"), remedy.as_deref().unwrap_or(GOOD_NIC))
}

fn steering(device: &Device) -> Check {
    let queues = device.queues.unwrap_or(1);
    let name = &device.interface.name;
    let check = |found: String| Check::ok(format!("{name}: steering"), found);
    if queues < 2 {
        return check("one queue, which needs no RSS table".to_owned());
    }
    let opened = EthtoolRss::open(name, u16::try_from(queues).unwrap_or(u16::MAX));
    let written = opened.and_then(|table| Ok((table.try_write()?, table)));
    let forwarded = |why: &dyn Display| format!("packets are forwarded between cores: {why}");
    match written {
        Err(error) => check(format!("{queues} queues, no RSS table that can be written"))
            .warn(forwarded(&error), GOOD_NIC),
        Ok((is_written, table)) => {
            let entries = table.entries().len();
            let write = if is_written { "can be written" } else { "was not written" };
            let found = format!("{queues} queues, RSS table of {entries} that {write}");
            match table.hash() {
                Ok(()) => check(format!("{found}, its key can be read")),
                Err(unknown) => check(found).warn(forwarded(&unknown), GOOD_NIC),
            }
        }
    }
}
