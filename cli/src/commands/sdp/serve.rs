//! `tailplane sdp serve`: the plane.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::bail;
use sdp::{Listener, Notify};

use super::gateway;
use super::json::write_or_print;
use super::opener::PlaneProcess;
use super::serve_args::{ServeArgs, plane_config};
use super::services::service;

/// The name of the service that has a device.
pub const GATEWAY: &str = "gateway";

/// What must be so for any service, before anything is opened.
fn check_service(args: &ServeArgs) -> anyhow::Result<()> {
    if args.service == GATEWAY {
        if args.cores != 1 {
            bail!(
                "`--cores` is {}; allowed with `--service gateway`: 1, for one queue",
                args.cores
            );
        }
        return Ok(());
    }
    if args.gateway.is_some() || args.lab_end.is_some() {
        bail!(
            "`--gateway` and `--lab-end` go with `--service gateway`, not with `{}`",
            args.service
        );
    }
    if service(&args.service).is_none() {
        bail!(
            "`--service {}`: there are `echo`, `work:NS`, `encryption`, `raid:DISKS`, \
             `reed-solomon:DATA+PARITY` and `gateway`",
            args.service
        );
    }
    Ok(())
}

/// Runs `tailplane sdp serve`: opens what takes privileges, and has a process without any serve.
///
/// # Errors
/// A device or a plane that cannot be had, or a file that cannot be written.
pub fn serve(args: &ServeArgs, stop: &AtomicBool) -> anyhow::Result<()> {
    let config = plane_config(args)?;
    check_service(args)?;
    let gateway = (args.service == GATEWAY).then(|| gateway::open(args)).transpose()?;
    let listener = Listener::bind(&config.socket, config.socket_mode)?;
    let announcement = match &gateway {
        None => format!(
            "  try it     tailplane sdp tenant --socket {} --queues 10",
            args.socket.display()
        ),
        Some(opened) => format!(
            "{}  try it     tailplane sdp packets --socket {} --address ADDRESS",
            opened.announcement,
            args.socket.display()
        ),
    };
    let mut plane = PlaneProcess::start(args, &config, &listener, gateway)?;
    let idle = match args.notify {
        Notify::Qwait => format!("sleeps after {} empty looks", args.spin_looks),
        _ => "spins for ever".to_owned(),
    };
    let protection: String =
        plane.protection.iter().map(|line| format!("  protection {line}\n")).collect();
    eprintln!(
        "{} at {}\n  cores      {}, {}\n  notify     {} ({idle}), batch {}\n{protection}{announcement}",
        args.service,
        args.socket.display(),
        args.cores,
        args.arrangement,
        args.notify.name(),
        args.batch,
    );
    let start = Instant::now();
    let over = |start: Instant| args.seconds.is_some_and(|end| start.elapsed().as_secs() >= end);
    while !stop.load(Ordering::Relaxed) && !over(start) && plane.runs()? {
        std::thread::sleep(Duration::from_millis(50));
    }
    let protection = plane.protection.clone();
    let mut written = plane.stop()?;
    if let Some(conditions) = written.json.get_mut("conditions") {
        conditions["protection"] = protection.into();
    }
    write_or_print(args.json.as_ref(), &written.json, &written.text)
}
