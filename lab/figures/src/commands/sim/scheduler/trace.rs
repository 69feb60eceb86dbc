//! A user's own service times, from a file: one in microseconds a line.
//!
//! The format is that of `tailplane load --workload spin:trace:FILE`, so that what was simulated can be
//! measured.

use std::path::Path;

use anyhow::{Context, bail};
use load::SERVICE_US_MAX;
use queueing::{Trace, read_times};

/// Reads a file of service times: the law, and its mean in microseconds.
///
/// # Errors
/// A file that cannot be read; what [`parse`] says.
pub fn read(path: &Path) -> anyhow::Result<(Trace, f64)> {
    let text = std::fs::read_to_string(path)
        .with_context(|| format!("cannot read the trace '{}'", path.display()))?;
    parse(&text).with_context(|| format!("in the trace '{}'", path.display()))
}

/// The law of the text of such a file, and its mean in microseconds.
///
/// # Errors
/// What [`read_times`] says; only zeros.
pub fn parse(text: &str) -> anyhow::Result<(Trace, f64)> {
    let times = read_times(text, SERVICE_US_MAX)?;
    if times.iter().all(|us| *us == 0.0) {
        bail!("all service times are zero, and so is their mean; give some that take time");
    }
    Ok(Trace::of(&times)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_and_comments_are_left_out() {
        let (trace, mean_us) = parse("# us\n1\n 2.5\n\n8.5\r\n0\n").expect("reads");
        assert_eq!((trace.count(), mean_us), (4, 3.0));
        assert!((trace.quantile(1.0) * mean_us - 8.5).abs() < 1e-12);
    }

    #[test]
    fn what_is_no_time_is_named_with_its_line() {
        let long = format!("1\n{}", "x".repeat(10_000));
        for (text, part) in [
            (
                "1\n2\n\nten\n",
                "a service time is 'ten' in line 4; allowed: 0 to 1000000, in microseconds",
            ),
            ("-1\n", "'-1' in line 1"),
            ("1\nNaN\n", "'NaN' in line 2"),
            ("inf\n", "'inf' in line 1"),
            ("1000001\n", "'1000001' in line 1"),
            ("3 4\n", "'3 4' in line 1"),
            ("# none\n\n", "number of service times, one a line, is 0; allowed: 1 to 16777216"),
            ("0\n0\n", "all service times are zero"),
            (&long, "a service time is 'xxxx"),
        ] {
            let error = parse(text).expect_err(part).to_string();
            assert!(error.contains(part) && error.len() < 200, "{error}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let error = read(Path::new("no such file")).expect_err("none").to_string();
        assert_eq!(error, "cannot read the trace 'no such file'");
    }
}
