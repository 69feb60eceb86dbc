//! Which files of a crate import each other: never in a circle.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::repository;
use crate::rooms::manifests;
use crate::scan::{code_only, test_lines};

/// A file as a path of modules; the crate's root is the empty one.
type Module = Vec<String>;

/// What each file of a crate imports from others of it.
type Imports = BTreeMap<Module, BTreeSet<Module>>;

/// The module that a file is: `tcp/mod.rs` and `tcp.rs` are `tcp`. Tests are none.
fn module(file: &Path) -> Option<Module> {
    let mut parts: Module = file.iter().map(|part| part.to_string_lossy().into_owned()).collect();
    let name = parts.pop()?.strip_suffix(".rs")?.to_owned();
    let is_test = |part: &str| part == "tests" || part.ends_with("_tests");
    if parts.iter().any(|part| is_test(part)) || is_test(&name) {
        return None;
    }
    let is_root = parts.is_empty() && (name == "lib" || name == "main");
    if !is_root && name != "mod" {
        parts.push(name);
    }
    Some(parts)
}

/// Every path that begins in this crate, `use` lists spread out.
fn paths(code: &str) -> Vec<String> {
    let mut found = Vec::new();
    for start in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(start) {
            let before = code[..at].chars().next_back();
            // The middle of a path, or a visibility.
            let is_inside =
                before.is_some_and(|c| c.is_alphanumeric() || matches!(c, '_' | ':' | '$'));
            if is_inside || code[..at].ends_with("(in ") {
                continue;
            }
            spread(&code[at..], String::new(), &mut found);
        }
    }
    found
}

/// The paths of `text`, which begins with one: `a::{b, c::d}` are `a::b` and `a::c::d`. The rest of the text.
fn spread<'a>(text: &'a str, prefix: String, found: &mut Vec<String>) -> &'a str {
    let end =
        text.find(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | ':'))).unwrap_or(text.len());
    let path = format!("{prefix}{}", &text[..end]);
    let Some(mut list) = text[end..].strip_prefix('{').filter(|_| path.ends_with("::")) else {
        found.push(path);
        return &text[end..];
    };
    loop {
        list = list.trim_start_matches(|c: char| c.is_whitespace() || c == ',');
        match list.chars().next() {
            None => return list,
            Some('}') => return &list[1..],
            Some(c) if c.is_alphanumeric() || c == '_' => list = spread(list, path.clone(), found),
            // `*`, or what is after `as`.
            Some(c) => list = &list[c.len_utf8()..],
        }
    }
}

/// Where a path leads from a module: the longest beginning of it that is a file.
fn target(path: &str, from: &Module, files: &BTreeSet<Module>) -> Option<Module> {
    let (mut at, mut parts) =
        (from.clone(), path.split("::").filter(|part| !part.is_empty()).peekable());
    if parts.next_if_eq(&"crate").is_some() {
        at.clear();
    }
    parts.next_if_eq(&"self");
    while parts.next_if_eq(&"super").is_some() {
        at.pop()?;
    }
    at.extend(parts.map(str::to_owned));
    while !files.contains(&at) {
        at.pop()?;
    }
    Some(at).filter(|at| at != from)
}

fn imports(sources: &BTreeMap<Module, String>) -> Imports {
    let files: BTreeSet<Module> = sources.keys().cloned().collect();
    let of = |(from, text): (&Module, &String)| {
        let code = code_only(text);
        let tests = test_lines(&code);
        let lines = code.lines().zip(&tests).filter(|(_, is_test)| !**is_test);
        let code = lines.map(|(line, _)| line).collect::<Vec<_>>().join("\n");
        let all = paths(&code).into_iter().filter_map(|path| target(&path, from, &files)).collect();
        (from.clone(), all)
    };
    sources.iter().map(of).collect()
}

/// All modules that one leads to, over any number of imports.
fn reached<'a>(from: &'a Module, imports: &'a Imports) -> BTreeSet<&'a Module> {
    let (mut seen, mut next) = (BTreeSet::new(), vec![from]);
    while let Some(module) = next.pop() {
        next.extend(imports[module].iter().filter(|to| seen.insert(*to)));
    }
    seen
}

/// The files that lead back to themselves, each with what it imports of the same circle.
fn circles(imports: &Imports) -> Vec<String> {
    let reached: BTreeMap<&Module, _> =
        imports.keys().map(|from| (from, reached(from, imports))).collect();
    let name = |module: &Module| match module.is_empty() {
        true => "the root".to_owned(),
        false => module.join("::"),
    };
    let mut found = Vec::new();
    for (from, all) in &reached {
        let back = imports[*from].iter().filter(|to| reached[to].contains(from)).map(name);
        let back: Vec<String> = back.collect();
        if all.contains(from) && !back.is_empty() {
            found.push(format!("{} imports {}", name(from), back.join(", ")));
        }
    }
    found
}

fn sources(folder: &Path, below: &Path, found: &mut BTreeMap<Module, String>) {
    for entry in fs::read_dir(folder.join(below)).expect("a folder of sources").flatten() {
        let path = below.join(entry.file_name());
        if entry.path().is_dir() {
            sources(folder, &path, found);
        } else if let Some(module) = module(&path) {
            found
                .entry(module)
                .or_default()
                .push_str(&fs::read_to_string(entry.path()).expect("text"));
        }
    }
}

#[test]
fn files_of_a_crate_import_each_other_without_circles() {
    let root = repository();
    let (mut wrong, mut files) = (Vec::new(), 0);
    for (name, (room, _)) in manifests(&root) {
        let folder = if room == name { root.join(room) } else { root.join(room).join(&name) };
        let mut all = BTreeMap::new();
        sources(&folder.join("src"), Path::new(""), &mut all);
        files += all.len();
        wrong.extend(circles(&imports(&all)).into_iter().map(|one| format!("{name}: {one}")));
    }
    assert!(files > 300, "{files} files");
    assert!(wrong.is_empty(), "{} files are in circles: {wrong:#?}", wrong.len());
}

#[test]
fn a_circle_is_found_and_a_chain_is_none() {
    let of = |files: &[(&str, &str)]| {
        let module = |name: &str| module(Path::new(name)).expect("no test");
        let all = files.iter().map(|(name, text)| (module(name), (*text).to_owned())).collect();
        circles(&imports(&all))
    };
    let chain = of(&[
        ("lib.rs", "mod a; mod b; pub use a::A;"),
        ("a.rs", "use crate::b::{self, c::{D, E as F}, G};"),
        ("b/mod.rs", "mod c;"),
        (
            "b/c.rs",
            "// crate::a::A\npub(in crate::b) struct D;\n#[cfg(test)]\nmod tests { use crate::a::A; }\n",
        ),
    ]);
    assert!(chain.is_empty(), "{chain:?}");
    let circle = of(&[
        ("a.rs", "use super::b::B;"),
        ("b.rs", "fn f() { crate::a::g() }"),
        ("c.rs", "use crate::a;"),
    ]);
    assert_eq!(circle, ["a imports b", "b imports a"]);
    let of_three = of(&[
        ("a.rs", "use crate::{x, b::B};"),
        ("b.rs", "use crate::c::C;"),
        ("c.rs", "use super::a::A;"),
    ]);
    assert_eq!(of_three.len(), 3, "{of_three:?}");
}
