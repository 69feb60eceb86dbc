//! TCP (RFC 9293), one mechanism a file.
//!
//! `conn` is the state, `group` owns it and finds it through `table`. `segment` is the arrival of a segment and calls, in the
//! order of RFC 9293 §3.10.7.4, `ack` (with `rtt` and `loss`), `receive` (with `reassembly`) and `close`. `loss` says what an
//! acknowledgment or a time-out means for what was sent, with `scoreboard`, `rack`, `tail`, `prr`, `spurious` and
//! `congestion`; `ecn` reads and writes marks, and `path_mtu`, with the messages of `too_big`, says how large segments are.
//! `long` knows segments of several chunks.
//! `listen` (with `half_open`, `handshake` and `cookie`) and `connect` open. `send_queue` decides what is sent, at the pace of
//! `pacing`,
//! `output` (with `announce`) sends it, `reset` what belongs to no connection and what is `owed`; `settle` ends a batch,
//! `timers` (with `keepalive`) fires; `calls` executes the application's batched system calls, `unlisten` ends what a closed port has not handed over. `predicted` is the short way
//! through `segment`, `ack` and `receive` for the segment that an established connection expects.
//!
//! Each file imports only files to its left: `long` | `scoreboard` | `rack`, `prr`, `congestion` | `recovery` | `conn`, `fields`,
//! `owed`, `backlog`, `keepalive` | `handshake`, `rtt`, `ecn` | `spurious`, `tail` | `path_mtu` | `loss`, `announce`, `pacing` |
//! `group` | `output`, `reset` |
//! `send_queue` | `settle` | `cookie`, `half_open` | `connect`, `listen` | `close`, `ack` | `receive` | `predicted` | `segment`;
//! beside `segment` stand `timers`, `calls`, `info`, `unlisten` and `too_big`.

pub(crate) mod ack;
pub(crate) mod announce;
pub(crate) mod backlog;
pub(crate) mod calls;
pub(crate) mod close;
pub mod congestion;
pub mod conn;
pub(crate) mod connect;
pub(crate) mod cookie;
pub(crate) mod ecn;
pub(crate) mod fields;
pub(crate) mod group;
pub(crate) mod half_open;
pub(crate) mod handshake;
pub(crate) mod info;
pub(crate) mod isn;
pub(crate) mod keepalive;
pub(crate) mod listen;
pub(crate) mod long;
pub(crate) mod loss;
pub(crate) mod output;
pub(crate) mod owed;
pub(crate) mod pacing;
pub(crate) mod path_mtu;
pub(crate) mod predicted;
pub(crate) mod prr;
pub(crate) mod rack;
pub(crate) mod reassembly;
pub(crate) mod receive;
pub(crate) mod recovery;
pub(crate) mod reset;
pub(crate) mod rtt;
pub(crate) mod scoreboard;
pub(crate) mod segment;
pub(crate) mod send_queue;
pub(crate) mod settle;
pub(crate) mod spurious;
pub(crate) mod table;
pub(crate) mod tail;
pub(crate) mod timers;
pub(crate) mod too_big;
pub(crate) mod unlisten;
