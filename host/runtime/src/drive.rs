//! The loop of one elastic thread: cycles while there is work and for a while after; then it sleeps in two phases
//! (arm every source, look once more, block) until a packet, a timer, a forwarded packet, an order or the end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clock::{Clock, MonotonicClock};
use dataplane::{Driver, Elastic, Idle, IdlePolicy, Left, Moderation, Progress};
use domain::Service;
use handshake::{ByFence, Sleepers, sources};
use nic::Nic;
use process::{NearBell, Placement};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::thread::CpuSet;
use shown::Shown;
use statseg::State;

use super::controls::{Seat, What};
use super::stage::Stage;
use super::{CoreReport, RuntimeError, system};

sources! {
    /// What a sleeping elastic thread is woken for. It looks at all of these before it blocks.
    pub(super) enum Wake {
        /// The run ends.
        Stop,
        /// The control plane has an order for the thread.
        Order,
        /// The application is done with the batch that it had; rings a [`NearBell`].
        Answer,
        /// Another thread left a turn or a packet.
        Turn,
        /// The control plane asks for a migration of flow groups.
        Migration,
        /// The device has a packet; its own descriptor becomes readable.
        Packet,
    }
}

/// For how long a thread spins that shares its processor with another one: about as long as it takes a peer that has
/// its answer to ask again.
const CROWDED_SPIN: Duration = Duration::from_micros(25);

/// A thread with a real-time priority that has not slept for so long sleeps for a [`BREATH`]: what has that priority and
/// never sleeps is taken for one that was broken into, and ended by its time limit (`RLIMIT_RTTIME`).
const AWAKE_MAX: Duration = Duration::from_secs(1);
const BREATH: Duration = Duration::from_micros(20);

/// The bit of a bell's one sleeper.
const THREAD: u64 = 1;

/// How others wake a sleeping elastic thread.
#[derive(Debug)]
pub(super) struct Bell {
    sleeper: Sleepers<AtomicU64, Wake, ByFence>,
    event: OwnedFd,
}

impl Bell {
    pub fn new() -> Result<Self, RuntimeError> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)
            .map_err(|errno| system("making an eventfd", errno))?;
        Ok(Self { sleeper: Sleepers::default(), event })
    }

    /// Called after work was left for the thread in `source`: a fence and one load where it is awake.
    #[inline]
    pub fn ring(&self, source: Wake) {
        if self.sleeper.notify(source) != 0 {
            self.end_sleep();
        }
    }

    /// Each waker writes, and none relies on another that claimed the sleeper: that one may be of lower priority, and
    /// descheduled before its system call.
    #[cold]
    fn end_sleep(&self) {
        // A full counter (nobody reads it for long) still wakes.
        let _ = rustix::io::write(&self.event, &1u64.to_ne_bytes());
    }

    /// The thread is awake again: withdraws the announcement, and takes the wake-ups that came.
    fn disarm(&self) {
        self.sleeper.disarm(THREAD);
        let mut count = [0u8; 8];
        // Nothing to read: nobody rang.
        let _ = rustix::io::read(&self.event, &mut count);
    }
}

impl Stage<'_> {
    /// Runs one cycle, which `shown` counts.
    #[inline]
    pub fn cycle<T: Elastic>(
        &self,
        now: clock::Instant,
        thread: &mut T,
        service: &mut impl Service,
        shown: &mut Shown<'_>,
    ) -> Progress {
        shown.begin(now);
        let mut progress = thread.cycle(now, &mut { self }, service);
        // Packets that cause nothing here are work, too: acknowledgments, and those of other threads.
        progress.worked |= progress.received > 0;
        shown.end(&progress);
        progress
    }

    /// Runs a thread until the end. `device` becomes readable when its queue pair has something. Answers what it has
    /// done, and its service.
    pub fn drive<T: Elastic, S: Service>(
        &self,
        core: usize,
        thread: &mut T,
        device: Option<OwnedFd>,
        service: S,
        mut shown: Shown<'_>,
    ) -> (CoreReport, S) {
        let Self { config, clock, stop, .. } = *self;
        let mut service = shown.watch(service);
        let mut idle = Idle::new(config.idle, clock.now());
        let mut moderation = Moderation::new(config.moderation, clock.now());
        let mut seat = self.hand.controls().and_then(|controls| controls.seat(core));
        let mut slept_at = clock.now();
        shown.set_state(State::Running);
        while !stop.load(Ordering::Relaxed) {
            let now = clock.now();
            let progress = self.cycle(now, thread, &mut service, &mut shown);
            if shown.is_due(now) {
                shown.copy(now, thread);
                if config.realtime.is_some() && now > slept_at + AWAKE_MAX {
                    take_breath();
                    slept_at = clock.now();
                }
            }
            if let Some(seat) = seat.as_mut().filter(|seat| seat.has_order()) {
                idle = self.obey(core, seat, thread, &shown).unwrap_or(idle);
            }
            let not_before = moderation.after_cycle(now, progress.received);
            if let Some(until) = not_before
                && !progress.pending
            {
                // What follows is no work.
                shown.wait(clock.now());
                let until = progress.next_deadline.map_or(until, |deadline| deadline.min(until));
                leave_alone(clock, until);
            }
            let rest = match self.leaves_to_others(core, &progress) {
                Some(spin) => idle.after_cycle_within(spin, now, &progress),
                None => idle.after_cycle(now, &progress),
            };
            if let Some(span) = rest {
                shown.copy(now, thread);
                let device = device.as_ref().map(AsFd::as_fd);
                self.sleep(core, thread, device, span, seat.as_ref(), &mut shown);
                slept_at = clock.now();
            }
        }
        shown.wait(clock.now());
        shown.copy(clock.now(), thread);
        (report(thread, &shown), service.service)
    }

    /// For how long the thread may spin at most, where somebody else has its processor only while it sleeps.
    #[inline]
    fn leaves_to_others(&self, core: usize, progress: &Progress) -> Option<Duration> {
        let place = self.placers.get(core)?.placed();
        match place.placement {
            // What this thread does not need is the application's.
            Placement::SameCore if progress.is_lent => Some(Duration::ZERO),
            _ => place.is_crowded.then_some(CROWDED_SPIN),
        }
    }

    /// Carries an order out. Answers how the thread idles from now on, where that changes.
    #[cold]
    fn obey<T: Elastic>(
        &self,
        core: usize,
        seat: &mut Seat<'_>,
        thread: &mut T,
        shown: &Shown<'_>,
    ) -> Option<Idle> {
        let mut errno = 0;
        let idle = match seat.take() {
            What::Grant => {
                thread.set_parked(false);
                shown.set_state(State::Running);
                Some(self.config.idle)
            }
            What::Park => {
                thread.set_parked(true);
                shown.set_state(State::Parked);
                Some(IdlePolicy { spin: Some(Duration::ZERO), ..self.config.idle })
            }
            What::Place { cpu } => {
                match run_on(cpu) {
                    Ok(()) => {
                        shown.set_processor(Some(cpu));
                        // What interrupts it belongs on the same processor.
                        self.kicks.place(core, cpu);
                    }
                    Err(refused) => errno = refused.raw_os_error(),
                }
                None
            }
        };
        seat.answer(errno);
        idle.map(|policy| Idle::new(policy, self.clock.now()))
    }

    /// Announces the sleep, looks at every source, and blocks on all of them. The network layer is free meanwhile:
    /// another thread that has nothing to do may run it, and does so before this one is awake.
    fn sleep<T: Elastic>(
        &self,
        core: usize,
        thread: &mut T,
        device: Option<BorrowedFd<'_>>,
        span: Duration,
        seat: Option<&Seat<'_>>,
        shown: &mut Shown<'_>,
    ) {
        shown.fall_asleep(self.clock.now());
        let bell = &self.bells[core];
        let caller = self.callers.get(core).and_then(Option::as_ref);
        let armed = bell.sleeper.arm(THREAD, |source| match source {
            Wake::Stop => self.stop.load(Ordering::Relaxed),
            Wake::Order => seat.is_some_and(Seat::has_order),
            Wake::Answer => caller.is_some_and(|caller| !caller.arm()),
            Wake::Turn => !thread.is_quiet(),
            Wake::Migration => thread.is_asked(),
            // The last one, which is armed only where none of the others has anything.
            Wake::Packet => !thread.arm(self.clock.now()),
        });
        if armed.is_quiet() {
            block(device, bell.event.as_fd(), caller, span);
            thread.disarm();
        }
        caller.into_iter().for_each(NearBell::disarm);
        bell.disarm();
        shown.awake(self.clock.now(), armed.is_quiet());
    }
}

impl Driver for &Stage<'_> {
    fn now(&self) -> clock::Instant {
        self.clock.now()
    }

    fn signal(&mut self, wakes: u128, kicks: u128) {
        self.ring(wakes);
        self.kicks.send(kicks);
    }
}

/// A descriptor of the thread's own for what the device has: it polls it while others have the device itself.
pub(super) fn device_fd<N: Nic>(nic: &mut N) -> Result<Option<OwnedFd>, RuntimeError> {
    let own = nic.wait_fd().map(|fd| fd.try_clone_to_owned()).transpose();
    own.map_err(|source| system("duplicating the descriptor of a queue pair", source))
}

fn report<T: Elastic>(thread: &T, shown: &Shown<'_>) -> CoreReport {
    let (sleeps, busy_ns) = shown.result();
    CoreReport {
        cycle: thread.stats(),
        stack: thread.inspect(|stack, _| stack.stats()),
        nic: thread.nic_stats(),
        migrations: thread.migrations(),
        sleeps,
        busy_ns,
        footprint: thread.inspect(|stack, _| stack.footprint()),
        left: Left::default(),
    }
}

/// Spins without a look at anything but the clock: it is tens of microseconds, and going to sleep and
/// waking up costs about as much.
fn leave_alone(clock: MonotonicClock, until: clock::Instant) {
    while clock.now() < until {
        std::hint::spin_loop();
    }
}

/// Sleeps for a moment, whatever there is to do.
#[cold]
fn take_breath() {
    let timeout = Timespec { tv_sec: 0, tv_nsec: BREATH.subsec_nanos().into() };
    // An interrupted poll is a sleep, too.
    let _ = poll(&mut [], Some(&timeout));
}

fn block(
    device: Option<BorrowedFd<'_>>,
    bell: BorrowedFd<'_>,
    caller: Option<&NearBell>,
    span: Duration,
) {
    let timeout = Timespec {
        tv_sec: span.as_secs().min(1 << 20) as i64,
        tv_nsec: span.subsec_nanos().into(),
    };
    let all = [Some(bell), device, caller.and_then(NearBell::fd)];
    let mut count = 0;
    // Those that there are, first.
    let mut asked = [bell; 3].map(|none| PollFd::from_borrowed_fd(none, PollFlags::IN));
    for fd in all.into_iter().flatten() {
        asked[count] = PollFd::from_borrowed_fd(fd, PollFlags::IN);
        count += 1;
    }
    // An interrupted poll only ends the sleep early.
    let _ = poll(&mut asked[..count], Some(&timeout));
}

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
        return Err(RuntimeError::Processor { core, cpu, allowed: allowed.join(", ") });
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
