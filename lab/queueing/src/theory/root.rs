//! Where a tail falls to a goal.

/// The least x from zero on with `tail(x) <= goal`, for a `tail` that falls to zero; infinite where
/// it does not fall that far.
pub(super) fn falls_to(goal: f64, tail: impl Fn(f64) -> f64) -> f64 {
    let mut high = 1.0;
    while tail(high) > goal {
        high *= 2.0;
        if high > 1e15 {
            return f64::INFINITY;
        }
    }
    let mut low = 0.0;
    // Until the ends are neighbours, or nearly.
    for _ in 0..100 {
        let middle = (low + high) / 2.0;
        if tail(middle) > goal { low = middle } else { high = middle }
    }
    high
}
