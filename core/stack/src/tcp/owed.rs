//! Resets of connections that ended when the NIC's queue had no room for them: they leave when it has.
//!
//! An application that ends thousands of connections in one batch of calls makes more resets than the queue takes. A
//! peer that is not told keeps its end for ever, where it only listens.

use alloc::collections::VecDeque;

use wire::{FlowKey, SeqNumber, TcpFlags};

use super::conn::Conn;
use super::listen::bare_reset;
use crate::context::Context;

/// Most resets that wait. What ends beyond is not told, and counted as a frame that was dropped.
const MOST: usize = 1 << 16;

/// All that a reset needs.
#[derive(Clone, Copy, Debug)]
struct Reset {
    flow: FlowKey,
    seq: SeqNumber,
    ack: SeqNumber,
}

/// See the module's comment.
#[derive(Debug, Default)]
pub(crate) struct OwedResets(VecDeque<Reset>);

impl OwedResets {
    /// How many wait.
    #[inline]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Notes what the peer of a connection that ends is owed.
    pub fn owe(&mut self, conn: &Conn) {
        if self.0.len() < MOST {
            self.0.push_back(Reset { flow: conn.flow, seq: conn.snd_nxt, ack: conn.rcv_nxt });
        }
    }
}

/// Sends those that there is room and memory for, in the order in which their connections ended.
#[inline]
pub(crate) fn pay(ctx: &mut Context<'_>) {
    // Nearly always none: then the depot is not asked, whose line other cores write.
    if !ctx.out.owed.0.is_empty() {
        pay_waiting(ctx);
    }
}

#[cold]
fn pay_waiting(ctx: &mut Context<'_>) {
    while ctx.can_send()
        && ctx.pool.available() > 0
        && let Some(Reset { flow, seq, ack }) = ctx.out.owed.0.pop_front()
    {
        let flags = TcpFlags::RST.union(TcpFlags::ACK);
        bare_reset(flow.remote(), flow.local_port(), seq, ack, flags, ctx);
    }
}
