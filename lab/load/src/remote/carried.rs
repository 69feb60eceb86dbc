//! A measurement on its way from an agent to the coordinator: counts as they are, histograms in
//! HdrHistogram's V2 serialization, as hexadecimal digits.
//!
//! What arrives is checked before it is used: histograms must have our bounds, counts must leave room
//! for the sum over all agents, and the window must be the one that was asked for.

use std::collections::BTreeMap;

use hdrhistogram::serialization::{Deserializer, Serializer, V2Serializer};
use hdrhistogram::{Counter, Histogram};
use serde::{Deserialize, Serialize};

use crate::codec::Violation;
use crate::config::{LoadConfig, Mode};
use crate::gap_check::{GapSample, Gaps};
use crate::latency::latency_histogram;
use crate::measurement::{Counts, Measurement};
use crate::probe::ProbeMeasured;
use crate::series::{Interval, Series};

/// Greatest count that is taken from an agent: the sum over all agents has room in 64 bits.
const COUNT_MAX: u64 = 1 << 48;
/// Bytes of the V2 header: cookie, length of the payload, and from [`BOUNDS_FROM`] on the bounds.
const HEADER_BYTES: usize = 40;
const BOUNDS_FROM: usize = 8;
/// Longest number in the payload, in bytes.
const VARINT_BYTES_MAX: usize = 9;

/// Why something that was carried cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("its result cannot be used: {0}")]
pub(super) struct Unusable(String);

/// A histogram in transit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
struct Carrier(String);

impl Carrier {
    fn of<C: Counter>(histogram: &Histogram<C>) -> Self {
        Self(to_hex(&serialized(histogram)))
    }

    /// The counts, in a histogram with the bounds of `like`.
    fn unpack<C: Counter>(
        &self,
        like: &Histogram<C>,
        name: &str,
    ) -> Result<Histogram<C>, Unusable> {
        let bytes =
            from_hex(&self.0).ok_or_else(|| Unusable(format!("`{name}` is no hexadecimal")))?;
        // The library allocates what the header says: compare it with our own first.
        let ours = serialized(&Histogram::<C>::new_from(like));
        let payload = bytes.len().saturating_sub(HEADER_BYTES);
        let header = bytes.get(..HEADER_BYTES).unwrap_or_default();
        let fits = header.get(BOUNDS_FROM..) == ours.get(BOUNDS_FROM..HEADER_BYTES)
            && header.get(..4) == ours.get(..4)
            && header.get(4..8) == Some(&(payload as u32).to_be_bytes()[..]);
        if !fits {
            return Err(Unusable(format!("`{name}` is no histogram with our bounds")));
        }
        // A run of 2^63 zeros is more than the library can negate; no count that is allowed has nine
        // such bytes in a row either.
        if bytes.windows(VARINT_BYTES_MAX).any(|window| window.iter().all(|byte| *byte == 0xFF)) {
            return Err(Unusable(format!("`{name}` has counts beyond {COUNT_MAX}")));
        }
        let histogram: Histogram<C> = Deserializer::new()
            .deserialize(&mut &bytes[..])
            .map_err(|error| Unusable(format!("`{name}`: {error:?}")))?;
        checked(name, histogram.len()).map(|_| histogram)
    }
}

fn serialized<C: Counter>(histogram: &Histogram<C>) -> Vec<u8> {
    let mut bytes = Vec::new();
    // Memory takes everything, and our bounds are those of the format.
    let written = V2Serializer::new().serialize(histogram, &mut bytes);
    debug_assert!(written.is_ok(), "{written:?}");
    bytes
}

/// `bytes` in hexadecimal digits.
pub(super) fn to_hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(b"0123456789abcdef"[usize::from(value & 15)]);
    bytes.iter().flat_map(|byte| [digit(byte >> 4), digit(*byte)]).collect()
}

/// The bytes of `text`; `None` where it is not pairs of hexadecimal digits.
pub(super) fn from_hex(text: &str) -> Option<Vec<u8>> {
    let digit = |byte: u8| char::from(byte).to_digit(16);
    let (pairs, []) = text.as_bytes().as_chunks::<2>() else { return None };
    pairs.iter().map(|[high, low]| Some((digit(*high)? << 4 | digit(*low)?) as u8)).collect()
}

fn checked(name: &str, count: u64) -> Result<u64, Unusable> {
    if count > COUNT_MAX {
        return Err(Unusable(format!("`{name}` is {count}; allowed: 0 to {COUNT_MAX}")));
    }
    Ok(count)
}

/// `counts`, each of which leaves room for the sum over all agents.
fn checked_counts(counts: Counts) -> Result<Counts, Unusable> {
    let by_name = serde_json::to_value(counts).and_then(serde_json::from_value);
    let by_name: BTreeMap<String, u64> = by_name.map_err(|error| Unusable(error.to_string()))?;
    for (name, count) in by_name {
        checked(&name, count)?;
    }
    Ok(counts)
}

/// A [`Measurement`] in transit.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Carried {
    window_ns: u64,
    latency_ns: Carrier,
    lag_ns: Carrier,
    counts: Counts,
    violation: Option<Violation>,
    ended_early: bool,
    gaps: Option<Gaps>,
    series: Option<Vec<Interval<Carrier>>>,
    probe: Option<ProbeMeasured<Carrier>>,
}

impl Carried {
    /// `measured`, packed.
    pub fn of(measured: &Measurement) -> Self {
        let series = measured.series.as_ref().map(|series| {
            let interval = |interval: &Interval| Interval {
                requests: interval.requests,
                completed: interval.completed,
                latency_ns: Carrier::of(&interval.latency_ns),
            };
            series.intervals.iter().map(interval).collect()
        });
        let probe = measured.probe.as_ref().map(|probe| ProbeMeasured {
            requests: probe.requests,
            failed: probe.failed,
            latency_ns: Carrier::of(&probe.latency_ns),
        });
        Self {
            window_ns: measured.window_ns,
            latency_ns: Carrier::of(&measured.latency_ns),
            lag_ns: Carrier::of(&measured.lag_ns),
            counts: measured.counts,
            violation: measured.violation,
            ended_early: measured.ended_early,
            gaps: measured.gaps.as_ref().map(|sample| sample.gaps.clone()),
            series,
            probe,
        }
    }

    /// The measurement of a share of `config`.
    pub fn unpack(&self, config: &LoadConfig) -> Result<Measurement, Unusable> {
        let mut measured = Measurement::new(config.measure_ms * 1_000_000);
        // A run whose connections all ended early may have counted less, never another window.
        if self.window_ns != measured.window_ns {
            let (found, wanted) = (self.window_ns, measured.window_ns);
            return Err(Unusable(format!("its window is {found} ns long instead of {wanted}")));
        }
        let like = latency_histogram();
        measured.latency_ns = self.latency_ns.unpack(&like, "latency_ns")?;
        measured.lag_ns = self.lag_ns.unpack(&like, "lag_ns")?;
        measured.counts = checked_counts(self.counts)?;
        measured.violation = self.violation;
        measured.ended_early = self.ended_early;
        if let (Some(gaps), Mode::Open { arrivals, .. }) = (&self.gaps, config.mode) {
            if !(gaps.mean_gap_ns.is_finite() && gaps.mean_gap_ns > 0.0) {
                return Err(Unusable(format!("its mean gap is {} ns", gaps.mean_gap_ns)));
            }
            checked("gaps", gaps.seen)?;
            measured.gaps = Some(GapSample::of(arrivals, gaps.clone()));
        }
        if let Some(intervals) = self.series.as_ref().filter(|_| config.has_series()) {
            measured.series = Some(unpack_series(intervals, config)?);
        }
        if let Some(probe) = &self.probe {
            measured.probe = Some(ProbeMeasured {
                latency_ns: probe.latency_ns.unpack(&like, "probe")?,
                requests: checked("probe requests", probe.requests)?,
                failed: checked("probe failed", probe.failed)?,
            });
        }
        Ok(measured)
    }
}

fn unpack_series(intervals: &[Interval<Carrier>], config: &LoadConfig) -> Result<Series, Unusable> {
    let mut series = Series::new(config.measure_ms);
    if series.intervals.len() != intervals.len() {
        let (found, wanted) = (intervals.len(), series.intervals.len());
        return Err(Unusable(format!("it has {found} intervals instead of {wanted}")));
    }
    for (place, carried) in series.intervals.iter_mut().zip(intervals) {
        place.requests = checked("interval requests", carried.requests)?;
        place.completed = checked("interval completed", carried.completed)?;
        place.latency_ns = carried.latency_ns.unpack(&place.latency_ns, "interval latency_ns")?;
    }
    Ok(series)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::codec::Outcome;
    use crate::latency::LATENCY_MAX_NS;

    fn config() -> LoadConfig {
        let mut config = LoadConfig::echo(64);
        config.mode = Mode::open(1_000.0);
        config.series = true;
        config
    }

    fn measured() -> Measurement {
        let mut m = Measurement::new(1_000_000_000);
        for latency_us in 1..=1_000u64 {
            m.counts.requests += 1;
            m.lag_ns.saturating_record(latency_us);
            m.on_response(Outcome::Complete, true, Some(latency_us * 1_000), true);
        }
        m.on_hopeless();
        m.violation = Some(Violation::Unasked);
        let mut series = Series::new(1_000);
        series.on_request(5);
        series.on_latency(5, 70_000);
        m.series = Some(series);
        let mut latency_ns = latency_histogram();
        latency_ns.saturating_record(9_000);
        m.probe = Some(ProbeMeasured { latency_ns, requests: 3, failed: 1 });
        let gaps = Gaps { mean_gap_ns: 1e6, seen: 70, kept: vec![(0.5, 0.25); 60] };
        m.gaps = Some(GapSample::of(crate::ArrivalProcess::Poisson, gaps));
        m
    }

    #[test]
    fn what_arrives_is_what_was_sent() {
        let sent = measured();
        let text = serde_json::to_string(&Carried::of(&sent)).expect("JSON");
        let carried: Carried = serde_json::from_str(&text).expect("JSON");
        let arrived = carried.unpack(&config()).expect("usable");
        assert_eq!(arrived.latency_ns, sent.latency_ns);
        assert!(arrived.latency_ns.max() >= LATENCY_MAX_NS);
        assert_eq!(arrived.lag_ns, sent.lag_ns);
        assert_eq!((arrived.counts.requests, arrived.counts.verified), (1_000, 1_000));
        assert_eq!(arrived.violation, Some(Violation::Unasked));
        let (here, there) = (arrived.series.expect("there"), sent.series.expect("there"));
        assert_eq!(here.intervals[0].latency_ns, there.intervals[0].latency_ns);
        assert_eq!(arrived.probe.expect("there").requests, 3);
        assert_eq!(arrived.gaps.expect("there").gaps.seen, 70);
    }

    #[test]
    fn what_does_not_fit_is_refused_with_its_reason() {
        let good = Carried::of(&measured());
        let other = Histogram::<u64>::new_with_bounds(1, u64::MAX, 5).expect("bounds");
        type Spoil = fn(&mut Carried, &Histogram<u64>);
        let cases: [(&str, Spoil); 6] = [
            ("`latency_ns` is no hexadecimal", |c, _| c.latency_ns = Carrier("xy".into())),
            ("`lag_ns` is no histogram with our bounds", |c, other| c.lag_ns = Carrier::of(other)),
            ("`lag_ns` is no histogram with our bounds", |c, _| c.lag_ns.0.truncate(60)),
            ("its window is 5 ns long", |c, _| c.window_ns = 5),
            ("`requests` is 18446744073709551615", |c, _| c.counts.requests = u64::MAX),
            ("it has 0 intervals instead of 10", |c, _| c.series = Some(Vec::new())),
        ];
        for (expected, spoil) in cases {
            let mut carried = good.clone();
            spoil(&mut carried, &other);
            let error = carried.unpack(&config()).expect_err(expected).to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn hexadecimal_goes_both_ways() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(from_hex(&to_hex(&bytes)), Some(bytes));
        assert_eq!((from_hex("0"), from_hex("0g"), from_hex("äa")), (None, None, None));
    }

    #[test]
    fn histograms_that_would_overflow_are_refused() {
        let like = latency_histogram();
        let with_payload = |payload: &[u8]| {
            let mut bytes = serialized(&like)[..HEADER_BYTES].to_vec();
            bytes[4..8].copy_from_slice(&(payload.len() as u32).to_be_bytes());
            bytes.extend_from_slice(payload);
            Carrier(to_hex(&bytes)).unpack(&like, "h")
        };
        assert_eq!(with_payload(&[2, 4]).expect("counts of 1 and 2").len(), 3);
        // The most zeros, a count of 2^62, more buckets than there are.
        for payload in [
            &[0xFF; 9][..],
            &[0xFF; 30],
            &[0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80],
            &[0xFD, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0xFF, 0x7F, 2],
            &[0xFF, 0xFF, 0xFF, 0xFF, 0x0F, 2],
        ] {
            assert!(with_payload(payload).is_err(), "{payload:?}");
        }
    }

    proptest! {
        #[test]
        fn any_payload_is_a_histogram_or_an_error(
            payload in prop::collection::vec(prop_oneof![any::<u8>(), Just(0xFF), Just(0x80)], 0..64),
        ) {
            let like = latency_histogram();
            let mut bytes = serialized(&like)[..HEADER_BYTES].to_vec();
            bytes[4..8].copy_from_slice(&(payload.len() as u32).to_be_bytes());
            bytes.extend_from_slice(&payload);
            if let Ok(histogram) = Carrier(to_hex(&bytes)).unpack(&like, "h") {
                let mut sum = latency_histogram();
                sum += &histogram;
                sum += &histogram;
                prop_assert!(sum.value_at_quantile(0.99) <= sum.max());
                prop_assert!(histogram.len() <= COUNT_MAX);
            }
        }
    }
}
