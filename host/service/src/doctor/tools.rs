//! Programs that the demo, the tests and people use.

use std::env;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use super::check::Check;

/// A program: its name, the Debian package that has it, and what is not possible without it.
const TOOLS: [(&str, &str, &str); 8] = [
    ("ip", "iproute2", "no lab can be made"),
    ("memcached", "memcached", "`tailplane demo` has nothing to compare with"),
    (
        "tcpdump",
        "tcpdump",
        "no look at what the kernel sees (captures of the dataplane do without)",
    ),
    ("ethtool", "ethtool", "no RSS tables and offloads by hand (tailplane itself does without)"),
    ("ping", "iputils-ping", "the conformance tests of ICMP are skipped"),
    ("clang", "clang", "the XDP program cannot be rebuilt (the committed object serves)"),
    ("bpftool", "bpftool", "no look into loaded BPF programs and maps"),
    ("valgrind", "valgrind", "instruction counts per packet cannot be taken"),
];

/// Where administrators' programs are, whether or not the caller's PATH has it.
const ADMINISTRATOR: [&str; 2] = ["/usr/sbin", "/sbin"];

/// The directories that are searched for programs.
pub fn search_path() -> Vec<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    env::split_paths(&path).chain(ADMINISTRATOR.map(PathBuf::from)).collect()
}

/// The checks, in these directories.
pub fn checks(directories: &[PathBuf]) -> Vec<Check> {
    let found = |name: &str| directories.iter().map(|at| at.join(name)).find(|at| is_program(at));
    let check = |&(name, package, cost): &(&str, &str, &str)| {
        let path = found(name).map(|path| path.display().to_string());
        Check::ok(name, path.as_deref().unwrap_or("not found"))
            .fine_if(path.is_some())
            .or_missing(cost, format!("apt-get install {package}"))
    };
    TOOLS.iter().map(check).collect()
}

fn is_program(path: &Path) -> bool {
    path.metadata()
        .is_ok_and(|metadata| metadata.is_file() && metadata.permissions().mode() & 0o111 != 0)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::check::Status;
    use super::super::fake_tests::FakeRoot;
    use super::*;

    #[test]
    fn only_what_can_be_run_is_found() {
        let fake = FakeRoot::with(&[("bin/ip", ""), ("bin/tcpdump", "")]);
        let directory = fake.path().join("bin");
        fs::set_permissions(directory.join("ip"), fs::Permissions::from_mode(0o755)).unwrap();
        fs::set_permissions(directory.join("tcpdump"), fs::Permissions::from_mode(0o644)).unwrap();
        let checks = checks(&[directory]);
        let of = |name: &str| checks.iter().find(|check| check.name == name).unwrap();
        assert_eq!(of("ip").status, Status::Ok);
        assert_eq!(of("tcpdump").status, Status::Missing);
        assert!(of("memcached").remedy.contains("apt-get install memcached"));
    }
}
