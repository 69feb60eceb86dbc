//! Round-trip time and the retransmission time-out (RFC 6298).

use super::conn::Conn;
use crate::shared::Ticks;
use crate::wheel::TICK_SHIFT;

/// Until a sample is had (RFC 6298 §2.1).
const INITIAL_RTO_US: u64 = 1_000_000;
/// Clock granularity G in us: the wheel's tick.
const GRANULARITY_US: u32 = (1 << TICK_SHIFT) / 1000 + 1;

/// Takes a sample of the round-trip time (RFC 6298 §2.2 and §2.3; alpha 1/8, beta 1/4). A new
/// sample ends the back-off. In whole microseconds: this runs for every acknowledgment, and so does
/// the time-out below, hence no `Duration`, which would divide.
#[inline]
pub(crate) fn sample(conn: &mut Conn, rtt_us: u64) {
    let rtt_us = rtt_us.clamp(1, 1 << 27) as u32;
    if conn.srtt_8us == 0 {
        conn.srtt_8us = rtt_us * 8;
        conn.rttvar_4us = rtt_us * 2;
    } else {
        let error = (conn.srtt_8us / 8).abs_diff(rtt_us);
        conn.rttvar_4us = conn.rttvar_4us - conn.rttvar_4us / 4 + error;
        conn.srtt_8us = conn.srtt_8us - conn.srtt_8us / 8 + rtt_us;
    }
    conn.backoff = 0;
}

/// The time-out in ticks, back-off included (RFC 6298 §2.3 to §2.5, §5.5).
#[inline(always)]
pub(crate) fn rto_ticks(conn: &Conn, bounds: &Ticks) -> u32 {
    let base_us = if conn.srtt_8us == 0 {
        INITIAL_RTO_US
    } else {
        conn.srtt_8us as u64 / 8 + conn.rttvar_4us.max(GRANULARITY_US) as u64
    };
    // At most 2^29 us and 20 doublings: 2^59 ns.
    let backed_off_ns = (base_us.max(bounds.rto_min_us) * 1000) << conn.backoff.min(20);
    backed_off_ns.div_ceil(1 << TICK_SHIFT).min(bounds.rto_max as u64) as u32
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
        let mut conn = Conn::default();
        assert!(near(rto(&conn), Duration::from_micros(INITIAL_RTO_US)));
        // First sample R: SRTT = R, RTTVAR = R/2, RTO = R + 4 RTTVAR = 3 R.
        sample(&mut conn, 100_000);
        assert!(near(rto(&conn), Duration::from_millis(300)), "{:?}", rto(&conn));
        // RTTVAR = 3/4 50 + 1/4 |100 - 200| = 62.5, SRTT = 7/8 100 + 1/8 200 = 112.5.
        sample(&mut conn, 200_000);
        assert!(near(rto(&conn), Duration::from_micros(362_500)), "{:?}", rto(&conn));
    }

    #[test]
    fn backs_off_to_the_bound_and_recovers() {
        let mut conn = Conn { backoff: 3, ..Conn::default() };
        assert!(near(rto(&conn), Duration::from_secs(8)));
        conn.backoff = 200;
        assert!(near(rto(&conn), config().rto_max));
        sample(&mut conn, 1_000);
        assert!(rto(&conn) < Duration::from_millis(4));
    }
}
