//! Attacks by what a process can be: two, stopped, dead, deaf.

use std::os::fd::AsFd;
use std::time::Duration;

use rand::RngExt;
use rustix::net::{SendFlags, Shutdown, send, shutdown};
use rustix::process::{Signal, getpid, kill_process};

use super::Attacker;
use crate::joined::Greeted;
use crate::lies::{Liar, MIXED};
use crate::unsafe_os;

/// Two write, and neither knows of the other.
pub fn fork(attacker: &mut Attacker) -> anyhow::Result<()> {
    if unsafe_os::fork()?.is_none() {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        unsafe_os::end_after(30);
        attacker.liar = Liar::new(!attacker.seed, MIXED);
    }
    attacker.lie()
}

/// Another state with each seed; the first of them, before anything is read, is the program's start.
pub fn exit_in_every_state(greeted: Greeted, liar: Liar, seed: u64) -> anyhow::Result<()> {
    let state = seed % 10;
    match state {
        // Without an answer.
        1 => return Ok(()),
        2 => {
            std::thread::sleep(Duration::from_millis(30));
            return Ok(());
        }
        _ => {}
    }
    let joined = greeted.answer(false)?.swap_remove(0);
    let mut attacker = Attacker { joined, liar, seed, seen: 0 };
    // Just joined.
    if state == 3 {
        return Ok(());
    }
    let batches = attacker.liar.random.random_range(1..40);
    attacker.serve(batches);
    attacker.hear();
    match state {
        // Within a batch.
        4 => {}
        // With calls of which half is written, but said to be done.
        5 => {
            let most = attacker.joined.geometry.call_records();
            let call = |_| super::send(attacker.liar.handle(), 1_448);
            let calls: Vec<_> = (0..most / 2).map(call).collect();
            attacker.hand_over(&calls, most as u32, 0, 0);
        }
        // While it sends.
        6 => {
            let calls: Vec<_> =
                attacker.liar.open.iter().map(|h| super::send(*h, 65_535)).collect();
            attacker.ask(&calls);
        }
        // While connections close.
        7 => {
            let calls: Vec<_> = attacker.liar.open.iter().map(|h| [4, *h, 0, 0]).collect();
            attacker.ask(&calls);
        }
        8 => {
            let calls: Vec<_> = (0..500).map(|n| [0, n, attacker.liar.peers[0], 0]).collect();
            attacker.ask(&calls);
        }
        _ => kill_process(getpid(), Signal::ABORT)?,
    }
    std::process::exit(0)
}

/// Stops itself, at random.
pub fn stop(attacker: &mut Attacker) -> anyhow::Result<()> {
    loop {
        let batches = attacker.liar.random.random_range(1..200);
        if !attacker.serve(batches) || !attacker.hear() {
            return Ok(());
        }
        // In the middle of a batch. Whoever continues it is not this program.
        kill_process(getpid(), Signal::STOP)?;
        attacker.done();
    }
}

/// Stops itself in the middle of a batch, and whenever it is continued: only its death ends that.
pub fn stopped(attacker: &mut Attacker) -> anyhow::Result<()> {
    attacker.serve(50);
    attacker.hear();
    loop {
        kill_process(getpid(), Signal::STOP)?;
    }
}

/// Is killed at a random moment.
pub fn kill(attacker: &mut Attacker) -> anyhow::Result<()> {
    let after = Duration::from_micros(attacker.liar.random.random_range(1..40_000));
    std::thread::spawn(move || {
        std::thread::sleep(after);
        kill_process(getpid(), Signal::KILL)
    });
    attacker.lie()
}

/// Another game with each seed.
pub fn socket_games(attacker: &mut Attacker) -> anyhow::Result<()> {
    attacker.serve(5);
    let games = attacker.liar.random.random_range(0..5);
    let socket = attacker.joined.socket.as_fd();
    match games {
        0 | 1 => {
            let garbage = [0x5a; 4_096];
            // Until it is full, or longer than anybody reads.
            for count in 0..10_000 {
                let sent = send(
                    socket,
                    &garbage[..count % 4_096],
                    SendFlags::DONTWAIT | SendFlags::NOSIGNAL,
                );
                if sent.is_err() {
                    break;
                }
            }
        }
        2 => shutdown(socket, Shutdown::Read)?,
        3 => shutdown(socket, Shutdown::Write)?,
        _ => {
            // The dataplane hears that it is gone, and it goes on.
            shutdown(socket, Shutdown::Both)?;
        }
    }
    attacker.liar.set_falsehood(MIXED);
    for _ in 0..3_000 {
        if attacker.joined.wait(attacker.batch(), Duration::from_millis(100)).is_none() {
            break;
        }
        attacker.hear();
        attacker.liar.lie(&attacker.joined);
        attacker.done();
    }
    Ok(())
}
