//! Mbufs and segments in a row, linked through their chunks.
//!
//! This module holds `unsafe` because it turns chunks back into what was pushed, and follows their links. A queue owns all
//! that was pushed and not popped, so that it alone reaches those chunks' bookkeeping (see `unsafe_chunk`).
#![allow(unsafe_code)]

use core::marker::PhantomData;
use core::ptr::NonNull;
use core::slice;

use crate::unsafe_chunk::{Mbuf, Retained, TxMeta, header, link, next};

/// Mbufs in a row, linked through their chunks: no allocation however many.
#[derive(Debug, Default)]
pub struct MbufQueue {
    head: Option<NonNull<u8>>,
    tail: Option<NonNull<u8>>,
}

// SAFETY: the queue owns its mbufs, which are Send.
unsafe impl Send for MbufQueue {}

impl MbufQueue {
    /// Whether nothing is queued.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Appends an mbuf.
    pub fn push(&mut self, mbuf: Mbuf) {
        // SAFETY: the mbuf is ours, and so is every chunk in the queue; the header keeps what the
        // mbuf itself would hold.
        unsafe {
            let new = &mut *header(mbuf.chunk).as_ptr();
            new.next = 0;
            new.payload_head = mbuf.head;
            new.payload_len = mbuf.len;
            new.meta.seq = mbuf.tag;
            match self.tail {
                None => self.head = Some(mbuf.chunk),
                Some(tail) => link(tail, mbuf.chunk),
            }
        }
        self.tail = Some(mbuf.chunk);
    }

    /// Copies `bytes` behind those of the newest mbuf, where its chunk has room for all of them. Answers whether it had.
    pub fn append_to_last(&mut self, bytes: &[u8]) -> bool {
        let Some(chunk) = self.tail else { return false };
        // SAFETY: the queue owns the chunk, and its exclusive borrow keeps it from being read or popped; `push` filled
        // these fields.
        let header = unsafe { &mut *header(chunk).as_ptr() };
        let (head, len) = (header.payload_head, header.payload_len);
        let mut last = Mbuf { chunk, head, len, tag: header.meta.seq };
        let has_room = last.append(bytes).is_ok();
        header.payload_len = last.len;
        has_room
    }

    /// Takes the oldest mbuf.
    pub fn pop(&mut self) -> Option<Mbuf> {
        let chunk = self.head?;
        // SAFETY: the queue owns the chunk; `push` filled these fields.
        let (next, head, len, tag) = unsafe {
            let header = header(chunk).as_ref();
            (next(chunk), header.payload_head, header.payload_len, header.meta.seq)
        };
        self.head = next;
        if next.is_none() {
            self.tail = None;
        }
        Some(Mbuf { chunk, head, len, tag })
    }

    /// The frames in order, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &[u8]> {
        let mut cursor = self.head;
        core::iter::from_fn(move || {
            let chunk = cursor?;
            // SAFETY: the queue owns the chunk, and its borrow keeps it from being popped.
            unsafe {
                let header = header(chunk).as_ref();
                cursor = next(chunk);
                let start = chunk.as_ptr().add(header.payload_head as usize);
                Some(slice::from_raw_parts(start, header.payload_len as usize))
            }
        })
    }
}

/// Segments in sequence, linked through their chunks: sent and not acknowledged, then not sent.
#[derive(Debug, Default)]
pub struct RetainedQueue {
    head: Option<NonNull<u8>>,
    tail: Option<NonNull<u8>>,
}

impl RetainedQueue {
    /// Whether nothing is queued.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.head.is_none()
    }

    /// Starts loading the bookkeeping of the oldest segment, which nobody has looked at since it was sent.
    #[inline]
    pub fn prefetch(&self) {
        if let Some(chunk) = self.head {
            // SAFETY: the claim is ours, as in `pop`.
            crate::prefetch(unsafe { header(chunk).as_ref() });
        }
    }

    /// Appends a segment.
    #[inline]
    pub fn push(&mut self, segment: Retained) {
        // SAFETY: the claims on all chunks of the queue are ours.
        unsafe {
            (*header(segment.chunk).as_ptr()).next = 0;
            match self.tail {
                None => self.head = Some(segment.chunk),
                Some(tail) => link(tail, segment.chunk),
            }
        }
        self.tail = Some(segment.chunk);
    }

    /// Puts a segment before all others.
    #[inline]
    pub fn push_front(&mut self, segment: Retained) {
        // SAFETY: the claims on all chunks of the queue are ours.
        unsafe {
            match self.head {
                None => (*header(segment.chunk).as_ptr()).next = 0,
                Some(head) => link(segment.chunk, head),
            }
        }
        self.head = Some(segment.chunk);
        self.tail.get_or_insert(segment.chunk);
    }

    /// Takes the oldest segment.
    #[inline]
    pub fn pop(&mut self) -> Option<Retained> {
        let chunk = self.head?;
        // SAFETY: the claim is ours.
        self.head = unsafe { next(chunk) };
        if self.head.is_none() {
            self.tail = None;
        }
        Some(Retained { chunk, _local: PhantomData })
    }

    /// What is remembered of the oldest segment.
    #[inline]
    pub fn front(&self) -> Option<TxMeta> {
        // SAFETY: the claim is ours.
        self.head.map(|chunk| unsafe { header(chunk).as_ref() }.meta)
    }

    /// What is remembered of the newest segment.
    pub fn back(&self) -> Option<TxMeta> {
        // SAFETY: the claim is ours.
        self.tail.map(|chunk| unsafe { header(chunk).as_ref() }.meta)
    }

    /// The oldest segment, to change.
    #[inline]
    pub fn with_front<R>(&mut self, body: impl FnOnce(&mut Retained) -> R) -> Option<R> {
        let chunk = self.head?;
        Some(body(&mut Retained { chunk, _local: PhantomData }))
    }

    /// The newest segment, to change.
    pub fn with_back<R>(&mut self, body: impl FnOnce(&mut Retained) -> R) -> Option<R> {
        let chunk = self.tail?;
        Some(body(&mut Retained { chunk, _local: PhantomData }))
    }

    /// Runs `body` on the segments in order until it answers false.
    #[inline]
    pub fn for_each_while(&mut self, mut body: impl FnMut(&mut Retained) -> bool) {
        let mut cursor = self.head;
        while let Some(chunk) = cursor {
            // SAFETY: the claim is ours; `next` is read before the body can change anything.
            cursor = unsafe { next(chunk) };
            if !body(&mut Retained { chunk, _local: PhantomData }) {
                return;
            }
        }
    }
}
