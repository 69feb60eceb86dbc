//! The network namespace of a machine with tap devices: a bridge between two of them.
//!
//! The namespace has no name, so that it ends with the last process inside, which is QEMU, however that ends:
//!
//! ```text
//! unshare --net tailplane-devices in-taps qemu-system-x86_64 ...
//! ```

use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::{Context, bail};

use super::arguments::TAPS;

/// The command's name; not shown to users.
pub const COMMAND: &str = "in-taps";
/// The largest MTU that a check sets in the guest.
const MTU: &str = "9000";
/// The bridge. It forwards from the first moment, and everything.
const BRIDGE: &str = "bridge0";

/// Makes bridge and tap devices in the namespace of this process, and becomes `program`.
///
/// # Errors
/// A device cannot be made, or the program cannot be started.
pub fn become_program(program: &[OsString]) -> anyhow::Result<()> {
    let bridge = ["type", "bridge", "forward_delay", "0", "mcast_snooping", "0"];
    ip(&[&["link", "add", BRIDGE][..], &bridge].concat())?;
    ip(&["link", "set", BRIDGE, "up"])?;
    for tap in TAPS {
        ip(&["tuntap", "add", tap, "mode", "tap", "multi_queue"])?;
        ip(&["link", "set", tap, "mtu", MTU, "master", BRIDGE, "up"])?;
    }
    let (program, arguments) = program.split_first().context("no program is named")?;
    let error = Command::new(program).args(arguments).exec();
    Err(error).with_context(|| format!("cannot start {}", program.to_string_lossy()))
}

fn ip(arguments: &[&str]) -> anyhow::Result<()> {
    let output = Command::new("ip").args(arguments).output().context("cannot start ip")?;
    if !output.status.success() {
        let found = String::from_utf8_lossy(&output.stderr);
        bail!(
            "ip {}: {}; tap devices need root and /dev/net/tun",
            arguments.join(" "),
            found.trim()
        );
    }
    Ok(())
}
