//! How a service starts, and what it says of itself.

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use super::outcome::passed;
use crate::guest::command::{self, wait_until};
use crate::guest::nic_state::NicState;
use crate::guest::processes::sockets_are_zero_copy;
use crate::guest::rig::{DATAPLANE, has_carrier};
use crate::guest::service::{Config, START_LIMIT, Service};
use crate::guest::suite::Suite;
use crate::protocol::{Mode, Outcome};

/// `tailplane run` announces a service.
pub fn start(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    match suite.service() {
        Ok(service) => passed(service.driver.clone()),
        Err(error) => {
            suite.refuse();
            Err(error)
        }
    }
}

/// A service that is announced can be reached.
pub fn carrier(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    ensure!(suite.service()?.had_carrier, "announced while {DATAPLANE} had no carrier");
    passed("")
}

/// What is announced is what the kernel does, and what the device can.
pub fn mode(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    let expected = suite.task.expected;
    let driver = suite.service()?.driver.clone();
    let announced = mode_of(&driver).with_context(|| format!("no mode is announced: {driver}"))?;
    let link = command::run(&format!("ip -d link show {DATAPLANE}"))?;
    let found = kernels(&sockets_are_zero_copy(), &link)?;
    ensure!(announced == found, "announced {announced}; the kernel has {found}");
    ensure!(found == expected, "expected {expected}, found {found}: {driver}");
    passed(found.to_string())
}

/// A mode that is demanded is got, or the start is refused, with the driver and the reason.
pub fn demanded(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    drop(suite.take_service());
    let mut got = Vec::new();
    for mode in [Mode::ZeroCopy, Mode::Copy, Mode::Generic] {
        let config = Config { mode: Some(mode), ..Config::with_threads(suite.threads()) };
        match Service::start(suite.task, &config) {
            Ok(service) if mode_of(&service.driver) == Some(mode) => {
                got.push(format!("{mode} got"));
            }
            Ok(service) => bail!("demanded {mode}, got {}", service.driver),
            Err(refused) => {
                let said = format!("{refused:#}");
                let is_better = mode == Mode::ZeroCopy || suite.task.expected == Mode::Generic;
                ensure!(is_better && suite.task.expected != mode, "{mode} is refused: {said}");
                if !said.contains(DATAPLANE)
                    || !said.contains(&mode.to_string()) && !said.contains("native")
                {
                    bail!("{mode} is refused without a reason: {said}");
                }
                got.push(format!("{mode} refused"));
            }
        }
    }
    passed(got.join(", "))
}

/// `tailplane doctor --probe` finds the mode that a service gets, and leaves the NIC as it was.
pub fn doctor(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    drop(suite.take_service());
    let before = NicState::look();
    let words = ["tailplane", "doctor", "--json", "--probe", DATAPLANE];
    let report: Value = serde_json::from_str(&command::run_words(&words, START_LIMIT)?)?;
    let checks = report["checks"].as_array().context("no list of checks")?;
    let name = format!("{DATAPLANE}: mode");
    let mode = checks.iter().find(|check| check["name"] == name.as_str());
    let found = mode.and_then(|mode| mode["found"].as_str()).context("no mode was probed")?;
    let probed = mode_of(&format!("af_xdp {found}"));
    // What a configuration demands does not matter here.
    if suite.task.demanded.is_none() && probed != Some(suite.task.expected) {
        bail!("expected {}, found: {found}", suite.task.expected);
    }
    wait_until(START_LIMIT, has_carrier);
    before.expect_unchanged().context("the probe left something")?;
    passed(found)
}

/// The mode that `af_xdp zero-copy, native XDP` names.
pub fn mode_of(driver: &str) -> Option<Mode> {
    let mode = driver.strip_prefix("af_xdp ")?;
    if mode.contains("generic XDP") {
        return Some(Mode::Generic);
    }
    if mode.starts_with("zero-copy") {
        return Some(Mode::ZeroCopy);
    }
    mode.starts_with("copy").then_some(Mode::Copy)
}

/// The mode by what the kernel says of each AF_XDP socket (whether it is zero-copy), and by the interface.
fn kernels(are_zero_copy: &[bool], link: &str) -> anyhow::Result<Mode> {
    ensure!(!are_zero_copy.is_empty(), "no process has an AF_XDP socket");
    if link.contains("xdpgeneric") {
        return Ok(Mode::Generic);
    }
    match (are_zero_copy.contains(&true), are_zero_copy.contains(&false)) {
        (true, true) => bail!("some queues are zero-copy and others are not: {are_zero_copy:?}"),
        (true, false) => Ok(Mode::ZeroCopy),
        (false, _) => Ok(Mode::Copy),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_announced_mode_is_the_first_one_named() {
        assert_eq!(mode_of("af_xdp zero-copy, native XDP, 4 KiB pages"), Some(Mode::ZeroCopy));
        assert_eq!(mode_of("af_xdp copy, native XDP (it refuses zero-copy)"), Some(Mode::Copy));
        assert_eq!(mode_of("af_xdp copy, generic XDP"), Some(Mode::Generic));
        assert_eq!(mode_of("shm"), None);
    }

    #[test]
    fn the_kernels_mode_is_that_of_all_queues() {
        let native = "2: dp0: mtu 1500 xdp qdisc mq";
        assert_eq!(kernels(&[true, true], native).expect("a mode"), Mode::ZeroCopy);
        assert_eq!(kernels(&[false], native).expect("a mode"), Mode::Copy);
        assert_eq!(kernels(&[false], "dp0: xdpgeneric").expect("a mode"), Mode::Generic);
        assert!(kernels(&[true, false], native).is_err());
        assert!(kernels(&[], native).is_err());
    }
}
