//! AF_XDP and BPF: whether packets can be taken from a driver without the kernel's stack.

use std::io;

use rustix::net::{AddressFamily, SocketFlags, SocketType, socket_with};

use super::check::Check;
use super::root::Root;

/// Tries to make an AF_XDP socket.
///
/// # Errors
/// What the kernel said.
pub fn probe() -> io::Result<()> {
    socket_with(AddressFamily::XDP, SocketType::RAW, SocketFlags::CLOEXEC, None)?;
    Ok(())
}

/// The checks, given what [`probe`] found.
pub fn checks(root: &Root, socket: io::Result<()>) -> Vec<Check> {
    let has_types = root.exists("sys/kernel/btf/vmlinux");
    let types = Check::of("BTF of the kernel").either(has_types, "present", "absent").or_warn(
        "bpftool and tracing programs cannot show the kernel's types; the dataplane does without",
        "boot a kernel with CONFIG_DEBUG_INFO_BTF",
    );
    vec![af_xdp(socket), jit(root), bpffs(root), types]
}

fn af_xdp(socket: io::Result<()>) -> Check {
    let name = "AF_XDP socket";
    let Err(error) = socket else { return Check::ok(name, "can be made") };
    let remedy = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES) => {
            "run as root (CAP_NET_RAW), in a container with that capability"
        }
        _ => "boot a kernel with CONFIG_XDP_SOCKETS",
    };
    Check::ok(name, format!("refused: {error}")).missing(
        "no NIC and no lab can be used: only the shared-memory and loopback drivers, and \
         simulation",
        remedy,
    )
}

fn jit(root: &Root) -> Check {
    let (found, works) = match root.number("proc/sys/net/core/bpf_jit_enable") {
        Some(0) => ("off", false),
        Some(_) => ("on", true),
        // With CONFIG_BPF_JIT_ALWAYS_ON the setting exists and is 1; unreadable means unknown.
        None => ("unknown (the setting is unreadable)", true),
    };
    Check::ok("BPF compiler", found).fine_if(works).or_warn(
        "the XDP program is interpreted, for every packet",
        "sysctl -w net.core.bpf_jit_enable=1",
    )
}

fn bpffs(root: &Root) -> Check {
    let mounts = root.read("proc/mounts").unwrap_or_default();
    let mounted = mounts.lines().find_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let at = fields.next()?;
        (fields.next()? == "bpf").then(|| format!("mounted at {at}"))
    });
    let found = mounted.as_deref().unwrap_or("not mounted");
    Check::ok("bpffs", found).fine_if(mounted.is_some()).or_warn(
        "BPF objects cannot be pinned: the XDP program lives as long as the process that \
         attached it",
        "mount -t bpf bpf /sys/fs/bpf",
    )
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::super::fake_tests::FakeRoot;
    use super::*;

    #[test]
    fn a_refused_socket_is_told_from_an_absent_family() {
        let of = |errno| af_xdp(Err(io::Error::from_raw_os_error(errno)));
        assert!(of(libc::EPERM).remedy.contains("root"));
        assert!(of(libc::EAFNOSUPPORT).remedy.contains("CONFIG_XDP_SOCKETS"));
        assert_eq!(of(libc::EPERM).status, Status::Missing);
        assert_eq!(af_xdp(Ok(())).status, Status::Ok);
    }

    #[test]
    fn bpffs_is_recognised_by_type_not_by_name() {
        let with = |line| bpffs(&FakeRoot::with(&[("proc/mounts", line)]).root()).status;
        assert_eq!(with("none /sys/fs/bpf bpf rw 0 0"), Status::Ok);
        assert_eq!(with("bpf /sys/fs/bpf tmpfs rw 0 0"), Status::Warn);
    }

    #[test]
    fn an_interpreted_program_is_a_warning() {
        let with =
            |text| jit(&FakeRoot::with(&[("proc/sys/net/core/bpf_jit_enable", text)]).root());
        assert_eq!(with("0").status, Status::Warn);
        assert_eq!(with("1").status, Status::Ok);
    }
}
