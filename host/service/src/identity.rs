//! Who dataplane and application are, and what is taken from them: `[dataplane] user`, `group`; `[application]`.
//!
//! ```toml
//! [dataplane]
//! domain = "process"
//! user = 990        # by default that of `tailplane-dataplane`; or "inherit": the starter's user, without capabilities
//! [application]
//! user = 991        # by default that of `tailplane-app`; or "inherit": the starter's user, confined by the rest
//! ```
//!
//! Three boxes, three users, so that none can signal or trace another. [`Boxed::taken`] lists what each box has lost,
//! [`Boxed::missing`] each protection that it lacks, with the reason. The start announces both: nothing is weaker than it
//! says.

use std::path::Path;

use anyhow::{Context, bail};
use sandbox::{Confinement, Files, GroupLimits, Groups, Limits, Root, SyscallPolicy};

use super::config::{ApplicationConfig, DataplaneConfig, RunConfig};
use super::config_values::UserName;

/// The user of a box for which the configuration names none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DefaultUser {
    /// Its name, as `dist/sysusers.d/tailplane.conf` has it made.
    pub name: &'static str,
    /// The number that stands in where there is no such name: of user and group.
    ///
    /// Above what 16 bits hold, where systemd (DynamicUser= takes 61184 to 65519), Debian and `useradd` give out
    /// numbers, and below 100000, from which on users have ranges of their own for containers (`/etc/subuid`).
    pub number: u32,
}

/// The dataplane's.
pub const DATAPLANE_USER: DefaultUser = DefaultUser { name: "tailplane-dataplane", number: 78_801 };
/// The application's.
pub const APPLICATION_USER: DefaultUser = DefaultUser { name: "tailplane-app", number: 78_802 };
/// That of a plane of `tailplane sdp serve`.
pub const PLANE_USER: DefaultUser = DefaultUser { name: "tailplane-sdp", number: 78_803 };
/// Where names of users are. Nothing else is asked: the starter is root, and who its boxes are is no matter of the
/// network's.
const PASSWD: &str = "/etc/passwd";

impl DefaultUser {
    /// User and group of this name in a file like `/etc/passwd`, where both are numbers and not root's.
    pub fn named(&self, passwd: &str) -> Option<(u32, u32)> {
        let ids = |line: &str| {
            // NAME:PASSWORD:UID:GID:...
            let mut fields = line.split(':');
            let is_named = fields.next() == Some(self.name);
            let mut id = || fields.next().and_then(|field| field.parse::<u32>().ok());
            let (_, user, group) = (id(), id()?, id()?);
            let is_id = |id: u32| id > 0 && id < u32::MAX;
            (is_named && is_id(user) && is_id(group)).then_some((user, group))
        };
        passwd.lines().find_map(ids)
    }

    /// User and group; where the number stands in, `missing` says so.
    pub fn ids(&self, passwd: &str, missing: &mut Vec<String>) -> (u32, u32) {
        let Self { name, number } = *self;
        self.named(passwd).unwrap_or_else(|| {
            missing.push(format!(
                "no user '{name}' in {PASSWD}: user {number} stands in, which others may use too (install \
                 dist/sysusers.d/tailplane.conf, or name a user)"
            ));
            (number, number)
        })
    }
}

/// Descriptors of a dataplane beside those of its elastic threads, and of each thread: socket, event, arrays, arena,
/// and what is duplicated on the way.
const OPEN_FILES: u64 = 64;
const OPEN_FILES_OF_THREAD: u64 = 10;
/// How long a thread of a dataplane may run at a real-time priority without a sleep, in microseconds, before the kernel
/// ends the dataplane. Elastic threads sleep for a moment each second.
const REALTIME_US: u64 = 5_000_000;
/// Threads of all dataplanes of one user. It bounds what one that was broken into makes of the scheduler.
const THREADS_MAX: u64 = 1024;

/// Where control groups are mounted.
const GROUPS: &str = "/sys/fs/cgroup";

/// What an application has that one with every protection has not, each with the reason.
type Lacks = Vec<(&'static str, &'static str)>;

/// A line for each reason.
fn by_reason(lacks: Lacks) -> impl Iterator<Item = String> {
    let mut reasons: Vec<(&str, Vec<&str>)> = Vec::new();
    for (has, reason) in lacks {
        match reasons.iter_mut().find(|(known, _)| *known == reason) {
            Some((_, all)) => all.push(has),
            None => reasons.push((reason, vec![has])),
        }
    }
    let line =
        |(reason, all): (&str, Vec<_>)| format!("the application has {}: {reason}", all.join(", "));
    reasons.into_iter().map(line)
}

/// What is taken from a process, and what could not be.
#[derive(Debug)]
pub struct Boxed {
    /// All but its control groups.
    pub confinement: Confinement,
    /// The user that it gets; none: the starter's.
    pub user: Option<u32>,
    /// What it is kept from beside what its [`Standing`](sandbox::Standing) shows, a phrase each.
    pub taken: Vec<String>,
    /// What protection is missing and why, a line each.
    pub missing: Vec<String>,
    /// What its processes may use together.
    pub limits: GroupLimits,
}

impl Boxed {
    /// A box of this name, which nothing but the file of `program` is left to where root starts it (else none is given),
    /// of this user and group, if it gets some.
    ///
    /// # Errors
    /// The program cannot be read.
    pub fn alone(
        name: &str,
        mut confinement: Confinement,
        user: Option<(u32, u32)>,
        program: Option<&Path>,
        mut missing: Vec<String>,
        limits: GroupLimits,
    ) -> anyhow::Result<Self> {
        if let Some((user, group)) = user {
            confinement = confinement.identity(user, group);
        }
        let mut taken = Vec::new();
        match program {
            Some(program) => {
                confinement = confinement.alone_with(program)?;
                taken.extend([NO_NETWORK, NO_FILES].map(str::to_owned));
            }
            None => missing.push(format!(
                "the {name} has the starter's files and network until its system calls are filtered: {NOT_ROOT}"
            )),
        }
        Ok(Self { confinement, user: user.map(|(user, _)| user), taken, missing, limits })
    }

    /// Makes the control groups of a box of this name, which it joins, and which are to be kept until it has ended:
    /// where the caller is root.
    pub fn make_groups(&mut self, name: &str) -> Groups {
        if !is_root() {
            self.missing.push(format!(
                "the {name} has no limit of memory, processes and processors: {NOT_ROOT}"
            ));
            return Groups::default();
        }
        let groups = Groups::make(name, &self.limits);
        self.taken.extend(bounds(&self.limits, &groups));
        self.missing.extend(groups.missing().iter().map(|lack| format!("the {name} has {lack}")));
        self.confinement = groups.joined_by(std::mem::take(&mut self.confinement));
        groups
    }
}

/// The limits that `groups` enforce, a phrase each.
fn bounds(limits: &GroupLimits, groups: &Groups) -> Vec<String> {
    let memory = limits.memory_bytes.map(|bytes| format!("{} MiB", bytes >> 20));
    let processes = limits.processes.map(|count| format!("{count} processes"));
    let processors = limits.processors.map(|count| match count {
        1 => "1 processor".to_owned(),
        _ => format!("{count} processors"),
    });
    [("memory", memory), ("pids", processes), ("cpu", processors)]
        .into_iter()
        .filter(|(controller, _)| groups.limits(controller))
        .filter_map(|(_, phrase)| phrase)
        .collect()
}

/// The line for a service of the `inline` domain: nothing separates it from the process that was started.
pub fn of_inline() -> String {
    let starter = match rustix::process::geteuid().as_raw() {
        0 => "root".to_owned(),
        user => format!("user {user}"),
    };
    format!(
        "the service runs in the process that {starter} started: `dataplane.domain` is \"inline\""
    )
}

/// The files of `config` that another user than root or the caller may change, where root takes its settings from them.
pub fn foreign_files(config: &RunConfig) -> Vec<String> {
    let files = [Some(&config.path), config.application.policy.as_ref()];
    let files = files.into_iter().flatten().filter(|_| is_root());
    // A file that cannot be looked at is reported by whoever reads it.
    files.filter_map(|file| endpoint::check_author(file).err()).collect()
}

/// Refuses one user for dataplane and application, by the names in `passwd`.
///
/// # Errors
/// The number, and what is allowed.
pub fn check_apart(config: &RunConfig, passwd: &str) -> anyhow::Result<()> {
    let number = |user, default: DefaultUser| match user {
        Some(UserName::Number(number)) => Some(number),
        Some(UserName::Inherit) => None,
        None => Some(default.ids(passwd, &mut Vec::new()).0),
    };
    let application = number(config.application.user, APPLICATION_USER);
    if let Some(user) = application
        && application == number(config.dataplane.user, DATAPLANE_USER)
    {
        bail!(
            "cannot separate dataplane and application: found user {user} for both, who may signal and trace either; \
             give `dataplane.user` and `application.user` numbers of their own"
        );
    }
    Ok(())
}

/// Whether the caller may give others' users and namespaces to what it starts.
pub fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The names of this machine's users; empty where they cannot be read.
pub fn passwd() -> String {
    std::fs::read_to_string(PASSWD).unwrap_or_default()
}

/// Why a box lacks what only root can take away.
pub const NOT_ROOT: &str = "the command was not started as root";
const INHERITED: &str = "the configuration says \"inherit\"";
const OWN_PROGRAM: &str = "a program of one's own keeps both unless `application.own_network` is true, which takes the \
                           network";
const KEEPS_FILES: &str = "a program of one's own keeps them";
const NO_LANDLOCK: &str = "this kernel has no Landlock";

const NO_NETWORK: &str = "no network";
const NO_FILES: &str = "no file but its program's";

/// Processes and threads of an application where nothing is said.
const PROCESSES: u64 = 512;
/// Threads of a dataplane beside the elastic ones and those that kicks wake: what attends to them, what hears the
/// starter, and one that has not ended yet.
const OTHER_THREADS: u64 = 8;

/// So much memory as is said, or half of the machine's.
pub fn memory_bytes(said_mb: Option<u64>) -> Option<u64> {
    let machine = || {
        let text = std::fs::read_to_string("/proc/meminfo").ok()?;
        let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        Some(total.split_whitespace().next()?.parse::<u64>().ok()? << 10)
    };
    said_mb.map(|mb| mb << 20).or_else(|| machine().map(|bytes| bytes / 2))
}

/// Threads that the dataplane's user may have, where this one makes so many: no more, where the user is named for it and
/// no control group counts its threads.
fn threads_of_user(config: &DataplaneConfig, threads: u64) -> u64 {
    let is_counted = Groups::version(Path::new(GROUPS), "pids").is_ok();
    match config.user {
        Some(UserName::Number(_)) if !is_counted => threads,
        _ => THREADS_MAX,
    }
}

/// What is taken from the dataplane, which is `program`, by a starter that is root or not.
///
/// # Errors
/// The program cannot be read.
pub fn dataplane(config: &DataplaneConfig, program: &Path, root: bool) -> anyhow::Result<Boxed> {
    let mut missing = Vec::new();
    let user = match config.user {
        Some(UserName::Number(user)) if root => Some((user, config.group.unwrap_or(user))),
        None if root => Some(DATAPLANE_USER.ids(&passwd(), &mut missing)),
        user => {
            let reason = if user == Some(UserName::Inherit) { INHERITED } else { NOT_ROOT };
            missing.push(format!("the dataplane has no user of its own: {reason}"));
            None
        }
    };
    let threads = OTHER_THREADS + 2 * u64::from(config.threads);
    let limits = Limits {
        open_files: Some(OPEN_FILES + OPEN_FILES_OF_THREAD * u64::from(config.threads)),
        // Of another's user it would count the other's threads too.
        processes: user.map(|_| threads_of_user(config, threads)),
        // Nothing of it is locked: packet memory is pinned by whoever registered it.
        locked_memory_bytes: Some(0),
        realtime_us: Some(REALTIME_US),
        // It is started with the one that it needs.
        realtime_priority: Some(0),
        ..Limits::default()
    };
    let confinement = Confinement::dataplane().limits(limits);
    let limits = GroupLimits {
        memory_bytes: memory_bytes(config.memory_mb),
        processes: Some(threads),
        // Its elastic threads are as many as it has processors, and have real-time priorities.
        processors: None,
        cpuset: None,
    };
    Boxed::alone("dataplane", confinement, user, root.then_some(program), missing, limits)
}

/// With the lists of system calls that an application has: the default one, that of its configuration, or both.
fn with_syscalls(
    confinement: Confinement,
    config: &ApplicationConfig,
    lacks: &mut Lacks,
) -> anyhow::Result<Confinement> {
    let Some(policy) = &config.policy else {
        if config.user == Some(UserName::Inherit) {
            lacks.push(("every system call", INHERITED));
            return Ok(confinement);
        }
        return Ok(confinement.syscalls(SyscallPolicy::application()));
    };
    let read = SyscallPolicy::from_file(policy).context("`application.policy`")?;
    // What every application loses, too: a list that names what to refuse forgets what it does not name.
    let confinement = match read.is_alone() {
        true => confinement,
        false => confinement.syscalls(SyscallPolicy::application()),
    };
    Ok(confinement.also_syscalls(read))
}

/// Without the network and the files that an application does not need. The rules of Landlock are about the machine's
/// files: an application with an empty root has none of these.
fn with_files(
    mut confinement: Confinement,
    config: &ApplicationConfig,
    built_in: Option<&Path>,
    root: bool,
    (taken, lacks): (&mut Vec<String>, &mut Lacks),
) -> anyhow::Result<Confinement> {
    // Who inherits is the starter, and may do what that may.
    let inherits = config.user == Some(UserName::Inherit);
    let alone = built_in.filter(|_| root && !inherits);
    if config.own_network || alone.is_some() {
        confinement = confinement.own_network();
        taken.push(NO_NETWORK.to_owned());
    }
    if let Some(program) = alone {
        taken.push(NO_FILES.to_owned());
        return Ok(confinement.root(Root::for_program(program)?));
    }
    let reason = match (built_in, inherits) {
        (_, true) => INHERITED,
        (Some(_), false) => NOT_ROOT,
        (None, false) if config.own_network => KEEPS_FILES,
        (None, false) => OWN_PROGRAM,
    };
    if !config.own_network {
        lacks.push(("the machine's network", reason));
    }
    lacks.push(("the machine's files", reason));
    if inherits && config.writable.is_empty() {
        lacks.push(("no Landlock rules", INHERITED));
    } else if Files::version() == 0 {
        lacks.push(("no Landlock rules", NO_LANDLOCK));
    } else {
        let files = config.writable.iter().fold(Files::read_only(), Files::writable);
        confinement = confinement.files(files);
        taken.push(match config.writable.len() {
            0 => "files to read only".to_owned(),
            count => format!("files to read, {count} listed to write"),
        });
    }
    Ok(confinement)
}

/// What is taken from an application. `built_in` is this program, where the application is a service of it: nothing
/// but its own file, and no network, is left to that.
///
/// # Errors
/// The policy cannot be read, or names what there is not; the program cannot be read; what it may write is not there.
pub fn application(
    config: &ApplicationConfig,
    elastic_threads: u32,
    built_in: Option<&Path>,
    root: bool,
) -> anyhow::Result<Boxed> {
    let (mut taken, mut missing, mut lacks) = (Vec::new(), Vec::new(), Lacks::new());
    let user = match config.user {
        Some(UserName::Number(user)) => Some((user, config.group.unwrap_or(user))),
        None if root => Some(APPLICATION_USER.ids(&passwd(), &mut missing)),
        None | Some(UserName::Inherit) => None,
    };
    if user.is_none() {
        let reason = if config.user.is_some() { INHERITED } else { NOT_ROOT };
        lacks.push(("no user of its own", reason));
    }
    let limits = Limits { open_files: config.open_files, ..Limits::default() };
    taken.extend(config.open_files.map(|count| format!("{count} open files")));
    // A priority of the starter's own (`chrt`) is not for the application.
    let mut confinement = Confinement::new().limits(limits).realtime(0);
    if let Some((user, group)) = user {
        confinement = confinement.identity(user, group);
    }
    confinement = with_syscalls(confinement, config, &mut lacks)?;
    if root {
        confinement = confinement.own_processes();
        taken.push("own processes".to_owned());
    } else {
        lacks.push(("no PID namespace, which ends what it starts", NOT_ROOT));
    }
    confinement = with_files(confinement, config, built_in, root, (&mut taken, &mut lacks))?;
    missing.extend(by_reason(lacks));
    let processors = std::thread::available_parallelism().map_or(1, |count| count.get() as u32);
    let limits = GroupLimits {
        memory_bytes: memory_bytes(config.memory_mb),
        processes: Some(config.processes.unwrap_or(PROCESSES)),
        processors: Some(config.processors.unwrap_or_else(|| {
            // Each of its elastic threads can have one.
            processors.saturating_sub(elastic_threads).max(elastic_threads)
        })),
        // Its threads go where the placement sends them, and have no priority to keep others from there.
        cpuset: None,
    };
    Ok(Boxed { confinement, user: user.map(|(user, _)| user), taken, missing, limits })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(more: &str) -> Result<RunConfig, String> {
        let text = format!("[service]\napp = \"echo\"\n[dataplane]\ndomain = \"process\"\n{more}");
        RunConfig::parse(&text).map_err(|error| format!("{error:#}"))
    }

    #[test]
    fn users_are_numbers_or_inherited_and_the_rest_is_refused() {
        let config =
            parsed("user = 7\ngroup = 8\n[application]\nuser = \"inherit\"\n").expect("fine");
        assert_eq!(
            (config.dataplane.user, config.dataplane.group),
            (Some(UserName::Number(7)), Some(8))
        );
        assert_eq!(config.application.user, Some(UserName::Inherit));
        for (more, parts) in [
            ("user = \"nobody\"\n", ["nobody", "number of a user, or \"inherit\""]),
            ("user = -1\n", ["-1", "number of a user"]),
            ("user = 1.5\n", ["1.5", "number of a user"]),
            ("user = 0\n", ["`dataplane.user` is 0", "1 to 4294967294"]),
            ("user = 4294967295\n", ["`dataplane.user` is 4294967295", "1 to 4294967294"]),
            ("group = 5\n", ["`dataplane.group`", "without `dataplane.user`"]),
            ("user = \"inherit\"\ngroup = 5\n", ["`dataplane.group`", "inherits the groups"]),
            ("[application]\ngroup = 5\n", ["`application.group`", "without `application.user`"]),
            ("[application]\nuser = 0\n", ["`application.user` is 0", "1 to"]),
        ] {
            let found = parsed(more).expect_err("is refused");
            for part in parts {
                assert!(found.contains(part), "{part:?} is not in: {found}");
            }
        }
    }

    #[test]
    fn default_users_have_names_or_numbers_that_no_one_gives_out() {
        let passwd = "root:x:0:0:root:/root:/bin/sh\ntailplane-application:x:7:7::/:\n\
                      tailplane-app:x:991:990:tailplane application:/:/usr/sbin/nologin\n\
                      tailplane-dataplane:x:0:0::/:\n";
        assert_eq!(APPLICATION_USER.named(passwd), Some((991, 990)));
        // A dataplane is never root.
        assert_eq!(DATAPLANE_USER.named(passwd), None);
        for broken in
            ["", "tailplane-dataplane", "tailplane-dataplane:x:a:b", "tailplane-dataplane:x:5"]
        {
            assert_eq!(DATAPLANE_USER.named(broken), None, "{broken}");
        }
        for user in [DATAPLANE_USER, APPLICATION_USER] {
            let mut missing = Vec::new();
            assert_eq!(user.ids("", &mut missing), (user.number, user.number));
            assert!(matches!(&missing[..], [line] if line.contains(user.name)), "{missing:?}");
            // systemd's UIDS-GIDS.md: DynamicUser= and all else of 16 bits, nobody, containers and /etc/subuid.
            assert!((65_536..100_000).contains(&user.number), "{user:?}");
        }
        assert_ne!(DATAPLANE_USER.number, APPLICATION_USER.number);
    }

    #[test]
    fn systemd_is_told_the_same_names() {
        let file = include_str!("../../../dist/sysusers.d/tailplane.conf");
        // u NAME ID GECOS
        let users =
            file.lines().filter_map(|line| line.strip_prefix("u ")?.split_whitespace().next());
        let mut users: Vec<&str> = users.collect();
        users.sort_unstable();
        let mut ours = [DATAPLANE_USER, APPLICATION_USER, PLANE_USER].map(|user| user.name);
        ours.sort_unstable();
        assert_eq!(users, ours);
        assert_eq!(PLANE_USER.number, DATAPLANE_USER.number + 2);
    }

    #[test]
    fn a_user_of_its_own_has_no_more_threads_than_its_dataplane() {
        let named = parsed("user = 7\nthreads = 3\n").expect("fine").dataplane;
        let shared = parsed("threads = 3\n").expect("fine").dataplane;
        let is_counted = Groups::version(Path::new(GROUPS), "pids").is_ok();
        let expected = if is_counted { THREADS_MAX } else { 14 };
        assert_eq!(threads_of_user(&named, 14), expected);
        assert_eq!(threads_of_user(&shared, 14), THREADS_MAX);
    }

    #[test]
    fn each_protection_is_taken_or_missing() {
        let program = std::env::current_exe().expect("a program");
        let plain = parsed("user = 7\n[application]\nuser = 8\n").expect("fine");
        let inherits =
            parsed("user = \"inherit\"\n[application]\nuser = \"inherit\"\n").expect("fine");
        let offline =
            parsed("[application]\nuser = 8\nown_network = true\nopen_files = 64\n").expect("fine");
        for (config, root, lines) in
            [(&plain, true, 0), (&plain, false, 2), (&inherits, true, 1), (&inherits, false, 2)]
        {
            let boxed = dataplane(&config.dataplane, &program, root).expect("a program of ours");
            assert_eq!(boxed.missing.len(), lines, "{:?}", boxed.missing);
            assert_eq!(boxed.taken, if root { vec![NO_NETWORK, NO_FILES] } else { vec![] });
        }
        let of = |config: &RunConfig, built_in: bool, root| {
            let built_in = built_in.then_some(program.as_path());
            let boxed = application(&config.application, 1, built_in, root).expect("is prepared");
            (boxed.taken.join(", "), boxed.missing)
        };
        let rules = match Files::version() {
            0 => "no Landlock rules: this kernel",
            _ => "files to read only",
        };
        // Configuration, built in, root; what is taken; what each line of what is missing contains.
        for (config, built_in, root, taken, missing) in [
            (&plain, true, true, "own processes, no network, no file but its program's", vec![]),
            (
                &plain,
                false,
                true,
                "own processes",
                vec!["the application has the machine's network, the machine's files: a program"],
            ),
            (
                &offline,
                false,
                true,
                "64 open files, own processes, no network",
                vec!["the application has the machine's files: a program of one's own keeps them"],
            ),
            (
                &plain,
                true,
                false,
                "",
                vec![
                    "no PID namespace, which ends what it starts, the machine's network, the machine's files: the command",
                ],
            ),
            (
                &inherits,
                true,
                true,
                "own processes",
                vec![
                    "no user of its own, every system call, the machine's network, the machine's files, no Landlock \
                     rules: the configuration",
                ],
            ),
            (
                &inherits,
                true,
                false,
                "",
                vec![
                    "no user of its own, every system call, the machine's network",
                    "no PID namespace",
                ],
            ),
        ] {
            let (found, lines) = of(config, built_in, root);
            let told = format!("{found}; {}", lines.join("; "));
            assert!(found.starts_with(taken), "{taken:?}: {told}");
            for part in &missing {
                assert!(told.contains(part), "{part:?} is not in: {told}");
            }
            let has_files =
                taken.contains(NO_FILES) || config.application.user == inherits.application.user;
            assert_eq!(told.contains(rules), !has_files, "{rules:?}: {told}");
            let landlock = usize::from(Files::version() == 0 && !has_files);
            assert_eq!(lines.len(), missing.len() + landlock, "{told}");
        }
        assert!(of_inline().contains("the process that"), "{}", of_inline());
    }

    #[test]
    fn dataplane_and_application_are_different_users() {
        let passwd = "tailplane-dataplane:x:990:990::/:\ntailplane-app:x:991:991::/:\n";
        let check = |more: &str, passwd: &str| {
            check_apart(&parsed(more).expect("fine"), passwd).map_err(|error| error.to_string())
        };
        for more in [
            "",
            "user = 7\n[application]\nuser = 8\n",
            "user = \"inherit\"\n[application]\nuser = \"inherit\"\n",
            "user = \"inherit\"\n[application]\nuser = 990\n",
        ] {
            check(more, passwd).expect("two users, or the starter's own");
        }
        let both = passwd.replace("991:991", "990:990");
        for (more, passwd, user) in [
            ("user = 7\n[application]\nuser = 7\n", passwd, "user 7 "),
            ("[application]\nuser = 990\n", passwd, "user 990 "),
            ("user = 991\n", passwd, "user 991 "),
            ("", &both, "user 990 "),
        ] {
            let found = check(more, passwd).expect_err("one user");
            assert!(found.contains(user) && found.contains("numbers of their own"), "{found}");
        }
    }

    #[test]
    fn an_application_has_limits_that_the_machine_or_the_configuration_gives() {
        let of = |more: &str| {
            let config = parsed(more).expect("fine");
            application(&config.application, 2, None, false).expect("nothing to read").limits
        };
        let usual = of("");
        assert!(usual.memory_bytes.is_some_and(|bytes| bytes > 16 << 20), "{usual:?}");
        assert_eq!(usual.processes, Some(PROCESSES));
        assert!(usual.processors.is_some_and(|count| count >= 2), "{usual:?}");
        let said = of("[application]\nmemory_mb = 64\nprocesses = 9\nprocessors = 3\n");
        let expected = GroupLimits {
            memory_bytes: Some(64 << 20),
            processes: Some(9),
            processors: Some(3),
            cpuset: None,
        };
        assert_eq!(said, expected);
        for (more, part) in [
            ("[application]\nmemory_mb = 1\n", "16 to"),
            ("[application]\nprocesses = 1\n", "4 to"),
            ("[application]\nprocessors = 0\n", "1 to"),
            ("memory_mb = 1\n", "`dataplane.memory_mb` is 1"),
        ] {
            let found = parsed(more).expect_err("is refused");
            assert!(found.contains(part), "{part:?} is not in: {found}");
        }
        let none = parsed("[application]\nwritable = [\"/no/such/directory\"]\n").expect("a path");
        let boxed =
            application(&none.application, 1, None, false).expect("not looked at before the start");
        assert_eq!(boxed.limits.processes, Some(PROCESSES));
    }
}
