//! Encapsulated and steered packets as Wireshark's `tshark` reads them.

use std::fs::File;
use std::net::Ipv4Addr;
use std::process::Command;
use std::time::Duration;

use clock::Instant;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};
use pcap_file::{DataLink, Endianness, TsResolution};
use services::{DscpModel, Encapsulation, Steering, SteeringConfig};
use wire::{Endpoint, EtherType, EthernetRepr, MacAddr};

use crate::packets::{serve, tcp, tunnel, udp};
use crate::tools::{available, run_with_input, scratch};

const HERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);
const THERE: MacAddr = MacAddr([2, 0, 0, 0, 0, 2]);

/// What tshark reads: a line for each frame, the fields separated by `|`.
fn fields(name: &str, frames: &[Vec<u8>], fields: &[&str]) -> Vec<Vec<String>> {
    let path = scratch(name);
    let header = PcapHeader {
        datalink: DataLink::ETHERNET,
        ts_resolution: TsResolution::NanoSecond,
        snaplen: u32::from(u16::MAX),
        endianness: Endianness::Little,
        ..PcapHeader::default()
    };
    let file = File::create(&path).expect("a writable directory");
    let mut writer = PcapWriter::with_header(file, header).expect("a capture");
    for (number, frame) in frames.iter().enumerate() {
        let time = Duration::from_micros(number as u64);
        let packet = PcapPacket::new(time, frame.len() as u32, frame);
        writer.write_packet(&packet).expect("written");
    }
    drop(writer);
    let mut command = Command::new("tshark");
    command.arg("-n").arg("-r").arg(&path).args(["-T", "fields", "-E", "separator=|"]);
    for preference in ["ip.check_checksum", "udp.check_checksum", "tcp.check_checksum"] {
        command.args(["-o", &format!("{preference}:TRUE")]);
    }
    command.args(fields.iter().flat_map(|field| ["-e", field]));
    let output = run_with_input(&mut command, b"");
    std::fs::remove_file(&path).expect("written above");
    let text = String::from_utf8(output).expect("text");
    let lines: Vec<Vec<String>> =
        text.lines().map(|line| line.split('|').map(str::to_owned).collect()).collect();
    assert_eq!(lines.len(), frames.len(), "a line for each frame:\n{text}");
    lines
}

fn frame(ethertype: EtherType, packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![0; 14];
    EthernetRepr { src: THERE, dst: HERE, ethertype }.emit(&mut frame);
    frame.extend(packet);
    frame
}

fn through(tunnel: &mut Encapsulation, packet: &[u8]) -> Vec<u8> {
    let mut reply = vec![0; 2_000];
    let length = tunnel
        .serve_frame(HERE, THERE, &frame(EtherType::IPV4, packet), &mut reply)
        .expect("encapsulated");
    reply.truncate(length);
    reply
}

#[test]
#[cfg_attr(miri, ignore = "starts a program")]
fn tshark_reads_the_tunnel_as_it_was_meant() {
    if !available("tshark", &["--version"]) {
        return;
    }
    const FIELDS: [&str; 23] = [
        "eth.src",
        "eth.dst",
        "eth.type",
        "ipv6.src",
        "ipv6.dst",
        "ipv6.plen",
        "ipv6.nxt",
        "ipv6.hlim",
        "ipv6.tclass",
        "ipv6.flow",
        "gre.proto",
        "gre.key",
        "gre.sequence_number",
        "gre.checksum.status",
        "ip.src",
        "ip.dst",
        "ip.len",
        "ip.dsfield",
        "ip.checksum.status",
        "udp.checksum.status",
        "udp.length",
        "_ws.malformed",
        "frame.protocols",
    ];
    let endpoint = |last: u8, port| Endpoint::new(Ipv4Addr::new(192, 0, 2, last), port);
    let mut frames = Vec::new();
    let mut expected = Vec::new();
    for flags in 0..8u32 {
        let (key, sequence, checksum) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        let (mut entry, _) = tunnel(|config| {
            config.key = key.then_some(0xcafe_0001);
            (config.sequence, config.checksum) = (sequence, checksum);
            (config.hop_limit, config.flow_label) = (33, 0xabcde);
            config.dscp = if key { DscpModel::Pipe(10) } else { DscpModel::Uniform };
        });
        for (number, payload_len) in [0, 1, 100, 1_400].into_iter().enumerate() {
            let payload = vec![0x5a; payload_len];
            let packet = udp(endpoint(1, 40_000), endpoint(2, 40_001), 0xba, &payload);
            frames.push(through(&mut entry, &packet));
            let gre_len =
                4 + 4 * (usize::from(key) + usize::from(sequence) + usize::from(checksum));
            let optional = |present: bool, text: String| if present { text } else { String::new() };
            let class = if key { 10 << 2 | 2 } else { 0xba };
            expected.push(vec![
                HERE.to_string(),
                THERE.to_string(),
                "0x86dd".to_owned(),
                "2001:db8::1".to_owned(),
                "2001:db8::2".to_owned(),
                (gre_len + packet.len()).to_string(),
                "47".to_owned(),
                "33".to_owned(),
                format!("0x{class:08x}"),
                "0x0abcde".to_owned(),
                "0x0800".to_owned(),
                optional(key, "0xcafe0001".to_owned()),
                optional(sequence, number.to_string()),
                optional(checksum, "1".to_owned()),
                "192.0.2.1".to_owned(),
                "192.0.2.2".to_owned(),
                packet.len().to_string(),
                "0xba".to_owned(),
                "1".to_owned(),
                "1".to_owned(),
                (8 + payload_len).to_string(),
                String::new(),
                "eth:ethertype:ipv6:gre:ip:udp".to_owned()
                    + if payload_len > 0 { ":data" } else { "" },
            ]);
        }
    }
    // And that it would say so: a copy with one byte of the inner packet changed, in a tunnel with a checksum.
    let mut damaged = frames.last().expect("some").clone();
    *damaged.last_mut().expect("bytes") ^= 1;
    frames.push(damaged);
    let mut read = fields("tunnel.pcap", &frames, &FIELDS);
    let damaged = read.pop().expect("the last");
    assert_eq!(read, expected);
    assert_eq!((&damaged[13][..], &damaged[19][..]), ("0", "0"), "both checksums are bad");
}

#[test]
#[cfg_attr(miri, ignore = "starts a program")]
fn tshark_finds_steered_checksums_right() {
    if !available("tshark", &["--version"]) {
        return;
    }
    const FIELDS: [&str; 5] =
        ["ip.src", "ip.dst", "ip.checksum.status", "tcp.checksum.status", "udp.checksum.status"];
    let virtual_addr = Ipv4Addr::new(10, 0, 0, 100);
    let mut steering =
        Steering::new(SteeringConfig::new(virtual_addr, [7; 16])).expect("a configuration");
    let backend = Ipv4Addr::new(172, 31, 255, 254);
    steering.add_backend(backend).expect("room");
    steering.set_now(Instant::from_millis(1));
    let mut frames = Vec::new();
    let mut expected = Vec::new();
    for port in 1..=200u16 {
        let client = Endpoint::new(Ipv4Addr::new(203, 0, 113, port as u8), 50_000 + port);
        let server = Endpoint::new(virtual_addr, 40_000);
        let payload = vec![port as u8; usize::from(port)];
        let is_tcp = port % 2 == 0;
        let packet =
            if is_tcp { tcp(client, server, &payload) } else { udp(client, server, 0, &payload) };
        let reply = serve(&mut steering, &packet).expect("steered");
        frames.push(frame(EtherType::IPV4, &reply));
        let (tcp_status, udp_status) = if is_tcp { ("1", "") } else { ("", "1") };
        let line = [&client.addr.to_string(), &backend.to_string(), "1", tcp_status, udp_status];
        expected.push(line.map(str::to_owned).to_vec());
    }
    assert_eq!(fields("steering.pcap", &frames, &FIELDS), expected);
}
