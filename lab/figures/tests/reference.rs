//! The reference of all commands, `docs/commands.md`, is what the programs print: this test makes the page, and compares.

use std::fmt::Write as _;
use std::path::Path;

use clap::CommandFactory;
use cli::commands::Cli;
use figures::commands::Laboratory;

/// Set to write the page in place of comparing it.
const WRITE: &str = "TAILPLANE_WRITE_REFERENCE";
const COLUMNS: usize = 100;

const HEAD: &str = "\
# Commands

`tailplane NAME --help` prints what stands here; this page is made of it, and a test compares the two. What measures,
simulates and reproduces is in a program of its own, `tailplane-lab`, which `tailplane NAME` finds beside itself.
`tailplaned`, the daemon, is in [daemon.md](daemon.md).
";

/// Appends the help of `command`, whose name is `words`, and of its subcommands.
fn describe(words: &str, command: &clap::Command, page: &mut String) {
    let mut shown = command.clone().bin_name(words).display_name(words).term_width(COLUMNS);
    let help = shown.render_long_help().to_string();
    let help: Vec<_> = help.lines().map(str::trim_end).collect();
    let _ = write!(page, "\n## {words}\n\n```text\n{}\n```\n", help.join("\n").trim_end());
    for subcommand in command.get_subcommands().filter(|one| !one.is_hide_set()) {
        if subcommand.get_name() != "help" {
            describe(&format!("{words} {}", subcommand.get_name()), subcommand, page);
        }
    }
}

#[test]
fn the_page_of_commands_says_what_they_print() {
    let mut page = HEAD.to_owned();
    let (product, laboratory) = (Cli::command(), Laboratory::command());
    let is_product = |one: &clap::Command| product.find_subcommand(one.get_name()).is_some();
    let measuring = laboratory.get_subcommands().filter(|one| !is_product(one));
    for subcommand in product.get_subcommands().chain(measuring).filter(|one| !one.is_hide_set()) {
        describe(&format!("tailplane {}", subcommand.get_name()), subcommand, &mut page);
    }
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/commands.md");
    if std::env::var_os(WRITE).is_some() {
        std::fs::write(&path, &page).expect("writing the page");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    let differs = page.lines().zip(found.lines()).find(|(is, stands)| is != stands);
    assert!(
        page == found,
        "docs/commands.md is out of date, first in {differs:?}: set {WRITE}=1 and run this test again",
    );
}
