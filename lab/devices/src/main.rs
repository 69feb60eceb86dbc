//! `tailplane-devices`: runs tailplane on the drivers of real NICs, in machines that QEMU emulates. Neither hardware nor
//! a processor with virtualisation is needed.
//!
//! ```text
//! tailplane-devices list                          boots and checks
//! tailplane-devices run --boot igb-zero-copy      one boot, all checks: a table
//! tailplane-devices exec igb-zero-copy < script   a script in the guest
//! ```
//!
//! On the host this program fetches, boots and judges ([`host`]); in the machine it is the first process, and runs the
//! checks ([`guest`]).

mod boots;
mod guest;
mod host;
mod protocol;

use std::process::ExitCode;

fn main() -> anyhow::Result<ExitCode> {
    if std::process::id() == 1 {
        guest::init();
    }
    let mut arguments = std::env::args_os().skip(1);
    match arguments.next() {
        Some(first) if first == guest::COMMAND => guest::run(),
        _ => host::run(),
    }
}
