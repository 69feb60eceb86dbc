//! The tenant's side: an address, packets out, packets in.

use std::net::Ipv4Addr;
use std::path::Path;
use std::time::Duration;

use sdp::{Shape, SubmitError, Tenant, TenantError};

use crate::protocol::{PREFIX, Refusal, Request, parse_reply};

/// Queues of a tenant: one for what is answered at once, one for packets to come.
const SENDING: u32 = 0;
const RECEIVING: u32 = 1;
const QUEUES: u32 = 2;
/// RECEIVEs that are kept outstanding, so that packets wait as replies and not at the gateway.
const RECEIVES: u32 = 32;
/// Longest wait for an answer that comes at once.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a tenant was told instead of an answer.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The plane could not be joined, or is gone.
    #[error(transparent)]
    Plane(#[from] TenantError),
    /// The gateway refused.
    #[error("the gateway refused: {0}")]
    Refused(#[from] Refusal),
    /// The queue or a slot has no room.
    #[error(transparent)]
    Submit(#[from] SubmitError),
    /// No answer came in time.
    #[error("the gateway did not answer within {} s", PATIENCE.as_secs())]
    NoAnswer,
}

/// A tenant of a gateway, with an address.
#[derive(Debug)]
pub struct GatewayTenant {
    tenant: Tenant,
    /// A request, as it is sent.
    buffer: Vec<u8>,
}

impl GatewayTenant {
    /// Joins the plane at a path and takes an address; `serves`: sessions of the virtual address may be
    /// steered to it. Packets of up to `packet_bytes` can be sent and received.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn join(
        path: impl AsRef<Path>,
        address: Ipv4Addr,
        serves: bool,
        packet_bytes: u32,
    ) -> Result<Self, ClientError> {
        let slot_bytes = (packet_bytes + PREFIX as u32).next_multiple_of(64);
        let shape = Shape { queues: QUEUES, slot_bytes, ..Shape::default() };
        let tenant = Tenant::join(path, shape)?;
        let mut joined = Self { tenant, buffer: Vec::with_capacity(slot_bytes as usize) };
        joined.ask(Request::Attach { address, serves })?;
        for _ in 0..RECEIVES {
            joined.submit(RECEIVING, Request::Receive)?;
        }
        Ok(joined)
    }

    /// Sends an IPv4 packet, and waits for the gateway's word on it.
    ///
    /// # Errors
    /// [`ClientError::Refused`] and the others.
    pub fn send(&mut self, packet: &[u8]) -> Result<(), ClientError> {
        self.ask(Request::Send(packet))
    }

    /// The next packet for this tenant, within `timeout`.
    ///
    /// # Errors
    /// [`ClientError`].
    pub fn receive(&mut self, timeout: Duration) -> Result<Option<Vec<u8>>, ClientError> {
        if !self.wait(RECEIVING, timeout)? {
            return Ok(None);
        }
        let Some(reply) = self.tenant.poll(RECEIVING) else { return Ok(None) };
        let packet = parse_reply(reply.bytes).map(<[u8]>::to_vec);
        self.submit(RECEIVING, Request::Receive)?;
        Ok(Some(packet?))
    }

    fn ask(&mut self, request: Request<'_>) -> Result<(), ClientError> {
        self.submit(SENDING, request)?;
        if !self.wait(SENDING, PATIENCE)? {
            return Err(ClientError::NoAnswer);
        }
        let reply = self.tenant.poll(SENDING).ok_or(ClientError::NoAnswer)?;
        match parse_reply(reply.bytes)? {
            [] => Ok(()),
            // As an echo says it.
            _ => Err(Refusal::BadRequest.into()),
        }
    }

    fn submit(&mut self, queue: u32, request: Request<'_>) -> Result<(), ClientError> {
        request.emit(&mut self.buffer);
        Ok(self.tenant.submit(queue, &self.buffer)?)
    }

    /// Waits until a queue has a reply. The other one may have some meanwhile, which stay.
    fn wait(&mut self, queue: u32, timeout: Duration) -> Result<bool, ClientError> {
        let end = std::time::Instant::now() + timeout;
        loop {
            if self.tenant.is_ready(queue) {
                return Ok(true);
            }
            let left = end.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return Ok(false);
            }
            if self.tenant.wait(left)?.is_some_and(|ready| ready != queue) {
                // It would not sleep while the other queue has replies.
                std::thread::yield_now();
            }
        }
    }
}
