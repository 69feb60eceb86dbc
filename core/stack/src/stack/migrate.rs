//! Flow groups that leave a stack, and that come to one (IX §4.5).
//!
//! ```text
//! old home    seal        the group takes nothing in any more: no packet, no timer, no word to the application
//!             execute     calls that the application has issued still find its connections
//!             pack        one value, once no connection shares memory with a frame of this core's device
//! new home    take_in     it goes on where it was
//! ```
//!
//! A group owns its connections and their deadlines; what the core has noted about them elsewhere (the wheel's
//! entries, connections that step 6 is to look at, bytes and events that the application is to be told of)
//! is gathered on the way out and noted at the new core on the way in. No slot is looked at for that: the
//! wheel's entries name the connections that have something under way, and an idle connection has none.
//!
//! # Deadlines
//!
//! An entry of the old wheel becomes an entry of the new one that fires at the same tick, or at the next
//! where that is past; so what a connection knows of its entries stays true, and it is not touched.
//!
//! # Segments and frames
//!
//! A segment that waits for its acknowledgment shares its chunk with the frame that carries it, as long as the
//! device reads that. The frame is the old core's, so such a segment is given a chunk of its own. They are
//! those of the last moment: a connection with any has an entry in the wheel (its retransmission timer), or
//! stands among those that step 6 is to look at.

use alloc::boxed::Box;
use alloc::vec::Vec;

use clock::Instant;
use domain::{CallRecord, EventArray, EventRecord, Handle};
use mem::{Exhausted, Mbuf, Pool, Retained};
use wire::Sum;

use super::Stack;
use super::baggage::{Baggage, Sealed};
use crate::context::{Context, Outbox};
use crate::group_set::GroupSet;
use crate::groups::Groups;
use crate::shared::FLOW_GROUPS;
use crate::stats::StackStats;
use crate::tcp::conn::{Cold, Conn, Place};
use crate::tcp::long;
use crate::unsafe_packed::PackedGroup;
use crate::wheel::{Entry, tick_of};

impl Stack {
    /// The flow groups that are here and take packets in.
    pub fn here(&self) -> GroupSet {
        self.here
    }

    /// The flow groups that were sealed and not packed.
    pub fn sealed(&self) -> GroupSet {
        self.sealed.iter().map(|sealed| sealed.group.index).collect()
    }

    /// From now on these flow groups take nothing in, and nothing happens to them but what the application has
    /// asked for: between two cycles. Those that are not here are left out.
    pub fn seal(&mut self, set: GroupSet) {
        let set = set.common(self.here);
        self.here.remove(set);
        for index in set.iter() {
            let Some(mut group) = self.groups[index as usize].take() else { continue };
            self.received_before[index as usize] += core::mem::take(&mut group.received);
            self.out.group_due[index as usize] = u64::MAX;
            let [pending, undelivered] = [Vec::new(), Vec::new()];
            let (entries, again, late_events) = (Vec::new(), Vec::new(), Vec::new());
            let pairs = self.pairs.take(index);
            let sealed = Sealed { group, pairs, entries, pending, undelivered, again, late_events };
            self.sealed.push(sealed);
        }
        self.gather();
    }

    /// What is noted about sealed groups goes to them.
    fn gather(&mut self) {
        let Self { out, sealed, .. } = self;
        let mut places = Places::new(sealed);
        let Outbox { pending, undelivered, again, late_events, .. } = out;
        pending.retain(|place| {
            let of = places.of(place.group).map(|sealed| &mut sealed.pending);
            stays(of, place.slot)
        });
        undelivered.retain(|place| {
            let of = places.of(place.group).map(|sealed| &mut sealed.undelivered);
            stays(of, place.slot)
        });
        again.retain(|handle| {
            let of = places.of(handle.group()).map(|sealed| &mut sealed.again);
            stays(of, *handle)
        });
        late_events.retain(|record| {
            let of = record.connection().and_then(|handle| places.of(handle.group()));
            stays(of.map(|sealed| &mut sealed.late_events), *record)
        });
    }

    /// Undoes [`seal`](Self::seal) for those of these groups that are sealed.
    pub fn unseal(
        &mut self,
        set: GroupSet,
        now: Instant,
        pool: &mut Pool,
        events: &mut EventArray,
    ) {
        let mut stay = Vec::new();
        for sealed in core::mem::take(&mut self.sealed) {
            if set.has(sealed.group.index) {
                self.restore(sealed, now, pool, events);
            } else {
                stay.push(sealed);
            }
        }
        self.sealed = stay;
    }

    /// Step 4 while flow groups are sealed: they are here for so long.
    #[cold]
    pub(super) fn execute_with_sealed(
        &mut self,
        now: Instant,
        records: &[CallRecord],
        payloads: &mut Vec<(Mbuf, Sum)>,
        buffers: &mut Vec<(Option<Handle>, Mbuf)>,
        pool: &mut Pool,
        events: &mut EventArray,
    ) {
        let sealed = self.sealed();
        self.unseal(sealed, now, pool, events);
        self.execute_records(now, records, payloads, buffers, pool, events);
        self.seal(sealed);
    }

    pub(super) fn resolve_sealed(
        &mut self,
        handle: Handle,
    ) -> Option<(Place, &mut Conn, &mut Cold)> {
        let mut sealed = self.sealed.iter_mut();
        sealed.find(|sealed| sealed.group.index == handle.group())?.group.resolve(handle)
    }

    /// Makes these sealed flow groups ready to travel, all of them or none. They are not this stack's any more.
    ///
    /// # Errors
    /// [`Exhausted`]: there is no memory for segments whose frames the device still has. It will give them
    /// back; try again.
    pub fn pack(&mut self, set: GroupSet, pool: &mut Pool) -> Result<Vec<PackedGroup>, Exhausted> {
        let Self { out, sealed, stats, .. } = self;
        let mut places = Places::new(sealed);
        let is_it = |word| set.has(Place::of_word(word).group);
        out.wheel.extract(is_it, |entry| {
            if let Some(group) = places.of(Place::of_word(entry.index).group) {
                group.entries.push(entry);
            }
        });
        for group in sealed.iter_mut().filter(|sealed| set.has(sealed.group.index)) {
            group.part_from_frames(pool, stats)?;
        }
        let mut packed = Vec::new();
        for sealed in core::mem::take(sealed) {
            if set.has(sealed.group.index) {
                packed.push(self.strike_off(sealed, pool));
            } else {
                self.sealed.push(sealed);
            }
        }
        Ok(packed)
    }

    /// Ends what this core counts of a group.
    fn strike_off(&mut self, sealed: Sealed, pool: &mut Pool) -> PackedGroup {
        let group = &sealed.group;
        self.census.connections -= group.table.len() as u32;
        self.census.time_wait -= group.in_time_wait;
        self.census.closed -= group.closed;
        self.census.backlogs.subtract(&group.backlogs);
        let kept = core::mem::take(&mut self.out.kept[group.index as usize]);
        (0..kept).for_each(|_| pool.unkeep());
        PackedGroup::new(Box::new(Baggage { sealed, kept }))
    }

    /// Takes a flow group in, which is at home here from now on. Between two steps of a cycle. Events that
    /// were under way for its connections, and that its old home has set aside, come before.
    pub fn take_in(
        &mut self,
        packed: PackedGroup,
        now: Instant,
        pool: &mut Pool,
        events: &mut EventArray,
    ) {
        let Baggage { sealed, kept } = *packed.into_baggage();
        let group = &sealed.group;
        let index = group.index as usize;
        debug_assert!(self.groups[index].is_none(), "flow group {index} has two homes");
        self.census.connections += group.table.len() as u32;
        self.census.time_wait += group.in_time_wait;
        self.census.closed += group.closed;
        self.census.backlogs.add(&group.backlogs);
        self.out.kept[index] = kept;
        (0..kept).for_each(|_| pool.keep());
        self.restore(sealed, now, pool, events);
    }

    /// Tells the application of what belongs to no packet of this core's, behind all that it has not been told.
    pub fn tell_late(&mut self, record: EventRecord) {
        self.out.late_events.push_back(record);
    }

    /// A sealed group is one of this stack's, and what it brings is noted here.
    fn restore(&mut self, sealed: Sealed, now: Instant, pool: &mut Pool, events: &mut EventArray) {
        let Sealed { group, pairs, entries, pending, undelivered, again, late_events } = sealed;
        self.pairs.put(group.index, pairs);
        let (index, due) = (group.index, group.due());
        self.closing.take_in(&group, &self.shared);
        self.groups[index as usize] = Some(group);
        self.here.insert(index);
        with_context!(self, now, pool, events, |ctx, groups| {
            let _: &Groups = groups;
            ctx.out.wheel.advance(ctx.tick);
            entries.into_iter().for_each(|entry| ctx.out.wheel.adopt(entry));
            if due != u64::MAX {
                ctx.note_group_due(index, due);
            }
            let place = |slot| Place { group: index, slot };
            ctx.out.pending.extend(pending.into_iter().map(place));
            ctx.out.undelivered.extend(undelivered.into_iter().map(place));
            ctx.out.again.extend(again);
            late_events.into_iter().for_each(|record| ctx.event(record));
        });
    }
}

/// Sealed groups by their numbers.
struct Places<'a> {
    sealed: &'a mut [Sealed],
    at: [Option<u8>; FLOW_GROUPS],
}

impl<'a> Places<'a> {
    fn new(sealed: &'a mut [Sealed]) -> Self {
        let mut at = [None; FLOW_GROUPS];
        for (place, sealed) in sealed.iter().enumerate() {
            at[sealed.group.index as usize] = Some(place as u8);
        }
        Self { sealed, at }
    }

    fn of(&mut self, group: u16) -> Option<&mut Sealed> {
        let place = (*self.at.get(group as usize)?)?;
        self.sealed.get_mut(place as usize)
    }
}

/// Whether a note stays with the stack: it goes to a sealed group's notes, where it is about one.
fn stays<T>(sealed: Option<&mut Vec<T>>, note: T) -> bool {
    let Some(notes) = sealed else { return true };
    notes.push(note);
    false
}

/// Connections that are asked for ahead of their turn.
const AHEAD: usize = 8;

impl Sealed {
    /// Every segment whose frame the device may still have gets a chunk of its own.
    fn part_from_frames(
        &mut self,
        pool: &mut Pool,
        stats: &mut StackStats,
    ) -> Result<(), Exhausted> {
        let Self { group, entries, pending, .. } = self;
        let slot_of = |entry: &Entry| Place::of_word(entry.index).slot;
        for (index, entry) in entries.iter().enumerate() {
            if let Some(later) = entries.get(index + AHEAD) {
                group.prefetch_if_there(slot_of(later));
            }
            part(group.slots.both(slot_of(entry)), pool, stats)?;
        }
        for &slot in pending.iter() {
            part(group.slots.both(slot), pool, stats)?;
        }
        debug_assert!(
            (0..group.slots.capacity()).all(|slot| {
                let (conn, cold) = group.slots.both(slot);
                is_apart(conn, cold)
            }),
            "a connection with frames that nothing is noted about"
        );
        Ok(())
    }
}

/// Whether no segment shares its chunk with a frame.
fn is_apart(conn: &mut Conn, cold: &Cold) -> bool {
    let mut shares = false;
    conn.sent.for_each_while(|segment| {
        shares = segment.is_in_nic();
        !shares
    });
    let board = cold.recovery.as_ref().map(|recovery| &recovery.board);
    !shares && board.is_none_or(|board| board.chunks().all(|segment| !segment.is_in_nic()))
}

fn part(
    (conn, cold): (&mut Conn, &mut Cold),
    pool: &mut Pool,
    stats: &mut StackStats,
) -> Result<(), Exhausted> {
    if is_apart(conn, cold) {
        return Ok(());
    }
    let mut done = Ok(());
    let mut apart = |segment: Retained| match segment.is_in_nic() && done.is_ok() {
        true => copy_of(segment, pool, stats).unwrap_or_else(|segment| {
            done = Err(Exhausted);
            segment
        }),
        false => segment,
    };
    let mut sent = core::mem::take(&mut conn.sent);
    while let Some(segment) = sent.pop() {
        conn.sent.push(apart(segment));
    }
    if let Some(recovery) = &mut cold.recovery {
        recovery.board.replace_each(apart);
    }
    done
}

/// The same segment in chunks of its own; what it was in is the device's alone.
fn copy_of(
    segment: Retained,
    pool: &mut Pool,
    stats: &mut StackStats,
) -> Result<Retained, Retained> {
    let Ok(copy) = long::copy_of(&segment, pool) else { return Err(segment) };
    stats.tx_payload_copies += u64::from(segment.meta().len > 0);
    pool.release(segment);
    Ok(copy)
}
