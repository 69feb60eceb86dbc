//! The latencies of a run as an HdrHistogram interval log (V2, compressed), for the tools that
//! read such logs: HistogramLogProcessor, HdrHistogram plotters.
//!
//! Lines without a tag are the intervals of the window, at two digits, each with the latencies of
//! the requests meant to be sent in it. The line with the tag `window` is the whole window, and the
//! one with the tag `probe` the latency agent's, at three digits. All values are nanoseconds; the
//! column of maxima is in milliseconds.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::time::{Duration, SystemTime};

use hdrhistogram::serialization::V2DeflateSerializer;
use hdrhistogram::serialization::interval_log::{
    IntervalLogWriterBuilder, IntervalLogWriterError, Tag,
};

use crate::measurement::Measurement;

/// Writes what `measured` counted into the file `path`; `began` is when the window began.
///
/// # Errors
/// What the file system refused.
pub(crate) fn write_file(
    path: &str,
    description: &str,
    began: SystemTime,
    measured: &Measurement,
) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    write(&mut file, description, began, measured)?;
    file.flush()
}

fn write(
    out: &mut impl Write,
    description: &str,
    began: SystemTime,
    measured: &Measurement,
) -> io::Result<()> {
    let mut serializer = V2DeflateSerializer::new();
    let mut log = IntervalLogWriterBuilder::new()
        .add_comment(description)
        .add_comment("latencies in nanoseconds; without a tag: intervals; window: all of them")
        .with_start_time(began)
        .begin_log_with(out, &mut serializer)?;
    if let Some(series) = &measured.series {
        let length = Duration::from_nanos(series.interval_ns);
        for (index, interval) in (0u32..).zip(&series.intervals) {
            let written = log.write_histogram(&interval.latency_ns, length * index, length, None);
            written.map_err(into_io)?;
        }
    }
    let window = Duration::from_nanos(measured.window_ns);
    log.write_histogram(&measured.latency_ns, Duration::ZERO, window, Tag::new("window"))
        .map_err(into_io)?;
    if let Some(probe) = &measured.probe {
        log.write_histogram(&probe.latency_ns, Duration::ZERO, window, Tag::new("probe"))
            .map_err(into_io)?;
    }
    Ok(())
}

fn into_io<E: std::fmt::Debug>(error: IntervalLogWriterError<E>) -> io::Error {
    match error {
        IntervalLogWriterError::IoError(error) => error,
        IntervalLogWriterError::SerializeError(error) => io::Error::other(format!("{error:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hdrhistogram::Histogram;
    use hdrhistogram::serialization::Deserializer;
    use hdrhistogram::serialization::interval_log::{IntervalLogIterator, LogEntry};

    use crate::latency::latency_histogram;
    use crate::probe::ProbeMeasured;
    use crate::series::Series;

    #[test]
    fn what_is_written_can_be_read_by_the_librarys_reader() {
        let mut measured = Measurement::new(300_000_000);
        let mut series = Series::new(300);
        for request in 0..3_000u64 {
            let latency_ns = 10_000 + request;
            measured.latency_ns.saturating_record(latency_ns);
            series.on_latency(request * 100_000, latency_ns);
        }
        measured.series = Some(series);
        let mut probe = latency_histogram();
        probe.saturating_record(77_000);
        measured.probe = Some(ProbeMeasured { latency_ns: probe, requests: 1, failed: 0 });
        let began = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let mut text = Vec::new();
        write(&mut text, "echo of 64 B", began, &measured).expect("memory takes it");

        let mut found = Vec::new();
        for entry in IntervalLogIterator::new(&text) {
            match entry.expect("parses") {
                LogEntry::Interval(interval) => {
                    let bytes = base64(interval.encoded_histogram());
                    let histogram: Histogram<u64> =
                        Deserializer::new().deserialize(&mut &bytes[..]).expect("is a histogram");
                    let tag = interval.tag().map(|tag| tag.as_str().to_owned());
                    let start_ms = interval.start_timestamp().as_millis();
                    found.push((tag, start_ms, histogram.len(), histogram.max()));
                }
                LogEntry::StartTime(time) => assert_eq!(time.as_secs(), 1_800_000_000),
                LogEntry::BaseTime(_) => panic!("none was written"),
            }
        }
        assert_eq!(found.len(), 5);
        for (index, (tag, start_ms, count, _)) in found[..3].iter().enumerate() {
            assert_eq!((tag, *start_ms, *count), (&None, 100 * index as u128, 1_000));
        }
        assert_eq!((found[3].0.as_deref(), found[3].2), (Some("window"), 3_000));
        assert!(found[3].3.abs_diff(12_999) < 13, "{}", found[3].3);
        assert_eq!((found[4].0.as_deref(), found[4].2), (Some("probe"), 1));
        assert!(String::from_utf8_lossy(&text).contains("#echo of 64 B"));
    }

    /// Decodes base64: the library's reader leaves that to its caller.
    fn base64(text: &str) -> Vec<u8> {
        let digit = |byte: u8| match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            _ => 63,
        };
        let mut out = Vec::new();
        for group in text.trim_end_matches('=').as_bytes().chunks(4) {
            let bits = group.iter().fold(0u32, |bits, byte| bits << 6 | u32::from(digit(*byte)));
            let bits = bits << (6 * (4 - group.len()));
            out.extend_from_slice(&bits.to_be_bytes()[1..group.len()]);
        }
        out
    }

    #[test]
    fn a_file_that_cannot_be_written_is_an_error() {
        let measured = Measurement::new(1);
        let path = "no such directory/x.hlog";
        assert!(write_file(path, "x", SystemTime::UNIX_EPOCH, &measured).is_err());
    }
}
