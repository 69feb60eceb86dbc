//! Base64 (RFC 4648 §4) for binary keys of meta commands.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// The longest key, encoded.
pub(crate) const ENCODED_KEY_MAX_BYTES: usize = 250_usize.div_ceil(3) * 4;

const INVALID: u8 = 0xff;

const DECODE: [u8; 256] = {
    let mut table = [INVALID; 256];
    let mut index = 0;
    while index < ALPHABET.len() {
        table[ALPHABET[index] as usize] = index as u8;
        index += 1;
    }
    table
};

/// Decodes `text` into `out` and returns the length; none if `text` is empty or not base64 with its
/// padding.
pub(crate) fn decode(text: &[u8], out: &mut [u8; 250]) -> Option<usize> {
    let (groups, rest) = text.as_chunks::<4>();
    if groups.is_empty() || !rest.is_empty() || groups.len() * 3 > out.len() + 2 {
        return None;
    }
    let mut len = 0;
    for (index, group) in groups.iter().enumerate() {
        let last = index + 1 == groups.len();
        let padding = group.iter().rev().take_while(|&&byte| byte == b'=').count();
        if padding > 2 || (padding > 0 && !last) {
            return None;
        }
        let mut bits: u32 = 0;
        for &byte in &group[..4 - padding] {
            let value = DECODE[usize::from(byte)];
            if value == INVALID {
                return None;
            }
            bits = bits << 6 | u32::from(value);
        }
        bits <<= 6 * padding;
        let take = 3 - padding;
        out.get_mut(len..len + take)?.copy_from_slice(&bits.to_be_bytes()[1..1 + take]);
        len += take;
    }
    Some(len)
}

/// Encodes a key of at most 250 bytes into `out` and returns the length.
pub(crate) fn encode(key: &[u8], out: &mut [u8; ENCODED_KEY_MAX_BYTES]) -> usize {
    debug_assert!(key.len() <= 250, "a key of {} bytes", key.len());
    for (group, text) in key.chunks(3).zip(out.as_chunks_mut::<4>().0) {
        let mut bytes = [0; 4];
        bytes[1..1 + group.len()].copy_from_slice(group);
        let bits = u32::from_be_bytes(bytes);
        for (place, byte) in text.iter_mut().enumerate() {
            let value = bits >> (18 - 6 * place) & 63;
            *byte = if place <= group.len() { ALPHABET[value as usize] } else { b'=' };
        }
    }
    key.len().min(250).div_ceil(3) * 4
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
