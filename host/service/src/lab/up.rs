//! A lab that is up: made here, or found.

use std::net::Ipv4Addr;
use std::sync::Arc;

use serde::Serialize;

use super::config::{CongestionControl, LabConfig, Lifetime, check_prefix};
use super::congestion::{self, AllowedList};
use super::constants::{
    CLIENT_ADDRESS, CLIENT_INTERFACE, CLIENT_MAC, DATAPLANE_ADDRESS, DATAPLANE_INTERFACE,
    DATAPLANE_KERNEL_ADDRESS, DATAPLANE_MAC, LOCK_WAIT, SUBNET_BITS, mac_text,
};
use super::error::LabError;
use super::netns::{Namespace, in_namespace};
use super::pair;
use super::removal::{check_root, sweep};
use super::site::Site;
use super::state::{LabState, Owner, StateDirectory};
use crate::cleanup::{self, Registration};

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
        let registration = registration.map_err(|error| {
            LabError::Failed(format!("cannot arrange for the lab's removal on a signal: {error}"))
        })?;
        let mut lab = Self { site, registration: Some(registration) };
        // An error drops `lab`, and thereby what was made.
        reserve(&lab.site, &config, &states)?;
        pair::build(&lab.site, &config)?;
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
    let exists = |found| {
        let prefix = &site.prefix;
        LabError::Failed(format!(
            "lab '{prefix}' cannot be made: {found}; remove it first (tailplane lab down --name {prefix})"
        ))
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
    site.step(|| states.store(&lock, &state))?;
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
