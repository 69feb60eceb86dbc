//! The style of the repository, enforced: every rule that a program can check.
//!
//! A finding reads `FILE:LINE: what is wrong and what to do`. The rules are in `rules.rs`, each with a
//! test of its own that feeds it a bad and a good sample; `scan.rs` tells code from comments.

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
    Path::new(&package).join("../..").canonicalize().expect("the package is in a workspace")
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
