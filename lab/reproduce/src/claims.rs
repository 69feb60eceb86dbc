//! What the papers claim, and the goals that this project sets itself: `claims.toml`.
//!
//! ```
//! use reproduce::Claims;
//! let claims = Claims::builtin()?;
//! let claim = claims.get("ix.fig5a.core_scaling_efficiency").unwrap();
//! assert!(claim.judge(0.97) && !claim.judge(0.9));
//! assert_eq!(claim.meets_paper(0.97), Some(false));
//! # Ok::<(), anyhow::Error>(())
//! ```

use anyhow::{anyhow, bail};
use serde::{Deserialize, Serialize};
use strum::Display;

use crate::number::Finite;

/// The list that every result is judged by, as it stands in the source tree.
const BUILTIN: &str = include_str!("../claims.toml");

/// Deviation at which a figure that should be *equal* still is, as a share of it: the papers
/// print two or three digits, and read some of them from a plot.
pub const EQUAL_TOLERANCE: f64 = 0.05;

/// Which way is better.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Better {
    /// More is better: met at the goal and above.
    Higher,
    /// Less is better: met at the goal and below.
    Lower,
    /// A model must agree: met within [`Claim::tolerance`] of the goal, either way.
    Equal,
}

/// How a number came to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, Display)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum Mode {
    /// Measured on real threads.
    Real,
    /// The real dataplane code under the calibrated simulator.
    Sim,
    /// A queueing model.
    Theory,
    /// The hardware model of HyperPlane.
    Model,
}

/// One quantitative claim.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claim {
    /// Its name: paper, figure, quantity, with dots between.
    pub id: String,
    /// What is measured, in words, with its unit where it has one.
    pub text: String,
    /// What the paper measured; absent where the paper did not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub paper: Option<Finite>,
    /// What we want.
    pub goal: Finite,
    /// Which way is better.
    pub better: Better,
    /// How it is to be measured.
    pub mode: Mode,
    /// For [`Better::Equal`]: deviation that still counts as equal, as a share of the goal.
    #[serde(default = "equal_tolerance")]
    pub tolerance: f64,
}

fn equal_tolerance() -> f64 {
    EQUAL_TOLERANCE
}

impl Claim {
    /// Whether `measured` meets the goal. What is not a number never does.
    pub fn judge(&self, measured: f64) -> bool {
        self.reaches(measured, self.goal)
    }

    /// Whether `measured` is at least as good as the paper's figure; absent where it has none.
    pub fn meets_paper(&self, measured: f64) -> Option<bool> {
        self.paper.map(|paper| self.reaches(measured, paper))
    }

    fn reaches(&self, measured: f64, bar: Finite) -> bool {
        let bar = bar.get();
        match self.better {
            Better::Higher => measured >= bar,
            Better::Lower => measured <= bar,
            Better::Equal => (measured - bar).abs() <= self.tolerance * bar.abs(),
        }
    }

    /// Why the entry cannot be used, if it cannot.
    fn fault(&self) -> Option<String> {
        let parts = self.id.split('.').count();
        let plain = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '.';
        if parts < 3 || self.id.split('.').any(str::is_empty) || !self.id.chars().all(plain) {
            return Some("its id is not paper.figure.quantity".to_owned());
        }
        if self.text.trim().is_empty() {
            return Some("its text is empty".to_owned());
        }
        if self.better == Better::Equal && self.goal.get() == 0.0 {
            return Some("nothing but zero is equal to a goal of zero; say \"lower\"".to_owned());
        }
        if !(self.tolerance >= 0.0 && self.tolerance < 1.0) {
            return Some(format!("its tolerance {} is not in 0 to 1", self.tolerance));
        }
        None
    }
}

/// All claims, in the order of the file.
#[derive(Clone, Debug, PartialEq)]
pub struct Claims(Vec<Claim>);

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    claim: Vec<Claim>,
}

impl Claims {
    /// The claims of this source tree.
    ///
    /// # Errors
    /// The file that was built in is not well formed; its test keeps that from a release.
    pub fn builtin() -> anyhow::Result<Self> {
        Self::parse(BUILTIN)
    }

    /// The claims of a text in the format of `claims.toml`.
    ///
    /// # Errors
    /// The text is not of that format, an entry is incomplete, or an id stands twice.
    pub fn parse(text: &str) -> anyhow::Result<Self> {
        let File { claim: claims } =
            toml::from_str(text).map_err(|error| anyhow!("reading the list of claims: {error}"))?;
        for (index, claim) in claims.iter().enumerate() {
            let id = &claim.id;
            if let Some(fault) = claim.fault() {
                bail!("claim `{id}` of the list: {fault}");
            }
            if claims[..index].iter().any(|earlier| earlier.id == *id) {
                bail!("claim `{id}` stands in the list twice; rename or remove one");
            }
        }
        Ok(Self(claims))
    }

    /// The claim of that name.
    pub fn get(&self, id: &str) -> Option<&Claim> {
        self.0.iter().find(|claim| claim.id == id)
    }

    /// All, in the order of the file.
    pub fn iter(&self) -> std::slice::Iter<'_, Claim> {
        self.0.iter()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn claim(better: &str, goal: f64) -> Claim {
        let text = format!(
            "[[claim]]\nid = \"a.b.c\"\ntext = \"t\"\npaper = {goal}\ngoal = {goal}\n\
             better = \"{better}\"\nmode = \"sim\"\n"
        );
        Claims::parse(&text).unwrap().get("a.b.c").unwrap().clone()
    }

    #[test]
    fn the_list_is_complete_and_its_names_are_unique() {
        let claims = Claims::builtin().unwrap();
        let mut ids: Vec<&str> = claims.iter().map(|claim| claim.id.as_str()).collect();
        assert_eq!(ids.len(), BUILTIN.matches("[[claim]]").count());
        assert!(ids.len() >= 40, "{} claims", ids.len());
        ids.sort_unstable();
        ids.dedup();
        assert_eq!(ids.len(), claims.iter().count());
        for claim in claims.iter() {
            assert_eq!(claim.fault(), None, "{}", claim.id);
            // A goal meets itself, and the better of goal and paper meets both.
            assert!(claim.judge(claim.goal.get()), "{}", claim.id);
            assert!(claim.text.len() > 20, "{}", claim.id);
            assert!(
                ["ix.", "zygos.", "hyperplane.", "qwait.", "tcp."]
                    .iter()
                    .any(|paper| claim.id.starts_with(paper)),
                "{}",
                claim.id
            );
        }
    }

    #[test]
    fn each_direction_is_judged_its_own_way() {
        let higher = claim("higher", 2.0);
        assert!(higher.judge(2.0) && higher.judge(3.0) && !higher.judge(1.999));
        let lower = claim("lower", 2.0);
        assert!(lower.judge(2.0) && lower.judge(0.0) && !lower.judge(2.001));
        let equal = claim("equal", 2.0);
        assert!(equal.judge(2.09) && equal.judge(1.91));
        assert!(!equal.judge(2.11) && !equal.judge(1.89));
        for claim in [higher, lower, equal] {
            assert!(!claim.judge(f64::NAN));
            assert_eq!(claim.meets_paper(2.0), Some(true));
            assert_eq!(Claim { paper: None, ..claim }.meets_paper(2.0), None);
        }
    }

    #[test]
    fn faults_are_named() {
        let entry = |id: &str, goal: &str| {
            format!(
                "[[claim]]\nid = \"{id}\"\ntext = \"t\"\ngoal = {goal}\nbetter = \"equal\"\n\
                 mode = \"real\"\n"
            )
        };
        let error = |text: &str| Claims::parse(text).unwrap_err().to_string();
        assert!(error(&entry("a.b.c", "0.0")).contains("say \"lower\""));
        assert!(error(&entry("a.b", "1.0")).contains("paper.figure.quantity"));
        assert!(error(&entry("a..c", "1.0")).contains("paper.figure.quantity"));
        assert!(error(&entry("a.b.c", "nan")).contains("not a number"));
        let twice = entry("a.b.c", "1.0") + &entry("a.b.c", "2.0");
        assert!(error(&twice).contains("twice"));
        assert!(error("[[claim]]\nid = \"a.b.c\"\n").contains("missing field"));
        assert!(error(&(entry("a.b.c", "1.0") + "gaol = 2\n")).contains("gaol"));
    }

    proptest! {
        #[test]
        fn more_is_never_judged_worse(goal in -1e6..1e6, a in -1e6..1e6, b in -1e6..1e6) {
            let (low, high) = if a < b { (a, b) } else { (b, a) };
            let higher = claim("higher", goal);
            prop_assert!(!higher.judge(low) || higher.judge(high));
            let lower = claim("lower", goal);
            prop_assert!(!lower.judge(high) || lower.judge(low));
        }
    }
}
