//! A well-formedness checker for the tests: only what this crate writes (no comments, no entities
//! but the five and numeric ones, no CDATA).

/// Elements of HTML that have no end tag.
const VOID: [&str; 2] = ["meta", "col"];

/// Walks `text`; the names of its elements in order, or what is wrong with it.
pub fn elements(text: &str) -> Result<Vec<String>, String> {
    let mut open: Vec<String> = Vec::new();
    let mut all = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('<') {
        text_is_clean(&rest[..at])?;
        let tag = &rest[at + 1..];
        let end = tag_end(tag)?;
        let (inner, after) = (&tag[..end], &tag[end + 1..]);
        rest = after;
        if inner.eq_ignore_ascii_case("!doctype html") {
            continue;
        }
        if let Some(name) = inner.strip_prefix('/') {
            let opened = open.pop().ok_or_else(|| format!("</{name}> closes nothing"))?;
            if opened != name {
                return Err(format!("</{name}> closes <{opened}>"));
            }
            continue;
        }
        let (inner, closed) = match inner.strip_suffix('/') {
            Some(inner) => (inner, true),
            None => (inner, false),
        };
        let name = inner.split(' ').next().unwrap_or_default();
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric()) {
            return Err(format!("<{name}> is no name"));
        }
        attributes(&inner[name.len()..])?;
        all.push(name.to_owned());
        if name == "style" && !closed {
            // Its text is not markup.
            rest = rest.split_once("</style>").ok_or("<style> without end")?.1;
        } else if !closed && !VOID.contains(&name) {
            open.push(name.to_owned());
        }
    }
    text_is_clean(rest)?;
    if open.is_empty() { Ok(all) } else { Err(format!("still open: {open:?}")) }
}

/// Index of the `>` that ends a tag, beyond quoted values.
fn tag_end(tag: &str) -> Result<usize, String> {
    let mut quoted = false;
    for (index, letter) in tag.char_indices() {
        match letter {
            '"' => quoted = !quoted,
            '>' if !quoted => return Ok(index),
            '<' => return Err("< within a tag".to_owned()),
            _ => {}
        }
    }
    Err("a tag without end".to_owned())
}

fn attributes(text: &str) -> Result<(), String> {
    let mut rest = text.trim();
    let mut names: Vec<&str> = Vec::new();
    while !rest.is_empty() {
        let (name, value) = rest.split_once("=\"").ok_or(format!("attribute in {rest}"))?;
        if name.is_empty() || !name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-') {
            return Err(format!("attribute name {name}"));
        }
        if names.contains(&name) {
            return Err(format!("attribute {name} twice"));
        }
        names.push(name);
        let (value, after) = value.split_once('"').ok_or("a value without end")?;
        text_is_clean(value)?;
        if !after.is_empty() && !after.starts_with(' ') {
            return Err(format!("no blank after {name}"));
        }
        rest = after.trim();
    }
    Ok(())
}

fn text_is_clean(text: &str) -> Result<(), String> {
    if text.contains('>') {
        return Err(format!("bare > in {text}"));
    }
    for (at, _) in text.match_indices('&') {
        let entity = text[at + 1..].split(';').next().unwrap_or_default();
        let numeric = entity.strip_prefix('#').is_some_and(|n| n.parse::<u32>().is_ok());
        if !numeric && !["amp", "lt", "gt", "quot"].contains(&entity) {
            return Err(format!("entity &{entity}"));
        }
    }
    match text.chars().find(|c| (c.is_control() && *c != '\n') || *c == '\u{fffe}') {
        Some(letter) => Err(format!("character {letter:?}")),
        None => Ok(()),
    }
}
