//! The configuration file of `tailplane run`.
//!
//! Every key has a default but `service.app`, or `service.port` where a program serves; an unknown key, a value of a
//! wrong type and a value out of range are errors that name the key, the value and what is allowed.

use std::collections::BTreeMap;
use std::ops::RangeInclusive;
use std::path::Path;

use anyhow::{Context, bail};
use configfile::{ControlConfig, in_range};
use mem::HugePages;
use runtime::{Classes, CongestionAlgorithm, ConservingConfig, Ecn};
use serde::Deserialize;
use tailplane::{Duration, Limits};

pub use super::config_values::{
    App, AwayName, CongestionName, DomainName, EcnName, HugePagesName, InputName, PlacementName,
    PolicyName, SchedulerName, UserName,
};
use super::network_config::NetworkConfig;
use super::policy_config::PolicyConfig;

/// A whole file.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunConfig {
    /// What is served.
    pub service: ServiceConfig,
    /// Where from.
    #[serde(default)]
    pub network: NetworkConfig,
    /// By which threads.
    #[serde(default)]
    pub dataplane: DataplaneConfig,
    /// What an application in a process of its own may do.
    #[serde(default)]
    pub application: ApplicationConfig,
    /// What such an application may do on the network.
    #[serde(default)]
    pub policy: PolicyConfig,
    /// Who may control the service while it runs, and how they find it.
    #[serde(default)]
    pub control: ControlConfig,
    /// The file that it was read from.
    #[serde(skip)]
    pub path: std::path::PathBuf,
    /// Its text: for the other processes of the service, which cannot read files.
    #[serde(skip)]
    pub text: String,
    /// In which memory.
    #[serde(default)]
    pub memory: MemoryConfig,
    /// TCP's settings.
    #[serde(default)]
    pub tcp: TcpConfig,
    /// The key-value service's settings.
    #[serde(default)]
    pub kv: KvConfig,
}

/// `[service]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ServiceConfig {
    /// Which.
    #[serde(default)]
    pub app: App,
    /// The port; by default the app's usual one, which a program does not have.
    pub port: Option<u16>,
    /// How many ports it listens on, from that one on: a client has some ten thousand connections to
    /// each at most.
    #[serde(default = "one")]
    pub ports: u16,
}

fn one() -> u16 {
    1
}

impl ServiceConfig {
    /// The port on which the service listens.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(match self.app {
            App::Echo => 7,
            App::Kv => 11_211,
            App::Spin | App::Delay => 7_070,
            App::Sockperf => 11_111,
            // It is said to be missing as the configuration is checked.
            App::Program => 0,
        })
    }

    /// All of them.
    pub fn all_ports(&self) -> RangeInclusive<u16> {
        let first = self.port();
        first..=first.saturating_add(self.ports - 1)
    }
}

/// `[application]`: what it is confined to in the `process` domain. Who it is where nothing is said, and what becomes
/// of it: [`identity`](super::identity).
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct ApplicationConfig {
    /// The processor of each of its elastic threads; none: where the kernel puts them.
    pub cpus: Vec<usize>,
    /// The user that it runs as, without capabilities and with no way to get any; `"inherit"`: the starter's.
    pub user: Option<UserName>,
    /// Its group; by default the one with the user's number.
    pub group: Option<u32>,
    /// A file that lists the system calls that it may use, relative to the configuration's directory; by default all
    /// that a service has a use for.
    pub policy: Option<std::path::PathBuf>,
    /// Most files that it may have open.
    pub open_files: Option<u64>,
    /// Directories and files that it may write, as far as its user may, besides `/dev/null` and its like.
    pub writable: Vec<std::path::PathBuf>,
    /// Memory that all of its processes may use together, in MiB; by default half of the machine's.
    pub memory_mb: Option<u64>,
    /// Processes and threads that they may be.
    pub processes: Option<u64>,
    /// Processors that they may use together; by default all but as many as there are elastic threads.
    pub processors: Option<u32>,
    /// Whether it has no network but the dataplane's.
    pub own_network: bool,
    /// What a program of one's own reads as its standard input.
    pub stdin: InputName,
}

impl ApplicationConfig {
    fn check(&self, domain: DomainName) -> anyhow::Result<()> {
        if *self != Self::default() && domain == DomainName::Inline {
            bail!(
                "`[application]` is for an application in a process of its own, and `dataplane.domain` is \
                 \"inline\": set it to \"process\", or leave the section out"
            );
        }
        in_range("application.memory_mb", self.memory_mb.unwrap_or(64), 16, 1 << 24)?;
        in_range("application.processes", self.processes.unwrap_or(64), 4, 1 << 22)?;
        in_range("application.processors", self.processors.unwrap_or(1), 1, 1 << 16)?;
        UserName::check_group("application", self.user, self.group)
    }
}

/// `[dataplane]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct DataplaneConfig {
    /// Elastic threads. Each has queue pairs of its own where the device has as many.
    pub threads: u32,
    /// How many of them are granted at first; the others begin parked, without flow groups. All where nothing is said.
    pub granted: Option<u32>,
    /// Whether flow groups can be moved between threads, also where the scheduler does not share them; where nothing is
    /// said: with more than one thread.
    pub movable: Option<bool>,
    /// The processor of each; none: not pinned.
    pub cpus: Vec<usize>,
    /// Which core runs the application for a connection.
    pub scheduler: SchedulerName,
    /// What separates dataplane and application.
    pub domain: DomainName,
    /// In the `process` domain: the user that the dataplane runs as, without capabilities; `"inherit"`: the
    /// starter's.
    pub user: Option<UserName>,
    /// Its group; by default the one with the user's number.
    pub group: Option<u32>,
    /// In the `process` domain: memory that the dataplane may use, packet memory included, in MiB; by default half of
    /// the machine's.
    pub memory_mb: Option<u64>,
    /// In the `process` domain: where the application's threads run.
    pub placement: PlacementName,
    /// For `ready-set`: the class of the connections that come in at a port, 0 (the most urgent) to 7.
    pub classes: BTreeMap<String, u8>,
    /// The class of those of all other ports.
    pub other_class: u8,
    /// Which class is served next; strict priority where nothing is said.
    pub policy: Option<PolicyName>,
    /// By class, for the policy `weighted`: how many turns are taken in a row; 1 where nothing is said.
    pub weights: Vec<u32>,
    /// What becomes of a thread's network layer while it is in the application, for the schedulers that share.
    pub while_away: Option<AwayName>,
    /// Microseconds after which a long request makes room for others, for the schedulers that share and services
    /// that can put off the rest of a request; 0: never.
    pub quantum_us: u64,
    /// B: packets of one cycle at most.
    pub batch: usize,
    /// Microseconds without work after which a thread sleeps; negative: it spins for ever.
    pub spin_us: i64,
    /// Longest time, in microseconds, for which a thread waits for several packets where they come
    /// often; 0: it never does.
    pub moderation_us: u64,
    /// Milliseconds that dataplane and application may take to end, from the request or from the first end on, with
    /// the process domain. What has not ended then is killed; the dataplane after two thirds of it.
    pub end_ms: u64,
    /// Real-time priority of the threads, 1 to 99; 0: none. Not together with endless spinning. Where nothing is said:
    /// none, or the lowest with a placement that is chosen while the service runs.
    pub realtime: Option<u8>,
}

impl Default for DataplaneConfig {
    fn default() -> Self {
        Self {
            threads: 1,
            granted: None,
            movable: None,
            cpus: Vec::new(),
            scheduler: SchedulerName::RunToCompletion,
            domain: DomainName::default(),
            user: None,
            group: None,
            memory_mb: None,
            placement: PlacementName::default(),
            classes: BTreeMap::new(),
            other_class: 0,
            policy: None,
            weights: Vec::new(),
            while_away: None,
            quantum_us: 0,
            batch: 64,
            spin_us: 50,
            moderation_us: 0,
            end_ms: 500,
            realtime: None,
        }
    }
}

/// Weights beyond this serve one class for so long that they are strict priority.
const WEIGHT_MAX: u32 = 1_000_000;

impl DataplaneConfig {
    /// The classes of connections, for `ready-set`.
    ///
    /// # Errors
    /// A port that is none or was named before, a class that there is not: the key, the value and what is
    /// allowed.
    pub fn ready_set_classes(&self) -> anyhow::Result<Classes> {
        let mut classes = Classes::new(self.policy().into());
        for (name, &class) in &self.classes {
            let port = name.parse::<u16>().ok().filter(|&port| port > 0);
            let port = port.with_context(|| {
                format!("`dataplane.classes` names port '{name}'; allowed: 1 to {}", u16::MAX)
            })?;
            classes = classes.port(port, class).context("`dataplane.classes`")?;
        }
        classes = classes.others(self.other_class).context("`dataplane.other_class`")?;
        for (class, &weight) in self.weights.iter().enumerate() {
            in_range("dataplane.weights", weight, 1, WEIGHT_MAX)?;
            let class = u8::try_from(class).unwrap_or(u8::MAX);
            classes = classes.weight(class, weight).context("`dataplane.weights`")?;
        }
        Ok(classes)
    }

    /// The real-time priority of the threads that is said; 0: none.
    pub fn realtime(&self) -> u8 {
        self.realtime.unwrap_or(0)
    }

    /// Elastic threads that are granted at first.
    pub fn granted(&self) -> u32 {
        self.granted.unwrap_or(self.threads)
    }

    /// Whether connections can be at home on another thread than the one that accepted them.
    pub fn is_movable(&self) -> bool {
        self.scheduler != SchedulerName::RunToCompletion || self.movable.unwrap_or(self.threads > 1)
    }

    /// Which class is served next.
    pub fn policy(&self) -> PolicyName {
        self.policy.unwrap_or(PolicyName::StrictPriority)
    }

    /// How threads share their work, for the schedulers that do, with so many chunks of packet memory for each: an
    /// eighth of them at most is for its application to send from, beside the halves of device and stack.
    pub fn sharing(&self, chunks_each: usize) -> ConservingConfig {
        ConservingConfig {
            pool_keep: ConservingConfig::default().pool_keep.min(chunks_each / 8),
            while_away: self.while_away.unwrap_or_default().into(),
            quantum: (self.quantum_us > 0).then(|| Duration::from_micros(self.quantum_us)),
            ..ConservingConfig::default()
        }
    }

    /// Whether a key is given that the scheduler does not heed.
    fn check_scheduler(&self) -> anyhow::Result<()> {
        let is_set = self.scheduler == SchedulerName::ReadySet;
        let shares = self.scheduler != SchedulerName::RunToCompletion;
        let set = ("\"ready-set\"", "that scheduler", is_set);
        let sharing = ("\"work-conserving\" or \"ready-set\"", "one of those", shares);
        let said = [
            ("dataplane.classes", !self.classes.is_empty(), set),
            ("dataplane.other_class", self.other_class > 0, set),
            ("dataplane.policy", self.policy.is_some(), set),
            ("dataplane.weights", !self.weights.is_empty(), set),
            ("dataplane.while_away", self.while_away.is_some(), sharing),
            ("dataplane.quantum_us", self.quantum_us > 0, sharing),
        ];
        for (key, is_said, (schedulers, choice, heeds)) in said {
            if is_said && !heeds {
                bail!(
                    "`{key}` is for `dataplane.scheduler` = {schedulers}, which is \"{}\": choose {choice}, or leave \
                     the key out",
                    self.scheduler.as_ref()
                );
            }
        }
        Ok(())
    }

    fn check_sharing(&self) -> anyhow::Result<()> {
        if self.while_away == Some(AwayName::Kick) && !(1..=98).contains(&self.realtime()) {
            bail!(
                "`dataplane.while_away` is \"kick\", which interrupts the application by a thread of higher \
                 real-time priority, and `dataplane.realtime` is {}; allowed with it: 1 to 98",
                self.realtime()
            );
        }
        in_range("dataplane.quantum_us", self.quantum_us, 0, 1_000_000)
    }

    /// The domain, for conditions.
    pub fn describe_domain(&self) -> String {
        match self.domain {
            DomainName::Inline => "inline".to_owned(),
            DomainName::Process => format!("process, {}", self.placement.as_ref()),
        }
    }

    /// The scheduler, for conditions.
    pub fn describe_scheduler(&self) -> String {
        let name = self.scheduler.as_ref();
        match (self.scheduler, self.ready_set_classes()) {
            (SchedulerName::ReadySet, Ok(classes)) => {
                format!("{name} of {} classes, {}", classes.count(), self.policy().as_ref())
            }
            _ => name.to_owned(),
        }
    }

    fn check_classes(&self, service: &ServiceConfig) -> anyhow::Result<()> {
        if self.scheduler != SchedulerName::ReadySet {
            return Ok(());
        }
        let classes = self.ready_set_classes()?;
        if !self.weights.is_empty() && self.policy != Some(PolicyName::Weighted) {
            bail!(
                "`dataplane.weights` is for `dataplane.policy` = \"weighted\": choose it, or none"
            );
        }
        if self.weights.len() > classes.count() {
            let (given, used) = (self.weights.len(), classes.count());
            bail!(
                "`dataplane.weights` has {given} weights; allowed: one for each class, of which there are {used}"
            );
        }
        let (first, last) = (service.port(), service.port().saturating_add(service.ports - 1));
        for name in self.classes.keys() {
            if !name.parse().is_ok_and(|port: u16| (first..=last).contains(&port)) {
                bail!(
                    "`dataplane.classes` names port {name}; allowed are those that the service listens on, \
                     {first} to {last} (`service.port`, `service.ports`)"
                );
            }
        }
        Ok(())
    }
}

/// `[memory]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct MemoryConfig {
    /// Packet buffers of 2 KiB.
    pub chunks: usize,
    /// `try`, `require` or `no`.
    #[serde(with = "HugePagesName")]
    pub huge_pages: HugePages,
}

impl Default for MemoryConfig {
    fn default() -> Self {
        Self { chunks: 32_768, huge_pages: HugePages::Try }
    }
}

/// `[tcp]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct TcpConfig {
    /// What a peer may send ahead of the application, in KiB.
    pub receive_window_kb: u32,
    /// How long an acknowledgment waits for a reply, in milliseconds.
    pub delayed_ack_ms: u64,
    /// How long TIME-WAIT lasts, in seconds.
    pub time_wait_s: u64,
    /// Silence after which a peer is asked for a sign of life, in seconds; nine times, every 75 s, before it is given up.
    /// 0: never.
    pub keepalive_s: u64,
    /// `cubic`, `newreno` or `dctcp`: how the congestion window grows and shrinks.
    #[serde(with = "CongestionName")]
    pub congestion: CongestionAlgorithm,
    /// `off`, `accept` or `ask`: whether routers may mark packets instead of dropping them.
    #[serde(with = "EcnName")]
    pub ecn: Ecn,
    /// Whether a short segment waits while others are unacknowledged (Nagle's algorithm).
    pub nagle: bool,
    /// Connections of one port that may be half open; beyond, SYNs are answered with cookies. As many may wait to be
    /// accepted.
    pub backlog: u32,
    /// Connections of one elastic thread.
    pub max_connections: u32,
}

impl Default for TcpConfig {
    fn default() -> Self {
        Self {
            receive_window_kb: 256,
            delayed_ack_ms: 40,
            time_wait_s: 60,
            keepalive_s: 0,
            congestion: CongestionAlgorithm::default(),
            ecn: Ecn::default(),
            nagle: false,
            backlog: 4096,
            max_connections: 1 << 20,
        }
    }
}

/// `[kv]`
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct KvConfig {
    /// Memory for items, in MiB; what connections keep is beside it.
    pub memory_mb: usize,
    /// Largest item, in KiB.
    pub item_max_kb: usize,
    /// Memory for what connections keep beside items, in MiB: requests and replies in part.
    pub connection_memory_mb: usize,
    /// Seconds for which a request may be incomplete, or a client take nothing of a reply, before its connection
    /// is reset; 0: for ever.
    pub request_timeout_s: u64,
    /// Seconds for which a connection may be idle between requests before it is closed; 0: for ever.
    pub idle_timeout_s: u64,
}

impl Default for KvConfig {
    fn default() -> Self {
        Self {
            memory_mb: 64,
            item_max_kb: 1024,
            connection_memory_mb: 64,
            request_timeout_s: 60,
            idle_timeout_s: 0,
        }
    }
}

impl KvConfig {
    /// How long a request may be incomplete, or a reply unread or unacknowledged; `None`: for ever.
    pub fn request_timeout(&self) -> Option<Duration> {
        (self.request_timeout_s > 0).then(|| Duration::from_secs(self.request_timeout_s))
    }

    /// How long a connection may be idle; `None`: for ever.
    pub fn idle_timeout(&self) -> Option<Duration> {
        (self.idle_timeout_s > 0).then(|| Duration::from_secs(self.idle_timeout_s))
    }
}

impl RunConfig {
    /// Reads and checks a file. The policy that it names is sought beside it.
    ///
    /// # Errors
    /// What is wrong with it: the key, the value, what is allowed.
    pub fn load(path: &Path) -> anyhow::Result<Self> {
        let mut config = configfile::load(path, Self::parse)?;
        if let (Some(policy), Some(directory)) = (&mut config.application.policy, path.parent()) {
            // An absolute path stays as it is.
            *policy = directory.join(&*policy);
        }
        Ok(Self { path: path.to_owned(), ..config })
    }

    /// Reads and checks the text of a file.
    ///
    /// # Errors
    /// As [`load`](Self::load).
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let config: Self = toml::from_str(text)?;
        config.check()?;
        Ok(Self { text: text.to_owned(), ..config })
    }

    fn check(&self) -> anyhow::Result<()> {
        if self.service.app == App::Program && self.service.port.is_none() {
            bail!(
                "`service.port` is missing, and `service.app` names no built-in service that has one; name one (`kv`, \
                 `echo`, `spin`, `delay`, `sockperf`), or the port of the program that `tailplane run CONFIG.toml -- \
                 PROGRAM` starts"
            );
        }
        in_range("service.port", self.service.port(), 1, u16::MAX)?;
        in_range("service.ports", self.service.ports, 1, u16::MAX - self.service.port() + 1)?;
        in_range("dataplane.threads", self.dataplane.threads, 1, 64)?;
        in_range("dataplane.granted", self.dataplane.granted(), 1, self.dataplane.threads)?;
        self.control.check()?;
        in_range("dataplane.memory_mb", self.dataplane.memory_mb.unwrap_or(64), 16, 1 << 24)?;
        in_range("dataplane.batch", self.dataplane.batch, 1, 1024)?;
        in_range("dataplane.spin_us", self.dataplane.spin_us, -1, 10_000_000)?;
        in_range("dataplane.moderation_us", self.dataplane.moderation_us, 0, 1_000)?;
        in_range("dataplane.end_ms", self.dataplane.end_ms, 100, 60_000)?;
        in_range("dataplane.realtime", self.dataplane.realtime(), 0, 99)?;
        self.dataplane.check_scheduler()?;
        self.dataplane.check_classes(&self.service)?;
        self.dataplane.check_sharing()?;
        self.application.check(self.dataplane.domain)?;
        self.policy.check(self.dataplane.domain)?;
        UserName::check_group("dataplane", self.dataplane.user, self.dataplane.group)?;
        if self.dataplane.realtime() > 0 && self.dataplane.spin_us < 0 {
            bail!(
                "`dataplane.realtime` is {}; allowed: only 0 where `dataplane.spin_us` is negative \
                 (a thread that spins for ever at real-time priority starves its processor)",
                self.dataplane.realtime()
            );
        }
        in_range("memory.chunks", self.memory.chunks, 1024, 1 << 26)?;
        in_range("tcp.receive_window_kb", self.tcp.receive_window_kb, 2, 1 << 20)?;
        in_range("tcp.delayed_ack_ms", self.tcp.delayed_ack_ms, 0, 499)?;
        in_range("tcp.time_wait_s", self.tcp.time_wait_s, 1, 240)?;
        in_range("tcp.keepalive_s", self.tcp.keepalive_s, 0, 4 * 3600)?;
        if self.tcp.congestion == CongestionAlgorithm::Dctcp && self.tcp.ecn == Ecn::Off {
            bail!(
                "`tcp.ecn` is \"off\"; allowed: \"accept\" or \"ask\" where `tcp.congestion` is \"dctcp\", which goes by \
                 the marks of routers"
            );
        }
        in_range("tcp.backlog", self.tcp.backlog, 1, 1 << 24)?;
        in_range("tcp.max_connections", self.tcp.max_connections, 1, 1 << 24)?;
        in_range("kv.memory_mb", self.kv.memory_mb, 1, 1 << 20)?;
        in_range("kv.item_max_kb", self.kv.item_max_kb, 1, 1 << 20)?;
        in_range("kv.connection_memory_mb", self.kv.connection_memory_mb, 1, 1 << 20)?;
        in_range("kv.request_timeout_s", self.kv.request_timeout_s, 0, 86_400)?;
        in_range(
            "kv.idle_timeout_s",
            self.kv.idle_timeout_s,
            0,
            Limits::IDLE_TIMEOUT_MAX.as_secs(),
        )?;
        let (cpus, threads) = (&self.dataplane.cpus, self.dataplane.threads as usize);
        if !cpus.is_empty() && cpus.len() != threads {
            bail!("`dataplane.cpus` names {} processors; allowed: none, or {threads}", cpus.len());
        }
        self.network.check(threads)
    }
}

#[cfg(test)]
mod tests {
    use runtime::ServicePolicy;

    use super::*;
    use crate::lab::constants::DEFAULT_PREFIX;

    fn error(text: &str) -> String {
        format!("{:#}", RunConfig::parse(text).expect_err("is refused"))
    }

    #[test]
    fn an_app_is_enough() {
        let config = RunConfig::parse("[service]\napp = \"kv\"\n").expect("is fine");
        assert_eq!(config.service.port(), 11_211);
        assert_eq!(config.network.lab(), DEFAULT_PREFIX);
        let config = RunConfig::parse("[service]\napp = \"spin\"\n").expect("is fine");
        assert_eq!((config.service.app, config.service.port()), (App::Spin, 7_070));
        // A program's port is enough, too.
        let config = RunConfig::parse("[service]\nport = 7000\n").expect("is fine");
        assert_eq!((config.service.app, config.service.port()), (App::Program, 7_000));
        let error = RunConfig::parse("[service]\n").expect_err("neither").to_string();
        assert!(error.contains("`service.port` is missing"), "{error}");
    }

    const READY_SET: &str = "[service]\napp = \"kv\"\nport = 100\nports = 3\n[dataplane]\n\
                             scheduler = \"ready-set\"\n";

    #[test]
    fn ports_have_classes() {
        let more = "policy = \"weighted\"\nweights = [8, 2, 1]\nother_class = 2\n\
                    [dataplane.classes]\n100 = 0\n101 = 1\n";
        let config = RunConfig::parse(&format!("{READY_SET}{more}")).expect("is fine");
        let classes = config.dataplane.ready_set_classes().expect("is fine");
        let of = [100, 101, 102].map(|port| classes.of_port(port));
        assert_eq!((of, classes.count()), ([0, 1, 2], 3));
        assert_eq!(classes.policy(), ServicePolicy::WeightedRoundRobin);
        assert_eq!(classes.weights()[..4], [8, 2, 1, 1]);
        assert_eq!(config.dataplane.describe_scheduler(), "ready-set of 3 classes, weighted");
        let plain = RunConfig::parse(READY_SET).expect("is fine");
        let classes = plain.dataplane.ready_set_classes().expect("is fine");
        assert_eq!((classes.count(), classes.policy()), (1, ServicePolicy::StrictPriority));
    }

    #[test]
    fn wrong_classes_are_refused_with_what_is_allowed() {
        for (more, parts) in [
            (
                "[dataplane.classes]\n100 = 8\n",
                ["`dataplane.classes`: class 8", "0, the most urgent, to 7"],
            ),
            (
                "[dataplane.classes]\n100 = 0\n0100 = 1\n",
                ["`dataplane.classes`: port 100", "name it once"],
            ),
            ("[dataplane.classes]\n100 = 0\n100 = 1\n", ["duplicate key", "100"]),
            ("[dataplane.classes]\nhttp = 0\n", ["port 'http'", "1 to 65535"]),
            ("[dataplane.classes]\n0 = 0\n", ["port '0'", "1 to 65535"]),
            ("[dataplane.classes]\n103 = 0\n", ["names port 103", "100 to 102"]),
            ("other_class = 9\n", ["`dataplane.other_class`: class 9", "to 7"]),
            ("policy = \"fair\"\n", ["fair", "strict-priority"]),
            ("weights = [1]\n", ["`dataplane.weights`", "\"weighted\""]),
            (
                "policy = \"weighted\"\nweights = [0]\n",
                ["`dataplane.weights` is 0", "1 to 1000000"],
            ),
            ("policy = \"weighted\"\nweights = [2, 1]\n", ["has 2 weights", "there are 1"]),
        ] {
            let found = error(&format!("{READY_SET}{more}"));
            for part in parts {
                assert!(found.contains(part), "{part:?} is not in: {found}");
            }
        }
        let other = READY_SET.replace("ready-set", "work-conserving");
        let found = error(&format!("{other}policy = \"round-robin\"\n"));
        assert!(
            found.contains("`dataplane.policy` is for") && found.contains("work-conserving"),
            "{found}"
        );
    }

    #[test]
    fn a_service_has_one_wire() {
        let (lab, interface, shm) = (
            "lab = \"mine\"\n",
            "interface = \"eth0\"\naddress = \"10.0.0.2/24\"\n",
            "shm = \"wire.sock\"\n",
        );
        let text = |keys: String| format!("[service]\napp = \"kv\"\n[network]\n{keys}");
        for one in [lab, interface, shm] {
            RunConfig::parse(&text(one.to_owned())).expect("one wire");
        }
        for (keys, named) in [
            (format!("{lab}{interface}"), "network.lab and network.interface; keep one"),
            (format!("{lab}{shm}"), "network.lab and network.shm; keep one"),
            (format!("{interface}{shm}"), "network.interface and network.shm; keep one"),
            (
                format!("{lab}{interface}{shm}"),
                "network.lab and network.interface and network.shm; keep one",
            ),
        ] {
            let found = error(&text(keys));
            assert!(found.contains(named), "{named:?} is not in: {found}");
        }
    }

    #[test]
    fn a_policy_is_sought_beside_its_configuration() {
        let directory = crate::private::directory("policy").expect("made");
        let path = directory.path().join("run.toml");
        let policy = |named: &str| {
            let text = format!("[service]\napp = \"kv\"\n[application]\npolicy = \"{named}\"\n");
            std::fs::write(&path, text).expect("written");
            RunConfig::load(&path).expect("is fine").application.policy.expect("named")
        };
        assert_eq!(policy("calls.toml"), directory.path().join("calls.toml"));
        assert_eq!(policy("/etc/calls.toml"), Path::new("/etc/calls.toml"));
    }

    #[test]
    fn errors_name_the_key_the_value_and_what_is_allowed() {
        let app = "[service]\napp = \"kv\"\n";
        let gateway = |via: &str| {
            let network = "[network]\ninterface = \"eth0\"\naddress = \"10.0.0.2/24\"";
            format!("{app}{network}\ngateway = \"{via}\"\n")
        };
        for (text, parts) in [
            ("[service]\napp = \"kvv\"\n", ["kvv", "echo"]),
            (
                "[service]\napp = \"kv\"\nport = 65535\nports = 2\n",
                ["`service.ports` is 2", "1 to 1"],
            ),
            (&format!("{app}[dataplane]\nbatch = 0\n"), ["`dataplane.batch` is 0", "1 to 1024"]),
            (&format!("{app}[dataplane]\nbacth = 1\n"), ["bacth", "batch"]),
            (&format!("{app}[dataplane]\ncpus = [0, 1]\n"), ["names 2 processors", "none, or 1"]),
            (&format!("{app}[network]\ninterface = \"eth0\"\n"), ["network.address", "both"]),
            (
                &format!("{app}[network]\ninterface = \"eth0\"\naddress = \"10.0.0.2\"\n"),
                ["'10.0.0.2'", "0 to 32"],
            ),
            (&gateway("10.0.0.2"), ["by 10.0.0.2", "a neighbour"]),
            (&gateway("10.0.1.1"), ["by 10.0.1.1", "a neighbour"]),
            (
                &format!("{app}[kv]\nidle_timeout_s = 86400\n"),
                ["`kv.idle_timeout_s` is 86400", "0 to 43200"],
            ),
            (&format!("{app}[tcp]\nbacklog = \"many\"\n"), ["backlog", "many"]),
        ] {
            let found = error(text);
            for part in parts {
                assert!(found.contains(part), "{part:?} is not in: {found}");
            }
        }
    }
}
