//! The load generator: open and closed loop, over kernel sockets or the dataplane.
