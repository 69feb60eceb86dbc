//! A program whose dataplane is another process: `tailplane run CONFIG.toml -- PROGRAM` starts both.
//!
//! ```no_run
//! use tailplane::{Server, application};
//! # use tailplane::{Flow, Instant, Opened, Output, Protocol};
//! # struct Echo;
//! # impl Protocol for Echo {
//! #     type Connection = ();
//! #     fn open(&mut self, _: Instant, _: Opened) -> Option<()> { Some(()) }
//! #     fn receive(&mut self, _: Instant, _: &mut (), data: &[u8], output: &mut Output<'_, '_>) -> Flow {
//! #         output.put(data);
//! #         Flow::Continue
//! #     }
//! # }
//! // The service is the same that could be linked into a dataplane.
//! application::serve(|_core| Server::new(Echo))?;
//! # Ok::<(), tailplane::application::ApplicationError>(())
//! ```
//!
//! The program is an ordinary process: files, clocks and memory are the kernel's as ever, and it may start background
//! threads, which share the processors that the kernel gives to it. What it must not do in a service is block, as its
//! elastic thread's connections wait for it; nobody else's do. An elastic thread that has had a batch for more than
//! 10 ms is reported by the dataplane (IX §4.1).

use std::fmt::{self, Display};
use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use domain::Service;
use process::{Application, JoinError};
use rustix::thread::CpuSet;

use crate::unsafe_inherited;

/// The environment variable that names the descriptor of the dataplane's socket.
pub const DOMAIN_VARIABLE: &str = "TAILPLANE_DOMAIN";

/// The environment variable that lists the processors of the elastic threads, in their order, as in `1,3`; those that
/// have none there run where the kernel puts them, as background threads do.
pub const CPUS_VARIABLE: &str = "TAILPLANE_CPUS";

/// Why a program could not serve. Its `Debug` is its `Display`: what a `main` that returns it prints is for a reader.
#[derive(thiserror::Error)]
#[error("{0}")]
pub struct ApplicationError(String);

impl ApplicationError {
    /// Elastic thread `core` cannot have its processor.
    fn cpu(core: usize, cpu: impl Display, reason: impl Display) -> Self {
        Self(format!(
            "elastic thread {core} of the application cannot run on processor '{cpu}' ({CPUS_VARIABLE}): {reason}"
        ))
    }
}

impl From<JoinError> for ApplicationError {
    fn from(error: JoinError) -> Self {
        Self(error.to_string())
    }
}

impl fmt::Debug for ApplicationError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Display::fmt(self, f)
    }
}

/// Joins the dataplane that this program was started with, and serves with the service that `make_service` makes
/// for each elastic thread, until the dataplane goes. Answers the services.
///
/// # Errors
/// [`ApplicationError`].
pub fn serve<S: Service + Send>(
    make_service: impl Fn(usize) -> S,
) -> Result<Vec<S>, ApplicationError> {
    serve_over(inherited()?, make_service)
}

/// The socket that the starter left to this program.
fn inherited() -> Result<OwnedFd, ApplicationError> {
    let said = std::env::var(DOMAIN_VARIABLE);
    let number = said.as_deref().ok().and_then(|said| said.parse::<RawFd>().ok());
    number.and_then(unsafe_inherited::take).ok_or_else(|| {
        let found = said.map_or_else(|_| "not set".to_owned(), |said| format!("'{said}'"));
        ApplicationError(format!(
            "this program serves on a dataplane, and was started without one ({DOMAIN_VARIABLE} is {found}): start it \
             with `tailplane run CONFIG.toml -- PROGRAM`"
        ))
    })
}

/// As [`serve`], over a socket that is at hand.
///
/// # Errors
/// [`ApplicationError`].
pub fn serve_over<S: Service + Send>(
    socket: OwnedFd,
    make_service: impl Fn(usize) -> S,
) -> Result<Vec<S>, ApplicationError> {
    let cpus = cpus(std::env::var(CPUS_VARIABLE).ok().as_deref())?;
    let application = Application::join(socket)?;
    let mut services: Vec<S> = (0..application.lanes()).map(make_service).collect();
    let lanes = application.begin(services.iter().all(Service::runs_anywhere))?;
    let stop = AtomicBool::new(false);
    let run = |core: usize, (mut far, service): (process::Far, &mut S)| {
        let _others = EndsAll(&stop);
        if let Some(&cpu) = cpus.get(core) {
            let mut set = CpuSet::new();
            set.set(cpu);
            rustix::thread::sched_setaffinity(None, &set)
                .map_err(|errno| ApplicationError::cpu(core, cpu, errno))?;
        }
        // Whether the dataplane has gone, or another thread has ended: there is nothing left to serve.
        far.run(service, &stop);
        Ok(())
    };
    let run = &run;
    std::thread::scope(|scope| {
        let lanes = lanes.into_iter().zip(&mut services).enumerate();
        let threads: Vec<_> =
            lanes.map(|(core, lane)| scope.spawn(move || run(core, lane))).collect();
        // All of them are waited for; the first that did not end well is the one to tell of.
        let ended: Vec<_> = threads.into_iter().map(std::thread::ScopedJoinHandle::join).collect();
        ended.into_iter().enumerate().try_for_each(|(core, ended)| {
            let panicked = format!("the service of elastic thread {core} panicked");
            ended.unwrap_or(Err(ApplicationError(panicked)))
        })
    })?;
    Ok(services)
}

/// The processor of each elastic thread that has one.
fn cpus(listed: Option<&str>) -> Result<Vec<usize>, ApplicationError> {
    let listed = listed.map(str::trim).filter(|listed| !listed.is_empty());
    let all = listed.into_iter().flat_map(|listed| listed.split(',')).enumerate();
    all.map(|(core, cpu)| {
        let number = cpu.trim().parse().ok().filter(|number| *number < CpuSet::MAX_CPU);
        number.ok_or_else(|| {
            let reason = format!("allowed: 0 to {}", CpuSet::MAX_CPU - 1);
            ApplicationError::cpu(core, cpu, reason)
        })
    })
    .collect()
}

/// When one thread ends, also by a panic, the others end: connections of the whole program would lack a part.
struct EndsAll<'a>(&'a AtomicBool);

impl Drop for EndsAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processors_are_numbers_in_a_list() {
        let found = cpus(Some("1, 3")).expect("a list");
        assert_eq!(found, [1, 3]);
        assert!(
            cpus(None).expect("no list").is_empty() && cpus(Some(" ")).expect("none").is_empty()
        );
        for wrong in ["one", "1,,2", "-1", "99999999"] {
            let error = cpus(Some(wrong)).expect_err("no list of processors").to_string();
            assert!(error.contains(CPUS_VARIABLE) && error.contains("allowed"), "{error}");
        }
    }

    #[test]
    fn a_main_that_returns_the_error_prints_its_text() {
        let error = ApplicationError("start it with `tailplane run`".to_owned());
        assert_eq!(format!("{error:?}"), error.to_string());
    }
}
