//! The semantics of sockets, one a test, in virtual time: a server and a client, each with its sockets over a real elastic
//! thread and stack, joined by the loopback driver.

mod addresses;
mod call_script;
mod datagrams;
mod epolls;
mod options;
mod ports;
mod properties;
mod streams;
mod support;
