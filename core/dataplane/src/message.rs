//! What cores send each other: packets of each other's flow groups, and now and then a word about a
//! migration, in one line.

use alloc::boxed::Box;

use mem::{Mbuf, Pool};

use crate::migration::Control;

/// One place of a forwarding ring.
#[derive(Debug)]
pub(crate) enum Message {
    /// A packet of the receiver's flow groups.
    Packet(Mbuf),
    /// Anything else.
    Control(Box<Control>),
}

// A packet's place is no larger for what else may stand there.
const _: () = assert!(size_of::<Message>() == size_of::<Mbuf>());

impl Message {
    /// Gives its packet memory back. Answers how many peers are not told that their connection has ended.
    pub fn discard(self, pool: &mut Pool) -> u64 {
        match self {
            Self::Packet(mbuf) => {
                pool.free(mbuf);
                0
            }
            Self::Control(control) => control.discard(pool),
        }
    }
}
