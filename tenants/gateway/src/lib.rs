//! A tunnel gateway on the many-tenant data plane: packets of processes that nobody trusts go out through
//! a GRE tunnel over IPv6 and come back, and sessions of a virtual address are steered to them (two of
//! HyperPlane's services, MICRO 2020 §V-A, on a device).
//!
//! ```text
//! tenant  SEND packet -> source checked -> encapsulated -> device
//! device  -> decapsulated -> to the virtual address? steered -> its tenant's mailbox -> RECEIVE's reply
//! ```
//!
//! A tenant attaches to an IPv4 address of the gateway's range ([`Request::Attach`]) and has it until it
//! is gone. It can send from that address alone, and from the virtual one where it serves that; what it
//! does not receive fills its own mailbox and nobody else's. Packets from tenant to tenant do not leave.
//!
//! | File | Holds |
//! | --- | --- |
//! | `protocol` | what is said over a queue pair |
//! | `mailboxes` | packets that wait for tenants |
//! | `gateway` | the service: one data-plane core, one queue of a device |
//! | `client` | the tenant's side |

mod client;
mod gateway;
mod mailboxes;
mod protocol;

pub use client::{ClientError, GatewayTenant};
pub use gateway::{Counters, Gateway, GatewayConfig, GatewayError, GatewayStats, Links};
pub use protocol::{PREFIX, Refusal, Request, parse_reply};
