//! The checks, by theme, and all of them in their order. Each returns what it found; an error is a failure with its
//! text. To add one, write a function in a file beside this one, and a row in [`CHECKS`].

mod daemon;
mod domains;
mod faults;
mod lifecycle;
mod load;
mod outcome;
mod readme;
mod start;
mod steering;
mod traffic;

use super::suite::{Check, check, long};

const RTC: &str = "run-to-completion";
const SHARING: &str = "work-conserving";
const READY: &str = "ready-set";

/// All checks, in the order in which they run. The last one takes the interface away.
pub const CHECKS: [Check; 40] = [
    check("start", "tailplane run announces a service on dp0", start::start).everywhere(),
    check("carrier", "the announcement comes with the link up", start::carrier),
    check("mode", "the announced mode is the kernel's, and the expected one", start::mode),
    check("ping", "pings of all sizes up to the MTU are answered", traffic::pings),
    check("items", "items of 1 B to 1 MiB come back byte for byte", traffic::items),
    check("connections", "64 connections at once are all answered", traffic::connections),
    check("transfer", "100 MB each way arrive byte for byte", traffic::transfer),
    check(
        "taken",
        "a second service on dp0 is refused: the owner of its program is named",
        faults::taken,
    ),
    check("client-link", "serves after the client's link was down and up", faults::client_link),
    check("own-link", "serves after its own link was down and up", faults::own_link),
    check("mtu", "serves while the MTU goes to 1400 and back", faults::mtu),
    check("reset", "serves after resets of the link and changes of the rings", faults::reset),
    check(
        "moves",
        "flow groups move twice under load: no error, the table changes",
        steering::moves,
    ),
    check("forwarded", "threads get the packets of their own flow groups", steering::forwarded),
    check("threads-1", "one thread serves 16 connections of all queues", steering::one_thread),
    long("threads-2", "two threads serve 16 connections of all queues", steering::two_threads),
    long("threads-6", "six threads serve 16 connections of all queues", steering::six_threads),
    check("doctor", "doctor --probe finds the mode that a service gets", start::doctor),
    check(
        "demanded",
        "each mode that is demanded is got, or refused with the reason",
        start::demanded,
    ),
    check("down", "no announcement on an interface that is down", faults::down),
    check("killed", "starts again at once after SIGKILL", lifecycle::killed),
    check("term", "SIGTERM: status 0, the NIC as it was before", lifecycle::term),
    long("inline-rtc", "domain inline, run-to-completion: 16 connections", |suite| {
        domains::serves(suite, "inline", RTC)
    }),
    long("inline-sharing", "domain inline, work-conserving: 16 connections", |suite| {
        domains::serves(suite, "inline", SHARING)
    }),
    long("inline-ready", "domain inline, ready-set: 16 connections", |suite| {
        domains::serves(suite, "inline", READY)
    }),
    long("process-rtc", "domain process, run-to-completion: 16 connections", |suite| {
        domains::serves(suite, "process", RTC)
    }),
    long("process-sharing", "domain process, work-conserving: 16 connections", |suite| {
        domains::serves(suite, "process", SHARING)
    }),
    long("process-ready", "domain process, ready-set: 16 connections", |suite| {
        domains::serves(suite, "process", READY)
    }),
    long("small-memory", "a sharing scheduler with 4096 chunks serves, or is refused", |suite| {
        domains::small_memory(suite)
    }),
    check(
        "jumbo",
        "serves with an MTU of 9000: large segments come, or the start says what does not",
        traffic::jumbo,
    ),
    check(
        "contained",
        "memory, processes and processors are limited by groups",
        domains::contained,
    )
    .everywhere(),
    long("netem", "all bytes arrive though frames are lost, late and reordered", traffic::netem)
        .everywhere(),
    check("unit", "the daemon's unit: watchdog, reload, restart; its service serves", daemon::unit)
        .under_systemd(),
    check("lab", "a service of the daemon's in a lab is reached from the machine", daemon::lab)
        .under_systemd(),
    check(
        "cpusets",
        "a background job has the cores that are left, and no others",
        daemon::cpusets,
    )
    .under_systemd(),
    check("freezer", "it stands still where none is left, and goes on later", daemon::freezer)
        .under_systemd(),
    long("readme", "README's \"see it within a minute\" works as printed", readme::readme)
        .everywhere(),
    check("restored", "after all runs the NIC is as it was before the first", lifecycle::restored)
        .everywhere(),
    check("removed", "dp0 goes while it serves: the service reports or ends", faults::removed),
    check("kernel", "the kernel has logged no warning", lifecycle::kernel).everywhere(),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checks_have_names_of_their_own() {
        let mut names: Vec<&str> = CHECKS.iter().map(|check| check.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), CHECKS.len());
    }

    #[test]
    fn a_check_that_is_named_runs_in_the_short_form_too() {
        let long = CHECKS.iter().find(|check| check.is_long).expect("there is one");
        let named = [long.name.to_owned()];
        assert!(!long.is_wanted(true, &[]) && long.is_wanted(false, &[]));
        assert!(long.is_wanted(true, &named) && !CHECKS[0].is_wanted(false, &named));
    }
}
