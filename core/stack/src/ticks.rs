//! Durations of the configuration, in the units that timers and round-trip times count.

use crate::config::{Keepalive, StackConfig};
use crate::wheel::ticks;

/// log2 of the unit of round-trip times in nanoseconds: 1,024 ns, sixteen to a tick of the wheel. They are
/// reckoned for every acknowledgment, so nothing is multiplied or divided.
pub(crate) const UNIT_SHIFT: u32 = 10;

/// The user time-out of a closed connection where there is none.
const CLOSED_TIMEOUT: core::time::Duration = core::time::Duration::from_secs(100);

/// Durations of the configuration, in ticks of the timing wheel.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ticks {
    pub delayed_ack: u16,
    pub time_wait: u32,
    pub fin_wait: u32,
    /// In the units of round-trip times, as it is compared before it is doubled.
    pub rto_min: u32,
    pub rto_max: u32,
    /// The largest span where there is none.
    pub user_timeout: u32,
    pub user_timeout_least: u32,
    /// The user time-out of a connection that the application closed: there always is one.
    pub closed_timeout: u32,
    /// Silence before the first keepalive probe, and time between two; and how many are sent.
    pub keepalive: Option<(u32, u32, u32)>,
    /// How much later than a retransmission timer its wheel may ask: a quarter of the shortest.
    pub rto_slack: u32,
}

impl Ticks {
    pub fn new(config: &StackConfig) -> Self {
        let span = |duration| ticks(duration).min(1 << 28) as u32;
        let half_second = ticks(core::time::Duration::from_millis(500));
        Self {
            delayed_ack: ticks(config.delayed_ack).min(half_second) as u16,
            time_wait: span(config.time_wait),
            fin_wait: span(config.fin_wait),
            rto_min: (config.rto_min.as_nanos() >> UNIT_SHIFT).min(1 << 28) as u32,
            rto_max: span(config.rto_max),
            user_timeout: config.user_timeout.map_or(1 << 28, span),
            closed_timeout: span(config.user_timeout.unwrap_or(CLOSED_TIMEOUT)),
            user_timeout_least: span(config.user_timeout_least),
            keepalive: config.keepalive.map(|Keepalive { idle, interval, probes }| {
                let span = |duration| ticks(duration).min(1 << 30) as u32;
                (span(idle), span(interval), probes.into())
            }),
            rto_slack: span(config.rto_min) / 4,
        }
    }
}
