//! What a check says, and all of them together.

use serde::Serialize;

/// What a check found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::AsRefStr)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Status {
    /// As it should be.
    Ok,
    /// It works, at a cost.
    Warn,
    /// It is not there: something cannot be done.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// The group: the name of the file that makes the check.
    pub group: &'static str,
    /// What was looked at.
    pub name: String,
    /// The verdict.
    pub status: Status,
    /// What was found.
    pub found: String,
    /// What the missing piece costs; empty where nothing is missing.
    pub cost: String,
    /// What to do about it; empty where there is nothing to do.
    pub remedy: String,
}

impl Check {
    /// A check that found things as they should be.
    pub fn ok(group: &'static str, name: impl Into<String>, found: impl Into<String>) -> Self {
        Self {
            group,
            name: name.into(),
            status: Status::Ok,
            found: found.into(),
            cost: String::new(),
            remedy: String::new(),
        }
    }

    /// The same check, of something that works at a cost.
    pub fn warn(self, cost: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: Status::Warn, cost: cost.into(), remedy: remedy.into(), ..self }
    }

    /// The same check, of something that is not there.
    pub fn missing(self, cost: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: Status::Missing, ..self.warn(cost, remedy) }
    }
}

/// How many checks came out how.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// As they should be.
    pub ok: usize,
    /// At a cost.
    pub warn: usize,
    /// Not there.
    pub missing: usize,
}

/// Everything that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The checks, group by group.
    pub checks: Vec<Check>,
    /// How they came out.
    pub summary: Summary,
}

impl Report {
    /// Counts the checks.
    pub fn of(checks: Vec<Check>) -> Self {
        let count = |status| checks.iter().filter(|check| check.status == status).count();
        let summary = Summary {
            ok: count(Status::Ok),
            warn: count(Status::Warn),
            missing: count(Status::Missing),
        };
        Self { checks, summary }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_every_check_once() {
        let check = || Check::ok("g", "n", "f");
        let report = Report::of(vec![check(), check().warn("c", "r"), check().missing("c", "r")]);
        assert_eq!(report.summary, Summary { ok: 1, warn: 1, missing: 1 });
    }

    #[test]
    fn json_has_the_fields_that_scripts_read() {
        let report = Report::of(vec![Check::ok("kernel", "version", "6.18").warn("c", "r")]);
        let json = serde_json::to_value(&report).unwrap();
        let check = &json["checks"][0];
        assert_eq!(check["status"], "warn");
        assert_eq!(check["name"], "version");
        assert_eq!(check["cost"], "c");
        assert_eq!(json["summary"]["warn"], 1);
    }
}
