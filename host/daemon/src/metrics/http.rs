//! HTTP/1.1, as far as a page of metrics needs it: `GET` and `HEAD` of one path, one request a connection.
//!
//! ```
//! use daemon::metrics::http::{Asked, asked};
//! assert_eq!(asked(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n"), Some(Asked::Page { head: false }));
//! assert_eq!(asked(b"GET /metrics HTTP/1.1\r\n"), None); // more is to come
//! ```

use super::openmetrics::CONTENT_TYPE;

/// Longest head of a request, in bytes.
pub const HEAD_MAX: usize = 8 * 1024;
/// Where the page is.
const PATH: &str = "/metrics";

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The page; or what stands before it alone.
    Page {
        /// Without the page.
        head: bool,
    },
    /// Something else: the answer is this status.
    No(&'static str),
}

/// Looks at what has come so far; none while the head of the request is not whole.
pub fn asked(bytes: &[u8]) -> Option<Asked> {
    let end = bytes.windows(4).position(|four| four == b"\r\n\r\n");
    let Some(end) = end else {
        return (bytes.len() > HEAD_MAX)
            .then_some(Asked::No("431 Request Header Fields Too Large"));
    };
    let line = bytes[..end].split(|byte| *byte == b'\r').next().unwrap_or_default();
    let Ok(line) = std::str::from_utf8(line) else { return Some(Asked::No("400 Bad Request")) };
    let words: Vec<&str> = line.split(' ').collect();
    let [method, target, version] = words[..] else { return Some(Asked::No("400 Bad Request")) };
    if !version.starts_with("HTTP/1.") {
        return Some(Asked::No("505 HTTP Version Not Supported"));
    }
    let path = target.split('?').next().unwrap_or_default();
    Some(match (method, path) {
        ("GET", PATH) => Asked::Page { head: false },
        ("HEAD", PATH) => Asked::Page { head: true },
        (_, PATH) => Asked::No("405 Method Not Allowed"),
        _ => Asked::No("404 Not Found"),
    })
}

/// The page as an answer.
pub fn page(body: &str, head: bool) -> Vec<u8> {
    let mut answer = answer("200 OK", CONTENT_TYPE, body.len());
    if !head {
        answer.push_str(body);
    }
    answer.into_bytes()
}

/// Another answer.
pub fn no(status: &str) -> Vec<u8> {
    let body = format!("{status}; the metrics are at {PATH}\n");
    let mut text = answer(status, "text/plain; charset=utf-8", body.len());
    text.push_str(&body);
    text.into_bytes()
}

fn answer(status: &str, kind: &str, length: usize) -> String {
    let allow = if status.starts_with("405") { "Allow: GET, HEAD\r\n" } else { "" };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n{allow}\
         Connection: close\r\n\r\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_page_is_there() {
        let of = |line: &str| asked(format!("{line}\r\nA: b\r\n\r\n").as_bytes());
        assert_eq!(of("GET /metrics?name=x HTTP/1.1"), Some(Asked::Page { head: false }));
        assert_eq!(of("HEAD /metrics HTTP/1.0"), Some(Asked::Page { head: true }));
        assert_eq!(of("POST /metrics HTTP/1.1"), Some(Asked::No("405 Method Not Allowed")));
        assert_eq!(of("GET / HTTP/1.1"), Some(Asked::No("404 Not Found")));
        assert_eq!(of("GET /metrics HTTP/2"), Some(Asked::No("505 HTTP Version Not Supported")));
        for line in ["GET /metrics", "", "GET  /metrics HTTP/1.1", "a b c d"] {
            assert_eq!(of(line), Some(Asked::No("400 Bad Request")), "{line}");
        }
        assert_eq!(asked(b"\xff\r\n\r\n"), Some(Asked::No("400 Bad Request")));
        assert_eq!(asked(&[b'x'; HEAD_MAX]), None);
        assert!(
            matches!(asked(&[b'x'; HEAD_MAX + 1]), Some(Asked::No(status)) if status.starts_with("431"))
        );
    }

    proptest::proptest! {
        /// Looked at byte by byte as they come, as the server does, any bytes are answered within the bound.
        #[test]
        fn any_bytes_are_answered_or_wait_within_the_bound(
            line in "(GET|HEAD|POST|[A-Z]{0,6}) /?(metrics)?.{0,30}",
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200),
        ) {
            let request = [line.as_bytes(), &bytes, b"\r\n\r\n"].concat();
            let answered = (0..=request.len()).find(|&len| asked(&request[..len]).is_some());
            proptest::prop_assert!(answered.is_some());
            let endless = bytes.iter().copied().filter(|byte| *byte != b'\n').cycle().take(HEAD_MAX + 1);
            let endless: Vec<u8> = endless.collect();
            proptest::prop_assert!(endless.is_empty() || asked(&endless).is_some());
        }
    }

    #[test]
    fn answers_say_their_length() {
        let text = String::from_utf8(page("a 1\n# EOF\n", false)).expect("text");
        assert!(text.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/openmetrics-text"));
        assert!(text.contains("Content-Length: 10\r\n") && text.ends_with("\r\n\r\na 1\n# EOF\n"));
        let head = String::from_utf8(page("a 1\n# EOF\n", true)).expect("text");
        assert!(head.contains("Content-Length: 10\r\n") && head.ends_with("\r\n\r\n"));
        let no = String::from_utf8(no("405 Method Not Allowed")).expect("text");
        assert!(no.contains("Allow: GET, HEAD\r\n"), "{no}");
    }
}
