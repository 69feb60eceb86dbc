//! The `[control]` table of a service's file: its name, and what the control plane does for it.
//!
//! ```
//! use configfile::{ControlConfig, PolicyName};
//! let text = "[service]\napp = \"kv\"\n[control]\npolicy = \"latency-target\"\nslo_us = 500\n";
//! let control = ControlConfig::of_service(text)?;
//! assert_eq!((control.policy, control.period_ms), (PolicyName::LatencyTarget, 100));
//! let error = ControlConfig::of_service("[control]\nperiod_ms = 0").unwrap_err().to_string();
//! assert_eq!(error, "`control.period_ms` is 0; allowed: 1 to 10000");
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! `tailplane run` reads all tables of the file, this one with them; `tailplaned` this one alone.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::{in_range, load};

/// Longest command of a background job, in words.
const WORDS_MAX: usize = 256;

/// Which policy decides.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    Deserialize,
    Serialize,
    strum::AsRefStr,
    strum::EnumString,
    strum::IntoStaticStr,
    strum::VariantArray,
)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum PolicyName {
    /// None: the service is watched.
    #[default]
    None,
    /// As little energy as the bound allows (IX §5.4).
    Energy,
    /// As many cores for the background job as the bound allows (IX §5.4).
    Consolidation,
    /// A sequence from a file.
    File,
    /// What the measured load needs, over the sequence of another policy.
    LatencyTarget,
}

/// Whether a service that ended is started again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Restart {
    /// Not by the daemon.
    #[default]
    Never,
    /// When it failed: it ended by a signal or with another status than 0, or nobody saw how.
    OnFailure,
}

/// `[control.background]`: the job that gets the cores that the service leaves. One of both keys is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct BackgroundConfig {
    /// A program and its arguments, which the daemon starts.
    pub command: Vec<String>,
    /// A control group, by its name right under the mount; what is in it is the job.
    pub cgroup: Option<String>,
}

/// `[control]`
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(deny_unknown_fields, default)]
pub struct ControlConfig {
    /// What the service is called; the file's stem where nothing is said.
    pub name: Option<String>,
    /// Whether the service has a control socket; without one the daemon can start and stop it, no more. Where nothing is
    /// said: if the run directory can be used.
    pub socket: Option<bool>,
    /// Which policy decides.
    pub policy: PolicyName,
    /// With `latency-target`: over whose sequence.
    pub over: Option<PolicyName>,
    /// The objective, in microseconds: with `latency-target` the 99th percentile of the latency, with the others the
    /// bound on the estimated queueing delay (theirs, where nothing is said).
    pub slo_us: Option<f64>,
    /// With `latency-target`: what of the objective is no queueing, in microseconds.
    pub floor_us: f64,
    /// From one turn of the control loop to the next, in milliseconds.
    pub period_ms: u64,
    /// The file of the policy `file`, or of `latency-target` over it.
    pub sequence: Option<PathBuf>,
    /// Processors in the order in which they are granted, one for each elastic thread; those that the service shows
    /// where nothing is said.
    pub cores: Vec<u32>,
    /// Who gets the cores that are left.
    pub background: Option<BackgroundConfig>,
    /// Whether the daemon starts the service when it starts itself.
    pub autostart: bool,
    /// Whether it starts it again.
    pub restart: Restart,
    /// A program and its arguments, to be served in a process of its own instead of the built-in service.
    pub program: Vec<String>,
}

impl Default for ControlConfig {
    fn default() -> Self {
        Self {
            name: None,
            socket: None,
            policy: PolicyName::None,
            over: None,
            slo_us: None,
            floor_us: 0.0,
            period_ms: 100,
            sequence: None,
            cores: Vec::new(),
            background: None,
            autostart: false,
            restart: Restart::Never,
            program: Vec::new(),
        }
    }
}

/// What is read of a service's file here.
#[derive(Deserialize)]
struct ServiceFile {
    #[serde(default)]
    control: ControlConfig,
}

impl ControlConfig {
    /// The table of a service's file, from its text; all defaults where there is none.
    ///
    /// # Errors
    /// It is no TOML, or the table is wrong: the key, the value, what is allowed.
    pub fn of_service(text: &str) -> anyhow::Result<Self> {
        let file: ServiceFile = toml::from_str(text)?;
        file.control.check()?;
        file.control.check_who_shares()?;
        Ok(file.control)
    }

    /// The table of a service that no file of the daemon configures, from the text that the service describes itself
    /// with; and the keys that were left out.
    ///
    /// A key that would have the daemon start a program, read a file or write to a control group is an order, which the
    /// daemon takes from its own files alone. What is left chooses among the daemon's own policies, and their numbers.
    ///
    /// # Errors
    /// As [`of_service`](Self::of_service).
    pub fn of_description(text: &str) -> anyhow::Result<(Self, Vec<&'static str>)> {
        let mut control = Self::of_service(text)?;
        let orders = [
            ("background", control.background.take().is_some()),
            ("sequence", control.sequence.take().is_some()),
            ("program", !std::mem::take(&mut control.program).is_empty()),
        ];
        let given = orders.into_iter().filter(|(_, is_given)| *is_given);
        let mut left_out: Vec<_> = given.map(|(key, _)| key).collect();
        if control.check_policy().is_err() {
            // Without its sequence this policy has no steps.
            left_out.push("policy");
            (control.policy, control.over) = (PolicyName::None, None);
        }
        (control.autostart, control.restart) = (false, Restart::Never);
        Ok((control, left_out))
    }

    /// Reads a service's file: its name and the table.
    ///
    /// # Errors
    /// As [`of_service`](Self::of_service); or it cannot be read, or has no name that a service may have.
    pub fn load(path: &Path) -> anyhow::Result<(String, Self)> {
        load(path, |text| {
            let control = Self::of_service(text)?;
            let name = control.name_of(path);
            endpoint::check_name(&name)?;
            Ok((name, control))
        })
    }

    /// The name that is said, or the stem of the file at this path.
    fn name_of(&self, file: &Path) -> String {
        let stem = || file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        self.name.clone().or_else(stem).unwrap_or_default()
    }

    /// The service's name, of the file at this path; none where it has no socket. A file whose name no service can
    /// have gives it one that is near.
    pub fn service_name(&self, file: &Path) -> Option<String> {
        if self.socket == Some(false) {
            return None;
        }
        let name = self.name_of(file);
        if endpoint::check_name(&name).is_ok() {
            return Some(name);
        }
        let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let near: String = name.chars().map(allowed).take(64).collect();
        Some(if near.is_empty() { "service".to_owned() } else { near })
    }

    /// Whether its values are in range and fit each other.
    ///
    /// # Errors
    /// The key, the value, what is allowed.
    pub fn check(&self) -> anyhow::Result<()> {
        if let Some(name) = &self.name {
            endpoint::check_name(name).context("`control.name`")?;
        }
        in_range("control.period_ms", self.period_ms, 1, 10_000)?;
        in_range("control.slo_us", self.slo_us.unwrap_or(1.0), 1.0, 1e7)?;
        in_range("control.floor_us", self.floor_us, 0.0, 1e7)?;
        self.check_policy()?;
        let mut seen = self.cores.clone();
        seen.sort_unstable();
        if let Some(pair) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!(
                "`control.cores` names processor {} twice; allowed: each one at most once",
                pair[0]
            );
        }
        let last = seen.last().copied().unwrap_or(0);
        in_range("control.cores", last, 0, control::sysfs::CPU_MAX)?;
        self.background.as_ref().map_or(Ok(()), BackgroundConfig::check)
    }

    /// A job that would never get a core is a mistake in a file. (A person may choose such a policy for a while.)
    fn check_who_shares(&self) -> anyhow::Result<()> {
        let over = self.over.unwrap_or(PolicyName::Energy);
        let decides = if self.policy == PolicyName::LatencyTarget { over } else { self.policy };
        let shares = matches!(decides, PolicyName::Consolidation | PolicyName::File);
        if self.background.is_some() && !shares {
            bail!(
                "`control.background` is given and the policy is \"{}\", which leaves no cores to it; allowed: \
                 \"consolidation\" or \"file\", or \"latency-target\" over one of them",
                decides.as_ref()
            );
        }
        Ok(())
    }

    fn check_policy(&self) -> anyhow::Result<()> {
        let policy = self.policy;
        if policy == PolicyName::LatencyTarget && self.slo_us.is_none() {
            bail!("`control.policy` is \"latency-target\", which needs `control.slo_us`: set it");
        }
        match self.over {
            Some(over) if policy != PolicyName::LatencyTarget => bail!(
                "`control.over` is \"{}\" and `control.policy` is \"{}\"; allowed: only with \"latency-target\"",
                over.as_ref(),
                policy.as_ref()
            ),
            Some(over @ (PolicyName::None | PolicyName::LatencyTarget)) => bail!(
                "`control.over` is \"{}\"; allowed: \"energy\", \"consolidation\" or \"file\"",
                over.as_ref()
            ),
            _ => {}
        }
        let reads_file = policy == PolicyName::File || self.over == Some(PolicyName::File);
        if reads_file && self.sequence.is_none() {
            bail!(
                "the policy \"file\" needs `control.sequence`: set it to the file of the sequence"
            );
        }
        Ok(())
    }
}

impl BackgroundConfig {
    fn check(&self) -> anyhow::Result<()> {
        in_range(
            "number of words of control.background.command",
            self.command.len(),
            0,
            WORDS_MAX,
        )?;
        let plain =
            |name: &String| !name.is_empty() && !name.contains('/') && name != "." && name != "..";
        match (&self.cgroup, self.command.is_empty()) {
            (Some(_), false) | (None, true) => bail!(
                "`control.background` has `command` and `cgroup`, of which exactly one is to be given"
            ),
            (Some(name), true) if !plain(name) => bail!(
                "`control.background.cgroup` is \"{name}\"; allowed: the name of a group, without slashes"
            ),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use strum::VariantArray;

    use super::*;

    fn error(control: &str) -> String {
        let text = format!("[service]\napp = \"kv\"\n[control]\n{control}");
        format!("{:#}", ControlConfig::of_service(&text).expect_err("is refused"))
    }

    #[test]
    fn names_come_from_the_file_or_the_key() {
        let name = |text: &str, file: &str| {
            let control =
                ControlConfig::of_service(&format!("[control]\n{text}")).expect("is fine");
            control.service_name(Path::new(file))
        };
        assert_eq!(name("", "/etc/tailplane/services/kv.toml").as_deref(), Some("kv"));
        assert_eq!(name("name = \"cache-1\"", "kv.toml").as_deref(), Some("cache-1"));
        assert_eq!(name("socket = false", "kv.toml"), None);
        assert_eq!(name("", "my kv!.toml").as_deref(), Some("my-kv-"));
        assert_eq!(name("", "").as_deref(), Some("service"));
    }

    #[test]
    fn other_tables_are_somebody_elses() {
        let control = ControlConfig::of_service("[service]\napp = 7\n").expect("is fine");
        assert_eq!(control, ControlConfig::default());
    }

    #[test]
    fn errors_name_the_key_the_value_and_what_is_allowed() {
        for (text, parts) in [
            ("polcy = \"energy\"", ["polcy", "policy"]),
            ("policy = \"speed\"", ["speed", "latency-target"]),
            ("policy = \"latency-target\"", ["latency-target", "`control.slo_us`"]),
            ("policy = \"energy\"\nover = \"file\"", ["`control.over`", "latency-target"]),
            (
                "policy = \"latency-target\"\nslo_us = 9\nover = \"none\"",
                ["`control.over` is \"none\"", "consolidation"],
            ),
            ("policy = \"file\"", ["control.sequence", "set it"]),
            ("slo_us = 0.5", ["`control.slo_us` is 0.5", "1 to 10000000"]),
            ("floor_us = -1.0", ["`control.floor_us` is -1", "0 to"]),
            ("period_ms = 10001", ["`control.period_ms` is 10001", "1 to 10000"]),
            ("cores = [1, 2, 1]", ["processor 1 twice", "at most once"]),
            ("cores = [9000]", ["`control.cores` is 9000", "0 to 8191"]),
            ("name = \"a/b\"", ["`control.name`: 'a/b'", "letters"]),
            ("name = \".x\"", ["'.x'", "the first of them no '.'"]),
            ("socket = \"yes\"", ["socket", "yes"]),
            ("background = {}", ["control.background", "exactly one"]),
            ("background = { cgroup = \"..\" }", ["`control.background.cgroup`", "slashes"]),
            ("background = { command = \"x\" }", ["command", "x"]),
            ("background = { cgroup = \"x\" }", ["`control.background`", "\"none\""]),
            (
                "policy = \"energy\"\nbackground = { cgroup = \"x\" }",
                ["leaves no cores", "consolidation"],
            ),
            ("restart = \"always\"", ["always", "on-failure"]),
        ] {
            let found = error(text);
            for part in parts {
                assert!(found.contains(part), "{part:?} is not in: {found}");
            }
        }
    }

    proptest::proptest! {
        /// Keys that exist with values of any kind: read within the ranges, or refused.
        #[test]
        fn any_table_is_in_range_or_an_error(
            lines in proptest::collection::vec((
                "(name|socket|policy|over|slo_us|floor_us|period_ms|sequence|cores|background|autostart|program)",
                "(true|nan|inf|-?[0-9]{1,20}|[0-9]{1,9}\\.[0-9]|\"(energy|file|latency-target|.{0,9})\"|\\[[0-9]{1,5}\\]|\\{ command = \\[\"x\"\\] \\}|[^\n]{0,12})",
            ), 0..6),
            noise in ".{0,60}",
        ) {
            let table: String = lines.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
            for text in [format!("[control]\n{table}"), format!("{noise}\n[control]\n{table}"), noise] {
                let Ok((control, _)) = ControlConfig::of_description(&text) else { continue };
                proptest::prop_assert!((1..=10_000).contains(&control.period_ms));
                proptest::prop_assert!(control.slo_us.is_none_or(|slo_us| (1.0..=1e7).contains(&slo_us)));
                proptest::prop_assert!((0.0..=1e7).contains(&control.floor_us));
                proptest::prop_assert!(control.cores.iter().all(|cpu| *cpu <= control::sysfs::CPU_MAX));
                proptest::prop_assert!(control.background.is_none() && control.sequence.is_none());
            }
        }
    }

    #[test]
    fn a_description_gives_no_orders() {
        let job = "policy = \"consolidation\"\nslo_us = 9\nbackground = { command = [\"x\"] }\n\
                   program = [\"y\"]\nautostart = true\nrestart = \"on-failure\"";
        let read = |table: &str| ControlConfig::of_description(&format!("[control]\n{table}"));
        let (control, left_out) = read(job).expect("a table");
        assert_eq!(left_out, ["background", "program"]);
        let kept = ControlConfig {
            policy: PolicyName::Consolidation,
            slo_us: Some(9.0),
            ..ControlConfig::default()
        };
        assert_eq!(control, kept);
        let file = "policy = \"file\"\nsequence = \"/etc/shadow\"\nbackground = { cgroup = \"x\" }";
        let (control, left_out) = read(file).expect("a table");
        assert_eq!(left_out, ["background", "sequence", "policy"]);
        assert_eq!(control, ControlConfig::default());
        let (control, left_out) = read("policy = \"energy\"\ncores = [3]").expect("a table");
        assert!(left_out.is_empty() && control.cores == [3]);
    }

    #[test]
    fn names_of_policies_are_read_as_they_are_written() {
        for &name in PolicyName::VARIANTS {
            assert_eq!(name.as_ref().parse(), Ok(name));
            let text = toml::Value::try_from(name).expect("a word");
            assert_eq!(text.as_str(), Some(name.as_ref()));
        }
        assert!("Energy".parse::<PolicyName>().is_err());
    }
}
