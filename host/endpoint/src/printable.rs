//! Text of a process that is not trusted, for terminals and logs.
//!
//! A terminal obeys escape sequences, and a log's reader believes in line breaks: both are written as text wherever
//! bytes of another process become a `String` of this one.

/// Longest text of another process that is printed in one place, in bytes.
pub const PRINTED_MAX: usize = 1 << 10;

/// Appends a character as a terminal can show it: controls, line breaks and what changes the direction of text are
/// written as escapes (`\x1b`, `\n`, `\u{202e}`).
pub fn push_printable(text: &mut String, character: char) {
    use std::fmt::Write;
    let code = u32::from(character);
    let written = match character {
        '\n' => text.write_str("\\n"),
        '\r' => text.write_str("\\r"),
        '\t' => text.write_str("\\t"),
        _ if code < 0x80 && character.is_control() => write!(text, "\\x{code:02x}"),
        _ if character.is_control() || redirects(code) => write!(text, "\\u{{{code:x}}}"),
        _ => text.write_char(character),
    };
    debug_assert!(written.is_ok(), "a string takes all that is written to it");
}

/// Line and paragraph separators, and marks, embeddings, overrides and isolates of direction (Unicode UAX #9).
fn redirects(code: u32) -> bool {
    matches!(code, 0x61c | 0x200e | 0x200f | 0x2028..=0x202e | 0x2066..=0x2069)
}

/// Text of another process in one line of at most [`PRINTED_MAX`] bytes and a few, as a terminal can show it.
pub fn printable(text: &str) -> String {
    let mut printed = String::new();
    for (at, character) in text.char_indices() {
        if printed.len() >= PRINTED_MAX {
            printed += &format!("... and {} bytes more", text.len() - at);
            break;
        }
        push_printable(&mut printed, character);
    }
    printed
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn controls_are_written_as_text() {
        let found = printable("ok\x1b[2J\n\r\t\u{7f}\u{9b}31m\u{202e}x \u{e4}");
        assert_eq!(found, "ok\\x1b[2J\\n\\r\\t\\x7f\\u{9b}31m\\u{202e}x \u{e4}");
        assert!(!found.chars().any(char::is_control));
    }

    #[test]
    fn long_texts_are_cut() {
        let found = printable(&"\x1b".repeat(64 << 10));
        assert!(found.len() < PRINTED_MAX + 64, "{}", found.len());
        assert!(found.ends_with("... and 65280 bytes more"), "{found}");
        assert_eq!(printable(&"x".repeat(PRINTED_MAX)).len(), PRINTED_MAX);
    }
}
