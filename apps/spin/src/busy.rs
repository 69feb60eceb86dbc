//! The service on a real clock: it spins.
//!
//! A batch of requests is served before the responses of the batch leave, as IX's run to
//! completion has it: where that matters, the batch bound is one (ZygOS §3.3).

use tailplane::{Clock, Duration, Flow, Instant, Opened, Output, Protocol};

use crate::frame::{FRAME_BYTES, Frame};
use crate::pending::Pending;

/// Spins for as long as each request asks, then returns it; where the dataplane asks for room for others, a
/// part at a time. Over TCP; and over UDP, where a datagram is one request.
#[derive(Clone, Debug)]
pub struct Spin<C> {
    clock: C,
}

impl<C: Clock> Spin<C> {
    /// A service that measures its spinning by `clock`, which must move on by itself.
    pub const fn new(clock: C) -> Self {
        Self { clock }
    }

    /// Spins for `time`, or until `end` if that is sooner. Answers how much is left.
    fn spin(&self, time: Duration, end: Option<Instant>) -> Duration {
        let begun = self.clock.now();
        let until = begun + time;
        let stop = end.map_or(until, |end| until.min(end));
        loop {
            let now = self.clock.now();
            if now >= stop {
                return until.since(now);
            }
            core::hint::spin_loop();
        }
    }

    /// Serves one request, or a part of it: how much of it is left. Nothing where it, or one before it, asks for more
    /// time than a request gets.
    fn serve(
        &self,
        (request, left_ns): (&Frame, u64),
        refused: &mut bool,
        output: &mut Output<'_, '_>,
    ) -> u64 {
        *refused |= request.service().is_none();
        if *refused {
            return 0;
        }
        let left = self.spin(Duration::from_nanos(left_ns), output.yield_at());
        if left == Duration::ZERO {
            output.put(&request.to_bytes());
        }
        left.as_nanos() as u64
    }
}

/// The state of a connection.
#[derive(Clone, Debug, Default)]
pub struct Connection {
    pending: Pending,
    /// The peer will send no more: to be closed once all is done.
    ended: bool,
    /// It asked for more time than a request gets.
    refused: bool,
}

impl Connection {
    fn flow(&self) -> Flow {
        match self.pending.is_late() {
            _ if self.refused => Flow::Close,
            true => Flow::Yield { left: 0 },
            false if self.ended => Flow::Close,
            false => Flow::Continue,
        }
    }
}

impl<C: Clock> Protocol for Spin<C> {
    type Connection = Connection;

    fn open(&mut self, _: Instant, _: Opened) -> Option<Connection> {
        Some(Connection::default())
    }

    #[inline]
    fn receive(
        &mut self,
        _: Instant,
        connection: &mut Connection,
        data: &[u8],
        output: &mut Output<'_, '_>,
    ) -> Flow {
        let Connection { pending, refused, .. } = connection;
        pending.receive(data, &mut |request, left| self.serve((request, left), refused, output));
        connection.flow()
    }

    fn resume(
        &mut self,
        _: Instant,
        connection: &mut Connection,
        output: &mut Output<'_, '_>,
    ) -> Flow {
        let Connection { pending, refused, .. } = connection;
        pending.resume(&mut |request, left| self.serve((request, left), refused, output));
        connection.flow()
    }

    fn end(&mut self, _: Instant, connection: &mut Connection, _: &mut Output<'_, '_>) -> Flow {
        connection.ended = true;
        connection.flow()
    }

    fn datagram(&mut self, _: Instant, data: &[u8], reply: &mut dyn FnMut(&[u8])) {
        // Whatever is no request has no answer: UDP promises none.
        let Ok(bytes) = <&[u8; FRAME_BYTES]>::try_from(data) else { return };
        if let Some(time) = Frame::from_bytes(bytes).service() {
            self.spin(time, None);
            reply(data);
        }
    }
}
