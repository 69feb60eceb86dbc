//! An echo service: sends every byte back. And [`Sockperf`], which answers that tool's messages.
//!
//! ```
//! use tailplane_echo::Echo;
//! use tailplane::Server;
//! let service = Server::new(Echo);
//! assert_eq!(service.connections(), 0);
//! ```

mod sockperf;

pub use sockperf::{Framing, Sockperf};
use tailplane::{Flow, Instant, Opened, Output, Protocol};

/// Sends back what comes, over TCP and UDP.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Protocol for Echo {
    type Connection = ();

    fn open(&mut self, _: Instant, _: Opened) -> Option<()> {
        Some(())
    }

    #[inline]
    fn receive(
        &mut self,
        _: Instant,
        _: &mut (),
        data: &[u8],
        output: &mut Output<'_, '_>,
    ) -> Flow {
        output.put(data);
        Flow::Continue
    }

    fn datagram(&mut self, _: Instant, data: &[u8], reply: &mut dyn FnMut(&[u8])) {
        reply(data);
    }
}
