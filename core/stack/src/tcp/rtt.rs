//! Round-trip time and the retransmission time-out (RFC 6298).

use super::conn::{Conn, Flags};
use super::fields::Segment;
use crate::context::{Context, STAMP_SHIFT};
use crate::ticks::{Ticks, UNIT_SHIFT};
use crate::wheel::TICK_SHIFT;

const UNITS_PER_TICK_SHIFT: u32 = TICK_SHIFT - UNIT_SHIFT;
/// Until a sample is had: one second (RFC 6298 §2.1).
const INITIAL_RTO: u32 = (1_000_000_000 >> UNIT_SHIFT) + 1;
/// Clock granularity G: the wheel's tick, and one for rounding.
const GRANULARITY: u32 = (1 << UNITS_PER_TICK_SHIFT) + 1;
/// The longest round-trip time that is believed: 137 s.
const MAX_RTT: u64 = 1 << 27;

/// Takes a sample of the round-trip time (RFC 6298 §2.2 and §2.3; alpha 1/8, beta 1/4), in nanoseconds. A new
/// sample ends the back-off.
// Inside of both versions of the short way.
#[inline(always)]
pub(crate) fn sample(conn: &mut Conn, rtt_ns: u64, bounds: &Ticks) {
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
    // At most 2^27 and 2^29.
    let rto = conn.srtt_8 / 8 + conn.rttvar_4.max(GRANULARITY);
    conn.rto = bounded(rto, bounds);
}

/// A time-out in ticks.
#[inline(always)]
fn bounded(units: u32, bounds: &Ticks) -> u32 {
    ((units.max(bounds.rto_min) >> UNITS_PER_TICK_SHIFT) + 1).min(bounds.rto_max)
}

/// The time-out before the first sample, in ticks.
pub(crate) fn initial_rto(bounds: &Ticks) -> u32 {
    bounded(INITIAL_RTO, bounds)
}

/// An acknowledgment came of what was sent more than once, the last time at `sent_at_ns`: Karn's algorithm allows no
/// sample. Where the echoed timestamp says which transmission it answers there is one (RFC 7323 §4.1). Else, and
/// without timestamps, the back-off stays until something is acknowledged that was sent once (RFC 6298 §5.7).
#[inline(never)]
pub(crate) fn sample_by_timestamp(
    conn: &mut Conn,
    segment: &Segment,
    sent_at_ns: u64,
    ctx: &Context<'_>,
) {
    let Some(stamp) = segment.timestamp.filter(|_| conn.flags.has(Flags::TIMESTAMPS)) else {
        return;
    };
    let since_last_ns = ctx.now.as_nanos().saturating_sub(sent_at_ns);
    let age = ctx.timestamp().wrapping_sub(stamp.echo);
    if u64::from(age) <= (since_last_ns >> STAMP_SHIFT) + 1 {
        return sample(conn, since_last_ns, &ctx.shared.ticks);
    }
    // An earlier transmission: its acknowledgment took long, or was lost, and the last transmission brought it once
    // more, with the old timestamp (RFC 7323 §5.3, R2 before R3). That would be no round trip, and each loss would make the
    // time-out a multiple of what it was. Where the last transmission may be what was answered, there is no sample, and a
    // back-off of one doubling stays, in case that it was not.
    let usual = (conn.srtt_8 / 8 + conn.rttvar_4).max(ctx.shared.ticks.rto_min);
    let age_ns = u64::from(age) << STAMP_SHIFT;
    match since_last_ns >> UNIT_SHIFT > u64::from(usual) && age_ns >> UNIT_SHIFT <= MAX_RTT {
        true => sample(conn, age_ns, &ctx.shared.ticks),
        false => conn.backoff = conn.backoff.min(1),
    }
}

/// The time-out in ticks, back-off included (RFC 6298 §5.5).
#[inline(always)]
pub(crate) fn rto_ticks(conn: &Conn, bounds: &Ticks) -> u32 {
    if conn.backoff == 0 {
        return conn.rto;
    }
    // At most 2^26 ticks and 20 doublings.
    ((conn.rto as u64) << conn.backoff.min(20)).min(bounds.rto_max as u64) as u32
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

    fn conn(backoff: u8) -> Conn {
        let rto = initial_rto(&Ticks::new(&config()));
        Conn { rto, backoff, ..Conn::new(0, wire::FlowKey::default()) }
    }

    fn take(conn: &mut Conn, rtt_ns: u64) {
        sample(conn, rtt_ns, &Ticks::new(&config()));
    }

    fn near(found: Duration, expected: Duration) -> bool {
        found >= expected && found < expected + Duration::from_nanos(2 << TICK_SHIFT)
    }

    #[test]
    fn follows_the_rfc_step_by_step() {
        let mut conn = conn(0);
        assert!(near(rto(&conn), Duration::from_secs(1)));
        // First sample R: SRTT = R, RTTVAR = R/2, RTO = R + 4 RTTVAR = 3 R.
        take(&mut conn, 100_000_000);
        assert!(near(rto(&conn), Duration::from_millis(300)), "{:?}", rto(&conn));
        // RTTVAR = 3/4 50 + 1/4 |100 - 200| = 62.5, SRTT = 7/8 100 + 1/8 200 = 112.5.
        take(&mut conn, 200_000_000);
        assert!(near(rto(&conn), Duration::from_micros(362_500)), "{:?}", rto(&conn));
    }

    #[test]
    fn backs_off_to_the_bound_and_recovers() {
        let mut conn = conn(3);
        // What was rounded up is doubled too.
        let rounding = rto(&conn).saturating_sub(Duration::from_secs(8));
        assert!(!rounding.is_zero() && rounding < Duration::from_nanos(8 << TICK_SHIFT));
        conn.backoff = 200;
        assert!(near(rto(&conn), config().rto_max));
        take(&mut conn, 1_000_000);
        assert!(rto(&conn) < Duration::from_millis(4));
    }
}
