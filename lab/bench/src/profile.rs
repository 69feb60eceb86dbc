//! Reads what callgrind wrote: the total, and where in the sources it was spent.
//!
//! The format is line-based (valgrind manual, "Callgrind Format Specification"): `fl=`, `fi=` and
//! `fe=` name the source file of the cost lines that follow, `fn=` their function, and the line after
//! `calls=` is what the callee cost, which belongs to the callee. Names are given once as `(id) name`
//! and then as `(id)`.

use std::collections::HashMap;

/// Instructions of one run.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Profile {
    /// All of them.
    pub total: u64,
    /// By source file, inlined code counted where it was written, dearest first.
    pub files: Vec<(String, u64)>,
    /// By function that was not inlined, its callees not included, dearest first.
    pub functions: Vec<(String, u64)>,
}

/// What callgrind wrote cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {line} of callgrind's output: {why}; is this valgrind 3.15 or later?")]
pub struct Unreadable {
    /// The number of the line, from one; zero where the whole is meant.
    line: usize,
    why: &'static str,
}

/// Names that were given an id.
#[derive(Default)]
struct Names(HashMap<String, String>);

impl Names {
    /// The name behind `(id) name`, `(id)` or a bare `name`.
    fn resolve(&mut self, text: &str) -> String {
        let Some((id, name)) = text.split_once(')').filter(|_| text.starts_with('(')) else {
            return text.to_owned();
        };
        let name = name.trim_start();
        if name.is_empty() {
            return self.0.get(id).cloned().unwrap_or_default();
        }
        self.0.insert(id.to_owned(), name.to_owned());
        name.to_owned()
    }
}

impl Profile {
    /// Reads the text of a `callgrind.out` file with one kind of event, instructions.
    ///
    /// # Errors
    /// [`Unreadable`] where a line is not what the format allows, or the sum is not the total that
    /// the file itself tells.
    pub fn parse(text: &str) -> Result<Self, Unreadable> {
        let (mut file_names, mut function_names) = (Names::default(), Names::default());
        let (mut file, mut function) = (String::new(), String::new());
        let (mut files, mut functions) = (HashMap::new(), HashMap::new());
        let (mut told, mut total, mut of_callee) = (None, 0u64, false);
        for (number, line) in text.lines().enumerate() {
            let bad = |why| Unreadable { line: number + 1, why };
            let is_cost = line.starts_with(|c: char| c.is_ascii_digit() || "+-*".contains(c));
            if is_cost {
                let cost = line.split(' ').nth(1).and_then(|cost| cost.parse::<u64>().ok());
                // A line without a number is one of no cost.
                let cost = cost.unwrap_or(0);
                if !std::mem::take(&mut of_callee) {
                    *files.entry(file.clone()).or_insert(0u64) += cost;
                    *functions.entry(function.clone()).or_insert(0u64) += cost;
                    total += cost;
                }
                continue;
            }
            let Some((key, value)) = line.split_once(['=', ':']) else { continue };
            match key {
                "fl" | "fi" | "fe" => file = file_names.resolve(value),
                "fn" => function = function_names.resolve(value),
                "cfi" | "cfl" => drop(file_names.resolve(value)),
                "cfn" => drop(function_names.resolve(value)),
                "calls" => of_callee = true,
                "events" if value.trim() != "Ir" => return Err(bad("other events than Ir")),
                "totals" => {
                    let sum = value.trim().parse().map_err(|_| bad("the total is no number"))?;
                    told = Some::<u64>(sum);
                }
                _ => {}
            }
        }
        match told {
            Some(told) if told == total => {}
            Some(_) => return Err(Unreadable { line: 0, why: "the total is not the sum" }),
            None => return Err(Unreadable { line: 0, why: "there is no total" }),
        }
        Ok(Self { total, files: descending(files), functions: descending(functions) })
    }

    /// The total by crate of the source file, dearest first.
    pub fn crates(&self) -> Vec<(String, u64)> {
        let mut sums = HashMap::new();
        for (file, cost) in &self.files {
            *sums.entry(crate_of(file).to_owned()).or_insert(0) += cost;
        }
        descending(sums)
    }
}

fn descending(sums: HashMap<String, u64>) -> Vec<(String, u64)> {
    let mut sorted: Vec<_> = sums.into_iter().filter(|(_, cost)| *cost > 0).collect();
    sorted.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
    sorted
}

/// The crate that a source file belongs to: the directory above its last `src`, without a version.
/// The standard library's crates are told as one, `std`; what has no `src` is the C library.
fn crate_of(file: &str) -> &str {
    if file.contains("/rustc/") || file.contains("/library/") {
        return "std";
    }
    let Some((above, _)) = file.rsplit_once("/src/") else { return "libc" };
    let name = above.rsplit('/').next().unwrap_or(above);
    match name.rsplit_once('-') {
        Some((name, version)) if version.starts_with(|c: char| c.is_ascii_digit()) => name,
        _ => name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAMPLE: &str = "\
version: 1
creator: callgrind-3.19.0
positions: line
events: Ir
fl=(1) /build/core/stack/src/input.rs
fn=(1) stack::input
10 5
+2 7
fi=(2) /build/core/wire/src/tcp.rs
30 11
fe=(1)
cfi=(3) ./string/memmove.S
cfn=(2) memmove
calls=2 100
14 40
-1 1
fl=(3)
fn=(2)
100 40
totals: 64
";

    #[test]
    fn costs_go_to_the_file_and_the_function_that_spent_them() {
        let profile = Profile::parse(SAMPLE).expect("readable");
        assert_eq!(profile.total, 64);
        let functions = [("memmove".to_owned(), 40), ("stack::input".to_owned(), 24)];
        assert_eq!(profile.functions, functions);
        let crates = [("libc", 40), ("stack", 13), ("wire", 11)].map(|(n, c)| (n.to_owned(), c));
        assert_eq!(profile.crates(), crates);
    }

    #[test]
    fn a_file_that_does_not_add_up_is_refused() {
        let cut = SAMPLE.replace("100 40\n", "");
        let error = Profile::parse(&cut).expect_err("24 is not 64");
        assert!(error.to_string().contains("not the sum"), "{error}");
        assert!(Profile::parse("").is_err());
        assert!(Profile::parse(&SAMPLE.replace("Ir", "Ir Dr")).is_err());
    }

    #[test]
    fn versions_are_no_part_of_a_crate() {
        assert_eq!(crate_of("/r/hashbrown-0.17.0/src/table.rs"), "hashbrown");
        assert_eq!(crate_of("/rustc/abc/library/core/src/slice/mod.rs"), "std");
        assert_eq!(crate_of("/p/apps/kv/src/store/shard.rs"), "kv");
    }
}
