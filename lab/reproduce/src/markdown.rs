//! Results as a table in Markdown, and in place in a document: README's table is written by the run
//! that measured it, never by hand.

use std::collections::BTreeMap;
use std::fmt::Write;

use crate::number::{show, show_or_dash};
use crate::result::{ClaimResult, FigureResult};
use crate::table;

/// Before the table in a document.
pub const BEGIN: &str = "<!-- written by `tailplane reproduce --into` -->";
/// Behind it.
pub const END: &str = "<!-- end of what `tailplane reproduce --into` writes -->";

/// All claims, one a row, and the conditions that all results share.
pub fn claims(results: &[FigureResult]) -> String {
    let mut text = String::from(
        "| Figure | Claim | paper | goal | measured | spread |\n| --- | --- | --- | --- | --- | --- |\n",
    );
    for result in results {
        for claim in &result.claims {
            let _ = writeln!(
                text,
                "| {} | {} | {} | {} | {} | {} |",
                result.figure,
                cell(&claim.text),
                show_or_dash(claim.paper),
                table::goal(claim),
                measured(claim),
                table::spread(claim.low, claim.high),
            );
        }
    }
    let conditions: Vec<String> =
        shared(results).iter().map(|(name, value)| format!("{name}: {value}")).collect();
    let _ = writeln!(text, "\nConditions: {}.", conditions.join("; "));
    text
}

/// The number, bold where the goal is met; or why there is none.
fn measured(claim: &ClaimResult) -> String {
    match (claim.measured, &claim.not_run) {
        (Some(value), _) if claim.met == Some(true) => format!("**{}**", show(value.get())),
        (Some(value), _) => show(value.get()),
        (None, Some(reason)) => format!("not run: {}", cell(reason)),
        (None, None) => "–".to_owned(),
    }
}

/// A text that ends no cell.
fn cell(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// The conditions that no result has otherwise; dates apart.
fn shared(results: &[FigureResult]) -> BTreeMap<&str, &str> {
    let mut shared: BTreeMap<&str, &str> = BTreeMap::new();
    let all = || results.iter().flat_map(|result| &result.conditions);
    for (name, value) in all() {
        let alike = all().all(|(other, found)| other != name || found == value);
        if alike && name != "date" && name != "load average before" {
            shared.insert(name, value);
        }
    }
    shared
}

/// A document with the table between its marks.
///
/// # Errors
/// What is wrong with the document: one mark of each is wanted, in order.
pub fn into_document(document: &str, table: &str) -> Result<String, String> {
    let wanted = || format!("wanted: one line `{BEGIN}` and below it one line `{END}`");
    let (before, rest) = document.split_once(BEGIN).ok_or_else(wanted)?;
    let (_, after) = rest.split_once(END).ok_or_else(wanted)?;
    if rest.contains(BEGIN) || after.contains(END) || before.contains(END) {
        return Err(wanted());
    }
    Ok(format!("{before}{BEGIN}\n{table}{END}{after}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_stands_between_its_marks() {
        let document = format!("# Title\n{BEGIN}\nold\n{END}\nmore\n");
        let new = into_document(&document, "new\n").expect("marks are there");
        assert_eq!(new, format!("# Title\n{BEGIN}\nnew\n{END}\nmore\n"));
        assert_eq!(into_document(&new, "new\n").expect("again"), new);
        for bad in ["", BEGIN, END, &format!("{END}{BEGIN}"), &format!("{BEGIN}{END}{END}")] {
            assert!(into_document(bad, "").is_err(), "{bad}");
        }
    }
}
