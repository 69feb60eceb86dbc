//! The configurations that the documents show are configurations that `tailplane run` takes.

use std::fs;
use std::path::Path;

use service::config::RunConfig;

/// The blocks of TOML in a page.
fn blocks(page: &str) -> impl Iterator<Item = &str> {
    page.split("```toml\n").skip(1).map(|block| block.split("```").next().unwrap_or_default())
}

/// Whether a block is a service's file, or a part of one: its first table says so.
fn is_a_services(block: &str) -> bool {
    let mut lines = block.lines().filter(|line| !line.starts_with('#'));
    matches!(lines.next(), Some("[service]" | "[network]" | "[dataplane]" | "[application]"))
}

#[test]
fn the_files_of_the_documents_are_taken() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let mut taken = 0;
    for entry in fs::read_dir(docs).expect("the documents") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "md") {
            continue;
        }
        let page = fs::read_to_string(&path).expect("text");
        for block in blocks(&page).filter(|block| is_a_services(block)) {
            let part = if block.contains("[service]") { "" } else { "[service]\napp = \"kv\"\n" };
            let text = format!("{part}{block}");
            if let Err(error) = RunConfig::parse(&text) {
                panic!("{}: {error:#}\n{text}", path.display());
            }
            taken += 1;
        }
    }
    assert!(taken >= 4, "{taken} configurations were found");
}
