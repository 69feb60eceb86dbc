//! What a check says, and all of them together.

use serde::Serialize;

/// What a check found.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, strum::AsRefStr,
)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Status {
    /// As it should be.
    #[default]
    Ok,
    /// It works, at a cost.
    Warn,
    /// It is not there: something cannot be done.
    Missing,
}

/// One thing that was looked at.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
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
    pub fn ok(name: impl Into<String>, found: impl Into<String>) -> Self {
        Self { found: found.into(), ..Self::of(name) }
    }

    /// A check that has found nothing yet.
    pub fn of(name: impl Into<String>) -> Self {
        Self { name: name.into(), ..Self::default() }
    }

    /// The same check, which finds `good` where things are as they should be, else `bad`: as [`fine_if`](Self::fine_if).
    pub fn either(self, is_fine: bool, good: &str, bad: &str) -> Self {
        let found = if is_fine { good } else { bad }.to_owned();
        Self { found, ..self }.fine_if(is_fine)
    }

    /// The same check, which found what it should, or did not: then [`or_warn`](Self::or_warn) or
    /// [`or_missing`](Self::or_missing) explains what that costs.
    pub fn fine_if(self, is_fine: bool) -> Self {
        Self { status: if is_fine { Status::Ok } else { Status::Warn }, ..self }
    }

    /// The same check, at a cost unless what it found is fine.
    pub fn or_warn(self, cost: impl Into<String>, remedy: impl Into<String>) -> Self {
        if self.status == Status::Ok { self } else { self.warn(cost, remedy) }
    }

    /// The same check, of something that is not there unless what it found is fine.
    pub fn or_missing(self, cost: impl Into<String>, remedy: impl Into<String>) -> Self {
        if self.status == Status::Ok { self } else { self.missing(cost, remedy) }
    }

    /// The same check, of something that works at a cost.
    pub fn warn(self, cost: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: Status::Warn, cost: cost.into(), remedy: remedy.into(), ..self }
    }

    /// The same check, of something that is not there.
    pub fn missing(self, cost: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { status: Status::Missing, ..self.warn(cost, remedy) }
    }

    /// The same check, in a group.
    pub fn of_group(self, group: &'static str) -> Self {
        Self { group, ..self }
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
        let [ok, warn, missing] = [Status::Ok, Status::Warn, Status::Missing].map(count);
        Self { summary: Summary { ok, warn, missing }, checks }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_summary_counts_every_check_once() {
        let check = || Check::ok("n", "f");
        let report = Report::of(vec![check(), check().warn("c", "r"), check().missing("c", "r")]);
        assert_eq!(report.summary, Summary { ok: 1, warn: 1, missing: 1 });
    }

    #[test]
    fn json_has_the_fields_that_scripts_read() {
        let report = Report::of(vec![Check::ok("version", "6.18").warn("c", "r")]);
        let json = serde_json::to_value(&report).unwrap();
        let check = &json["checks"][0];
        assert_eq!(check["status"], "warn");
        assert_eq!(check["name"], "version");
        assert_eq!(check["cost"], "c");
        assert_eq!(json["summary"]["warn"], 1);
    }
}
