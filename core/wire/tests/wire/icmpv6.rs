//! ICMPv6 messages by hand: what they say, and the neighbour discovery that RFC 4861 declares invalid.

use std::net::Ipv6Addr;

use wire::{
    Endpoint, Icmpv6Repr, Icmpv6View, MacAddr, ParameterProblemCode, Protocol, QuotedTcp,
    SeqNumber, Sum, TimeExceededCode, UnreachableCodeV6, WireError, pseudo_header_sum,
    solicited_node,
};

const CLIENT: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
const SERVER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);
const ROUTER: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 0x99);
const ASKER: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 1);
const TARGET: Ipv6Addr = Ipv6Addr::new(0xfe80, 0, 0, 0, 0, 0, 0, 2);
const ALL_NODES: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0, 1);
const MAC_1: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const MAC_2: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

const SOLICITATION: [u8; 32] = [
    135, 0, 0x7a, 0x97, 0, 0, 0, 0, //
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, //
    1, 1, 2, 0, 0, 0, 0, 1, // source link-layer address
];
const ADVERTISEMENT: [u8; 32] = [
    136, 0, 0x18, 0x1a, 0x60, 0, 0, 0, // solicited, override
    0xfe, 0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, //
    2, 1, 2, 0, 0, 0, 0, 2, // target link-layer address
];
/// The begin of a TCP segment from port 51234 to 6379.
const QUOTED: [u8; 48] = [
    0x60, 0, 0, 0, 0, 20, 6, 64, //
    0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, //
    0x20, 0x01, 0x0d, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2, //
    0xc8, 0x22, 0x18, 0xeb, 1, 2, 3, 4,
];

/// Reads `message` after its checksum was made right.
fn read(message: &[u8], src: Ipv6Addr, dst: Ipv6Addr) -> Result<Icmpv6Repr, WireError> {
    let mut message = message.to_vec();
    message[2..4].fill(0);
    let sum = pseudo_header_sum(src, dst, Protocol::ICMPV6, message.len());
    let checksum = sum.add(Sum::of(&message)).finish().to_be_bytes();
    message[2..4].copy_from_slice(&checksum);
    Icmpv6View::parse(&message, src, dst).map(|view| view.repr())
}

fn write(repr: Icmpv6Repr, src: Ipv6Addr, dst: Ipv6Addr) -> Vec<u8> {
    let mut out = vec![0xee; repr.header_len()];
    repr.emit(&mut out, src, dst, (Sum::ZERO, 0));
    out
}

#[test]
fn echoes() {
    let mut echo = [128, 0, 0x12, 0x3d, 0x12, 0x34, 0, 1, b'p', b'i', b'n', b'g', b'!'];
    let view = Icmpv6View::parse(&echo, CLIENT, SERVER).unwrap();
    let request = Icmpv6Repr::EchoRequest { ident: 0x1234, seq: 1 };
    assert_eq!((view.repr(), view.data()), (request, &b"ping!"[..]));
    assert!(!request.is_error());
    let mut out = [0xee; 9];
    request.emit(&mut out, CLIENT, SERVER, (Sum::of(b"ping!"), 5));
    assert_eq!((&out[..8], out[8]), (&echo[..8], 0xee));
    // The addresses are covered, and so is every bit.
    assert_eq!(Icmpv6View::parse(&echo, CLIENT, CLIENT).err(), Some(WireError::Checksum));
    for bit in 0..echo.len() * 8 {
        echo[bit / 8] ^= 1 << (bit % 8);
        let error = Icmpv6View::parse(&echo, CLIENT, SERVER).err();
        assert_eq!(error, Some(WireError::Checksum), "bit {bit}");
        echo[bit / 8] ^= 1 << (bit % 8);
    }
    for len in 0..4 {
        let error = Icmpv6View::parse(&echo[..len], CLIENT, SERVER).err();
        assert_eq!(error, Some(WireError::Truncated));
    }
    assert_eq!(Icmpv6View::parse(&[0; 8], CLIENT, SERVER).err(), Some(WireError::Checksum));
    let reply = Icmpv6Repr::EchoReply { ident: 0x1234, seq: 1 };
    assert_eq!(read(&[129, 0, 0, 0, 0x12, 0x34, 0, 1], CLIENT, SERVER), Ok(reply));
}

#[test]
fn errors() {
    let too_big = [&[2, 0, 0xf5, 0x8f, 0, 0, 0x05, 0x14], &QUOTED[..]].concat();
    let view = Icmpv6View::parse(&too_big, ROUTER, CLIENT).unwrap();
    assert_eq!(view.repr(), Icmpv6Repr::PacketTooBig { mtu: 1300 });
    assert_eq!(view.data(), QUOTED);
    let expected = QuotedTcp {
        src: Endpoint::new(CLIENT, 51_234),
        dst: Endpoint::new(SERVER, 6379),
        seq: SeqNumber(0x0102_0304),
    };
    assert_eq!(QuotedTcp::parse(view.data()), Some(expected));

    let get = |head: [u8; 4]| {
        let [kind, code, high, low] = head;
        read(&[kind, code, 0, 0, high, 0, 0, low], ROUTER, CLIENT).unwrap()
    };
    let port = UnreachableCodeV6::PORT;
    assert_eq!(get([1, 4, 1, 1]), Icmpv6Repr::DestUnreachable { code: port });
    assert_eq!(get([2, 9, 1, 1]), Icmpv6Repr::PacketTooBig { mtu: 0x0100_0001 }, "any code");
    let code = TimeExceededCode::REASSEMBLY;
    assert_eq!(get([3, 1, 1, 1]), Icmpv6Repr::TimeExceeded { code });
    let code = ParameterProblemCode::OPTION;
    assert_eq!(get([4, 2, 1, 1]), Icmpv6Repr::ParameterProblem { code, pointer: 0x0100_0001 });
    for kind in 1..=4 {
        assert!(get([kind, 0, 0, 0]).is_error());
        for len in 4..8 {
            let error = read(&vec![kind; len], ROUTER, CLIENT);
            assert_eq!(error, Err(WireError::Truncated), "type {kind}");
        }
    }
    // Unused bytes are written as zero.
    let bytes = write(Icmpv6Repr::DestUnreachable { code: port }, ROUTER, CLIENT);
    assert_eq!((bytes.len(), &bytes[..2], &bytes[4..]), (8, &[1, 4][..], &[0; 4][..]));
}

#[test]
fn other_messages() {
    let get = |bytes: &[u8]| read(bytes, CLIENT, SERVER);
    let other = |kind, code| Ok(Icmpv6Repr::Other { kind, code });
    // An echo with a code, router discovery, a type without a name, the two types beside errors and echoes.
    for (kind, code) in [(128, 1), (129, 1), (133, 0), (134, 0), (137, 0), (200, 3), (0, 0), (5, 0)]
    {
        assert_eq!(get(&[kind, code, 0, 0, 1, 2, 3, 4]), other(kind, code));
        assert_eq!(get(&[kind, code, 0, 0]), other(kind, code), "the head alone");
        assert_eq!(get(&[kind, code, 0, 0]).unwrap().is_error(), kind < 128);
    }
    let repr = Icmpv6Repr::Other { kind: 200, code: 3 };
    let mut bytes = [0, 0, 0, 0, 1, 2, 3];
    repr.emit(&mut bytes, CLIENT, SERVER, (Sum::of(&[1, 2, 3]), 3));
    let view = Icmpv6View::parse(&bytes, CLIENT, SERVER).unwrap();
    assert_eq!((view.repr(), view.data()), (repr, &[1, 2, 3][..]));
    assert!(Icmpv6Repr::Other { kind: 127, code: 0 }.is_error());
}

#[test]
fn reads_and_writes_neighbour_discovery() {
    let group = solicited_node(TARGET);
    let solicitation =
        Icmpv6Repr::NeighborSolicitation { target: TARGET, source_link: Some(MAC_1) };
    let view = Icmpv6View::parse(&SOLICITATION, ASKER, group).unwrap();
    assert_eq!((view.repr(), view.data()), (solicitation, &[][..]));
    assert_eq!(write(solicitation, ASKER, group), SOLICITATION);
    let advertisement = Icmpv6Repr::NeighborAdvertisement {
        target: TARGET,
        router: false,
        solicited: true,
        override_: true,
        target_link: Some(MAC_2),
    };
    let view = Icmpv6View::parse(&ADVERTISEMENT, TARGET, ASKER).unwrap();
    assert_eq!((view.repr(), view.data()), (advertisement, &[][..]));
    assert_eq!(write(advertisement, TARGET, ASKER), ADVERTISEMENT);
    assert!(!solicitation.is_error() && !advertisement.is_error());

    // Each flag by itself, without an option.
    for (byte, router, solicited, override_) in
        [(0x80, true, false, false), (0x40, false, true, false), (0x20, false, false, true)]
    {
        let target_link = None;
        let repr = Icmpv6Repr::NeighborAdvertisement {
            target: TARGET,
            router,
            solicited,
            override_,
            target_link,
        };
        let bytes = write(repr, TARGET, ASKER);
        assert_eq!((bytes.len(), bytes[4]), (24, byte));
        assert_eq!(read(&bytes, TARGET, ASKER), Ok(repr));
    }
}

#[test]
fn neighbour_discovery_is_complete() {
    for message in [SOLICITATION, ADVERTISEMENT] {
        for len in (4..32).filter(|len| *len != 24) {
            assert_eq!(read(&message[..len], ASKER, TARGET), Err(WireError::Truncated), "{len}");
        }
        assert!(read(&message[..24], ASKER, TARGET).is_ok(), "no option");
        for code in 1..=255 {
            let mut other = message;
            other[1] = code;
            assert_eq!(read(&other, ASKER, TARGET), Err(WireError::Malformed), "code {code}");
        }
        let mut other = message;
        other[8..24].copy_from_slice(&ALL_NODES.octets());
        assert_eq!(read(&other, ASKER, TARGET), Err(WireError::Malformed), "multicast target");
    }
}

#[test]
fn neighbour_discovery_options() {
    let with = |options: &[u8]| {
        let read = |message: [u8; 32]| read(&[&message[..24], options].concat(), ASKER, TARGET);
        let solicited = read(SOLICITATION).map(|repr| match repr {
            Icmpv6Repr::NeighborSolicitation { source_link, .. } => source_link,
            other => panic!("{other:?}"),
        });
        let advertised = read(ADVERTISEMENT).map(|repr| match repr {
            Icmpv6Repr::NeighborAdvertisement { target_link, .. } => target_link,
            other => panic!("{other:?}"),
        });
        (solicited, advertised)
    };
    let both = |error| (Err(error), Err(error));
    let (source, target) = ([1, 1, 2, 0, 0, 0, 0, 1], [2, 1, 2, 0, 0, 0, 0, 2]);
    assert_eq!(with(&source), (Ok(Some(MAC_1)), Ok(None)));
    assert_eq!(with(&target), (Ok(None), Ok(Some(MAC_2))));
    let unknown = [[14, 2, 9, 9, 9, 9, 9, 9], [0; 8]].concat();
    let all = [&unknown[..], &target, &source, &unknown].concat();
    assert_eq!(with(&all), (Ok(Some(MAC_1)), Ok(Some(MAC_2))), "others are skipped");
    let twice = [source, [1, 1, 6, 6, 6, 6, 6, 6], target, [2, 1, 6, 6, 6, 6, 6, 6]].concat();
    assert_eq!(with(&twice), (Ok(Some(MAC_1)), Ok(Some(MAC_2))), "the first counts");
    // RFC 4861 §4.6: an option of length zero spoils the message, wherever it is.
    for kind in [1, 2, 14] {
        let empty = [kind, 0, 0, 0, 0, 0, 0, 0];
        assert_eq!(with(&empty), both(WireError::Malformed));
        assert_eq!(with(&[&all[..], &empty].concat()), both(WireError::Malformed));
        assert_eq!(with(&[kind]), both(WireError::Truncated));
        assert_eq!(with(&[kind, 2, 0, 0, 0, 0, 0, 0]), both(WireError::Truncated));
    }
    // Link-layer addresses that are not Ethernet's.
    assert_eq!(with(&[[1, 2, 0, 0, 0, 0, 0, 0], [0; 8]].concat()).0, Err(WireError::Malformed));
    assert_eq!(with(&[[2, 2, 0, 0, 0, 0, 0, 0], [0; 8]].concat()).1, Err(WireError::Malformed));
}

/// RFC 4861 §7.1.1 and §7.1.2: what depends on the packet's addresses.
#[test]
fn neighbour_discovery_fits_its_addresses() {
    let probe = &SOLICITATION[..24];
    let nowhere = Ipv6Addr::UNSPECIFIED;
    assert!(read(probe, nowhere, solicited_node(TARGET)).is_ok());
    assert!(read(&SOLICITATION, ASKER, ALL_NODES).is_ok());
    for dst in [TARGET, ALL_NODES, "ff02::2:ff00:2".parse().unwrap()] {
        assert_eq!(read(probe, nowhere, dst), Err(WireError::Malformed), "a probe to {dst}");
    }
    let error = read(&SOLICITATION, nowhere, solicited_node(TARGET));
    assert_eq!(error, Err(WireError::Malformed), "a probe with a link-layer address");
    assert_eq!(read(&ADVERTISEMENT, TARGET, ALL_NODES), Err(WireError::Malformed));
    let mut unsolicited = ADVERTISEMENT;
    unsolicited[4] = 0x20;
    assert!(read(&unsolicited, TARGET, ALL_NODES).is_ok());
}

#[test]
fn quotations_that_are_no_segment() {
    for len in 0..QUOTED.len() {
        assert_eq!(QuotedTcp::parse(&QUOTED[..len]), None, "{len} bytes");
    }
    // Version 4, UDP, an extension header.
    for (at, byte) in [(0, 0x40), (6, 17), (6, 60), (6, 44)] {
        let mut other = QUOTED;
        other[at] = byte;
        assert_eq!(QuotedTcp::parse(&other), None, "{byte} at {at}");
    }
}

#[test]
#[should_panic(expected = "out of range")]
fn emit_needs_room() {
    let repr = Icmpv6Repr::NeighborSolicitation { target: TARGET, source_link: Some(MAC_1) };
    repr.emit(&mut [0; 31], ASKER, TARGET, (Sum::ZERO, 0));
}
