//! How a service ends, and what it leaves behind.

use anyhow::{Context, bail};

use super::load::expect_answers;
use super::outcome::passed;
use crate::guest::command::{self, one_line, wait_until};
use crate::guest::nic_state::NicState;
use crate::guest::rig::{DATAPLANE, has_carrier};
use crate::guest::service::quoted;
use crate::guest::suite::Suite;
use crate::protocol::Outcome;

/// Connections that show that it serves.
const CONNECTIONS: usize = 8;
/// Longest time until the link is up again after a program has been detached.
const LINK_LIMIT: std::time::Duration = std::time::Duration::from_secs(15);
/// Marks of a kernel that found something wrong.
const KERNEL_MARKS: [&str; 5] = ["WARNING:", "BUG:", "Call Trace", "Oops", "hung_task"];

/// Starts again at once after SIGKILL.
pub fn killed(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    suite.take_running()?.kill().status.context("SIGKILL did not end it")?;
    suite.service().context("after SIGKILL")?;
    expect_answers(CONNECTIONS).context("after SIGKILL and a start")?;
    passed("")
}

/// Ends at SIGTERM with status 0, and gives the NIC back.
pub fn term(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    drop(suite.take_service());
    let can_change = change_queues(suite.threads()).is_ok();
    let before = NicState::look();
    let ended = suite.take_running()?.terminate();
    let said = quoted(&ended.output);
    match ended.status {
        None => bail!("SIGTERM did not end it: {said}"),
        Some(status) if !status.success() => bail!("ended with {status}: {said}"),
        Some(_) => {}
    }
    wait_until(LINK_LIMIT, has_carrier);
    before.expect_unchanged()?;
    // A table that somebody has set keeps the driver from having fewer queues.
    if !can_change {
        return passed("");
    }
    change_queues(suite.threads()).context("changing the queues after it")?;
    passed("the number of queues can be changed as before")
}

/// Halves the number of queues, and sets it back.
fn change_queues(queues: u32) -> anyhow::Result<()> {
    for queues in [(queues / 2).max(1), queues] {
        command::run(&format!("ethtool -L {DATAPLANE} combined {queues}"))?;
    }
    wait_until(LINK_LIMIT, has_carrier);
    Ok(())
}

/// After all runs, those that were killed included, the NIC is as it was.
pub fn restored(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    drop(suite.take_service());
    suite.before.expect_unchanged()?;
    passed("")
}

/// The kernel found nothing wrong.
pub fn kernel(_: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    let log = command::run("dmesg")?;
    let lines: Vec<&str> = log.lines().collect();
    let is_mark = |line: &&str| KERNEL_MARKS.iter().any(|mark| line.contains(mark));
    match lines.iter().position(is_mark) {
        Some(at) => bail!("{}", one_line(&lines[at..lines.len().min(at + 6)].join(" "))),
        None => passed(""),
    }
}
