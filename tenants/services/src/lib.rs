//! The six data-plane services of HyperPlane (MICRO 2020, §V-A), each as a transform of one request into one reply.
//!
//! | The paper | Here |
//! | --- | --- |
//! | packet encapsulation | [`Encapsulation`], [`Decapsulation`]: IPv4 in GRE in IPv6 |
//! | crypto forwarding | [`Encryption`], [`Decryption`]: AES-256 in CBC mode |
//! | packet steering | [`Steering`]: sessions stay with their backend |
//! | erasure coding | [`ReedSolomon`], [`Repair`]: a Cauchy matrix over GF(2^8) |
//! | RAID protection | [`Raid`]: P + Q |
//! | request dispatching | [`Dispatcher`]: method to pool, shortest bounded queue |
//!
//! A data-plane core calls [`Service::serve`] with the bytes of a request and with room for the reply, both its own:
//!
//! ```
//! use services::{Raid, Refused, Service};
//!
//! let mut raid = Raid::new(4)?;
//! let request = [7u8; 4 * 512];
//! let mut reply = [0u8; 2 * 512];
//! let length = raid.serve(&request, &mut reply)?;
//! assert_eq!(length, raid.reply_len_max(request.len()));
//! // A request that cannot be served is refused with the reason, never with a panic.
//! assert!(matches!(raid.serve(&request[..510], &mut reply), Err(Refused::Length { .. })));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Memory is allocated by the constructors. `serve` allocates nothing, makes no system call and reads no clock; what
//! needs the time ([`Steering`]) is told it.

mod crypto;
mod decapsulation;
mod dispatch;
mod ecn;
mod encapsulation;
mod erasure;
mod galois;
mod gre;
mod ipv6;
mod maglev;
mod matrix;
mod raid;
mod refused;
mod service;
mod sessions;
mod steering;
mod unsafe_galois;

pub use crypto::{Decryption, Encryption, KEY_LEN};
pub use decapsulation::Decapsulation;
pub use dispatch::{
    DISPATCH_VERSION, DispatchConfig, DispatchConfigError, Dispatcher, FLAG_KEYED, FLAG_ONE_WAY,
    NotOutstanding, PREPARED_HEADER_LEN, REQUEST_HEADER_LEN, RequestHeader, WORKERS_MAX,
};
pub use ecn::DscpModel;
pub use encapsulation::{Encapsulation, TunnelConfig, TunnelError};
pub use erasure::{ErasureError, ReedSolomon, Repair};
pub use galois::Element;
pub use raid::{LostBlocks, Raid, RaidError};
pub use refused::{Layer, Refused};
pub use service::Service;
pub use sessions::BackendId;
pub use steering::{Steering, SteeringConfig, SteeringError, SteeringStats};
pub use unsafe_galois::Kernel;
