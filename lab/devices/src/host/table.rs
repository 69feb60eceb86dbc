//! The table of results: a column for each boot, a row for each check. No cell is blank.

use std::process::Command;

use super::runs::{BootResult, CheckResult, Results};

/// Names of checks, in the order of the first boot that has them.
fn rows(results: &Results) -> Vec<&'static str> {
    let mut names = Vec::new();
    for check in results.boots.iter().flat_map(|boot| &boot.checks) {
        if !names.contains(&check.name) {
            names.push(check.name);
        }
    }
    names
}

fn cell<'a>(boot: &'a BootResult, name: &str) -> Option<&'a CheckResult> {
    boot.checks.iter().find(|check| check.name == name)
}

/// A table of single words, and under it the reasons and values of each boot.
pub fn terminal(results: &Results) -> String {
    let mut lines = vec![vec!["check".to_owned()]];
    lines[0].extend(results.boots.iter().map(|boot| boot.name.clone()));
    for name in rows(results) {
        let mut line = vec![name.to_owned()];
        line.extend(results.boots.iter().map(|boot| {
            cell(boot, name).map_or("not run", |check| check.outcome.word()).to_owned()
        }));
        lines.push(line);
    }
    let seconds = results.boots.iter().map(|boot| format!("{:.0} s", boot.took_s));
    lines.push(std::iter::once("took".to_owned()).chain(seconds).collect());
    let columns = lines[0].len();
    let width = |column: usize| lines.iter().map(|line| line[column].len()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for line in &lines {
        let padded: Vec<String> =
            line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}")).collect();
        text.push_str(padded.join("  ").trim_end());
        text.push('\n');
    }
    for boot in &results.boots {
        text.push_str(&format!(
            "\n{} ({} {}, Linux {})\n",
            boot.name, boot.driver, boot.mode, boot.kernel
        ));
        for check in &boot.checks {
            text.push_str(&format!("  {:<16} {}\n", check.name, check.outcome));
        }
    }
    text
}

/// The same as Markdown, with reasons and values in the cells.
pub fn markdown(results: &Results) -> String {
    let mut text = "# Drivers of real NICs\n\nWritten by `make test-devices`: the product on emulated \
                    machines ([how](../../lab/devices/README.md)). No time in an emulated machine is a measurement \
                    of the product.\n\n"
        .to_owned();
    text.push_str(&format!("Commit {}.\n\n", commit().unwrap_or_else(|| "unknown".to_owned())));
    let mut line = |cells: Vec<String>| {
        text.push_str(&format!("| {} |\n", cells.join(" | ")));
    };
    let row = |title: &str, of: &dyn Fn(&BootResult) -> String| {
        std::iter::once(title.to_owned())
            .chain(results.boots.iter().map(of))
            .collect::<Vec<String>>()
    };
    line(row("Check", &|boot| boot.name.clone()));
    line(vec!["---".to_owned(); results.boots.len() + 1]);
    line(row("driver, mode", &|boot| format!("{}, {}", boot.driver, boot.mode)));
    line(row("Linux", &|boot| match boot.kernel.as_str() {
        "" => "did not boot".to_owned(),
        kernel => kernel.to_owned(),
    }));
    for name in rows(results) {
        line(row(name, &|boot| match cell(boot, name) {
            Some(check) => escaped(&check.outcome.to_string()),
            None => "not run".to_owned(),
        }));
    }
    line(row("seconds, boots", &|boot| format!("{:.0}, {}", boot.took_s, boot.attempts)));
    text
}

/// The commit of the working tree, and whether it has changes that are in none.
fn commit() -> Option<String> {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let commit = git(&["log", "-1", "--format=%h of %cs"])?;
    let is_clean = git(&["status", "--porcelain", "--untracked-files=no"])?.is_empty();
    Some(if is_clean { commit } else { format!("{commit}, with changes") })
}

fn escaped(cell: &str) -> String {
    cell.replace('|', "\\|").replace('\n', " ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Outcome;

    fn results() -> Results {
        let boot = |name: &str, outcome| BootResult {
            name: name.to_owned(),
            driver: "igb".to_owned(),
            mode: "copy".to_owned(),
            kernel: "6.12".to_owned(),
            ready_s: 10.0,
            took_s: 60.0,
            attempts: 1,
            checks: vec![CheckResult { name: "start", outcome, took_s: 1.0 }],
        };
        let failed = Outcome::Failed("expected a|b".to_owned());
        Results { boots: vec![boot("one", Outcome::Passed(String::new())), boot("two", failed)] }
    }

    #[test]
    fn every_row_has_a_cell_for_each_boot() {
        let text = markdown(&results());
        let table: Vec<&str> = text.lines().filter(|line| line.starts_with('|')).collect();
        assert!(table.contains(&"| start | passed | FAILED: expected a\\|b |"), "{text}");
        for line in table {
            assert!(!line.contains("|  |"), "a blank cell: {line}");
        }
        assert!(!results().is_clean());
    }

    #[test]
    fn the_terminal_has_words_first_and_then_reasons() {
        let text = terminal(&results());
        let row = text.lines().find(|line| line.starts_with("start")).expect("a row");
        assert_eq!(row.split_whitespace().collect::<Vec<_>>(), ["start", "passed", "FAILED"]);
        assert!(text.contains("FAILED: expected a|b"), "{text}");
    }
}
