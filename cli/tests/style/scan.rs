//! Tells Rust code from comments and literals, without parsing it.

/// The text with comments, strings and character literals blanked; lines and columns stay.
pub fn code_only(text: &str) -> String {
    let characters: Vec<char> = text.chars().collect();
    let mut out = String::with_capacity(text.len());
    let mut at = 0;
    while at < characters.len() {
        let length = opaque_length(&characters[at..], at.checked_sub(1).map(|i| characters[i]));
        if length == 0 {
            out.push(characters[at]);
            at += 1;
            continue;
        }
        for &character in &characters[at..at + length] {
            out.push(if character == '\n' { '\n' } else { ' ' });
        }
        at += length;
    }
    out
}

/// How many characters at the start are a comment or a literal; zero where it is code.
fn opaque_length(rest: &[char], previous: Option<char>) -> usize {
    let in_word = previous.is_some_and(|character| character.is_alphanumeric() || character == '_');
    match rest {
        ['/', '/', ..] => rest.iter().position(|&c| c == '\n').unwrap_or(rest.len()),
        ['/', '*', ..] => block_comment_length(rest),
        ['"', ..] => string_length(rest),
        ['\'', ..] => character_length(rest),
        ['r', '"' | '#', ..] if !in_word => raw_string_length(rest, 1),
        ['b' | 'c', 'r', '"' | '#', ..] if !in_word => raw_string_length(rest, 2),
        _ => 0,
    }
}

/// Rust's block comments nest.
fn block_comment_length(rest: &[char]) -> usize {
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        match rest[at..] {
            ['/', '*', ..] => (depth, at) = (depth + 1, at + 2),
            ['*', '/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    rest.len()
}

fn string_length(rest: &[char]) -> usize {
    let mut at = 1;
    while at < rest.len() {
        match rest[at] {
            '\\' => at += 2,
            '"' => return at + 1,
            _ => at += 1,
        }
    }
    rest.len()
}

/// `r"..."`, `r#"..."#`; zero for a raw identifier such as `r#type`.
fn raw_string_length(rest: &[char], prefix: usize) -> usize {
    let hashes = rest[prefix..].iter().take_while(|&&c| c == '#').count();
    if rest.get(prefix + hashes) != Some(&'"') {
        return 0;
    }
    let mut at = prefix + hashes + 1;
    while at < rest.len() {
        let closes = rest[at] == '"'
            && rest[at + 1..].iter().take(hashes).filter(|&&c| c == '#').count() == hashes;
        if closes {
            return at + 1 + hashes;
        }
        at += 1;
    }
    rest.len()
}

/// A character literal; zero for a lifetime.
fn character_length(rest: &[char]) -> usize {
    match rest {
        ['\'', '\\', _, tail @ ..] => {
            tail.iter().position(|&c| c == '\'').map_or(0, |end| 3 + end + 1)
        }
        ['\'', _, '\'', ..] => 3,
        _ => 0,
    }
}

/// A function as it stands in a file: lines count from zero.
#[derive(Debug, PartialEq, Eq)]
pub struct Function {
    /// Its name.
    pub name: String,
    /// The line of `fn`.
    pub first_line: usize,
    /// The line of the closing brace.
    pub last_line: usize,
}

/// The line, from zero, of a byte.
pub fn line_of(text: &str, at: usize) -> usize {
    text[..at].bytes().filter(|&byte| byte == b'\n').count()
}

/// The byte after the brace that closes the one at `open`.
fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth = depth.saturating_sub(1),
            _ => continue,
        }
        if depth == 0 {
            return at + 1;
        }
    }
    code.len()
}

/// Where a word stands alone, as bytes.
pub fn words<'a>(code: &'a str, word: &'a str) -> impl Iterator<Item = usize> + 'a {
    let is_word = |byte: Option<&u8>| byte.is_some_and(|b| b.is_ascii_alphanumeric() || *b == b'_');
    let bytes = code.as_bytes();
    code.match_indices(word).map(|(at, _)| at).filter(move |&at| {
        let before = at.checked_sub(1).and_then(|before| bytes.get(before));
        !is_word(before) && !is_word(bytes.get(at + word.len()))
    })
}

/// The functions with a body, of code without comments and literals.
pub fn functions(code: &str) -> Vec<Function> {
    let mut found = Vec::new();
    for at in words(code, "fn") {
        let rest = code[at + 2..].trim_start();
        let name: String = rest.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
        let Some(open) = body(code, at) else { continue };
        // `fn(u8)` is a type.
        if !name.is_empty() {
            let last = closing(code, open) - 1;
            let (first_line, last_line) = (line_of(code, at), line_of(code, last));
            found.push(Function { name, first_line, last_line });
        }
    }
    found
}

/// The opening brace of the body that follows; `None` for a declaration, which ends with `;`.
fn body(code: &str, from: usize) -> Option<usize> {
    let mut depth = 0i32;
    for (at, byte) in code.bytes().enumerate().skip(from) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth -= 1,
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// For each line whether it is in a `#[cfg(test)]` module, of code without comments and literals.
pub fn test_lines(code: &str) -> Vec<bool> {
    let mut lines = vec![false; code.lines().count()];
    for (at, _) in code.match_indices("#[cfg(").filter(|(at, _)| {
        let attribute = code[*at..].split(']').next().unwrap_or_default();
        words(attribute, "test").next().is_some() && !attribute.contains("not(test")
    }) {
        let after = &code[at..];
        let Some(item) = after.find(']').map(|end| at + end + 1) else { continue };
        let Some(open) = body(code, item) else { continue };
        if words(&code[item..open], "mod").next().is_some() {
            let (first, last) = (line_of(code, at), line_of(code, closing(code, open) - 1));
            lines[first..=last].fill(true);
        }
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blanked_in_place() {
        for (text, expected) in [
            ("a // b {\nc", "a       \nc"),
            ("a /* { /* } */ { */ b", "a                   b"),
            (r#"f("{\"") {"#, "f(     ) {"),
            (r##"f(r#"{"#) {"##, "f(      ) {"),
            ("f('{', '\\'') {", "f(   ,     ) {"),
            ("fn f<'a>(x: &'a u8) {", "fn f<'a>(x: &'a u8) {"),
            ("let r#type = 1;", "let r#type = 1;"),
        ] {
            assert_eq!(code_only(text), expected, "{text}");
        }
    }

    #[test]
    fn functions_are_found_with_their_extent() {
        let code = "fn a(x: [u8; 2]) -> u8\nwhere {\n 1\n}\ntrait T { fn b(); }\ntype F = fn(u8);";
        let expected = Function { name: "a".into(), first_line: 0, last_line: 3 };
        assert_eq!(functions(code), [expected]);
    }

    #[test]
    fn test_modules_are_told_from_the_rest() {
        let code =
            "fn a() {}\n#[cfg(test)]\nmod tests {\n fn b() {}\n}\n#[cfg(not(test))]\nmod m {\n}";
        let expected = [false, true, true, true, true, false, false, false];
        assert_eq!(test_lines(code), expected);
        assert_eq!(test_lines("#[cfg(all(test, not(loom)))]\nmod t {\n}"), [true, true, true]);
    }
}
