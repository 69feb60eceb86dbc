//! Waiting for sockets with nanosecond deadlines, or without waiting at all.
//!
//! `epoll_wait` takes whole milliseconds, which is far coarser than the gap between two requests; a
//! timerfd among the sockets ends the wait exactly.

use std::os::fd::{AsFd, OwnedFd};

use rustix::event::Timespec;
use rustix::event::epoll::{self, CreateFlags, Event, EventData, EventFlags};
use rustix::io::Errno;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};

use super::config::Wait;
use crate::error::LoadError;

/// Events of one wait: those beyond come with the next.
const EVENTS_MAX: usize = 64;
/// Longest wait, so that nothing that was overlooked stalls a run.
const WAIT_MAX_NS: u64 = 100_000_000;
/// The timer's token; sockets have others.
const TIMER: u64 = u64::MAX;

/// An epoll instance with a timer in it.
pub(super) struct Poller {
    epoll: OwnedFd,
    timer: OwnedFd,
    wait: Wait,
    armed: bool,
    events: Vec<Event>,
}

impl Poller {
    /// A poller that waits as `wait` says.
    pub fn new(wait: Wait) -> Result<Self, LoadError> {
        let epoll =
            epoll::create(CreateFlags::CLOEXEC).map_err(LoadError::system("epoll_create"))?;
        let flags = TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)
            .map_err(LoadError::system("timerfd_create"))?;
        epoll::add(&epoll, &timer, EventData::new_u64(TIMER), EventFlags::IN)
            .map_err(LoadError::system("epoll_ctl"))?;
        Ok(Self { epoll, timer, wait, armed: false, events: Vec::with_capacity(EVENTS_MAX) })
    }

    /// Watches `socket` for `interest` under `token`.
    pub fn add(&self, socket: impl AsFd, token: u64, interest: EventFlags) -> Result<(), Errno> {
        debug_assert_ne!(token, TIMER, "the timer's token is taken");
        epoll::add(&self.epoll, socket, EventData::new_u64(token), interest)
    }

    /// Changes what `socket` is watched for.
    pub fn modify(&self, socket: impl AsFd, token: u64, interest: EventFlags) -> Result<(), Errno> {
        epoll::modify(&self.epoll, socket, EventData::new_u64(token), interest)
    }

    /// Waits until a socket is ready or `wake_ns` has come, or only looks when spinning; the ready
    /// sockets' tokens and states go to `ready`.
    pub fn wait(
        &mut self,
        now_ns: u64,
        wake_ns: u64,
        ready: &mut Vec<(u64, EventFlags)>,
    ) -> Result<(), LoadError> {
        ready.clear();
        let wait_ns = match self.wait {
            Wait::Spin => 0,
            Wait::Block => wake_ns.saturating_sub(now_ns).min(WAIT_MAX_NS),
        };
        if wait_ns > 0 {
            // Setting the timer also clears an expiry that was not read.
            self.armed = true;
            self.set_timer(wait_ns)?;
        }
        let timeout =
            Timespec { tv_sec: 0, tv_nsec: if wait_ns > 0 { WAIT_MAX_NS as i64 } else { 0 } };
        self.events.clear();
        let buffer = rustix::buffer::spare_capacity(&mut self.events);
        match epoll::wait(&self.epoll, buffer, Some(&timeout)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(LoadError::system("epoll_wait")(errno)),
        }
        let mut expired = false;
        for event in &self.events {
            // Copied out: the fields of a packed struct cannot be borrowed.
            let (data, flags) = (event.data, event.flags);
            if data.u64() == TIMER {
                expired = true;
            } else {
                ready.push((data.u64(), flags));
            }
        }
        // An expiry stays visible until the timer is set again, which the next real wait does.
        if expired && wait_ns == 0 && self.armed {
            self.armed = false;
            self.set_timer(0)?;
        }
        Ok(())
    }

    fn set_timer(&self, wait_ns: u64) -> Result<(), LoadError> {
        let never = Timespec { tv_sec: 0, tv_nsec: 0 };
        let value = Timespec {
            tv_sec: (wait_ns / 1_000_000_000) as i64,
            tv_nsec: (wait_ns % 1_000_000_000) as i64,
        };
        let setting = Itimerspec { it_interval: never, it_value: value };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &setting)
            .map(drop)
            .map_err(LoadError::system("timerfd_settime"))
    }
}
