//! An epoll set: what it watches, and what may be ready.
//!
//! As Linux does, the set keeps a list of items that may be ready. A socket whose state changes puts its items there, and
//! `epoll_wait` looks at what is in the list and at nothing else.

use alloc::collections::{BTreeMap, VecDeque};

use crate::readiness::events::{ERR, HUP};

/// Edge-triggered: reported once for each change.
pub const EPOLLET: u32 = 1 << 31;
/// Reported once, until it is asked for anew.
pub const EPOLLONESHOT: u32 = 1 << 30;
/// Accepted without effect: nothing here suspends.
pub const EPOLLWAKEUP: u32 = 1 << 29;
/// Of several sets that watch a socket, one is woken.
pub const EPOLLEXCLUSIVE: u32 = 1 << 28;

/// One report.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct EpollEvent {
    /// What is ready, or what is asked for.
    pub events: u32,
    /// The application's own word.
    pub data: u64,
}

/// A socket that is watched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item {
    pub wanted: EpollEvent,
    /// It is in the list.
    pub is_listed: bool,
    /// It was reported, and is not to be until it is asked for anew.
    pub is_spent: bool,
}

/// See the module's comment. Sockets go by their slots.
#[derive(Debug, Default)]
pub(crate) struct EpollSet {
    pub items: BTreeMap<u32, Item>,
    pub list: VecDeque<u32>,
}

impl EpollSet {
    /// Whether one of these bits of a socket is watched for.
    pub fn wants(&self, socket: u32, bits: u32) -> bool {
        let item = self.items.get(&socket);
        item.is_some_and(|item| (item.wanted.events | ERR | HUP) & bits != 0)
    }

    /// A socket's state changed: it may be ready.
    pub fn note(&mut self, socket: u32) {
        if let Some(item) = self.items.get_mut(&socket)
            && !core::mem::replace(&mut item.is_listed, true)
        {
            self.list.push_back(socket);
        }
    }

    /// Whether a socket is watched so that of several sets one is woken.
    pub fn is_exclusive(&self, socket: u32) -> bool {
        let item = self.items.get(&socket);
        item.is_some_and(|item| item.wanted.events & EPOLLEXCLUSIVE != 0)
    }

    /// A socket is watched no more.
    pub fn forget(&mut self, socket: u32) {
        if self.items.remove(&socket).is_some_and(|item| item.is_listed) {
            self.list.retain(|listed| *listed != socket);
        }
    }

    /// Reports what is ready, at most `most`; `readiness` says what a socket is ready for. Level-triggered items stay in the
    /// list, behind the others.
    pub fn report(
        &mut self,
        most: usize,
        readiness: impl Fn(u32) -> u32,
        mut report: impl FnMut(EpollEvent),
    ) -> usize {
        let mut reported = 0;
        for _ in 0..self.list.len() {
            if reported == most {
                break;
            }
            let Some(socket) = self.list.pop_front() else { break };
            let Some(item) = self.items.get_mut(&socket) else { continue };
            let EpollEvent { events, data } = item.wanted;
            let found = readiness(socket) & (events | ERR | HUP);
            item.is_listed = false;
            if found == 0 || item.is_spent {
                continue;
            }
            report(EpollEvent { events: found, data });
            reported += 1;
            if events & EPOLLONESHOT != 0 {
                item.is_spent = true;
            } else if events & EPOLLET == 0 {
                item.is_listed = true;
                self.list.push_back(socket);
            }
        }
        reported
    }

    /// Whether something is ready.
    pub fn is_ready(&self, readiness: impl Fn(u32) -> u32) -> bool {
        self.list.iter().any(|socket| {
            self.items.get(socket).is_some_and(|item| {
                let wanted = item.wanted.events | ERR | HUP;
                !item.is_spent && readiness(*socket) & wanted != 0
            })
        })
    }
}
