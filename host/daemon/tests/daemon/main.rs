//! The real `tailplaned`, as a process, with services that answer at real control sockets.

mod control_socket;
mod dataplane;
mod intruder;
mod killed;
mod page;
mod processes;
mod support;
mod systemd;
