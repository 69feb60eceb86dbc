//! How many connections of each listening port are not the application's yet.

use alloc::vec::Vec;

/// The connections of one port that are not the application's yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// Recorded and not open (`half_open`).
    pub half_open: u32,
    /// Open and not accepted.
    pub unaccepted: u32,
}

/// Those of all ports that have some, by port: a sorted list, so that a SYN to one of many ports searches few.
#[derive(Debug, Default)]
pub(crate) struct Backlogs(Vec<(u16, Backlog)>);

impl Backlogs {
    /// Of a port.
    pub fn of(&self, port: u16) -> Backlog {
        let found = self.0.binary_search_by_key(&port, |(of, _)| *of);
        found.map_or_else(|_| Backlog::default(), |at| self.0[at].1)
    }

    /// Changes that of a port.
    pub fn change(&mut self, port: u16, change: impl FnOnce(&mut Backlog)) {
        let found = self.0.binary_search_by_key(&port, |(of, _)| *of);
        let at = found.unwrap_or_else(|at| {
            self.0.insert(at, (port, Backlog::default()));
            at
        });
        change(&mut self.0[at].1);
        if self.0[at].1 == Backlog::default() {
            self.0.remove(at);
        }
    }

    /// The ports that have some.
    pub fn ports(&self) -> impl Iterator<Item = u16> {
        self.0.iter().map(|(port, _)| *port)
    }

    /// Half-open connections of all ports.
    pub fn half_open(&self) -> u32 {
        self.0.iter().map(|(_, backlog)| backlog.half_open).sum()
    }

    /// Those of a flow group come to this core.
    pub fn add(&mut self, group: &Self) {
        for (port, backlog) in &group.0 {
            self.change(*port, |sum| {
                sum.half_open += backlog.half_open;
                sum.unaccepted += backlog.unaccepted;
            });
        }
    }

    /// Those of a flow group leave this core.
    pub fn subtract(&mut self, group: &Self) {
        for (port, backlog) in &group.0 {
            self.change(*port, |sum| {
                sum.half_open -= backlog.half_open;
                sum.unaccepted -= backlog.unaccepted;
            });
        }
    }
}
