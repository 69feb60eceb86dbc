//! Local addresses: the unspecified ones, and which packets an address that a socket is bound to is about.

use wire::{Address, Ipv4Addr, Ipv6Addr};

/// The address of a socket that is bound to none.
pub(crate) fn unspecified(is_v4: bool) -> Address {
    if is_v4 { Ipv4Addr::UNSPECIFIED.into() } else { Ipv6Addr::UNSPECIFIED.into() }
}

pub(crate) fn is_unspecified(address: Address) -> bool {
    address == unspecified(address.is_ipv4())
}

/// Whether there are packets for both of two local addresses. An unspecified one is about all of its version.
pub(crate) fn overlap(one: Address, other: Address) -> bool {
    let is_wide = is_unspecified(one) || is_unspecified(other);
    one == other || is_wide && one.is_ipv4() == other.is_ipv4()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unspecified_address_overlaps_all_of_its_version() {
        let [v4, v6] = [true, false].map(unspecified);
        let [one, other, six]: [Address; 3] =
            ["10.0.0.1", "10.0.0.2", "2001:db8::1"].map(|text| text.parse().expect("an address"));
        let pairs = [(one, one), (v4, one), (one, v4), (v4, v4), (six, v6)];
        assert!(pairs.iter().all(|(one, other)| overlap(*one, *other)));
        let pairs = [(one, other), (v4, six), (v6, one), (v4, v6), (v6, v4)];
        assert!(!pairs.iter().any(|(one, other)| overlap(*one, *other)));
    }
}
