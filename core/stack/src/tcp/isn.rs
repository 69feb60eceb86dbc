//! Initial sequence numbers (RFC 6528).

use core::hash::Hasher;

use clock::Instant;
use siphasher::sip::SipHasher24;
use wire::{Endpoint, SeqNumber};

/// The secret key of F() in RFC 6528 §3.
pub(crate) struct IsnSecret {
    key: [u8; 16],
}

impl IsnSecret {
    pub fn new(key: [u8; 16]) -> Self {
        Self { key }
    }

    /// The key itself, for what is made of other words than [`generate`](Self::generate) hashes.
    pub fn key(&self) -> &[u8; 16] {
        &self.key
    }

    /// ISN = M + F(localip, localport, remoteip, remoteport, secretkey); M ticks every 4 us.
    pub fn generate(&self, now: Instant, local: Endpoint, remote: Endpoint) -> SeqNumber {
        let hash = keyed_hash(&self.key, local, remote);
        let clock = (now.as_micros() / 4) as u32;
        SeqNumber(clock.wrapping_add(hash as u32))
    }
}

/// A hash of a connection's ends that a stranger cannot compute.
pub(crate) fn keyed_hash(key: &[u8; 16], local: Endpoint, remote: Endpoint) -> u64 {
    let mut hasher = SipHasher24::new_with_key(key);
    for end in [local, remote] {
        hasher.write(&end.addr.octets());
        hasher.write_u16(end.port);
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Ipv4Addr;

    #[test]
    fn grows_with_time_and_differs_by_connection_and_key() {
        let local = Endpoint::new(Ipv4Addr::new(10, 0, 0, 1), 80);
        let remote = |port| Endpoint::new(Ipv4Addr::new(10, 0, 0, 2), port);
        let secret = IsnSecret::new([1; 16]);
        let at = |micros, port| secret.generate(Instant::from_micros(micros), local, remote(port));
        assert_eq!(at(4_000, 5) - at(0, 5), 1_000);
        assert_ne!(at(0, 5), at(0, 6));
        let other = IsnSecret::new([2; 16]);
        assert_ne!(at(0, 5), other.generate(Instant::ZERO, local, remote(5)));
    }
}
