//! The whole plane: started with a socket, a number of cores and a service; looked at and changed
//! while it runs.

use std::fmt::Display;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

use clock::MonotonicClock;
use memfile::refuse_descriptors;
use qwait::{SharedTenantSet, TENANTS_MAX};
use rustix::event::{EventfdFlags, eventfd};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit};

use crate::class::CLASSES;
use crate::config::{Arrangement, PlaneConfig};
use crate::control::{Board, Control, CoreHandle, JoinCounts, SetSlots};
use crate::core::{Core, CoreConfig, Letterbox};
use crate::counters::Counts;
use crate::geometry::SETS_MAX;
use crate::handler::Handler;
use crate::limits::Limits;
use crate::link::Link;
use crate::notify::Notifier;

/// Most data-plane cores.
pub const CORES_MAX: u32 = 4;
/// Largest weight.
pub const WEIGHT_MAX: u32 = 64;
/// Most requests of a visit.
const BATCH_MAX: u32 = 64;
/// Letters that a core's letterbox holds.
const LETTERS: usize = 1024;
const _: () = assert!(CORES_MAX <= SETS_MAX);

/// Why a plane could not be started or changed: what was found, and what is allowed.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct PlaneError(String);

/// The error of a value that is not allowed.
fn wrong(key: &'static str, found: impl Display, allowed: &'static str) -> PlaneError {
    PlaneError(format!("`{key}` is {found}; allowed: {allowed}"))
}

fn failed<E: Display>(tried: impl Display) -> impl FnOnce(E) -> PlaneError {
    move |error| PlaneError(format!("{tried} failed: {error}"))
}

/// What a tenant was counted, and who it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
pub struct TenantReport {
    /// Its number; never used again.
    pub id: u64,
    /// Its process when it joined, as the kernel said.
    pub pid: i32,
    /// Its user, as the kernel said.
    pub uid: u32,
    /// Its queue pairs.
    pub queues: u32,
    /// Its class.
    pub class: u8,
    /// What was counted.
    pub counts: Counts,
}

/// A look at a plane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PlaneReport {
    /// By core.
    pub cores: Vec<Counts>,
    /// Tenants that are there, by number.
    pub tenants: Vec<TenantReport>,
    /// What tenants that are gone had been counted.
    pub gone: Counts,
    /// What became of connections.
    pub joins: JoinCounts,
}

impl PlaneReport {
    /// What all cores counted.
    pub fn total(&self) -> Counts {
        self.cores.iter().fold(Counts::default(), |mut sum, counts| {
            sum += *counts;
            sum
        })
    }
}

/// Makes the service of a core.
type MakeHandler = dyn Fn(usize) -> Box<dyn Handler> + Send + Sync;

/// The socket that tenants join at, bound and open to them; dropping it removes its path. For a process
/// that opens it with privileges which the plane shall not have: [`Plane::start_at`] takes a duplicate.
#[derive(Debug)]
pub struct Listener {
    socket: OwnedFd,
    path: PathBuf,
    weaker: Option<String>,
}

impl Listener {
    /// Binds a path, with these permissions. A socket on which no process listens any more is replaced.
    ///
    /// # Errors
    /// Another plane listens there, something else has the path, or the operating system refuses.
    pub fn bind(path: impl Into<PathBuf>, mode: u32) -> Result<Self, PlaneError> {
        let path = path.into();
        let socket = listen(&path, mode)?;
        let weaker = refuse_descriptors(&socket).err().map(|error| {
            format!(
                "a tenant's descriptors are closed by the control thread, which can hold up those who want to \
                 join: found that this kernel cannot refuse them ({error}); take Linux 6.16 or later"
            )
        });
        Ok(Self { socket, path, weaker })
    }

    /// The protection that this kernel does not give and why, to be announced.
    pub fn weaker(&self) -> Option<&str> {
        self.weaker.as_deref()
    }

    /// The socket, to be duplicated.
    pub fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // Ours, as long as nobody else took the path.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// A plane that serves. Dropping it stops it.
#[derive(Debug)]
pub struct Plane {
    /// Dropped last: joiners are refused by the kernel once the control thread has ended.
    _listener: Option<Listener>,
    /// What tenants may have less than was configured, and why.
    lowered: Option<String>,
    letterboxes: Vec<Arc<Letterbox>>,
    control_wake: OwnedFd,
    board: Arc<Mutex<Board>>,
    threads: Vec<JoinHandle<()>>,
}

/// Cores of a set, and how many sets.
fn groups(config: &PlaneConfig) -> Result<(u32, u32), PlaneError> {
    if !(1..=CORES_MAX).contains(&config.cores) {
        return Err(wrong("cores", config.cores, "1 to 4"));
    }
    if !(1..=BATCH_MAX).contains(&config.batch) {
        return Err(wrong("batch", config.batch, "1 to 64"));
    }
    check_weight(config.weight)?;
    if let Some(class) = config.classes.wrong() {
        return Err(wrong("classes", class, "0, which is served first, to 7"));
    }
    if !config.cpus.is_empty() && config.cpus.len() != config.cores as usize {
        return Err(wrong("cpus", config.cpus.len(), "none, or as many as cores"));
    }
    match config.arrangement {
        Arrangement::ScaleOut => Ok((1, config.cores)),
        Arrangement::ScaleUp { cores_per_group: each }
            if each > 0 && config.cores.is_multiple_of(each) =>
        {
            Ok((each, config.cores / each))
        }
        Arrangement::ScaleUp { cores_per_group } => {
            Err(wrong("cores_per_group", cores_per_group, "a divisor of the number of cores"))
        }
    }
}

fn check_weight(weight: u32) -> Result<(), PlaneError> {
    match (1..=WEIGHT_MAX).contains(&weight) {
        true => Ok(()),
        false => Err(wrong("weight", weight, "1 to 64")),
    }
}

impl Plane {
    /// Starts the cores and the control thread. `handler` makes each core's service, by the core's
    /// number, on the core's thread: memory that it allocates is near, and it need not move.
    ///
    /// # Errors
    /// [`PlaneError`]: a configuration that is not allowed, a socket that cannot be had, threads that
    /// cannot be started or pinned.
    pub fn start(
        config: PlaneConfig,
        handler: impl Fn(usize) -> Box<dyn Handler> + Send + Sync + 'static,
    ) -> Result<Self, PlaneError> {
        groups(&config)?;
        let listener = Listener::bind(&config.socket, config.socket_mode)?;
        let socket = listener.socket().try_clone_to_owned();
        let socket = socket.map_err(failed("duplicating the listener"))?;
        let mut plane = Self::start_at(socket, config, handler)?;
        plane._listener = Some(listener);
        Ok(plane)
    }

    /// As [`start`](Self::start), at a [`Listener`]'s socket that another process has bound: the path and
    /// the permissions in `config` are not used.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_at(
        listener: OwnedFd,
        mut config: PlaneConfig,
        handler: impl Fn(usize) -> Box<dyn Handler> + Send + Sync + 'static,
    ) -> Result<Self, PlaneError> {
        let handler: Arc<MakeHandler> = Arc::new(handler);
        let (per_set, sets) = groups(&config)?;
        let lowered = provide_descriptors(&mut config.limits)?;
        let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
        let control_wake = eventfd(0, flags).map_err(failed("eventfd"))?;
        let mut plane = Self {
            _listener: None,
            lowered,
            letterboxes: Vec::new(),
            control_wake,
            board: Arc::default(),
            threads: Vec::new(),
        };
        let (mut handles, mut slots) = (Vec::new(), Vec::new());
        // From here on, dropping `plane` ends what was started.
        for set in 0..sets {
            let shares = matches!(config.arrangement, Arrangement::ScaleUp { .. });
            let shared = shares.then(|| SharedTenantSet::new(TENANTS_MAX));
            let shared = shared.transpose().map_err(failed("making the ready set"))?;
            for member in 0..per_set {
                let number = (set * per_set + member) as usize;
                let notifier = Notifier::new(config.notify, TENANTS_MAX, shared.as_ref())
                    .map_err(failed("making the ready set"))?;
                let core =
                    CoreConfig { number, set, batch: config.batch, spin_looks: config.spin_looks };
                let cpu = config.cpus.get(number).copied();
                handles.push(plane.start_core(core, notifier, Arc::clone(&handler), cpu)?);
            }
            slots.push(SetSlots::new(shared));
        }
        let cpus = config.cpus.clone();
        let board = Arc::clone(&plane.board);
        let control = Control::new(listener, &plane.control_wake, config, (handles, slots), board)
            .map_err(failed("making the control thread's epoll"))?;
        plane.spawn("sdp-control", move || {
            keep_off(&cpus);
            control.run();
        })?;
        Ok(plane)
    }

    fn spawn(&mut self, name: &str, run: impl FnOnce() + Send + 'static) -> Result<(), PlaneError> {
        let thread = std::thread::Builder::new().name(name.into()).spawn(run);
        self.threads.push(thread.map_err(failed(format!("starting thread {name}")))?);
        Ok(())
    }

    fn start_core(
        &mut self,
        config: CoreConfig,
        notifier: Notifier,
        handler: Arc<MakeHandler>,
        cpu: Option<usize>,
    ) -> Result<CoreHandle, PlaneError> {
        let letterbox = Arc::new(Letterbox::new().map_err(failed("making a core's eventfd"))?);
        let (mail, letters) = sync_channel(LETTERS);
        self.letterboxes.push(Arc::clone(&letterbox));
        let box_of_core = Arc::clone(&letterbox);
        let (pinned, pin_result) = sync_channel(1);
        self.spawn(&format!("sdp-core-{}", config.number), move || {
            let done = cpu.map_or(Ok(()), pin);
            let failed = done.is_err();
            let _ = pinned.send(done);
            if !failed {
                let service = handler(config.number);
                let mut core =
                    Core::new(config, TENANTS_MAX, notifier, service, letters, box_of_core);
                core.run(&MonotonicClock::new());
            }
        })?;
        // The thread answers at once, or is gone with its end of the channel.
        let pinned = pin_result.recv().unwrap_or(Err(rustix::io::Errno::SRCH));
        pinned.map_err(failed(format!("pinning core {} to processor {cpu:?}", config.number)))?;
        Ok(CoreHandle { set: config.set, mail, letterbox })
    }

    /// That limits were lowered and why, to be announced.
    pub fn lowered(&self) -> Option<&str> {
        self.lowered.as_deref()
    }

    /// What was counted so far. Cores are not disturbed.
    pub fn report(&self) -> PlaneReport {
        let board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        let tenants = board.tenants.values().filter_map(|link| {
            let link = link.upgrade()?;
            Some(TenantReport {
                id: link.id,
                pid: link.peer.pid,
                uid: link.peer.uid,
                queues: link.geometry.shape().queues,
                class: link.class.load(Ordering::Relaxed),
                counts: link.counts(),
            })
        });
        PlaneReport {
            cores: self.letterboxes.iter().map(|letterbox| letterbox.counters.read()).collect(),
            tenants: tenants.collect(),
            gone: board.gone,
            joins: board.joins,
        }
    }

    fn link(&self, tenant: u64) -> Result<Arc<Link>, PlaneError> {
        let board = self.board.lock().unwrap_or_else(PoisonError::into_inner);
        let link = board.tenants.get(&tenant).and_then(Weak::upgrade);
        link.ok_or_else(|| {
            PlaneError(format!("tenant {tenant} is not there: it has left, or never joined"))
        })
    }

    /// Changes the weight of a tenant's queue, or of all of them (`None`): how many batches it gets
    /// for one of a queue of weight 1, while both have work.
    ///
    /// # Errors
    /// There is no such tenant, queue or weight.
    pub fn set_weight(
        &self,
        tenant: u64,
        queue: Option<u32>,
        weight: u32,
    ) -> Result<(), PlaneError> {
        check_weight(weight)?;
        let link = self.link(tenant)?;
        let Some(queue) = queue else {
            link.queues.iter().for_each(|pair| pair.set_weight(weight));
            return Ok(());
        };
        let pair = link.queues.get(queue as usize);
        pair.ok_or_else(|| wrong("queue", queue, "a queue that the tenant has"))?
            .set_weight(weight);
        Ok(())
    }

    /// Changes a tenant's class; cores go by it from their next turn on. For the plane's owner: it may
    /// raise a tenant above what [`ClassPolicy`] gives.
    ///
    /// # Errors
    /// There is no such tenant or class.
    pub fn set_class(&self, tenant: u64, class: u8) -> Result<(), PlaneError> {
        if class >= CLASSES {
            return Err(wrong("class", class, "0 to 7"));
        }
        self.link(tenant)?.class.store(class, Ordering::Relaxed);
        for letterbox in &self.letterboxes {
            // Release: who sees this sees the class.
            letterbox.classes_changed.store(true, Ordering::Release);
            letterbox.ring();
        }
        Ok(())
    }

    /// Ends the plane: tenants see the connection hang up.
    pub fn stop(self) {
        drop(self);
    }
}

impl Drop for Plane {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.control_wake, &1u64.to_ne_bytes());
        for letterbox in &self.letterboxes {
            letterbox.stop.store(true, Ordering::Release);
            letterbox.ring();
        }
        for thread in self.threads.drain(..) {
            // A service that panicked has ended its core; the others ended as they were told.
            let _ = thread.join();
        }
    }
}

/// Raises the soft limit of open files to what the plane's limits need. Where the hard limit is below that:
/// lower limits, and a line about it.
fn provide_descriptors(limits: &mut Limits) -> Result<Option<String>, PlaneError> {
    let needed = limits.open_files();
    let now = rustix::process::getrlimit(Resource::Nofile);
    let reaches = |limit: Option<u64>| limit.is_none_or(|limit| limit >= needed);
    if reaches(now.current) {
        return Ok(None);
    }
    let maximum = now.maximum.map(|maximum| maximum.max(needed));
    let raised = Rlimit { current: Some(needed), maximum };
    if rustix::process::setrlimit(Resource::Nofile, raised).is_ok() {
        return Ok(None);
    }
    // Without the privilege, up to the hard limit.
    let most = Rlimit { current: now.maximum, ..now };
    let open_files = match rustix::process::setrlimit(Resource::Nofile, most) {
        Ok(()) => now.maximum,
        Err(_) => now.current,
    };
    let open_files = open_files.unwrap_or(needed);
    let lowered = limits.lowered_to(open_files).map_err(|least| {
        PlaneError(format!(
            "cannot serve: found a limit of {open_files} open files; raise it to {least} at least (`ulimit -n`)"
        ))
    })?;
    let note = format!(
        "tenants have {} descriptors instead of {}, {} of them one user: found a limit of {open_files} open \
         files; raise it to {needed} (`ulimit -Hn`, `LimitNOFILE`)",
        lowered.all.descriptors, limits.all.descriptors, lowered.per_uid.descriptors
    );
    *limits = lowered;
    Ok(Some(note))
}

/// Keeps the calling thread off these processors, where it may run on others.
fn keep_off(cpus: &[usize]) {
    let Ok(allowed) = rustix::thread::sched_getaffinity(None) else { return };
    let mut others = allowed;
    for &cpu in cpus {
        others.unset(cpu);
    }
    if others.count() > 0 && others != allowed {
        // It shares a core's processor then, which costs that core time and nothing else.
        let _ = rustix::thread::sched_setaffinity(None, &others);
    }
}

fn pin(cpu: usize) -> Result<(), rustix::io::Errno> {
    let mut set = rustix::thread::CpuSet::new();
    if cpu >= rustix::thread::CpuSet::MAX_CPU {
        return Err(rustix::io::Errno::INVAL);
    }
    set.set(cpu);
    rustix::thread::sched_setaffinity(None, &set)
}

fn listen(path: &Path, mode: u32) -> Result<OwnedFd, PlaneError> {
    let shown = path.display();
    let tried = |what: &str| format!("{what} {shown}");
    let address = SocketAddrUnix::new(path).map_err(failed(tried("taking as a socket's path")))?;
    let socket = || {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)
    };
    if let Ok(found) = std::fs::symlink_metadata(path) {
        if !found.file_type().is_socket() {
            return Err(PlaneError(format!(
                "{shown} is there, and is no socket: take another path"
            )));
        }
        let probe = socket().map_err(failed("making a socket"))?;
        // Refused by a socket that nobody listens on; whatever else it says, somebody may.
        if rustix::net::connect(&probe, &address) != Err(rustix::io::Errno::CONNREFUSED) {
            return Err(PlaneError(format!(
                "{shown} is in use: another plane listens there; stop it, or take another path"
            )));
        }
        std::fs::remove_file(path).map_err(failed(tried("removing the old socket")))?;
    }
    let listener = socket().map_err(failed("making a socket"))?;
    rustix::net::bind(&listener, &address).map_err(failed(tried("binding")))?;
    let permissions = std::fs::Permissions::from_mode(mode);
    std::fs::set_permissions(path, permissions)
        .map_err(failed(tried("changing permissions of")))?;
    rustix::net::listen(&listener, 128).map_err(failed(tried("listening at")))?;
    Ok(listener)
}
