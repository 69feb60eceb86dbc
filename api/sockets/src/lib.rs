//! POSIX sockets over events and batched system calls (IX Table II): what a program expects of Linux, from the dataplane.
//!
//! [`Sockets`] are a [`Service`](domain::Service): the elastic thread hands them its events, and they issue its calls. The
//! application's side are the methods that are named after system calls. They never sleep: a call has a result, or
//! [`Stop::Blocked`] says what it waits for, and who drives the sockets runs the dataplane, or sleeps, and asks again. So
//! they run under virtual time. One `Sockets` serves a dataplane of one elastic thread: connections that knock on another
//! thread, or whose flow groups move to one, are not theirs.
//!
//! ```
//! use sockets::{Errno, Sockets, SocketsConfig, Stop};
//! use sockets::socket_type::{AF_INET, SOCK_STREAM};
//!
//! let mut sockets = Sockets::new(SocketsConfig::new(vec!["10.0.0.1".parse().unwrap()]));
//! let listener = sockets.socket(AF_INET, SOCK_STREAM, 0).unwrap();
//! sockets.bind(listener, "10.0.0.1:80".parse().unwrap()).unwrap();
//! // The dataplane has to open the port.
//! assert!(matches!(sockets.listen(listener, 128), Err(Stop::Blocked(_))));
//! assert_eq!(sockets.accept(-1, 0), Err(Stop::Failed(Errno::EBADF)));
//! ```
//!
//! `stream` and `datagram` are what a socket holds, `readiness` says what it is ready for, `epoll` is a set of sockets,
//! `table` has the descriptors, `ports` the local ports, `local` the local addresses; `socket_calls`, `transfer`, `option_calls` and `ready_calls` are the calls, `service` the
//! events. Received bytes are copied twice: to the socket as their event comes, and to the reader; they are given back to the
//! dataplane as they are read, so that the receive window bounds them. Sent bytes are copied to the socket, where the send
//! buffer bounds them, and into the frames.
#![no_std]
extern crate alloc;

mod datagram;
mod epoll;
mod errno;
mod local;
mod option_calls;
mod options;
mod ports;
mod readiness;
mod ready_calls;
mod service;
mod socket_calls;
mod sockets;
mod stream;
mod table;
mod transfer;

pub use epoll::{EPOLLET, EPOLLEXCLUSIVE, EPOLLONESHOT, EPOLLWAKEUP, EpollEvent};
pub use errno::Errno;
pub use option_calls::option;
pub use readiness::events;
pub use ready_calls::{EpollOperation, PollFd};
pub use socket_calls::{SHUT_RD, SHUT_RDWR, SHUT_WR, socket_type};
pub use sockets::{Answer, Sockets, SocketsConfig, Stop, Wait};
pub use transfer::{Received, message};
