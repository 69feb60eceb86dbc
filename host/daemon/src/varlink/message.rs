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

    proptest::proptest! {
        #[test]
        fn any_bytes_are_a_call_or_an_error(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..256)) {
            let _ = Call::parse(&bytes);
        }

        /// Whatever a client names is answered by one message.
        #[test]
        fn any_call_has_one_answer(
            method in "(io.tailplane.Control.(Start|Stop|Policy|Grant|Park|Move|Pin|Status|Events|List|[A-Z][a-z]{0,5}))|.{0,40}",
            name in "[0-9a-z]{0,3}|.{0,9}",
            number in proptest::prelude::any::<i64>(),
            key in "(thread|cpu|groups|from|to|policy|period_ms|slo_us|sequence|over|[a-z]{0,4})",
        ) {
            use super::super::{Access, interface::{Asked, asked}};
            let parameters = json!({ "name": name, key: number });
            let call = json!({ "method": method, "parameters": parameters }).to_string();
            let call = Call::parse(call.as_bytes()).expect("a call");
            let access = Access { own_uid: 0, group: None, others_read: false };
            let snapshot = crate::status::Snapshot::default();
            if let Asked::Reply(bytes) = asked(&call, &access, super::super::Role::Change, &snapshot) {
                proptest::prop_assert_eq!(bytes.iter().filter(|byte| **byte == 0).count(), 1);
                proptest::prop_assert_eq!(bytes.last(), Some(&0));
            }
        }
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
