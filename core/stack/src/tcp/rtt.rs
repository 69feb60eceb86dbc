//! Round-trip time and the retransmission time-out (RFC 6298).

use super::conn::Conn;
use crate::ticks::{Ticks, UNIT_SHIFT};
use crate::wheel::TICK_SHIFT;

const UNITS_PER_TICK_SHIFT: u32 = TICK_SHIFT - UNIT_SHIFT;
/// Until a sample is had: one second (RFC 6298 §2.1).
const INITIAL_RTO: u32 = (1_000_000_000 >> UNIT_SHIFT) + 1;
/// Clock granularity G: the wheel's tick, and one for rounding.
const GRANULARITY: u32 = (1 << UNITS_PER_TICK_SHIFT) + 1;
/// The longest round-trip time that is believed: 137 s.
const MAX_RTT: u64 = 1 << 27;

/// Takes a sample of the round-trip time (RFC 6298 §2.2 and §2.3; alpha 1/8, beta 1/4). A new
/// sample ends the back-off.
#[inline]
pub(crate) fn sample(conn: &mut Conn, rtt_ns: u64) {
    let rtt = (rtt_ns >> UNIT_SHIFT).min(MAX_RTT) as u32;
    let rtt = rtt.max(1);
    if conn.srtt_8 == 0 {
        conn.srtt_8 = rtt * 8;
        conn.rttvar_4 = rtt * 2;
    } else {
        let error = (conn.srtt_8 / 8).abs_diff(rtt);
        conn.rttvar_4 = conn.rttvar_4 - conn.rttvar_4 / 4 + error;
        conn.srtt_8 = conn.srtt_8 - conn.srtt_8 / 8 + rtt;
    }
    conn.backoff = 0;
}

/// The time-out in ticks, back-off included (RFC 6298 §2.3 to §2.5, §5.5).
#[inline(always)]
pub(crate) fn rto_ticks(conn: &Conn, bounds: &Ticks) -> u32 {
    let base = if conn.srtt_8 == 0 {
        INITIAL_RTO
    } else {
        // At most 2^27 and 2^29.
        conn.srtt_8 / 8 + conn.rttvar_4.max(GRANULARITY)
    };
    let ticks = (base.max(bounds.rto_min) >> UNITS_PER_TICK_SHIFT) + 1;
    if conn.backoff == 0 {
        return ticks.min(bounds.rto_max);
    }
    // At most 2^26 ticks and 20 doublings.
    ((ticks as u64) << conn.backoff.min(20)).min(bounds.rto_max as u64) as u32
}

#[cfg(test)]
mod tests {
    use core::time::Duration;

    use super::*;
    use crate::config::StackConfig;
    use wire::{Ipv4Addr, MacAddr};

    fn config() -> StackConfig {
        let mut config = StackConfig::new(Ipv4Addr::LOCALHOST, 8, MacAddr([2; 6]));
        config.rto_min = Duration::from_micros(1);
        config
    }

    fn rto(conn: &Conn) -> Duration {
        Duration::from_nanos((rto_ticks(conn, &Ticks::new(&config())) as u64) << TICK_SHIFT)
    }

    fn near(found: Duration, expected: Duration) -> bool {
        found >= expected && found < expected + Duration::from_nanos(2 << TICK_SHIFT)
    }

    #[test]
    fn follows_the_rfc_step_by_step() {
        let mut conn = Conn::new(0, wire::FlowKey::default());
        assert!(near(rto(&conn), Duration::from_secs(1)));
        // First sample R: SRTT = R, RTTVAR = R/2, RTO = R + 4 RTTVAR = 3 R.
        sample(&mut conn, 100_000_000);
        assert!(near(rto(&conn), Duration::from_millis(300)), "{:?}", rto(&conn));
        // RTTVAR = 3/4 50 + 1/4 |100 - 200| = 62.5, SRTT = 7/8 100 + 1/8 200 = 112.5.
        sample(&mut conn, 200_000_000);
        assert!(near(rto(&conn), Duration::from_micros(362_500)), "{:?}", rto(&conn));
    }

    #[test]
    fn backs_off_to_the_bound_and_recovers() {
        let mut conn = Conn { backoff: 3, ..Conn::new(0, wire::FlowKey::default()) };
        // What was rounded up is doubled too.
        let rounding = rto(&conn).saturating_sub(Duration::from_secs(8));
        assert!(!rounding.is_zero() && rounding < Duration::from_nanos(8 << TICK_SHIFT));
        conn.backoff = 200;
        assert!(near(rto(&conn), config().rto_max));
        sample(&mut conn, 1_000_000);
        assert!(rto(&conn) < Duration::from_millis(4));
    }
}
