//! A table of results in one form, for a terminal, for Markdown and for a page.
//!
//! ```
//! use reproduce::Grid;
//! let mut grid = Grid::new(["server", "requests/s"]);
//! grid.row(["tailplane", "317,250"]);
//! assert_eq!(grid.markdown(), "| server | requests/s |\n| --- | --- |\n| tailplane | 317,250 |\n");
//! ```

use std::fmt;

use comfy_table::{CellAlignment, ContentArrangement, Table, presets};

use crate::xml::{escape, shorten};

/// Longest line of a cell on a terminal; Markdown and the page have all of it.
const TERMINAL_LINE_MAX: usize = 60;

/// What a cell says of a goal: the class of the page's style, and the sign before the text.
pub type Verdict = (&'static str, &'static str);
/// The goal is met.
pub const MET: Verdict = ("met", "✓ ");
/// The goal is missed.
pub const MISSED: Verdict = ("miss", "✗ ");
/// The goal is not judged.
pub const OPEN: Verdict = ("open", "");

/// One cell. The first line of its text is what it says, further lines explain it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    text: String,
    verdict: Option<Verdict>,
    is_bold: bool,
    link: Option<String>,
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), ..Self::default() }
    }
}

impl Cell {
    /// With a verdict, which the page colours.
    #[must_use]
    pub fn judged(self, verdict: Verdict) -> Self {
        Self { verdict: Some(verdict), ..self }
    }

    /// Bold where `is_bold`, in Markdown and on the page.
    #[must_use]
    pub fn bold(self, is_bold: bool) -> Self {
        Self { is_bold, ..self }
    }

    /// With its first line as a link to a part of the page.
    #[must_use]
    pub fn link(self, anchor: Option<String>) -> Self {
        Self { link: anchor, ..self }
    }

    fn terminal(&self) -> String {
        let lines: Vec<String> =
            self.text.lines().map(|line| shorten(line, TERMINAL_LINE_MAX)).collect();
        lines.join("\n")
    }

    fn markdown(&self) -> String {
        let text = self.text.replace('|', "\\|").replace('\n', "; ");
        if self.is_bold { format!("**{text}**") } else { text }
    }

    fn html(&self) -> String {
        let (first, rest) = self.text.split_once('\n').unwrap_or((&self.text, ""));
        let mut html = escape(first);
        if let Some(anchor) = &self.link {
            html = format!("<a href=\"#{anchor}\">{html}</a>");
        }
        if let Some((class, sign)) = self.verdict {
            html = format!("<span class=\"{class}\">{sign}{html}</span>");
        }
        if self.is_bold {
            html = format!("<b>{html}</b>");
        }
        for line in rest.lines() {
            html += &format!("<br/><span class=\"why\">{}</span>", escape(line));
        }
        html
    }

    /// Whether the cell holds a number, a dash, or nothing.
    fn is_number(&self) -> bool {
        let first = self.text.chars().next();
        first.is_none_or(|letter| letter.is_ascii_digit() || "-–+≥≤≈".contains(letter))
    }
}

/// A table: a header, and rows of as many cells.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grid {
    header: Vec<Cell>,
    rows: Vec<Vec<Cell>>,
}

impl Grid {
    /// Without rows.
    pub fn new<T: Into<Cell>>(header: impl IntoIterator<Item = T>) -> Self {
        Self { header: header.into_iter().map(Into::into).collect(), rows: Vec::new() }
    }

    /// One more row. Cells that it lacks are empty; a row of one cell is a heading within the table.
    pub fn row<T: Into<Cell>>(&mut self, cells: impl IntoIterator<Item = T>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Whether a column is one of numbers, which are aligned at the right.
    fn is_numeric(&self, column: usize) -> bool {
        column > 0 && self.rows.iter().filter_map(|row| row.get(column)).all(Cell::is_number)
    }

    /// As Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[Cell]| {
            let cells: Vec<String> = cells.iter().map(Cell::markdown).collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let rule = line(&vec![Cell::from("---"); self.header.len()]);
        let rows = self.rows.iter().map(|row| line(row));
        line(&self.header) + &rule + &rows.collect::<String>()
    }

    /// As an element of a page, which scrolls within itself; `label` names it to a screen reader.
    pub fn html(&self, label: &str) -> String {
        let class = |column| if self.is_numeric(column) { "n" } else { "t" };
        let mut html = format!(
            "<div class=\"scroll\" role=\"region\" tabindex=\"0\" aria-label=\"{}\"><table><thead><tr>",
            escape(label)
        );
        for (column, cell) in self.header.iter().enumerate() {
            html += &format!("<th scope=\"col\" class=\"{}\">{}</th>", class(column), cell.html());
        }
        html += "</tr></thead><tbody>";
        for row in &self.rows {
            html += &match row.as_slice() {
                [heading] if self.header.len() > 1 => format!(
                    "<tr class=\"group\"><th colspan=\"{}\" scope=\"rowgroup\">{}</th></tr>",
                    self.header.len(),
                    heading.html()
                ),
                cells => {
                    let cell = |(column, cell): (usize, &Cell)| {
                        format!("<td class=\"{}\">{}</td>", class(column), cell.html())
                    };
                    let cells: String = cells.iter().enumerate().map(cell).collect();
                    format!("<tr>{cells}</tr>")
                }
            };
        }
        html + "</tbody></table></div>"
    }
}

/// As text for a terminal.
impl fmt::Display for Grid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut table = Table::new();
        table.load_style(presets::UTF8_BORDERS_ONLY);
        table.set_content_arrangement(match table.width() {
            // A terminal that does not know its width.
            Some(0) => ContentArrangement::Disabled,
            _ => ContentArrangement::Dynamic,
        });
        table.set_header(self.header.iter().map(Cell::terminal));
        for row in &self.rows {
            table.add_row(row.iter().map(Cell::terminal));
        }
        for index in (0..self.header.len()).filter(|&column| self.is_numeric(column)) {
            if let Some(column) = table.column_mut(index) {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.fmt(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn grid() -> Grid {
        let mut grid = Grid::new(["claim", "measured", "verdict"]);
        grid.row(["ix"]);
        grid.row([
            Cell::from("a|b\nin words").link(Some("f-a".to_owned())),
            Cell::from("1.5").bold(true),
            Cell::from("met").judged(MET),
        ]);
        grid.row(["<c>", "–", "not run\nwhy"]);
        grid
    }

    #[test]
    fn one_table_has_three_forms() {
        let markdown = "| claim | measured | verdict |\n| --- | --- | --- |\n| ix |\n\
                        | a\\|b; in words | **1.5** | met |\n| <c> | – | not run; why |\n";
        assert_eq!(grid().markdown(), markdown);
        let html = grid().html("All");
        for part in [
            "aria-label=\"All\"",
            "<th scope=\"col\" class=\"n\">measured</th>",
            "<tr class=\"group\"><th colspan=\"3\" scope=\"rowgroup\">ix</th></tr>",
            "<a href=\"#f-a\">a|b</a><br/><span class=\"why\">in words</span>",
            "<td class=\"n\"><b>1.5</b></td><td class=\"t\"><span class=\"met\">✓ met</span></td>",
            "&lt;c&gt;",
        ] {
            assert!(html.contains(part), "{part} in {html}");
        }
        let text = grid().to_string();
        assert!(text.contains("measured   verdict") && text.contains("     1.5   met"), "{text}");
    }

    #[test]
    fn a_terminal_gets_the_beginning_of_long_lines() {
        let mut grid = Grid::new(["note"]);
        grid.row(["x".repeat(TERMINAL_LINE_MAX + 1)]);
        assert!(grid.to_string().contains('…') && !grid.markdown().contains('…'));
    }
}
