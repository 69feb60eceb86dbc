//! Text within markup, for SVG and HTML alike.

/// `text` such that it is only text: in element content and in quoted attributes. Characters that
/// XML has no way to write become the replacement character.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\t' | '\n' | '\r' => escaped.push(' '),
            // XML 1.0 §2.2: no other control characters, no non-characters.
            '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{fffe}' | '\u{ffff}' => {
                escaped.push('\u{fffd}');
            }
            letter => escaped.push(letter),
        }
    }
    escaped
}

/// A name for an `id` attribute: `text` with all but letters and digits replaced by dashes.
pub fn id(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { '-' })
        .collect()
}

/// `text`, or its beginning and an ellipsis where it is longer than `most` characters.
pub fn shorten(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}

/// A well-formedness checker for the tests: only what this crate writes (no comments, no entities
/// but the five and numeric ones, no CDATA).
#[cfg(test)]
pub(crate) mod check {
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
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_checker_sees_what_is_wrong() {
        assert_eq!(check::elements("<a b=\"1\"><c/>x &amp; y</a>").unwrap(), ["a", "c"]);
        for bad in [
            "<a>",
            "</a>",
            "<a></b>",
            "a & b",
            "a > b",
            "<a b=c/>",
            "<a b=\"1\" b=\"2\"/>",
            "<",
            "<a \u{1}/>",
        ] {
            assert!(check::elements(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn long_texts_are_shortened_by_characters() {
        assert_eq!(shorten("häuser", 6), "häuser");
        assert_eq!(shorten("häuser", 4), "häu…");
        assert_eq!(shorten("abc", 0), "…");
        assert_eq!(id("ix/fig4: A\""), "ix-fig4--a-");
    }

    proptest! {
        #[test]
        fn escaped_text_is_only_text(text in any::<String>()) {
            let escaped = escape(&text);
            let element = format!("<a b=\"{escaped}\">{escaped}</a>");
            prop_assert_eq!(check::elements(&element), Ok(vec!["a".to_owned()]));
            prop_assert_eq!(escape(&text).contains('<'), false);
        }
    }
}
