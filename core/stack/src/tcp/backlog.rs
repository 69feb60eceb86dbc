//! How many connections of each listening port are not the application's yet.

use alloc::vec::Vec;

use crate::ports::OpenPorts;

/// The connections of one port that are not the application's yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Backlog {
    /// Recorded and not open (`half_open`).
    pub half_open: u32,
    /// Open and not accepted.
    pub unaccepted: u32,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    port: u16,
    /// The port's opening that they are of (`OpenPorts::opening`).
    opening: u16,
    backlog: Backlog,
}

/// Those of all ports that have some, by port: a sorted list, so that a SYN to one of many ports searches few.
#[derive(Debug, Default)]
pub(crate) struct Backlogs(Vec<Entry>);

impl Backlogs {
    fn find(&self, port: u16) -> Result<usize, usize> {
        self.0.binary_search_by_key(&port, |entry| entry.port)
    }

    /// Of a port.
    pub fn of(&self, port: u16) -> Backlog {
        self.find(port).map_or_else(|_| Backlog::default(), |at| self.0[at].backlog)
    }

    /// Changes that of a port, whose opening this is where it has none yet.
    pub fn change(&mut self, port: u16, opening: u16, change: impl FnOnce(&mut Backlog)) {
        let at = self.find(port).unwrap_or_else(|at| {
            self.0.insert(at, Entry { port, opening, backlog: Backlog::default() });
            at
        });
        let Entry { backlog, .. } = &mut self.0[at];
        change(backlog);
        if *backlog == Backlog::default() {
            self.0.remove(at);
        }
    }

    /// Whether those of a port are of an opening that is over.
    pub fn is_over(&self, port: u16, ports: &OpenPorts) -> bool {
        self.find(port).is_ok_and(|at| !ports.is_open_since(port, self.0[at].opening))
    }

    /// Whether those of any port are.
    pub fn is_any_over(&self, ports: &OpenPorts) -> bool {
        self.0.iter().any(|entry| !ports.is_open_since(entry.port, entry.opening))
    }

    /// Half-open connections of all ports.
    pub fn half_open(&self) -> u32 {
        self.0.iter().map(|entry| entry.backlog.half_open).sum()
    }

    /// Those of a flow group come to this core.
    pub fn add(&mut self, group: &Self) {
        for &Entry { port, opening, backlog } in &group.0 {
            self.change(port, opening, |sum| {
                sum.half_open += backlog.half_open;
                sum.unaccepted += backlog.unaccepted;
            });
        }
    }

    /// Those of a flow group leave this core.
    pub fn subtract(&mut self, group: &Self) {
        for &Entry { port, opening, backlog } in &group.0 {
            self.change(port, opening, |sum| {
                sum.half_open -= backlog.half_open;
                sum.unaccepted -= backlog.unaccepted;
            });
        }
    }
}
