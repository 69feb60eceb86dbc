//! The hash against Microsoft's verification suite and against its own definition.

use std::net::{SocketAddrV4, SocketAddrV6};

use proptest::prelude::*;
use wire::{MICROSOFT_KEY, Toeplitz, toeplitz_reference};

static TOEPLITZ: Toeplitz = Toeplitz::new(&MICROSOFT_KEY);

/// Destination, source, hash of the addresses, hash of addresses and ports ("Verifying the RSS hash calculation").
const VERIFICATION_SUITE: [(&str, &str, u32, u32); 5] = [
    ("161.142.100.80:1766", "66.9.149.187:2794", 0x323e_8fc2, 0x51cc_c178),
    ("65.69.140.83:4739", "199.92.111.2:14230", 0xd718_262a, 0xc626_b0ea),
    ("12.22.207.184:38024", "24.19.198.95:12898", 0xd2d0_a5de, 0x5c2b_394a),
    ("209.142.163.6:2217", "38.27.205.30:48228", 0x8298_9176, 0xafc7_327f),
    ("202.188.127.2:1303", "153.39.163.191:44251", 0x5d18_09c5, 0x10e8_28a2),
];

/// The same over IPv6, of which the suite has three.
const VERIFICATION_SUITE_V6: [(&str, &str, u32, u32); 3] = [
    ("[3ffe:2501:200:3::1]:1766", "[3ffe:2501:200:1fff::7]:2794", 0x2cc1_8cd5, 0x4020_7d3d),
    ("[ff02::1]:4739", "[3ffe:501:8::260:97ff:fe40:efab]:14230", 0x0f0c_461c, 0xdde5_1bbf),
    (
        "[fe80::200:f8ff:fe21:67cf]:38024",
        "[3ffe:1900:4545:3:200:f8ff:fe21:67cf]:44251",
        0x4b61_e985,
        0x02d1_feef,
    ),
];

#[test]
fn microsoft_verification_suite() {
    for (dst, src, addresses, addresses_and_ports) in VERIFICATION_SUITE {
        let dst: SocketAddrV4 = dst.parse().unwrap();
        let src: SocketAddrV4 = src.parse().unwrap();
        assert_eq!(TOEPLITZ.hash_v4_2tuple(*src.ip(), *dst.ip()), addresses, "{src} -> {dst}");
        let hash = TOEPLITZ.hash_v4(*src.ip(), *dst.ip(), src.port(), dst.port());
        assert_eq!(hash, addresses_and_ports, "{src} -> {dst}");
    }
}

#[test]
fn microsoft_verification_suite_over_ipv6() {
    for (dst, src, addresses, addresses_and_ports) in VERIFICATION_SUITE_V6 {
        let dst: SocketAddrV6 = dst.parse().unwrap();
        let src: SocketAddrV6 = src.parse().unwrap();
        assert_eq!(TOEPLITZ.hash_v6_2tuple(*src.ip(), *dst.ip()), addresses, "{src} -> {dst}");
        let hash = TOEPLITZ.hash_v6(*src.ip(), *dst.ip(), src.port(), dst.port());
        assert_eq!(hash, addresses_and_ports, "{src} -> {dst}");
    }
}

#[test]
fn reference_ignores_what_the_key_does_not_reach() {
    let short = [0xff; 37];
    let mut long = [0xff; 60];
    // 289 windows: 36 bytes and the first bit of the next.
    long[36] = 0x80;
    assert_eq!(
        toeplitz_reference(&MICROSOFT_KEY, &short),
        toeplitz_reference(&MICROSOFT_KEY, &long)
    );
    assert_eq!(toeplitz_reference(&MICROSOFT_KEY, &[]), 0);
}

proptest! {
    #[test]
    fn tables_follow_the_definition(
        key in prop::array::uniform32(any::<u8>()),
        key_end in prop::array::uniform8(any::<u8>()),
        src: [u8; 4],
        dst: [u8; 4],
        src_port: u16,
        dst_port: u16,
    ) {
        let key: [u8; 40] = [key.as_slice(), &key_end].concat().try_into().unwrap();
        let toeplitz = Box::new(Toeplitz::new(&key));
        let addresses = [src, dst].concat();
        let ports = [src_port.to_be_bytes(), dst_port.to_be_bytes()].concat();
        let tuple = [addresses.as_slice(), &ports].concat();
        prop_assert_eq!(
            toeplitz.hash_v4_2tuple(src.into(), dst.into()),
            toeplitz_reference(&key, &addresses)
        );
        prop_assert_eq!(
            toeplitz.hash_v4(src.into(), dst.into(), src_port, dst_port),
            toeplitz_reference(&key, &tuple)
        );
    }

    #[test]
    fn tables_follow_the_definition_over_ipv6(
        key in prop::array::uniform32(any::<u8>()),
        key_end in prop::array::uniform8(any::<u8>()),
        src: u128,
        dst: u128,
        src_port: u16,
        dst_port: u16,
    ) {
        let key: [u8; 40] = [key.as_slice(), &key_end].concat().try_into().unwrap();
        let toeplitz = Box::new(Toeplitz::new(&key));
        let addresses = [src.to_be_bytes(), dst.to_be_bytes()].concat();
        let ports = [src_port.to_be_bytes(), dst_port.to_be_bytes()].concat();
        let tuple = [addresses.as_slice(), &ports].concat();
        prop_assert_eq!(
            toeplitz.hash_v6_2tuple(src.into(), dst.into()),
            toeplitz_reference(&key, &addresses)
        );
        let hash = toeplitz.hash_v6(src.into(), dst.into(), src_port, dst_port);
        prop_assert_eq!(hash, toeplitz_reference(&key, &tuple));
        let destination = toeplitz.destination_v6(dst.into());
        prop_assert_eq!(hash, toeplitz.hash_v6_to(destination, src.into(), src_port, dst_port));
        // Each byte of the input has its own table.
        let by_table = toeplitz.tables().iter().zip(tuple).fold(0, |hash, (table, byte)| {
            hash ^ table[usize::from(byte)]
        });
        prop_assert_eq!(hash, by_table);
    }
}
