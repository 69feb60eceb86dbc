//! Receive-side scaling in a lab: an indirection table for the dataplane's end, which veth does not have.

use nic::rss::random_key;
use nic::steer_program::SteerProgram;
use tailplane::MacAddr;

use super::constants::{CLIENT_INTERFACE, DATAPLANE_ADDRESS, DATAPLANE_MAC};
use super::netns::in_namespace;
use super::up::Lab;

impl Lab {
    /// Steers what the client's kernel sends, or forwards, to the dataplane's queues by an indirection table with a
    /// secret key, as long as the answer lives. AF_XDP sockets at the client's end send past it.
    ///
    /// # Errors
    /// The kernel refuses the program: before Linux 6.6, say.
    pub fn steer(&self) -> anyhow::Result<SteerProgram> {
        in_namespace(self.client(), || {
            let table = self.attach_table()?;
            Ok(table.with_probes(MacAddr(DATAPLANE_MAC), DATAPLANE_ADDRESS.into())?)
        })?
    }

    /// The same without probes, as most devices are.
    ///
    /// # Errors
    /// As [`steer`](Self::steer).
    pub fn steer_without_probes(&self) -> anyhow::Result<SteerProgram> {
        in_namespace(self.client(), || self.attach_table())?
    }

    fn attach_table(&self) -> anyhow::Result<SteerProgram> {
        // A lab has at most 64 queues.
        Ok(SteerProgram::attach(CLIENT_INTERFACE, &random_key()?, self.queues() as u16)?)
    }
}
