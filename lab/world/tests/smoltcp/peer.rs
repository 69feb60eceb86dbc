//! The other end: a smoltcp interface with one TCP socket, on a port of the network.

use std::cell::Cell;
use std::net::IpAddr;

use clock::{Duration, Instant};
use smoltcp::iface::{Config, Interface, SocketHandle, SocketSet};
use smoltcp::phy::{Device, DeviceCapabilities, Medium, RxToken, TxToken};
use smoltcp::socket::tcp::{CongestionControl, RecvError, Socket, SocketBuffer, State};
use smoltcp::time;
use smoltcp::wire::{EthernetAddress, HardwareAddress, IpCidr};
use wire::MacAddr;
use world::network::{SharedNetwork, Spread};

use crate::talk::{Got, Stream};

/// The link address of this end.
pub const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// Time between two runs that only the interface asks for.
const TICK: Duration = Duration::from_micros(500);

thread_local! {
    /// Virtual time in milliseconds, for the clock of timestamps, which smoltcp has as a bare function.
    static MILLIS: Cell<u32> = const { Cell::new(0) };
}

/// What smoltcp is made of in one run.
#[derive(Clone, Copy, Debug)]
pub struct PeerConfig {
    /// Bytes of the largest IP packet.
    pub mtu: usize,
    /// Bytes of the receive buffer, and of the send buffer.
    pub buffer: usize,
    pub timestamps: bool,
    pub congestion: CongestionControl,
}

/// Its device: a port of the network.
struct Port {
    network: SharedNetwork,
    number: usize,
    now: Instant,
    mtu: usize,
}

struct Received(Vec<u8>);

impl RxToken for Received {
    fn consume<R, F: FnOnce(&[u8]) -> R>(self, read: F) -> R {
        read(&self.0)
    }
}

struct Transmit<'a>(&'a Port);

impl TxToken for Transmit<'_> {
    fn consume<R, F: FnOnce(&mut [u8]) -> R>(self, len: usize, write: F) -> R {
        let mut frame = vec![0; len];
        let result = write(&mut frame);
        self.0.network.borrow_mut().send(self.0.now, self.0.number, &frame);
        result
    }
}

impl Device for Port {
    type RxToken<'a> = Received;
    type TxToken<'a> = Transmit<'a>;

    fn receive(&mut self, _: time::Instant) -> Option<(Received, Transmit<'_>)> {
        let frame = self.network.borrow_mut().take(self.number, 0)?;
        Some((Received(frame), Transmit(self)))
    }

    fn transmit(&mut self, _: time::Instant) -> Option<Transmit<'_>> {
        Some(Transmit(self))
    }

    fn capabilities(&self) -> DeviceCapabilities {
        let mut capabilities = DeviceCapabilities::default();
        capabilities.medium = Medium::Ethernet;
        capabilities.max_transmission_unit = self.mtu + 14;
        capabilities
    }
}

/// See the module's comment.
pub struct Peer {
    device: Port,
    interface: Interface,
    sockets: SocketSet<'static>,
    handle: SocketHandle,
}

fn moment(now: Instant) -> time::Instant {
    time::Instant::from_micros(now.as_micros() as i64)
}

impl Peer {
    /// An interface with these addresses on a port of its own.
    pub fn new(network: &SharedNetwork, seed: u64, hosts: [IpAddr; 2], config: PeerConfig) -> Self {
        let number = network.borrow_mut().attach(MAC, 1, Spread::OneQueue);
        let (network, now) = (network.clone(), Instant::ZERO);
        let mut device = Port { network, number, now, mtu: config.mtu };
        let link = HardwareAddress::Ethernet(EthernetAddress(MAC.0));
        let mut settings = Config::new(link);
        settings.random_seed = seed;
        let mut interface = Interface::new(settings, &mut device, moment(now));
        interface.update_ip_addrs(|addresses| {
            for (address, bits) in hosts.into_iter().zip([24, 64]) {
                addresses.push(IpCidr::new(address.into(), bits)).expect("room for two addresses");
            }
        });
        let buffer = || SocketBuffer::new(vec![0; config.buffer]);
        let mut socket = Socket::new(buffer(), buffer());
        socket.set_congestion_control(config.congestion);
        if config.timestamps {
            socket.set_tsval_generator(Some(|| MILLIS.get()));
        }
        let mut sockets = SocketSet::new(Vec::new());
        let handle = sockets.add(socket);
        Self { device, interface, sockets, handle }
    }

    /// Receives and sends all that it can at this moment.
    pub fn poll(&mut self, now: Instant) {
        MILLIS.set(now.as_millis() as u32);
        self.device.now = now;
        self.interface.poll(moment(now), &mut self.device, &mut self.sockets);
    }

    /// When it wants to be run by itself: often at once, though it then does nothing, so that it has to wait a while.
    pub fn next(&mut self, now: Instant) -> Option<Instant> {
        let at = self.interface.poll_at(moment(now), &self.sockets)?;
        Some(Instant::from_micros(at.total_micros().max(0) as u64).max(now + TICK))
    }

    pub fn socket(&mut self) -> &mut Socket<'static> {
        self.sockets.get_mut(self.handle)
    }

    pub fn state(&mut self) -> State {
        self.socket().state()
    }

    pub fn listen(&mut self, port: u16) {
        self.socket().listen(port).expect("a socket that is closed");
    }

    pub fn connect(&mut self, to: (IpAddr, u16), from: u16) {
        let Self { interface, sockets, handle, .. } = self;
        let socket = sockets.get_mut::<Socket<'_>>(*handle);
        socket.connect(interface.context(), to, from).expect("a socket that is closed");
    }
}

impl Stream for Peer {
    fn send(&mut self, bytes: &[u8]) -> Got {
        let socket = self.socket();
        match socket.send_slice(bytes) {
            Ok(0) => Got::Nothing,
            Ok(bytes) => Got::Bytes(bytes),
            Err(_) if socket.is_open() => Got::Nothing,
            Err(_) => Got::Failed,
        }
    }

    fn receive(&mut self, buffer: &mut [u8]) -> Got {
        let socket = self.socket();
        match socket.recv_slice(buffer) {
            Ok(0) => Got::Nothing,
            Ok(bytes) => Got::Bytes(bytes),
            Err(RecvError::Finished) => Got::End,
            // Before the handshake's end nothing can be received either.
            Err(RecvError::InvalidState) if socket.is_open() => Got::Nothing,
            Err(RecvError::InvalidState) => Got::Failed,
        }
    }

    fn shutdown(&mut self) {
        self.socket().close();
    }
}
