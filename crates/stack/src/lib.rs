//! The TCP/IP stack.
