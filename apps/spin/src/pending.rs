//! The requests of one connection: served in the order in which they came, a long one a part at a time.

use std::collections::VecDeque;

use crate::frame::{Assembler, Frame};

/// See the module's comment. What serves a request is given the request and how much of its time is left, in
/// nanoseconds, and answers how much is left after it: zero, and the request is done. Something left means
/// that the connection is to make room for others; whoever owns it then calls [`resume`](Self::resume).
///
/// ```
/// use spin::{Frame, Pending};
/// let mut pending = Pending::default();
/// let request = |service_ns| Frame { service_ns, sequence: 0 }.to_bytes();
/// let mut parts = Vec::new();
/// let mut half = |_: &Frame, left_ns: u64| {
///     parts.push(left_ns);
///     left_ns.saturating_sub(60)
/// };
/// assert!(!pending.receive(&request(100), &mut half));
/// assert!(!pending.receive(&request(10), &mut half), "the first is not done");
/// assert!(pending.resume(&mut half));
/// assert_eq!(parts, [100, 40, 10]);
/// ```
#[derive(Clone, Debug, Default)]
pub struct Pending {
    assembler: Assembler,
    /// Absent for most connections, most of the time.
    late: Option<Box<Late>>,
}

#[derive(Clone, Debug)]
struct Late {
    request: Frame,
    left_ns: u64,
    behind: VecDeque<Frame>,
}

impl Pending {
    /// Serves what `data` completes. Answers whether all is done.
    #[inline]
    pub fn receive(&mut self, data: &[u8], serve: &mut impl FnMut(&Frame, u64) -> u64) -> bool {
        let mut rest = data;
        while let Some((request, behind)) = self.assembler.next(rest) {
            rest = behind;
            if let Some(late) = &mut self.late {
                late.behind.push_back(request);
                continue;
            }
            let left_ns = serve(&request, request.service_ns);
            if left_ns > 0 {
                self.late = Some(Box::new(Late { request, left_ns, behind: VecDeque::new() }));
            }
        }
        self.late.is_none()
    }

    /// Goes on with what is left. Answers whether all is done.
    pub fn resume(&mut self, serve: &mut impl FnMut(&Frame, u64) -> u64) -> bool {
        let Some(mut late) = self.late.take() else { return true };
        loop {
            late.left_ns = serve(&late.request, late.left_ns);
            if late.left_ns > 0 {
                self.late = Some(late);
                return false;
            }
            let Some(next) = late.behind.pop_front() else { return true };
            (late.request, late.left_ns) = (next, next.service_ns);
        }
    }

    /// Whether a request is not done.
    pub fn is_late(&self) -> bool {
        self.late.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn all_are_done_in_order_however_they_are_cut(
            times in prop::collection::vec(0u64..500, 0..30),
            cuts in prop::collection::vec(1usize..100, 1..10),
            quanta in prop::collection::vec(1u64..300, 1..10),
        ) {
            let sent: Vec<Frame> = times
                .iter()
                .zip(0..)
                .map(|(&service_ns, sequence)| Frame { service_ns, sequence })
                .collect();
            let stream: Vec<u8> = sent.iter().flat_map(|frame| frame.to_bytes()).collect();
            let (mut done, mut spent) = (Vec::new(), 0);
            let mut quanta = quanta.into_iter().cycle();
            let mut serve = |frame: &Frame, left_ns: u64| {
                let part = left_ns.min(quanta.next().unwrap_or(1));
                spent += part;
                if part == left_ns {
                    done.push(*frame);
                }
                left_ns - part
            };
            let mut pending = Pending::default();
            let mut rest = &stream[..];
            for cut in cuts.into_iter().cycle().take(stream.len()) {
                let (piece, behind) = rest.split_at(cut.min(rest.len()));
                rest = behind;
                let receives = pending.receive(piece, &mut serve);
                prop_assert_eq!(receives, !pending.is_late());
                pending.resume(&mut serve);
            }
            for _ in 0..times.len() * 500 {
                if pending.resume(&mut serve) {
                    break;
                }
            }
            prop_assert!(!pending.is_late());
            prop_assert_eq!(done, sent);
            prop_assert_eq!(spent, times.iter().sum::<u64>());
        }
    }
}
