//! Where a thread runs.

use rustix::io::Errno;
use rustix::thread::CpuSet;

use crate::error::{RuntimeError, system};

/// Pins the calling thread, number `core`, to a processor.
pub(super) fn pin(core: usize, cpu: Option<usize>) -> Result<(), RuntimeError> {
    let Some(cpu) = cpu else { return Ok(()) };
    let allowed = rustix::thread::sched_getaffinity(None)
        .map_err(|errno| system("asking for the processors of this process", errno))?;
    if cpu >= CpuSet::MAX_CPU || !allowed.is_set(cpu) {
        let allowed: Vec<String> = (0..CpuSet::MAX_CPU)
            .filter(|&cpu| allowed.is_set(cpu))
            .map(|cpu| cpu.to_string())
            .collect();
        return Err(RuntimeError(format!(
            "elastic thread {core} cannot run on processor {cpu}; allowed: {} (`taskset` and \
             cpusets limit them)",
            allowed.join(", ")
        )));
    }
    run_on(cpu).map_err(|errno| system("pinning an elastic thread to its processor", errno))
}

/// Has the calling thread run on this processor and no other, wherever it ran before.
pub(crate) fn run_on(cpu: usize) -> rustix::io::Result<()> {
    if cpu >= CpuSet::MAX_CPU {
        return Err(Errno::INVAL);
    }
    let mut set = CpuSet::new();
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
}
