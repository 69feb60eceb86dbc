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

/// Those of all ports, by their places in the configuration.
#[derive(Debug, Default)]
pub(crate) struct Backlogs(Vec<Backlog>);

impl Backlogs {
    /// Of the port at a place.
    pub fn of(&self, place: usize) -> Backlog {
        self.0.get(place).copied().unwrap_or_default()
    }

    /// The same, to be changed.
    pub fn of_mut(&mut self, place: usize) -> &mut Backlog {
        if self.0.len() <= place {
            self.0.resize_with(place + 1, Backlog::default);
        }
        &mut self.0[place]
    }

    /// Half-open connections of all ports.
    pub fn half_open(&self) -> u32 {
        self.0.iter().map(|backlog| backlog.half_open).sum()
    }

    /// Those of a flow group come to this core.
    pub fn add(&mut self, group: &Self) {
        for (place, backlog) in group.0.iter().enumerate() {
            let sum = self.of_mut(place);
            sum.half_open += backlog.half_open;
            sum.unaccepted += backlog.unaccepted;
        }
    }

    /// Those of a flow group leave this core.
    pub fn subtract(&mut self, group: &Self) {
        for (sum, backlog) in self.0.iter_mut().zip(&group.0) {
            sum.half_open -= backlog.half_open;
            sum.unaccepted -= backlog.unaccepted;
        }
    }
}
