//! `exec` and `shell`: one boot for a script, or for a person.

use std::io::Read;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};

use super::contents::Programs;
use super::fetch;
use super::machine::{End, Machine};
use super::paths::Paths;
use crate::boots::Boot;
use crate::protocol::{Event, Work};

/// A script of more bytes is none.
const SCRIPT_BYTES_MAX: u64 = 1 << 20;
/// Boots of one script: one more where the emulator hangs.
const ATTEMPTS: usize = 2;

/// Runs the script of the standard input in the guest, and prints what it prints.
///
/// # Errors
/// The guest did not run it to its end.
pub fn exec(
    paths: &Paths,
    boot: &Boot,
    programs: &Programs,
    limit_s: u64,
) -> anyhow::Result<ExitCode> {
    let mut script = Vec::new();
    std::io::stdin().take(SCRIPT_BYTES_MAX).read_to_end(&mut script).context("reading a script")?;
    let _lock = paths.lock(boot.name)?;
    for attempt in 1..=ATTEMPTS {
        let fetched = fetch::fetch(paths, &[*boot], false)?;
        let mut machine = Machine::start(paths, &fetched, programs, boot, Work::Script, &script)?;
        let (mut status, mut broken, mut has_begun) = (None, None, false);
        let end = machine.watch(Duration::from_secs(limit_s), |event| match event {
            Event::Output { text } => println!("{text}"),
            Event::Exit { status: found } => status = Some(found),
            Event::Broken { reason } => broken = Some(reason),
            Event::Rigged { .. } => has_begun = true,
            _ => {}
        });
        if let Some(status) = status {
            let status = status.and_then(|status| u8::try_from(status).ok());
            return Ok(ExitCode::from(status.unwrap_or(1)));
        }
        if let Some(reason) = broken {
            bail!("{}: {reason}\n{}", boot.name, machine.last_words());
        }
        match end {
            // What the script printed would come twice.
            End::Hangs(seconds) if !has_begun && attempt < ATTEMPTS => {
                eprintln!("devices: {}: silent for {seconds} s; boots once more", boot.name);
            }
            end => bail!("{}: {}\n{}", boot.name, end, machine.last_words()),
        }
    }
    bail!("{} did not boot in {ATTEMPTS} attempts", boot.name)
}

/// Gives a shell on the guest's console.
///
/// # Errors
/// The machine cannot be started.
pub fn shell(paths: &Paths, boot: &Boot, programs: &Programs) -> anyhow::Result<ExitCode> {
    let _lock = paths.lock(boot.name)?;
    let fetched = fetch::fetch(paths, &[*boot], false)?;
    eprintln!("devices: boots {}; `exit` ends the machine", boot.name);
    Machine::start(paths, &fetched, programs, boot, Work::Shell, b"")?.wait()?;
    Ok(ExitCode::SUCCESS)
}
