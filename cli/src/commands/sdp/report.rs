//! What a plane counted: for people, and as JSON.

use ::gateway::GatewayStats;
use sdp::{Counts, PlaneReport};
use serde::{Deserialize, Serialize};

use super::serve_args::ServeArgs;

/// A report in both forms, as it travels from the plane's process to its opener's.
#[derive(Debug, Serialize, Deserialize)]
pub struct Written {
    /// For people.
    pub text: String,
    /// For programs.
    pub json: serde_json::Value,
}

impl Written {
    /// Writes down what a plane has counted.
    pub fn of(args: &ServeArgs, report: &PlaneReport, gateway: Option<GatewayStats>) -> Self {
        let mut text = plane_text(report);
        if let Some(stats) = gateway {
            let counts = stats.entries().map(|(name, count)| format!("{name} {count}"));
            text += &format!("gateway: {}\n", counts.collect::<Vec<_>>().join(", "));
        }
        Self { text, json: plane_json(args, report, gateway) }
    }
}

fn counted(counts: &Counts) -> String {
    let odd = counts.entries().filter(|(_, value)| *value > 0);
    odd.map(|(name, value)| format!("{name} {value}")).collect::<Vec<_>>().join(", ")
}

fn plane_text(report: &PlaneReport) -> String {
    let mut text = String::new();
    for (core, counts) in report.cores.iter().enumerate() {
        text += &format!("core {core}: {}\n", counted(counts));
    }
    for tenant in &report.tenants {
        text += &format!(
            "tenant {} (process {}, user {}, {} queues, class {}): {}\n",
            tenant.id,
            tenant.pid,
            tenant.uid,
            tenant.queues,
            tenant.class,
            counted(&tenant.counts)
        );
    }
    let joins = &report.joins;
    text += &format!(
        "tenants: {} joined, {} left, {} refused ({} over a limit, {} for their memory), {} dropped, \
         {} disconnected\n",
        joins.joined,
        joins.left,
        joins.refused,
        joins.over_limit,
        joins.unusable,
        joins.dropped,
        joins.disconnected
    );
    text
}

fn plane_json(
    args: &ServeArgs,
    report: &PlaneReport,
    gateway: Option<GatewayStats>,
) -> serde_json::Value {
    serde_json::json!({
        "conditions": {
            "service": args.service, "cores": args.cores, "arrangement": args.arrangement,
            "notify": args.notify.name(), "batch": args.batch, "spin_looks": args.spin_looks,
        },
        "cores": report.cores,
        "tenants": report.tenants,
        "gone": report.gone,
        "gateway": gateway,
        "joined": report.joins.joined,
        "left": report.joins.left,
        "refused": report.joins.refused,
        "over_limit": report.joins.over_limit,
        "unusable": report.joins.unusable,
        "dropped": report.joins.dropped,
        "disconnected": report.joins.disconnected,
    })
}
