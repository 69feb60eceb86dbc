//! How a service starts, and what it says of itself.

use anyhow::{Context, bail};

use super::passed;
use crate::guest::command;
use crate::guest::rig::DATAPLANE;
use crate::guest::suite::Suite;
use crate::protocol::{Mode, Outcome};

/// `tailplane run` announces a service.
pub fn start(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    match suite.service() {
        Ok(service) => passed(service.driver.clone()),
        Err(error) => {
            let reason = format!("{error:#}");
            suite.refuse(reason.clone());
            bail!(reason)
        }
    }
}

/// A service that is announced can be reached.
pub fn carrier(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    if !suite.service()?.had_carrier {
        bail!("announced while {DATAPLANE} had no carrier");
    }
    passed("")
}

/// What is announced is what the kernel does, and what the device can.
pub fn mode(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    let expected = suite.task.expected;
    let driver = suite.service()?.driver.clone();
    let announced =
        announced(&driver).with_context(|| format!("no mode is announced: {driver}"))?;
    let sockets = command::run("ss --xdp -e -m")?;
    let link = command::run(&format!("ip -d link show {DATAPLANE}"))?;
    let found = kernels(&sockets, &link)?;
    if announced != found {
        bail!("announced {announced}; the kernel has {found}");
    }
    if found != expected {
        bail!("expected {expected}, found {found}: {driver}");
    }
    passed(found.to_string())
}

/// The mode that `af_xdp zero-copy, native XDP` names.
fn announced(driver: &str) -> Option<Mode> {
    let mode = driver.strip_prefix("af_xdp ")?;
    if mode.contains("generic XDP") {
        return Some(Mode::Generic);
    }
    if mode.starts_with("zero-copy") {
        return Some(Mode::ZeroCopy);
    }
    mode.starts_with("copy").then_some(Mode::Copy)
}

/// The mode by the kernel's list of sockets, and by the interface.
fn kernels(sockets: &str, link: &str) -> anyhow::Result<Mode> {
    if link.contains("xdpgeneric") {
        return Ok(Mode::Generic);
    }
    if !sockets.contains("zc:") {
        bail!("the kernel lists no packet memory: {}", command::one_line(sockets));
    }
    let is_zero_copy = sockets.contains("zc:1");
    if is_zero_copy && sockets.contains("zc:0") {
        bail!("some queues are zero-copy and others are not: {}", command::one_line(sockets));
    }
    Ok(if is_zero_copy { Mode::ZeroCopy } else { Mode::Copy })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announced_mode_is_the_first_one_named() {
        assert_eq!(announced("af_xdp zero-copy, native XDP, 4 KiB pages"), Some(Mode::ZeroCopy));
        assert_eq!(announced("af_xdp copy, native XDP (it refuses zero-copy)"), Some(Mode::Copy));
        assert_eq!(announced("af_xdp copy, generic XDP"), Some(Mode::Generic));
        assert_eq!(announced("shm"), None);
    }

    #[test]
    fn the_kernels_mode_is_that_of_all_queues() {
        let native = "2: dp0: mtu 1500 xdp qdisc mq";
        assert_eq!(kernels("umem(qid:0,zc:1)", native).expect("a mode"), Mode::ZeroCopy);
        assert_eq!(kernels("umem(qid:0,zc:0)", native).expect("a mode"), Mode::Copy);
        assert_eq!(kernels("", "dp0: mtu 1500 xdpgeneric").expect("a mode"), Mode::Generic);
        assert!(kernels("umem(zc:0) umem(zc:1)", native).is_err());
        assert!(kernels("", native).is_err());
    }
}
