//! The specification in `spec/qwait/ReadySet.tla`, action by action under the same names, and a
//! checker that visits every state of small instances.
//!
//! Checked in every state: at most one consumer serves a queue; nothing is taken that was not rung
//! for; a disabled queue is not newly picked. A state without a successor must have nothing left to
//! do, else a wake-up was lost. And from every state one with all work done can be reached. Memory is
//! sequentially consistent here; what weaker memory does is loom's part.

#![cfg(not(any(loom, miri)))]

use std::collections::{HashMap, VecDeque};

const QUEUES: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Exclusive,
    /// Exclusive, without ready bits: "ready" is what the doorbells say. The bit of a queue is left only
    /// for the activation that comes with adding it, and only the consumer clears it.
    Direct,
    Shared,
}

/// What a specification leaves out, to see that the checker finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Flaw {
    None,
    /// The exclusive consumer does not look at the doorbell after the clear.
    NoRecheck,
    /// A consumer sleeps without a look after its announcement.
    NoRescan,
    /// A producer looks for sleepers before it sets the bit; without bits, before it rings.
    WakeBeforeSet,
    /// Without ready bits, the look before sleep is at the bits alone.
    NoDirectLook,
    /// Enabling a queue wakes nobody.
    EnableWakesNobody,
    /// The token is read after the look, so that a wake-up in between is forgotten.
    TokenTooLate,
    /// A claimant does not take the doorbell, while late producers set stray bits.
    NoOwner,
    /// Reactivating a queue wakes nobody: a sleeper stays asleep while a queue waits for a consumer
    /// that may be busy with a long item.
    ReactivateWakesNobody,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Producer {
    Idle,
    /// The doorbell had said zero: the bit is to be set.
    Set(u8),
    /// The bit is set: is somebody asleep?
    Wake,
    /// Only with `WakeBeforeSet`.
    WakeThenSet(u8),
    /// The same without bits: the wake-up is done.
    WokenThenRing(u8),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Consumer {
    Look,
    /// Picked (exclusive) or claimed (shared), not verified.
    Verify(u8),
    /// Exclusive: the doorbell said zero.
    Clear(u8),
    Recheck(u8),
    /// Shared: took the doorbell, looks at the count once more.
    Confirm(u8),
    Serve(u8),
    /// Shared: has the queue. Was it woken for more than this?
    PassBaton(u8),
    /// Shared: items are left.
    Reactivate(u8),
    ReactivateWake,
    /// Shared: reconsidered, and works on the item.
    Process,
    /// Found nothing; the token is read.
    Announce,
    /// From which queue on; where there are bits, all in one look.
    Rescan(u8),
    Withdraw,
    Asleep,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct State {
    count: [u8; QUEUES],
    ready: [bool; QUEUES],
    masked: [bool; QUEUES],
    /// Who has taken the doorbell (shared).
    owner: [Option<u8>; QUEUES],
    /// Bit per consumer.
    sleepers: u8,
    /// The token has changed since the consumer read it.
    token_changed: [bool; 2],
    baton: [bool; 2],
    producers: [Producer; 2],
    /// Items that each producer has yet to enqueue.
    items: [u8; 2],
    consumers: [Consumer; 2],
    /// Strays that a late producer of a removed queue may still set (queue 0).
    strays: u8,
    /// The timer that enables queue 0: 2 to do, 1 the wake-up is left, 0 done.
    timer: u8,
    served: u8,
}

#[derive(Clone, Copy, Debug)]
struct Spec {
    form: Form,
    flaw: Flaw,
    consumers: usize,
    items: [u8; 2],
    strays: u8,
    timer: bool,
}

impl Spec {
    fn initial(&self) -> State {
        State {
            count: [0; QUEUES],
            // Adding activates.
            ready: [self.form == Form::Direct; QUEUES],
            masked: [self.timer, false],
            owner: [None; QUEUES],
            sleepers: 0,
            token_changed: [false; 2],
            baton: [false; 2],
            producers: [Producer::Idle; 2],
            items: self.items,
            consumers: [Consumer::Look; 2],
            strays: self.strays,
            timer: if self.timer { 2 } else { 0 },
            served: 0,
        }
    }

    fn total(&self) -> u8 {
        self.items[0] + self.items[1]
    }

    fn has(&self, flaw: Flaw) -> bool {
        self.flaw == flaw
    }

    /// Wakes the lowest sleeper, if there is one.
    fn wake_one(state: &mut State) {
        if state.sleepers != 0 {
            let picked = state.sleepers.trailing_zeros() as usize;
            state.sleepers &= !(1 << picked);
            state.token_changed[picked] = true;
        }
    }

    fn is_ready(&self, state: &State, queue: usize) -> bool {
        let rung = self.form == Form::Direct && state.count[queue] > 0;
        (state.ready[queue] || rung) && !state.masked[queue]
    }

    fn any_ready(&self, state: &State) -> bool {
        (0..QUEUES).any(|queue| self.is_ready(state, queue))
    }

    /// All states that one step of a producer leads to.
    fn producer_steps(&self, state: &State, producer: usize, next: &mut Vec<State>) {
        let mut step = |change: &dyn Fn(&mut State)| {
            let mut after = *state;
            change(&mut after);
            next.push(after);
        };
        match state.producers[producer] {
            Producer::Idle if state.items[producer] > 0 => {
                let direct = self.form == Form::Direct;
                for queue in 0..QUEUES {
                    if direct && self.has(Flaw::WakeBeforeSet) {
                        step(&|after| {
                            Self::wake_one(after);
                            after.producers[producer] = Producer::WokenThenRing(queue as u8);
                        });
                        continue;
                    }
                    step(&|after| {
                        after.items[producer] -= 1;
                        after.count[queue] += 1;
                        let edge = after.count[queue] == 1;
                        if edge && direct {
                            after.producers[producer] = Producer::Wake;
                        } else if edge && self.has(Flaw::WakeBeforeSet) {
                            after.producers[producer] = Producer::WakeThenSet(queue as u8);
                        } else if edge {
                            after.producers[producer] = Producer::Set(queue as u8);
                        }
                    });
                }
            }
            Producer::Idle => {}
            Producer::Set(queue) => step(&|after| {
                after.ready[queue as usize] = true;
                let early = self.has(Flaw::WakeBeforeSet);
                after.producers[producer] = if early { Producer::Idle } else { Producer::Wake };
            }),
            Producer::Wake => step(&|after| {
                Self::wake_one(after);
                after.producers[producer] = Producer::Idle;
            }),
            Producer::WokenThenRing(queue) => step(&|after| {
                after.items[producer] -= 1;
                after.count[queue as usize] += 1;
                after.producers[producer] = Producer::Idle;
            }),
            Producer::WakeThenSet(queue) => step(&|after| {
                Self::wake_one(after);
                after.producers[producer] = Producer::Set(queue);
            }),
        }
    }

    /// The late producer, and the timer that enables queue 0.
    fn other_steps(&self, state: &State, next: &mut Vec<State>) {
        if state.strays > 0 {
            let mut after = *state;
            after.strays -= 1;
            after.ready[0] |= self.form != Form::Direct;
            Self::wake_one(&mut after);
            next.push(after);
        }
        if state.timer > 0 {
            let mut after = *state;
            after.timer -= 1;
            if state.timer == 2 {
                after.masked[0] = false;
            } else if !self.has(Flaw::EnableWakesNobody) {
                Self::wake_one(&mut after);
            }
            next.push(after);
        }
    }

    // long: the consumer's program, one arm for each of its places
    fn consumer_steps(&self, state: &State, consumer: usize, next: &mut Vec<State>) {
        use Consumer::*;
        let bit = 1u8 << consumer;
        let (shared, direct) = (self.form == Form::Shared, self.form == Form::Direct);
        let mut step = |to: Consumer, change: &dyn Fn(&mut State)| {
            let mut after = *state;
            after.consumers[consumer] = to;
            change(&mut after);
            next.push(after);
        };
        let at = |queue: u8| queue as usize;
        match state.consumers[consumer] {
            Look => {
                for queue in 0..QUEUES as u8 {
                    if self.is_ready(state, at(queue)) {
                        step(Verify(queue), &|after| after.ready[at(queue)] &= !shared);
                    }
                }
                if !self.any_ready(state) {
                    step(Announce, &|after| {
                        after.baton[consumer] = false;
                        after.token_changed[consumer] = false;
                    });
                }
            }
            Verify(queue) if shared => {
                let free = state.owner[at(queue)].is_none();
                if state.count[at(queue)] == 0 {
                    step(Look, &|_| ());
                } else if self.has(Flaw::NoOwner) {
                    step(PassBaton(queue), &|_| ());
                } else if free {
                    step(Confirm(queue), &|after| after.owner[at(queue)] = Some(consumer as u8));
                } else {
                    step(Look, &|_| ());
                }
            }
            Verify(queue) => {
                let empty = state.count[at(queue)] == 0;
                step(if empty { Clear(queue) } else { Serve(queue) }, &|_| ());
            }
            Confirm(queue) => {
                if state.count[at(queue)] > 0 {
                    step(PassBaton(queue), &|_| ());
                } else {
                    step(Look, &|after| after.owner[at(queue)] = None);
                }
            }
            Serve(queue) => {
                // With the flaw of two owners the count may be gone.
                let left = state.count[at(queue)].saturating_sub(1);
                let then = match (shared, left) {
                    (true, 0) => Process,
                    (true, _) => Reactivate(queue),
                    (false, 0) => Clear(queue),
                    (false, _) => Look,
                };
                step(then, &|after| {
                    after.served += 1;
                    after.count[at(queue)] = left;
                    after.owner[at(queue)] = None;
                });
            }
            Reactivate(queue) => {
                let silent = self.has(Flaw::ReactivateWakesNobody);
                let then = if silent { Process } else { ReactivateWake };
                step(then, &|after| after.ready[at(queue)] = true);
            }
            ReactivateWake => step(Process, &Self::wake_one),
            Process => step(Look, &|_| ()),
            PassBaton(queue) => step(Serve(queue), &|after| {
                if after.baton[consumer] && self.any_ready(after) {
                    Self::wake_one(after);
                }
                after.baton[consumer] = false;
            }),
            Clear(queue) => {
                // Without bits of producers there is no race to be lost.
                let done = direct || self.has(Flaw::NoRecheck);
                let then = if done { Look } else { Recheck(queue) };
                step(then, &|after| after.ready[at(queue)] = false);
            }
            Recheck(queue) => step(Look, &|after| {
                after.ready[at(queue)] |= after.count[at(queue)] > 0;
            }),
            Announce => {
                let then = if self.has(Flaw::NoRescan) { Asleep } else { Rescan(0) };
                step(then, &|after| after.sleepers |= bit);
            }
            Rescan(queue) if direct => {
                let blind = self.has(Flaw::NoDirectLook);
                let seen = if blind {
                    state.ready[at(queue)] && !state.masked[at(queue)]
                } else {
                    self.is_ready(state, at(queue))
                };
                let then = match at(queue) + 1 {
                    _ if seen => Withdraw,
                    QUEUES => Asleep,
                    next => Rescan(next as u8),
                };
                let forgets = then == Asleep && self.has(Flaw::TokenTooLate);
                step(then, &|after| after.token_changed[consumer] &= !forgets);
            }
            Rescan(_) if self.any_ready(state) => step(Withdraw, &|_| ()),
            Rescan(_) => step(Asleep, &|after| {
                if self.has(Flaw::TokenTooLate) {
                    after.token_changed[consumer] = false;
                }
            }),
            Withdraw => step(Look, &|after| {
                after.baton[consumer] = shared && after.sleepers & bit == 0;
                after.sleepers &= !bit;
            }),
            Asleep if state.token_changed[consumer] => step(Withdraw, &|_| ()),
            Asleep => {}
        }
    }

    fn successors(&self, state: &State) -> Vec<State> {
        let mut next = Vec::new();
        (0..2).for_each(|producer| self.producer_steps(state, producer, &mut next));
        (0..self.consumers).for_each(|consumer| self.consumer_steps(state, consumer, &mut next));
        self.other_steps(state, &mut next);
        next
    }

    /// What must hold in every state.
    fn invariant(&self, state: &State) -> Result<(), &'static str> {
        for queue in 0..QUEUES as u8 {
            let served_by = |consumer: &&Consumer| **consumer == Consumer::Serve(queue);
            if state.consumers.iter().filter(served_by).count() > 1 {
                return Err("two consumers serve one queue");
            }
        }
        let rung = self.total() - state.items[0] - state.items[1];
        let waiting: u8 = state.count.iter().sum();
        if state.served + waiting != rung {
            return Err("an item was served twice, or lost");
        }
        Ok(())
    }

    /// No ready and enabled queue is left to itself while a consumer sleeps: somebody is awake who
    /// will look for sleepers or for work, and nobody who *may be busy for long* is relied on.
    fn noticed(&self, state: &State) -> bool {
        let asleep = |consumer: usize| {
            state.consumers[consumer] == Consumer::Asleep && !state.token_changed[consumer]
        };
        let some_sleep = (0..self.consumers).any(asleep);
        if !some_sleep || !self.any_ready(state) {
            return true;
        }
        // A consumer may work on an item for long, before it reconsiders or after.
        let busy = |consumer| matches!(consumer, Consumer::Serve(_) | Consumer::Process);
        state.producers.iter().any(|producer| *producer != Producer::Idle)
            || state.timer == 1
            || (0..self.consumers)
                .any(|consumer| !busy(state.consumers[consumer]) && !asleep(consumer))
    }

    /// Visits every state. How many, or what is wrong with one of them and the way there.
    fn check(&self) -> Result<usize, String> {
        let mut index = HashMap::from([(self.initial(), 0u32)]);
        let (mut states, mut from) = (vec![self.initial()], vec![0u32]);
        let mut into: Vec<Vec<u32>> = vec![Vec::new()];
        let mut done = VecDeque::new();
        let mut at = 0;
        while at < states.len() {
            let state = states[at];
            let fail = |what: &str, states: &[State], from: &[u32]| {
                Err(format!("{what}, after:\n{}", way_to(at, states, from)))
            };
            if let Err(what) = self.invariant(&state) {
                return fail(what, &states, &from);
            }
            if !self.noticed(&state) {
                return fail("a queue is ready, a consumer sleeps", &states, &from);
            }
            let next = self.successors(&state);
            if state.served == self.total() {
                done.push_back(at as u32);
            } else if next.is_empty() {
                return fail("everybody sleeps and work is left", &states, &from);
            }
            for after in next {
                let new = states.len() as u32;
                let number = *index.entry(after).or_insert(new);
                if number == new {
                    states.push(after);
                    from.push(at as u32);
                    into.push(Vec::new());
                }
                into[number as usize].push(at as u32);
            }
            at += 1;
        }
        // Backwards from all ends: a state that is not met can never get its work done.
        let mut met = vec![false; states.len()];
        done.iter().for_each(|&end| met[end as usize] = true);
        while let Some(state) = done.pop_front() {
            for &before in &into[state as usize] {
                if !std::mem::replace(&mut met[before as usize], true) {
                    done.push_back(before);
                }
            }
        }
        match met.iter().position(|met| !met) {
            Some(trap) => Err(format!("no way to the end from:\n{}", way_to(trap, &states, &from))),
            None => Ok(states.len()),
        }
    }
}

/// The states on the shortest way to one.
fn way_to(mut at: usize, states: &[State], from: &[u32]) -> String {
    let mut way = vec![format!("{:?}", states[at])];
    while at != 0 {
        at = from[at] as usize;
        way.push(format!("{:?}", states[at]));
    }
    way.reverse();
    way.join("\n")
}

const EXCLUSIVE: Spec = Spec {
    form: Form::Exclusive,
    flaw: Flaw::None,
    consumers: 1,
    items: [2, 2],
    strays: 0,
    timer: false,
};
const DIRECT: Spec = Spec { form: Form::Direct, ..EXCLUSIVE };
const SHARED: Spec = Spec {
    form: Form::Shared,
    flaw: Flaw::None,
    consumers: 2,
    items: [2, 1],
    strays: 0,
    timer: false,
};

fn holds(spec: Spec) {
    let states = spec.check().unwrap_or_else(|wrong| panic!("{spec:?}: {wrong}"));
    println!("{spec:?}: {states} states");
    assert!(states > 500, "an instance this small shows nothing: {states} states");
}

fn is_found(spec: Spec, flaw: Flaw, what: &str) {
    let wrong = Spec { flaw, ..spec }.check().expect_err("the checker must find it");
    assert!(wrong.contains(what), "{flaw:?}: {wrong}");
}

#[test]
fn the_exclusive_form_holds() {
    holds(EXCLUSIVE);
    holds(Spec { timer: true, strays: 1, ..EXCLUSIVE });
}

#[test]
fn the_form_without_ready_bits_holds() {
    holds(DIRECT);
    holds(Spec { timer: true, strays: 1, ..DIRECT });
}

#[test]
fn flaws_of_the_form_without_ready_bits_are_found() {
    let asleep = "a queue is ready, a consumer sleeps";
    for flaw in [Flaw::NoDirectLook, Flaw::NoRescan, Flaw::WakeBeforeSet, Flaw::TokenTooLate] {
        is_found(DIRECT, flaw, asleep);
    }
    is_found(Spec { timer: true, ..DIRECT }, Flaw::EnableWakesNobody, asleep);
    // What the bits need and the doorbells do not: the second look after the clear.
    holds(Spec { flaw: Flaw::NoRecheck, ..DIRECT });
}

#[test]
fn the_shared_form_holds() {
    holds(SHARED);
}

#[test]
fn the_shared_form_holds_with_strays_and_a_timer() {
    holds(Spec { items: [2, 1], strays: 1, timer: true, ..SHARED });
}

#[test]
fn flaws_of_the_exclusive_form_are_found() {
    let asleep = "everybody sleeps and work is left";
    is_found(EXCLUSIVE, Flaw::NoRecheck, asleep);
    is_found(EXCLUSIVE, Flaw::NoRescan, "a queue is ready, a consumer sleeps");
    is_found(EXCLUSIVE, Flaw::WakeBeforeSet, "a queue is ready, a consumer sleeps");
    is_found(EXCLUSIVE, Flaw::TokenTooLate, "a queue is ready, a consumer sleeps");
    let timed = Spec { timer: true, ..EXCLUSIVE };
    is_found(timed, Flaw::EnableWakesNobody, "a queue is ready, a consumer sleeps");
}

#[test]
fn flaws_of_the_shared_form_are_found() {
    let strays = Spec { items: [1, 1], strays: 1, ..SHARED };
    is_found(strays, Flaw::NoOwner, "two consumers serve one queue");
    is_found(SHARED, Flaw::ReactivateWakesNobody, "a queue is ready, a consumer sleeps");
}
