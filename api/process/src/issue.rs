//! What an application asked for: each word read once, checked, and then used.

use domain::{Answers, CallRecord, Calls, Handle, Placed, Staged};
use memfile::Memory;
use wire::Sum;

use crate::layout::RECORD_WORDS;
use crate::near::{Near, NearParts};
use crate::near_stats::NearStats;
use crate::rates::Used;
use crate::record::{self, Words};

impl NearParts {
    /// Issues what most calls are: one piece to send that fits a frame, and bytes that are given back. False, with
    /// nothing done: it is something else, or there is no room. Adds what it sends to `sent`.
    ///
    /// Compiled for each of its callers, whose number it is told: what copies bytes is then part of it, where the compiler
    /// would make of what several have in common a call.
    #[inline(always)]
    fn issue_answer<const CALLER: u8>(
        &self,
        words: &Words,
        answers: &mut Answers<'_>,
        sent: &mut Used,
    ) -> bool {
        let Self { arena, packets, .. } = self;
        let [kind, handle, third, fourth] = *words;
        let handle = Handle::from_bits(handle);
        // More bytes than there can be are too many, which the connection is told.
        let bytes = |word: u64| u32::try_from(word).unwrap_or(u32::MAX);
        let memory = match kind {
            record::SEND_ONE => arena,
            record::SEND_RECEIVED => packets,
            _ => {
                return kind == record::RECEIVED_DONE && answers.recv_done(handle, bytes(third));
            }
        };
        let (offset, len) = ((third >> 16) as usize, third as usize & 0xffff);
        // It is for the array of calls to say whether a frame has room for so many.
        let is_issued = offset + len <= memory.len()
            && answers.sendv_and_done(handle, len, bytes(fourth), |room| {
                copy(memory, offset, room, self.sums)
            });
        sent.packets += u64::from(is_issued);
        sent.bytes += if is_issued { len as u64 } else { 0 };
        is_issued
    }
}

impl Near<'_> {
    /// Issues what the application asked for: so many calls with so many pieces, as it says, or one only.
    #[inline]
    pub(crate) fn issue(
        &mut self,
        count: u32,
        pieces: u32,
        only: Option<Words>,
        calls: &mut Calls<'_>,
    ) {
        let pieces = pieces.min(self.parts.geometry.arena_chunks) as usize;
        // Each piece belongs to one call: together they have no more.
        self.pieces_left = pieces;
        match only {
            // The answer to a request that is alone: what many calls ask for once would cost it more than all else.
            Some(words) => self.issue_only(words, pieces, calls),
            None => self.issue_all(count as usize, pieces, calls),
        }
        if let Some(toll) = &self.toll
            && self.used != Used::default()
        {
            toll.charge(self.now, std::mem::take(&mut self.used));
        }
    }

    #[inline]
    fn issue_only(&mut self, words: Words, pieces: usize, calls: &mut Calls<'_>) {
        let Self { parts, given, used, .. } = self;
        if given.is_some() || !parts.issue_answer::<0>(&words, &mut calls.answers(), used) {
            self.issue_any(words, pieces, calls);
        }
    }

    #[inline(never)]
    fn issue_all(&mut self, count: usize, pieces: usize, calls: &mut Calls<'_>) {
        let count = count.min(self.parts.geometry.call_records());
        let mut index = 0;
        while let Some(words) = self.issue_answers(&mut index, count, calls) {
            self.issue_any(words, pieces, calls);
        }
    }

    /// Those calls that are answers, from the one at `index` on; answers the first one that is none, and the index of
    /// the next.
    #[inline]
    fn issue_answers(
        &mut self,
        index: &mut usize,
        count: usize,
        calls: &mut Calls<'_>,
    ) -> Option<Words> {
        let Self { parts, given, used, .. } = self;
        // They are inside: the memory was made by this geometry.
        let from = parts.geometry.record(*index);
        let records = parts.calls.arrays::<RECORD_WORDS>(from, count - *index);
        let mut records = records.unwrap_or_default().iter();
        let is_counted = given.is_some();
        let mut answers = calls.answers();
        let mut sent = Used::default();
        let mut other = None;
        for record in &mut records {
            // A private copy: from here on the application cannot change it.
            let words = record::read(record);
            if is_counted || !parts.issue_answer::<1>(&words, &mut answers, &mut sent) {
                other = Some(words);
                break;
            }
        }
        *index = count - records.len();
        used.packets += sent.packets;
        used.bytes += sent.bytes;
        other
    }

    /// Any call.
    #[inline(never)]
    fn issue_any(&mut self, words: Words, pieces: usize, calls: &mut Calls<'_>) {
        let mut gathered = std::mem::take(&mut self.gathered);
        match record::call(&words) {
            Some((record, only)) => self.issue_one(record, only, pieces, &mut gathered, calls),
            None => NearStats::add(&self.stats.violations),
        }
        self.gathered = gathered;
        let [kind, handle, _, bytes] = words;
        if matches!(kind, record::SEND_ONE | record::SEND_RECEIVED) && bytes != 0 {
            self.give_back(Handle::from_bits(handle), bytes, calls);
        }
    }

    /// Received bytes are done with. More than there can be are too many, which the connection is told.
    #[inline]
    fn give_back(&mut self, handle: Handle, bytes: u64, calls: &mut Calls<'_>) {
        if calls.recv_done(handle, usize::try_from(bytes).unwrap_or(usize::MAX)).is_err() {
            NearStats::add(&self.stats.refused);
        }
    }

    fn issue_one(
        &mut self,
        record: CallRecord,
        only: Option<u64>,
        pieces: usize,
        gathered: &mut Vec<(usize, usize)>,
        calls: &mut Calls<'_>,
    ) {
        let issued = match record {
            // No words name a port of its own choice.
            CallRecord::Connect { cookie, local, peer } => {
                self.used.connections += 1;
                calls.connect_from(cookie, local, peer)
            }
            CallRecord::Accept { handle, cookie } => {
                self.used.connections += 1;
                calls.accept(handle, cookie)
            }
            CallRecord::RecvDone { handle, bytes } => calls.recv_done(handle, bytes as usize),
            CallRecord::Shutdown { handle } => calls.shutdown(handle),
            CallRecord::Close { handle } => calls.close(handle),
            CallRecord::Abort { handle } => calls.abort(handle),
            CallRecord::Again { handle } => {
                calls.again(handle);
                Ok(())
            }
            CallRecord::Listen { cookie, transport, port, backlog } => {
                self.used.connections += 1;
                calls.listen(cookie, transport, port, backlog)
            }
            CallRecord::Unlisten { cookie, transport, port } => {
                self.used.connections += 1;
                calls.unlisten(cookie, transport, port)
            }
            CallRecord::Inform { handle } => {
                self.used.packets += 1;
                calls.inform(handle)
            }
            CallRecord::Sendv { handle, staged } => {
                let Some(len) = self.gather(staged, only, pieces, gathered) else { return };
                self.count_sent(handle, len);
                let (arena, sums) = (&self.parts.arena, self.parts.sums);
                let sent = match gathered[..] {
                    [(offset, _)] => calls.sendv_with(handle, len, straight(arena, offset, sums)),
                    _ => calls.sendv_with(handle, len, copier(arena, gathered, sums)),
                };
                // A hole in the stream cannot be mended.
                sent.or_else(|_| calls.abort(handle).and(Err(domain::Full)))
            }
            // Only received bytes come as such: what stands in the arena is one piece of it.
            CallRecord::SendvPlaced { handle, placed: Placed { offset, len, .. } } => {
                if offset.saturating_add(len.into()) > self.parts.packets.len() as u64 {
                    return NearStats::add(&self.stats.violations);
                }
                self.count_sent(handle, len as usize);
                let bytes = straight(&self.parts.packets, offset as usize, self.parts.sums);
                let sent = calls.sendv_with(handle, len as usize, bytes);
                sent.or_else(|_| calls.abort(handle).and(Err(domain::Full)))
            }
            CallRecord::UdpSendv { local, peer, staged } => {
                let Some(len) = self.gather(staged, only, pieces, gathered) else { return };
                self.use_up(len);
                let bytes = copier(&self.parts.arena, gathered, true);
                calls.udp_sendv_with(local, peer, len, bytes)
            }
        };
        if issued.is_err() {
            NearStats::add(&self.stats.refused);
        }
    }

    /// Counts what a call sends on a connection.
    fn count_sent(&mut self, handle: Handle, bytes: usize) {
        self.use_up(bytes);
        if let Some(given) = &mut self.given {
            let given = given.entry(handle).or_default();
            *given = given.saturating_add(u32::try_from(bytes).unwrap_or(u32::MAX));
        }
    }

    /// Counts what a call sends.
    fn use_up(&mut self, bytes: usize) {
        self.used.bytes += bytes as u64;
        self.used.packets += bytes.div_ceil(self.parts.segment_bytes.max(1)).max(1) as u64;
    }

    /// Where the bytes of a call stand, each word read once, into `gathered`. Answers how many bytes; none where
    /// they are not all in the arena.
    fn gather(
        &mut self,
        staged: Staged,
        only: Option<u64>,
        pieces: usize,
        gathered: &mut Vec<(usize, usize)>,
    ) -> Option<usize> {
        gathered.clear();
        let (first, count) = (staged.first as usize, staged.count as usize);
        let arena = self.parts.arena.len() as u64;
        let mut total = 0;
        let mut valid =
            only.is_some() || first.saturating_add(count) <= pieces && count <= self.pieces_left;
        if valid && only.is_none() {
            self.pieces_left -= count;
        }
        let mut take = |word: u64| {
            let (offset, len) = (word >> 16, word & 0xffff);
            total += len as usize;
            gathered.push((offset as usize, len as usize));
            offset.saturating_add(len) <= arena
        };
        match only {
            Some(word) => valid &= take(word),
            None if valid => {
                for index in first..first + count {
                    valid &= take(self.heard(self.parts.geometry.piece(index)));
                }
            }
            None => {}
        }
        if !valid {
            NearStats::add(&self.stats.violations);
        }
        valid.then_some(total)
    }
}

/// Writes the bytes from `offset` on, as [`copier`] does those of one piece.
#[inline]
fn straight(memory: &Memory, mut offset: usize, sums: bool) -> impl FnMut(&mut [u8]) -> Sum + '_ {
    move |room| {
        let sum = copy(memory, offset, room, sums);
        offset += room.len();
        sum
    }
}

/// Copies bytes that the application may change meanwhile, with the sum of what was copied where it is needed.
#[inline(always)]
fn copy(memory: &Memory, offset: usize, to: &mut [u8], sums: bool) -> Sum {
    match sums {
        true => copy_and_sum(memory, offset, to),
        false if memory.copy_out(offset, to) => Sum::ZERO,
        false => missing(to),
    }
}

/// Copies bytes that the application may change meanwhile, with the sum of what was copied. In parts whose length is
/// known here: a short message is copied without a call, and summed while it is in registers.
#[inline(always)]
fn copy_and_sum(memory: &Memory, offset: usize, to: &mut [u8]) -> Sum {
    let Some(mut bytes) = memory.transfer(offset, to) else { return missing(to) };
    let mut sum = Sum::ZERO;
    while let Some(part) = bytes.part::<64>() {
        sum = sum.add(Sum::of(part));
    }
    if let Some(part) = bytes.part::<32>() {
        sum = sum.add(Sum::of(part));
    }
    if let Some(part) = bytes.part::<16>() {
        sum = sum.add(Sum::of(part));
    }
    if let Some(part) = bytes.part::<8>() {
        sum = sum.add(Sum::of(part));
    }
    bytes.rest().map_or(sum, |rest| sum.add(Sum::of(rest)))
}

/// There is no such thing: pieces were checked. What was not written is not what was there before.
#[cold]
fn missing(to: &mut [u8]) -> Sum {
    to.fill(0);
    Sum::ZERO
}

/// Writes the bytes of `pieces` one after the other, with their sums: of what was copied, as the application may
/// write there meanwhile.
fn copier<'m>(
    arena: &'m Memory,
    pieces: &'m [(usize, usize)],
    sums: bool,
) -> impl FnMut(&mut [u8]) -> Sum + 'm {
    let mut pieces = pieces.iter().copied();
    let mut rest = (0, 0);
    move |room| {
        let mut filled = 0;
        while filled < room.len() {
            if rest.1 == 0 {
                let Some(next) = pieces.next() else { break };
                rest = next;
                continue;
            }
            let count = rest.1.min(room.len() - filled);
            if !arena.copy_out(rest.0, &mut room[filled..filled + count]) {
                break;
            }
            filled += count;
            rest = (rest.0 + count, rest.1 - count);
        }
        // What was not written (there is no such thing: pieces were checked) is not what was there before.
        room[filled..].fill(0);
        if sums { Sum::of(room) } else { Sum::ZERO }
    }
}
