//! UDP, and what a client is told of ports where nobody listens.

use std::io;
use std::net::{SocketAddr, UdpSocket};

use crate::harness::stream::connect;
use crate::harness::{ECHO, PATIENCE, Testbed, at};

/// A port that no test's service has.
const UNBOUND: SocketAddr = at(9);
/// The largest datagram of one frame: 1,500 bytes less the headers of IPv4 and UDP.
const LARGEST: usize = 1472;

fn socket(bed: &Testbed, to: SocketAddr) -> UdpSocket {
    bed.at_client(|| {
        let socket = UdpSocket::bind("10.77.0.1:0")?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.connect(to)?;
        Ok::<_, io::Error>(socket)
    })
    .expect("a UDP socket")
}

/// Receives; signals that nobody handles interrupt a socket with a timeout.
pub fn receive(socket: &UdpSocket, bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match socket.recv(bytes) {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            result => return result,
        }
    }
}

#[test]
fn datagrams_of_every_size_come_back() {
    let Some(mut bed) = Testbed::with("udp", "echo") else { return };
    let socket = socket(&bed, ECHO);
    let mut back = [0; LARGEST + 1];
    for length in (1..=LARGEST).step_by(61).chain([LARGEST]) {
        let sent: Vec<u8> = (0..length).map(|at| (at * 7 + length) as u8).collect();
        socket.send(&sent).expect("sent");
        let count = receive(&socket, &mut back).expect("an answer");
        assert!(back[..count] == sent, "{length} bytes sent, {count} other ones back");
    }
    bed.stop();
}

#[test]
fn a_port_without_a_service_is_refused_over_udp_and_tcp() {
    let Some(mut bed) = Testbed::with("refused", "echo") else { return };
    let socket = socket(&bed, UNBOUND);
    socket.send(b"anybody?").expect("sent");
    let error = receive(&socket, &mut [0; 16]).expect_err("nobody is there");
    assert_eq!(error.kind(), io::ErrorKind::ConnectionRefused, "{error}");

    let refused = bed.at_client(|| connect(UNBOUND)).expect_err("nobody listens");
    assert_eq!(refused.kind(), io::ErrorKind::ConnectionRefused, "{refused}");
    let summary = bed.stop();
    assert_eq!((summary.accepted, summary.left), (vec![0], 0));
}
