//! IX Figure 4: NetPIPE, one message at a time.

use load::{LoadReport, Mode, Wait};
use measure::Kept;
use reproduce::{Axis, Figure, Mark, MarkOf, Measured, Recorder, Takes};

use super::Testbed;
use super::testbed::{self, Client, Server, carry, echo_load, start};

const BLOCKING: &str = "ix.fig4.one_way_latency_64B_vs_linux_blocking";
const SPINNING: &str = "ix.fig4.one_way_latency_64B_vs_linux_spinning";
const HALF: &str = "ix.fig4.half_bandwidth_message_size_vs_linux";

/// See the module's comment.
pub const FIG4: Figure<Testbed> = Figure {
    id: "ix/fig4",
    title: "One-way latency and goodput by message size",
    section: "IX (TOCS'16) §5.2, Figure 4",
    what: "NetPIPE: one connection on which a message of each size goes there and back; half of the \
           round trip is the one-way latency, and the size over it the goodput. Tailplane on both \
           ends, tailplane under a spinning client on kernel sockets, and Linux on both ends, \
           spinning (the honest peer) and blocking (as in the paper). No segmentation offload.",
    claims: &[BLOCKING, SPINNING, HALF],
    takes: Takes { quick_s: 60, full_s: 240 },
    run,
};

/// Server, client, name.
const SYSTEMS: [(Server, Client, &str); 4] = [
    (Server::Tailplane, Client::Dataplane, "tailplane on both ends"),
    (Server::Tailplane, Client::Kernel(Wait::Spin), "tailplane, Linux client spinning"),
    (Server::LinuxSpinning, Client::Kernel(Wait::Spin), "Linux on both ends, spinning"),
    (Server::LinuxBlocking, Client::Kernel(Wait::Block), "Linux on both ends, blocking"),
];

/// One system's medians: message size in bytes, goodput in Gb/s.
type Goodput = Vec<(f64, f64)>;

fn run(testbed: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let options = recorder.options();
    let lab = testbed.lab(recorder)?;
    let powers = if options.quick { vec![6, 10, 14, 17, 19] } else { (6..=19).collect() };
    let sizes: Vec<u32> = powers.into_iter().map(|power: u32| 1 << power).collect();
    let window_ms = if options.quick { 200 } else { 400 };
    recorder.plan(SYSTEMS.len() as u64 * u64::from(options.repeats));
    let x = || Axis::log("message size", "bytes");
    let latency = recorder.chart("latency", "One-way latency", x(), Axis::log("one-way", "us"));
    recorder.mark(latency, Mark::point(MarkOf::Paper, 64.0, 5.8, "IX: 5.8 us"));
    let goodput = recorder.chart("goodput", "Goodput", x(), Axis::linear("goodput", "Gb/s"));
    let mut systems = SYSTEMS;
    let rounds = options.repeats as usize;
    let kept = testbed::rounds(recorder, &mut systems, rounds, |&mut (server, client, _)| {
        let (_running, target) = start(lab, server)?;
        let report = |&bytes: &u32| {
            let load = echo_load(Mode::closed(1), 1, bytes, options.seed, window_ms);
            carry(lab, client, &load, target)
        };
        sizes.iter().map(report).collect()
    })?;
    let mut curves = Vec::new();
    for ((_, _, name), kept) in SYSTEMS.into_iter().zip(&kept) {
        let (one_way, rate) = (recorder.series(latency, name), recorder.series(goodput, name));
        let mut curve = Goodput::new();
        for (index, &bytes) in sizes.iter().enumerate() {
            let reports: Vec<&LoadReport> = kept.found.iter().map(|of| &of[index]).collect();
            let times: Vec<f64> = reports.iter().map(|report| report.p50_us / 2.0).collect();
            // Bits over microseconds, in thousands: Gb/s.
            let rates: Vec<f64> =
                times.iter().map(|us| f64::from(bytes) * 8.0 / us / 1e3).collect();
            recorder.point(one_way, bytes.into(), judged(Measured::samples(&times), &reports));
            let rates = judged(Measured::samples(&rates), &reports);
            curve.extend(rates.value().map(|gbps| (f64::from(bytes), gbps)));
            recorder.point(rate, bytes.into(), rates);
        }
        curves.push(curve);
    }
    claims(recorder, &kept, &curves)
}

/// Marks what its generator found invalid; a window without an answer measured nothing.
fn judged(measured: Measured, reports: &[&LoadReport]) -> Measured {
    if let Some(empty) = reports.iter().find(|report| report.requests == 0) {
        let reason = empty.invalid_reason.clone();
        return Measured::missing(reason.unwrap_or_else(|| "nothing was answered".into()));
    }
    match reports.iter().find_map(|report| report.invalid_reason.clone()) {
        Some(reason) => measured.disturbed(reason),
        None => measured,
    }
}

fn claims(
    recorder: &mut Recorder<'_>,
    kept: &[Kept<Vec<LoadReport>>],
    curves: &[Goodput],
) -> anyhow::Result<()> {
    let seed = recorder.options().seed;
    let [ours, _, spinning, blocking] = kept else { return Ok(()) };
    // 64 B come first.
    let time: fn(&Vec<LoadReport>) -> f64 = |reports| reports[0].p50_us / 2.0;
    for (id, kernel) in [(SPINNING, spinning), (BLOCKING, blocking)] {
        recorder.claim(id, Measured::ratio_of((kernel, time), (ours, time), seed))?;
    }
    let half = |index: usize| curves.get(index).and_then(half_bandwidth_bytes);
    match (half(0), half(2)) {
        (Some(ours), Some(kernel)) => recorder.claim(HALF, Measured::single(kernel / ours)),
        _ => recorder.claim_not_run(HALF, "the goodput reached no half of its maximum"),
    }
}

/// The message size at which half of the highest goodput is reached, between the sizes measured by
/// their logarithms.
fn half_bandwidth_bytes(curve: &Goodput) -> Option<f64> {
    let half = curve.iter().map(|&(_, gbps)| gbps).fold(0.0, f64::max) / 2.0;
    let above = curve.iter().position(|&(_, gbps)| gbps >= half)?;
    let (bytes, gbps) = curve[above];
    let Some(&(bytes_below, gbps_below)) = above.checked_sub(1).and_then(|at| curve.get(at)) else {
        return Some(bytes);
    };
    let part = (half - gbps_below) / (gbps - gbps_below);
    Some(bytes_below * (bytes / bytes_below).powf(part))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_half_lies_between_two_sizes() {
        let curve = vec![(64.0, 1.0), (256.0, 3.0), (1024.0, 8.0)];
        let found = half_bandwidth_bytes(&curve).expect("there is one");
        assert!((found - 256.0 * 4f64.powf(0.2)).abs() < 1e-9, "{found}");
        assert_eq!(half_bandwidth_bytes(&vec![(64.0, 1.0)]), Some(64.0));
        assert_eq!(half_bandwidth_bytes(&Vec::new()), None);
    }
}
