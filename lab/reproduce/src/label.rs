//! Where a label may stand in a plot: within the area, off other labels, off points and lines.

/// Width of a character at the plot's font size: what wide digits take, so that an estimate is
/// rather too long than too short.
const CHAR: f64 = 7.6;
/// Width of a character of scripts that are written in squares.
const CHAR_WIDE: f64 = 13.5;
/// Most corners of lines that labels keep off: beyond them a plot is full anyway.
const OBSTACLES_MAX: usize = 4_096;
/// Distance between two places of a line that labels keep off.
const STRIDE: f64 = 10.0;

/// How far a line reaches around itself. Less than the distance between a mark's line and its own
/// label.
const LINE_REACH: f64 = 1.0;

/// Estimated width of `text` at the plot's font size.
pub(crate) fn text_width(text: &str) -> f64 {
    text.chars().map(char_width).sum()
}

/// `text`, or as much of its beginning as fits into `length` with an ellipsis.
pub(crate) fn fit(text: &str, length: f64) -> String {
    fit_parts(text, length, false)
}

/// `text`, or as much of its two ends as fits into `length` with an ellipsis between: for names that
/// differ at their ends, and titles that end with a unit.
pub(crate) fn fit_middle(text: &str, length: f64) -> String {
    fit_parts(text, length, true)
}

fn fit_parts(text: &str, length: f64, both: bool) -> String {
    if text_width(text) <= length {
        return text.to_owned();
    }
    let letters: Vec<char> = text.chars().collect();
    let (mut first, mut last) = (0, 0);
    let mut left = length - CHAR;
    while first + last < letters.len() {
        let at_end = both && last < first;
        let letter = if at_end { letters[letters.len() - 1 - last] } else { letters[first] };
        left -= char_width(letter);
        if left < 0.0 {
            break;
        }
        if at_end { last += 1 } else { first += 1 }
    }
    let begin: String = letters[..first].iter().collect();
    let end: String = letters[letters.len() - last..].iter().collect();
    format!("{begin}…{end}")
}

fn char_width(letter: char) -> f64 {
    if letter < '\u{1100}' || letter == '…' { CHAR } else { CHAR_WIDE }
}

/// A rectangle of the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Area {
    pub left: f64,
    pub top: f64,
    pub right: f64,
    pub bottom: f64,
}

impl Area {
    fn holds(&self, other: &Self) -> bool {
        other.left >= self.left
            && other.right <= self.right
            && other.top >= self.top
            && other.bottom <= self.bottom
    }

    fn meets(&self, other: &Self) -> bool {
        self.left < other.right
            && other.left < self.right
            && self.top < other.bottom
            && other.top < self.bottom
    }

    /// The box of a text whose baseline stands at (x, y).
    fn of_text(x: f64, y: f64, anchor: &str, text: &str) -> Self {
        let width = text_width(text);
        let left = match anchor {
            "end" => x - width,
            "middle" => x - width / 2.0,
            _ => x,
        };
        Self { left, top: y - 12.0, right: left + width, bottom: y + 4.0 }
    }
}

/// What stands in the plot already.
#[derive(Debug)]
pub(crate) struct Labels {
    area: Area,
    labels: Vec<Area>,
    /// Where something stands, and how far around it.
    points: Vec<(f64, f64, f64)>,
}

impl Labels {
    /// Nothing in `area`.
    pub fn new(area: Area) -> Self {
        Self { area, labels: Vec::new(), points: Vec::new() }
    }

    /// Something at (x, y) that reaches so far, which labels keep off.
    pub fn avoid(&mut self, x: f64, y: f64, reach: f64) {
        if self.points.len() < OBSTACLES_MAX {
            self.points.push((x, y, reach));
        }
    }

    /// Lines between neighbours that labels keep off.
    pub fn avoid_lines(&mut self, corners: impl Iterator<Item = (f64, f64)>) {
        let mut before: Option<(f64, f64)> = None;
        for (x, y) in corners {
            if let Some((x0, y0)) = before {
                // Both ends lie within the picture, so this is a few dozen.
                let pieces = ((x - x0).hypot(y - y0) / STRIDE).ceil().max(1.0);
                for piece in 1..pieces as usize {
                    let part = piece as f64 / pieces;
                    self.avoid(x0 + (x - x0) * part, y0 + (y - y0) * part, LINE_REACH);
                }
            }
            before = Some((x, y));
        }
    }

    /// The candidate (baseline and anchor) at which `text` covers least, which it then takes; none
    /// where every candidate leaves the area or covers another label.
    pub fn choose<'a>(
        &mut self,
        candidates: &[(f64, f64, &'a str)],
        text: &str,
    ) -> Option<(f64, f64, &'a str)> {
        let room = |candidate: &(f64, f64, &'a str)| {
            let of = Area::of_text(candidate.0, candidate.1, candidate.2, text);
            let free = self.area.holds(&of) && !self.labels.iter().any(|label| label.meets(&of));
            let covered = |&&(x, y, reach): &&(f64, f64, f64)| {
                let (left, right) = (x - reach, x + reach);
                of.meets(&Area { left, top: y - reach, right, bottom: y + reach })
            };
            free.then(|| (self.points.iter().filter(covered).count(), *candidate, of))
        };
        let best = candidates.iter().filter_map(room).min_by_key(|(covered, ..)| *covered);
        best.map(|(_, candidate, of)| {
            self.labels.push(of);
            candidate
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AREA: Area = Area { left: 0.0, top: 0.0, right: 200.0, bottom: 100.0 };

    #[test]
    fn labels_keep_off_each_other_and_off_points() {
        let mut labels = Labels::new(AREA);
        let candidates = [(10.0, 20.0, "start"), (10.0, 50.0, "start"), (10.0, 90.0, "start")];
        labels.avoid(30.0, 18.0, 6.0);
        assert_eq!(labels.choose(&candidates, "first"), Some(candidates[1]));
        assert_eq!(labels.choose(&candidates, "second"), Some(candidates[2]));
        // Over a point rather than over a label.
        assert_eq!(labels.choose(&candidates, "third"), Some(candidates[0]));
        assert_eq!(labels.choose(&candidates, "fourth"), None);
    }

    #[test]
    fn long_texts_are_cut_to_their_place() {
        assert_eq!(fit("queue 11", 8.0 * CHAR + 0.1), "queue 11");
        assert_eq!(fit("queue 11", 5.0 * CHAR + 0.1), "queu…");
        assert_eq!(fit_middle("queue 11", 5.0 * CHAR + 0.1), "qu…11");
        assert_eq!(fit_middle("queue 11", 0.0), "…");
        let wide = "\u{8d85}".repeat(40);
        assert!(text_width(&fit(&wide, 100.0)) <= 100.0);
    }

    #[test]
    fn labels_stay_within_the_area() {
        let mut labels = Labels::new(AREA);
        let outside = [(195.0, 50.0, "start"), (5.0, 50.0, "end"), (100.0, 5.0, "middle")];
        assert_eq!(labels.choose(&outside, "label"), None);
        assert_eq!(labels.choose(&[(100.0, 50.0, "middle")], &"long".repeat(20)), None);
    }

    #[test]
    fn labels_keep_off_lines() {
        let mut labels = Labels::new(AREA);
        labels.avoid_lines([(0.0, 16.0), (200.0, 16.0)].into_iter());
        let candidates = [(100.0, 20.0, "middle"), (100.0, 60.0, "middle")];
        assert_eq!(labels.choose(&candidates, "label"), Some(candidates[1]));
        labels.avoid_lines((0..100_000).map(|step| (f64::from(step % 200), 50.0)));
        assert!(labels.points.len() <= OBSTACLES_MAX);
    }
}
