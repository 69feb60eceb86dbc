//! Events that are written down where an application in another process reads them, while they come about.

use alloc::boxed::Box;

use crate::events::Received;
use crate::{BufferRef, EventRecord};

/// Writes events down where an application in another process reads them, some at a time as they come about, so that
/// only the first one of a batch and their number are left to be told when it is handed over.
pub trait EventMirror: Send + core::fmt::Debug {
    /// How many of `events`, in order, stand there now: the first of them as event number `index` of the next batch, 1
    /// or more. One that does not is told in another way, and with it all behind it.
    fn put(&mut self, index: usize, events: Appended<'_>) -> usize;
}

/// Events of an array, one behind the other.
#[derive(Clone, Copy, Debug)]
pub struct Appended<'a> {
    records: &'a [EventRecord],
    buffers: &'a [Received],
    /// The index of the first buffer.
    base: u32,
}

impl<'a> Appended<'a> {
    pub(crate) fn new(records: &'a [EventRecord], buffers: &'a [Received], base: u32) -> Self {
        Self { records, buffers, base }
    }

    /// The events.
    pub fn records(&self) -> &'a [EventRecord] {
        self.records
    }

    /// The bytes of one of them; none where it has none.
    #[inline(always)]
    pub fn bytes(&self, record: &EventRecord) -> &'a [u8] {
        record.buffer().map_or(&[], |at| self.bytes_at(at))
    }

    /// The bytes that one of them refers to.
    #[inline(always)]
    pub fn bytes_at(&self, at: BufferRef) -> &'a [u8] {
        let buffer = self.buffers.get(at.index.wrapping_sub(self.base) as usize);
        buffer.map_or(&[], |(_, mbuf)| mbuf.bytes())
    }

    fn from(self, index: usize) -> Self {
        Self { records: self.records.get(index..).unwrap_or_default(), ..self }
    }
}

/// How far an array is mirrored.
#[derive(Debug)]
pub(crate) struct Mirrored {
    mirror: Option<Box<dyn EventMirror>>,
    /// The first event, which is told when the batch is handed over, and so many of the others stand there.
    count: usize,
    /// So many records there are when the next are to be written.
    due: usize,
}

impl Mirrored {
    /// New events that are written down together. They are as many as eight lines tell of: few enough that those lines
    /// come while the network layer goes on, and that at the end of a batch as many more are soon written.
    const GROUP: usize = 16;
    /// The first event is not written down.
    const FIRST: usize = 1;

    pub const fn none() -> Self {
        Self { mirror: None, count: Self::FIRST, due: usize::MAX }
    }

    pub fn by(mirror: Box<dyn EventMirror>) -> Self {
        let mut mirrored = Self { mirror: Some(mirror), ..Self::none() };
        mirrored.forget();
        mirrored
    }

    /// Whether some of the events, of which there are `len`, are to be written now.
    #[inline(always)]
    pub fn is_due(&self, len: usize) -> bool {
        len >= self.due
    }

    /// Whether some of the events are to be written at the end.
    #[inline]
    pub fn is_left(&self, len: usize) -> bool {
        self.due != usize::MAX && len > self.count
    }

    /// Whether all of the events but the first stand in the mirror.
    pub fn has(&self, len: usize) -> bool {
        self.mirror.is_some() && self.count == len.max(Self::FIRST)
    }

    /// Writes those of all `events` that are new.
    pub fn put_new(&mut self, events: Appended<'_>) {
        let Some(mirror) = &mut self.mirror else { return };
        let new = events.from(self.count);
        let put = mirror.put(self.count, new);
        self.count += put;
        self.due = if put == new.records.len() { self.count + Self::GROUP } else { usize::MAX };
    }

    /// Writes one of all `events` that has changed.
    pub fn put_again(&mut self, index: usize, events: Appended<'_>) {
        let is_there = (Self::FIRST..self.count).contains(&index);
        let Some(mirror) = self.mirror.as_mut().filter(|_| is_there) else { return };
        let changed = Appended { records: &events.records[index..=index], ..events };
        if mirror.put(index, changed) == 0 {
            (self.count, self.due) = (index, usize::MAX);
        }
    }

    /// There are no events any more, or others.
    #[inline]
    pub fn forget(&mut self) {
        self.count = Self::FIRST;
        self.due = if self.mirror.is_some() { Self::FIRST + Self::GROUP } else { usize::MAX };
    }
}
