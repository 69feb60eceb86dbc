//! What this process holds: descriptors, mappings, memory. After an attack there has to be as much as before.

use anyhow::Context;
use rustix::thread::{CpuSet, sched_setaffinity};

/// See the module's comment.
#[derive(Clone, Copy, Debug)]
pub struct Holds {
    /// Open descriptors.
    pub descriptors: usize,
    /// Mappings.
    pub mappings: usize,
    /// Bytes in memory.
    pub resident: u64,
}

/// What it holds now.
///
/// # Errors
/// `/proc` is not there.
pub fn holds() -> anyhow::Result<Holds> {
    let descriptors = std::fs::read_dir("/proc/self/fd").context("counting descriptors")?.count();
    let maps = std::fs::read_to_string("/proc/self/maps").context("counting mappings")?;
    Ok(Holds { descriptors, mappings: maps.lines().count(), resident: resident()? })
}

/// Bytes of this process that are in memory.
///
/// # Errors
/// `/proc` is not there.
pub fn resident() -> anyhow::Result<u64> {
    let pages = std::fs::read_to_string("/proc/self/statm").context("reading /proc/self/statm")?;
    let pages = pages.split_whitespace().nth(1).and_then(|word| word.parse::<u64>().ok());
    Ok(pages.context("no number in /proc/self/statm")? * rustix::param::page_size() as u64)
}

/// Has this thread, and all that it starts, run on these processors only.
///
/// # Errors
/// It may not.
pub fn run_on(cpus: &[usize]) -> anyhow::Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|cpu| set.set(*cpu));
    sched_setaffinity(None, &set).context("choosing a processor")
}

/// The processors that this process may run on.
///
/// # Errors
/// They are not told.
pub fn processors() -> anyhow::Result<Vec<usize>> {
    let allowed = rustix::thread::sched_getaffinity(None).context("asking for processors")?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}
