//! Waiting on one cache line in user mode: `UMWAIT` (Intel) and `MWAITX` (AMD), where present.
//!
//! The paper (§III-A) dismisses them, rightly, for watching many doorbells: they watch one line and do
//! not say what was written. A ready set turns many doorbells into one line to watch, so here they
//! fit: a consumer that sleeps monitors its own token, and waking it is one store, without a system
//! call.
//!
//! This module holds `unsafe` because the instructions have no safe form. They only read the line
//! whose address they are given, and stop the processor until it is written, an interrupt comes or
//! the deadline passes.
#![allow(unsafe_code)]

use core::fmt;
use core::sync::atomic::{AtomicU32, Ordering};
use core::time::Duration;
use std::time::Instant;

use crate::idle::Sleeper;

/// Which instruction this processor (or the hypervisor that shows it to us) has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MonitorSupport {
    /// `UMONITOR` and `UMWAIT`: CPUID leaf 7, ECX bit 5.
    Umwait,
    /// `MONITORX` and `MWAITX`: CPUID leaf 0x8000_0001, ECX bit 29.
    Mwaitx,
    /// Neither.
    Absent,
}

impl fmt::Display for MonitorSupport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Umwait => "UMWAIT",
            Self::Mwaitx => "MWAITX",
            Self::Absent => "absent (sleepers use a futex)",
        })
    }
}

/// No such instruction here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "neither UMWAIT nor MWAITX was found by CPUID on this processor (hypervisors often hide them): \
     sleep on a futex instead"
)]
pub struct MonitorAbsent;

/// Asks the processor.
pub fn monitor_support() -> MonitorSupport {
    detect()
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
fn detect() -> MonitorSupport {
    use core::arch::x86_64::{__cpuid, __cpuid_count};
    if __cpuid(0).eax >= 7 && __cpuid_count(7, 0).ecx >> 5 & 1 == 1 {
        return MonitorSupport::Umwait;
    }
    if __cpuid(0x8000_0000).eax >= 0x8000_0001 && __cpuid(0x8000_0001).ecx >> 29 & 1 == 1 {
        return MonitorSupport::Mwaitx;
    }
    MonitorSupport::Absent
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
fn detect() -> MonitorSupport {
    MonitorSupport::Absent
}

/// Longest single wait, in cycles of the time stamp counter, after which the clock is looked at: some
/// 50 us. The kernel bounds `UMWAIT` at about as much (`umwait_control/max_time`).
#[cfg(all(target_arch = "x86_64", not(miri)))]
const SLICE_CYCLES: u32 = 100_000;

/// Sleeps by monitoring a line. The core is free for its other hyperthread and saves power, but
/// is not given to other threads: for dedicated cores.
#[derive(Debug)]
#[repr(align(128))]
pub struct MonitorSleeper {
    token: AtomicU32,
    by: MonitorSupport,
}

impl MonitorSleeper {
    /// A sleeper by whichever instruction there is.
    ///
    /// # Errors
    /// [`MonitorAbsent`] where there is none: take another sleeper, and say so.
    pub fn new() -> Result<Self, MonitorAbsent> {
        match monitor_support() {
            MonitorSupport::Absent => Err(MonitorAbsent),
            by => Ok(Self { token: AtomicU32::new(0), by }),
        }
    }

    /// Which instruction it uses.
    pub fn by(&self) -> MonitorSupport {
        self.by
    }

    /// One bounded wait. Returns early for many reasons.
    fn wait_slice(&self, token: u32) {
        #[cfg(all(target_arch = "x86_64", not(miri)))]
        match self.by {
            // SAFETY: CPUID says that the instructions exist; the address is our own token's.
            MonitorSupport::Umwait => unsafe { self.umwait(token) },
            // SAFETY: as above.
            MonitorSupport::Mwaitx => unsafe { self.mwaitx(token) },
            MonitorSupport::Absent => core::hint::spin_loop(),
        }
        #[cfg(not(all(target_arch = "x86_64", not(miri))))]
        if self.token() == token {
            core::hint::spin_loop();
        }
    }

    /// # Safety
    /// The processor has `UMONITOR` and `UMWAIT`.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe fn umwait(&self, token: u32) {
        use core::arch::{asm, x86_64::_rdtsc};
        let address = self.token.as_ptr();
        // SAFETY: monitoring only reads the line, which lives as long as `self`.
        unsafe { asm!("umonitor {0}", in(reg) address, options(nostack, preserves_flags)) };
        // A write between the last look and the monitor would be missed: look again.
        if self.token() != token {
            return;
        }
        // SAFETY: reading the time stamp counter has no effect.
        let deadline = unsafe { _rdtsc() }.wrapping_add(u64::from(SLICE_CYCLES));
        // Control 1: the lighter state, C0.1, which ends sooner.
        // SAFETY: waits at most until the deadline; changes the carry flag only.
        unsafe {
            asm!("umwait {0:e}", in(reg) 1u32, in("edx") (deadline >> 32) as u32, in("eax") deadline as u32,
                options(nostack));
        }
    }

    /// # Safety
    /// The processor has `MONITORX` and `MWAITX`.
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    unsafe fn mwaitx(&self, token: u32) {
        use core::arch::asm;
        let address = self.token.as_ptr();
        // SAFETY: monitoring only reads the line, which lives as long as `self`.
        unsafe {
            asm!("monitorx", in("rax") address, in("ecx") 0u32, in("edx") 0u32,
                options(nostack, preserves_flags));
        }
        // A write between the last look and the monitor would be missed: look again.
        if self.token() != token {
            return;
        }
        // EAX 0xf0: stay in C0. ECX bit 1: EBX is a bound in cycles. The compiler keeps RBX for
        // itself, so it is exchanged for the moment.
        // SAFETY: waits at most so many cycles; RBX has its value back afterwards.
        unsafe {
            asm!("xchg {0}, rbx", "mwaitx", "xchg {0}, rbx", inout(reg) u64::from(SLICE_CYCLES) => _,
                in("eax") 0xf0u32, in("ecx") 2u32, options(nostack, preserves_flags));
        }
    }
}

impl Sleeper for MonitorSleeper {
    fn token(&self) -> u32 {
        self.token.load(Ordering::Acquire)
    }

    fn sleep(&self, token: u32, timeout: Option<Duration>) {
        let deadline = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
        while self.token() == token && deadline.is_none_or(|end| Instant::now() < end) {
            self.wait_slice(token);
        }
    }

    fn wake(&self) {
        // The write itself ends the wait.
        self.token.fetch_add(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_absent_is_refused_in_words_and_what_is_there_wakes() {
        match (monitor_support(), MonitorSleeper::new()) {
            (MonitorSupport::Absent, refused) => {
                let text = refused.expect_err("there is none").to_string();
                assert!(text.contains("UMWAIT") && text.contains("futex"), "{text}");
            }
            (by, sleeper) => {
                let sleeper = sleeper.expect("the processor has it");
                assert_eq!(sleeper.by(), by);
                let token = sleeper.token();
                std::thread::scope(|scope| {
                    scope.spawn(|| sleeper.wake());
                    sleeper.sleep(token, Some(Duration::from_secs(20)));
                });
                assert_ne!(sleeper.token(), token);
            }
        }
    }

    /// The loop around the instruction, with no instruction at all.
    #[test]
    fn a_sleep_ends_by_its_deadline_and_by_a_wake_up() {
        let sleeper = MonitorSleeper { token: AtomicU32::new(5), by: MonitorSupport::Absent };
        let start = Instant::now();
        sleeper.sleep(5, Some(Duration::from_millis(2)));
        assert!(start.elapsed() >= Duration::from_millis(2));
        sleeper.wake();
        sleeper.sleep(5, None);
        assert_eq!(sleeper.token(), 6);
    }
}
