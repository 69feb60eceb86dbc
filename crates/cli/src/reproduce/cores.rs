//! IX Figure 5a: message rate over cores.

use reproduce::{Figure, Recorder, Takes, not_run};

use super::Testbed;

/// See the module's comment.
pub const FIG5A: Figure<Testbed> = Figure {
    id: "ix/fig5a",
    title: "Messages per second over cores",
    section: "IX (TOCS'16) §5.2, Figure 5a",
    what: "64-byte echo with one round trip per connection, on one elastic thread and on more, each \
           with its own queue pair, pool and flow groups.",
    claims: &["ix.fig5a.core_scaling_efficiency"],
    takes: Takes { quick_s: 0, full_s: 0 },
    run,
};

fn run(_: &mut Testbed, _: &mut Recorder<'_>) -> anyhow::Result<()> {
    not_run(
        "needs a core for each elastic thread and as many for the clients, or the multi-core \
         simulator, which does not run this figure yet",
    )
}
