//! What happened, for whoever wants to know: each event is one log line, and goes to those who follow.

use std::collections::{BTreeMap, VecDeque};

use serde::Serialize;

/// Events that wait to be taken; of more, the latest.
const EVENTS_MAX: usize = 4_096;

/// How much an event matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// It is as it should be.
    Info,
    /// Something failed, and is tried again or done without.
    Warning,
    /// Something failed that a person should look at.
    Error,
}

/// Something that happened. `daemon` is the service of what concerns no single one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Event {
    /// Counted from one since the daemon started.
    pub number: u64,
    /// When, in milliseconds since 1970.
    pub unix_ms: u64,
    /// How much it matters.
    pub severity: Severity,
    /// Which service it concerns.
    pub service: String,
    /// What kind of thing it is: words with dashes between.
    pub kind: &'static str,
    /// The particulars.
    pub fields: BTreeMap<&'static str, String>,
}

impl Event {
    /// The particulars as `key=value`, with quotes where a value has spaces.
    pub fn detail(&self) -> String {
        let show = |(key, value): (&&str, &String)| {
            let plain = !value.is_empty() && !value.contains([' ', '"', '=', '\n']);
            if plain { format!("{key}={value}") } else { format!("{key}={value:?}") }
        };
        self.fields.iter().map(show).collect::<Vec<_>>().join(" ")
    }
}

/// Collects events, and writes each into the log.
#[derive(Debug, Default)]
pub struct Events {
    unix_ms: u64,
    number: u64,
    waiting: VecDeque<Event>,
    /// How many of each kind there were.
    counts: BTreeMap<&'static str, u64>,
}

impl Events {
    /// The moment of what is said from now on, in milliseconds since 1970.
    pub fn set_unix_ms(&mut self, unix_ms: u64) {
        self.unix_ms = unix_ms;
    }

    /// Something happened.
    pub fn say<const N: usize>(
        &mut self,
        severity: Severity,
        service: &str,
        kind: &'static str,
        fields: [(&'static str, String); N],
    ) {
        self.number += 1;
        *self.counts.entry(kind).or_default() += 1;
        let event = Event {
            number: self.number,
            unix_ms: self.unix_ms,
            severity,
            service: service.to_owned(),
            kind,
            fields: fields.into(),
        };
        write_down(&event);
        if self.waiting.len() == EVENTS_MAX {
            self.waiting.pop_front();
        }
        self.waiting.push_back(event);
    }

    /// What happened since the last call.
    pub fn take(&mut self) -> Vec<Event> {
        self.waiting.drain(..).collect()
    }

    /// How many of each kind there were.
    pub fn counts(&self) -> &BTreeMap<&'static str, u64> {
        &self.counts
    }
}

fn write_down(event: &Event) {
    let (service, kind, detail) = (event.service.as_str(), event.kind, event.detail());
    match event.severity {
        Severity::Info => tracing::info!(service, kind, detail),
        Severity::Warning => tracing::warn!(service, kind, detail),
        Severity::Error => tracing::error!(service, kind, detail),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn particulars_are_keys_and_values() {
        let mut events = Events::default();
        events.set_unix_ms(7);
        let reason = "no such \"thing\"".to_owned();
        events.say(
            Severity::Warning,
            "kv",
            "refused",
            [("thread", "3".to_owned()), ("reason", reason)],
        );
        let taken = events.take();
        assert_eq!(taken[0].detail(), r#"reason="no such \"thing\"" thread=3"#);
        assert_eq!((taken[0].number, taken[0].unix_ms), (1, 7));
        let json = serde_json::to_value(&taken[0]).expect("an object");
        assert_eq!(json["severity"], "warning");
        assert_eq!(json["fields"]["thread"], "3");
        assert_eq!(events.counts()["refused"], 1);
        assert!(events.take().is_empty());
    }

    /// The kind is the first string of a call, or the second where the first is whom it concerns.
    fn kinds_said(source: &str) -> Vec<&str> {
        let calls = source.split(".say(").skip(1);
        let literals = calls.map(|call| call.split('"').skip(1).step_by(2));
        literals.filter_map(|mut words| words.find(|word| *word != "daemon")).collect()
    }

    #[test]
    fn each_kind_is_documented() {
        let sources =
            [include_str!("manager.rs"), include_str!("service.rs"), include_str!("governor.rs")];
        let kinds: Vec<&str> = sources.into_iter().flat_map(kinds_said).collect();
        assert!(kinds.len() > 30, "{kinds:?}");
        assert!(["step", "reloaded", "ended"].iter().all(|kind| kinds.contains(kind)));
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/daemon.md");
        let text = std::fs::read_to_string(path).expect("it is there");
        for kind in kinds {
            assert!(text.contains(&format!("`{kind}`")), "docs/daemon.md does not name {kind}");
        }
    }

    #[test]
    fn of_very_many_the_latest_are_kept() {
        let mut events = Events::default();
        for _ in 0..EVENTS_MAX + 5 {
            events.say(Severity::Info, "kv", "x", []);
        }
        let taken = events.take();
        assert_eq!((taken.len(), taken[0].number), (EVENTS_MAX, 6));
    }
}
