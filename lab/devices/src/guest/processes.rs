//! Processes of the guest, and their AF_XDP sockets.

use std::fs;

use rustix::net::sockopt::xdp_options;
use rustix::net::xdp::XdpOptionsFlags;
use rustix::process::{Pid, PidfdFlags, PidfdGetfdFlags, pidfd_getfd, pidfd_open};

/// The numbers of all processes.
fn all() -> impl Iterator<Item = String> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    names.filter(|name| name.starts_with(|c: char| c.is_ascii_digit()))
}

/// The numbers of processes with this name.
pub fn named(name: &str) -> Vec<String> {
    let is_it = |pid: &String| {
        fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|found| found.trim() == name)
    };
    all().filter(is_it).collect()
}

/// For each AF_XDP socket of each process: whether the kernel says that it is zero-copy. Asked of the socket itself:
/// the list that `ss` shows is a module that not all kernels have.
pub fn sockets_are_zero_copy() -> Vec<bool> {
    all().flat_map(|pid| of_process(&pid)).collect()
}

fn of_process(pid: &str) -> Vec<bool> {
    let number = pid.parse().ok().and_then(Pid::from_raw);
    let Some(process) = number.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok()) else {
        return Vec::new();
    };
    let files = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    let numbers = files.filter_map(|file| file.file_name().to_string_lossy().parse().ok());
    let is_zero_copy = |descriptor| {
        let socket = pidfd_getfd(&process, descriptor, PidfdGetfdFlags::empty()).ok()?;
        // Refused where it is no AF_XDP socket.
        let options = xdp_options(&socket).ok()?;
        Some(options.contains(XdpOptionsFlags::XDP_OPTIONS_ZEROCOPY))
    };
    numbers.filter_map(is_zero_copy).collect()
}
