//! What is known of a connection: the answer to [`Calls::inform`](crate::Calls::inform), as Linux's `TCP_INFO`.

macro_rules! fields {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a stack knows of a connection at one moment. What Linux's `TCP_INFO` has beside this is not kept here:
        /// totals of retransmissions, segments and bytes, the degree of reordering, times in which the sender was limited.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct ConnectionInfo { $($(#[$doc])* pub $name: u64,)* }

        impl ConnectionInfo {
            /// Bytes of one.
            pub const BYTES: usize = [$(stringify!($name)),*].len() * 8;

            /// As bytes: each field as eight, little-endian, in order.
            pub fn to_bytes(&self) -> [u8; Self::BYTES] {
                let mut bytes = [0; Self::BYTES];
                let fields = [$(self.$name),*];
                for (room, field) in bytes.chunks_exact_mut(8).zip(fields) {
                    room.copy_from_slice(&field.to_le_bytes());
                }
                bytes
            }

            /// What [`to_bytes`](Self::to_bytes) made; `None` where there are too few bytes.
            pub fn of_bytes(bytes: &[u8]) -> Option<Self> {
                let mut words = bytes.chunks_exact(8).map(|word| {
                    let mut bytes = [0; 8];
                    bytes.copy_from_slice(word);
                    u64::from_le_bytes(bytes)
                });
                Some(Self { $($name: words.next()?,)* })
            }
        }
    };
}

fields! {
    /// State of RFC 9293 §3.3.2, in Linux's numbers: 1 ESTABLISHED, 2 SYN-SENT, 3 SYN-RECEIVED, 4 FIN-WAIT-1,
    /// 5 FIN-WAIT-2, 6 TIME-WAIT, 7 CLOSED, 8 CLOSE-WAIT, 9 LAST-ACK, 11 CLOSING.
    state,
    /// What both ends agreed on, in Linux's bits: 1 timestamps, 2 selective acknowledgments, 4 window scale, 8 ECN.
    options,
    /// Shift of the windows that the peer announces.
    snd_wscale,
    /// Shift of the windows that this end announces.
    rcv_wscale,
    /// Smoothed round-trip time in nanoseconds (RFC 6298); 0: none was measured.
    srtt_ns,
    /// Its variation in nanoseconds.
    rttvar_ns,
    /// The retransmission time-out in nanoseconds, without back-off.
    rto_ns,
    /// Doublings of it.
    backoff,
    /// Time-outs in a row that have brought no progress.
    retries,
    /// Payload bytes of a full segment that is sent.
    snd_mss_bytes,
    /// Payload bytes of the largest segment received, in whole 64; 536 before one came.
    rcv_mss_bytes,
    /// Largest IP packet that is sent on the path, in bytes.
    path_mtu_bytes,
    /// Congestion window in bytes (RFC 5681).
    cwnd_bytes,
    /// Slow start threshold in bytes; `u32::MAX` before there was a loss.
    ssthresh_bytes,
    /// Bytes sent and not acknowledged, SYN and FIN among them.
    in_flight_bytes,
    /// Segments sent and not acknowledged.
    in_flight_segments,
    /// Bytes of them that the peer has, behind others that it lacks (RFC 2018).
    sacked_bytes,
    /// Segments of those.
    sacked_segments,
    /// Bytes that are lost and not sent again (RFC 8985).
    lost_bytes,
    /// 1 during recovery from a loss, 2 after a time-out, 0 otherwise.
    recovery,
    /// 1 where the path has been seen to reorder segments (RFC 8985 §6.2).
    reorders,
    /// Bytes that the application gave and that were not sent for the first time, FIN among them.
    unsent_bytes,
    /// The peer's window in bytes.
    snd_wnd_bytes,
    /// Bytes that the peer may send now: the window that was announced.
    rcv_wnd_bytes,
    /// Bytes that the application was handed and has not given back.
    held_bytes,
    /// Nanoseconds since the peer last sent an acceptable segment.
    silence_ns,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_the_fields_in_order() {
        let mut info = ConnectionInfo { state: 1, options: 2, ..Default::default() };
        info.silence_ns = u64::MAX - 5;
        let bytes = info.to_bytes();
        assert_eq!((bytes[0], bytes[8], bytes[ConnectionInfo::BYTES - 8]), (1, 2, 250));
        assert_eq!(ConnectionInfo::of_bytes(&bytes), Some(info));
        assert_eq!(ConnectionInfo::of_bytes(&bytes[1..]), None);
    }
}
