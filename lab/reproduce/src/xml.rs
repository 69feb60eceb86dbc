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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::markup_tests as check;
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
