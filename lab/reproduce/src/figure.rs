//! What a figure is: its name, what it fills, and the function that runs it.
//!
//! `C` is the caller's own context (its machine, its lab); this crate never looks into it. A figure
//! is one small file with one constant, and the list of them is a plain slice:
//!
//! ```
//! use reproduce::{Claims, Figure, Measured, Options, Setup, Silent, Takes, find};
//! struct Lab;
//! const CROSSING: Figure<Lab> = Figure {
//!     id: "ix/sec4",
//!     title: "Cost of a protected crossing",
//!     section: "IX §4.4",
//!     what: "One crossing between dataplane and application, there and back.",
//!     claims: &["ix.sec4.protection_crossing_ns"],
//!     takes: Takes { quick_s: 1, full_s: 10 },
//!     run: |_lab, recorder| {
//!         recorder.claim("ix.sec4.protection_crossing_ns", Measured::samples(&[95.0, 97.0]))?;
//!         Ok(())
//!     },
//! };
//! let figures = &[CROSSING];
//! let claims = Claims::builtin()?;
//! let mut silent = Silent;
//! let mut setup = Setup::new(&claims, Options::QUICK, &mut silent);
//! let result = find(figures, "ix/sec4")?.reproduce(&mut Lab, &mut setup)?;
//! assert_eq!(result.claims[0].met, Some(true));
//! assert!(find(figures, "ix/sex4").is_err_and(|error| error.to_string().contains("ix/sec4")));
//! # Ok::<(), anyhow::Error>(())
//! ```

use std::any::Any;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use anyhow::{Context, anyhow};

use crate::claims::Claims;
use crate::progress::Progress;
use crate::record::{Options, Recorder};
use crate::result::{ClaimResult, FORMAT, FigureResult};

/// How long a run takes, in seconds, for `list`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Takes {
    /// With [`Options::quick`].
    pub quick_s: u32,
    /// Without.
    pub full_s: u32,
}

/// One figure or table of a paper, run in the caller's context `C`.
pub struct Figure<C: ?Sized> {
    /// Its name: paper and figure, `ix/fig4`.
    pub id: &'static str,
    /// In words.
    pub title: &'static str,
    /// Where it stands: `IX (TOCS'16) §5.2, Figure 4`.
    pub section: &'static str,
    /// What is run, one paragraph.
    pub what: &'static str,
    /// The claims that it fills.
    pub claims: &'static [&'static str],
    /// How long it takes.
    pub takes: Takes,
    /// Runs it. An error ends the run and keeps what was recorded; [`not_run`] says that it cannot
    /// be run at all.
    pub run: fn(&mut C, &mut Recorder<'_>) -> anyhow::Result<()>,
}

/// Ends a figure's run because this machine cannot do it; the reason is shown as it is.
///
/// # Errors
/// Always: `return not_run("needs 8 cores; this machine has 2")`.
pub fn not_run<T>(reason: impl Into<String>) -> anyhow::Result<T> {
    Err(anyhow::Error::msg(reason.into()))
}

/// What all figures of one call share.
pub struct Setup<'a> {
    /// What results are judged by.
    pub claims: &'a Claims,
    /// How figures are to be run.
    pub options: Options,
    /// Conditions that hold for all of them; [`measure::conditions::collect`] gives the machine's.
    pub conditions: BTreeMap<String, String>,
    /// Where steps are reported.
    pub progress: &'a mut dyn Progress,
}

impl<'a> Setup<'a> {
    /// Without conditions of the machine.
    pub fn new(claims: &'a Claims, options: Options, progress: &'a mut dyn Progress) -> Self {
        Self { claims, options, conditions: BTreeMap::new(), progress }
    }
}

impl<C: ?Sized> Figure<C> {
    /// Runs it. Whatever happens in the run is in the result: an error or a panic makes it
    /// partial, or not run where nothing was measured.
    ///
    /// # Errors
    /// The figure names a claim that is not in the list; nothing was run.
    pub fn reproduce(
        &self,
        context: &mut C,
        setup: &mut Setup<'_>,
    ) -> anyhow::Result<FigureResult> {
        let result = FigureResult {
            format: FORMAT,
            figure: self.id.to_owned(),
            title: self.title.to_owned(),
            section: self.section.to_owned(),
            what: self.what.to_owned(),
            conditions: setup.conditions.clone(),
            claims: self.claim_results(setup.claims)?,
            repeats: setup.options.repeats,
            quick: setup.options.quick,
            ..FigureResult::default()
        };
        setup.progress.begin(self.id);
        let mut recorder = Recorder::new(result, setup.claims, setup.options, &mut *setup.progress);
        // The recorder is whole after each of its calls, so a panic between them leaves nothing
        // half done in it; the context is the figure's to repair, as after an error.
        let outcome = catch_unwind(AssertUnwindSafe(|| (self.run)(context, &mut recorder)))
            .unwrap_or_else(|panic| Err(anyhow!("the figure panicked: {}", panic_text(&*panic))));
        Ok(recorder.finish(outcome))
    }

    /// Its claims, none of them measured.
    fn claim_results(&self, claims: &Claims) -> anyhow::Result<Vec<ClaimResult>> {
        let result = |id: &&str| {
            let claim = claims.get(id).with_context(|| {
                let figure = self.id;
                format!(
                    "figure {figure} fills claim `{id}`, which is not in claims.toml; correct one of them"
                )
            })?;
            Ok(ClaimResult::not_run(claim, ""))
        };
        self.claims.iter().map(result).collect()
    }

    /// The paper's part of the name: `ix` of `ix/fig4`.
    pub fn paper_name(&self) -> &'static str {
        self.id.split('/').next().unwrap_or(self.id)
    }
}

fn panic_text(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("without a message")
}

/// What is wrong with a list of figures: names that are no names or stand twice, claims that are
/// unknown or filled twice. Empty where all is well; for a test beside the list.
pub fn faults<C: ?Sized>(figures: &[Figure<C>], claims: &Claims) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, figure) in figures.iter().enumerate() {
        let id = figure.id;
        let plain = |letter: char| letter.is_ascii_lowercase() || letter.is_ascii_digit();
        let parts: Vec<&str> = id.split('/').collect();
        if parts.len() != 2 || parts.iter().any(|part| part.is_empty() || !part.chars().all(plain))
        {
            faults.push(format!("figure `{id}`: its name is not paper/figure in small letters"));
        }
        if [figure.title, figure.section, figure.what].iter().any(|text| text.trim().is_empty()) {
            faults.push(format!("figure {id}: title, section or description is empty"));
        }
        if let Err(error) = figure.claim_results(claims) {
            faults.push(error.to_string());
        }
        for earlier in &figures[..index] {
            if earlier.id == id {
                faults.push(format!("figure {id} stands in the list twice"));
            }
            for claim in earlier.claims.iter().filter(|claim| figure.claims.contains(claim)) {
                faults.push(format!("claim `{claim}` is filled by {} and {id}", earlier.id));
            }
        }
    }
    faults
}

/// There is no figure of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("unknown figure '{asked}'; {}`tailplane reproduce list` names all", meant(.near))]
pub struct UnknownFigure {
    /// What was asked for.
    pub asked: String,
    /// Names that are like it, the likest first.
    pub near: Vec<String>,
}

fn meant(near: &[String]) -> String {
    match near {
        [] => String::new(),
        [one] => format!("did you mean {one}? "),
        [first @ .., last] => format!("did you mean {} or {last}? ", first.join(", ")),
    }
}

/// The figure of that name; capitals, and a dot for the slash, are forgiven.
///
/// # Errors
/// There is none; the error names those that are near.
pub fn find<'a, C: ?Sized>(
    figures: &'a [Figure<C>],
    asked: &str,
) -> Result<&'a Figure<C>, UnknownFigure> {
    let name = normal(asked);
    figures.iter().find(|figure| figure.id == name).ok_or_else(|| UnknownFigure {
        asked: shortened(asked),
        near: near(&name, figures.iter().map(|figure| figure.id)),
    })
}

/// The figures that a word names: `all`, a paper (`ix`), or one figure (`ix/fig4`).
///
/// # Errors
/// As [`find`].
pub fn select<'a, C: ?Sized>(
    figures: &'a [Figure<C>],
    asked: &str,
) -> Result<Vec<&'a Figure<C>>, UnknownFigure> {
    let name = normal(asked);
    let paper = name.trim_end_matches('/');
    let named: Vec<_> =
        figures.iter().filter(|figure| paper == "all" || figure.paper_name() == paper).collect();
    if named.is_empty() { Ok(vec![find(figures, asked)?]) } else { Ok(named) }
}

/// Longest name that is looked for: longer ones are nobody's.
const NAME_MAX: usize = 64;
/// Near names that an error lists.
const NEAR_MAX: usize = 3;

fn shortened(asked: &str) -> String {
    asked.chars().take(NAME_MAX).collect()
}

fn normal(asked: &str) -> String {
    shortened(asked.trim()).to_lowercase().replace('.', "/")
}

/// Those of `names` that `asked` may have meant, the likest first.
fn near<'a>(asked: &str, names: impl Iterator<Item = &'a str>) -> Vec<String> {
    let allowed = (asked.chars().count() / 3).max(2);
    let mut near: Vec<(usize, &str)> = names
        .filter_map(|name| {
            let edits = strsim::osa_distance(asked, name);
            // A part of the name (`fig4`, `table`) means it as well, if less surely.
            let part = asked.len() >= 3 && name.contains(asked);
            (edits <= allowed || part).then_some((edits, name))
        })
        .collect();
    near.sort_unstable();
    near.into_iter().take(NEAR_MAX).map(|(_, name)| name.to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn figure(id: &'static str, claims: &'static [&'static str]) -> Figure<()> {
        Figure {
            id,
            title: "title",
            section: "section",
            what: "what",
            claims,
            takes: Takes { quick_s: 1, full_s: 2 },
            run: |(), _| Ok(()),
        }
    }

    fn figures() -> Vec<Figure<()>> {
        ["ix/fig4", "ix/fig5a", "ix/fig6", "ix/table3", "zygos/fig6", "zygos/table1"]
            .map(|id| figure(id, &[]))
            .into()
    }

    #[test]
    fn a_wrong_name_is_answered_with_near_ones() {
        let figures = figures();
        assert_eq!(find(&figures, "ix/fig4").map(|figure| figure.id), Ok("ix/fig4"));
        assert_eq!(find(&figures, " IX.Fig4 ").map(|figure| figure.id), Ok("ix/fig4"));
        let error = |asked: &str| find(&figures, asked).map(|_| ()).unwrap_err().to_string();
        assert_eq!(
            error("zygos/tabel1"),
            "unknown figure 'zygos/tabel1'; did you mean zygos/table1? \
             `tailplane reproduce list` names all"
        );
        assert!(error("ix/fg4").contains("did you mean ix/fig4"), "{}", error("ix/fg4"));
        assert!(error("table").contains("ix/table3 or zygos/table1?"), "{}", error("table"));
        assert_eq!(
            error("hyperplane"),
            "unknown figure 'hyperplane'; `tailplane reproduce list` names all"
        );
        assert!(error(&"x".repeat(1_000_000)).len() < 200);
    }

    #[test]
    fn words_name_one_many_or_all() {
        let figures = figures();
        let count = |asked: &str| select(&figures, asked).map(|named| named.len());
        assert_eq!((count("all"), count("ix"), count("zygos/")), (Ok(6), Ok(4), Ok(2)));
        assert_eq!(count("ix/fig6"), Ok(1));
        assert!(count("qwait").is_err());
    }

    #[test]
    fn faults_of_a_list_are_named() {
        let claims = Claims::builtin().unwrap();
        assert_eq!(faults(&figures(), &claims), Vec::<String>::new());
        let known = &["ix.fig5a.core_scaling_efficiency"];
        let list =
            [figure("ix/fig4", known), figure("ix/fig4", known), figure("Ix", &["no.such.claim"])];
        let faults = faults(&list, &claims).join("\n");
        for part in ["ix/fig4 stands in the list twice", "filled by ix/fig4 and ix/fig4"] {
            assert!(faults.contains(part), "{faults}");
        }
        assert!(faults.contains("`Ix`: its name") && faults.contains("no.such.claim"), "{faults}");
    }

    proptest! {
        #[test]
        fn any_name_is_answered(asked in ".{0,100}") {
            let figures = figures();
            if let Err(error) = select(&figures, &asked) {
                prop_assert!(error.near.len() <= NEAR_MAX);
            }
        }
    }
}
