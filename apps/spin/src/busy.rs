//! The service on a real clock: it spins.
//!
//! A batch of requests is served before the responses of the batch leave, as IX's run to
//! completion has it: where that matters, the batch bound is one (ZygOS §3.3).

use tailplane::{Clock, Duration, Flow, Instant, Opened, Output, Protocol};

use crate::frame::{Assembler, FRAME_BYTES, Frame};

/// Spins for as long as each request asks, then returns it. Over TCP; and over UDP, where a
/// datagram is one request.
#[derive(Clone, Debug)]
pub struct Spin<C> {
    clock: C,
}

impl<C: Clock> Spin<C> {
    /// A service that measures its spinning by `clock`, which must move on by itself.
    pub const fn new(clock: C) -> Self {
        Self { clock }
    }

    fn spin(&self, time: Duration) {
        let until = self.clock.now() + time;
        while self.clock.now() < until {
            core::hint::spin_loop();
        }
    }
}

impl<C: Clock> Protocol for Spin<C> {
    type Connection = Assembler;

    fn open(&mut self, _: Instant, _: Opened) -> Option<Assembler> {
        Some(Assembler::default())
    }

    #[inline]
    fn receive(
        &mut self,
        _: Instant,
        connection: &mut Assembler,
        data: &[u8],
        output: &mut Output<'_, '_>,
    ) -> Flow {
        let mut rest = data;
        while let Some((frame, behind)) = connection.next(rest) {
            rest = behind;
            let Some(time) = frame.service() else { return Flow::Close };
            self.spin(time);
            output.put(&frame.to_bytes());
        }
        Flow::Continue
    }

    fn datagram(&mut self, _: Instant, data: &[u8], reply: &mut dyn FnMut(&[u8])) {
        // Whatever is no request has no answer: UDP promises none.
        let Ok(bytes) = <&[u8; FRAME_BYTES]>::try_from(data) else { return };
        if let Some(time) = Frame::from_bytes(bytes).service() {
            self.spin(time);
            reply(data);
        }
    }
}
