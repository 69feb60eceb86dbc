//! Arguments of `tailplane sdp serve`, and the plane that they describe.

use std::path::PathBuf;

use anyhow::{Context, bail};
use sdp::{Arrangement, ClassPolicy, Limits, Notify, PlaneConfig, RateLimit};
use serde::{Deserialize, Serialize};

use super::gateway_config::LabEnd;

/// Arguments of `tailplane sdp serve`.
#[derive(Clone, Debug, clap::Args, Serialize, Deserialize)]
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
    /// Let one user have all that tenants may have, instead of an eighth.
    #[arg(long)]
    pub one_user: bool,
    /// The user that the plane's process runs as, by number; `inherit`: the command's own. By default
    /// tailplane-sdp where root starts the command.
    #[arg(long, value_name = "UID")]
    pub user: Option<String>,
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

/// The plane that the arguments describe.
///
/// # Errors
/// The argument that makes no sense, and what is allowed.
pub fn plane_config(args: &ServeArgs) -> anyhow::Result<PlaneConfig> {
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
        limits: match args.one_user {
            true => Limits::default().of_one_user(),
            false => Limits::default(),
        },
        ..PlaneConfig::new(&args.socket)
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
