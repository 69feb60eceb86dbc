//! What packetdrill's threads share. One plays the script: it sends and receives packets and moves the clock. The other is
//! in a system call, and where that blocks it sleeps in the kernel, as packetdrill looks for in `/proc`.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{self, ThreadId};
use std::time::Duration as RealDuration;

use clock::{Duration, Instant};
use sockets::{Answer, Errno, Sockets, Stop};

use crate::machine::Machine;

/// Real time for which `netdev_receive` waits for another thread where no packet can come by itself.
const PATIENCE: RealDuration = RealDuration::from_secs(10);

/// Real time for which the clock stands after a call that had blocked, so that its thread can ask for the time at which the
/// call ended, as packetdrill does. One that does something else meanwhile is not waited for longer.
const GRACE: RealDuration = RealDuration::from_millis(100);

struct State {
    machine: Machine,
    /// Until when the sleeping calls wait at most, one each; `FAR_FUTURE`: for ever.
    sleeping: Vec<Instant>,
    /// Counts the times that they were woken.
    wakes: u64,
    /// Woken calls that have not looked yet.
    to_look: usize,
    /// Threads whose calls had blocked and ended, and that have not called again.
    returning: Vec<ThreadId>,
}

/// See the module's comment.
pub struct Plugin {
    state: Mutex<State>,
    /// For calls that sleep.
    woken: Condvar,
    /// For the thread that woke them.
    looked: Condvar,
}

impl Plugin {
    /// For a machine in its first moment.
    pub fn new(machine: Machine) -> Self {
        let state =
            State { machine, sleeping: Vec::new(), wakes: 0, to_look: 0, returning: Vec::new() };
        Self { state: Mutex::new(state), woken: Condvar::new(), looked: Condvar::new() }
    }

    /// Begins a call.
    fn lock(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let own = thread::current().id();
        state.returning.retain(|other| *other != own);
        self.looked.notify_all();
        state
    }

    /// Has all sleeping calls look, in the present moment: none finds a later one.
    fn wake<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if !state.sleeping.is_empty() {
            state.wakes += 1;
            state.to_look += state.sleeping.len();
            state.sleeping.clear();
            self.woken.notify_all();
        }
        while state.to_look > 0 {
            state = self.looked.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        while !state.returning.is_empty() {
            let waited = self.looked.wait_timeout(state, GRACE);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = guard;
            if timeout.timed_out() {
                state.returning.clear();
            }
        }
        state
    }

    /// Makes a call of the sockets, and sleeps for as long as it blocks.
    pub fn call<T>(&self, mut call: impl FnMut(&mut Sockets) -> Answer<T>) -> Result<T, Errno> {
        let mut state = self.lock();
        let (mut was_woken, mut is_settled) = (false, false);
        loop {
            let answer = call(&mut state.machine.sockets);
            if !matches!(answer, Err(Stop::Blocked(_))) || !is_settled {
                // What a call needs of the dataplane alone it has without that time passes.
                state.machine.settle();
            }
            let wait = match answer {
                Err(Stop::Blocked(_)) if !is_settled => {
                    is_settled = true;
                    continue;
                }
                Err(Stop::Blocked(wait)) => wait,
                Ok(value) => {
                    self.end(state, was_woken);
                    return Ok(value);
                }
                Err(Stop::Failed(errno)) => {
                    self.end(state, was_woken);
                    return Err(errno);
                }
            };
            state.sleeping.push(wait.until.unwrap_or(Instant::FAR_FUTURE));
            if was_woken {
                state.to_look -= 1;
            }
            self.looked.notify_all();
            let wakes = state.wakes;
            while state.wakes == wakes {
                state = self.woken.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            (was_woken, is_settled) = (true, false);
        }
    }

    /// A call has its result, which may be what others wait for.
    fn end<'a>(&'a self, mut state: MutexGuard<'a, State>, was_woken: bool) {
        if was_woken {
            // The thread that woke it wakes the others.
            state.to_look -= 1;
            state.returning.push(thread::current().id());
            self.looked.notify_all();
        } else {
            drop(self.wake(state));
        }
    }

    /// Time passes up to a moment, and all that is due happens on the way.
    fn advance<'a>(
        &'a self,
        mut state: MutexGuard<'a, State>,
        end: Instant,
    ) -> MutexGuard<'a, State> {
        while state.machine.now < end {
            let next = next(&state).unwrap_or(end).min(end);
            state.machine.advance_to(next);
            state = self.wake(state);
        }
        state
    }

    /// `usleep`.
    pub fn sleep(&self, duration: Duration) {
        let state = self.lock();
        let end = state.machine.now + duration;
        drop(self.advance(state, end));
    }

    /// `gettimeofday`: a microsecond passes.
    pub fn time(&self) -> Instant {
        let state = self.lock();
        let end = state.machine.now + Duration::from_micros(1);
        drop(self.advance(state, end));
        end
    }

    /// `netdev_send`: an IP packet arrives. Answers whether there was room for it.
    pub fn inject(&self, packet: &[u8]) -> bool {
        let mut state = self.lock();
        let taken = state.machine.inject(packet);
        drop(self.wake(state));
        taken
    }

    /// `netdev_receive`: the next IP packet that leaves, and when; time passes up to then. `None`: none will, whatever time
    /// passes.
    pub fn receive(&self) -> Option<(Instant, Vec<u8>)> {
        let mut state = self.lock();
        loop {
            if let Some(sent) = state.machine.sent.pop_front() {
                return Some(sent);
            }
            if let Some(next) = next(&state) {
                state.machine.advance_to(next);
                state = self.wake(state);
                continue;
            }
            // Another thread may have something to send.
            let waited = self.looked.wait_timeout(state, PATIENCE);
            let (guard, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            if timeout.timed_out() {
                return None;
            }
            state = guard;
        }
    }
}

/// When something happens by itself: in the machine, or a call that sleeps stops waiting.
fn next(state: &State) -> Option<Instant> {
    let sleeping = state.sleeping.iter().copied().filter(|until| *until < Instant::FAR_FUTURE);
    sleeping.chain(state.machine.next()).min()
}
