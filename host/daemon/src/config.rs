//! The daemon's own configuration, `/etc/tailplane/tailplaned.toml`.
//!
//! ```
//! let config = daemon::Config::parse("[control]\ngroup = 0\nmode = 0o660\n")?;
//! assert_eq!(config.metrics.listen, "127.0.0.1:9477");
//! let error = daemon::Config::parse("[control]\nmode = 0o7777").unwrap_err().to_string();
//! assert_eq!(error, "`control.mode` is 0o7777; allowed: 0o0 to 0o777");
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! Every key has a default. An unknown key, a value of a wrong type and one out of range are errors that name the
//! key, the value and what is allowed. What a single service wants stands in its own file
//! ([`ControlConfig`](configfile::ControlConfig)).

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::bail;
use configfile::in_range;
use serde::Deserialize;

/// Where the file is looked for.
pub const CONFIG_PATH: &str = "/etc/tailplane/tailplaned.toml";
/// Longest path of a Unix socket, in bytes (`sockaddr_un`), its final zero aside.
const SOCKET_PATH_MAX: usize = 107;

/// A whole file.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where services show their control sockets, and where the daemon keeps its records.
    pub run_directory: PathBuf,
    /// Each `*.toml` in it is a service.
    pub services_directory: PathBuf,
    /// The command that runs a service: `COMMAND run FILE`.
    pub command: PathBuf,
    /// The daemon's control socket.
    pub control: SocketConfig,
    /// The page of metrics.
    pub metrics: MetricsConfig,
    /// What of the machine is used, and where it is.
    pub machine: MachineConfig,
    /// How long things may take.
    pub supervision: SupervisionConfig,
    /// What is written down.
    pub log: LogConfig,
}

impl Default for Config {
    fn default() -> Self {
        let run_directory = std::env::var_os("TAILPLANE_RUN_DIR").filter(|path| !path.is_empty());
        Self {
            run_directory: run_directory.map_or_else(|| "/run/tailplane".into(), PathBuf::from),
            services_directory: "/etc/tailplane/services".into(),
            command: "tailplane".into(),
            control: SocketConfig::default(),
            metrics: MetricsConfig::default(),
            machine: MachineConfig::default(),
            supervision: SupervisionConfig::default(),
            log: LogConfig::default(),
        }
    }
}

/// A user or a group, by number or by name.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(untagged, expecting = "a name or a number was expected")]
pub enum Who {
    /// By number.
    Number(u32),
    /// By name.
    Name(String),
}

/// `[control]`: who may say what to the daemon.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SocketConfig {
    /// The socket; `control.sock` in the run directory where nothing is said.
    pub socket: Option<PathBuf>,
    /// Whose it is; the daemon's own user where nothing is said.
    pub owner: Option<Who>,
    /// The group that may change things beside root; none where nothing is said.
    pub group: Option<Who>,
    /// The socket's mode. Who cannot write to it cannot connect at all.
    pub mode: u32,
    /// Whether everybody who can connect may look at things.
    pub others_read: bool,
}

impl Default for SocketConfig {
    fn default() -> Self {
        Self { socket: None, owner: None, group: None, mode: 0o660, others_read: false }
    }
}

/// `[metrics]`
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MetricsConfig {
    /// An address and port, or `unix:` and a path; empty: no such page.
    pub listen: String,
}

impl Default for MetricsConfig {
    fn default() -> Self {
        Self { listen: "127.0.0.1:9477".to_owned() }
    }
}

/// Where metrics are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Listen {
    /// Over TCP.
    Tcp(SocketAddr),
    /// At a Unix socket.
    Unix(PathBuf),
    /// Nowhere.
    Nowhere,
}

/// `[machine]`
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MachineConfig {
    /// Where sysfs is.
    pub sys: PathBuf,
    /// Where processes are shown.
    pub proc: PathBuf,
    /// Where control groups are.
    pub cgroup: PathBuf,
    /// Whether policies may set clocks, where the machine lets them.
    pub set_clocks: bool,
    /// A core's throughput with all of its hyperthreads over that with one.
    pub hyperthread_gain: f64,
    /// Throughput with Turbo over that at the nominal clock.
    pub turbo_gain: f64,
}

impl Default for MachineConfig {
    fn default() -> Self {
        let control::Scaling { hyperthread_gain, turbo_gain } = control::Scaling::ix();
        Self {
            sys: "/sys".into(),
            proc: "/proc".into(),
            cgroup: "/sys/fs/cgroup".into(),
            set_clocks: true,
            hyperthread_gain,
            turbo_gain,
        }
    }
}

impl MachineConfig {
    /// How throughput grows.
    pub fn scaling(&self) -> control::Scaling {
        let Self { hyperthread_gain, turbo_gain, .. } = *self;
        control::Scaling { hyperthread_gain, turbo_gain }
    }
}

/// `[supervision]`: how long things may take, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct SupervisionConfig {
    /// From a service's start until it answers at its control socket.
    pub start_timeout_s: u64,
    /// From the request to end, over its control socket, until it is asked by SIGTERM.
    pub stop_timeout_s: u64,
    /// From SIGTERM to SIGKILL.
    pub kill_timeout_s: u64,
    /// The first pause before a service that failed is started again; it doubles with each failure.
    pub backoff_s: u64,
    /// The longest such pause.
    pub backoff_max_s: u64,
}

impl Default for SupervisionConfig {
    fn default() -> Self {
        Self {
            start_timeout_s: 30,
            stop_timeout_s: 10,
            kill_timeout_s: 5,
            backoff_s: 1,
            backoff_max_s: 60,
        }
    }
}

/// How log lines are written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LogFormat {
    /// For people: `key=value`.
    #[default]
    Text,
    /// One object a line.
    Json,
}

/// What is logged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, strum::AsRefStr)]
#[serde(rename_all = "lowercase")]
pub enum LogLevel {
    /// What went wrong for good.
    Error,
    /// And what went wrong.
    Warn,
    /// And what happened.
    #[default]
    Info,
    /// And each decision.
    Debug,
}

/// `[log]`
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LogConfig {
    /// As what.
    pub format: LogFormat,
    /// From where on.
    pub level: LogLevel,
}

impl Config {
    /// Reads and checks a file.
    ///
    /// # Errors
    /// What is wrong with it: the key, the value, what is allowed.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        configfile::load(path, Self::parse)
    }

    /// Reads and checks the text of a file.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let config: Self = toml::from_str(text)?;
        config.check()?;
        Ok(config)
    }

    /// The daemon's control socket.
    pub fn control_socket(&self) -> PathBuf {
        let default = || self.run_directory.join("control.sock");
        self.control.socket.clone().unwrap_or_else(default)
    }

    /// Where the daemon keeps what it must know after it was killed.
    pub fn records_directory(&self) -> PathBuf {
        self.run_directory.join("daemon")
    }

    /// Where metrics are read.
    ///
    /// # Errors
    /// It is neither an address with a port, nor `unix:` and a path, nor empty.
    pub fn metrics_listen(&self) -> anyhow::Result<Listen> {
        let listen = self.metrics.listen.as_str();
        if listen.is_empty() {
            return Ok(Listen::Nowhere);
        }
        if let Some(path) = listen.strip_prefix("unix:") {
            check_socket_path("metrics.listen", Path::new(path))?;
            return Ok(Listen::Unix(path.into()));
        }
        listen.parse().map(Listen::Tcp).map_err(|_| {
            anyhow::anyhow!(
                "`metrics.listen` is \"{listen}\"; allowed: an address and a port as in 127.0.0.1:9477 or \
                 [::1]:9477, \"unix:\" and a path, or nothing for no such page"
            )
        })
    }

    fn check(&self) -> anyhow::Result<()> {
        let paths = [
            ("run_directory", &self.run_directory),
            ("services_directory", &self.services_directory),
            ("machine.sys", &self.machine.sys),
            ("machine.proc", &self.machine.proc),
            ("machine.cgroup", &self.machine.cgroup),
        ];
        if let Some((key, path)) = paths.into_iter().find(|(_, path)| !path.is_absolute()) {
            bail!("`{key}` is \"{}\"; allowed: a path that begins with /", path.display());
        }
        if self.command.as_os_str().is_empty() {
            bail!("`command` is empty; allowed: a program's name, or a path to it");
        }
        if self.control.mode > 0o777 {
            bail!("`control.mode` is {:#o}; allowed: 0o0 to 0o777", self.control.mode);
        }
        check_socket_path("control.socket", &self.control_socket())?;
        self.metrics_listen()?;
        in_range("machine.hyperthread_gain", self.machine.hyperthread_gain, 1.0, 2.0)?;
        in_range("machine.turbo_gain", self.machine.turbo_gain, 1.0, 4.0)?;
        let limits = &self.supervision;
        in_range("supervision.start_timeout_s", limits.start_timeout_s, 1, 3_600)?;
        in_range("supervision.stop_timeout_s", limits.stop_timeout_s, 1, 3_600)?;
        in_range("supervision.kill_timeout_s", limits.kill_timeout_s, 1, 3_600)?;
        in_range("supervision.backoff_s", limits.backoff_s, 1, 3_600)?;
        in_range("supervision.backoff_max_s", limits.backoff_max_s, limits.backoff_s, 86_400)
    }
}

fn check_socket_path(key: &str, path: &Path) -> anyhow::Result<()> {
    let bytes = path.as_os_str().len();
    if !path.is_absolute() || bytes > SOCKET_PATH_MAX {
        bail!(
            "`{key}` is \"{}\"; allowed: a path that begins with / and has at most {SOCKET_PATH_MAX} bytes",
            path.display()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        format!("{:#}", Config::parse(text).expect_err("is refused"))
    }

    proptest::proptest! {
        #[test]
        fn any_text_is_a_configuration_or_an_error(table in "[a-z]{1,9}", key in "[a-z_]{1,12}", value in ".{0,20}", noise in ".{0,60}") {
            let _ = Config::parse(&format!("{noise}\n[{table}]\n{key} = {value}\n"));
            let _ = Config::parse(&format!("[control]\n{key} = {value}\n"));
        }
    }

    #[test]
    fn nothing_need_be_said() {
        let config = Config::parse("run_directory = \"/run/tailplane\"").expect("is fine");
        assert_eq!(config.control_socket(), Path::new("/run/tailplane/control.sock"));
        assert_eq!(config.control.mode, 0o660);
        let listen = config.metrics_listen().expect("is fine");
        assert_eq!(listen, Listen::Tcp("127.0.0.1:9477".parse().expect("an address")));
    }

    #[test]
    fn the_example_says_the_defaults() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../dist/tailplaned.toml");
        let text = std::fs::read_to_string(path).expect("the example is there");
        let example = Config::parse(&text).expect("is fine");
        let defaults = Config { run_directory: "/run/tailplane".into(), ..Config::default() };
        assert_eq!(example, defaults);
        // Every key stands in it, those without a default as comments.
        for key in ["socket", "owner", "group", "others_read", "listen", "turbo_gain", "level"] {
            assert!(text.contains(&format!("{key} =")), "{key}");
        }
    }

    #[test]
    fn errors_name_the_key_the_value_and_what_is_allowed() {
        for (text, parts) in [
            ("run_dir = \"/x\"", ["run_dir", "run_directory"]),
            ("[control]\nmode = 0o1000", ["`control.mode` is 0o1000", "0o777"]),
            ("[control]\ngroup = 1.5", ["group", "a name or a number"]),
            ("[control]\nsocket = \"x\"", ["`control.socket` is \"x\"", "begins with /"]),
            ("[metrics]\nlisten = \"9477\"", ["`metrics.listen` is \"9477\"", "127.0.0.1:9477"]),
            ("[machine]\nsys = \"sys\"", ["`machine.sys`", "begins with /"]),
            ("[machine]\nturbo_gain = 0.5", ["`machine.turbo_gain` is 0.5", "1 to 4"]),
            ("[machine]\nturbo_gain = nan", ["`machine.turbo_gain` is NaN", "1 to 4"]),
            ("[supervision]\nstop_timeout_s = 0", ["stop_timeout_s` is 0", "1 to 3600"]),
            ("[supervision]\nbackoff_s = 90", ["backoff_max_s` is 60", "90 to 86400"]),
            ("[log]\nformat = \"xml\"", ["xml", "json"]),
            ("[log]\nlevel = 3", ["level", "3"]),
        ] {
            let found = error(text);
            for part in parts {
                assert!(found.contains(part), "{part:?} is not in: {found}");
            }
        }
        let long = format!("[control]\nsocket = \"/{}\"", "x".repeat(107));
        assert!(error(&long).contains("at most 107 bytes"));
    }
}
