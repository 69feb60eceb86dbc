//! What this process holds: descriptors, threads, mappings, memory. After an attack there has to be as much as before.

use std::collections::BTreeMap;

use anyhow::Context;
use measure::process::resident_bytes;
use rustix::thread::CpuSet;

use crate::unsafe_os;

/// See the module's comment.
#[derive(Clone, Debug)]
pub struct Holds {
    /// Open descriptors.
    pub descriptors: usize,
    /// Threads.
    pub threads: usize,
    /// Mappings of files, those in memory too, by name. Others are the allocator's, and stacks that the threads'
    /// library keeps for later: how many there are depends on how threads met.
    pub mapped: BTreeMap<String, usize>,
    /// Bytes in memory.
    pub resident: u64,
}

/// What it holds now.
///
/// # Errors
/// `/proc` is not there.
pub fn holds() -> anyhow::Result<Holds> {
    let entries = |path: &str| -> anyhow::Result<usize> {
        Ok(std::fs::read_dir(path).with_context(|| format!("counting what is in {path}"))?.count())
    };
    let maps = std::fs::read_to_string("/proc/self/maps").context("counting mappings")?;
    let mut mapped = BTreeMap::new();
    for name in maps.lines().filter_map(|line| line.split_whitespace().nth(5)) {
        *mapped.entry(name.to_owned()).or_default() += 1;
    }
    unsafe_os::trim_heap();
    let (descriptors, threads) = (entries("/proc/self/fd")?, entries("/proc/self/task")?);
    Ok(Holds { descriptors, threads, mapped, resident: resident()? })
}

impl Holds {
    /// Of which mappings there are more than in `before`, and how many more.
    pub fn mapped_more_than(&self, before: &Self) -> String {
        let more = self.mapped.iter().filter_map(|(name, count)| {
            let more = count.saturating_sub(before.mapped.get(name).copied().unwrap_or(0));
            (more > 0).then(|| format!("{more} of {name}"))
        });
        more.collect::<Vec<_>>().join(", ")
    }
}

/// Bytes of this process that are in memory.
///
/// # Errors
/// `/proc` is not there.
pub fn resident() -> anyhow::Result<u64> {
    resident_bytes().context("no resident memory in /proc/self/status")
}

/// The processors that this process may run on.
///
/// # Errors
/// They are not told.
pub fn processors() -> anyhow::Result<Vec<usize>> {
    let allowed = rustix::thread::sched_getaffinity(None).context("asking for processors")?;
    Ok((0..CpuSet::MAX_CPU).filter(|cpu| allowed.is_set(*cpu)).collect())
}
