//! An indirection table for a veth pair, which has none: a program at the egress of the *peer's* end chooses the
//! queue at which each frame arrives at ours.
//!
//! ```no_run
//! use nic::indirection::IndirectionTable;
//! use nic::steer_program::SteerProgram;
//! # fn steer(key: [u8; 40]) -> Result<(), nic::rss::RssError> {
//! // In the peer's network namespace.
//! let mut table = SteerProgram::attach("peer0", &key, 2)?;
//! table.write(&[(5, 1)])?;
//! # Ok(()) }
//! ```
//!
//! It is attached as a link (tcx, Linux 6.6): a descriptor of this process. So it goes with the value, and with the
//! process however that ends; and whoever holds the value need not be in the peer's namespace for that.
//!
//! The program steers whole TCP and UDP packets by addresses and ports, over IPv4 and over IPv6. It steers fragments,
//! other protocols and IPv6 packets with extension headers by their addresses. All other frames come to queue 0.
//!
//! Frames that pass the egress of the kernel are steered: those of its own sockets, and those that it forwards.
//! AF_XDP sockets at the peer's end do not; their frames arrive at the queue that they were sent from.
//!
//! The object in `bpf/` is built from the source beside it, see [`xdp_program`](crate::xdp_program). All of aya
//! that this takes stands in this file.

use std::io;
use std::os::fd::{AsFd, OwnedFd};

use aya::maps::Map;
use aya::programs::tc::TcAttachOptions;
use aya::programs::{LinkOrder, SchedClassifier, TcAttachType};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use rustix::net::{SendFlags, send};
use wire::{Address, MacAddr, Toeplitz};

use crate::indirection::{IndirectionTable, apply};
use crate::probe;
use crate::rss::DEFAULT_ENTRIES;
use crate::rss_error::RssError;
use crate::unsafe_interface::Interface;
use crate::unsafe_packet;
use crate::unsafe_steer_table::SteerTable;
use crate::xdp_program::chain;

pub use crate::rss_error::SteerError;

static OBJECT: &[u8] =
    include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/tailplane_steer.o"));

const PROGRAM: &str = "tailplane_steer";
const TABLE: &str = "indirection";
const HASH: &str = "toeplitz";
/// As in the program: a frame whose mark has this upper half goes to the queue that the lower half names.
const PROBE_MARK: u32 = 0x5450_0000;

/// What sends probes.
#[derive(Debug)]
struct Prober {
    /// By queue: what it sends goes there.
    sockets: Vec<OwnedFd>,
    device: MacAddr,
    own: Address,
}

/// The program, attached to the peer's end of a pair, with its table. Dropping it detaches it: the kernel chooses
/// queues again.
#[derive(Debug)]
pub struct SteerProgram {
    /// Held: the link goes with it.
    _ebpf: Ebpf,
    interface: Interface,
    table: SteerTable,
    /// What the table holds, to be shown.
    shadow: Vec<u16>,
    queues: u16,
    key: [u8; 40],
    prober: Option<Prober>,
}

impl SteerProgram {
    /// Attaches it to an interface of the calling thread's network namespace, whose peer has `queues` receive
    /// queues. The entries are dealt out to them in turn.
    ///
    /// # Errors
    /// [`RssError::Steer`], [`RssError::BadShape`].
    pub fn attach(interface: &str, key: &[u8; 40], queues: u16) -> Result<Self, RssError> {
        if queues == 0 {
            return Err(RssError::BadShape { entries: DEFAULT_ENTRIES, queues });
        }
        let interface = Interface::by_name(interface)
            .map_err(|source| SteerError::NoInterface { interface: interface.into(), source })?;
        let mut ebpf = load(key)?;
        let table = map_table(&ebpf)?;
        let shadow: Vec<u16> =
            (0..DEFAULT_ENTRIES).map(|entry| (entry % usize::from(queues)) as u16).collect();
        // Before the first frame is steered by it.
        shadow.iter().enumerate().for_each(|(entry, &queue)| table.set(entry, queue));
        attach(&mut ebpf, &interface)?;
        Ok(Self { _ebpf: ebpf, interface, table, shadow, queues, key: *key, prober: None })
    }

    /// The same, able to send [probes](probe) to the dataplane with address `own` on `device`, the link address of
    /// the other end. To be called in the same namespace.
    ///
    /// # Errors
    /// [`RssError::Steer`]: the sockets could not be opened.
    pub fn with_probes(mut self, device: MacAddr, own: Address) -> Result<Self, RssError> {
        let socket =
            |queue| unsafe_packet::sender(self.interface.index, PROBE_MARK | u32::from(queue));
        let sockets =
            (0..self.queues).map(socket).collect::<io::Result<_>>().map_err(|source| {
                let interface = self.interface.name.clone();
                SteerError::Probe { tried: "opening a socket for probes", interface, source }
            })?;
        self.prober = Some(Prober { sockets, device, own });
        Ok(self)
    }

    /// The interface that it is attached to.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }
}

impl IndirectionTable for SteerProgram {
    fn entries(&self) -> &[u16] {
        &self.shadow
    }

    fn queues(&self) -> u16 {
        self.queues
    }

    fn key(&self) -> &[u8] {
        &self.key
    }

    /// Stores to shared memory: no system call, and in effect for every frame that has not passed the program.
    fn write(&mut self, changes: &[(usize, u16)]) -> Result<(), RssError> {
        apply(&mut self.shadow, self.queues, changes)?;
        for &(entry, queue) in changes {
            self.table.set(entry, queue);
            debug_assert_eq!(self.table.get(entry), queue, "nobody else writes");
        }
        Ok(())
    }

    /// One system call, in which the frame goes all the way into the queue's ring.
    ///
    /// It comes behind every frame that the program has sent to the queue before, but one: that of a processor
    /// which stands still right now between the program and the queue, some hundred instructions apart and not to
    /// be interrupted there by anything but its host.
    fn probe(&mut self, queue: u16, token: u64) -> Result<bool, RssError> {
        let Some(Prober { sockets, device, own }) = &self.prober else { return Ok(false) };
        let Some(socket) = sockets.get(usize::from(queue)) else {
            return Err(RssError::NoSuchQueue { queue, queues: self.queues });
        };
        let sent = send(socket, &probe::frame(*device, *own, token), SendFlags::DONTWAIT);
        sent.map(|_| true).map_err(|errno| {
            let interface = self.interface.name.clone();
            SteerError::Probe { tried: "sending a probe", interface, source: errno.into() }.into()
        })
    }
}

fn load(key: &[u8; 40]) -> Result<Ebpf, SteerError> {
    let toeplitz = Box::new(Toeplitz::new(key));
    EbpfLoader::new()
        .override_global(HASH, toeplitz.tables(), true)
        .load(OBJECT)
        .map_err(|error| SteerError::Load { reason: chain(&error) })
}

fn map_table(ebpf: &Ebpf) -> Result<SteerTable, SteerError> {
    let failed = |reason: String| SteerError::Load { reason };
    let Some(Map::Array(map)) = ebpf.map(TABLE) else {
        return Err(failed("the object has no table".into()));
    };
    SteerTable::map(map.fd().as_fd(), DEFAULT_ENTRIES)
        .map_err(|error| failed(format!("mapping its table: {error}")))
}

fn attach(ebpf: &mut Ebpf, interface: &Interface) -> Result<(), SteerError> {
    let failed = |reason| SteerError::Load { reason };
    let program = ebpf.program_mut(PROGRAM).ok_or_else(|| failed("no such program".into()))?;
    let program: &mut SchedClassifier =
        program.try_into().map_err(|error| failed(chain(&error)))?;
    program.load().map_err(|error| failed(chain(&error)))?;
    // After those of others: what it chooses, nobody changes.
    let order = TcAttachOptions::TcxOrder(LinkOrder::last());
    program.attach_with_options(&interface.name, TcAttachType::Egress, order).map(drop).map_err(
        |error| SteerError::Attach { interface: interface.name.clone(), reason: chain(&error) },
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::MICROSOFT_KEY;

    #[test]
    fn the_object_is_an_elf_file_for_bpf() {
        const EM_BPF: u8 = 247;
        assert_eq!(&OBJECT[..4], b"\x7fELF");
        assert_eq!(OBJECT[18], EM_BPF);
        assert!(OBJECT.as_ptr().addr().is_multiple_of(8));
    }

    #[cfg(not(miri))]
    #[test]
    fn nonsense_is_refused_before_anything_is_loaded() {
        let error = SteerProgram::attach("no-such-device", &MICROSOFT_KEY, 2).expect_err("none");
        assert!(matches!(error, RssError::Steer(SteerError::NoInterface { .. })), "{error}");
        let error = SteerProgram::attach("lo", &MICROSOFT_KEY, 0).expect_err("no queue");
        assert!(matches!(error, RssError::BadShape { .. }), "{error}");
    }
}
