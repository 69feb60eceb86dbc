//! The server's indirection table (IX §4.5), as its cores write it: where the device puts frames that the client
//! has not sent yet.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use dataplane::{DeviceTable, GroupSet, Redirected};
use stack::{FLOW_GROUPS, Shared};
use wire::Ipv4Addr;

use crate::cores::cable::{Frame, SharedCable};

/// One for a server. Atomic only since what a thread owns is to be `Send`.
#[derive(Debug, Clone)]
pub(crate) struct Table {
    entries: Arc<Vec<AtomicU8>>,
    cable: SharedCable,
    shared: Arc<Shared>,
}

impl Table {
    /// As `shared` deals out the groups.
    pub fn new(shared: &Arc<Shared>, cable: &SharedCable) -> Self {
        let entries = (0..FLOW_GROUPS as u16).map(|group| AtomicU8::new(shared.home_of(group)));
        let (cable, shared) = (cable.clone(), Arc::clone(shared));
        Self { entries: Arc::new(entries.collect()), cable, shared }
    }

    /// The server's core to whose queue receive-side scaling steers `frame`: by the hash of a TCP segment's
    /// addresses and ports, the first queue for all else.
    pub fn steer(&self, frame: &[u8]) -> usize {
        let word =
            |at: usize| frame.get(at..at + 2).map(|two| u16::from_be_bytes([two[0], two[1]]));
        let byte = |at: usize| frame.get(at).copied();
        // Ethernet, IPv4 without options, TCP: what the client's stack sends.
        if (word(12), byte(14), byte(23)) != (Some(0x0800), Some(0x45), Some(6)) {
            return 0;
        }
        let source = frame.get(26..30).map(|four| [four[0], four[1], four[2], four[3]]);
        let (Some(source), Some(remote_port), Some(local_port)) = (source, word(34), word(36))
        else {
            return 0;
        };
        let hash = self.shared.flow_hash(Ipv4Addr::from(source), remote_port, local_port);
        self.entries[usize::from(Shared::group_of(hash))].load(Ordering::Relaxed).into()
    }
}

impl DeviceTable for Table {
    fn redirect(&mut self, groups: GroupSet, from: u8, to: u8) -> Redirected {
        for group in groups.iter() {
            self.entries[usize::from(group)].store(to, Ordering::Relaxed);
        }
        let mut cable = self.cable.lock();
        cable.probed += 1;
        let (config, token) = (&self.shared.config, cable.probed);
        let probe: Frame = nic::probe::frame(config.mac, config.address, token).to_vec();
        cable.probes.push((from.into(), probe));
        Redirected::Probed(token)
    }
}
