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
//! The program is an ordinary process: files, clocks and memory are the kernel's as ever, and it may start further
//! threads. What it must not do in a service is block, as its elastic thread's connections wait for it; nobody
//! else's do.

use std::os::fd::{OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, Ordering};

use domain::Service;
use process::{Application, JoinError};

use crate::unsafe_inherited;

/// The environment variable that names the descriptor of the dataplane's socket.
pub const DOMAIN_VARIABLE: &str = "TAILPLANE_DOMAIN";

/// Why a program could not serve.
#[derive(Debug, thiserror::Error)]
pub enum ApplicationError {
    /// There is no dataplane.
    #[error(
        "this program serves on a dataplane, and was started without one ({DOMAIN_VARIABLE} is {found}): start it \
         with `tailplane run CONFIG.toml -- PROGRAM`"
    )]
    NoDataplane {
        /// What the variable says.
        found: String,
    },
    /// The two did not come together.
    #[error(transparent)]
    Join(#[from] JoinError),
    /// A thread panicked: a bug of the service.
    #[error("the service of elastic thread {core} panicked")]
    Panicked {
        /// Its number.
        core: usize,
    },
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
    number.and_then(unsafe_inherited::take).ok_or_else(|| ApplicationError::NoDataplane {
        found: said.map_or_else(|_| "not set".to_owned(), |said| format!("'{said}'")),
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
    let application = Application::join(socket)?;
    let mut services: Vec<S> = (0..application.lanes()).map(make_service).collect();
    let lanes = application.begin(services.iter().all(Service::runs_anywhere))?;
    let stop = AtomicBool::new(false);
    let run = |(mut far, service): (process::Far, &mut S)| {
        let _others = EndsAll(&stop);
        // Whether the dataplane has gone, or another thread has ended: there is nothing left to serve.
        far.run(service, &stop);
    };
    let run = &run;
    let ended = std::thread::scope(|scope| {
        let threads: Vec<_> = lanes
            .into_iter()
            .zip(&mut services)
            .map(|lane| scope.spawn(move || run(lane)))
            .collect();
        threads.into_iter().map(|thread| thread.join().is_ok()).collect::<Vec<_>>()
    });
    match ended.iter().position(|well| !well) {
        Some(core) => Err(ApplicationError::Panicked { core }),
        None => Ok(services),
    }
}

/// When one thread ends, also by a panic, the others end: connections of the whole program would lack a part.
struct EndsAll<'a>(&'a AtomicBool);

impl Drop for EndsAll<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
