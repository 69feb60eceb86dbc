//! The style of the repository, enforced: every rule that a program can check.
//!
//! A finding reads `FILE:LINE: what is wrong and what to do`. The rules are in `rules.rs`, each with a
//! test of its own that feeds it a bad and a good sample; `scan.rs` tells code from comments.

mod circles;
mod rooms;
mod rules;
mod scan;

use std::fs;
use std::path::{Path, PathBuf};

use rules::{Finding, check};

/// Directories are not nested deeper than this: a bound for the walk.
const DEPTH_MAX: usize = 16;
/// Endings of files that people write.
const TEXT_ENDINGS: [&str; 10] = ["rs", "md", "toml", "sh", "c", "h", "yml", "yaml", "py", "html"];
/// Files without an ending that people write.
const TEXT_NAMES: [&str; 2] = ["Makefile", "run"];

/// Where the workspace is. Read at run time: the binary may have been built in another checkout.
fn repository() -> PathBuf {
    let package = std::env::var("CARGO_MANIFEST_DIR");
    let package = package.unwrap_or_else(|_| env!("CARGO_MANIFEST_DIR").to_owned());
    Path::new(&package).join("..").canonicalize().expect("the package is in a workspace")
}

/// Every file that people write, relative to the repository. Build outputs are passed over.
fn walk(root: &Path, relative: &Path, depth: usize, found: &mut Vec<PathBuf>) {
    assert!(depth < DEPTH_MAX, "{} is nested too deep", relative.display());
    for entry in fs::read_dir(root.join(relative)).expect("readable").flatten() {
        let name = entry.file_name().to_string_lossy().into_owned();
        let path = relative.join(&name);
        if entry.path().is_dir() {
            let is_output = name.starts_with("target") || name == ".git" || name == "corpus";
            if !is_output {
                walk(root, &path, depth + 1, found);
            }
        } else if TEXT_NAMES.contains(&name.as_str())
            || path
                .extension()
                .is_some_and(|ending| TEXT_ENDINGS.iter().any(|&text| ending == text))
        {
            found.push(path);
        }
    }
}

#[test]
fn the_repository_keeps_its_style() {
    let root = repository();
    let mut files = Vec::new();
    walk(&root, Path::new(""), 0, &mut files);
    files.sort();
    assert!(
        files.iter().any(|file| file.ends_with("tests/style/main.rs")),
        "this very file: {files:?}"
    );
    let mut findings: Vec<Finding> = Vec::new();
    for file in &files {
        // A file that is not UTF-8, or that has vanished meanwhile, has no style.
        if let Ok(text) = fs::read_to_string(root.join(file)) {
            findings.extend(check(&file.to_string_lossy(), &text));
        }
    }
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), lines.join("\n"));
}

/// A test that a document names: `FILE.rs::NAME` between backquotes, the file from the repository's root.
#[derive(Debug, PartialEq, Eq)]
struct NamedTest {
    /// The document's line, from 1.
    line: usize,
    file: String,
    name: String,
}

/// The tests that a document names.
fn named_tests(document: &str) -> Vec<NamedTest> {
    let spans = |line: &str| -> Vec<(String, String)> {
        // Every second piece is between two backquotes.
        let pieces = line.split('`').skip(1).step_by(2);
        let named = pieces.filter_map(|piece| piece.split_once(".rs::"));
        named.map(|(file, name)| (format!("{file}.rs"), name.to_owned())).collect()
    };
    document
        .lines()
        .enumerate()
        .flat_map(|(at, line)| {
            spans(line).into_iter().map(move |(file, name)| NamedTest { line: at + 1, file, name })
        })
        .collect()
}

/// Whether `code` has a function `name` under `#[test]`, with nothing but attributes and comments between the two.
fn has_test(code: &str, name: &str) -> bool {
    let lines: Vec<&str> = code.lines().map(str::trim).collect();
    let start = format!("fn {name}(");
    let marks = |line: &&&str| line.starts_with("#[") || line.starts_with("//");
    lines.iter().enumerate().any(|(at, line)| {
        line.starts_with(&start)
            && lines[..at].iter().rev().take_while(marks).any(|above| *above == "#[test]")
    })
}

#[test]
fn every_test_that_a_document_names_exists() {
    let root = repository();
    let mut files = Vec::new();
    walk(&root, Path::new(""), 0, &mut files);
    files.retain(|file| file.extension().is_some_and(|ending| ending == "md"));
    let mut findings = Vec::new();
    let mut counts = std::collections::BTreeMap::new();
    for document in &files {
        let text = fs::read_to_string(root.join(document)).expect("a document is readable");
        let named = named_tests(&text);
        counts.insert(document.to_string_lossy().into_owned(), named.len());
        for NamedTest { line, file, name } in named {
            let code = fs::read_to_string(root.join(&file)).unwrap_or_default();
            if !has_test(&code, &name) {
                let at = format!("{}:{line}", document.display());
                findings.push(format!("{at}: {file} has no test {name}; name one that exists"));
            }
        }
    }
    assert!(findings.is_empty(), "{} findings:\n{}", findings.len(), findings.join("\n"));
    assert!(counts["docs/security.md"] > 0, "its promises are without tests: {counts:?}");
}

#[test]
fn a_named_test_is_found_and_a_missing_one_is_not() {
    let document = "Text.\n| a | `core/a/b.rs::it_holds`, `c.rs::x` | `not.rs` `a::b` |\n";
    let named = |file: &str, name: &str| NamedTest {
        line: 2,
        file: file.to_owned(),
        name: name.to_owned(),
    };
    assert_eq!(named_tests(document), [named("core/a/b.rs", "it_holds"), named("c.rs", "x")]);
    let code = "fn helper() {}\n    #[test]\n    // Why.\n    #[cfg(x)]\n    fn it_holds() {\n}\n";
    assert!(has_test(code, "it_holds"));
    assert!(!has_test(code, "helper") && !has_test(code, "it_hold"));
    assert!(!has_test("// fn it_holds() {}\n", "it_holds"));
}
