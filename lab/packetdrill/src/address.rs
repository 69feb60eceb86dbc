//! Socket addresses as Linux lays them out: `sockaddr_in` and `sockaddr_in6`.

use sockets::socket_type;
use wire::{Endpoint, Ipv4Addr, Ipv6Addr};

const AF_INET: u16 = socket_type::AF_INET as u16;
const AF_INET6: u16 = socket_type::AF_INET6 as u16;

/// An address and a port from their bytes; `None`: too few, or of another family.
pub fn read(bytes: &[u8]) -> Option<Endpoint> {
    let family = u16::from_ne_bytes(*bytes.first_chunk()?);
    let port = u16::from_be_bytes(*bytes.get(2..)?.first_chunk()?);
    match family {
        AF_INET => {
            let address: [u8; 4] = *bytes.get(4..)?.first_chunk()?;
            Some(Endpoint::new(Ipv4Addr::from(address), port))
        }
        AF_INET6 => {
            let address: [u8; 16] = *bytes.get(8..)?.first_chunk()?;
            Some(Endpoint::new(Ipv6Addr::from(address), port))
        }
        _ => None,
    }
}

/// The bytes of an address and a port.
pub fn write(endpoint: Endpoint) -> Vec<u8> {
    let port = endpoint.port.to_be_bytes();
    match endpoint.addr.v4() {
        Some(v4) => [&AF_INET.to_ne_bytes()[..], &port, &v4.octets(), &[0; 8]].concat(),
        None => {
            let octets = endpoint.addr.octets();
            [&AF_INET6.to_ne_bytes()[..], &port, &[0; 4], &octets, &[0; 4]].concat()
        }
    }
}
