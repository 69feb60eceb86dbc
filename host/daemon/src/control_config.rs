//! The `[control]` table of a service's file: what the control plane does for that service.
//!
//! ```
//! use daemon::{ControlConfig, PolicyName};
//! let text = "[service]\napp = \"kv\"\n[control]\npolicy = \"latency-target\"\nslo_us = 500\n";
//! let control = ControlConfig::of_service(text)?;
//! assert_eq!((control.policy, control.period_ms), (PolicyName::LatencyTarget, 100));
//! let error = ControlConfig::of_service("[control]\nperiod_ms = 0").unwrap_err().to_string();
//! assert_eq!(error, "`control.period_ms` is 0; allowed: 1 to 10000");
//! # Ok::<(), anyhow::Error>(())
//! ```
//!
//! All other tables are `tailplane run`'s, which reads the same file and checks them.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use serde::{Deserialize, Serialize};

use crate::config::in_range;

/// Longest name of a service, in bytes.
pub const NAME_MAX: usize = 64;
/// Longest command of a background job, in words.
const WORDS_MAX: usize = 256;

/// Which policy decides.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
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

impl PolicyName {
    /// All of them.
    pub const ALL: [Self; 5] =
        [Self::None, Self::Energy, Self::Consolidation, Self::File, Self::LatencyTarget];

    /// As it is written.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Energy => "energy",
            Self::Consolidation => "consolidation",
            Self::File => "file",
            Self::LatencyTarget => "latency-target",
        }
    }

    /// What is written so.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|name| name.as_str() == text)
    }
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
    /// Whether the service has a control socket; without one the daemon can start and stop it, no more.
    pub socket: bool,
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
            socket: true,
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
        let mut left_out = Vec::new();
        if control.background.take().is_some() {
            left_out.push("background");
        }
        if control.sequence.take().is_some() {
            left_out.push("sequence");
        }
        if !std::mem::take(&mut control.program).is_empty() {
            left_out.push("program");
        }
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
        let text = std::fs::read_to_string(path)
            .with_context(|| format!("cannot read the service's file '{}'", path.display()))?;
        let of_file = || format!("in the service's file '{}'", path.display());
        let control = Self::of_service(&text).with_context(of_file)?;
        let stem = path.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let name = control.name.clone().or(stem).unwrap_or_default();
        check_name(&name).with_context(of_file)?;
        Ok((name, control))
    }

    /// Whether its values are in range and fit each other.
    ///
    /// # Errors
    /// The key, the value, what is allowed.
    pub fn check(&self) -> anyhow::Result<()> {
        if let Some(name) = &self.name {
            check_name(name)?;
        }
        in_range("control.period_ms", self.period_ms, 1, 10_000)?;
        if let Some(slo_us) = self.slo_us
            && !(1.0..=1e7).contains(&slo_us)
        {
            bail!("`control.slo_us` is {slo_us}; allowed: 1 to 10000000");
        }
        if !(0.0..=1e7).contains(&self.floor_us) {
            bail!("`control.floor_us` is {}; allowed: 0 to 10000000", self.floor_us);
        }
        self.check_policy()?;
        let mut seen = self.cores.clone();
        seen.sort_unstable();
        if let Some(pair) = seen.windows(2).find(|pair| pair[0] == pair[1]) {
            bail!(
                "`control.cores` names processor {} twice; allowed: each one at most once",
                pair[0]
            );
        }
        match seen.last() {
            Some(&last) if last > control::sysfs::CPU_MAX => {
                in_range("control.cores", last, 0, control::sysfs::CPU_MAX)?;
            }
            _ => {}
        }
        if let Some(background) = &self.background {
            background.check()?;
        }
        Ok(())
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
                decides.as_str()
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
                over.as_str(),
                policy.as_str()
            ),
            Some(over @ (PolicyName::None | PolicyName::LatencyTarget)) => bail!(
                "`control.over` is \"{}\"; allowed: \"energy\", \"consolidation\" or \"file\"",
                over.as_str()
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

/// Whether a service may be called so: it is part of a path, of commands and of metrics.
///
/// # Errors
/// The name, and what is allowed.
pub fn check_name(name: &str) -> anyhow::Result<()> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    if name.is_empty()
        || name.len() > NAME_MAX
        || name.starts_with('.')
        || !name.chars().all(allowed)
    {
        bail!(
            "a service is called \"{}\"; allowed: 1 to {NAME_MAX} letters, digits, -, _ and ., not with . in front",
            name.escape_debug()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(control: &str) -> String {
        let text = format!("[service]\napp = \"kv\"\n[control]\n{control}");
        format!("{:#}", ControlConfig::of_service(&text).expect_err("is refused"))
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
            ("name = \"a/b\"", ["\"a/b\"", "letters"]),
            ("name = \".x\"", ["\".x\"", "in front"]),
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
                let _ = crate::config::Config::parse(&text);
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
        for name in PolicyName::ALL {
            assert_eq!(PolicyName::parse(name.as_str()), Some(name));
            let text = toml::Value::try_from(name).expect("a word");
            assert_eq!(text.as_str(), Some(name.as_str()));
        }
        assert_eq!(PolicyName::parse("Energy"), None);
    }
}
