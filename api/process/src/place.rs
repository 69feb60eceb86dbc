//! Where the application's threads run, told while they do.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use memfile::Memory;

use crate::layout::{Geometry, both, two};

/// How an elastic thread and the application's thread that serves it stand to each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Placement {
    /// The application's thread has a core of its own (or another hyperthread): both look at each other's words for a
    /// while before they sleep. A crossing takes a few cache lines' way there and back.
    #[default]
    Split,
    /// It runs on the dataplane's core, below its priority: whoever waits sleeps at once, and the dataplane's thread,
    /// when it is woken, runs before the application's.
    SameCore,
}

/// Where the application's thread of one elastic thread is to run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Place {
    /// See [`Placement`].
    pub placement: Placement,
    /// The processor; none: any that the thread was started with.
    pub cpu: Option<u32>,
    /// The elastic thread shares its processor with another one, and sleeps soon when it has nothing to do. No matter
    /// of the application.
    pub is_crowded: bool,
}

impl Place {
    /// As one word of the event array.
    fn word(self) -> u64 {
        let placement = match self.placement {
            Placement::Split => 0,
            Placement::SameCore => 1,
        };
        two(
            placement | u32::from(self.is_crowded) << 1,
            self.cpu.map_or(0, |cpu| cpu.saturating_add(1)),
        )
    }

    fn of_word(word: u64) -> Self {
        let (placement, cpu) = both(word);
        let is_crowded = placement & 2 != 0;
        let placement = if placement & 1 == 0 { Placement::Split } else { Placement::SameCore };
        Self { placement, cpu: cpu.checked_sub(1), is_crowded }
    }

    /// Writes it into an event array.
    pub(crate) fn tell(self, events: &Memory, geometry: Geometry) {
        if let Some(word) = events.word64(geometry.place()) {
            word.store(self.word(), Ordering::Relaxed);
        }
    }

    /// What an event array says. For the dataplane its own word: the application cannot write there.
    #[inline]
    pub(crate) fn told(events: &Memory, geometry: Geometry) -> Self {
        let word = events.word64(geometry.place());
        Self::of_word(word.map_or(0, |word| word.load(Ordering::Relaxed)))
    }
}

/// Places the application's thread of one elastic thread, from any thread of the dataplane. Made by
/// [`Near::placer`](crate::Near::placer).
#[derive(Clone, Debug)]
pub struct Placer {
    events: Arc<Memory>,
    geometry: Geometry,
}

impl Placer {
    pub(crate) fn new(events: &Arc<Memory>, geometry: Geometry) -> Self {
        Self { events: Arc::clone(events), geometry }
    }

    /// From the next batch on both sides wait for each other as `place` says. The application's thread moves itself
    /// to the processor before it waits again; one that does not only keeps its own connections waiting.
    pub fn place(&self, place: Place) {
        place.tell(&self.events, self.geometry);
    }

    /// What was said last.
    pub fn placed(&self) -> Place {
        Place::told(&self.events, self.geometry)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_survives_its_word() {
        for placement in [Placement::Split, Placement::SameCore] {
            for cpu in [None, Some(0), Some(1), Some(1023), Some(u32::MAX - 1)] {
                for is_crowded in [false, true] {
                    let place = Place { placement, cpu, is_crowded };
                    assert_eq!(Place::of_word(place.word()), place);
                }
            }
        }
        // Whatever stands there: the next sleep or the next look, and a processor that is refused where there is none.
        let odd = Place::of_word(u64::MAX);
        let cpu = Some(u32::MAX - 1);
        assert_eq!(odd, Place { placement: Placement::SameCore, cpu, is_crowded: true });
    }
}
