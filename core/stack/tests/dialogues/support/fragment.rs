//! Cuts packets into fragments, as routers (IPv4) and hosts do.

use std::ops::Range;

use wire::ip::emit_fragment;

use super::{ETHERTYPE, IP_LEN, STACK_MAC, ethernet_frame};

const LINK_LEN: usize = 14;
const DESTINATION_OPTIONS: u8 = 60;

/// The fragment of the packet in `whole` that has these bytes of its payload, which may end after the packet (with zeros).
pub fn fragment(whole: &[u8], ident: u32, range: Range<usize>, more: bool) -> Vec<u8> {
    assert!(range.start.is_multiple_of(8), "offsets count blocks");
    let mut packet = whole[LINK_LEN..].to_vec();
    packet.resize(packet.len().max(IP_LEN + range.end), 0);
    let mut out = vec![0; IP_LEN + 8 + range.len()];
    let len = emit_fragment(&packet, ident, range, more, &mut out);
    ethernet_frame(STACK_MAC, ETHERTYPE, &out[..len])
}

/// The fragments of the packet in `whole`, `size` bytes of payload each but the last.
pub fn fragments(whole: &[u8], ident: u32, size: usize) -> Vec<Vec<u8>> {
    let len = whole.len() - LINK_LEN - IP_LEN;
    let cut = |at: usize| fragment(whole, ident, at..len.min(at + size), at + size < len);
    (0..len).step_by(size).map(cut).collect()
}

/// The same packet, of IPv6, with a Destination Options header of `units` times eight bytes before its payload.
pub fn with_options(whole: &[u8], units: u8) -> Vec<u8> {
    let (header, payload) = whole[LINK_LEN..].split_at(IP_LEN);
    let mut header = header.to_vec();
    let next = core::mem::replace(&mut header[6], DESTINATION_OPTIONS);
    // All of it is padding.
    let mut options = vec![0; usize::from(units) * 8];
    options[..2].copy_from_slice(&[next, units - 1]);
    let payload_len = (options.len() + payload.len()) as u16;
    header[4..6].copy_from_slice(&payload_len.to_be_bytes());
    ethernet_frame(STACK_MAC, ETHERTYPE, &[&header, &options[..], payload].concat())
}
