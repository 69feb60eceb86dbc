//! What the kernel declares that a device can do in XDP: generic netlink, family `netdev`, Linux 6.3 and later.
//!
//! ```no_run
//! let declared = nic::xdp_features::XdpFeatures::of(2)?;
//! println!("native XDP: {}, zero-copy: {}", declared.native, declared.zero_copy);
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! A driver may refuse what it declares: virtio_net declares zero-copy and refuses it to queues that bypass the DMA
//! interface. Only a bind that is tried shows the mode that a socket gets.
//!
//! A request and its reply are one netlink message each, with one or more attributes behind the headers; numbers are in
//! the machine's byte order (`linux/netlink.h`, `linux/genetlink.h`, `linux/netdev.h`).

use std::io;
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};

/// `NLMSG_ERROR`.
const ERROR: u16 = 2;
/// `NLM_F_REQUEST`.
const REQUEST: u16 = 1;
/// Bytes of `struct nlmsghdr`, and of that with `struct genlmsghdr` behind it.
const HEADER_BYTES: usize = 16;
const HEADERS_BYTES: usize = HEADER_BYTES + 4;
/// The flags of an attribute's type lie above (`NLA_TYPE_MASK`).
const TYPE_MASK: u16 = 0x3fff;
const ATTRIBUTE_ALIGN: usize = 4;
/// More than either reply has: the larger one, of the family's operations, has about 300.
const REPLY_BYTES: usize = 8192;

/// `GENL_ID_CTRL`, which knows the numbers of the other families, and its `CTRL_CMD_GETFAMILY`.
const CONTROLLER: u16 = 16;
const GET_FAMILY: u8 = 3;
const FAMILY_ID: u16 = 1;
const FAMILY_NAME: u16 = 2;

/// `NETDEV_CMD_DEV_GET`, and `NETDEV_A_DEV_*`.
const GET_DEVICE: u8 = 1;
const INDEX: u16 = 1;
const XDP_FEATURES: u16 = 3;
const XDP_ZC_MAX_SEGS: u16 = 4;
const XSK_FEATURES: u16 = 6;

/// What a device's driver declares (`enum netdev_xdp_act`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct XdpFeatures {
    /// The driver runs programs before the kernel makes a socket buffer (`basic`).
    pub native: bool,
    /// A program can redirect frames, to AF_XDP sockets among others.
    pub redirect: bool,
    /// AF_XDP sockets can have the device read and write their memory (`xsk-zerocopy`).
    pub zero_copy: bool,
    /// Programs see frames of several buffers, multi-buffer in the kernel's words (`rx-sg`).
    pub multi_buffer: bool,
    /// Buffers that a frame has in zero-copy mode at most; reported by Linux 6.6 and later, of drivers with that mode.
    pub zero_copy_multi_buffer: Option<u32>,
    /// In zero-copy mode the device completes checksums of frames whose transmit metadata asks for it (`tx-checksum` of
    /// `enum netdev_xsk_flags`, Linux 6.8).
    pub tx_checksum: bool,
}

impl XdpFeatures {
    /// Of the interface with this index in the calling thread's network namespace.
    ///
    /// # Errors
    /// The kernel predates the family (`ENOENT`), there is no such interface (`ENODEV`), or the reply makes no sense.
    pub fn of(index: u32) -> io::Result<Self> {
        let generic = Some(netlink::GENERIC);
        let flags = SocketFlags::CLOEXEC;
        let socket = socket_with(AddressFamily::NETLINK, SocketType::RAW, flags, generic)?;
        let found = ask(&socket, &request(CONTROLLER, GET_FAMILY, FAMILY_NAME, b"netdev\0"))?;
        let family = family(&found)?;
        Self::read(&ask(&socket, &request(family, GET_DEVICE, INDEX, &index.to_ne_bytes()))?)
    }

    fn read(message: &[u8]) -> io::Result<Self> {
        let mut bits = None;
        let (mut zero_copy_multi_buffer, mut socket_bits) = (None, 0u64);
        for (kind, value) in attributes(payload(message)?) {
            match kind {
                XDP_FEATURES => bits = value.try_into().map(u64::from_ne_bytes).ok(),
                XDP_ZC_MAX_SEGS => {
                    zero_copy_multi_buffer = value.try_into().map(u32::from_ne_bytes).ok();
                }
                XSK_FEATURES => {
                    socket_bits = value.try_into().map(u64::from_ne_bytes).unwrap_or_default();
                }
                _ => {}
            }
        }
        let bits = bits.ok_or(io::ErrorKind::InvalidData)?;
        let has = |bit: u32| bits >> bit & 1 == 1;
        Ok(Self {
            native: has(0),
            redirect: has(1),
            zero_copy: has(3),
            multi_buffer: has(5),
            zero_copy_multi_buffer,
            tx_checksum: socket_bits >> 1 & 1 == 1,
        })
    }
}

/// The number that the kernel has given to a family, in the controller's reply.
fn family(message: &[u8]) -> io::Result<u16> {
    let mut found = attributes(payload(message)?);
    let id = found.find_map(|(kind, value)| (kind == FAMILY_ID).then_some(value));
    let id = id.and_then(|value| value.try_into().ok()).map(u16::from_ne_bytes);
    id.ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Sends a request to the kernel, which has replied when that returns.
fn ask(socket: &OwnedFd, request: &[u8]) -> io::Result<Vec<u8>> {
    send(socket, request, SendFlags::empty())?;
    let mut reply = vec![0; REPLY_BYTES];
    let (len, _) = recv(socket, reply.as_mut_slice(), RecvFlags::DONTWAIT)?;
    reply.truncate(len);
    Ok(reply)
}

/// A request with one attribute.
fn request(family: u16, command: u8, kind: u16, value: &[u8]) -> Vec<u8> {
    const ATTRIBUTE_HEADER: usize = 4;
    const VERSION: u8 = 1;
    let attribute_bytes = ATTRIBUTE_HEADER + value.len();
    let bytes = HEADERS_BYTES + attribute_bytes.next_multiple_of(ATTRIBUTE_ALIGN);
    let mut message = Vec::with_capacity(bytes);
    message.extend_from_slice(&(bytes as u32).to_ne_bytes());
    message.extend_from_slice(&family.to_ne_bytes());
    message.extend_from_slice(&REQUEST.to_ne_bytes());
    // Sequence and port: the socket has one request under way, and the kernel is at the other end.
    message.extend_from_slice(&[0; 8]);
    message.extend_from_slice(&[command, VERSION, 0, 0]);
    message.extend_from_slice(&(attribute_bytes as u16).to_ne_bytes());
    message.extend_from_slice(&kind.to_ne_bytes());
    message.extend_from_slice(value);
    message.resize(bytes, 0);
    message
}

/// The attributes of a reply, or the error that the kernel replies instead.
fn payload(message: &[u8]) -> io::Result<&[u8]> {
    let invalid = || io::Error::from(io::ErrorKind::InvalidData);
    let (header, rest) = message.split_first_chunk::<HEADER_BYTES>().ok_or_else(invalid)?;
    let &[l0, l1, l2, l3, k0, k1, ..] = header;
    if u16::from_ne_bytes([k0, k1]) == ERROR {
        let (errno, _) = rest.split_first_chunk().ok_or_else(invalid)?;
        let errno = i32::from_ne_bytes(*errno).checked_neg().filter(|&errno| errno > 0);
        return Err(errno.map_or_else(invalid, io::Error::from_raw_os_error));
    }
    let bytes = u32::from_ne_bytes([l0, l1, l2, l3]) as usize;
    message.get(HEADERS_BYTES..bytes).ok_or_else(invalid)
}

/// Types and values of attributes, up to the end or to one that is no attribute.
fn attributes(mut rest: &[u8]) -> impl Iterator<Item = (u16, &[u8])> {
    std::iter::from_fn(move || {
        let (&[l0, l1, k0, k1], _) = rest.split_first_chunk()?;
        let bytes = usize::from(u16::from_ne_bytes([l0, l1]));
        let value = rest.get(ATTRIBUTE_ALIGN..bytes)?;
        rest = rest.get(bytes.next_multiple_of(ATTRIBUTE_ALIGN)..).unwrap_or_default();
        Some((u16::from_ne_bytes([k0, k1]) & TYPE_MASK, value))
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The replies of Linux 6.18 about virtio_net, and about an interface that does not exist.
    #[cfg(target_endian = "little")]
    const VIRTIO_NET: [u8; 72] = [
        0x48, 0, 0, 0, 0x14, 0, 0, 0, 2, 0, 0, 0, 0xf5, 0x17, 0, 0, 1, 1, 0, 0, 8, 0, 1, 0, 4, 0,
        0, 0, 12, 0, 3, 0, 0x2b, 0, 0, 0, 0, 0, 0, 0, 12, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0, 0, 12, 0,
        6, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 4, 0, 1, 0, 0, 0,
    ];
    #[cfg(target_endian = "little")]
    const ABSENT: [u8; 48] = [
        0x30, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0xf5, 0x17, 0, 0, 0xed, 0xff, 0xff, 0xff, 0x1c, 0,
        0, 0, 0x14, 0, 1, 0, 3, 0, 0, 0, 0, 0, 0, 0, 1, 1, 0, 0, 8, 0, 1, 0, 0x0f, 0x27, 0, 0,
    ];

    #[cfg(target_endian = "little")]
    #[test]
    fn a_recorded_reply_is_read_and_one_cut_short_refused() {
        let declared = XdpFeatures {
            native: true,
            redirect: true,
            zero_copy: true,
            multi_buffer: true,
            zero_copy_multi_buffer: Some(1),
            tx_checksum: false,
        };
        assert_eq!(XdpFeatures::read(&VIRTIO_NET).expect("sound"), declared);
        for len in 0..VIRTIO_NET.len() {
            assert!(XdpFeatures::read(&VIRTIO_NET[..len]).is_err(), "{len} bytes");
        }
        let absent = XdpFeatures::read(&ABSENT).expect_err("an error");
        assert_eq!(absent.raw_os_error(), Some(libc::ENODEV));
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_driver_that_completes_checksums_is_known_by_its_bit() {
        const SOCKET_BITS: usize = 56;
        assert_eq!(VIRTIO_NET[SOCKET_BITS - 4..SOCKET_BITS], [12, 0, 6, 0]);
        for (bits, completes) in [(1, false), (2, true), (3, true), (4, false)] {
            let mut reply = VIRTIO_NET;
            reply[SOCKET_BITS] = bits;
            assert_eq!(XdpFeatures::read(&reply).expect("sound").tx_checksum, completes, "{bits}");
        }
    }

    #[cfg(target_endian = "little")]
    #[test]
    fn a_request_has_one_attribute_padded() {
        let message = request(20, GET_DEVICE, FAMILY_NAME, b"netdev\0");
        assert_eq!(message[..8], [32, 0, 0, 0, 20, 0, 1, 0]);
        assert_eq!(message[16..], *b"\x01\x01\0\0\x0b\0\x02\0netdev\0\0");
    }

    proptest! {
        #![proptest_config(ProptestConfig {
            cases: if cfg!(miri) { 4 } else { 256 },
            failure_persistence: None,
            ..ProptestConfig::default()
        })]

        #[test]
        fn no_reply_can_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = (XdpFeatures::read(&bytes), family(&bytes));
        }

        #[test]
        fn no_attributes_can_panic(bytes in prop::collection::vec(0u8..16, 0..200)) {
            let total: usize = attributes(&bytes).map(|(_, value)| value.len()).sum();
            prop_assert!(total <= bytes.len());
        }
    }

    #[cfg(not(miri))]
    #[test]
    fn the_loopback_declares_nothing_where_the_kernel_has_the_family() {
        match XdpFeatures::of(1) {
            Ok(declared) => assert_eq!(declared, XdpFeatures::default()),
            Err(error) => assert_eq!(error.raw_os_error(), Some(libc::ENOENT), "{error}"),
        }
        let absent = XdpFeatures::of(u32::MAX).expect_err("no such interface");
        assert!(matches!(absent.raw_os_error(), Some(libc::ENODEV | libc::ENOENT | libc::ERANGE)));
    }
}
