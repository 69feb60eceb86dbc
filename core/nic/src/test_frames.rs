//! TCP segments for tests, in frames of any number of chunks.

use alloc::vec::Vec;
use core::num::NonZero;

use mem::{CHUNK_HEADER, Mbuf, PartialChecksum, Pool, TxFrame};
use wire::{
    EtherType, EthernetRepr, Ipv4Addr, Ipv4Repr, Ipv4View, MacAddr, Protocol, SeqNumber, Sum,
    TcpFlags, TcpOptions, TcpRepr, TcpView,
};

const SRC: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const DST: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);
/// Bytes of the headers.
const HEADERS: usize = 54;
const TCP_AT: usize = 34;

/// The frame of a segment with so many bytes of payload.
pub(crate) fn segment(payload_len: usize) -> Vec<u8> {
    let payload: Vec<u8> = (0..payload_len).map(|at| (at % 251) as u8).collect();
    let tcp = TcpRepr {
        src_port: 1,
        dst_port: 2,
        seq: SeqNumber(7),
        ack: SeqNumber(6),
        flags: TcpFlags::ACK,
        window: 9,
        options: TcpOptions::default(),
    };
    let mut frame = vec![0; HEADERS];
    let mac = MacAddr::default();
    EthernetRepr { dst: mac, src: mac, ethertype: EtherType::IPV4 }.emit(&mut frame);
    Ipv4Repr::new(SRC, DST, Protocol::TCP, 20 + payload.len()).emit(&mut frame[14..]);
    tcp.emit(&mut frame[TCP_AT..], SRC, DST, payload.len(), Sum::of(&payload));
    frame.extend(payload);
    frame
}

/// A frame in chunks of up to `most` bytes.
pub(crate) fn chunks(frame: &[u8], most: usize, pool: &mut Pool) -> Vec<TxFrame> {
    let parts = frame.chunks(most);
    let last = parts.len() - 1;
    let chunk = |(index, part): (usize, &[u8])| {
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.reset(CHUNK_HEADER).and_then(|()| mbuf.append(part)).expect("room");
        mbuf.into_tx().with_continued(index < last)
    };
    parts.enumerate().map(chunk).collect()
}

/// The same with a checksum that the device is to complete.
pub(crate) fn partial_chunks(frame: &[u8], most: usize, pool: &mut Pool) -> Vec<TxFrame> {
    let mut frame = frame.to_vec();
    let len = frame.len() - TCP_AT;
    let partial = !wire::pseudo_header_sum(SRC, DST, Protocol::TCP, len).finish();
    frame[TCP_AT + TcpRepr::CHECKSUM_AT..][..2].copy_from_slice(&partial.to_be_bytes());
    let offset = NonZero::new(TcpRepr::CHECKSUM_AT as u16).expect("not zero");
    let partial = PartialChecksum { start: TCP_AT as u16, offset };
    let mut chunks = chunks(&frame, most, pool);
    let first = chunks.remove(0).with_partial_checksum(Some(partial));
    chunks.insert(0, first);
    chunks
}

/// The payload bytes of a segment that has come, whose checksums are right.
pub(crate) fn payload_len(mbuf: &Mbuf) -> usize {
    payload(mbuf).len()
}

/// The payload of such a segment, and where it is in that of [`segment`].
pub(crate) fn payload(mbuf: &Mbuf) -> &[u8] {
    let ip = Ipv4View::parse(&mbuf.bytes()[14..]).expect("a packet");
    let tcp = TcpView::parse(ip.payload()).expect("a segment");
    assert!(ip.verify_checksum() && tcp.verify_checksum(SRC, DST));
    let at = (tcp.seq() - SeqNumber(7)) as usize;
    assert!(
        tcp.payload().iter().enumerate().all(|(index, &byte)| byte == ((at + index) % 251) as u8)
    );
    &mbuf.bytes()[mbuf.len() - tcp.payload().len()..]
}
