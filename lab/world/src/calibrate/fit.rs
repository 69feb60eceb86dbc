//! Medians, and lines through them.

/// The median; sorts the values. None of none.
pub(super) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        odd if odd % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

/// What is taken once, and what for each.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Line {
    pub once: f64,
    pub each: f64,
}

/// The line through points (how many, nanoseconds) by Theil and Sen: the median of the slopes between any
/// two, so that no single disturbed point turns it. Neither part is negative.
pub(super) fn line(points: &[(f64, f64)]) -> Option<Line> {
    let mut slopes = Vec::new();
    for (index, a) in points.iter().enumerate() {
        for b in &points[index + 1..] {
            if a.0 != b.0 {
                slopes.push((b.1 - a.1) / (b.0 - a.0));
            }
        }
    }
    let each = median(&mut slopes)?.max(0.0);
    let mut rests: Vec<f64> = points.iter().map(|(count, ns)| ns - each * count).collect();
    Some(Line { once: median(&mut rests)?.max(0.0), each })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_survives_a_wrong_point() {
        let mut points: Vec<(f64, f64)> =
            [1.0, 2.0, 4.0, 8.0, 16.0, 64.0].map(|count| (count, 100.0 + 7.0 * count)).into();
        assert_eq!(line(&points), Some(Line { once: 100.0, each: 7.0 }));
        points[2].1 = 9_000.0;
        let found = line(&points).expect("a line");
        assert!((found.each - 7.0).abs() < 0.5 && (found.once - 100.0).abs() < 5.0, "{found:?}");
        assert_eq!(line(&[(1.0, 5.0)]), None);
        assert_eq!(line(&[(1.0, 5.0), (2.0, 3.0)]), Some(Line { once: 4.0, each: 0.0 }));
    }

    #[test]
    fn medians() {
        assert_eq!(median(&mut []), None);
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0, 2.0, 3.0]), Some(2.5));
    }
}
