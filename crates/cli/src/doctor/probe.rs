//! `--probe INTERFACE`: the mode that the device gets, tried on its last queue, and whether its RSS table can be written.
//!
//! ```no_run
//! # fn main() -> anyhow::Result<()> {
//! for check in tailplane_cli::doctor::probe::checks("eth0")? {
//!     println!("{}: {}", check.name, check.found);
//! }
//! # Ok(()) }
//! ```
//!
//! The steps are those of `tailplane run`: [`Attached::to`] attaches the XDP program and binds a socket. No packet is sent to
//! the address of the program's filter, and no socket is registered with the program, so it passes every packet to the
//! kernel. The device gets its table back, then loses the program.

use std::net::Ipv4Addr;

use anyhow::Context;
use nic::device::Device;
use nic::driver_rules::copies_passed;
use nic::indirection::IndirectionTable;
use nic::rss::{EthtoolRss, GivesBack, RssError};
use nic::xdp_program::{AttachMode, XdpFilter};

use super::Check;
use super::nics::GOOD_NIC;
use crate::port::{Attached, Refusal};
use crate::service::network_config::ModeName;

const GROUP: &str = "probe";

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
    let attached = Attached::to(interface, &filter, ModeName::Auto, spare)?;
    if !attached.way.zero_copy {
        attached.way.try_on(interface, spare)?;
    }
    Ok(vec![mode(&attached, spare), table(&attached.device)])
}

fn mode(attached: &Attached, queue: u32) -> Check {
    let Attached { device, way, why, .. } = attached;
    let name = &device.interface.name;
    let mut found = format!(
        "{way}, {} KiB chunks, tried on queue {queue}; MTU {}",
        way.chunk.get() >> 10,
        device.interface.mtu
    );
    if let Some(source) = copies_passed(&device.driver).filter(|_| way.zero_copy) {
        found.push_str(&format!("; packets for the kernel are copied ({source})"));
    }
    let check = Check::ok(GROUP, format!("{name}: mode"), found);
    let Some(Refusal { reason, remedy }) = why else { return check };
    let cost = match way.program {
        AttachMode::Native => "each packet is copied once by the kernel",
        AttachMode::Generic => "the kernel makes a socket buffer per packet before XDP runs",
    };
    check.warn(format!("{cost}: {reason}"), remedy.as_deref().unwrap_or(GOOD_NIC))
}

fn table(device: &Device) -> Check {
    let name = &device.interface.name;
    let queues = device.queues.unwrap_or(1);
    let check = |found: String| {
        Check::ok(GROUP, format!("{name}: steering"), format!("{queues} queues, {found}"))
    };
    match written(device, queues) {
        Ok(found) => check(found),
        Err(_) if queues < 2 => check("no RSS table, which one queue does without".to_owned()),
        Err(error) => check("no RSS table that can be written".to_owned())
            .warn(format!("packets are forwarded between cores: {error}"), GOOD_NIC),
    }
}

/// Writes the table that the device has, then gives the device back what it had.
fn written(device: &Device, queues: u32) -> Result<String, RssError> {
    let name = &device.interface.name;
    let mut table = EthtoolRss::open(name, u16::try_from(queues).unwrap_or(u16::MAX))?;
    let entries = table.entries().to_vec();
    let opened = GivesBack::to(name, table.before().clone());
    let _gives_back = opened.map_err(|source| RssError::Os {
        tried: "opening the device",
        interface: name.clone(),
        source,
    })?;
    table.set_table(&entries)?;
    let key = match table.hash() {
        Ok(()) => format!("a key of {} bytes", table.key().len()),
        Err(unknown) => format!("flows are not followed: {unknown}"),
    };
    Ok(format!("RSS table of {} that can be written, {key}", entries.len()))
}
