//! What the wire carried: tcpdump at the client's end, read back with our own parsers.

use std::fs::File;
use std::process::Command;

use pcap_file::pcap::PcapReader;
use rustix::process::Signal;
use service::lab::constants::{CLIENT_INTERFACE, DATAPLANE_ADDRESS};
use wire::{EtherType, EthernetView, Ipv4View, Protocol, TcpFlags, TcpView};

use super::process::Running;
use super::{Testbed, wait_until};

/// A capture that runs.
#[derive(Debug)]
pub struct Capture {
    tcpdump: Running,
}

/// What the dataplane sent, of what was captured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sent {
    pub tcp_segments: u64,
    pub payload_bytes: u64,
    pub resets: u64,
    pub bad_ip_checksums: u64,
    pub bad_tcp_checksums: u64,
    /// Frames that our parsers do not take for what they say they are.
    pub malformed: u64,
    /// Resets of the client's kernel: it saw something that belongs to no connection.
    pub resets_by_client: u64,
}

impl Capture {
    /// Starts one; `None`, which is printed, where there is no tcpdump.
    pub fn start(bed: &Testbed) -> Option<Self> {
        let mut command = Command::new("tcpdump");
        // To standard output, which is a file that this process has opened: tcpdump gives up root
        // and could not make one. 64 MiB of buffer, since all share two processors.
        command.args(["-i", CLIENT_INTERFACE, "-n", "-U", "-s", "0", "-B", "65536", "-w", "-"]);
        let mut tcpdump = bed.start(command)?;
        wait_until("tcpdump captures", || {
            tcpdump.assert_runs();
            tcpdump.stderr().contains("listening on")
        });
        Some(Self { tcpdump })
    }

    /// Ends it and reads what was captured.
    pub fn finish(self) -> Sent {
        let path = self.tcpdump.stdout_path().clone();
        self.tcpdump.interrupt(Signal::INT).assert_success();
        let file = File::open(path).expect("the capture");
        let mut packets = PcapReader::new(std::io::BufReader::new(file)).expect("a pcap file");
        let mut sent = Sent::default();
        while let Some(packet) = packets.next_packet() {
            let packet = packet.expect("a whole packet");
            assert_eq!(packet.data.len(), packet.orig_len as usize, "tcpdump cut a packet");
            sent.count(&packet.data);
        }
        sent
    }
}

impl Sent {
    fn count(&mut self, frame: &[u8]) {
        let Ok(ethernet) = EthernetView::parse(frame) else {
            self.malformed += 1;
            return;
        };
        if ethernet.ethertype() != EtherType::IPV4 {
            return;
        }
        let Ok(ip) = Ipv4View::parse(ethernet.payload()) else {
            self.malformed += 1;
            return;
        };
        if ip.protocol() != Protocol::TCP {
            return;
        }
        let Ok(tcp) = TcpView::parse(ip.payload()) else {
            self.malformed += 1;
            return;
        };
        let is_reset = u64::from(tcp.flags().contains(TcpFlags::RST));
        if ip.src() != DATAPLANE_ADDRESS {
            self.resets_by_client += is_reset;
            return;
        }
        self.tcp_segments += 1;
        self.payload_bytes += tcp.payload().len() as u64;
        self.resets += is_reset;
        self.bad_ip_checksums += u64::from(!ip.verify_checksum());
        self.bad_tcp_checksums += u64::from(!tcp.verify_checksum(ip.src(), ip.dst()));
    }
}
