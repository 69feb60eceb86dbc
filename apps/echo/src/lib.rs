//! An echo service: sends every byte back. And [`Sockperf`], which answers that tool's messages.
//!
//! ```
//! use echo::Echo;
//! use tailplane::Server;
//! let service = Server::new(Echo);
//! assert_eq!(service.connections(), 0);
//! ```
//!
//! Under a scheduler that is work-conserving, with connections that any core may serve:
//!
//! ```
//! use std::sync::Arc;
//! use tailplane::SharedSlots;
//! use echo::Echo;
//! let slots = Arc::new(SharedSlots::new(4, 10_000));
//! let services: Vec<_> = (0..4).map(|core| Echo::shared(core, &slots)).collect();
//! # assert!(services.iter().all(|service| service.connections() == 0));
//! ```

mod sockperf;

use std::sync::Arc;

pub use sockperf::{Framing, Sockperf};
use tailplane::{Flow, Instant, Opened, Output, Protocol, Server, SharedServer, SharedSlots};

/// Sends back what comes, over TCP and UDP.
#[derive(Clone, Copy, Debug, Default)]
pub struct Echo;

impl Echo {
    /// The service of elastic thread `core`, whose connections any core may serve.
    ///
    /// # Panics
    /// As [`Server::shared`].
    pub fn shared(core: usize, slots: &Arc<SharedSlots<()>>) -> SharedServer<Self> {
        Server::shared(core, Self, Arc::clone(slots))
    }
}

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
