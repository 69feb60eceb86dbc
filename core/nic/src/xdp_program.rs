//! The XDP program that splits an interface between the dataplane and the kernel.
//!
//! ```no_run
//! use nic::xdp_program::{XdpFilter, XdpProgram};
//! # use nic::af_xdp::XdpSocket;
//! # use std::net::Ipv4Addr;
//! # fn split(socket: XdpSocket) -> Result<(), Box<dyn std::error::Error>> {
//! let filter = XdpFilter::address(Ipv4Addr::new(10, 0, 0, 2));
//! let mut program = XdpProgram::attach("eth0", &filter)?;
//! program.register(socket.queue(), socket.fd())?;
//! # Ok(()) }
//! ```
//!
//! Frames for the filter's addresses go to the socket that is registered for their queue, all else to the kernel. Those
//! that ask for the link address of one are among them: ARP, and neighbour solicitations to its solicited-node group,
//! which a device may have to be [asked for](crate::multicast). Router advertisements stay with the kernel.
//!
//! With ports, the address is shared with the kernel, which then keeps ARP, neighbour discovery, ICMP, fragments and
//! IPv6 packets with extension headers: the dataplane needs static neighbours then, or the kernel's.
//!
//! The object in `bpf/` is built from the source beside it, reproducibly, by clang 14: `scripts/bpf.sh`
//! compares, `scripts/bpf.sh --write` replaces it.
//!
//! All of aya that this takes stands in this file: its interface changes with each minor release.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv6Addr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::{Duration, Instant};

use aya::maps::{MapData, PerCpuArray, XskMap};
use aya::programs::{Xdp, XdpMode};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};

use crate::multicast::{self, Membership};
use crate::unsafe_ethtool::Ethtool;
use crate::unsafe_interface::Interface;

static OBJECT: &[u8] =
    include_bytes_aligned!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../bpf/tailplane_xdp.o"));

const PROGRAM: &str = "tailplane_xdp";
/// The same in the section `xdp.frags`: multi-buffer, for frames that the device left in several buffers.
const PROGRAM_MULTI_BUFFER: &str = "tailplane_xdp_frags";
const SOCKETS: &str = "sockets";
const COUNTERS: &str = "counters";
/// Addresses of each family that a filter can have.
pub const MAX_ADDRESSES: usize = 8;
/// Ports that a filter can have.
pub const MAX_PORTS: usize = 16;
/// Tunnel ends that a filter can have.
pub const MAX_TUNNELS: usize = 8;

/// Which frames the dataplane takes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct XdpFilter {
    /// The dataplane's own addresses, at most 8 IPv4 and 8 IPv6. Without any, there are tunnels.
    pub addresses: Vec<IpAddr>,
    /// TCP and UDP ports to which it is restricted; none: everything to the addresses, and the ARP
    /// and neighbour solicitations for them. At most 16.
    pub ports: Vec<u16>,
    /// IPv6 addresses at which tunnels end, at most 8: GRE to them is the dataplane's. The kernel keeps
    /// the rest of their traffic, and so resolves and answers for them.
    pub tunnels: Vec<Ipv6Addr>,
}

impl XdpFilter {
    /// Everything to one address.
    pub fn address(address: impl Into<IpAddr>) -> Self {
        Self { addresses: vec![address.into()], ..Self::default() }
    }

    /// Only TCP and UDP to `ports` of one address, which stays the kernel's otherwise.
    pub fn ports(address: impl Into<IpAddr>, ports: &[u16]) -> Self {
        Self { addresses: vec![address.into()], ports: ports.to_vec(), ..Self::default() }
    }

    /// Only GRE to one IPv6 address.
    pub fn tunnel(address: Ipv6Addr) -> Self {
        Self { tunnels: vec![address], ..Self::default() }
    }
}

/// Where the program runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AttachMode {
    /// In the device's driver, before the kernel allocates anything.
    Native,
    /// In the kernel's stack, after it has made a socket buffer: on every device, at about half the
    /// packet rate.
    Generic,
}

impl AttachMode {
    /// The word that conditions print.
    pub fn name(self) -> &'static str {
        match self {
            Self::Native => "native",
            Self::Generic => "generic",
        }
    }
}

/// How a program is attached.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AttachPolicy {
    /// Native, else generic with a warning.
    #[default]
    PreferNative,
    /// Native, or an error.
    Native,
    /// Generic.
    Generic,
}

/// Frames that the program has seen, all queues and cores together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpCounters {
    /// Given to a dataplane.
    pub redirected: u64,
    /// Given to the kernel.
    pub passed: u64,
}

/// Why the program could not be attached or used.
#[derive(Debug, thiserror::Error)]
pub enum XdpProgramError {
    /// The filter has no address and no tunnel, or too many addresses, ports or tunnels.
    #[error(
        "an XDP filter has at least one address or tunnel, and at most {MAX_ADDRESSES} IPv4 and {MAX_ADDRESSES} IPv6 \
         addresses, {MAX_PORTS} ports and {MAX_TUNNELS} tunnels; this has {addresses} and {addresses6}, {ports} and \
         {tunnels}"
    )]
    BadFilter {
        /// IPv4 addresses in the filter.
        addresses: usize,
        /// IPv6 addresses in the filter.
        addresses6: usize,
        /// Ports in the filter.
        ports: usize,
        /// Tunnels in the filter.
        tunnels: usize,
    },
    /// There is no such interface here.
    #[error("interface `{interface}` was not found in this network namespace: {source}")]
    NoInterface {
        /// The name that was asked for.
        interface: String,
        /// What the kernel said.
        source: std::io::Error,
    },
    /// The kernel refused the program or its maps.
    #[error(
        "loading the XDP program failed: {reason}; it needs root or CAP_BPF + CAP_NET_ADMIN, and \
         Linux 5.9 or later"
    )]
    Load {
        /// What the loader said, causes included.
        reason: String,
    },
    /// The interface refused the program.
    #[error(
        "attaching the XDP program to `{interface}` in {} mode failed: {reason}; where another \
         program is attached, `ip link set dev {interface} xdp off` removes it",
        mode.name()
    )]
    Attach {
        /// The interface.
        interface: String,
        /// The mode that was tried last.
        mode: AttachMode,
        /// What the kernel said, causes included.
        reason: String,
        /// The kernel's error number, where there was one.
        errno: Option<i32>,
    },
    /// The interface has a program of somebody else.
    #[error("cannot attach the XDP program to `{interface}`: found another one attached, {owner}")]
    Taken {
        /// The interface.
        interface: String,
        /// Whose it is, and what to do.
        owner: String,
    },
    /// A socket could not be put into the map, or a counter not be read.
    #[error("{tried} failed: {reason}")]
    Map {
        /// What was tried.
        tried: String,
        /// What the kernel said, causes included.
        reason: String,
    },
}

/// How long a program of somebody else is waited for, and how often looked for.
const TAKEN: Duration = Duration::from_millis(500);
const TAKEN_LOOK: Duration = Duration::from_millis(5);

/// The kernel's error number, among an error's causes.
fn errno(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    std::iter::successors(Some(error), |error| error.source())
        .find_map(|error| error.downcast_ref::<std::io::Error>()?.raw_os_error())
}

/// Whether the interface has another program (`EBUSY`), or one in another mode (`EEXIST`).
fn is_busy(error: &(dyn std::error::Error + 'static)) -> bool {
    matches!(errno(error), Some(libc::EBUSY | libc::EEXIST))
}

/// Whose program is attached to an interface, and what to do: of a process that holds it by a link, as far as `/proc`
/// shows the links of others, or of nobody.
fn owner(interface: &Interface) -> String {
    let processes: Vec<String> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
        .filter(|name| name.bytes().all(|byte| byte.is_ascii_digit()))
        .filter(|process| holds_link(process, interface.index))
        .map(|process| {
            let command = std::fs::read_to_string(format!("/proc/{process}/comm"));
            format!("{process} ({})", command.unwrap_or_default().trim())
        })
        .collect();
    match processes.as_slice() {
        [] => format!(
            "which no process seems to hold; `ip link set dev {} xdp off` removes it",
            interface.name
        ),
        holders => format!("of process {}; stop it, or use another interface", holders.join(", ")),
    }
}

/// Whether a process has a link of an XDP program to the interface with this index.
fn holds_link(process: &str, index: u32) -> bool {
    let is_it = |path: std::path::PathBuf| {
        let facts = std::fs::read_to_string(path).unwrap_or_default();
        let has = |key: &str, value: &str| {
            facts.lines().any(|line| {
                line.split_once(':').is_some_and(|(found, of)| found == key && of.trim() == value)
            })
        };
        has("link_type", "xdp") && has("ifindex", &index.to_string())
    };
    std::fs::read_dir(format!("/proc/{process}/fdinfo"))
        .into_iter()
        .flatten()
        .any(|entry| entry.is_ok_and(|entry| is_it(entry.path())))
}

/// An error with its causes in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(Some(error), |error| error.source());
    causes.map(ToString::to_string).collect::<Vec<String>>().join(": ")
}

/// The program, attached to an interface. Dropping it detaches it: all frames go to the kernel then.
#[derive(Debug)]
pub struct XdpProgram {
    ebpf: Ebpf,
    interface: Interface,
    attached: Attempt,
    refused: Option<Box<XdpProgramError>>,
    /// Solicitations for the filter's IPv6 addresses come to the device.
    _membership: Option<Membership>,
    /// Behind the program: fields drop in order.
    _offloads: Option<Offloads>,
}

/// Has a device accept what neighbours ask the groups of the filter's IPv6 addresses, where the dataplane answers for them.
fn member(
    interface: &Interface,
    filter: &XdpFilter,
) -> Result<Option<Membership>, XdpProgramError> {
    let v6 = filter.addresses.iter().filter_map(|address| match address {
        IpAddr::V6(v6) => Some(multicast::solicited_node(*v6)),
        IpAddr::V4(_) => None,
    });
    let groups: Vec<_> = v6.collect();
    if groups.is_empty() || !filter.ports.is_empty() {
        return Ok(None);
    }
    let membership = Membership::join(&interface.name, &groups);
    membership.map(Some).map_err(|error| XdpProgramError::Map {
        tried: "having the device accept solicitations for the IPv6 addresses".into(),
        reason: error.to_string(),
    })
}

/// Switches on again, at the end, what went off as the program came: for one in generic mode the kernel switches
/// offloads off that join packets (`rx-lro`, `rx-gro-hw`), and leaves them so. What others switch later stays theirs.
#[derive(Debug)]
struct Offloads {
    device: Ethtool,
    index: u32,
    lost: Vec<String>,
}

impl Offloads {
    /// By what was on before the program came; none where the interface does not report it, or nothing went off.
    fn lost(interface: &Interface, before: &BTreeMap<String, bool>) -> Option<Self> {
        let device = Ethtool::open(&interface.name).ok()?;
        let now = device.features().ok()?;
        let was_on = before.iter().filter(|(_, on)| **on).map(|(name, _)| name);
        let lost: Vec<String> =
            was_on.filter(|name| now.get(*name) == Some(&false)).cloned().collect();
        (!lost.is_empty()).then_some(Self { device, index: interface.index, lost })
    }
}

impl Drop for Offloads {
    fn drop(&mut self) {
        // Another one may have the name by now.
        if self.device.index().ok() != Some(self.index) {
            return;
        }
        let names: Vec<&str> = self.lost.iter().map(String::as_str).collect();
        if let Err(error) = self.device.set_features(&names, true) {
            tracing::warn!(interface = self.device.interface(), ?names, %error, "offloads stay off");
        }
    }
}

impl XdpProgram {
    /// Loads the program and attaches it to an interface of the calling thread's network namespace,
    /// native where the driver can, else generic with a warning.
    ///
    /// # Errors
    /// [`XdpProgramError`]: each says what to do.
    pub fn attach(interface: &str, filter: &XdpFilter) -> Result<Self, XdpProgramError> {
        Self::attach_with(interface, filter, AttachPolicy::PreferNative, false)
    }

    /// As [`attach`](Self::attach), with a policy. Drivers refuse a program in native mode that is not multi-buffer
    /// while a frame of the interface's MTU does not fit one of their buffers: a multi-buffer program comes second there
    /// (Linux 5.18). `is_jumbo`: no driver has such a buffer ([`Device::is_jumbo`](crate::device::Device::is_jumbo)), so
    /// it comes first.
    ///
    /// # Errors
    /// [`XdpProgramError`]: each says what to do.
    pub fn attach_with(
        interface: &str,
        filter: &XdpFilter,
        policy: AttachPolicy,
        is_jumbo: bool,
    ) -> Result<Self, XdpProgramError> {
        let interface = Interface::by_name(interface).map_err(|source| {
            XdpProgramError::NoInterface { interface: interface.into(), source }
        })?;
        let before = Ethtool::open(&interface.name).and_then(|device| device.features());
        let mut ebpf = load(filter)?;
        let has_multi_buffer = is_jumbo && xdp(&mut ebpf, PROGRAM_MULTI_BUFFER).is_ok();
        let attempts = attempts(policy, is_jumbo, has_multi_buffer);
        let (attached, refused) = first_of(&attempts, |attempt| {
            attach_in(xdp(&mut ebpf, attempt.program())?, &interface, attempt.mode)
        })?;
        if let (AttachMode::Generic, Some(reason)) = (attached.mode, &refused) {
            tracing::warn!(
                interface = %interface.name,
                %reason,
                "the XDP program runs in generic mode: expect about half the packet rate, and no zero-copy; a driver with \
                 native XDP avoids that"
            );
        }
        let offloads = before.ok().and_then(|before| Offloads::lost(&interface, &before));
        let refused = refused.map(Box::new);
        let membership = member(&interface, filter)?;
        Ok(Self {
            ebpf,
            interface,
            attached,
            refused,
            _membership: membership,
            _offloads: offloads,
        })
    }

    /// Whether it takes frames of several buffers.
    pub fn is_multi_buffer(&self) -> bool {
        self.attached.is_multi_buffer
    }

    /// Gives frames of `queue` to `socket` from now on.
    ///
    /// # Errors
    /// [`XdpProgramError::Map`] where the queue is above 255 or the socket is not bound to it.
    pub fn register(&mut self, queue: u32, socket: BorrowedFd<'_>) -> Result<(), XdpProgramError> {
        self.sockets()?.set(queue, socket.as_raw_fd(), 0).map_err(|error| XdpProgramError::Map {
            tried: format!("registering the socket of queue {queue}"),
            reason: chain(&error),
        })
    }

    /// Gives frames of `queue` to the kernel from now on.
    ///
    /// # Errors
    /// [`XdpProgramError::Map`] where the queue is above 255.
    pub fn unregister(&mut self, queue: u32) -> Result<(), XdpProgramError> {
        self.sockets()?.unset(queue).map_err(|error| XdpProgramError::Map {
            tried: format!("removing the socket of queue {queue}"),
            reason: chain(&error),
        })
    }

    /// Where the program runs.
    pub fn mode(&self) -> AttachMode {
        self.attached.mode
    }

    /// Why the first attempt to attach it was refused, where a later one succeeded: in native mode without multi-buffer,
    /// or in native mode at all.
    pub fn refused(&self) -> Option<&XdpProgramError> {
        self.refused.as_deref()
    }

    /// The interface that it is attached to.
    pub fn interface(&self) -> &Interface {
        &self.interface
    }

    /// What it has seen.
    ///
    /// # Errors
    /// [`XdpProgramError::Map`] where the kernel refuses to tell.
    pub fn counters(&self) -> Result<XdpCounters, XdpProgramError> {
        let failed =
            |reason: String| XdpProgramError::Map { tried: "reading counters".into(), reason };
        let map = self.ebpf.map(COUNTERS).ok_or_else(|| failed("no such map".into()))?;
        let map = PerCpuArray::<&MapData, u64>::try_from(map).map_err(|e| failed(chain(&e)))?;
        let sum = |index| -> Result<u64, XdpProgramError> {
            let values = map.get(&index, 0).map_err(|e| failed(chain(&e)))?;
            Ok(values.iter().sum())
        };
        // The order of `enum counter` in the program.
        Ok(XdpCounters { redirected: sum(0)?, passed: sum(1)? })
    }

    fn sockets(&mut self) -> Result<XskMap<&mut MapData>, XdpProgramError> {
        let failed =
            |reason| XdpProgramError::Map { tried: "opening the socket map".into(), reason };
        let map = self.ebpf.map_mut(SOCKETS).ok_or_else(|| failed("no such map".into()))?;
        XskMap::try_from(map).map_err(|error| failed(chain(&error)))
    }
}

/// A way to attach the program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Attempt {
    mode: AttachMode,
    /// As the program that takes frames of several buffers.
    is_multi_buffer: bool,
}

impl Attempt {
    fn program(self) -> &'static str {
        if self.is_multi_buffer { PROGRAM_MULTI_BUFFER } else { PROGRAM }
    }
}

/// The attempts of a policy, best first. `has_multi_buffer`: the kernel has loaded the multi-buffer program.
fn attempts(policy: AttachPolicy, is_jumbo: bool, has_multi_buffer: bool) -> Vec<Attempt> {
    let attempt = |mode, is_multi_buffer| Attempt { mode, is_multi_buffer };
    let native = |is_multi_buffer| attempt(AttachMode::Native, is_multi_buffer);
    let native =
        if is_jumbo { vec![native(has_multi_buffer)] } else { vec![native(false), native(true)] };
    // The kernel makes one buffer of a frame first, unless the program is multi-buffer.
    let generic = vec![attempt(AttachMode::Generic, is_jumbo && has_multi_buffer)];
    match policy {
        AttachPolicy::Native => native,
        AttachPolicy::Generic => generic,
        AttachPolicy::PreferNative => [native, generic].concat(),
    }
}

/// The first attempt that succeeds, and the refusal of the first one where that failed, which is the telling one. A
/// program of somebody else ends the attempts.
fn first_of(
    attempts: &[Attempt],
    mut attach: impl FnMut(Attempt) -> Result<(), XdpProgramError>,
) -> Result<(Attempt, Option<XdpProgramError>), XdpProgramError> {
    let mut refused = None;
    for &attempt in attempts {
        match attach(attempt) {
            Ok(()) => return Ok((attempt, refused)),
            Err(taken @ XdpProgramError::Taken { .. }) => return Err(taken),
            Err(error) => refused = refused.or(Some(error)),
        }
    }
    let none = || XdpProgramError::Load { reason: "no attempt was made".to_owned() };
    Err(refused.unwrap_or_else(none))
}

/// Attaches a program in a mode. One of somebody else is waited for: the kernel detaches the program of a process that
/// was killed only a while after its end.
fn attach_in(
    program: &mut Xdp,
    interface: &Interface,
    mode: AttachMode,
) -> Result<(), XdpProgramError> {
    let xdp_mode = match mode {
        AttachMode::Native => XdpMode::Driver,
        AttachMode::Generic => XdpMode::Skb,
    };
    let begun = Instant::now();
    loop {
        match program.attach_to_if_index(interface.index, xdp_mode) {
            Ok(_link) => return Ok(()),
            Err(error) if is_busy(&error) && begun.elapsed() < TAKEN => {
                std::thread::sleep(TAKEN_LOOK);
            }
            Err(error) if is_busy(&error) => {
                let owner = owner(interface);
                return Err(XdpProgramError::Taken { interface: interface.name.clone(), owner });
            }
            Err(error) => {
                return Err(XdpProgramError::Attach {
                    interface: interface.name.clone(),
                    mode,
                    reason: chain(&error),
                    errno: errno(&error),
                });
            }
        }
    }
}

fn load(filter: &XdpFilter) -> Result<Ebpf, XdpProgramError> {
    // The program compares with what lies in the packet: network byte order.
    let (mut own, mut own6) = (Vec::new(), Vec::new());
    for address in &filter.addresses {
        match address {
            IpAddr::V4(address) => own.push(u32::from_ne_bytes(address.octets())),
            IpAddr::V6(address) => own6.push(u128::from_ne_bytes(address.octets())),
        }
    }
    let counts = [own.len(), own6.len(), filter.ports.len(), filter.tunnels.len()];
    let [addresses, addresses6, ports, tunnels] = counts;
    if addresses + addresses6 + tunnels == 0
        || addresses.max(addresses6) > MAX_ADDRESSES
        || ports > MAX_PORTS
        || tunnels > MAX_TUNNELS
    {
        return Err(XdpProgramError::BadFilter { addresses, addresses6, ports, tunnels });
    }
    let [address_count, address6_count, port_count, tunnel_count] =
        counts.map(|count| count as u32);
    let (mut addresses, mut addresses6) = ([0u32; MAX_ADDRESSES], [0u128; MAX_ADDRESSES]);
    addresses[..own.len()].copy_from_slice(&own);
    addresses6[..own6.len()].copy_from_slice(&own6);
    let mut ports = [0u16; MAX_PORTS];
    for (to, from) in ports.iter_mut().zip(&filter.ports) {
        *to = from.to_be();
    }
    let mut tunnels = [0u128; MAX_TUNNELS];
    for (to, from) in tunnels.iter_mut().zip(&filter.tunnels) {
        *to = u128::from_ne_bytes(from.octets());
    }
    EbpfLoader::new()
        .override_global("address_count", &address_count, true)
        .override_global("addresses", &addresses, true)
        .override_global("address6_count", &address6_count, true)
        .override_global("addresses6", &addresses6, true)
        .override_global("port_count", &port_count, true)
        .override_global("ports", &ports, true)
        .override_global("tunnel_count", &tunnel_count, true)
        .override_global("tunnels", &tunnels, true)
        .load(OBJECT)
        .map_err(|error| XdpProgramError::Load { reason: chain(&error) })
}

/// A program of the object, loaded into the kernel.
fn xdp<'a>(ebpf: &'a mut Ebpf, name: &str) -> Result<&'a mut Xdp, XdpProgramError> {
    let failed = |reason| XdpProgramError::Load { reason };
    let program = ebpf.program_mut(name).ok_or_else(|| failed("no such program".into()))?;
    let xdp: &mut Xdp = program.try_into().map_err(|error| failed(chain(&error)))?;
    if xdp.fd().is_err() {
        xdp.load().map_err(|error| failed(chain(&error)))?;
    }
    Ok(xdp)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    #[test]
    fn filters_have_bounds() {
        let none = XdpFilter::default();
        let of = |addresses| XdpFilter { addresses, ..XdpFilter::default() };
        let many = of(vec![Ipv4Addr::LOCALHOST.into(); 9]);
        let many6 = of(vec![Ipv6Addr::LOCALHOST.into(); 9]);
        let tunnels = XdpFilter { tunnels: vec![Ipv6Addr::LOCALHOST; 9], ..XdpFilter::default() };
        let ports = XdpFilter::ports(Ipv4Addr::LOCALHOST, &[1; 17]);
        for filter in [none, many, many6, ports, tunnels] {
            assert!(matches!(load(&filter), Err(XdpProgramError::BadFilter { .. })), "{filter:?}");
        }
    }

    fn refusal(errno: i32) -> XdpProgramError {
        XdpProgramError::Attach {
            interface: "eth0".into(),
            mode: AttachMode::Native,
            reason: std::io::Error::from_raw_os_error(errno).to_string(),
            errno: Some(errno),
        }
    }

    /// What a driver attaches that refuses programs by `refuses`, with the refusal's number.
    fn attached(
        policy: AttachPolicy,
        is_jumbo: bool,
        has_multi_buffer: bool,
        refuses: impl Fn(Attempt) -> Option<i32>,
    ) -> Result<(&'static str, bool, Option<i32>), i32> {
        let errno = |error: XdpProgramError| match error {
            XdpProgramError::Attach { errno, .. } => errno.expect("a number"),
            other => panic!("{other}"),
        };
        let found = first_of(&attempts(policy, is_jumbo, has_multi_buffer), |attempt| {
            refuses(attempt).map_or(Ok(()), |errno| Err(refusal(errno)))
        });
        found
            .map(|(attempt, refused)| {
                (attempt.mode.name(), attempt.is_multi_buffer, refused.map(errno))
            })
            .map_err(errno)
    }

    #[test]
    fn a_driver_that_refuses_a_large_mtu_is_asked_for_multi_buffer() {
        use AttachPolicy::{Generic, Native, PreferNative};
        let takes_all = |_: Attempt| None;
        assert_eq!(attached(PreferNative, false, false, takes_all), Ok(("native", false, None)));
        // i40e with an MTU between 3,047 and 3,502.
        let wants_multi_buffer = |attempt: Attempt| {
            (attempt.mode == AttachMode::Native && !attempt.is_multi_buffer).then_some(libc::EINVAL)
        };
        let found = Ok(("native", true, Some(libc::EINVAL)));
        assert_eq!(attached(PreferNative, false, false, wants_multi_buffer), found);
        assert_eq!(attached(Native, false, false, wants_multi_buffer), found);
        // The kernel has no such programs, or the driver takes none: the first refusal says why.
        let takes_none = |attempt: Attempt| {
            let errno = if attempt.is_multi_buffer { libc::EOPNOTSUPP } else { libc::EINVAL };
            (attempt.mode == AttachMode::Native).then_some(errno)
        };
        let generic = Ok(("generic", false, Some(libc::EINVAL)));
        assert_eq!(attached(PreferNative, false, false, takes_none), generic);
        assert_eq!(attached(Native, false, false, takes_none), Err(libc::EINVAL));
        assert_eq!(attached(Generic, false, false, takes_none), Ok(("generic", false, None)));
    }

    #[test]
    fn jumbo_frames_ask_for_multi_buffer_first() {
        use AttachPolicy::{Generic, PreferNative};
        let takes_all = |_: Attempt| None;
        assert_eq!(attached(PreferNative, true, true, takes_all), Ok(("native", true, None)));
        assert_eq!(attached(PreferNative, true, false, takes_all), Ok(("native", false, None)));
        assert_eq!(attached(Generic, true, true, takes_all), Ok(("generic", true, None)));
    }

    #[test]
    fn a_program_of_somebody_else_ends_the_attempts() {
        let mut tried = 0;
        let found = first_of(&attempts(AttachPolicy::PreferNative, false, false), |_| {
            tried += 1;
            Err(XdpProgramError::Taken { interface: "eth0".into(), owner: "of process 1".into() })
        });
        assert!(matches!(found, Err(XdpProgramError::Taken { .. })) && tried == 1, "{tried}");
    }

    #[test]
    fn the_object_is_an_elf_file_for_bpf() {
        const EM_BPF: u8 = 247;
        assert_eq!(&OBJECT[..4], b"\x7fELF");
        assert_eq!(OBJECT[18], EM_BPF);
        assert!(OBJECT.as_ptr().addr().is_multiple_of(8));
    }
}
