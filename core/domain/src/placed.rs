//! Messages that are told by place. Between an application in a process of its own and its dataplane there is memory
//! that both can read: what stands there already is not copied to be sent, and what does not is written there one
//! message behind the other, so that the dataplane reads lines in sequence. The dataplane then copies it into the frame,
//! with its sum, as it does what an application that is linked in sends.

use alloc::vec::Vec;
use core::ops::Range;

use mem::{Mbuf, Pool, Want};

use crate::Handle;
use crate::full::Full;

/// Memory that an application shares with its dataplane.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SharedMemory {
    /// What the dataplane receives into: the application may only read it.
    Packets,
    /// What the application sends from: the dataplane may only read it.
    Arena,
}

/// Where the bytes of a message stand.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Placed {
    /// In which memory.
    pub memory: SharedMemory,
    /// Bytes before them there.
    pub offset: u64,
    /// How many they are.
    pub len: u32,
}

/// What the call array of such an application keeps for its messages.
#[derive(Debug)]
pub(crate) struct Places {
    /// Addresses of the packet memory, here.
    packets: Range<usize>,
    /// Buffers of the arena, each with messages of this batch one behind the other. The last one has room, perhaps.
    buffers: Vec<Mbuf>,
    /// On which connection the last message is, and the bytes of all that are together with it there.
    pub last: Option<(Handle, usize)>,
    /// Its record, where it stands at the end of the last buffer.
    pub open: Option<usize>,
}

/// Received bytes that continue a message are rather put down behind it, where they are no more: a further call would
/// be as many bytes.
const FEW: usize = 128;

impl Places {
    pub fn new(packets: Range<usize>) -> Self {
        Self { packets, buffers: Vec::new(), last: None, open: None }
    }

    /// Where bytes stand that were received: none where they are other bytes.
    #[inline]
    pub fn received(&self, bytes: &[u8]) -> Option<Placed> {
        let at = bytes.as_ptr().addr();
        let is_inside = self.packets.start <= at && at + bytes.len() <= self.packets.end;
        is_inside.then(|| Placed {
            memory: SharedMemory::Packets,
            offset: (at - self.packets.start) as u64,
            len: bytes.len() as u32,
        })
    }

    /// The same of those of the only slice.
    fn received_alone(&self, slices: &[&[u8]]) -> Option<Placed> {
        let [bytes] = *slices else { return None };
        self.received(bytes)
    }

    /// Appends `len` bytes, those of `slices`, to the message at the end of the last buffer. False, with nothing done,
    /// where that has no room for them, or they are better sent from where they are.
    pub fn extend(&mut self, slices: &[&[u8]], len: usize) -> bool {
        if len > FEW && self.received_alone(slices).is_some() {
            return false;
        }
        let last = self.buffers.last_mut().filter(|last| last.tailroom() >= len);
        last.is_some_and(|last| append(last, slices))
    }

    /// Where the `len` bytes of `slices` stand, which a buffer has room for: they are put down if they were not
    /// received.
    ///
    /// # Errors
    /// [`Full`]: there is no memory.
    #[inline]
    pub fn place(&mut self, pool: &mut Pool, slices: &[&[u8]], len: usize) -> Result<Placed, Full> {
        if let Some(received) = self.received_alone(slices) {
            return Ok(received);
        }
        if self.buffers.last().is_none_or(|last| last.tailroom() < len) {
            if !pool.allows(Want::Send) {
                return Err(Full);
            }
            self.buffers.push(pool.alloc().map_err(|_| Full)?);
        }
        let last = self.buffers.last_mut().ok_or(Full)?;
        let offset = pool.offset_of(last).ok_or(Full)? + last.len() as u64;
        match append(last, slices) {
            true => Ok(Placed { memory: SharedMemory::Arena, offset, len: len as u32 }),
            false => Err(Full),
        }
    }

    /// Has no messages any more. The buffers that they are in go to `lent`: they are to be kept until the dataplane has
    /// read them.
    #[inline]
    pub fn emptied_into(&mut self, lent: &mut Vec<Mbuf>) {
        self.last = None;
        lent.append(&mut self.buffers);
    }
}

#[inline]
fn append(buffer: &mut Mbuf, slices: &[&[u8]]) -> bool {
    slices.iter().all(|slice| buffer.append(slice).is_ok())
}
