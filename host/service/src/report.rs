//! What a dataplane says at its end.

use runtime::CoreReport;

use crate::terminal::Output;

/// Prints what each elastic thread has done, and what went wrong there.
pub fn summarize(reports: &[CoreReport]) {
    for (core, report) in reports.iter().enumerate() {
        let (connections, _) = report.footprint;
        Output::Standard.print(&format!(
            "thread {core}: {} packets in, {} out, {} cycles with work ({:.1} ms), {} sleeps, {} \
             connections accepted, {connections} left, {} reset, {} forwarded\n",
            report.nic.rx_frames,
            report.nic.tx_frames,
            report.cycle.busy_cycles,
            report.busy_ns as f64 / 1e6,
            report.sleeps,
            report.stack.tcp_accepted,
            report.left.connections.reset,
            report.stack.forwarded,
        ));
        let odd = report.stack.entries().filter(|(name, value)| {
            let is_odd =
                ["drop", "bad", "malformed", "policy_denied"].iter().any(|odd| name.contains(odd));
            *value > 0 && is_odd
        });
        let (left, nic) = (report.left, report.nic);
        let more = [
            ("nic_rx_no_buffer", nic.rx_no_buffer),
            ("nic_rx_dropped", nic.rx_dropped),
            ("nic_rx_unfit", nic.rx_unfit),
            ("nic_rx_bad_descriptors", nic.rx_bad_descriptors),
            ("nic_tx_dropped", nic.tx_dropped),
            ("not_reset_in_time", left.connections.untold),
            ("packet_memory_lost", u64::from(left.memory.lost)),
        ];
        for (name, value) in odd.chain(more.into_iter().filter(|(_, value)| *value > 0)) {
            Output::Standard.print(&format!("  {name}: {value}\n"));
        }
    }
}
