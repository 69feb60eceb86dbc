//! `poll`, and `epoll_create1`, `epoll_ctl` and `epoll_wait`.

use clock::Instant;

use crate::epoll::{
    EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT, EPOLLWAKEUP, EpollEvent, EpollSet, Item,
};
use crate::errno::Errno;
use crate::readiness::events;
use crate::sockets::{Answer, Kind, Socket, Sockets, Stop, Wait};

/// A descriptor that is polled.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct PollFd {
    /// The descriptor; a negative one is left out.
    pub descriptor: i32,
    /// What is asked for.
    pub events: u32,
    /// What is ready.
    pub found: u32,
}

/// What `epoll_ctl` does.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EpollOperation {
    /// `EPOLL_CTL_ADD`.
    Add,
    /// `EPOLL_CTL_DEL`.
    Remove,
    /// `EPOLL_CTL_MOD`.
    Change,
}

impl Sockets {
    fn blocked_until<T>(&self, until: Option<Instant>, otherwise: T) -> Answer<T> {
        match until {
            Some(until) if until <= self.now => Ok(otherwise),
            until => Err(Stop::Blocked(Wait { until, done: 0 })),
        }
    }

    /// `poll` that waits until a moment, or for ever. How many descriptors are ready.
    ///
    /// # Errors
    /// None but that it has to wait.
    pub fn poll(&mut self, polled: &mut [PollFd], until: Option<Instant>) -> Answer<usize> {
        let mut ready = 0;
        for one in &mut *polled {
            one.found = match self.table.at(one.descriptor) {
                _ if one.descriptor < 0 => 0,
                Ok(slot) => self.readiness(slot) & (one.events | events::ERR | events::HUP),
                Err(_) => events::NVAL,
            };
            ready += usize::from(one.found != 0);
        }
        if ready > 0 {
            return Ok(ready);
        }
        self.blocked_until(until, 0)
    }

    /// `epoll_create1`.
    ///
    /// # Errors
    /// `EMFILE`.
    pub fn epoll_create(&mut self) -> Answer<i32> {
        let socket = Socket::new(Kind::Epoll(EpollSet::default()), true);
        Ok(self.table.open(socket)?.0)
    }

    /// `epoll_ctl`. A set cannot watch another set (`EINVAL`).
    ///
    /// # Errors
    /// `EBADF`, `EEXIST`, `ENOENT`, `EINVAL`.
    pub fn epoll_control(
        &mut self,
        set: i32,
        operation: EpollOperation,
        descriptor: i32,
        wanted: EpollEvent,
    ) -> Answer<()> {
        let (set, slot) = (self.table.at(set)?, self.table.at(descriptor)?);
        let is_set =
            |slot| self.table.get(slot).is_some_and(|socket| matches!(socket.kind, Kind::Epoll(_)));
        if !is_set(set) || is_set(slot) {
            return Err(Errno::EINVAL.into());
        }
        let Some(Socket { kind: Kind::Epoll(items), .. }) = self.table.get_mut(set) else {
            return Err(Errno::EINVAL.into());
        };
        let is_watched = items.items.contains_key(&slot);
        let is_exclusive = wanted.events & EPOLLEXCLUSIVE != 0;
        // Linux's `EPOLLEXCLUSIVE_OK_BITS`.
        let exclusive_with = events::IN
            | events::OUT
            | events::ERR
            | events::HUP
            | EPOLLWAKEUP
            | EPOLLET
            | EPOLLEXCLUSIVE;
        let is_odd = is_exclusive
            && (operation == EpollOperation::Change
                || wanted.events & (!exclusive_with | EPOLLONESHOT) != 0);
        match operation {
            EpollOperation::Remove if is_watched => {
                items.forget(slot);
                if let Some(socket) = self.table.get_mut(slot) {
                    socket.watchers.retain(|watcher| *watcher != set);
                }
                return Ok(());
            }
            EpollOperation::Change if is_watched && items.is_exclusive(slot) => {
                return Err(Errno::EINVAL.into());
            }
            EpollOperation::Add if is_watched => return Err(Errno::EEXIST.into()),
            EpollOperation::Remove | EpollOperation::Change if !is_watched => {
                return Err(Errno::ENOENT.into());
            }
            _ if is_odd => return Err(Errno::EINVAL.into()),
            _ => {}
        }
        let is_listed = items.items.get(&slot).is_some_and(|item| item.is_listed);
        items.items.insert(slot, Item { wanted, is_listed, is_spent: false });
        items.note(slot);
        if let Some(socket) = self.table.get_mut(slot)
            && !is_watched
        {
            socket.watchers.push(set);
        }
        Ok(())
    }

    /// `epoll_wait` until a moment, or for ever: how many of `found` are filled.
    ///
    /// # Errors
    /// `EINVAL` of what is no set, or without room for a report.
    pub fn epoll_wait(
        &mut self,
        set: i32,
        found: &mut [EpollEvent],
        until: Option<Instant>,
    ) -> Answer<usize> {
        let (slot, socket) = self.find(set)?;
        let Kind::Epoll(items) = &mut socket.kind else { return Err(Errno::EINVAL.into()) };
        if found.is_empty() {
            return Err(Errno::EINVAL.into());
        }
        // Apart for a moment, as what it watches is looked at.
        let mut items = core::mem::take(items);
        let mut room = found.iter_mut();
        let reported = items.report(
            room.len(),
            |watched| self.readiness(watched),
            |event| room.next().into_iter().for_each(|place| *place = event),
        );
        if let Some(Socket { kind: Kind::Epoll(place), .. }) = self.table.get_mut(slot) {
            *place = items;
        }
        match reported {
            0 => self.blocked_until(until, 0),
            reported => Ok(reported),
        }
    }
}
