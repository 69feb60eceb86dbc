//! The report as a table for people.

use comfy_table::{Cell, Color, ContentArrangement, Table, presets};

use super::check::{Check, Report, Status};

/// Columns where the output is no terminal, or one that does not say: wide enough to read, narrow enough for a mail.
const WIDTH: u16 = 120;
/// Fewer columns than that are a serial console that does not say how many it has, not a terminal of a letter a line.
const WIDTH_MIN: u16 = 40;

/// The report as a table, and below it what each missing piece costs.
pub fn table(report: &Report) -> String {
    let mut table = Table::new();
    table.load_style(presets::UTF8_BORDERS_ONLY);
    table.set_content_arrangement(ContentArrangement::Dynamic);
    table.set_width(width(table.width()));
    table.set_header(["group", "check", "", "found"]);
    let mut last = "";
    for check in &report.checks {
        let group = if check.group == last { "" } else { check.group };
        last = check.group;
        table.add_row([
            Cell::new(group),
            Cell::new(&check.name),
            mark(check.status),
            Cell::new(&check.found),
        ]);
    }
    let mut text = table.to_string();
    let mut explained: Vec<&Check> =
        report.checks.iter().filter(|check| check.status != Status::Ok).collect();
    // Worst first: what cannot be done at all before what costs something.
    explained.sort_by_key(|check| std::cmp::Reverse(check.status));
    for check in explained {
        let Check { group, name, cost, remedy, .. } = check;
        let status = check.status.as_ref();
        text.push_str(&format!(
            "\n\n{status}: {group}, {name}\n  costs: {cost}\n  do:    {remedy}"
        ));
    }
    let summary = report.summary;
    text.push_str(&format!(
        "\n\n{} ok, {} at a cost, {} missing",
        summary.ok, summary.warn, summary.missing
    ));
    text
}

/// The columns of a table on a terminal that says so many.
fn width(said: Option<u16>) -> u16 {
    said.filter(|&columns| columns >= WIDTH_MIN).unwrap_or(WIDTH)
}

/// Colours only show on a terminal; the word is there in any case.
fn mark(status: Status) -> Cell {
    let colour = match status {
        Status::Ok => Color::Green,
        Status::Warn => Color::Yellow,
        Status::Missing => Color::Red,
    };
    Cell::new(status.as_ref()).fg(colour)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_console_that_does_not_say_its_width_gets_a_readable_table() {
        assert_eq!([None, Some(0), Some(80), Some(200)].map(width), [WIDTH, WIDTH, 80, 200]);
    }

    #[test]
    fn the_worst_is_explained_first_and_what_is_fine_not_at_all() {
        let text = table(&Report::of(vec![
            Check::ok("fine", "as it should be").of_group("memory"),
            Check::ok("pages", "none").warn("TLB misses", "reserve some").of_group("memory"),
            Check::ok("ip", "not found").missing("no lab", "install it").of_group("tools"),
        ]));
        let at = |needle: &str| text.find(needle).unwrap_or_else(|| panic!("{needle}: {text}"));
        assert!(at("missing: tools, ip") < at("warn: memory, pages"));
        assert!(at("as it should be") < at("missing: tools"));
        assert!(text.ends_with("1 ok, 1 at a cost, 1 missing"), "{text}");
        assert!(!text.contains("ok: memory"), "{text}");
    }
}
