//! Local ports: which sockets have one, which of them receive on it, and whether the dataplane has it open.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::vec::Vec;
use core::ops::RangeInclusive;

use domain::{Calls, Cookie, Full, Transport};

use crate::errno::Errno;

/// Whether the dataplane has a port open.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum PortState {
    #[default]
    Closed,
    /// A `listen` is queued or unanswered.
    Asked,
    Open,
}

/// A local port of one transport.
#[derive(Debug, Default)]
pub(crate) struct Port {
    pub state: PortState,
    /// Sockets that listen on it, or are bound to it with UDP. Without one the port is closed.
    pub receivers: Vec<u32>,
    /// Sockets whose local port it is, the receivers among them.
    pub holders: BTreeSet<u32>,
}

/// The name of a port, towards the dataplane too: smaller than that of any socket, which has a generation.
pub(crate) fn port_name(transport: Transport, port: u16) -> Cookie {
    Cookie((transport as u64) << 16 | u64::from(port))
}

/// All local ports.
#[derive(Debug, Default)]
pub(crate) struct Ports {
    by_name: BTreeMap<Cookie, Port>,
    /// Ports that are to be opened, with a backlog, or closed: two calls a port at most.
    calls: VecDeque<(Cookie, Option<u16>)>,
    last: u16,
}

impl Ports {
    /// No ports; the dataplane is asked to close those that it has open.
    pub fn new(open: &[(Transport, u16)]) -> Self {
        let names = open.iter().map(|(transport, port)| port_name(*transport, *port));
        Self { calls: names.map(|name| (name, None)).collect(), ..Self::default() }
    }

    pub fn get(&self, name: Cookie) -> Option<&Port> {
        self.by_name.get(&name)
    }

    /// The sockets that receive on a port.
    pub fn receivers(&self, name: Cookie) -> &[u32] {
        self.get(name).map_or(&[], |port| &port.receivers)
    }

    /// A port that no socket of the transport has, of those to choose from.
    pub fn free(
        &mut self,
        transport: Transport,
        range: &RangeInclusive<u16>,
    ) -> Result<u16, Errno> {
        for _ in range.clone() {
            let next = self.last.checked_add(1).filter(|next| range.contains(next));
            self.last = next.unwrap_or(*range.start());
            if self.get(port_name(transport, self.last)).is_none() {
                return Ok(self.last);
            }
        }
        Err(Errno::EADDRNOTAVAIL)
    }

    /// A socket has this local port from now on.
    pub fn hold(&mut self, name: Cookie, slot: u32) {
        self.by_name.entry(name).or_default().holders.insert(slot);
    }

    /// A socket that has a port receives on it from now on; the dataplane is asked to open one that is closed.
    pub fn receive(&mut self, name: Cookie, slot: u32, backlog: u16) {
        let Some(port) = self.by_name.get_mut(&name) else { return };
        port.receivers.push(slot);
        if port.state == PortState::Closed {
            port.state = PortState::Asked;
            self.calls.push_back((name, Some(backlog)));
        }
    }

    /// A socket receives on its port no more; `leaves`: nor does it have it.
    pub fn stop(&mut self, name: Cookie, slot: u32, leaves: bool) {
        let Some(port) = self.by_name.get_mut(&name) else { return };
        port.receivers.retain(|receiver| *receiver != slot);
        if leaves {
            port.holders.remove(&slot);
        }
        self.settle(name);
    }

    /// The dataplane answered whether a port is open. Which sockets receive on it.
    pub fn answered(&mut self, name: Cookie, is_open: bool) -> Vec<u32> {
        let Some(port) = self.by_name.get_mut(&name) else { return Vec::new() };
        port.state = if is_open { PortState::Open } else { PortState::Closed };
        let receivers = port.receivers.clone();
        self.settle(name);
        receivers
    }

    /// Closes a port that is open without a receiver, and forgets one that no socket has.
    fn settle(&mut self, name: Cookie) {
        let Some(port) = self.by_name.get_mut(&name) else { return };
        if port.receivers.is_empty() && port.state == PortState::Open {
            port.state = PortState::Closed;
            self.calls.push_back((name, None));
        }
        if port.holders.is_empty() && port.state == PortState::Closed {
            self.by_name.remove(&name);
        }
    }

    /// Whether calls are due.
    pub fn has_calls(&self) -> bool {
        !self.calls.is_empty()
    }

    /// Issues the calls that are due.
    pub fn issue(&mut self, calls: &mut Calls<'_>) -> Result<(), Full> {
        while let Some((name, backlog)) = self.calls.front().copied() {
            let is_tcp = name.0 >> 16 == Transport::Tcp as u64;
            let transport = if is_tcp { Transport::Tcp } else { Transport::Udp };
            match backlog {
                Some(backlog) => calls.listen(name, transport, name.0 as u16, backlog)?,
                None => calls.unlisten(name, transport, name.0 as u16)?,
            }
            self.calls.pop_front();
        }
        Ok(())
    }
}
