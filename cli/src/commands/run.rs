//! `tailplane run`: a service on the dataplane.
//!
//! ```text
//! tailplane run docs/kv.toml            in a terminal; Ctrl-C ends it
//! tailplane lab exec -- ping 10.77.0.2  in another one
//! tailplane run docs/echo.toml -- ./my-service   a program of one's own, in a process of its own
//! ```

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use anyhow::{Context, bail};
use nic::device::Watch;
use runtime::Controls;
use service::cleanup;
use service::config::{App, DomainName, RunConfig};
use service::control::{ControlSocket, Steered, describe};
use service::host::{Host, lab};
use service::lab::Lab;
use service::lab::guard::Guard;
use service::network_config::NetworkConfig;
use service::split::starter::{self, Serving};
use service::terminal::Output;
use service::{identity, report};
use tailplane::{Endpoint, Prefix};

/// Arguments of `tailplane run`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The configuration: TOML. `docs/kv.toml` shows the usual keys; those of `[policy]` are in
    /// docs/applications.md, of classes of connections in docs/scheduling.md, of the daemon in docs/daemon.md.
    #[arg(value_name = "CONFIG.toml")]
    pub config: PathBuf,
    /// End after this many seconds instead of at Ctrl-C.
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// A program to serve instead of the built-in service, in a process of its own (the `process` domain): one
    /// that uses `tailplane::application::serve`. Of `[service]` only the ports count then.
    #[arg(last = true, value_name = "PROGRAM")]
    pub program: Vec<OsString>,
}

/// Runs `tailplane run`.
///
/// # Errors
/// What the configuration, the lab or the dataplane could not do.
pub fn run(args: Args) -> anyhow::Result<ExitCode> {
    let mut config = RunConfig::load(&args.config)?;
    if !args.program.is_empty() {
        config.dataplane.domain = DomainName::Process;
        config.service.port = Some(config.service.port());
        config.service.app = App::Program;
    } else if config.service.app == App::Program {
        bail!(
            "cannot run '{}': found neither `service.app` in it nor a program; name a built-in service, or do \
             `tailplane run CONFIG.toml -- PROGRAM`",
            args.config.display()
        );
    }
    let stop = Arc::new(AtomicBool::new(false));
    let running = Arc::new(OnceLock::new());
    let end = ends(&stop, &running);
    cleanup::first_signal_calls(end.clone()).context("catching signals")?;
    let lab = lab(&config)?;
    // Where this process is killed, the lab goes all the same.
    let guard = lab.as_ref().filter(|lab| lab.is_own()).map(|_| Guard::start()).transpose()?;
    if let Some(seconds) = args.seconds {
        std::thread::spawn(move || {
            std::thread::sleep(std::time::Duration::from_secs(seconds));
            end();
        });
    }
    match config.dataplane.domain {
        DomainName::Inline => run_inline(&config, lab.as_ref(), &stop, &running)?,
        DomainName::Process => {
            let program = args.program.split_first().map(|(program, arguments)| {
                let mut command = Command::new(program);
                command.args(arguments);
                command
            });
            let announce = |serving: &Serving| match announcement(&config, serving) {
                Ok(announcement) => Output::Standard.print(&announcement),
                Err(error) => Output::Error.print(&format!("tailplane: {error:#}\n")),
            };
            starter::run(&config, lab.as_ref(), program, announce, &stop)?;
        }
    }
    drop(lab);
    drop(guard);
    Ok(ExitCode::SUCCESS)
}

/// Runs a service that is linked in, until `stop` is set.
fn run_inline(
    config: &RunConfig,
    lab: Option<&Lab>,
    stop: &Arc<AtomicBool>,
    running: &Arc<OnceLock<Arc<Controls>>>,
) -> anyhow::Result<()> {
    let mut host = Host::open(config, lab)?;
    let gone = watch_over(host.watch.take(), stop, ends(stop, running));
    let control = ControlSocket::open(config)?;
    let missing = std::iter::once(identity::of_inline()).chain(identity::foreign_files(config));
    let serving = Serving {
        driver: host.driver.clone(),
        cost: host.cost.take(),
        control: control.told.clone(),
        placement: None,
        protection: missing.map(|line| format!("missing: {line}")).collect(),
    };
    let announcement = announcement(config, &serving)?;
    let segment = host.runtime.segment.clone().context("the service shows nothing")?;
    let controls = Arc::clone(&host.controls);
    _ = running.set(Arc::clone(&controls));
    let description = describe(config, &host.driver);
    let ready = || {
        let (segment, controls) = (Arc::clone(&segment), Arc::clone(&controls));
        let stop = Arc::clone(stop);
        let steered = Steered { description: description.clone(), segment, controls, stop };
        match control.serve(steered) {
            Ok(()) => print!("{announcement}"),
            Err(error) => {
                eprintln!("tailplane: nobody can control this service: {error:#}")
            }
        }
    };
    report::summarize(&host.run_app(config, ready, stop)?);
    if gone.load(Ordering::Relaxed) {
        bail!("cannot serve any longer: found the interface gone; start again when it is back");
    }
    Ok(())
}

/// How often it is looked whether the interface is there.
const INTERFACE_LOOK: Duration = Duration::from_millis(100);

/// Ends the run, and sets the flag that is answered, when the interface goes.
fn watch_over(
    watch: Option<Arc<Watch>>,
    stop: &Arc<AtomicBool>,
    end: impl Fn() + Send + 'static,
) -> Arc<AtomicBool> {
    let gone = Arc::new(AtomicBool::new(false));
    let (stop, sees) = (Arc::clone(stop), Arc::clone(&gone));
    if let Some(watch) = watch {
        std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                std::thread::sleep(INTERFACE_LOOK);
                if !watch.is_there() {
                    sees.store(true, Ordering::Relaxed);
                    return end();
                }
            }
        });
    }
    gone
}

/// What ends the run: sets `stop`, and wakes the elastic threads that sleep where they are this process's.
fn ends(
    stop: &Arc<AtomicBool>,
    running: &Arc<OnceLock<Arc<Controls>>>,
) -> impl Fn() + Clone + Send + 'static {
    let (stop, running) = (Arc::clone(stop), Arc::clone(running));
    move || match running.get() {
        Some(controls) => controls.end(&stop),
        None => stop.store(true, Ordering::Relaxed),
    }
}

/// What is active, so that nobody has to guess.
fn announcement(config: &RunConfig, serving: &Serving) -> anyhow::Result<String> {
    let Serving { driver, cost, control, placement, protection } = serving;
    let (own, plane) = (config.network.own_addresses()?, &config.dataplane);
    let address = own[0].address;
    let end = |own: &Prefix| Endpoint::new(own.address, config.service.port()).to_string();
    let ends: Vec<_> = own.iter().map(end).collect();
    let idle = match plane.spin_us {
        ..0 => "spins for ever".to_owned(),
        spin => format!("sleeps after {spin} us without work"),
    };
    let try_it = match &config.network {
        NetworkConfig { interface: None, shm: None, .. } => {
            let lab = config.network.lab();
            format!("  try it     tailplane lab exec --name {lab} -- ping -c 3 {address}\n")
        }
        NetworkConfig { shm: Some(path), .. } => {
            format!("  try it     tailplane load {} --shm {}\n", ends[0], path.display())
        }
        _ => String::new(),
    };
    let granted = match plane.granted() {
        all if all == plane.threads => String::new(),
        granted => format!(", {granted} of them granted"),
    };
    let cost = cost.as_ref().map_or(String::new(), |cost| format!("  memory     {cost}\n"));
    let placement =
        placement.as_ref().map_or(String::new(), |said| format!("  placement  {said}\n"));
    let protection: String =
        protection.iter().map(|line| format!("  protection {line}\n")).collect();
    Ok(format!(
        "{:?} at {}\n  driver     {}\n{cost}  threads    {}{granted} ({idle}), B = {}\n  \
         scheduler  {}, domain {}\n{placement}{protection}  control    {control}\n{try_it}",
        config.service.app,
        ends.join(", "),
        driver,
        plane.threads,
        plane.batch,
        plane.describe_scheduler(),
        plane.describe_domain(),
    ))
}
