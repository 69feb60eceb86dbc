//! The rules. Each looks at one file and returns what is wrong with it.

use std::fmt;

use crate::scan::{code_only, functions, line_of, test_lines, words};

/// Lines of a file, tests aside.
const FILE_LINES_MAX: usize = 800;
/// Lines of a function: a screen.
const FUNCTION_LINES_MAX: usize = 70;
/// How far above an `unsafe` block its reason may stand, in lines: statements may be broken.
const SAFETY_DISTANCE: usize = 8;

/// Files with unsafe code whose name does not say so, and why.
const UNSAFE_ELSEWHERE: [(&str, &str); 0] = [];
/// Folders that crates are in: one depends on those of its own folder and of folders before it.
pub const ROOMS: [&str; 7] = ["core", "api", "apps", "host", "tenants", "cli", "lab"];
/// Crates whose sources may print: their output is their purpose.
const PRINTING: [&str; 6] =
    ["lab/bench/", "cli/", "lab/devices/", "lab/figures/", "lab/load/", "host/service/"];
/// Notes of work that is left. In pieces, so that this file keeps the rule.
const NOTES: [&str; 3] = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
/// Paths of one person's machine. In pieces, for the same reason.
const MACHINE_PATHS: [&str; 3] =
    [concat!("/wo", "rk/"), concat!("/ro", "ot/"), concat!("/ho", "me/")];

/// Sources that name the directory for temporary files, and why.
const TEMPORARY: [(&str, &str); 2] = [
    ("host/service/src/private.rs", "makes directories there that nobody else can have made"),
    ("host/daemon/src/fake.rs", "is compiled for tests only"),
];

/// Something that is not as it should be.
#[derive(Debug, PartialEq, Eq)]
pub struct Finding {
    /// The file, relative to the repository.
    pub file: String,
    /// The line, from one.
    pub line: usize,
    /// What is wrong and what to do.
    pub message: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}:{}: {}", self.file, self.line, self.message)
    }
}

/// One file, taken apart once for all rules.
struct Source<'a> {
    path: &'a str,
    /// As it is.
    lines: Vec<&'a str>,
    /// Without comments and literals.
    code: String,
    /// Whether each line is a test's.
    is_test: Vec<bool>,
    findings: Vec<Finding>,
}

impl Source<'_> {
    /// Notes a finding; lines count from zero here.
    fn note(&mut self, line: usize, message: impl Into<String>) {
        let (file, message) = (self.path.to_owned(), message.into());
        self.findings.push(Finding { file, line: line + 1, message });
    }

    fn in_test(&self, line: usize) -> bool {
        self.is_test.get(line).copied().unwrap_or(false)
    }
}

/// Everything that is wrong with a file of this path (relative, with `/`) and text.
pub fn check(path: &str, text: &str) -> Vec<Finding> {
    let is_rust = path.ends_with(".rs");
    let code = if is_rust { code_only(text) } else { String::new() };
    let lines: Vec<&str> = text.lines().collect();
    let is_test = if is_test_file(path) { vec![true; lines.len()] } else { test_lines(&code) };
    let mut source = Source { path, lines, code, is_test, findings: Vec::new() };
    words_of_any_file(&mut source);
    if is_rust {
        opening(&mut source);
        file_length(&mut source);
        function_length(&mut source);
        unsafe_code(&mut source);
        macros(&mut source);
        temporary_files(&mut source);
        ignored_tests(&mut source);
    }
    source.findings
}

fn is_test_file(path: &str) -> bool {
    let stem = path.rsplit('/').next().unwrap_or(path).trim_end_matches(".rs");
    let directories = ["tests", "benches", "examples", "fuzz_targets"];
    stem == "tests"
        || stem.ends_with("_tests")
        || path.split('/').any(|part| directories.contains(&part))
}

/// The folder at the top of the repository that a path is in.
fn room(path: &str) -> Option<&str> {
    path.split_once('/').map(|(room, _)| room)
}

fn in_sources(path: &str) -> bool {
    path.contains("/src/") && room(path).is_some_and(|room| ROOMS.contains(&room))
}

fn words_of_any_file(source: &mut Source<'_>) {
    let mut found = Vec::new();
    for (number, line) in source.lines.iter().enumerate() {
        for note in NOTES {
            if words(line, note).next().is_some() {
                found.push((number, format!("'{note}': do it, or write down why not")));
            }
        }
        for path in MACHINE_PATHS {
            // In the middle of a longer path it is somebody else's directory.
            let begins = |at: usize| {
                !line[..at].ends_with(|c: char| c.is_alphanumeric() || "._-}~".contains(c))
            };
            if line.match_indices(path).any(|(at, _)| begins(at)) {
                found.push((number, format!("'{path}' is on one machine only")));
            }
        }
    }
    for (number, message) in found {
        source.note(number, message);
    }
}

fn opening(source: &mut Source<'_>) {
    let opens = source.lines.first().is_some_and(|line| line.starts_with("//!"));
    if in_sources(source.path) && !opens {
        source.note(0, "begin with a few `//!` lines on what this is and how it is used");
    }
}

fn file_length(source: &mut Source<'_>) {
    let lines = (0..source.lines.len()).filter(|&line| !source.in_test(line)).count();
    if lines > FILE_LINES_MAX {
        let message = format!("{lines} lines (at most {FILE_LINES_MAX}): split it by mechanism");
        source.note(0, message);
    }
}

fn function_length(source: &mut Source<'_>) {
    for function in functions(&source.code) {
        let lines = function.last_line - function.first_line + 1;
        let (name, first) = (&function.name, function.first_line);
        if lines > FUNCTION_LINES_MAX && !source.in_test(first) && !has_reason(source, first) {
            source.note(
                first,
                format!(
                    "`{name}` has {lines} lines (at most {FUNCTION_LINES_MAX}): split it, or say \
                     `// long: REASON` above it"
                ),
            );
        }
    }
}

/// Whether `// long: REASON` stands among the comments and attributes above a function.
fn has_reason(source: &Source<'_>, first_line: usize) -> bool {
    let above = source.lines[..first_line].iter().rev().map(|line| line.trim());
    above
        .take_while(|line| line.starts_with("//") || line.starts_with("#[") || line.ends_with(")]"))
        .any(|line| line.strip_prefix("// long:").is_some_and(|reason| !reason.trim().is_empty()))
}

fn unsafe_code(source: &mut Source<'_>) {
    let is_named = source.path.split('/').any(|part| part.contains("unsafe"));
    let is_listed = UNSAFE_ELSEWHERE.iter().any(|(path, _)| *path == source.path);
    let places: Vec<usize> = words(&source.code, "unsafe").collect();
    for at in places {
        let line = line_of(&source.code, at);
        if !is_named && !is_listed {
            source.note(line, "unsafe code stands in modules whose name contains `unsafe`");
        }
        let next = source.code[at + "unsafe".len()..].split_whitespace().next().unwrap_or_default();
        // Callers of a function and implementers of a trait are told in its documentation (clippy sees
        // to that); everything else says why it is sound.
        if next == "fn" || next == "trait" || next.starts_with("fn(") {
            continue;
        }
        let from = line.saturating_sub(SAFETY_DISTANCE);
        if !source.lines[from..=line].iter().any(|line| line.contains("SAFETY:")) {
            source.note(line, "say above it why this is sound: `// SAFETY: ...`");
        }
    }
}

fn macros(source: &mut Source<'_>) {
    let may_print = !in_sources(source.path)
        || room(source.path) == Some("apps")
        || PRINTING.iter().any(|path| source.path.starts_with(path));
    let unfinished = ["todo", "unimplemented", "dbg"];
    let printing = ["println", "print", "eprintln", "eprint"];
    let mut found = Vec::new();
    for name in unfinished.iter().chain(&printing) {
        for at in words(&source.code, name) {
            let line = line_of(&source.code, at);
            let is_macro = source.code[at + name.len()..].starts_with('!');
            let is_allowed = printing.contains(name) && (may_print || source.in_test(line));
            if is_macro && !is_allowed {
                found.push((line, format!("`{name}!` has no place here")));
            }
        }
    }
    for (line, message) in found {
        source.note(line, message);
    }
}

/// A name there that can be guessed may be somebody else's link or directory already.
fn temporary_files(source: &mut Source<'_>) {
    let is_allowed = TEMPORARY.iter().any(|(path, _)| source.path == *path);
    if is_allowed || !in_sources(source.path) {
        return;
    }
    let lines: Vec<usize> = words(&source.code, "temp_dir")
        .map(|at| line_of(&source.code, at))
        .filter(|line| !source.in_test(*line))
        .collect();
    for line in lines {
        source.note(line, "make a directory of one's own there: `private::directory`");
    }
}

fn ignored_tests(source: &mut Source<'_>) {
    let bare: Vec<usize> = words(&source.code, "ignore")
        .filter(|at| {
            let line_start = source.code[..*at].rfind('\n').map_or(0, |end| end + 1);
            let is_attribute = source.code[line_start..*at].contains("#[");
            let next = source.code[at + "ignore".len()..].trim_start();
            is_attribute && (next.starts_with(']') || next.starts_with(')'))
        })
        .map(|at| line_of(&source.code, at))
        .collect();
    for line in bare {
        source.note(line, "say why: `#[ignore = \"REASON\"]`");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The messages for a source file of a library crate.
    fn messages(text: &str) -> Vec<String> {
        messages_at("core/stack/src/x.rs", text)
    }

    fn messages_at(path: &str, text: &str) -> Vec<String> {
        check(path, text).into_iter().map(|finding| finding.message).collect()
    }

    fn one(messages: &[String], part: &str) -> bool {
        messages.len() == 1 && messages[0].contains(part)
    }

    #[test]
    fn a_clean_file_has_no_findings() {
        let text = "//! What it is.\n/// Adds. See \"unsafe\" and println! for more.\nfn f() {}\n";
        assert_eq!(messages(text), [""; 0]);
    }

    #[test]
    fn findings_name_file_and_line() {
        let found = check("apps/kv/src/x.rs", "//! x\nfn f() { dbg!(1); }\n");
        assert_eq!(found[0].to_string(), "apps/kv/src/x.rs:2: `dbg!` has no place here");
    }

    #[test]
    fn files_begin_with_what_they_are() {
        assert!(one(&messages("fn f() {}\n"), "begin with"));
        assert!(messages_at("core/stack/tests/x.rs", "fn f() {}\n").is_empty());
    }

    #[test]
    fn long_files_are_to_be_split_but_tests_do_not_count() {
        let long = "// x\n".repeat(FILE_LINES_MAX);
        assert!(one(&messages(&format!("//! x\n{long}")), "split it by mechanism"));
        let tests = format!("//! x\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
        assert!(messages(&tests).is_empty());
        assert!(messages_at("core/stack/src/tests.rs", &format!("//! x\n{long}")).is_empty());
    }

    #[test]
    fn long_functions_are_to_be_split_or_give_a_reason() {
        let body = "    g();\n".repeat(FUNCTION_LINES_MAX);
        let function = format!("fn f() {{\n{body}}}\n");
        assert!(one(&messages(&format!("//! x\n{function}")), "`f` has 72 lines"));
        let reason = format!("//! x\n// long: a table\n#[inline]\n{function}");
        assert!(messages(&reason).is_empty());
        let empty = format!("//! x\n// long:\n{function}");
        assert!(one(&messages(&empty), "`f` has 72 lines"));
        let short =
            format!("//! x\nfn f() {{\n{}}}\n", "    g();\n".repeat(FUNCTION_LINES_MAX - 2));
        assert!(messages(&short).is_empty());
    }

    #[test]
    fn unsafe_code_stands_where_the_name_says_so_and_gives_its_reason() {
        let with = "//! x\nfn f() {\n    // SAFETY: it is.\n    unsafe { g() }\n}\n";
        let without = "//! x\nfn f() {\n    unsafe { g() }\n}\n";
        assert!(one(&messages(with), "whose name contains"));
        assert!(messages_at("core/mem/src/unsafe_pool.rs", with).is_empty());
        assert!(messages_at("core/mem/src/unsafe_pool/ring.rs", with).is_empty());
        assert!(one(&messages_at("core/mem/src/pool_unsafe.rs", without), "SAFETY"));
        let contract =
            "//! x\n/// # Safety\n/// Hold it.\nunsafe trait T {\n    unsafe fn f();\n}\n";
        assert!(messages_at("core/mem/src/unsafe_pool.rs", contract).is_empty());
        assert!(messages("//! x\n#![deny(unsafe_code)]\n").is_empty());
    }

    #[test]
    fn temporary_files_are_in_a_directory_of_ones_own() {
        let text = "//! x\nfn f() { g(std::env::temp_dir()); }\n";
        assert!(one(&messages(text), "private::directory"));
        assert!(messages_at("host/service/src/private.rs", text).is_empty());
        assert!(messages_at("cli/tests/x.rs", text).is_empty());
        let test = "//! x\n#[cfg(test)]\nmod tests {\n    fn f() { std::env::temp_dir(); }\n}\n";
        assert!(messages(test).is_empty());
    }

    #[test]
    fn nothing_is_left_to_do() {
        for note in NOTES {
            assert!(one(&messages(&format!("//! x\n// {note}: later\n")), "do it"));
            assert!(one(&messages_at("docs/x.md", &format!("{note}\n")), "do it"));
            assert!(messages(&format!("//! x\n// {note}LIST\n")).is_empty());
        }
        for unfinished in ["todo", "unimplemented"] {
            let text = format!("//! x\nfn f() {{ {unfinished}!() }}\n");
            assert!(one(&messages(&text), &format!("`{unfinished}!`")));
        }
    }

    #[test]
    fn libraries_do_not_print_but_commands_and_tests_do() {
        let text = "//! x\nfn f() { println!(); }\n";
        assert!(one(&messages(text), "`println!`"));
        assert!(messages_at("cli/src/x.rs", text).is_empty());
        assert!(messages_at("lab/load/src/report.rs", text).is_empty());
        assert!(messages_at("core/stack/tests/x.rs", text).is_empty());
        let in_tests = "//! x\n#[cfg(test)]\nmod tests {\n    fn f() { println!(); }\n}\n";
        assert!(messages(in_tests).is_empty());
    }

    #[test]
    fn paths_of_one_machine_are_seen_but_not_ends_of_others() {
        for path in MACHINE_PATHS {
            assert!(one(&messages_at("docs/x.md", &format!("see `{path}notes`\n")), "one machine"));
            assert!(messages_at("docs/x.md", &format!("see net{path}notes\n")).is_empty());
        }
    }

    #[test]
    fn ignored_tests_give_a_reason() {
        let with = |attribute: &str| messages(&format!("//! x\n{attribute}\nfn f() {{}}\n"));
        assert!(one(&with("#[ignore]"), "say why"));
        assert!(one(&with("#[cfg_attr(miri, ignore)]"), "say why"));
        assert!(with("#[ignore = \"slow\"]").is_empty());
        assert!(with("#[cfg_attr(miri, ignore = \"opens sockets\")]").is_empty());
    }
}
