//! Packets to feed the services with: `udp(..)`, `tcp(..)`, and the addresses of a tunnel.

use std::net::{Ipv4Addr, Ipv6Addr};

use services::{Decapsulation, Encapsulation, Service, TunnelConfig};
use wire::{Endpoint, Ipv4Repr, Protocol, SeqNumber, Sum, TcpFlags, TcpOptions, TcpRepr, UdpRepr};

pub const LOCAL: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1);
pub const REMOTE: Ipv6Addr = Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 2);

/// A datagram with right checksums. The payload's bytes differ from one seed to another.
pub fn udp(src: Endpoint, dst: Endpoint, dscp_ecn: u8, payload: &[u8]) -> Vec<u8> {
    let mut packet = vec![0; 28 + payload.len()];
    let repr = UdpRepr { src_port: src.port, dst_port: dst.port, payload_len: payload.len() };
    header(v4(src), v4(dst), Protocol::UDP, dscp_ecn, 8 + payload.len()).emit(&mut packet);
    repr.emit(&mut packet[20..], src.addr, dst.addr, Sum::of(payload));
    packet[28..].copy_from_slice(payload);
    packet
}

/// A segment with right checksums.
pub fn tcp(src: Endpoint, dst: Endpoint, payload: &[u8]) -> Vec<u8> {
    let repr = TcpRepr {
        src_port: src.port,
        dst_port: dst.port,
        seq: SeqNumber(1_000),
        ack: SeqNumber(2_000),
        flags: TcpFlags(TcpFlags::ACK.0 | TcpFlags::PSH.0),
        window: 500,
        options: TcpOptions::default(),
    };
    let header_len = repr.header_len();
    let mut packet = vec![0; 20 + header_len + payload.len()];
    header(v4(src), v4(dst), Protocol::TCP, 0, header_len + payload.len()).emit(&mut packet);
    repr.emit(&mut packet[20..], src.addr, dst.addr, payload.len(), Sum::of(payload));
    packet[20 + header_len..].copy_from_slice(payload);
    packet
}

fn v4(end: Endpoint) -> Ipv4Addr {
    end.addr.v4().expect("these are of IPv4")
}

fn header(
    src: Ipv4Addr,
    dst: Ipv4Addr,
    protocol: Protocol,
    dscp_ecn: u8,
    payload_len: usize,
) -> Ipv4Repr {
    Ipv4Repr { src, dst, protocol, ttl: 64, ident: 7, dscp_ecn, dont_fragment: true, payload_len }
}

/// The entry of a tunnel and its exit.
pub fn tunnel(change: impl FnOnce(&mut TunnelConfig)) -> (Encapsulation, Decapsulation) {
    let mut entry = TunnelConfig::new(LOCAL, REMOTE);
    change(&mut entry);
    let mut exit = TunnelConfig::new(REMOTE, LOCAL);
    (exit.key, exit.sequence, exit.dscp) = (entry.key, entry.sequence, entry.dscp);
    let entry = Encapsulation::new(entry).expect("a valid tunnel");
    (entry, Decapsulation::new(exit).expect("a valid tunnel"))
}

/// What a service replies, in a buffer of just the promised size.
pub fn serve(service: &mut dyn Service, request: &[u8]) -> Result<Vec<u8>, services::Refused> {
    let mut reply = vec![0xee; service.reply_len_max(request.len())];
    let length = service.serve(request, &mut reply)?;
    reply.truncate(length);
    Ok(reply)
}

/// The checksum's sum is right.
pub fn assert_ipv4(packet: &[u8]) {
    let view = wire::Ipv4View::parse(packet).expect("an IPv4 packet");
    assert!(view.verify_checksum(), "the header's checksum: {packet:x?}");
}
