//! Base64 (RFC 4648 §4) for binary keys of meta commands.

use ::base64::Engine;
use ::base64::alphabet::STANDARD;
use ::base64::engine::{GeneralPurpose, GeneralPurposeConfig};

/// The longest key, encoded.
pub(crate) const ENCODED_KEY_MAX_BYTES: usize = 250_usize.div_ceil(3) * 4;

/// As in memcached, bits behind the last whole byte mean nothing.
static ENGINE: GeneralPurpose = GeneralPurpose::new(
    &STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

/// Decodes `text` into `out` and returns the length; none if `text` is empty or not base64 with its
/// padding.
pub(crate) fn decode(text: &[u8], out: &mut [u8; 250]) -> Option<usize> {
    ENGINE.decode_slice(text, out).ok().filter(|&len| len > 0)
}

/// Encodes a key of at most 250 bytes into `out` and returns the length.
pub(crate) fn encode(key: &[u8], out: &mut [u8; ENCODED_KEY_MAX_BYTES]) -> usize {
    debug_assert!(key.len() <= 250, "a key of {} bytes", key.len());
    ENGINE.encode_slice(key, out).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 4648 §10.
    #[test]
    fn rfc_vectors_both_ways() {
        let vectors = [
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (plain, coded) in vectors {
            let mut text = [0; ENCODED_KEY_MAX_BYTES];
            let len = encode(plain.as_bytes(), &mut text);
            assert_eq!(&text[..len], coded.as_bytes());
            let mut key = [0; 250];
            let len = decode(coded.as_bytes(), &mut key).expect("a vector of the RFC");
            assert_eq!(&key[..len], plain.as_bytes());
        }
    }

    #[test]
    fn what_is_not_base64_is_refused() {
        let mut out = [0; 250];
        for text in ["", "Zg", "Zg=", "Z===", "Zg==Zg==", "Zm9!", "=m9v"] {
            assert_eq!(decode(text.as_bytes(), &mut out), None, "{text}");
        }
        assert_eq!(decode(&[b'A'; 252], &mut out), Some(189));
    }
}
