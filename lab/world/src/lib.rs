//! One world of virtual time (DESIGN: simulation): the real stack and the real elastic threads on hosts whose cores,
//! links, costs, schedulers and seeds are parameters. One seed replays one run.
//!
//! - [`lossy`]: hosts on links that lose, double, reorder, corrupt and delay frames, for finding bugs.
//! - [`cores`]: a server of many cores whose steps have a price ([`calibrate`] measures it), for ZygOS's figures.
//! - [`controlled`]: IX's controlled server, its policies and their scores.
//! - [`rig`]: two dataplanes in one thread, for counting instructions; [`two_cores`]: both schedulers on two real cores.
//! - [`network`] and [`port`]: the links, and a host's queue pair on them; [`path`]: a link with a rate, a queue and a
//!   delay; [`tail`]: the ends of answers that it loses; [`dice`]: seeded draws; [`pcap`]: a look at the frames.

pub mod calibrate;
pub mod controlled;
pub mod cores;
mod device;
pub mod dice;
pub mod lossy;
pub mod network;
pub mod path;
pub mod pcap;
pub mod port;
pub mod rig;
pub mod tail;
pub mod two_cores;
