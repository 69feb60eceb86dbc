//! `[control]`: who may control the service while it runs, and how they find it.
//!
//! ```toml
//! [control]
//! name = "kv"       # the file's name without its ending, where nothing is said
//! socket = true     # or false: nobody; where nothing is said: if the run directory can be used
//! policy = "energy" # this and all further keys are for the daemon, which reads the same file
//! ```

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::bail;
use serde::Deserialize;

/// Keys that the control plane's daemon reads and checks.
const OF_THE_DAEMON: [&str; 11] = [
    "autostart",
    "background",
    "cores",
    "floor_us",
    "over",
    "period_ms",
    "policy",
    "program",
    "restart",
    "sequence",
    "slo_us",
];

/// See the module's comment.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
pub struct ControlConfig {
    /// What the service is called.
    pub name: Option<String>,
    /// Whether it has a control socket.
    pub socket: Option<bool>,
    /// The daemon's keys.
    #[serde(flatten)]
    pub others: BTreeMap<String, toml::Value>,
}

impl ControlConfig {
    /// Whether all keys are some that somebody reads, and the name is one.
    ///
    /// # Errors
    /// The key, the value, what is allowed.
    pub fn check(&self) -> anyhow::Result<()> {
        if let Some(key) = self.others.keys().find(|key| !OF_THE_DAEMON.contains(&key.as_str())) {
            bail!(
                "unknown key `control.{key}`; allowed: name, socket, and for the daemon {}",
                OF_THE_DAEMON.join(", ")
            );
        }
        if let Some(name) = &self.name
            && let Err(error) = endpoint::socket_path(Path::new("/"), name)
        {
            bail!("`control.name`: {error}");
        }
        Ok(())
    }

    /// The service's name, of the file at this path; none where it has no socket. A file whose name no service can
    /// have gives it one that is near.
    pub fn service_name(&self, file: &Path) -> Option<String> {
        if self.socket == Some(false) {
            return None;
        }
        let stem = || file.file_stem().map(|stem| stem.to_string_lossy().into_owned());
        let name = self.name.clone().or_else(stem).unwrap_or_default();
        if endpoint::socket_path(Path::new("/"), &name).is_ok() {
            return Some(name);
        }
        let allowed = |c: char| if c.is_ascii_alphanumeric() { c } else { '-' };
        let near: String = name.chars().map(allowed).take(64).collect();
        Some(if near.is_empty() { "service".to_owned() } else { near })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> anyhow::Result<ControlConfig> {
        let config: ControlConfig = toml::from_str(text)?;
        config.check()?;
        Ok(config)
    }

    #[test]
    fn names_come_from_the_file_or_the_key() {
        let name =
            |text: &str, file: &str| parse(text).expect("is fine").service_name(Path::new(file));
        assert_eq!(name("", "/etc/tailplane/services/kv.toml").as_deref(), Some("kv"));
        assert_eq!(name("name = \"cache-1\"", "kv.toml").as_deref(), Some("cache-1"));
        assert_eq!(name("socket = false", "kv.toml"), None);
        assert_eq!(name("", "my kv!.toml").as_deref(), Some("my-kv-"));
        assert_eq!(name("", "").as_deref(), Some("service"));
    }

    #[test]
    fn the_daemons_keys_are_its_own_and_unknown_ones_nobodys() {
        let text = "policy = \"energy\"\nslo_us = 500\n[background]\ncgroup = \"batch\"\n";
        assert_eq!(parse(text).expect("is fine").others.len(), 3);
        for (text, parts) in [
            ("polcy = \"energy\"", ["`control.polcy`", "policy"]),
            ("name = \"a/b\"", ["`control.name`", "letters"]),
            ("socket = \"yes\"", ["socket", "yes"]),
        ] {
            let error = parse(text).expect_err("is refused").to_string();
            for part in parts {
                assert!(error.contains(part), "{part:?} is not in: {error}");
            }
        }
    }
}
