//! Classes of connections: which port's connections are how urgent, and how urgency is honoured.
//!
//! ```
//! use dataplane::{Classes, ServicePolicy};
//! # fn main() -> Result<(), dataplane::ClassError> {
//! let classes = Classes::new(ServicePolicy::StrictPriority).port(11_211, 0)?.port(7_070, 1)?.others(2)?;
//! assert_eq!((classes.of_port(11_211), classes.of_port(80), classes.count()), (0, 2, 3));
//! # Ok(()) }
//! ```

use alloc::sync::Arc;
use alloc::vec::Vec;

use domain::{EventRecord, Handle};
use shuffle::{MAX_CLASSES, ServicePolicy, SetError};
use stack::FLOW_GROUPS;

/// Why classes cannot be as they were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ClassError {
    /// There is no such class.
    #[error("class {class}: allowed are 0, the most urgent, to {}", MAX_CLASSES - 1)]
    OutOfRange {
        /// What was asked for.
        class: u8,
    },
    /// A port's connections are of one class.
    #[error("port {port} is of class {first} and of class {second}: name it once")]
    PortTwice {
        /// The port.
        port: u16,
        /// As it was named first.
        first: u8,
        /// And then.
        second: u8,
    },
    /// A class that would never be served.
    #[error("class {class} has weight 0: allowed are 1 and more")]
    ZeroWeight {
        /// The class.
        class: u8,
    },
    /// The set could not be made.
    #[error("the ready set cannot be made: {0}")]
    Set(#[from] SetError),
}

/// Which connections are of which class (0 is the most urgent), and which class is served next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Classes {
    policy: ServicePolicy,
    /// In the order of ports. Looked up when a connection begins.
    ports: Vec<(u16, u8)>,
    others: u8,
    weights: [u32; MAX_CLASSES],
}

impl Default for Classes {
    /// One class, for all connections.
    fn default() -> Self {
        Self::new(ServicePolicy::StrictPriority)
    }
}

fn checked(class: u8) -> Result<u8, ClassError> {
    if usize::from(class) < MAX_CLASSES { Ok(class) } else { Err(ClassError::OutOfRange { class }) }
}

impl Classes {
    /// All connections are of class 0.
    pub fn new(policy: ServicePolicy) -> Self {
        Self { policy, ports: Vec::new(), others: 0, weights: [1; MAX_CLASSES] }
    }

    /// Connections that come in at local port `port` are of this class.
    ///
    /// # Errors
    /// [`ClassError::OutOfRange`], [`ClassError::PortTwice`].
    pub fn port(mut self, port: u16, class: u8) -> Result<Self, ClassError> {
        let class = checked(class)?;
        match self.ports.binary_search_by_key(&port, |&(port, _)| port) {
            Ok(at) => {
                let first = self.ports[at].1;
                Err(ClassError::PortTwice { port, first, second: class })
            }
            Err(at) => {
                self.ports.insert(at, (port, class));
                Ok(self)
            }
        }
    }

    /// Connections of all other ports, and those that the application opens itself, are of this class.
    ///
    /// # Errors
    /// [`ClassError::OutOfRange`].
    pub fn others(mut self, class: u8) -> Result<Self, ClassError> {
        self.others = checked(class)?;
        Ok(self)
    }

    /// How many turns of a class are taken in a row under [`ServicePolicy::WeightedRoundRobin`]; 1 where
    /// nothing was said.
    ///
    /// # Errors
    /// [`ClassError::OutOfRange`], [`ClassError::ZeroWeight`].
    pub fn weight(mut self, class: u8, weight: u32) -> Result<Self, ClassError> {
        let at = usize::from(checked(class)?);
        if weight == 0 {
            return Err(ClassError::ZeroWeight { class });
        }
        self.weights[at] = weight;
        Ok(self)
    }

    /// The class of connections that come in at `port`.
    pub fn of_port(&self, port: u16) -> u8 {
        let found = self.ports.binary_search_by_key(&port, |&(port, _)| port);
        found.map_or(self.others, |at| self.ports[at].1)
    }

    /// Classes that connections can be of, counted up from 0.
    pub fn count(&self) -> usize {
        let highest = self.ports.iter().map(|&(_, class)| class).max();
        usize::from(highest.map_or(self.others, |highest| highest.max(self.others))) + 1
    }

    /// Which class is served next.
    pub fn policy(&self) -> ServicePolicy {
        self.policy
    }

    /// By class: see [`weight`](Self::weight).
    pub fn weights(&self) -> &[u32; MAX_CLASSES] {
        &self.weights
    }
}

/// The classes of one home core's connections: a byte for each slot of its flow groups, learned from the
/// event with which a connection begins, since later ones do not tell the port.
#[derive(Debug)]
pub(crate) struct ClassTable {
    classes: Arc<Classes>,
    /// By flow group and slot; those beyond, and all where there is one class, are of `others`.
    of: Vec<Vec<u8>>,
}

impl ClassTable {
    /// The table of a core without connections.
    pub fn new(classes: Arc<Classes>) -> Self {
        // With one class there is nothing to be learned.
        let groups = if classes.count() > 1 { FLOW_GROUPS } else { 0 };
        Self { classes, of: (0..groups).map(|_| Vec::new()).collect() }
    }

    /// The class of the connection that an event is about, of which it may be the first.
    #[inline]
    pub fn class_of(&mut self, record: &EventRecord) -> u8 {
        match *record {
            EventRecord::Knock { handle, local, .. } => {
                self.learn(handle, self.classes.of_port(local.port()))
            }
            // The slot may have been another connection's.
            EventRecord::Connected { handle, .. } => self.learn(handle, self.classes.others),
            // Nobody's are for their home only, which serves its own turns first.
            _ => record.connection().map_or(0, |handle| self.known(handle)),
        }
    }

    #[inline]
    fn known(&self, handle: Handle) -> u8 {
        let group = self.of.get(usize::from(handle.group()));
        group
            .and_then(|slots| slots.get(handle.slot() as usize))
            .copied()
            .unwrap_or(self.classes.others)
    }

    /// Takes a flow group's classes out: it leaves.
    pub fn take(&mut self, group: u16) -> Vec<u8> {
        self.of.get_mut(usize::from(group)).map(core::mem::take).unwrap_or_default()
    }

    /// Puts a flow group's classes in: it has come.
    pub fn put(&mut self, group: u16, classes: Vec<u8>) {
        if let Some(of) = self.of.get_mut(usize::from(group)) {
            *of = classes;
        }
    }

    /// Once for a connection; allocates where it is the first in its slot.
    fn learn(&mut self, handle: Handle, class: u8) -> u8 {
        if self.known(handle) != class
            && let Some(slots) = self.of.get_mut(usize::from(handle.group()))
        {
            let slot = handle.slot() as usize;
            if slots.len() <= slot {
                slots.resize(slot + 1, self.classes.others);
            }
            slots[slot] = class;
        }
        class
    }
}

#[cfg(test)]
mod tests {
    use domain::Cookie;
    use wire::{Endpoint, Ipv4Addr};

    use super::*;

    #[test]
    fn senseless_classes_are_refused_and_the_text_says_what_is_allowed() {
        let classes = || Classes::new(ServicePolicy::WeightedRoundRobin);
        let out = classes().port(80, 8).expect_err("there are eight");
        assert_eq!(out, ClassError::OutOfRange { class: 8 });
        assert_eq!(out.to_string(), "class 8: allowed are 0, the most urgent, to 7");
        assert!(classes().others(9).is_err() && classes().weight(8, 1).is_err());
        let named = classes().port(80, 1).expect("fine").port(443, 0).expect("fine");
        let twice = named.port(80, 2).expect_err("named before");
        assert_eq!(twice.to_string(), "port 80 is of class 1 and of class 2: name it once");
        let none = classes().weight(3, 0).expect_err("never served");
        assert_eq!(none.to_string(), "class 3 has weight 0: allowed are 1 and more");
    }

    #[test]
    fn a_connection_is_of_its_ports_class_until_the_slot_is_anothers() {
        let classes = Classes::default().port(7, 1).expect("fine").others(2).expect("fine");
        let mut table = ClassTable::new(Arc::new(classes));
        let peer = Endpoint::new(Ipv4Addr::new(10, 0, 0, 1), 9);
        let window = domain::FirstWindow::new(100);
        let knock =
            |handle, port: u16| EventRecord::Knock { handle, local: port.into(), peer, window };
        let sent = |handle| EventRecord::Sent { handle, cookie: Cookie(0), bytes: 1, window: 100 };
        let (first, other) = (Handle::new(3, 5, 1), Handle::new(4, 5, 1));
        assert_eq!(table.class_of(&sent(first)), 2, "nobody has heard of it");
        assert_eq!(table.class_of(&knock(first, 7)), 1);
        assert_eq!(table.class_of(&knock(other, 8)), 2);
        assert_eq!((table.class_of(&sent(first)), table.class_of(&sent(other))), (1, 2));
        let next = Handle::new(3, 5, 2);
        let connected = EventRecord::Connected {
            cookie: Cookie(0),
            local: 7.into(),
            handle: next,
            window: 100,
        };
        assert_eq!((table.class_of(&connected), table.class_of(&sent(next))), (2, 2));
        // Bits that name no flow group are nobody's.
        assert_eq!(table.class_of(&sent(Handle::from_bits(u64::MAX))), 2);
    }

    #[test]
    fn with_one_class_nothing_is_kept() {
        let mut table = ClassTable::new(Arc::new(Classes::default()));
        let (handle, peer) = (Handle::new(3, 5, 1), Endpoint::new(Ipv4Addr::new(10, 0, 0, 1), 9));
        let window = domain::FirstWindow::new(100);
        let knock = EventRecord::Knock { handle, local: 7.into(), peer, window };
        assert_eq!((table.class_of(&knock), table.of.len()), (0, 0));
    }

    #[test]
    fn classes_move_with_their_flow_group() {
        let classes =
            Arc::new(Classes::default().port(7, 1).expect("fine").others(2).expect("fine"));
        let (mut old, mut new) = (ClassTable::new(Arc::clone(&classes)), ClassTable::new(classes));
        let (handle, stays) = (Handle::new(3, 5, 1), Handle::new(4, 5, 1));
        let peer = Endpoint::new(Ipv4Addr::new(10, 0, 0, 1), 9);
        for handle in [handle, stays] {
            let window = domain::FirstWindow::new(100);
            old.class_of(&EventRecord::Knock { handle, local: 7.into(), peer, window });
        }
        new.put(3, old.take(3));
        let of = |table: &mut ClassTable, handle| {
            table.class_of(&EventRecord::Eof { handle, cookie: Cookie(0) })
        };
        assert_eq!((of(&mut new, handle), of(&mut new, stays)), (1, 2));
        // A group that comes back begins with what it brings.
        assert_eq!((of(&mut old, handle), of(&mut old, stays)), (2, 1));
    }
}
