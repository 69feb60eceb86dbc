//! Domains and schedulers: each starts and serves; and the control groups that hold a service.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail, ensure};

use super::load::expect_answers;
use super::outcome::passed;
use crate::guest::command::{LIMIT, run_words, wait_until};
use crate::guest::service::{CHUNKS, Config, START_LIMIT, Service, quoted};
use crate::guest::suite::Suite;
use crate::protocol::Outcome;

/// Connections that are enough to reach each thread.
const CONNECTIONS: usize = 16;
/// Where a service's control groups are.
pub const GROUPS: &str = "/sys/fs/cgroup/tailplane";
/// More processes than the dataplane's group may have, with its threads.
const PROCESSES_TOO_MANY: usize = 24;

/// A service with this domain and scheduler serves, and ends in order.
pub fn serves(
    suite: &mut Suite<'_>,
    domain: &'static str,
    scheduler: &'static str,
) -> anyhow::Result<Outcome> {
    drop(suite.take_service());
    let threads = suite.threads();
    let (domain, scheduler) = (Some(domain), Some(scheduler));
    // What the schedulers that share keep for each core, the product's own choice has room for.
    let config = Config { domain, scheduler, chunks: None, ..Config::with_threads(threads) };
    let service = suite.start(&config)?;
    expect_answers(CONNECTIONS)?;
    let ended = service.terminate();
    match ended.status {
        Some(status) if status.success() => passed(format!("{CONNECTIONS} connections")),
        _ => bail!("it {}: {}", ended.how(), quoted(&ended.output)),
    }
}

/// The group of a part of the service that this process started.
fn group_of(part: &str, starter: u32) -> anyhow::Result<PathBuf> {
    let begins = format!("{part}.{starter}.");
    let groups = fs::read_dir(GROUPS).with_context(|| format!("reading '{GROUPS}'"))?.flatten();
    let mut named = groups.filter(|group| group.file_name().to_string_lossy().starts_with(&begins));
    Ok(named.next().with_context(|| format!("no group {begins}* in {GROUPS}"))?.path())
}

/// The number before a word of a line, as in `512 processes, 2 processors`.
fn before<'a>(line: &'a str, word: &str) -> Option<&'a str> {
    let phrases = line.split([',', ':']).map(str::trim);
    let mut counts = phrases.filter_map(|phrase| phrase.strip_suffix(word)).map(str::trim);
    counts.find(|count| count.parse::<u64>().is_ok())
}

/// A part's group has its process, and the limits that were announced.
fn expect_limits(part: &str, group: &Path, said: &str) -> anyhow::Result<()> {
    let begins = format!("protection {part}: pid ");
    let line = said.lines().find_map(|line| line.trim_start().strip_prefix(&begins));
    let line = line.with_context(|| format!("no line '{begins}' in: {}", quoted(said)))?;
    let read = |name: &str| -> anyhow::Result<String> {
        let text = fs::read_to_string(group.join(name));
        Ok(text.with_context(|| format!("reading {name} of {part}"))?.trim().to_owned())
    };
    let pid = line.split(',').next().unwrap_or_default();
    if !read("cgroup.procs")?.lines().any(|one| one == pid) {
        bail!("process {pid} of the {part} is not in {}", group.display());
    }
    let memory = read("memory.max")?.parse::<u64>().map(|bytes| (bytes >> 20).to_string());
    let quota = before(line, " processors").or(before(line, " processor")).map(|count| {
        let count: u64 = count.parse().unwrap_or_default();
        format!("{} 100000", count * 100_000)
    });
    for (what, announced, found) in [
        ("memory.max in MiB", before(line, " MiB").map(str::to_owned), memory?),
        ("pids.max", before(line, " processes").map(str::to_owned), read("pids.max")?),
        ("cpu.max", Some(quota.unwrap_or("max 100000".to_owned())), read("cpu.max")?),
    ] {
        if announced.as_ref() != Some(&found) {
            bail!("{part}: {what} is {found}, and {announced:?} was announced: {line}");
        }
    }
    Ok(())
}

/// Processes of a service are in groups of version 2 with the limits that it announces; the limits hold; the groups are
/// gone when it has ended, and at the next start when it was killed.
pub fn contained(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    let service = suite.service()?;
    let (starter, said) = (service.id(), service.output());
    let parts = ["dataplane", "application"];
    for part in parts {
        expect_limits(part, &group_of(part, starter)?, &said)?;
    }
    let group = group_of("dataplane", starter)?;
    let script = format!(
        "echo $$ > {}/cgroup.procs; for i in {}; do sleep 2 & done",
        group.display(),
        "x ".repeat(PROCESSES_TOO_MANY)
    );
    if run_words(&["sh", "-c", &script], LIMIT).is_ok() {
        bail!("{PROCESSES_TOO_MANY} more processes fit into {}", group.display());
    }
    // Kernels before 5.14 cannot end what is left in a group: those processes have to be gone.
    let is_alone = || {
        let processes = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        processes.lines().count() == 1
    };
    ensure!(wait_until(LIMIT, is_alone), "processes that ended are still in {}", group.display());
    expect_answers(CONNECTIONS).context("after its group was full")?;
    suite.take_running()?.kill().status.context("SIGKILL did not end it")?;
    suite.service()?;
    let is_gone = |starter| parts.iter().all(|part| group_of(part, starter).is_err());
    if !is_gone(starter) {
        bail!("the groups of a killed service are there after the next one's start");
    }
    let starter = suite.service()?.id();
    drop(suite.take_service());
    ensure!(is_gone(starter), "the groups of a service that ended are there");
    passed("memory, processes, processors")
}

/// A scheduler that shares, with few chunks: it serves, or the start is refused for that reason.
pub fn small_memory(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    drop(suite.take_service());
    let (scheduler, threads) = (Some("work-conserving"), suite.threads());
    let config = Config { scheduler, ..Config::with_threads(threads) };
    let service = match Service::start(suite.task, &config) {
        Ok(service) => service,
        Err(error) if format!("{error:#}").contains("chunks") => {
            return passed(format!("refused: {error:#}"));
        }
        Err(error) => return Err(error),
    };
    if !suite.wait_for_answer() {
        bail!("announced, and answers no ping within {} s", START_LIMIT.as_secs());
    }
    expect_answers(CONNECTIONS).with_context(|| {
        format!("work-conserving, {threads} threads, {CHUNKS} chunks: neither refused nor served")
    })?;
    drop(service);
    passed(format!("{CONNECTIONS} connections"))
}
