//! A playground without a NIC: a dataplane's and a client's network namespace, joined by a veth pair.
//!
//! ```no_run
//! use std::process::Command;
//! use service::lab::{Lab, LabConfig, in_namespace, spawn_in};
//!
//! let lab = Lab::create(LabConfig { queues: 4, ..LabConfig::unique("demo") })?;
//! let server = spawn_in(lab.dataplane(), Command::new("memcached"))?;
//! let socket = in_namespace(lab.client(), || std::net::UdpSocket::bind("10.77.0.1:0"))?;
//! drop(lab); // ends what still runs inside, and leaves nothing behind
//! # Ok::<(), service::lab::LabError>(())
//! ```
//!
//! Names and addresses: [`constants`]. What a lab changes lives in its namespaces and goes with them;
//! the one exception, the machine's list of allowed congestion controls, is put back. A lab goes when
//! its [`Lab`] is dropped, on Ctrl-C (through [`crate::cleanup`]), and, where its process was killed,
//! when the next lab is made, or at once where there is a [`guard`]. `tailplane lab up` makes the one that stays ([`Lifetime::Persistent`]).

pub mod congestion;
pub mod constants;
mod error;
pub mod guard;
mod ip;
mod netns;
mod pair;
mod state;
mod steering;
pub mod uplink;

use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::Serialize;

pub use self::error::LabError;
pub use self::netns::{Namespace, in_namespace, spawn_in};
pub use self::state::{LabState, Owner};

use self::congestion::AllowedList;
use self::constants::{
    CLIENT_ADDRESS, CLIENT_INTERFACE, CLIENT_MAC, CLIENT_SUFFIX, DATAPLANE_ADDRESS,
    DATAPLANE_INTERFACE, DATAPLANE_KERNEL_ADDRESS, DATAPLANE_MAC, DATAPLANE_SUFFIX, DEFAULT_PREFIX,
    FAIR_CONGESTION_CONTROL, LOCK_WAIT, PREFIX_BYTES_MAX, QUEUES_MAX, SUBNET_BITS,
    TERMINATION_WAIT, mac_text,
};
use self::ip::ip;
use self::state::{StateDirectory, StateLock};
use crate::cleanup::{self, Registration};

/// How long a lab stays.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lifetime {
    /// Until its [`Lab`] is dropped or its process ends, however it ends.
    Process,
    /// Until it is removed ([`remove`]).
    Persistent,
}

/// The congestion control of the kernel's stacks in the lab.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CongestionControl {
    /// The machine's default; nothing outside the lab is touched.
    KernelDefault,
    /// This one where the kernel has it, else the default. Where the machine does not allow it in
    /// namespaces, it is allowed as long as the lab stays.
    Named(String),
}

/// What lab to make.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LabConfig {
    /// What its namespaces are called (`PREFIX-dp`, `PREFIX-client`): lower-case letters, digits, '-'.
    pub prefix: String,
    /// Queue pairs of each end, 1 to [`QUEUES_MAX`].
    pub queues: u32,
    /// The kernel's congestion control.
    pub congestion_control: CongestionControl,
    /// How long it stays.
    pub lifetime: Lifetime,
}

impl Default for LabConfig {
    /// One queue, cubic, as long as the process; under the name that `tailplane lab` uses.
    fn default() -> Self {
        Self {
            prefix: DEFAULT_PREFIX.to_owned(),
            queues: 1,
            congestion_control: CongestionControl::Named(FAIR_CONGESTION_CONTROL.to_owned()),
            lifetime: Lifetime::Process,
        }
    }
}

impl LabConfig {
    /// The default, under a name that no other lab of the machine has: beside the user's lab.
    pub fn unique(tag: &str) -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        Self { prefix: format!("tp-{tag}-{}-{number}", std::process::id()), ..Self::default() }
    }

    fn check(&self) -> Result<(), LabError> {
        check_prefix(&self.prefix)?;
        if !(1..=QUEUES_MAX).contains(&self.queues) {
            return Err(LabError::Queues { queues: self.queues });
        }
        Ok(())
    }
}

/// The prefix becomes a file's name: nothing in it may lead out of the directory.
fn check_prefix(prefix: &str) -> Result<(), LabError> {
    let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let fits = (1..=PREFIX_BYTES_MAX).contains(&prefix.len());
    if fits && !prefix.starts_with('-') && prefix.bytes().all(allowed) {
        Ok(())
    } else {
        Err(LabError::Prefix { prefix: prefix.to_owned() })
    }
}

fn check_root() -> Result<(), LabError> {
    let user = rustix::process::geteuid();
    if user.is_root() { Ok(()) } else { Err(LabError::NotRoot { uid: user.as_raw() }) }
}

/// One end of a lab, for people and scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EndInfo {
    /// The network namespace.
    pub namespace: String,
    /// The interface in it.
    pub interface: String,
    /// The MAC address of the interface.
    pub mac: String,
    /// The kernel's address on it.
    pub kernel_address: Ipv4Addr,
    /// The congestion control of the kernel's new connections.
    pub congestion_control: String,
    /// Processes inside.
    pub processes: usize,
}

/// A lab, for people and scripts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct LabInfo {
    /// Its name.
    pub prefix: String,
    /// Queue pairs of each end.
    pub queues: u32,
    /// The address that the XDP program takes, on no kernel interface.
    pub dataplane_address: Ipv4Addr,
    /// Length of the subnet's prefix, in bits.
    pub subnet_bits: u8,
    /// The dataplane's end.
    pub dataplane: EndInfo,
    /// The client's end.
    pub client: EndInfo,
}

/// How far a lab has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Nothing is made yet; what exists under its name is another's.
    Unclaimed,
    /// It is recorded, and being made or up.
    Claimed,
    /// Its removal has begun.
    Abandoned,
}

/// The names of a lab, and how far it has come. Shared with the signal thread.
///
/// Lock order: first the lock of the state directory, then the phase.
#[derive(Debug)]
struct Site {
    prefix: String,
    queues: u32,
    dataplane: Namespace,
    client: Namespace,
    /// Held during each step of the creation: one under way in another thread stops at its next
    /// step, so that it cannot make anything after removal has looked.
    phase: Mutex<Phase>,
}

impl Site {
    fn new(prefix: &str, queues: u32) -> Self {
        Self {
            prefix: prefix.to_owned(),
            queues,
            dataplane: Namespace::named(format!("{prefix}{DATAPLANE_SUFFIX}")),
            client: Namespace::named(format!("{prefix}{CLIENT_SUFFIX}")),
            phase: Mutex::new(Phase::Unclaimed),
        }
    }

    fn phase(&self) -> MutexGuard<'_, Phase> {
        self.phase.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Does the first step of the creation, the record; from then on the name is this lab's.
    fn claim(&self, record: impl FnOnce() -> Result<(), LabError>) -> Result<(), LabError> {
        let mut phase = self.phase();
        if *phase == Phase::Abandoned {
            return Err(LabError::Interrupted { prefix: self.prefix.clone() });
        }
        record()?;
        *phase = Phase::Claimed;
        Ok(())
    }

    /// Does one step of the creation unless removal has begun; removal waits for the step.
    fn step(&self, work: impl FnOnce() -> Result<(), LabError>) -> Result<(), LabError> {
        let phase = self.phase();
        if *phase == Phase::Abandoned {
            return Err(LabError::Interrupted { prefix: self.prefix.clone() });
        }
        work()
    }

    /// Removes everything. A second call finds nothing to do, and so does one before the claim.
    fn remove(&self) -> Result<(), LabError> {
        let states = StateDirectory::default();
        let lock = states.lock(LOCK_WAIT)?;
        let before = std::mem::replace(&mut *self.phase(), Phase::Abandoned);
        if before != Phase::Claimed {
            return Ok(());
        }
        self.erase(&states, &lock)
    }

    /// Removes the namespaces and then the record: until then whoever makes the next lab finds what
    /// is left of this one.
    fn erase(&self, states: &StateDirectory, lock: &StateLock) -> Result<(), LabError> {
        self.remove_namespaces()?;
        states.forget(lock, &self.prefix)?;
        AllowedList::of_the_kernel(states.clone()).release(lock)
    }

    fn remove_namespaces(&self) -> Result<(), LabError> {
        for namespace in [&self.client, &self.dataplane] {
            if namespace.exists() {
                namespace.terminate_programs(TERMINATION_WAIT)?;
            }
        }
        if self.dataplane.exists() {
            // A namespace outlives its name while a process or a socket is inside: the pair is
            // removed by itself, so that nothing can go on talking over it. Where creation stopped
            // before the pair, there is none: no error.
            let _ = ip(&["-n", self.dataplane.name(), "link", "del", DATAPLANE_INTERFACE]);
        }
        self.client.remove()?;
        self.dataplane.remove()
    }
}

/// A lab that is up. Dropping it removes it, unless it is persistent or another's ([`Lab::attach`]).
#[derive(Debug)]
#[must_use = "dropping a lab removes it"]
pub struct Lab {
    site: Arc<Site>,
    /// Present where the lab goes with this value.
    registration: Option<Registration>,
}

impl Lab {
    /// Makes a lab, having removed those that killed processes left behind.
    ///
    /// # Errors
    /// [`LabError`]: the configuration is out of range, the caller is not root, the lab exists, or a
    /// step failed (what the steps before it made is removed).
    pub fn create(config: LabConfig) -> Result<Self, LabError> {
        config.check()?;
        check_root()?;
        let site = Arc::new(Site::new(&config.prefix, config.queues));
        let states = StateDirectory::default();
        let for_signals = Arc::clone(&site);
        let registration = cleanup::register(move || {
            // The process is ending: standard error is the only one left to tell.
            if let Err(error) = for_signals.remove() {
                eprintln!(
                    "tailplane: lab '{}' was not wholly removed: {error}",
                    for_signals.prefix
                );
            }
        });
        let registration = registration.map_err(|source| LabError::Cleanup { source })?;
        let mut lab = Self { site, registration: Some(registration) };
        // An error drops `lab`, and thereby what was made.
        reserve(&lab.site, &config, &states)?;
        pair::build(&lab.site, &config.congestion_control)?;
        if config.lifetime == Lifetime::Persistent {
            lab.keep(&states)?;
        }
        Ok(lab)
    }

    /// A lab that another process (or `tailplane lab up`) has made; dropping this leaves it up.
    ///
    /// # Errors
    /// [`LabError::NotUp`].
    pub fn attach(prefix: &str) -> Result<Self, LabError> {
        check_prefix(prefix)?;
        let not_up = || LabError::NotUp { prefix: prefix.to_owned() };
        let state = StateDirectory::default().load(prefix).ok_or_else(not_up)?;
        let site = Site::new(prefix, state.queues);
        if !site.dataplane.exists() || !site.client.exists() {
            return Err(not_up());
        }
        Ok(Self { site: Arc::new(site), registration: None })
    }

    /// Whether it goes with this value.
    pub fn is_own(&self) -> bool {
        self.registration.is_some()
    }

    /// Its name.
    pub fn prefix(&self) -> &str {
        &self.site.prefix
    }

    /// Queue pairs of each end.
    pub fn queues(&self) -> u32 {
        self.site.queues
    }

    /// The dataplane's namespace, with [`DATAPLANE_INTERFACE`] in it.
    pub fn dataplane(&self) -> &Namespace {
        &self.site.dataplane
    }

    /// The client's namespace, with [`CLIENT_INTERFACE`] in it.
    pub fn client(&self) -> &Namespace {
        &self.site.client
    }

    /// What people and scripts want to know of it, as it is now.
    ///
    /// # Errors
    /// A namespace cannot be looked into.
    pub fn info(&self) -> Result<LabInfo, LabError> {
        let end = |namespace: &Namespace, interface: &str, mac, kernel_address| {
            Ok::<_, LabError>(EndInfo {
                namespace: namespace.name().to_owned(),
                interface: interface.to_owned(),
                mac: mac_text(mac),
                kernel_address,
                congestion_control: in_namespace(namespace, congestion::current)?,
                processes: namespace.pids()?.len(),
            })
        };
        let dataplane =
            end(self.dataplane(), DATAPLANE_INTERFACE, DATAPLANE_MAC, DATAPLANE_KERNEL_ADDRESS)?;
        let client = end(self.client(), CLIENT_INTERFACE, CLIENT_MAC, CLIENT_ADDRESS)?;
        Ok(LabInfo {
            prefix: self.site.prefix.clone(),
            queues: self.site.queues,
            dataplane_address: DATAPLANE_ADDRESS,
            subnet_bits: SUBNET_BITS,
            dataplane,
            client,
        })
    }

    /// Removes the lab now, where [`Drop`] could not tell of an error. A lab of another stays up.
    ///
    /// # Errors
    /// What could not be removed; the next lab's creation tries again.
    pub fn remove(mut self) -> Result<(), LabError> {
        self.take_down()
    }

    /// From here on the lab outlives the process.
    fn keep(&mut self, states: &StateDirectory) -> Result<(), LabError> {
        let lock = states.lock(LOCK_WAIT)?;
        let not_up = || LabError::NotUp { prefix: self.site.prefix.clone() };
        let state = states.load(&self.site.prefix).ok_or_else(not_up)?;
        states.store(&lock, &LabState { owner: None, ..state })?;
        drop(self.registration.take());
        Ok(())
    }

    fn take_down(&mut self) -> Result<(), LabError> {
        let Some(registration) = self.registration.take() else { return Ok(()) };
        // Still registered, so that a signal now waits for this removal instead of cutting it short.
        let removed = self.site.remove();
        drop(registration);
        removed
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        if let Err(error) = self.take_down() {
            tracing::warn!(lab = self.site.prefix, %error, "the lab was not wholly removed");
        }
    }
}

/// Under the lock: removes leftovers, makes sure of the name, records it as taken.
fn reserve(site: &Site, config: &LabConfig, states: &StateDirectory) -> Result<(), LabError> {
    let lock = states.lock(LOCK_WAIT)?;
    sweep(states, &lock);
    let exists = |found| LabError::Exists {
        prefix: site.prefix.clone(),
        found,
        remedy: format!("tailplane lab down --name {}", site.prefix),
    };
    let recorded = states.load(&site.prefix);
    // A lab without namespaces was removed by hand (`ip netns del`): only its record is left.
    let stands = site.dataplane.exists() || site.client.exists();
    if let Some(state) = recorded.filter(|state| stands || state.owner.is_some()) {
        return Err(exists(match state.owner {
            Some(owner) => format!("process {} has it up", owner.pid),
            None => format!("it is up with {} queues", state.queues),
        }));
    }
    for namespace in [&site.dataplane, &site.client] {
        if namespace.exists() {
            return Err(exists(format!("network namespace '{}' exists", namespace.name())));
        }
    }
    let mut state = LabState {
        prefix: site.prefix.clone(),
        queues: site.queues,
        owner: Some(Owner::this_process()),
        claims_congestion_control: false,
    };
    site.claim(|| states.store(&lock, &state))?;
    if let CongestionControl::Named(algorithm) = &config.congestion_control {
        let allowed = AllowedList::of_the_kernel(states.clone());
        state.claims_congestion_control = allowed.claim(&lock, algorithm)?;
        site.step(|| states.store(&lock, &state))?;
    }
    // Under the lock, too: the first `ip netns add` of a machine mounts a directory, and two at a
    // time get in each other's way.
    site.step(|| site.dataplane.create())?;
    site.step(|| site.client.create())
}

/// Removes the labs of killed processes. What fails is left for the next time: it is no reason not
/// to make another lab.
fn sweep(states: &StateDirectory, lock: &StateLock) {
    for leftover in states.leftovers() {
        let site = Site::new(&leftover.prefix, leftover.queues);
        match site.erase(states, lock) {
            Ok(()) => tracing::info!(lab = leftover.prefix, "removed what a killed process left"),
            Err(error) => tracing::warn!(lab = leftover.prefix, %error, "a leftover stays"),
        }
    }
}

/// Removes the labs of killed processes now.
///
/// # Errors
/// The record of labs is locked, or cannot be.
pub fn remove_leftovers() -> Result<(), LabError> {
    let states = StateDirectory::default();
    let lock = states.lock(LOCK_WAIT)?;
    sweep(&states, &lock);
    Ok(())
}

/// What is recorded of the lab of that name, whoever owns it; `None` where there is none.
///
/// # Errors
/// [`LabError::Prefix`].
pub fn find(prefix: &str) -> Result<Option<LabState>, LabError> {
    check_prefix(prefix)?;
    Ok(StateDirectory::default().load(prefix))
}

/// Removes the lab of that name, whoever made it. False where there is none.
///
/// # Errors
/// The caller is not root, or something could not be removed.
pub fn remove(prefix: &str) -> Result<bool, LabError> {
    let state = find(prefix)?;
    let site = Site::new(prefix, state.as_ref().map_or(1, |state| state.queues));
    if state.is_none() && !site.dataplane.exists() && !site.client.exists() {
        return Ok(false);
    }
    check_root()?;
    let states = StateDirectory::default();
    let lock = states.lock(LOCK_WAIT)?;
    site.erase(&states, &lock)?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        for prefix in ["", "a/b", "..", "UP", "-x", "a b", &"x".repeat(PREFIX_BYTES_MAX + 1)] {
            let config = LabConfig { prefix: prefix.to_owned(), ..LabConfig::default() };
            assert!(matches!(config.check(), Err(LabError::Prefix { .. })), "{prefix}");
        }
        LabConfig::unique("test").check().unwrap();
    }

    #[test]
    fn queue_counts_out_of_range_are_refused() {
        for queues in [0, QUEUES_MAX + 1] {
            let config = LabConfig { queues, ..LabConfig::default() };
            assert!(matches!(config.check(), Err(LabError::Queues { .. })), "{queues}");
        }
    }

    #[test]
    fn unique_labs_do_not_share_a_name() {
        assert_ne!(LabConfig::unique("x").prefix, LabConfig::unique("x").prefix);
    }

    #[test]
    fn an_abandoned_site_is_not_built_upon() {
        let site = Site::new("abandoned", 1);
        *site.phase() = Phase::Abandoned;
        let step = site.step(|| panic!("worked on an abandoned site"));
        assert!(matches!(step, Err(LabError::Interrupted { .. })), "{step:?}");
    }
}
