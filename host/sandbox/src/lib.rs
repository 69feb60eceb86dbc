//! Starting a process with nothing but what it needs, and a process giving up what it needs no longer.
//!
//! tailplane's three boxes are kept apart by this: a privileged starter opens sockets and memory, and
//! starts the dataplane and the application with those descriptors and nothing else.
//!
//! ```no_run
//! use std::os::fd::AsFd;
//! use std::process::Command;
//! use std::time::Duration;
//! use sandbox::{Confinement, Limits, Root, SyscallPolicy, Watched};
//!
//! let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
//! let program = std::path::Path::new("/usr/bin/my-dataplane");
//! let confinement = Confinement::new()
//!     .identity(30_001, 30_001)
//!     .limits(Limits { processes: Some(16), open_files: Some(64), ..Limits::default() })
//!     .root(Root::for_program(program)?)
//!     .own_network()
//!     .syscalls(SyscallPolicy::dataplane().with_threads().with_startup());
//! let mut child = confinement.spawn(Command::new(program), &[(theirs.as_fd(), 3)])?;
//! let watched = Watched::of_child(&child)?;
//! // ... and the child calls `SyscallPolicy::dataplane().enforce()` when its threads run.
//! if watched.wait(Duration::from_secs(1))? {
//!     println!("it ended: {:?}", watched.ended()?);
//! }
//! # child.wait()?; drop(ours);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! - [`Confinement`]: what is taken; [`Confinement::spawn`] takes it. The order of the steps is that of [`Step`].
//! - [`SyscallPolicy`]: which system calls are left. [`SyscallPolicy::dataplane`] and
//!   [`SyscallPolicy::application`] are the presets; [`SyscallPolicy::from_file`] is an operator's.
//! - [`Limits`], [`Root`], [`Files`]: resources and files.
//! - [`Standing`]: what a process is allowed, as the kernel sees it; [`Watched`]: when it ends.
//!
//! # What it does not defend against
//!
//! - A fault of the kernel that can be reached through the calls that are left, and what leaks through
//!   the processor (caches, speculation) or through timing.
//! - What passed descriptors allow. Whoever holds a socket may send what it likes on it; whoever holds a
//!   writable memory may change it at any time. The receiver must check every word, once.
//! - Use of processor and memory bandwidth below the limits. Have it join groups with cpusets and memory limits
//!   ([`Confinement::group`]): `RLIMIT_AS` bounds one process, not the pages that it touches in shared memory.
//! - Grandchildren of a child without [`Confinement::own_processes`]. A child dies with its starter; what it
//!   started itself does not.
//! - A policy of denials (`default = "allow"`): one effect has many calls. Write lists of what is allowed.
//! - Arguments behind pointers: a filter sees numbers. So the dataplane's list has no call that takes a path.
//! - A starter that is broken into: it is root.

mod cgroup;
mod confinement;
mod error;
mod files;
mod limits;
mod policy;
mod policy_file;
mod policy_presets;
mod root;
mod standing;
mod step;
pub mod syscalls;
mod unsafe_calls;
mod unsafe_processes;
mod unsafe_steps;
mod watched;

pub use cgroup::{Cpuset, GroupLimits, Groups};
pub use confinement::{Confinement, FIRST_TARGET, LAST_TARGET};
pub use error::SandboxError;
pub use files::Files;
pub use limits::Limits;
pub use policy::{ArgTest, Refusal, SyscallPolicy};
pub use root::Root;
pub use standing::{Seccomp, Standing};
pub use step::Step;
pub use watched::{Ended, Watched};
