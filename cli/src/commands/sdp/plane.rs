//! The plane's process of `tailplane sdp serve`: `tailplane sdp plane`, started by [`opener`](super::opener).
//!
//! Its control socket is its standard input. It takes what the opener passes, gives up all system calls that
//! serving and joining do not make, and serves tenants until the opener hangs up.

use std::fs::File;
use std::io::{Write, stdin};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;

use anyhow::{Context, bail};
use rustix::event::{PollFd, PollFlags, poll};
use sandbox::SyscallPolicy;
use sdp::Plane;

use super::gateway::Adopted;
use super::opener::{Order, Start, Told};
use super::report::Written;
use super::serve_args::plane_config;
use super::services::service;
use service::split::control::{DESCRIPTORS_MAX, receive, send};

/// Serves as the plane of the opener at the other end of the standard input, and tells it how that went.
///
/// # Errors
/// There is no opener.
pub fn serve() -> anyhow::Result<()> {
    let control = stdin().as_fd().try_clone_to_owned().context("taking the control socket")?;
    let told = match run(&control) {
        Ok(()) => Told::Ended,
        Err(error) => Told::Failed(error.chain().map(ToString::to_string).collect()),
    };
    send(&control, &told, &[]).context("`tailplane sdp serve` starts this")
}

fn run(control: &OwnedFd) -> anyhow::Result<()> {
    let (order, descriptors) = receive(control, DESCRIPTORS_MAX)?
        .context("`tailplane sdp serve` starts this, and has gone")?;
    let Order::Start(start) = order else { bail!("another order came before the start") };
    let Start { args, gateway } = *start;
    let mut descriptors = descriptors.into_iter();
    let mut next =
        |what: &'static str| descriptors.next().with_context(|| format!("no {what} was passed"));
    let (listener, report) = (next("listening socket")?, next("file for the report")?);
    let adopted = match &gateway {
        Some(passed) => {
            let (memory, socket) = (next("packet memory")?, next("AF_XDP socket")?);
            let adopted = Adopted::adopt(passed, memory, socket)?;
            send(control, &Told::Mapped, &[])?;
            Some(adopted)
        }
        None => None,
    };
    // Until then, packet memory is not ours alone.
    match receive(control, 0)? {
        Some((Order::Alone, _)) => {}
        Some(_) => bail!("another order came before the plane was alone"),
        None => return Ok(()),
    }
    let prepared = adopted.map(|adopted| adopted.prepare().map(Arc::new)).transpose()?;
    // All of this process's threads, those to come too.
    SyscallPolicy::plane().with_threads().enforce().context("giving up system calls")?;
    let (name, device) = (args.service.clone(), prepared.clone());
    let plane = Plane::start_at(listener, plane_config(&args)?, move |_| match &device {
        Some(device) => device.take(),
        // The opener has found the name before, and the registry does not change.
        None => service(&name).unwrap_or_else(|| Box::new(sdp::Echo)),
    })?;
    // All of them run.
    SyscallPolicy::plane().enforce().context("giving up making threads")?;
    let lowered = plane.lowered().map(str::to_owned);
    send(control, &Told::Ready(lowered.into_iter().collect()), &[])?;
    until_hang_up(control);
    let counted = plane.report();
    plane.stop();
    let stats = prepared.map(|prepared| prepared.counters.read());
    let written = serde_json::to_vec(&Written::of(&args, &counted, stats))?;
    File::from(report).write_all(&written).context("writing the report")
}

fn until_hang_up(control: &OwnedFd) {
    // The opener says nothing more: a word is an end, too.
    while let Ok(0) | Err(rustix::io::Errno::INTR) =
        poll(&mut [PollFd::new(control, PollFlags::IN)], None)
    {}
}
