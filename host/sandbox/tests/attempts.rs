//! What a broken-into process would try: without confinement, with another identity alone, and with the
//! dataplane's policy. The first column shows that each attempt would do something.

mod common;

use common::{Place, USER, is_root};
use sandbox::syscalls::{Known, look_up, names};
use sandbox::{Confinement, Ended, GroupLimits, Groups, SyscallPolicy};

/// Any outcome: it depends on the machine's settings.
const ANY: &str = "*";

/// Attempt; free, as root; another user without capabilities; the same under the dataplane's policy.
const ATTEMPTS: &[(&str, &str, &str, &str)] = &[
    ("raw socket", "ok", "EPERM", "EPERM"),
    ("packet socket", "ok", "EPERM", "EPERM"),
    ("xdp socket", "ok", "EPERM", "EPERM"),
    ("inet socket", "ok", "ok", "EPERM"),
    ("unix socket", "ok", "ok", "EPERM"),
    ("read passwd", "ok", "ok", "EPERM"),
    ("read shadow", "ok", "EACCES", "EPERM"),
    ("write memory of another", "ok", "EACCES", "EPERM"),
    ("write memory of init", ANY, "EACCES", "EPERM"),
    ("write physical memory", ANY, ANY, "EPERM"),
    ("make a file", "ok", "ok", "EPERM"),
    ("trace", "ok", "EPERM", "EPERM"),
    ("read memory of another", "EFAULT", "EPERM", "EPERM"),
    ("take a descriptor of another", "ok", "EPERM", "EPERM"),
    ("signal another", "ok", "EPERM", "EPERM"),
    ("signal a thread of another", "ok", "EPERM", "EPERM"),
    ("move another", "ok", "EPERM", "EPERM"),
    ("start a program", "ENOENT", "ENOENT", "EPERM"),
    ("map code", "ok", "ok", "EPERM"),
    ("make code", "ok", "ok", "EPERM"),
    ("become root", "ok", "EPERM", "EPERM"),
    ("leave the group", "ok", "EPERM", "EPERM"),
    ("take capabilities", "ok", "EPERM", "EPERM"),
    ("mount", "ok", "EPERM", "EPERM"),
    ("new user namespace", ANY, ANY, "EPERM"),
    ("new network namespace", "ok", "EPERM", "EPERM"),
    ("clone into a user namespace", ANY, ANY, "EPERM"),
    ("clone3", "EINVAL", "EINVAL", "ENOSYS"),
    ("fork", "ok", "ok", "EPERM"),
    ("bpf", "ok", ANY, "EPERM"),
    ("perf", "ok", ANY, "EPERM"),
    ("io_uring", ANY, ANY, "EPERM"),
    ("userfaultfd", ANY, ANY, "EPERM"),
    ("keyring", ANY, ANY, "EPERM"),
    ("terminal", "ENOTTY", "ENOTTY", "EPERM"),
    ("outlive the starter", "ok", "ok", "EPERM"),
    ("be dumped", "ok", "ok", "EPERM"),
    ("more open files", ANY, "EPERM", "EPERM"),
    ("leave through x32", ANY, ANY, "ENOSYS"),
    ("threads", "made 64", "made 64", "made 0"),
    ("real time", ANY, "EPERM", "EPERM"),
    ("real time of its own", ANY, "EPERM", "EPERM"),
    ("take pages from all", "ok", "ok", "EPERM"),
    ("give pages back", "ok", "ok", "ok"),
    ("lock with priority", "ok", "ok", "EPERM"),
    ("wake", "ok", "ok", "ok"),
    ("hold up all processors", "ok", "ok", "EPERM"),
    ("send to an address", "EBADF", "EBADF", "EPERM"),
    ("make a memory file", "ok", "ok", "EPERM"),
];

/// Calls that a list allows with some arguments only.
const MOST_BY_ARGUMENTS: usize = 16;

/// `uretprobe` and `uprobe` of x86-64, to which the kernel applies no filter (Linux 6.14): it makes them itself, at probes
/// that an administrator sets, and answers any other caller with SIGILL.
const TRAMPOLINES: [i64; 2] = [335, 336];

fn number_of(known: Known) -> Option<i64> {
    match known {
        Known::Number(number) => Some(number),
        Known::Elsewhere => None,
    }
}

/// Another process, of root, that does nothing; killed at the end.
struct Victim(std::process::Child);

impl Victim {
    fn new(place: &Place) -> Self {
        Self(place.command(&["free", "wait"]).spawn().expect("the probe starts"))
    }

    fn number(&self) -> String {
        self.0.id().to_string()
    }
}

impl Drop for Victim {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn each_attempt_fails_as_it_must_and_only_when_confined() {
    if !is_root() {
        return;
    }
    let place = Place::new("attempts");
    let victim = Victim::new(&place);
    let identity = Confinement::new().identity(USER, USER);
    let dataplane = identity.clone().syscalls(SyscallPolicy::dataplane().with_startup());
    let mut wrong = Vec::new();
    for (attempt, free, user, filtered) in ATTEMPTS {
        let number = &victim.number();
        let runs = [
            ("free", free, place.free(&["free", attempt, number])),
            ("user", user, place.confined(&identity, &["free", attempt, number], &[])),
            ("filtered", filtered, place.confined(&dataplane, &["strict", attempt, number], &[])),
        ];
        for (how, expected, (found, ended)) in runs {
            if (*expected != ANY && found != *expected) || ended != Ended::Exited(0) {
                wrong.push(format!(
                    "{attempt}, {how}: expected {expected}, found {found} {ended:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

#[test]
fn a_refusal_may_kill_and_kills_only_that_process() {
    if !is_root() {
        return;
    }
    let place = Place::new("kills");
    let mut victim = Victim::new(&place);
    let confinement =
        Confinement::new().identity(USER, USER).syscalls(SyscallPolicy::dataplane().with_startup());
    for attempt in
        ["inet socket", "read passwd", "start a program", "signal another", "fork", "map code"]
    {
        let (found, ended) =
            place.confined(&confinement, &["kill", attempt, &victim.number()], &[]);
        assert_eq!((found.as_str(), ended), ("", Ended::Killed(libc::SIGSYS)), "{attempt}");
    }
    assert_eq!(victim.0.try_wait().expect("a child of ours"), None);
}

/// What the default list takes from an application, and what it leaves: by a user without capabilities, to whom some
/// of it is refused all the same.
const OF_APPLICATIONS: &[(&str, &str, &str)] = &[
    ("inet socket", "ok", "ok"),
    ("unix socket", "ok", "ok"),
    ("netlink socket", "ok", "ok"),
    ("rare socket", ANY, "EPERM"),
    ("read passwd", "ok", "ok"),
    ("make a file", "ok", "ok"),
    ("map code", "ok", "ok"),
    ("make code", "ok", "ok"),
    ("fork", "ok", "ok"),
    ("threads", "made 64", "made 64"),
    ("start a program", "ENOENT", "ENOENT"),
    ("terminal", "ENOTTY", "ENOTTY"),
    ("type at the terminal", "ENOTTY", "EPERM"),
    ("new user namespace", ANY, "EPERM"),
    ("clone into a user namespace", ANY, "EPERM"),
    ("clone3", "EINVAL", "ENOSYS"),
    ("trace", "EPERM", "EPERM"),
    ("take a descriptor of another", "EPERM", "EPERM"),
    ("mount", "EPERM", "EPERM"),
    ("bpf", ANY, "EPERM"),
    ("perf", ANY, "EPERM"),
    ("io_uring", "ok", "EPERM"),
    ("userfaultfd", ANY, "EPERM"),
    ("keyring", ANY, "EPERM"),
    ("outlive the starter", "ok", "EPERM"),
    ("die with another signal", "ok", "EPERM"),
    ("die with the starter", "ok", "ok"),
    ("leave through x32", ANY, "ENOSYS"),
];

#[test]
fn an_application_by_default_loses_what_no_service_needs() {
    if !is_root() {
        return;
    }
    let place = Place::new("default");
    let victim = Victim::new(&place);
    let user = Confinement::new().identity(USER, USER);
    let filtered = user.clone().syscalls(SyscallPolicy::application());
    let mut wrong = Vec::new();
    for (attempt, free, listed) in OF_APPLICATIONS {
        for (how, expected, confinement) in [("free", free, &user), ("listed", listed, &filtered)] {
            let words = ["free", attempt, &victim.number()];
            let (found, ended) = place.confined(confinement, &words, &[]);
            if (*expected != ANY && found != *expected) || ended != Ended::Exited(0) {
                wrong.push(format!(
                    "{attempt}, {how}: expected {expected}, found {found} {ended:?}"
                ));
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Every number of a system call, also those that no kernel has: it passes where its name is on the list, else not.
#[test]
fn a_filter_refuses_every_number_that_is_not_on_its_list() {
    if !is_root() {
        return;
    }
    let place = Place::new("sweep");
    let user = Confinement::new().identity(USER, USER);
    let named = |policy: &SyscallPolicy, allowed: bool| -> Vec<i64> {
        let numbers = names().filter(|name| policy.allows(name) == allowed).filter_map(look_up);
        numbers.filter_map(|(_, known)| number_of(known)).collect()
    };
    let dataplane = SyscallPolicy::dataplane();
    let joining = dataplane.clone().with_threads().with_joining();
    for (which, policy) in [
        ("sweep dataplane", dataplane.clone()),
        ("sweep dataplane with threads", dataplane.with_threads()),
        ("sweep dataplane that joins", joining.clone()),
        ("sweep dataplane that starts", joining.with_startup()),
        ("sweep plane", SyscallPolicy::plane()),
        ("sweep application", SyscallPolicy::application()),
    ] {
        let (found, ended) = place.patiently(&user, &["free", which]);
        assert_eq!(ended, Ended::Exited(0), "{found}");
        let passed: Vec<i64> = found.split(' ').map(|one| one.parse().expect("a number")).collect();
        let (allowed, refused) = (named(&policy, true), named(&policy, false));
        let is_wrong = |number: &&i64| refused.contains(number) && !TRAMPOLINES.contains(number);
        let wrong: Vec<_> = passed.iter().filter(is_wrong).collect();
        assert!(wrong.is_empty(), "{which}: refused by name, and passed: {wrong:?}");
        let without_name =
            |number: &&i64| !allowed.contains(number) && !TRAMPOLINES.contains(number);
        let unknown = passed.iter().filter(without_name).count();
        // A list of denials lets numbers pass that have no name yet.
        assert_eq!(
            unknown == 0,
            !which.ends_with("application"),
            "{which}: {unknown} without a name"
        );
        // What is allowed passes, but for what its arguments decide.
        let held = allowed.iter().filter(|number| !passed.contains(number)).count();
        assert!(held < MOST_BY_ARGUMENTS, "{which}: {held} of {} do not pass", allowed.len());
        println!("{which}: {} pass, {} are refused by name", passed.len(), refused.len());
    }
}

/// What may be done before a dataplane's threads run, and what even then not.
#[test]
fn a_dataplane_that_begins_sets_no_priority_that_others_inherit() {
    if !is_root() {
        return;
    }
    let place = Place::new("begins");
    let victim = Victim::new(&place);
    for (attempt, free, begins) in [
        ("real time", "ok", "EPERM"),
        ("round robin", "ok", "EPERM"),
        ("real time of its own", "ok", "ok"),
        ("no priority", "ok", "ok"),
        ("no priority for another", "ok", "EPERM"),
        ("threads", "made 64", "made 64"),
        ("fork", "ok", "EPERM"),
    ] {
        for (how, expected) in [("free", free), ("begin", begins)] {
            let (found, ended) = place.free(&[how, attempt, &victim.number()]);
            assert_eq!((found.as_str(), ended), (expected, Ended::Exited(0)), "{attempt}, {how}");
        }
    }
}

/// The filter cannot read which processors a thread asks for.
#[test]
fn a_group_bounds_the_processors_that_a_thread_can_ask_for() {
    if !is_root() {
        return;
    }
    let set = rustix::thread::sched_getaffinity(None).expect("the kernel says it");
    let cpus: Vec<u32> = (0..1_024).filter(|cpu| set.is_set(*cpu)).map(|cpu| cpu as u32).collect();
    let [first, .., last] = cpus[..] else { return println!("skipped: one processor") };
    let groups =
        |cpuset| Groups::make("attempts", &GroupLimits { cpuset, ..GroupLimits::default() });
    let bounded = groups(Some(vec![first]));
    let Some(cpuset) = bounded.cpuset() else {
        return println!("skipped: {:?}", bounded.missing());
    };
    let place = Place::new("cpuset");
    let identity = Confinement::new().identity(USER, USER);
    let run = |confinement: &Confinement, cpu: u32| {
        let words = ["strict", "run on this processor", &cpu.to_string()];
        place
            .confined(
                &confinement.clone().syscalls(SyscallPolicy::dataplane().with_startup()),
                &words,
                &[],
            )
            .0
    };
    assert_eq!(run(&identity, last), "ok", "nothing to bound");
    let inside = bounded.joined_by(identity);
    assert_eq!((run(&inside, first).as_str(), run(&inside, last).as_str()), ("ok", "EINVAL"));
    cpuset.set(&[last]).expect("it is there");
    assert_eq!((run(&inside, first).as_str(), run(&inside, last).as_str()), ("EINVAL", "ok"));
}

/// A list of an operator's that forgets what the default list refuses does not give it back.
#[test]
fn an_operators_policy_takes_more_and_gives_nothing_back() {
    if !is_root() {
        return;
    }
    let place = Place::new("beside");
    let user = Confinement::new().identity(USER, USER);
    let of = |text| SyscallPolicy::from_toml(text).expect("a policy");
    let forgets = of("default = \"allow\"\ndeny = [\"socket\"]");
    let alone = user.clone().syscalls(forgets.clone());
    let beside = user.clone().syscalls(SyscallPolicy::application()).also_syscalls(forgets);
    for (attempt, expected, with_default) in [
        ("inet socket", "EPERM", "EPERM"),
        ("io_uring", "ok", "EPERM"),
        ("userfaultfd", ANY, "EPERM"),
        ("new user namespace", ANY, "EPERM"),
        ("outlive the starter", "ok", "EPERM"),
        ("read passwd", "ok", "ok"),
        ("fork", "ok", "ok"),
    ] {
        for (how, expected, confinement) in
            [("alone", expected, &alone), ("beside", with_default, &beside)]
        {
            let (found, ended) = place.confined(confinement, &["free", attempt], &[]);
            let is_expected = expected == ANY || found == expected;
            assert!(is_expected && ended == Ended::Exited(0), "{attempt}, {how}: {found}");
        }
    }
}

#[test]
fn an_operators_policy_holds_for_a_program_that_knows_nothing_of_it() {
    let place = Place::new("operator");
    let text = "default = \"allow\"\ndeny = [\"socket\", \"io_uring_setup\"]";
    let policy = SyscallPolicy::from_toml(text).expect("a policy");
    let confinement = Confinement::new().syscalls(policy);
    let cases = [
        ("inet socket", "EPERM"),
        ("io_uring", "EPERM"),
        ("leave through x32", "ENOSYS"),
        ("read passwd", "ok"),
        ("fork", "ok"),
    ];
    for (attempt, expected) in cases {
        let (found, ended) = place.confined(&confinement, &["free", attempt], &[]);
        assert_eq!((found.as_str(), ended), (expected, Ended::Exited(0)), "{attempt}");
    }
    let policy =
        SyscallPolicy::from_toml("default = \"allow\"\ndeny = [\"execve\"]").expect("a policy");
    let started = Confinement::new().syscalls(policy).spawn(place.command(&["free", "fork"]), &[]);
    let found = started.map(|_| ()).expect_err("it cannot start").to_string();
    assert!(found.contains("refuses execve"), "{found}");
}
