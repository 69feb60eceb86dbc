//! Answers: what most calls are, many at a time.

use mem::{Pool, Want};
use wire::Sum;

use crate::{CallArray, CallRecord, Calls, Handle, Staged};

/// A batch of calls for which most of what each has to ask was asked once. Made by [`Calls::answers`].
#[derive(Debug)]
pub struct Answers<'a> {
    array: &'a mut CallArray,
    pool: &'a mut Pool,
    /// Calls of two records and a buffer that there is room for. The memory for them may be more: the depot has some.
    left: usize,
}

impl Calls<'_> {
    /// From here on calls are answers, as far as they can be: what is none is for the calls' other methods.
    #[inline]
    pub fn answers(&mut self) -> Answers<'_> {
        let (array, pool) = (&mut *self.array, &mut *self.pool);
        let records = array.capacity.saturating_sub(array.records.len());
        let buffers = array.buffers.saturating_sub(array.payloads.len());
        let left = (records / 2).min(buffers).min(pool.at_hand(Want::Send));
        Answers { array, pool, left }
    }
}

impl Answers<'_> {
    /// [`sendv_with`](Calls::sendv_with) of so many bytes as one buffer holds, on another connection than the send
    /// before, and [`recv_done`](Calls::recv_done) of `done` bytes, if they are any. False: it is something else, or
    /// there may be no room, and nothing was done.
    #[inline(always)]
    pub fn sendv_and_done(
        &mut self,
        handle: Handle,
        len: usize,
        done: u32,
        fill: impl FnOnce(&mut [u8]) -> Sum,
    ) -> bool {
        let Self { array, pool, left } = self;
        let is_short = (1..=array.segment_bytes).contains(&len)
            && array.open.is_none_or(|(open, _)| open != handle);
        if !is_short || *left == 0 {
            return false;
        }
        let Some(mut mbuf) = pool.alloc_at_hand() else { return false };
        *left -= 1;
        let sum = mbuf.extend(len).map_or(Sum::ZERO, fill);
        let staged = Staged { first: array.payloads.len() as u32, count: 1 };
        array.payloads.push((mbuf, sum));
        array.open = Some((handle, array.records.len()));
        array.records.push(CallRecord::Sendv { handle, staged });
        if done != 0 {
            array.records.push(CallRecord::RecvDone { handle, bytes: done });
        }
        true
    }

    /// [`recv_done`](Calls::recv_done) alone, of any number of bytes.
    #[inline(always)]
    pub fn recv_done(&mut self, handle: Handle, bytes: u32) -> bool {
        let is_room = self.left > 0;
        if is_room {
            self.left -= 1;
            self.array.records.push(CallRecord::RecvDone { handle, bytes });
        }
        is_room
    }
}
