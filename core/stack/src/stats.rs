//! What the stack has seen and done, per elastic thread: plain counters, read by the control plane.

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// Counters of one stack. All of them only grow.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct StackStats { $($(#[$doc])* pub $name: u64,)* }

        impl StackStats {
            /// The names of all counters, in their order.
            pub const NAMES: &[&str] = &[$(stringify!($name),)*];

            /// Every counter with its name, for metrics.
            pub fn entries(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl core::ops::AddAssign for StackStats {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Frames that were no packet for us, or of a protocol that we do not speak.
    not_for_us,
    /// Frames dropped because a header or a length was wrong, or the sender asked for a route of its own.
    malformed,
    /// Packets dropped for a wrong checksum.
    bad_checksum,
    /// IP fragments received.
    fragments_in,
    /// Datagrams reassembled from fragments.
    reassembled,
    /// Datagrams dropped because their fragments overlapped or contradicted each other.
    reassembly_refused,
    /// Datagrams dropped because their fragments need more than one chunk of packet memory.
    reassembly_too_large,
    /// Datagrams dropped because a fragment was missing for too long.
    reassembly_timeouts,
    /// Incomplete datagrams given up for others, and fragments dropped, for want of a slot or of packet memory.
    reassembly_no_room,
    /// Packets of flow groups that another core owns, handed on.
    forwarded,
    /// TCP segments received.
    tcp_segments_in,
    /// TCP segments sent.
    tcp_segments_out,
    /// TCP segments among them that were longer than a chunk of packet memory, each a frame of several.
    tcp_long_segments_out,
    /// TCP payload bytes received in order.
    tcp_bytes_in,
    /// TCP payload bytes sent for the first time.
    tcp_bytes_out,
    /// Segments sent again.
    tcp_retransmissions,
    /// Retransmission time-outs.
    tcp_timeouts,
    /// Connections reset because their peers left data unacknowledged for too long: see `StackConfig::user_timeout`.
    tcp_stalled,
    /// Fast retransmissions begun.
    tcp_fast_retransmits,
    /// Segments received out of order and kept.
    tcp_out_of_order,
    /// Segments dropped for want of room to keep them.
    tcp_dropped_segments,
    /// Segments outside the window, or with an old timestamp (PAWS).
    tcp_unacceptable,
    /// Challenge ACKs sent (RFC 5961).
    tcp_challenge_acks,
    /// Segments without data that were not accepted, and not answered as another one had been just before.
    tcp_answers_limited,
    /// Time-outs that were spurious: the segments had arrived (RFC 3522, RFC 5682).
    tcp_spurious_timeouts,
    /// Fast recoveries that were spurious: the segments were late (RFC 3522, RFC 3708).
    tcp_spurious_recoveries,
    /// Times that a router's message, or time-outs in a row, lowered the size of a connection's segments (RFC 1191).
    tcp_path_mtu_lowered,
    /// Segments that tried a larger size (RFC 4821).
    tcp_path_mtu_probes,
    /// Tail loss probes sent (RFC 8985).
    tcp_tail_probes,
    /// Segments with data that were marked on the way (CE, RFC 3168).
    tcp_marks_in,
    /// Congestion windows that shrank since segments of ours were marked.
    tcp_marked_windows,
    /// Connections that the application closed and that were reset, as received bytes were left or came later, or as
    /// there were too many of them.
    tcp_closed_reset,
    /// Resets sent.
    tcp_resets_out,
    /// Resets received and obeyed.
    tcp_resets_in,
    /// Acknowledgments sent without data.
    tcp_pure_acks_out,
    /// Connections opened by peers.
    tcp_accepted,
    /// Connections opened by us.
    tcp_connected,
    /// SYNs dropped because connections that wait to be accepted fill the backlog, the connection table is full, or no
    /// route leads back.
    tcp_syn_dropped,
    /// SYNs answered with a cookie, as half-open connections filled the backlog.
    tcp_cookies_out,
    /// Handshakes whose last step found the backlog or the connection table full.
    tcp_backlog_full,
    /// TIME-WAIT connections that ended early.
    tcp_time_wait_recycled,
    /// Payload buffers copied once more on the way out (peer with a small MSS or window, or a
    /// retransmission while the device still reads the first one).
    tx_payload_copies,
    /// Datagrams received for a bound port.
    udp_in,
    /// Datagrams sent.
    udp_out,
    /// SYNs and datagrams of peers that the access policy denied.
    policy_denied_in,
    /// Connections and datagrams of the application that the access policy denied.
    policy_denied_out,
    /// Connections and datagrams of the application from a local address that the dataplane does not have, or of another
    /// version than the peer's.
    bad_local_addresses,
    /// ICMP echo requests answered.
    icmp_echoes,
    /// ICMP errors received.
    icmp_errors_in,
    /// ICMP errors sent.
    icmp_errors_out,
    /// ARP requests and neighbour solicitations sent.
    neighbor_requests_out,
    /// ARP replies and neighbour advertisements sent.
    neighbor_replies_out,
    /// Packets dropped because the next hop's link address is not known yet.
    unresolved_drops,
    /// Resets, ICMP errors and ICMP echoes that were not sent, and messages about segments that were too big that were not
    /// looked at, as there had been too many in one second.
    answers_limited,
    /// Packets not sent for want of packet memory or room towards the NIC, and echoes larger than the MTU.
    tx_dropped,
}
