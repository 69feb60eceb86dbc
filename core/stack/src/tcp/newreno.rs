//! Congestion control: slow start and congestion avoidance (RFC 5681), fast recovery (RFC 6582),
//! limited transmit (RFC 3042).

use super::conn::{Cold, Conn, Flags};

/// Duplicate acknowledgments that mean a loss.
pub(crate) const DUP_ACK_THRESHOLD: u8 = 3;
/// Keeps sums of windows inside the sequence space.
const MAX_CWND: u32 = 1 << 29;

/// What a change of state asks the sender to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Action {
    None,
    /// Send the first unacknowledged segment again.
    RetransmitFirst,
}

/// The initial window (RFC 6928): ten segments.
pub(crate) fn initial_window(mss: u16) -> u32 {
    10 * mss as u32
}

/// Half of what is in flight, at least two segments (RFC 5681 §3.1, equation 4).
fn half_flight(conn: &Conn) -> u32 {
    (conn.flight() / 2).max(2 * conn.mss as u32)
}

/// `acked` new bytes were acknowledged, of `flight_before` that were in flight; `snd_una` has moved.
pub(crate) fn on_ack(conn: &mut Conn, cold: &Cold, acked: u32, flight_before: u32) -> Action {
    let mss = conn.mss as u32;
    conn.dup_acks = 0;
    if conn.flags.has(Flags::RECOVERY) {
        if conn.snd_una.after_eq(cold.recover) {
            // Full acknowledgment (RFC 6582 §3.2 step 3): the careful variant of (1).
            conn.cwnd = conn.ssthresh.min(conn.flight().max(mss) + mss);
            conn.flags.clear(Flags::RECOVERY);
            return Action::None;
        }
        // Partial acknowledgment: the next hole; deflate by what was acknowledged.
        conn.cwnd = conn.cwnd.saturating_sub(acked).max(mss);
        if acked >= mss {
            conn.cwnd += mss;
        }
        return Action::RetransmitFirst;
    }
    if conn.flags.has(Flags::TIMEOUT_RECOVERY) && conn.snd_una.after_eq(cold.recover) {
        conn.flags.clear(Flags::TIMEOUT_RECOVERY);
    }
    grow(conn, acked, flight_before);
    Action::None
}

/// Slow start or congestion avoidance, outside of any recovery (RFC 5681 §3.1).
#[inline]
pub(crate) fn grow(conn: &mut Conn, acked: u32, flight_before: u32) {
    // A window that is not used tells nothing about the path (RFC 2861's concern).
    if conn.cwnd < flight_before.saturating_mul(2) {
        let mss = conn.mss as u32;
        if conn.cwnd < conn.ssthresh {
            conn.cwnd += acked.min(mss);
        } else {
            conn.cwnd += ((mss as u64 * acked.min(mss) as u64) / conn.cwnd as u64).max(1) as u32;
        }
        conn.cwnd = conn.cwnd.min(MAX_CWND);
    }
}

/// A duplicate acknowledgment came (RFC 5681 §2) while data is in flight.
pub(crate) fn on_duplicate_ack(conn: &mut Conn, cold: &mut Cold) -> Action {
    let mss = conn.mss as u32;
    if conn.flags.has(Flags::TIMEOUT_RECOVERY) {
        return Action::None;
    }
    if conn.flags.has(Flags::RECOVERY) {
        // Another segment has left the network (RFC 5681 §3.2 step 4).
        conn.cwnd = conn.cwnd.saturating_add(mss).min(MAX_CWND);
        return Action::None;
    }
    conn.dup_acks = conn.dup_acks.saturating_add(1);
    if conn.dup_acks != DUP_ACK_THRESHOLD {
        return Action::None;
    }
    conn.ssthresh = half_flight(conn);
    conn.cwnd = conn.ssthresh + DUP_ACK_THRESHOLD as u32 * mss;
    cold.recover = conn.snd_nxt;
    conn.flags.set(Flags::RECOVERY);
    Action::RetransmitFirst
}

/// The retransmission timer fired (RFC 5681 §3.1: loss window of one segment).
pub(crate) fn on_timeout(conn: &mut Conn, cold: &mut Cold) {
    // Only the first time-out of a row tells what the path holds (RFC 5681 §3.1, last paragraph), and that of a SYN
    // nothing.
    if cold.retries == 0 && conn.state.is_synchronized() {
        conn.ssthresh = half_flight(conn);
    }
    conn.cwnd = conn.mss as u32;
    conn.dup_acks = 0;
    resend_all(conn, cold);
}

/// Takes all that is in flight as lost: it is sent again from its beginning, as far as the windows allow.
pub(crate) fn resend_all(conn: &mut Conn, cold: &mut Cold) {
    conn.flags.clear(Flags::RECOVERY.and(Flags::TAKEN_BACK));
    conn.flags.set(Flags::TIMEOUT_RECOVERY);
    cold.recover = conn.snd_nxt;
    cold.resend = conn.snd_una;
}

/// Bytes that may be in flight: the smaller window, and one segment more for each of the first two
/// duplicate acknowledgments (RFC 3042).
#[inline]
pub(crate) fn send_window(conn: &Conn) -> u32 {
    let mut cwnd = conn.cwnd;
    if conn.dup_acks > 0 && conn.dup_acks < DUP_ACK_THRESHOLD {
        cwnd = cwnd.saturating_add(conn.dup_acks as u32 * conn.mss as u32);
    }
    cwnd.min(conn.snd_wnd)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tcp::conn::State;
    use wire::SeqNumber;

    fn conn(flight: u32) -> (Conn, Cold) {
        let conn = Conn {
            mss: 1000,
            cwnd: 10_000,
            snd_wnd: 1 << 20,
            snd_nxt: SeqNumber(flight),
            state: State::Established,
            ..Conn::new(0, wire::FlowKey::default())
        };
        (conn, Cold::default())
    }

    #[test]
    fn slow_start_then_avoidance() {
        let (mut conn, cold) = conn(10_000);
        conn.snd_una = SeqNumber(1000);
        on_ack(&mut conn, &cold, 1000, 10_000);
        assert_eq!(conn.cwnd, 11_000);
        conn.ssthresh = 11_000;
        on_ack(&mut conn, &cold, 1000, 10_000);
        assert_eq!(conn.cwnd, 11_000 + 1_000_000 / 11_000);
    }

    #[test]
    fn an_unused_window_does_not_grow() {
        let (mut conn, cold) = conn(100);
        on_ack(&mut conn, &cold, 100, 100);
        assert_eq!(conn.cwnd, 10_000);
    }

    #[test]
    fn three_duplicates_enter_and_the_recovery_point_leaves() {
        let (mut conn, mut cold) = conn(10_000);
        assert_eq!(on_duplicate_ack(&mut conn, &mut cold), Action::None);
        assert_eq!(send_window(&conn), 11_000);
        assert_eq!(on_duplicate_ack(&mut conn, &mut cold), Action::None);
        assert_eq!(on_duplicate_ack(&mut conn, &mut cold), Action::RetransmitFirst);
        assert_eq!((conn.ssthresh, conn.cwnd), (5000, 8000));
        assert_eq!(on_duplicate_ack(&mut conn, &mut cold), Action::None);
        assert_eq!(conn.cwnd, 9000);
        conn.snd_una = SeqNumber(3000);
        assert_eq!(on_ack(&mut conn, &cold, 3000, 10_000), Action::RetransmitFirst);
        assert_eq!(conn.cwnd, 7000);
        conn.snd_una = SeqNumber(10_000);
        assert_eq!(on_ack(&mut conn, &cold, 7000, 7000), Action::None);
        assert!(!conn.flags.has(Flags::RECOVERY));
        assert_eq!(conn.cwnd, 2000);
    }

    #[test]
    fn a_time_out_starts_over_with_one_segment() {
        let (mut conn, mut cold) = conn(10_000);
        on_timeout(&mut conn, &mut cold);
        assert_eq!((conn.cwnd, conn.ssthresh), (1000, 5000));
        cold.retries = 1;
        conn.snd_nxt = SeqNumber(1000);
        on_timeout(&mut conn, &mut cold);
        assert_eq!(conn.ssthresh, 5000, "kept on the second time-out in a row");
    }
}
