//! `struct tcp_info` as Linux lays it out, as far as the stack keeps what is in it: the rest is zero.

use domain::ConnectionInfo;

/// Its bytes, up to the total of retransmissions.
pub fn bytes(info: &ConnectionInfo) -> Vec<u8> {
    let byte = |value: u64| value.min(255) as u8;
    let microseconds = |ns: u64| ns / 1_000;
    let segments = |bytes: u64| bytes / info.snd_mss_bytes.max(1);
    // `tcpi_ca_state`: 3 recovery, 4 loss.
    let state = [0, 3, 4][info.recovery.min(2) as usize];
    let mut bytes = vec![
        byte(info.state),
        state,
        byte(info.retries),
        0,
        byte(info.backoff),
        byte(info.options),
        byte(info.snd_wscale | info.rcv_wscale << 4),
        0,
    ];
    let threshold = match info.ssthresh_bytes {
        most if most >= u64::from(u32::MAX) => 0x7fff_ffff,
        bytes => segments(bytes),
    };
    let words = [
        microseconds(info.rto_ns),
        0,
        info.snd_mss_bytes,
        info.rcv_mss_bytes,
        info.in_flight_segments,
        info.sacked_segments,
        segments(info.lost_bytes),
        0,
        0,
        0,
        0,
        info.silence_ns / 1_000_000,
        info.silence_ns / 1_000_000,
        info.path_mtu_bytes,
        info.rcv_wnd_bytes,
        microseconds(info.srtt_ns),
        microseconds(info.rttvar_ns),
        threshold,
        segments(info.cwnd_bytes),
        info.snd_mss_bytes,
        0,
        0,
        info.rcv_wnd_bytes,
        0,
    ];
    for word in words {
        bytes.extend((word.min(u32::MAX.into()) as u32).to_ne_bytes());
    }
    bytes
}
