//! Rooms: the folders that crates are in, and which of them may know which.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use crate::repository;
use crate::rules::ROOMS;

/// The manifests of all crates, by the crate's name, each with its room.
pub fn manifests(root: &Path) -> BTreeMap<String, (&'static str, toml::Table)> {
    let mut found = BTreeMap::new();
    for room in ROOMS {
        let below =
            fs::read_dir(root.join(room)).expect("a room").flatten().map(|entry| entry.path());
        for path in below.chain([root.join(room)]).map(|path| path.join("Cargo.toml")) {
            let Ok(text) = fs::read_to_string(&path) else { continue };
            let manifest: toml::Table = text.parse().expect("a manifest");
            let name = manifest["package"]["name"].as_str().expect("a name").to_owned();
            found.insert(name, (room, manifest));
        }
    }
    found
}

/// All tables of a manifest that name dependencies.
fn dependencies(manifest: &toml::Table) -> Vec<String> {
    let mut names = Vec::new();
    for (key, value) in manifest {
        let Some(table) = value.as_table() else { continue };
        match key.as_str() {
            "dependencies" | "dev-dependencies" | "build-dependencies" => {
                names.extend(table.keys().cloned());
            }
            "target" => table.values().filter_map(toml::Value::as_table).for_each(|of| {
                names.extend(dependencies(of));
            }),
            _ => {}
        }
    }
    names
}

#[test]
fn dependencies_point_to_rooms_further_up() {
    let manifests = manifests(&repository());
    assert!(manifests.len() > 30, "{} crates", manifests.len());
    let place = |room: &str| ROOMS.iter().position(|other| *other == room).expect("a room");
    let mut wrong = Vec::new();
    for (name, (room, manifest)) in &manifests {
        for other in dependencies(manifest) {
            let Some((of, _)) = manifests.get(&other) else { continue };
            if place(of) > place(room) {
                wrong.push(format!("{room}/{name} needs {of}/{other}"));
            }
        }
    }
    assert!(wrong.is_empty(), "a crate needs one of a room further down: {wrong:#?}");
}

/// Against what a service is written there is neither a driver nor a stack, and no program for the kernel.
#[test]
fn the_api_knows_no_device() {
    let manifests = manifests(&repository());
    let mut all: Vec<String> = vec!["tailplane".into()];
    let mut at = 0;
    while let Some(name) = all.get(at) {
        let table =
            manifests.get(name).and_then(|(_, manifest)| manifest.get("dependencies")?.as_table());
        let new: Vec<String> = table.map_or(Vec::new(), |table| table.keys().cloned().collect());
        let new: Vec<String> = new.into_iter().filter(|other| !all.contains(other)).collect();
        all.extend(new);
        at += 1;
    }
    assert!(all.iter().any(|name| name == "wire"), "{all:?}");
    for device in ["nic", "stack", "dataplane", "aya", "pcap-file"] {
        assert!(!all.iter().any(|name| name == device), "it needs {device}: {all:?}");
    }
}

#[test]
fn each_room_says_what_it_is() {
    for room in ROOMS.iter().filter(|room| **room != "cli") {
        let text = fs::read_to_string(repository().join(room).join("README.md")).expect("a README");
        let lines = text.lines().filter(|line| !line.is_empty()).count();
        assert!((3..=6).contains(&lines), "{room}/README.md has {lines} lines");
    }
}

/// Paths in backticks that begin with a room.
fn paths(text: &str) -> Vec<&str> {
    let quoted = text.split('`').skip(1).step_by(2);
    quoted.filter(|word| ROOMS.contains(&word.split('/').next().unwrap_or(""))).collect()
}

#[test]
fn no_document_names_a_path_that_is_not_there() {
    let root = repository();
    let (mut files, mut wrong, mut named) = (Vec::new(), Vec::new(), 0);
    crate::walk(&root, Path::new(""), 0, &mut files);
    for file in files.iter().filter(|file| file.extension().is_some_and(|ending| ending == "md")) {
        let text = fs::read_to_string(root.join(file)).expect("text");
        for path in paths(&text) {
            // A test by its file, or a path with a place-holder.
            let path = path.split("::").next().unwrap_or(path);
            if path.contains(['*', '{', '<']) {
                continue;
            }
            named += 1;
            if !root.join(path).exists() {
                wrong.push(format!("{}: {path}", file.display()));
            }
        }
    }
    assert!(named > 200, "{named} paths");
    assert!(wrong.is_empty(), "these are not there: {wrong:#?}");
}

#[test]
fn the_book_has_each_page_and_no_other() {
    let docs = repository().join("docs");
    let contents = fs::read_to_string(docs.join("SUMMARY.md")).expect("the table of contents");
    let links = contents.split("](").skip(1).filter_map(|rest| rest.split(')').next());
    let named: BTreeSet<String> = links.map(str::to_owned).collect();
    let mut pages = BTreeSet::new();
    for folder in ["", "results/"] {
        for entry in fs::read_dir(docs.join(folder)).expect("a folder").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".md") && name != "SUMMARY.md" {
                pages.insert(format!("{folder}{name}"));
            }
        }
    }
    assert_eq!(named, pages, "docs/SUMMARY.md on the left, the pages on the right");
}

/// A stranger reads them in two minutes, and in ten.
#[test]
fn the_first_two_pages_are_short() {
    for (page, most) in [("README.md", 120), ("ARCHITECTURE.md", 150)] {
        let text = fs::read_to_string(repository().join(page)).expect("it is there");
        let lines = text.lines().count();
        assert!(lines <= most, "{page} has {lines} lines");
    }
}

/// Each row of the walk names a function and the file that has it: a frame passes at most ten functions beside the one
/// that calls them all, in at most eight files.
#[test]
fn the_walk_of_a_packet_names_functions_that_are_there() {
    let root = repository();
    let walk = fs::read_to_string(root.join("docs/walk.md")).expect("the chapter");
    let (mut passed, mut files, mut wrong) = (0, BTreeSet::new(), Vec::new());
    for line in walk.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [step, function, place, _] = cells[..] else { continue };
        let Some(path) = paths(place).pop() else { continue };
        passed += usize::from(step != "|");
        files.insert(path);
        let function = format!("fn {}", function.trim_matches('`'));
        let text = fs::read_to_string(root.join(path)).unwrap_or_default();
        if ![format!("{function}("), format!("{function}<")].iter().any(|it| text.contains(it)) {
            wrong.push(format!("{function} in {path}"));
        }
    }
    assert!((8..=10).contains(&passed) && files.len() <= 8, "{passed} functions in {files:?}");
    assert!(wrong.is_empty(), "these are not there: {wrong:#?}");
}

/// Each row of the glossary names an item of the code and the file that has it.
#[test]
fn the_glossary_names_what_is_there() {
    let root = repository();
    let glossary = fs::read_to_string(root.join("docs/glossary.md")).expect("the glossary");
    let (mut rows, mut wrong) = (0, Vec::new());
    for line in glossary.lines().filter(|line| line.starts_with("| ")) {
        let cells: Vec<&str> = line.split(" | ").collect();
        let [_, _, item, place] = cells[..] else { continue };
        let (item, place) = (item.split('`').nth(1), paths(place).pop());
        let (Some(item), Some(place)) = (item, place) else { continue };
        rows += 1;
        let name = item.rsplit("::").next().unwrap_or(item).trim_end_matches("()");
        let text = fs::read_to_string(root.join(place)).unwrap_or_default();
        if !text.contains(name) {
            wrong.push(format!("{name} in {place}"));
        }
    }
    assert!(rows > 50, "{rows} rows");
    assert!(wrong.is_empty(), "these are not there: {wrong:#?}");
}

/// Each requirement of RFC 9293 has one row, and the test that it names is there.
#[test]
fn each_requirement_of_tcp_has_a_test_or_a_reason() {
    let root = repository();
    let table = fs::read_to_string(root.join("docs/rfc9293.md")).expect("the table");
    let rooms = ["core/stack/tests/dialogues", "core/stack/tests/v6", "core/wire/tests/wire"];
    let (mut found, mut tested, mut wrong) = (BTreeSet::new(), 0, Vec::new());
    for line in
        table.lines().filter(|line| line.starts_with("| MUST-") || line.starts_with("| SHLD-"))
    {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").map(str::trim).collect();
        let [requirement, asked, done, test] = cells[..] else { panic!("four cells: {line}") };
        assert!(!asked.is_empty() && !done.is_empty(), "{line}");
        assert!(found.insert(requirement), "{requirement} has two rows");
        if test == "—" {
            continue;
        }
        tested += 1;
        let name = test.trim_matches('`').split_once("::");
        let (file, function) = name.unwrap_or_else(|| panic!("`file::function`, not {test}"));
        let texts =
            rooms.map(|room| fs::read_to_string(root.join(room).join(file).with_extension("rs")));
        let function = format!("fn {function}(");
        if !texts.iter().flatten().any(|text| text.contains(&function)) {
            wrong.push(format!("{requirement}: {test}"));
        }
    }
    let all = (1..=69).map(|number| format!("MUST-{number}"));
    let all = all.chain((1..=31).map(|number| format!("SHLD-{number}")));
    let missing: Vec<_> = all.filter(|requirement| !found.contains(requirement.as_str())).collect();
    assert!(missing.is_empty(), "no row for {missing:?}");
    assert!(wrong.is_empty(), "these tests are not there: {wrong:#?}");
    assert!(tested > 75, "{tested} have tests");
}

#[test]
fn the_map_has_each_crate_and_no_path_that_is_not_there() {
    let root = repository();
    let map = fs::read_to_string(root.join("ARCHITECTURE.md")).expect("the map");
    let named = paths(&map);
    assert!(named.len() > 60, "{} paths", named.len());
    let missing: Vec<_> = named.iter().filter(|path| !root.join(path).exists()).collect();
    assert!(missing.is_empty(), "these are not there: {missing:?}");
    for (name, (room, _)) in manifests(&root) {
        let path = if room == name { name.clone() } else { format!("{room}/{name}") };
        assert!(named.contains(&path.as_str()), "{path} is not on the map");
    }
}
