//! How this crate's models, and those of the crates that build on it, seed mistakes.

use std::fmt::Debug;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::string::String;

pub use crate::mutants::{Mutant, mutate};

/// Checks a model as it is, then with each mistake, set by `mutate`: the model must then fail the assertion whose
/// message contains the text beside the mistake. Any other failure, loom's limit on branches included, is one of
/// this check.
pub fn check<M: Copy + Debug>(
    mutate: fn(Option<M>),
    mistakes: &[(M, &str)],
    model: impl Fn() + Copy + Sync + Send + 'static,
) {
    loom::model(model);
    for &(mistake, assertion) in mistakes {
        mutate(Some(mistake));
        let failed = catch_unwind(AssertUnwindSafe(|| loom::model(model)));
        mutate(None);
        let Err(payload) = failed else { panic!("no model finds {mistake:?}") };
        let text = payload.downcast_ref::<&str>().map(|&text| String::from(text));
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned()).unwrap_or_default();
        assert!(
            text.contains(assertion),
            "{mistake:?} must fail {assertion:?}, and failed by {text:?}"
        );
    }
}
