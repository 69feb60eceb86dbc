//! IX Figures 8 and 9: the Pareto frontier of static configurations.

use reproduce::{Figure, Recorder, Role, Takes};
use world::controlled::pareto::Frontier;

use super::server::server;
use crate::pareto::draw;
use crate::reproduce::Testbed;

/// Pareto efficiency, with the configurations that are part of the frontier.
pub const FIG8: Figure<Testbed> = Figure {
    id: "ix/fig8",
    title: "Pareto efficiency of static configurations",
    section: "IX (TOCS'16) §5.3, Figure 8",
    what: "All static configurations of the simulated server (cores, hyperthreads, clocks): for every load the \
           one that draws least, or leaves the background job most, while the 99th percentile keeps the \
           objective. Computed from the model's closed forms; the curves are those that are part of the frontier.",
    claims: &[],
    takes: Takes { quick_s: 1, full_s: 1 },
    run: run_fig8,
};

/// The frontier against one of clocks alone.
pub const FIG9: Figure<Testbed> = Figure {
    id: "ix/fig9",
    title: "Clocks alone against the Pareto frontier",
    section: "IX (TOCS'16) §5.3, Figure 9",
    what: "The frontier of Figure 8 (energy), and the same where only the clock changes while all cores and \
           hyperthreads run. The paper's curves of Linux are not computed: the model is of a dataplane that polls.",
    claims: &[],
    takes: Takes { quick_s: 1, full_s: 1 },
    run: run_fig9,
};

fn run_fig8(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let model = server(recorder);
    recorder.plan(1);
    recorder.step("all static configurations")?;
    for frontier in [Frontier::energy(&model), Frontier::consolidation(&model)] {
        draw::figure8(recorder, &frontier, Role::Theory);
    }
    Ok(())
}

fn run_fig9(_: &mut Testbed, recorder: &mut Recorder<'_>) -> anyhow::Result<()> {
    let model = server(recorder);
    recorder.plan(1);
    recorder.step("all static configurations")?;
    draw::figure9(recorder, &Frontier::energy(&model), Role::Theory);
    Ok(())
}
