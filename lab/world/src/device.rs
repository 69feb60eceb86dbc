//! A device with an indirection table that the cores write (IX §4.5): where it puts frames that have not arrived yet.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dataplane::{DeviceTable, Elastic, GroupSet, MoveControl, Redirected, move_mailbox};
use stack::{FLOW_GROUPS, Shared};
use wire::{Address, Endpoint, EtherType, EthernetView, Ipv4View, Ipv6View, Protocol, TcpView};

/// A probe, and the queue that it is for.
type Probe = (usize, Vec<u8>);

/// One for each host that has such a device. Behind locks only since what a thread owns is to be `Send`.
#[derive(Debug)]
pub(crate) struct Device {
    /// The stack's state that all cores share.
    pub shared: Arc<Shared>,
    entries: Vec<AtomicU8>,
    /// Probes that were asked for.
    probes: Option<Mutex<Vec<Probe>>>,
    next_token: AtomicU64,
}

/// A core's access to it.
#[derive(Debug)]
pub(crate) struct CoreTable(pub Arc<Device>);

impl Device {
    /// The table as `shared` deals out the groups, of a device with probes or without.
    pub fn new(shared: &Arc<Shared>, probes: bool) -> Arc<Self> {
        let entries = (0..FLOW_GROUPS as u16).map(|group| AtomicU8::new(shared.home_of(group)));
        let (entries, probes) = (entries.collect(), probes.then(Mutex::default));
        Arc::new(Self {
            shared: Arc::clone(shared),
            entries,
            probes,
            next_token: AtomicU64::new(1),
        })
    }

    /// The queue of a flow group.
    pub fn queue_of(&self, group: u16) -> usize {
        self.entries[usize::from(group)].load(Ordering::Relaxed).into()
    }

    /// The queue of a frame: that of its flow group, the first one of a frame that has none.
    pub fn steer(&self, frame: &[u8]) -> usize {
        group_of(&self.shared, frame).map_or(0, |group| self.queue_of(group))
    }

    /// The probes that were asked for since the last call.
    pub fn take_probes(&self) -> Vec<Probe> {
        self.probes.as_ref().map(|probes| std::mem::take(&mut *locked(probes))).unwrap_or_default()
    }

    /// Has `thread` obey a controller that may leave so many commands without a report.
    pub fn govern<T: Elastic>(self: &Arc<Self>, thread: &mut T, commands: usize) -> MoveControl {
        let (control, mailbox) = move_mailbox(commands);
        thread.obey(mailbox.with_device(Box::new(CoreTable(Arc::clone(self)))));
        control
    }
}

fn locked(probes: &Mutex<Vec<Probe>>) -> MutexGuard<'_, Vec<Probe>> {
    probes.lock().unwrap_or_else(PoisonError::into_inner)
}

impl DeviceTable for CoreTable {
    fn redirect(&mut self, groups: GroupSet, from: u8, to: u8) -> Redirected {
        let Device { shared, entries, probes, next_token } = &*self.0;
        for group in groups.iter() {
            let before = entries[usize::from(group)].swap(to, Ordering::Relaxed);
            assert_eq!(before, from, "the table follows the homes");
        }
        let Some(probes) = probes else { return Redirected::Yes };
        let token = next_token.fetch_add(1, Ordering::Relaxed);
        let probe = nic::probe::frame(shared.config.mac, shared.config.address(), token);
        locked(probes).push((from.into(), probe.to_vec()));
        Redirected::Probed(token)
    }
}

/// The flow group of a frame, as receive-side scaling finds it: by the hash of a TCP segment's addresses and ports.
/// None of any other frame.
pub(crate) fn group_of(shared: &Shared, frame: &[u8]) -> Option<u16> {
    let link = EthernetView::parse(frame).ok()?;
    let (src, dst, protocol, tcp) = match link.ethertype() {
        EtherType::IPV4 => {
            let ip = Ipv4View::parse(link.payload()).ok().filter(|ip| !ip.is_fragment())?;
            (Address::from(ip.src()), Address::from(ip.dst()), ip.protocol(), ip.payload())
        }
        EtherType::IPV6 => {
            let ip = Ipv6View::parse(link.payload()).ok()?;
            ip.fragment().is_none().then_some(())?;
            (ip.src().into(), ip.dst().into(), ip.protocol(), ip.payload())
        }
        _ => return None,
    };
    let tcp = TcpView::parse(tcp).ok().filter(|_| protocol == Protocol::TCP)?;
    let (remote, local) = (Endpoint::new(src, tcp.src_port()), Endpoint::new(dst, tcp.dst_port()));
    Some(Shared::group_of(shared.flow_hash(local, remote)))
}
