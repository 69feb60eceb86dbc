//! What a process is allowed, as the kernel tells it: for tests, `status` and `doctor`.

use std::fmt;

use crate::SandboxError;

/// How a process's system calls are judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seccomp {
    /// Not at all.
    Off,
    /// Four calls only.
    Strict,
    /// By filters, so many.
    Filters(u32),
}

/// Identity, capabilities and restrictions of one process (its first thread), from `/proc/<pid>/status`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Process id.
    pub pid: u32,
    /// Its number in each PID namespace that has one for it, the caller's first. Empty where the kernel does not say.
    pub numbers: Vec<u32>,
    /// Its parent's.
    pub parent: u32,
    /// Real, effective, saved and file system user.
    pub users: [u32; 4],
    /// Real, effective, saved and file system group.
    pub groups: [u32; 4],
    /// Supplementary groups.
    pub supplementary: Vec<u32>,
    /// Inheritable capabilities, one bit each.
    pub inheritable: u64,
    /// Permitted capabilities.
    pub permitted: u64,
    /// Effective capabilities.
    pub effective: u64,
    /// Bounding set.
    pub bounding: u64,
    /// Ambient set.
    pub ambient: u64,
    /// Whether `exec` can give it nothing.
    pub no_new_privileges: bool,
    /// How its system calls are judged.
    pub seccomp: Seccomp,
    /// How many threads it has.
    pub threads: u32,
}

impl Standing {
    /// The calling process's.
    ///
    /// # Errors
    /// It cannot be read.
    pub fn of_self() -> Result<Self, SandboxError> {
        Self::read("/proc/self/status")
    }

    /// That of the process with this number.
    ///
    /// # Errors
    /// There is none, or it cannot be read.
    pub fn of(pid: u32) -> Result<Self, SandboxError> {
        Self::read(&format!("/proc/{pid}/status"))
    }

    /// That of the program of a process that [`Confinement::spawn`](crate::Confinement::spawn) answered: the child of
    /// that process where it is the first of a [PID namespace](crate::Confinement::own_processes).
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn of_program(pid: u32) -> Result<Self, SandboxError> {
        let own = Self::of(pid)?;
        if own.numbers.len() < 2 || own.numbers.last() != Some(&1) {
            return Ok(own);
        }
        // The first child: it was there before the program could start another one, and reaped ones leave the list.
        let listed = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
        let first = listed.ok().and_then(|list| list.split_whitespace().next()?.parse().ok());
        first.map_or(Ok(own), Self::of)
    }

    fn read(path: &str) -> Result<Self, SandboxError> {
        let advice = "it must be running, and /proc mounted";
        let failed = |found| SandboxError::refused("read what a process is allowed", found, advice);
        let text = std::fs::read_to_string(path).map_err(failed)?;
        Self::parse(&text)
            .ok_or_else(|| failed(std::io::Error::other(format!("{path} lacks a known field"))))
    }

    /// `proc(5)`, `/proc/pid/status`: a field a line, its name before a colon.
    fn parse(text: &str) -> Option<Self> {
        let field = |name: &str| {
            text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':')).map(str::trim)
        };
        let number = |name| field(name)?.parse::<u32>().ok();
        let set = |name| u64::from_str_radix(field(name)?, 16).ok();
        let four = |name| {
            let mut ids = field(name)?.split_whitespace().map_while(|id| id.parse().ok());
            Some([ids.next()?, ids.next()?, ids.next()?, ids.next()?])
        };
        let seccomp = match number("Seccomp")? {
            0 => Seccomp::Off,
            1 => Seccomp::Strict,
            // The count is younger than the mode (Linux 5.9).
            _ => Seccomp::Filters(number("Seccomp_filters").unwrap_or(1)),
        };
        Some(Self {
            pid: number("Pid")?,
            numbers: field("NSpid")
                .map(|all| all.split_whitespace().map_while(|one| one.parse().ok()).collect())
                .unwrap_or_default(),
            parent: number("PPid")?,
            users: four("Uid")?,
            groups: four("Gid")?,
            supplementary: field("Groups")?
                .split_whitespace()
                .map(|id| id.parse().ok())
                .collect::<Option<_>>()?,
            inheritable: set("CapInh")?,
            permitted: set("CapPrm")?,
            effective: set("CapEff")?,
            bounding: set("CapBnd")?,
            ambient: set("CapAmb")?,
            no_new_privileges: number("NoNewPrivs")? == 1,
            seccomp,
            threads: number("Threads")?,
        })
    }

    /// Whether it has no capability and can get none.
    pub fn is_powerless(&self) -> bool {
        let held = self.inheritable | self.permitted | self.effective | self.ambient;
        held == 0 && (self.no_new_privileges || self.bounding == 0)
    }
}

impl fmt::Display for Standing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pid {}, user {}, group {}", self.pid, self.users[1], self.groups[1])?;
        match self.effective {
            0 => write!(f, ", no capabilities")?,
            held => write!(f, ", capabilities {held:#x}")?,
        }
        if self.no_new_privileges {
            write!(f, ", no new privileges")?;
        }
        match self.seccomp {
            Seccomp::Off => write!(f, ", every system call"),
            Seccomp::Strict => write!(f, ", strict seccomp"),
            Seccomp::Filters(count) => write!(f, ", system calls filtered ({count})"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[cfg_attr(miri, ignore = "calls getppid")]
    fn of_self_agrees_with_the_system() {
        let standing = Standing::of_self().unwrap();
        assert_eq!(standing.pid, std::process::id());
        assert_eq!(standing.parent, std::os::unix::process::parent_id());
        assert_eq!(standing.users[1], rustix::process::geteuid().as_raw());
        assert_eq!(Standing::of(standing.pid).unwrap().groups, standing.groups);
        let found = Standing::of(u32::MAX).expect_err("no such process").to_string();
        assert!(found.contains("must be running"), "{found}");
    }

    #[test]
    fn what_is_no_status_is_no_standing() {
        assert_eq!(Standing::parse(""), None);
        let text = std::fs::read_to_string("/proc/self/status").unwrap();
        assert!(Standing::parse(&text).is_some());
        assert_eq!(Standing::parse(&text.replace("CapBnd", "Cap")), None);
        assert_eq!(Standing::parse(&text.replace("Uid:\t", "Uid:\tx")), None);
    }
}
