//! Linux's error numbers.

macro_rules! numbers {
    ($($(#[$doc:meta])* $name:ident = $number:literal,)*) => {
        /// Why a call failed, as Linux numbers it.
        #[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
        #[error("errno {}", self.number())]
        pub enum Errno { $($(#[$doc])* $name = $number,)* }
    };
}

numbers! {
    /// No such item in an epoll set.
    ENOENT = 2,
    /// No such descriptor.
    EBADF = 9,
    /// The call would have to wait.
    EAGAIN = 11,
    /// The policy forbids it.
    EACCES = 13,
    /// A buffer is nowhere.
    EFAULT = 14,
    /// The item is in the epoll set already.
    EEXIST = 17,
    /// An argument makes no sense, or not in this state.
    EINVAL = 22,
    /// Too many descriptors.
    EMFILE = 24,
    /// No such request.
    ENOTTY = 25,
    /// The way to send is closed.
    EPIPE = 32,
    /// The descriptor is none of a socket.
    ENOTSOCK = 88,
    /// No peer was named.
    EDESTADDRREQ = 89,
    /// A datagram does not fit.
    EMSGSIZE = 90,
    /// No such option, or none that can be set so.
    ENOPROTOOPT = 92,
    /// No such protocol for this type.
    EPROTONOSUPPORT = 93,
    /// No such type of socket.
    ESOCKTNOSUPPORT = 94,
    /// No socket of this type does that.
    EOPNOTSUPP = 95,
    /// No such address family.
    EAFNOSUPPORT = 97,
    /// The port is taken.
    EADDRINUSE = 98,
    /// The address is none of ours, or no port is free.
    EADDRNOTAVAIL = 99,
    /// The peer reset the connection.
    ECONNRESET = 104,
    /// There is no packet memory.
    ENOBUFS = 105,
    /// The socket is connected.
    EISCONN = 106,
    /// The socket is not connected.
    ENOTCONN = 107,
    /// The peer stopped answering.
    ETIMEDOUT = 110,
    /// Nothing listens there.
    ECONNREFUSED = 111,
    /// No way leads there.
    EHOSTUNREACH = 113,
    /// An attempt to connect goes on.
    EALREADY = 114,
    /// An attempt to connect has begun.
    EINPROGRESS = 115,
}

impl Errno {
    /// Linux's number.
    pub fn number(self) -> i32 {
        self as i32
    }
}
