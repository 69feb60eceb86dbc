//! The six services from outside: what they give, what they refuse, and that independent programs agree with them.
//!
//! `cargo test -p services`. The programs are openssl, tshark, and Intel's ISA-L through a C program that the
//! test compiles; `tools.rs` says what happens where one is not installed.

mod bytes;
mod codes;
mod crypto;
mod dispatch;
mod isal;
mod openssl;
mod packets;
mod steering;
mod tools;
mod tshark;
mod tunnel;
mod unsafe_allocations;
