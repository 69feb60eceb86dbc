//! The loop of one elastic thread: cycles while there is work and for a while after; then it sleeps in two phases
//! (arm every source, look once more, block) until a packet, a timer, a forwarded packet, an order or the end.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use clock::{Clock, MonotonicClock};
use dataplane::{Driver, Elastic, Idle, IdlePolicy, Left, Moderation, Progress};
use domain::Service;
use endpoint::Request;
use process::{NearBell, Placement};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use shown::Shown;
use statseg::State;

use crate::bells::{THREAD, Wake};
use crate::config::CoreReport;
use crate::controls::Seat;
use crate::processor::run_on;
use crate::stage::Stage;

/// For how long a thread spins that shares its processor with another one: about as long as it takes a peer that has
/// its answer to ask again.
const CROWDED_SPIN: Duration = Duration::from_micros(25);

/// A thread with a real-time priority that has not slept for so long sleeps for a [`BREATH`]: what has that priority and
/// never sleeps is taken for one that was broken into, and ended by its time limit (`RLIMIT_RTTIME`).
const AWAKE_MAX: Duration = Duration::from_secs(1);
const BREATH: Duration = Duration::from_micros(20);

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
        let mut seat = self.controls.and_then(|controls| controls.seat(core));
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
            Request::Grant { .. } => {
                thread.set_parked(false);
                shown.set_state(State::Running);
                Some(self.config.idle)
            }
            Request::Park { .. } => {
                thread.set_parked(true);
                shown.set_state(State::Parked);
                Some(IdlePolicy { spin: Some(Duration::ZERO), ..self.config.idle })
            }
            Request::Place { cpu, .. } => {
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
            Request::Describe | Request::Move { .. } | Request::End => None,
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
            let device = device.filter(|_| thread.takes_packets());
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
    let timeout = Timespec::try_from(span).ok();
    let all = [Some(bell), device, caller.and_then(NearBell::fd)];
    let mut count = 0;
    // Those that there are, first.
    let mut asked = [bell; 3].map(|none| PollFd::from_borrowed_fd(none, PollFlags::IN));
    for fd in all.into_iter().flatten() {
        asked[count] = PollFd::from_borrowed_fd(fd, PollFlags::IN);
        count += 1;
    }
    // An interrupted poll only ends the sleep early.
    let _ = poll(&mut asked[..count], timeout.as_ref());
}
