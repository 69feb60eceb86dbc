//! A dataplane that was broken into, beside another one of the same user: confined as `tailplane run` does it, it
//! reaches neither. What each layer stops by itself is shown by leaving the others out.

mod common;

use std::io::{BufRead, BufReader};
use std::process::Child;

use common::{Place, is_root};
use sandbox::{Confinement, Ended, Limits, SyscallPolicy};

/// A user that owns nothing, of all dataplanes of a machine.
const USER: u32 = 30_021;
/// Any outcome: it depends on the machine's settings.
const ANY: &str = "*";

/// Attempt; by root; by the dataplane's user, on one of its processes that is not confined; in the dataplane's box
/// without a filter of system calls, on a dataplane; the whole, on a dataplane.
const ATTEMPTS: &[(&str, &str, &str, &str, &str)] = &[
    ("raw socket", "ok", "EPERM", "EPERM", "EPERM"),
    ("packet socket", "ok", "EPERM", "EPERM", "EPERM"),
    ("xdp socket", "ok", "EPERM", "EPERM", "EPERM"),
    ("netlink socket", "ok", "ok", "ok", "EPERM"),
    ("inet socket", "ok", "ok", "ok", "EPERM"),
    ("unix socket", "ok", "ok", "ok", "EPERM"),
    ("read passwd", "ok", "ok", "ENOENT", "EPERM"),
    ("make a file", "ok", "ok", "EROFS", "EPERM"),
    ("read memory of another", "EFAULT", "EFAULT", "EPERM", "EPERM"),
    ("write memory of another by call", "EFAULT", "EFAULT", "EPERM", "EPERM"),
    ("write memory of another", "ok", "ok", "ENOENT", "EPERM"),
    // Of a dataplane there are none, even for root.
    ("read files of another", "ENOENT", "ok", "ENOENT", "EPERM"),
    ("trace", "ok", "ok", "EPERM", "EPERM"),
    ("take a descriptor of another", "ok", "ok", "EPERM", "EPERM"),
    ("signal another", "ok", "ok", "ok", "EPERM"),
    ("signal a thread of another", "ok", "ok", "ok", "EPERM"),
    ("move another", "ok", "ok", "ok", "EPERM"),
    ("start a program", "ENOENT", "ENOENT", "ENOENT", "EPERM"),
    ("make code", "ok", "ok", "ok", "EPERM"),
    ("fork", "ok", "ok", "ok", "EPERM"),
    ("become root", "ok", "EPERM", "EPERM", "EPERM"),
    ("take capabilities", "ok", "EPERM", "EPERM", "EPERM"),
    ("mount", "ok", "EPERM", "EPERM", "EPERM"),
    ("new user namespace", ANY, ANY, ANY, "EPERM"),
    ("bpf", "ok", ANY, ANY, "EPERM"),
    ("io_uring", ANY, ANY, ANY, "EPERM"),
    ("real time", ANY, "EPERM", "EPERM", "EPERM"),
    ("reach the host", "ok", "ok", "ENETUNREACH", ANY),
];

/// A process that waits; killed at the end.
struct Victim(Child);

impl Victim {
    fn waiting(mut child: Child) -> Self {
        let mut ready = String::new();
        let output = child.stdout.as_mut().expect("piped");
        BufReader::new(output).read_line(&mut ready).expect("a line");
        assert_eq!(ready, "ready\n");
        Self(child)
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

/// As the command confines its dataplanes.
fn dataplane(place: &Place) -> Confinement {
    let limits = Limits {
        open_files: Some(64),
        locked_memory_bytes: Some(0),
        realtime_priority: Some(0),
        ..Limits::default()
    };
    let alone = Confinement::dataplane().alone_with(&place.probe()).expect("the probe is there");
    alone.identity(USER, USER).limits(limits)
}

#[test]
fn one_that_was_broken_into_reaches_neither_the_machine_nor_another_dataplane() {
    if !is_root() {
        return;
    }
    let place = Place::new("dataplanes");
    let user = Confinement::new()
        .identity(USER, USER)
        .limits(Limits { realtime_priority: Some(0), ..Limits::default() });
    let open = dataplane(&place).syscalls(SyscallPolicy::allow_all());
    let whole = dataplane(&place);
    let started = |confinement: &Confinement, how| {
        Victim::waiting(confinement.spawn(place.command(&[how, "wait"]), &[]).expect("it starts"))
    };
    let (weak, other) = (started(&user, "free"), started(&whole, "strict"));
    let mut wrong = Vec::new();
    for (attempt, free, as_user, boxed, filtered) in ATTEMPTS {
        let (weak, other) = (&weak.number(), &other.number());
        let runs = [
            ("by root", free, place.free(&["free", attempt, other])),
            ("by the user", as_user, place.confined(&user, &["free", attempt, weak], &[])),
            ("boxed", boxed, place.confined(&open, &["free", attempt, other], &[])),
            ("whole", filtered, place.confined(&whole, &["strict", attempt, other], &[])),
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
