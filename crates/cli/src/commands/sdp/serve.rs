//! `tailplane sdp serve`: the plane.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use ::gateway::GatewayStats;
use anyhow::{Context, bail};
use sdp::{
    Arrangement, ClassPolicy, Counts, Notify, Plane, PlaneConfig, PlaneError, PlaneReport,
    RateLimit,
};

use super::gateway::{self, Held, Prepared};
use super::gateway_config::{GatewayFile, LabEnd};
use super::services::service;
use super::write_json;

/// Arguments of `tailplane sdp serve`.
#[derive(Debug, clap::Args)]
pub struct ServeArgs {
    /// Where tenants join.
    #[arg(long, value_name = "PATH")]
    pub socket: PathBuf,
    /// The socket's permissions, octal: who may join.
    #[arg(long, default_value = "600", value_name = "MODE")]
    pub mode: String,
    /// Data-plane cores, 1 to 4.
    #[arg(long, default_value_t = 1, value_name = "N")]
    pub cores: u32,
    /// The processor of each core, comma separated; none: not pinned.
    #[arg(long, value_delimiter = ',', value_name = "CPU,…")]
    pub cpus: Vec<usize>,
    /// Which cores serve which queues: `scale-out` (each its own), or `scale-up:N` (groups of N cores
    /// share theirs).
    #[arg(long, default_value = "scale-out", value_name = "HOW")]
    pub arrangement: String,
    /// How a core learns of work: `qwait`, `spin` or `spin-dpdk`.
    #[arg(long, default_value = "qwait", value_name = "HOW")]
    pub notify: Notify,
    /// What is served: `echo`; `work:NS`, which is busy for NS nanoseconds, then echoes; `encryption`
    /// (AES-256-CBC); `raid:DISKS` (P + Q); `reed-solomon:DATA+PARITY`; `gateway`, tenants' packets to
    /// a tunnel and back.
    #[arg(long, default_value = "echo", value_name = "NAME")]
    pub service: String,
    /// The gateway's device, tunnel, tenants and steering: TOML; `docs/gateway.toml` shows every key.
    #[arg(long, value_name = "FILE", conflicts_with = "lab_end")]
    pub gateway: Option<PathBuf>,
    /// Without a file: which end of the lab the gateway is at.
    #[arg(long, value_enum, value_name = "END")]
    pub lab_end: Option<LabEnd>,
    /// Requests of one visit to a queue of weight 1, 1 to 64.
    #[arg(long, default_value_t = 8, value_name = "N")]
    pub batch: u32,
    /// Looks that find nothing before a core sleeps (qwait).
    #[arg(long, default_value_t = 2_000, value_name = "N")]
    pub spin_looks: u32,
    /// Most requests a second of each tenant; 0: no limit.
    #[arg(long, default_value_t = 0, value_name = "N")]
    pub tenant_rate: u64,
    /// Classes of users, comma separated: their tenants' queues go before those of all higher numbers,
    /// strictly; 0 is first, 7 last.
    #[arg(long, value_delimiter = ',', value_name = "UID:CLASS,…")]
    pub class: Vec<String>,
    /// The class of all other users' tenants.
    #[arg(long, default_value_t = sdp::CLASS_LOWEST, value_name = "CLASS")]
    pub others_class: u8,
    /// Let tenants choose a class that is not above their user's.
    #[arg(long)]
    pub class_wishes: bool,
    /// End after this many seconds instead of at Ctrl-C.
    #[arg(long, value_name = "N")]
    pub seconds: Option<u64>,
    /// Write what was counted as JSON when it ends; `-`: to the standard output.
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,
}

/// Reads `scale-out` or `scale-up:N`.
///
/// # Errors
/// What there is.
pub fn arrangement(name: &str) -> anyhow::Result<Arrangement> {
    if name == "scale-out" {
        return Ok(Arrangement::ScaleOut);
    }
    let cores = name.strip_prefix("scale-up:").and_then(|cores| cores.parse().ok());
    let Some(cores_per_group) = cores else {
        bail!("`--arrangement {name}`: there are `scale-out` and `scale-up:N`");
    };
    Ok(Arrangement::ScaleUp { cores_per_group })
}

/// What is served, made as far as it can be before the plane starts.
enum Served {
    /// A function of a request, by its name.
    Named(String),
    /// A gateway.
    Gateway {
        prepared: Arc<Prepared>,
        /// Held for its `Drop`.
        _held: Held,
    },
}

fn served(args: &ServeArgs) -> anyhow::Result<Served> {
    if args.service == "gateway" {
        if args.cores != 1 {
            bail!(
                "`--cores` is {}; allowed with `--service gateway`: 1, for one queue",
                args.cores
            );
        }
        let settings = match &args.gateway {
            Some(path) => GatewayFile::load(path)?,
            None => GatewayFile::in_lab(args.lab_end.unwrap_or_default()).check()?,
        };
        let (prepared, held) = gateway::prepare(&settings)?;
        return Ok(Served::Gateway { prepared: Arc::new(prepared), _held: held });
    }
    if args.gateway.is_some() || args.lab_end.is_some() {
        bail!(
            "`--gateway` and `--lab-end` go with `--service gateway`, not with `{}`",
            args.service
        );
    }
    if service(&args.service).is_none() {
        bail!(
            "`--service {}`: there are `echo`, `work:NS`, `encryption`, `raid:DISKS`, \
             `reed-solomon:DATA+PARITY` and `gateway`",
            args.service
        );
    }
    Ok(Served::Named(args.service.clone()))
}

impl Served {
    fn start(&self, config: PlaneConfig) -> Result<Plane, PlaneError> {
        match self {
            Self::Named(name) => {
                let name = name.clone();
                // The name was found before, and the registry does not change.
                Plane::start(config, move |_| service(&name).unwrap_or_else(|| Box::new(sdp::Echo)))
            }
            Self::Gateway { prepared, .. } => {
                let prepared = Arc::clone(prepared);
                Plane::start(config, move |_| prepared.take())
            }
        }
    }

    fn announcement(&self, args: &ServeArgs) -> String {
        let socket = args.socket.display();
        match self {
            Self::Named(_) => {
                format!("  try it     tailplane sdp tenant --socket {socket} --queues 10")
            }
            Self::Gateway { prepared, .. } => format!(
                "{}  try it     tailplane sdp packets --socket {socket} --address ADDRESS",
                prepared.announcement
            ),
        }
    }

    /// What a gateway did.
    fn stats(&self) -> Option<GatewayStats> {
        match self {
            Self::Named(_) => None,
            Self::Gateway { prepared, .. } => Some(prepared.counters.read()),
        }
    }
}

fn classes(args: &ServeArgs) -> anyhow::Result<ClassPolicy> {
    let mut policy = ClassPolicy::default();
    for text in &args.class {
        let parsed = text.split_once(':').and_then(|(uid, class)| {
            let class = class.parse().ok().filter(|class| *class < sdp::CLASSES)?;
            Some((uid.parse().ok()?, class))
        });
        let Some((uid, class)) = parsed else {
            bail!(
                "`--class {text}`: a user's number and a class of 0 to {}, as in 1000:0",
                sdp::CLASS_LOWEST
            );
        };
        if policy.users.insert(uid, class).is_some() {
            bail!("`--class` names user {uid} twice");
        }
    }
    Ok(ClassPolicy { others: args.others_class, wishes: args.class_wishes, ..policy })
}

fn plane_config(args: &ServeArgs) -> anyhow::Result<PlaneConfig> {
    let mode = u32::from_str_radix(&args.mode, 8).ok().filter(|&mode| mode <= 0o777);
    let socket_mode =
        mode.with_context(|| format!("`--mode {}` is no octal mode such as 660", args.mode))?;
    Ok(PlaneConfig {
        socket_mode,
        cores: args.cores,
        cpus: args.cpus.clone(),
        arrangement: arrangement(&args.arrangement)?,
        notify: args.notify,
        batch: args.batch,
        spin_looks: args.spin_looks,
        rate_limit: RateLimit {
            requests_per_s: args.tenant_rate,
            burst_requests: (args.tenant_rate / 1_000).max(1),
            ..RateLimit::NONE
        },
        classes: classes(args)?,
        ..PlaneConfig::new(&args.socket)
    })
}

/// Runs `tailplane sdp serve`.
///
/// # Errors
/// A device or a plane that cannot be had, or a file that cannot be written.
pub fn serve(args: &ServeArgs, stop: &AtomicBool) -> anyhow::Result<()> {
    let config = plane_config(args)?;
    let served = served(args)?;
    let plane = served.start(config)?;
    let idle = match args.notify {
        Notify::Qwait => format!("sleeps after {} empty looks", args.spin_looks),
        _ => "spins for ever".to_owned(),
    };
    eprintln!(
        "{} at {}\n  cores      {}, {}\n  notify     {} ({idle}), batch {}\n{}",
        args.service,
        args.socket.display(),
        args.cores,
        args.arrangement,
        args.notify.name(),
        args.batch,
        served.announcement(args),
    );
    let start = Instant::now();
    let over = |start: Instant| args.seconds.is_some_and(|end| start.elapsed().as_secs() >= end);
    while !stop.load(Ordering::Relaxed) && !over(start) {
        std::thread::sleep(Duration::from_millis(50));
    }
    let report = plane.report();
    plane.stop();
    let stats = served.stats();
    match &args.json {
        Some(path) => write_json(path, &plane_json(args, &report, stats)),
        None => {
            print!("{}", plane_text(&report));
            if let Some(stats) = stats {
                let counts = stats.entries().map(|(name, count)| format!("{name} {count}"));
                println!("gateway: {}", counts.collect::<Vec<_>>().join(", "));
            }
            Ok(())
        }
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
        "tenants: {} joined, {} left, {} refused, {} dropped, {} disconnected\n",
        joins.joined, joins.left, joins.refused, joins.dropped, joins.disconnected
    );
    text
}

fn plane_json(
    args: &ServeArgs,
    report: &PlaneReport,
    gateway: Option<GatewayStats>,
) -> serde_json::Value {
    let counts = |counts: &Counts| {
        let pairs = counts.entries().map(|(name, value)| (name.to_owned(), value.into()));
        serde_json::Value::Object(pairs.collect())
    };
    let tenants = report.tenants.iter().map(|tenant| {
        serde_json::json!({
            "id": tenant.id, "pid": tenant.pid, "uid": tenant.uid, "queues": tenant.queues,
            "class": tenant.class,
            "counts": counts(&tenant.counts),
        })
    });
    serde_json::json!({
        "conditions": {
            "service": args.service, "cores": args.cores, "arrangement": args.arrangement,
            "notify": args.notify.name(), "batch": args.batch, "spin_looks": args.spin_looks,
        },
        "cores": report.cores.iter().map(counts).collect::<Vec<_>>(),
        "tenants": tenants.collect::<Vec<_>>(),
        "gone": counts(&report.gone),
        "gateway": gateway.map(|stats| stats.entries().collect::<BTreeMap<_, _>>()),
        "joined": report.joins.joined,
        "left": report.joins.left,
        "refused": report.joins.refused,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(arguments: &[&str]) -> anyhow::Result<ClassPolicy> {
        #[derive(clap::Parser)]
        struct Command {
            #[command(flatten)]
            args: ServeArgs,
        }
        let start = ["serve", "--socket", "x"];
        let command = <Command as clap::Parser>::try_parse_from(start.iter().chain(arguments))?;
        classes(&command.args)
    }

    #[test]
    fn classes_are_read_by_user() {
        let policy = parsed(&["--class", "1000:0,1001:2", "--others-class", "5"]).expect("fine");
        assert_eq!(policy.users.into_iter().collect::<Vec<_>>(), [(1000, 0), (1001, 2)]);
        assert_eq!((policy.others, policy.wishes), (5, false));
        assert_eq!(parsed(&[]).ok(), Some(ClassPolicy::default()));
        for (wrong, said) in
            [("1000", "1000:0"), ("x:1", "x:1"), ("1:8", "0 to 7"), ("1:0,1:1", "twice")]
        {
            let error = format!("{:#}", parsed(&["--class", wrong]).expect_err("is refused"));
            assert!(error.contains(said), "{error}");
        }
    }

    #[test]
    fn arrangements_are_read_by_name() {
        assert_eq!(arrangement("scale-out").ok(), Some(Arrangement::ScaleOut));
        let shared = Arrangement::ScaleUp { cores_per_group: 2 };
        assert_eq!(arrangement("scale-up:2").ok(), Some(shared));
        for wrong in ["", "scale-up", "scale-up:", "scale-up:x", "out"] {
            assert!(arrangement(wrong).is_err(), "{wrong}");
        }
    }
}
