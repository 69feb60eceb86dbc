//! Which protection this machine gives between starter, dataplane and application, and why not more.

use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use memfile::{Memory, peer_pidfd, refuse_descriptors};
use rustix::process::{PidfdFlags, getpid, pidfd_open};
use sandbox::{Confinement, Files, GroupLimits, Groups};

use super::check::Check;
use super::privilege::{SYS_ADMIN_BIT, SYS_NICE_BIT, effective, has};
use super::root::Root;
use crate::application::Program;
use crate::identity::{APPLICATION_USER, DATAPLANE_USER, PLANE_USER};
use crate::split::bounds;

/// How long a process may take that only says its version.
const ENDS_WITHIN: Duration = Duration::from_secs(2);
const SETGID_BIT: u32 = 6;
const SETUID_BIT: u32 = 7;

/// What only system calls can tell.
#[derive(Clone, Copy, Debug)]
pub struct Probed {
    /// Memory that its maker alone can write to can be made, and nobody else maps it for writing.
    pub seals: bool,
    /// The end of a process can be waited for without a race over its number.
    pub pidfd: bool,
    /// The version of Landlock that the kernel enforces; 0: none.
    pub landlock: u32,
    /// Processors that this process may use.
    pub processors: usize,
    /// A control group with every limit was made and removed, and a PID namespace with a process in it.
    pub group: bool,
    /// See `group`.
    pub pid_namespace: bool,
    /// The kernel keeps descriptors from a socket that takes none (`SO_PASSRIGHTS`).
    pub passrights: bool,
    /// The kernel says by pidfd which process is at the other end of a socket (`SO_PEERPIDFD`).
    pub peer_pidfd: bool,
}

/// Makes a control group as a service does, and removes it.
fn can_make_group() -> bool {
    let limits = GroupLimits {
        memory_bytes: Some(1 << 30),
        processes: Some(64),
        processors: Some(1),
        cpuset: bounds::allowed().ok(),
    };
    Groups::make("doctor", &limits).missing().is_empty()
}

/// Starts this program as the first process of a PID namespace, which says its version and ends.
fn can_make_pid_namespace() -> bool {
    let Ok(own) = std::env::current_exe() else { return false };
    let mut command = Command::new(own);
    command.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    let started = Confinement::new().own_processes().spawn(command, &[]);
    started.is_ok_and(|child| Program::from(child).end(Instant::now() + ENDS_WITHIN).is_ok())
}

/// Tries what has to be tried.
pub fn probe() -> Probed {
    let sealed = Memory::create_for_readers("tailplane-doctor", 4096).ok();
    let file = || sealed.as_ref()?.descriptor().ok();
    let is_read = file().is_some_and(|file| Memory::join_read_only(file, 4096).is_ok());
    let is_written = file().is_some_and(|file| Memory::join(file, 4096).is_ok());
    let pair = UnixStream::pair().ok();
    Probed {
        seals: is_read && !is_written,
        pidfd: pidfd_open(getpid(), PidfdFlags::empty()).is_ok(),
        landlock: Files::version(),
        processors: std::thread::available_parallelism().map_or(1, usize::from),
        group: can_make_group(),
        pid_namespace: can_make_pid_namespace(),
        passrights: pair.as_ref().is_some_and(|(near, _)| refuse_descriptors(near).is_ok()),
        peer_pidfd: pair.as_ref().is_some_and(|(near, _)| peer_pidfd(near).is_ok()),
    }
}

/// The checks.
pub fn checks(root: &Root, probed: Probed) -> Vec<Check> {
    let effective = effective(root);
    let can_identify = has(effective, SETUID_BIT) && has(effective, SETGID_BIT);
    let can_end_all = root.exists("proc/self/ns/pid") && probed.pid_namespace;
    vec![
        Check::of("memory that only the dataplane writes")
            .either(probed.seals, "sealed memory files (F_SEAL_FUTURE_WRITE)", "cannot be made")
            .or_missing(
                "no `process` domain: an application could write into received packets and events",
                "use Linux 5.1 or later, with memfd_create allowed",
            ),
        Check::of("users of their own for dataplane and application")
            .either(
                can_identify,
                "can be given (CAP_SETUID, CAP_SETGID)",
                "cannot be given from here",
            )
            .or_missing(
                "dataplane and application run as the user that starts them: each may trace and end the others",
                "start them as root, or through tailplaned",
            ),
        names(root),
        emptiness(root, effective),
        filter(root),
        files(probed.landlock),
        Check::of("an application's processes end as a whole")
            .either(
                can_end_all,
                "PID namespaces can be made (one was)",
                "no PID namespace can be made from here",
            )
            .or_missing(
                "what an application starts may outlive it, or its starter where that is killed",
                "start it as root, on a kernel with CONFIG_PID_NS",
            ),
        limits(root, probed),
        Check::of("hearing of each other's end")
            .either(probed.pidfd, "by pidfd", "no pidfd")
            .or_missing(
                "a process that ends could be taken for a younger one with its number",
                "use Linux 5.3 or later, with pidfd_open allowed",
            ),
        descriptors(probed.passrights),
        peers(probed.peer_pidfd),
        split(probed.processors),
        same_core(root, effective),
    ]
}

fn names(root: &Root) -> Check {
    let passwd = root.read("etc/passwd").unwrap_or_default();
    let default = [DATAPLANE_USER, APPLICATION_USER, PLANE_USER];
    let absent = default.iter().filter(|user| user.named(&passwd).is_none());
    let absent: Vec<String> = absent.map(|user| format!("no user '{}'", user.name)).collect();
    let names = default.map(|user| user.name).join(", ");
    Check::of("users that belong to dataplane, application and sdp plane alone")
        .either(absent.is_empty(), &names, &absent.join(", "))
        .or_warn(
            format!(
                "numbers from {} to {} stand in: a process of another program that runs as one of them may signal and \
                 trace that process",
                DATAPLANE_USER.number, PLANE_USER.number
            ),
            "copy dist/sysusers.d/tailplane.conf to /usr/lib/sysusers.d and run `systemd-sysusers`",
        )
}

fn emptiness(root: &Root, effective: u64) -> Check {
    let namespaces = root.exists("proc/self/ns/net") && root.exists("proc/self/ns/mnt");
    let may = has(effective, SYS_ADMIN_BIT);
    let lack = if namespaces { "CAP_SYS_ADMIN is not held" } else { "no such namespaces" };
    Check::of("a root and a network without anything in them")
        .either(namespaces && may, "namespaces can be made (CAP_SYS_ADMIN)", lack)
        .or_missing(
            "a dataplane that is broken into sees the machine's files and networks, as far as its user may",
            "start it as root, on a kernel with CONFIG_NET_NS",
        )
}

fn filter(root: &Root) -> Check {
    let actions = root.read("proc/sys/kernel/seccomp/actions_avail").unwrap_or_default();
    let known = |action: &str| actions.split_whitespace().any(|one| one == action);
    Check::of("lists of system calls")
        .either(known("kill_process") && known("errno"), "seccomp filters", "no seccomp filters")
        .or_missing(
            "all of the kernel's interface is open to a dataplane or an application that is broken into",
            "boot a kernel with CONFIG_SECCOMP_FILTER",
        )
}

fn files(landlock: u32) -> Check {
    Check::of("files that an application may not write")
        .either(landlock > 0, &format!("Landlock, version {landlock}"), "no Landlock")
        .or_warn(
            "an application of one's own may write all files that its user may",
            "boot a kernel with CONFIG_SECURITY_LANDLOCK, and `landlock` in its list of security modules (lsm=)",
        )
}

fn limits(root: &Root, probed: Probed) -> Check {
    let controllers = ["memory", "pids", "cpu", "cpuset"];
    let version = |controller: &&str| Groups::version(&root.path("sys/fs/cgroup"), controller).ok();
    let absent = controllers.into_iter().filter(|controller| version(controller).is_none());
    let absent = absent.collect::<Vec<_>>().join(", ");
    let check = Check::of("limits of memory, processes and processors");
    if !absent.is_empty() {
        let found = format!("no control groups with {absent}");
        return Check { found, ..check }.missing(
            "dataplane and application may use up what is not limited so",
            "mount control groups: `mount -t cgroup2 none /sys/fs/cgroup`",
        );
    }
    let version = controllers.iter().filter_map(version).min().unwrap_or(0);
    let found = format!("control groups, version {version}");
    check.either(probed.group, &found, "no control groups can be made from here").or_missing(
        "dataplane and application may use up all of the machine's memory and processes",
        "start them as root, where /sys/fs/cgroup may be written to",
    )
}

fn descriptors(passrights: bool) -> Check {
    Check::of("descriptors that nobody asked for stay away")
        .either(passrights, "the kernel refuses them (SO_PASSRIGHTS)", "no SO_PASSRIGHTS")
        .or_warn(
            "a thread of its own closes what tenants of an sdp plane send: they may hold up those who join",
            "use Linux 6.16 or later",
        )
}

fn peers(peer_pidfd: bool) -> Check {
    Check::of("which process serves a control socket")
        .either(peer_pidfd, "by pidfd (SO_PEERPIDFD)", "no SO_PEERPIDFD")
        .or_warn(
            "tailplaned asks a service twice who it is, as a number may be another process's by now",
            "use Linux 6.5 or later",
        )
}

fn split(processors: usize) -> Check {
    let found = format!("{processors} processors for both sides' threads");
    Check::of("placement split").either(processors > 1, &found, "one processor").or_missing(
        "dataplane and application have to share it: `dataplane.placement = \"same-core\"`",
        "allow two processors or more",
    )
}

fn same_core(root: &Root, effective: u64) -> Check {
    let check = |found: &str| Check::ok("placement same-core", found);
    let cost =
        "an application keeps the core until the kernel's scheduler takes it away: milliseconds";
    if !has(effective, SYS_NICE_BIT) {
        return check("no real-time priorities (CAP_SYS_NICE is not held)")
            .warn(cost, "start it as root, or raise the limit (ulimit -r)");
    }
    if root.number("proc/sys/kernel/sched_rt_runtime_us") == Some(0) {
        return check("real-time priorities may take no time (sched_rt_runtime_us is 0)")
            .warn(cost, "write 950000 to /proc/sys/kernel/sched_rt_runtime_us");
    }
    check("the dataplane's threads run before the application's (real-time priorities)")
}

#[cfg(test)]
mod tests {
    use super::super::check::Status;
    use super::super::fake_tests::FakeRoot;
    use super::*;

    const ALL: Probed = Probed {
        seals: true,
        pidfd: true,
        landlock: 6,
        processors: 2,
        group: true,
        pid_namespace: true,
        passrights: true,
        peer_pidfd: true,
    };
    const NOTHING: Probed = Probed {
        seals: false,
        pidfd: false,
        landlock: 0,
        processors: 1,
        group: false,
        pid_namespace: false,
        passrights: false,
        peer_pidfd: false,
    };

    const NAMED: &str = "tailplane-dataplane:x:990:990::/:\ntailplane-app:x:991:991::/:\n\
         tailplane-sdp:x:992:992::/:\n";

    fn found(capabilities: &str, actions: &str, passwd: &str, probed: Probed) -> Vec<Status> {
        let status = format!("Name:\tx\nCapEff:\t{capabilities}\n");
        let files = [
            ("proc/self/status", status.as_str()),
            ("proc/self/ns/net", ""),
            ("proc/self/ns/mnt", ""),
            ("proc/self/ns/pid", ""),
            ("proc/sys/kernel/seccomp/actions_avail", actions),
            ("sys/fs/cgroup/cgroup.controllers", "cpu cpuset memory pids\n"),
            ("proc/sys/kernel/sched_rt_runtime_us", "950000\n"),
            ("etc/passwd", passwd),
        ];
        let checks = checks(&FakeRoot::with(&files).root(), probed);
        checks.into_iter().map(|check| check.status).collect()
    }

    #[test]
    fn root_on_a_whole_machine_has_all_of_it() {
        let all = found("000001ffffffffff", "kill_process kill_thread errno allow\n", NAMED, ALL);
        assert_eq!(all, [Status::Ok; 13]);
    }

    #[test]
    fn what_is_missing_is_missing() {
        use Status::{Missing, Ok, Warn};
        let may_not = Probed { group: false, pid_namespace: false, ..ALL };
        let user = found("0", "kill_process errno", "root:x:0:0::/:\n", may_not);
        assert_eq!(
            user,
            [Ok, Missing, Warn, Missing, Ok, Ok, Missing, Missing, Ok, Ok, Ok, Ok, Warn]
        );
        let old = found("000001ffffffffff", "", NAMED, NOTHING);
        assert_eq!(
            old,
            [
                Missing, Ok, Ok, Ok, Missing, Warn, Missing, Missing, Missing, Warn, Warn, Missing,
                Ok
            ]
        );
    }

    #[test]
    fn a_controller_that_is_not_mounted_is_missing() {
        let with = |controllers: &'static str| {
            let status = "CapEff:\t000001ffffffffff\n";
            let files =
                [("proc/self/status", status), ("sys/fs/cgroup/cgroup.controllers", controllers)];
            let root = FakeRoot::with(&files);
            let check = limits(&root.root(), ALL);
            (check.status, check.found)
        };
        let (status, found) = with("cpuset cpu io memory pids\n");
        assert_eq!((status, &*found), (Status::Ok, "control groups, version 2"));
        let (status, found) = with("cpuset cpu io\n");
        assert_eq!((status, &*found), (Status::Missing, "no control groups with memory, pids"));
    }

    #[test]
    fn this_machine_is_tried() {
        let probed = probe();
        assert!(probed.seals && probed.pidfd && probed.processors > 0, "{probed:?}");
        // What was made to find out is gone.
        let left = ["memory", "pids", "cpu", "cpuset", "unified", ""].map(|hierarchy| {
            let parent = std::path::Path::new("/sys/fs/cgroup").join(hierarchy).join("tailplane");
            let own = format!("doctor.{}.", std::process::id());
            let entries = std::fs::read_dir(parent).into_iter().flatten().flatten();
            entries.filter(|entry| entry.file_name().to_string_lossy().starts_with(&own)).count()
        });
        assert_eq!(left, [0; 6]);
    }
}
