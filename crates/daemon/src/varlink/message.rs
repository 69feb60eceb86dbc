//! Messages: JSON objects, each with a zero byte behind it.

use serde::Deserialize;
use serde_json::{Map, Value, json};

/// Longest message of a client, in bytes.
pub const MESSAGE_MAX: usize = 64 * 1024;

/// What a client calls.
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Call {
    /// Interface and method.
    pub method: String,
    /// Its parameters.
    #[serde(default)]
    pub parameters: Map<String, Value>,
    /// Whether there may be several replies.
    #[serde(default)]
    pub more: bool,
    /// Whether there shall be none.
    #[serde(default)]
    pub oneway: bool,
    /// Whether the connection shall become something else: never here.
    #[serde(default)]
    pub upgrade: bool,
}

impl Call {
    /// Reads a message, without its zero byte.
    ///
    /// # Errors
    /// It is no call: why.
    pub fn parse(bytes: &[u8]) -> Result<Self, String> {
        serde_json::from_slice(bytes).map_err(|error| error.to_string())
    }
}

/// A reply; `continues`: there are more to come.
pub fn reply(parameters: Value, continues: bool) -> Vec<u8> {
    let message = match continues {
        true => json!({ "parameters": parameters, "continues": true }),
        false => json!({ "parameters": parameters }),
    };
    whole(&message)
}

/// An error, by its full name.
pub fn error(name: &str, parameters: Value) -> Vec<u8> {
    whole(&json!({ "error": name, "parameters": parameters }))
}

fn whole(message: &Value) -> Vec<u8> {
    let mut bytes = message.to_string().into_bytes();
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_read_and_nonsense_is_not() {
        let call = Call::parse(br#"{"method": "a.B", "more": true}"#).expect("a call");
        assert_eq!((call.method.as_str(), call.more, call.oneway), ("a.B", true, false));
        for text in
            ["", "[]", "{}", r#"{"method": 1}"#, r#"{"method": "a", "parameters": []}"#, "\u{1}"]
        {
            assert!(Call::parse(text.as_bytes()).is_err(), "{text}");
        }
        let deep = format!("{}{}", "[".repeat(30_000), "]".repeat(30_000));
        let deep = format!(r#"{{"method": "a", "parameters": {{"x": {deep}}}}}"#);
        assert!(Call::parse(deep.as_bytes()).is_err(), "the reader's depth is bounded");
    }

    #[test]
    fn replies_end_with_a_zero() {
        assert_eq!(reply(json!({"a": 1}), false), b"{\"parameters\":{\"a\":1}}\0");
        let text = String::from_utf8(reply(json!({}), true)).expect("text");
        assert!(text.contains("\"continues\":true") && text.ends_with('\0'));
        let text = String::from_utf8(error("x.Y", json!({"reason": "a\0b"}))).expect("text");
        assert_eq!(text.matches('\0').count(), 1, "a zero in a string is escaped: {text}");
    }
}
