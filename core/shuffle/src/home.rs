//! The home core's side: which of its connections have a turn under way, and what came for them meanwhile.
//!
//! A connection is *idle* (nothing here), or it is *held*: its turn stands in a shuffle queue, or some core
//! has it. What comes for a held connection gathers in its next turn, which is handed out when the present
//! one has ended. So a connection has one turn at most, and its events are seen in order.
//!
//! All of this is the home core's alone, and of whoever runs its network layer in its stead: no atomics.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::{BuildHasherDefault, Hasher};

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::ready_set::MAX_CLASSES;
use crate::sync::{Mutant, mutated};

/// What one connection has for the application, and what the application asks for in answer. It is moved
/// from core to core, and used again for another connection.
pub trait Turn {
    /// Whose it is. Numbers of different connections of one home core differ.
    fn connection(&self) -> u64;

    /// Makes it the turn of this connection, with nothing in it.
    fn begin(&mut self, connection: u64);

    /// The connection's class, below [`MAX_CLASSES`], known once something was added. Where the cores share
    /// one ready set, it is served by classes; and one whose queue is full does not hold up the others.
    fn class(&self) -> usize {
        0
    }
}

/// Spreads connections' numbers, which are no secret and not chosen by anybody outside.
#[derive(Clone, Copy, Debug, Default)]
struct Spread(u64);

impl Hasher for Spread {
    fn finish(&self) -> u64 {
        self.0
    }
    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(u64::from(byte));
        }
    }
    fn write_u64(&mut self, value: u64) {
        // The table takes the upper bits for one purpose and the lower ones for another.
        let product = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product ^ (product >> 32);
    }
}

/// A connection that is not idle. It stands in a line of `due` exactly while it has a next turn and none of its
/// turns is under way; so it stands there once.
#[derive(Debug)]
struct Held<T> {
    /// A turn of it is under way.
    out: bool,
    /// What came meanwhile.
    next: Option<Box<T>>,
}

/// The home core's connections that are not idle; see the module's comment.
pub struct Home<T> {
    held: HashMap<u64, Held<T>, BuildHasherDefault<Spread>>,
    /// By class: connections that have a turn to be handed out, in the order in which that came to be.
    due: [Vec<u64>; MAX_CLASSES],
    /// How many those are.
    due_len: usize,
    /// Turns that ended, kept for their memory.
    spare: Vec<Box<T>>,
    make: Box<dyn Fn() -> T + Send>,
}

/// Turns that are kept for their memory.
const SPARE_MAX: usize = 1_024;

impl<T: Turn> Home<T> {
    /// A home core none of whose connections has anything; `make` makes turns when there are none to be
    /// used again.
    pub fn new(make: impl Fn() -> T + Send + 'static) -> Self {
        let make = Box::new(make);
        let due = [const { Vec::new() }; MAX_CLASSES];
        Self { held: HashMap::default(), due, due_len: 0, spare: Vec::new(), make }
    }

    /// Whether all connections are idle.
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.held.is_empty()
    }

    /// Connections that are not idle: their turns wait, or are run.
    #[inline]
    pub fn held(&self) -> usize {
        self.held.len()
    }

    /// Whether some connection that is not idle is one that `is_it` says. Looks at all of those.
    pub fn holds(&self, mut is_it: impl FnMut(u64) -> bool) -> bool {
        self.held.keys().any(|&connection| is_it(connection))
    }

    /// Something came for a connection: `add` puts it into the turn that it belongs to.
    pub fn arrive(&mut self, connection: u64, add: impl FnOnce(&mut T)) {
        let Self { held, due, due_len, spare, make } = self;
        let entry = held.entry(connection).or_insert_with(|| Held { out: false, next: None });
        let is_due = entry.next.is_none() && (!entry.out || mutated(Mutant::TurnWhileHeld));
        let turn = entry.next.get_or_insert_with(|| fresh(spare, make, connection));
        add(turn);
        if is_due {
            due[line_of(&**turn)].push(connection);
            *due_len += 1;
        }
    }

    /// Hands out every turn that is due, of each class the oldest first. Of a class of which `hand_out`
    /// does not take one, that one and those behind it stay due.
    pub fn hand_out(&mut self, mut hand_out: impl FnMut(Box<T>) -> Result<(), Box<T>>) {
        let Self { held, due, due_len, .. } = self;
        for line in due.iter_mut().filter(|line| !line.is_empty()) {
            let mut handed = 0;
            for &connection in &*line {
                let due = held
                    .get_mut(&connection)
                    .filter(|entry| !entry.out || mutated(Mutant::TurnWhileHeld));
                let Some((entry, turn)) =
                    due.and_then(|entry| entry.next.take().map(|turn| (entry, turn)))
                else {
                    debug_assert!(mutated(Mutant::TurnWhileHeld), "{connection} is not due");
                    handed += 1;
                    continue;
                };
                // Before another core can take the turn, run it, and send it back.
                entry.out = true;
                if let Err(turn) = hand_out(turn) {
                    (entry.out, entry.next) = (false, Some(turn));
                    break;
                }
                handed += 1;
            }
            line.drain(..handed);
            *due_len -= handed;
        }
    }

    /// Whether turns wait to be handed out.
    #[inline]
    pub fn has_due(&self) -> bool {
        self.due_len > 0
    }

    /// A turn has ended, and all that the application asked for in it was done. If more came meanwhile, the
    /// connection's next turn is due; else it is idle.
    pub fn finish(&mut self, turn: Box<T>) {
        self.release(turn.connection());
        if self.spare.len() < SPARE_MAX {
            self.spare.push(turn);
        }
    }

    /// Takes out every turn that was not handed out, due or not: nothing is to come any more.
    pub fn drain(&mut self) -> impl Iterator<Item = Box<T>> + '_ {
        self.due.iter_mut().for_each(Vec::clear);
        self.due_len = 0;
        self.held.drain().filter_map(|(_, held)| held.next)
    }

    /// Holds a connection that is idle, for a turn that is not made of a [`Turn`]: what comes for it gathers until
    /// it is [`release`](Self::release)d. Returns whether this call holds it: false, and without effect, where the
    /// connection was not idle. Each hold is released once.
    #[must_use]
    pub fn hold(&mut self, connection: u64) -> bool {
        match self.held.entry(connection) {
            Entry::Occupied(_) => false,
            Entry::Vacant(idle) => {
                idle.insert(Held { out: true, next: None });
                true
            }
        }
    }

    /// Ends what [`hold`](Self::hold) began. Without effect on a connection of which no turn is under way.
    pub fn release(&mut self, connection: u64) {
        let Some(entry) = self.held.get_mut(&connection) else { return };
        if !entry.out && !mutated(Mutant::TurnWhileHeld) {
            return;
        }
        let Some(next) = &entry.next else {
            self.held.remove(&connection);
            return;
        };
        entry.out = false;
        if !mutated(Mutant::TurnWhileHeld) {
            self.due[line_of(&**next)].push(connection);
            self.due_len += 1;
        }
    }
}

/// The line in which a connection's next turn waits to be handed out.
fn line_of(turn: &impl Turn) -> usize {
    debug_assert!(turn.class() < MAX_CLASSES, "class {}", turn.class());
    turn.class().min(MAX_CLASSES - 1)
}

impl<T> core::fmt::Debug for Home<T> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Home").field("held", &self.held.len()).field("due", &self.due_len).finish()
    }
}

fn fresh<T: Turn>(spare: &mut Vec<Box<T>>, make: &dyn Fn() -> T, connection: u64) -> Box<T> {
    let mut turn = spare.pop().unwrap_or_else(|| Box::new(make()));
    turn.begin(connection);
    turn
}

#[cfg(all(test, not(loom)))]
mod tests {
    use alloc::collections::{BTreeMap, BTreeSet, VecDeque};

    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Default)]
    struct Numbers {
        connection: u64,
        numbers: Vec<u32>,
    }

    impl Turn for Numbers {
        fn connection(&self) -> u64 {
            self.connection
        }
        fn begin(&mut self, connection: u64) {
            self.connection = connection;
            self.numbers.clear();
        }
    }

    /// What happens: something comes for a connection, turns are handed out as far as there is room, the
    /// n-th turn under way ends, a connection is held or released, also where that has no effect.
    #[derive(Clone, Debug)]
    enum Step {
        Arrive(u64),
        HandOut(usize),
        Finish(usize),
        Hold(u64),
        Release(u64),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (0..5u64).prop_map(Step::Arrive),
            (0..4usize).prop_map(Step::HandOut),
            (0..6usize).prop_map(Step::Finish),
            (0..5u64).prop_map(Step::Hold),
            (0..5u64).prop_map(Step::Release),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 8 } else { 256 },
            ..ProptestConfig::default()
        })]

        #[test]
        fn what_comes_is_seen_once_in_order_by_one_at_a_time(
            steps in prop::collection::vec(step(), 0..200),
        ) {
            let mut home = Home::new(Numbers::default);
            let mut under_way: VecDeque<Box<Numbers>> = VecDeque::new();
            let (mut came, mut seen) = (BTreeMap::<u64, u32>::new(), BTreeMap::<u64, u32>::new());
            let mut holding = BTreeSet::new();
            let mut see = |turn: &Numbers| {
                for &number in &turn.numbers {
                    let next = seen.entry(turn.connection).or_default();
                    assert_eq!(number, *next, "connection {}", turn.connection);
                    *next += 1;
                }
            };
            for step in steps {
                match step {
                    Step::Arrive(connection) => {
                        let number = came.entry(connection).or_default();
                        home.arrive(connection, |turn| turn.numbers.push(*number));
                        *number += 1;
                    }
                    Step::HandOut(mut room) => home.hand_out(|turn| {
                        if room == 0 {
                            return Err(turn);
                        }
                        room -= 1;
                        let connection = turn.connection;
                        assert!(under_way.iter().all(|other| other.connection != connection));
                        assert!(!holding.contains(&connection), "{connection} is held");
                        under_way.push_back(turn);
                        Ok(())
                    }),
                    Step::Hold(connection) => {
                        if home.hold(connection) {
                            holding.insert(connection);
                        }
                    }
                    Step::Release(connection) => {
                        // One that a turn has is released by the turn's end alone.
                        if under_way.iter().all(|turn| turn.connection != connection) {
                            home.release(connection);
                            holding.remove(&connection);
                        }
                    }
                    Step::Finish(which) => {
                        if let Some(turn) = under_way.remove(which) {
                            see(&turn);
                            home.finish(turn);
                        }
                    }
                }
            }
            holding.into_iter().for_each(|connection| home.release(connection));
            while home.has_due() || !under_way.is_empty() {
                home.hand_out(|turn| {
                    under_way.push_back(turn);
                    Ok(())
                });
                if let Some(turn) = under_way.pop_front() {
                    see(&turn);
                    home.finish(turn);
                }
            }
            prop_assert_eq!(came, seen);
            prop_assert!(home.is_idle());
        }
    }

    /// A connection's class is its number's last bit.
    #[derive(Debug, Default)]
    struct Classed(u64);

    impl Turn for Classed {
        fn connection(&self) -> u64 {
            self.0
        }
        fn begin(&mut self, connection: u64) {
            self.0 = connection;
        }
        fn class(&self) -> usize {
            self.0 as usize % 2
        }
    }

    #[test]
    fn a_class_that_is_not_taken_holds_no_other_up() {
        let mut home = Home::new(Classed::default);
        for connection in [1, 3, 2, 5, 4] {
            home.arrive(connection, |_| {});
        }
        let mut taken = Vec::new();
        home.hand_out(|turn| match turn.class() {
            1 => Err(turn),
            _ => {
                taken.push(turn.0);
                Ok(())
            }
        });
        assert_eq!((&taken[..], home.has_due()), (&[2, 4][..], true));
        home.hand_out(|turn| {
            taken.push(turn.0);
            Ok(())
        });
        assert_eq!((&taken[..], home.has_due()), (&[2, 4, 1, 3, 5][..], false));
    }

    /// A queue without room between two releases of one connection must not let a second turn out.
    #[test]
    fn a_connection_that_is_released_twice_has_one_turn_under_way() {
        let mut home = Home::new(Numbers::default);
        assert!(home.hold(7));
        assert!(!home.hold(7), "it is held");
        home.arrive(7, |turn| turn.numbers.push(0));
        home.release(7);
        home.arrive(8, |turn| turn.numbers.push(0));
        home.release(7);
        let mut under_way = Vec::new();
        // Room for the first turn alone.
        home.hand_out(|turn| match under_way.is_empty() {
            true => {
                under_way.push(turn);
                Ok(())
            }
            false => Err(turn),
        });
        home.arrive(7, |turn| turn.numbers.push(1));
        home.hand_out(|turn| {
            under_way.push(turn);
            Ok(())
        });
        let connections: Vec<u64> = under_way.iter().map(|turn| turn.connection).collect();
        assert_eq!(connections, [7, 8]);
    }

    #[test]
    fn what_comes_for_a_held_connection_waits_until_it_is_released() {
        let mut home = Home::new(Numbers::default);
        assert!(home.hold(7));
        home.arrive(7, |turn| turn.numbers.push(1));
        home.hand_out(|_| panic!("it is held"));
        home.release(7);
        let mut taken = Vec::new();
        home.hand_out(|turn| {
            taken.push(turn);
            Ok(())
        });
        let turn = taken.pop().expect("it is due");
        assert_eq!((turn.connection, &turn.numbers[..], home.is_idle()), (7, &[1][..], false));
        home.finish(turn);
        assert!(home.is_idle());
    }
}
