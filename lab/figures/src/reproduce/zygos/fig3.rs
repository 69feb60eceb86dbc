//! ZygOS Figure 3: the highest load that keeps 10 S at the 99th percentile for the systems before it.

use reproduce::{Figure, Recorder, Takes};

use super::max_load;
use super::systems::RTC;
use crate::reproduce::Testbed;

/// See the module's comment.
pub const FIG3: Figure<Testbed> = Figure {
    id: "zygos/fig3",
    title: "Load at p99 <= 10 S over S, without stealing",
    section: "ZygOS (SOSP'17) §3.4, Figure 3",
    what: "For each mean service time the highest load at which 99 % of the requests take no longer than \
           ten of it, for what there was before ZygOS: run to completion with batching off, simulated as for \
           Figure 6, and the models of Linux with partitioned and with floating connections; behind them \
           theory without overhead.",
    claims: &[],
    takes: Takes { quick_s: 120, full_s: 1_500 },
    run,
};

fn run(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let means_us: &[f64] = match recorder.options().quick {
        true => &[5.0, 25.0, 100.0, 200.0],
        false => &[2.0, 5.0, 10.0, 20.0, 35.0, 50.0, 75.0, 100.0, 150.0, 200.0],
    };
    max_load::charts(recorder, &[RTC], means_us, [20_000, 100_000]).map(drop)
}
