//! Command lines: finding their end, cutting them into tokens, reading their numbers.
//!
//! Numbers follow C's `strtol` with memcached's checks, so that the same lines are accepted and
//! refused: leading white space and a sign are allowed, and white space may end the number.

/// The longest key (protocol.txt, "Keys").
pub(crate) const KEY_MAX_BYTES: usize = 250;

/// Tokens of one line that are told apart; the rest of the line is not looked at (only the keys of
/// retrieval commands may be more, and those are not cut this way).
pub(crate) const TOKENS_MAX: usize = 23;

/// The position of the first `NEEDLE`, eight bytes at a time.
pub(crate) fn find<const NEEDLE: u8>(bytes: &[u8]) -> Option<usize> {
    const ONES: u64 = u64::from_le_bytes([1; 8]);
    const HIGH: u64 = u64::from_le_bytes([0x80; 8]);
    let needles = u64::from_le_bytes([NEEDLE; 8]);
    let (words, rest) = bytes.as_chunks::<8>();
    for (index, word) in words.iter().enumerate() {
        // A byte of `word` that is the needle becomes 0, and 0 is what borrows into its high bit;
        // little end first, so that the lowest marked byte is the first one.
        let zeroed = u64::from_le_bytes(*word) ^ needles;
        let marked = zeroed.wrapping_sub(ONES) & !zeroed & HIGH;
        if marked != 0 {
            return Some(index * 8 + (marked.trailing_zeros() / 8) as usize);
        }
    }
    let at = rest.iter().position(|&byte| byte == NEEDLE)?;
    Some(words.len() * 8 + at)
}

/// The command in a line without its newline: a carriage return is cut off its end (unless it is all
/// there is), and like memcached's C strings it ends at a NUL.
pub(crate) fn command_of(line: &[u8]) -> &[u8] {
    let line = match line {
        [start @ .., b'\r'] if !start.is_empty() => start,
        _ => line,
    };
    until_nul(line)
}

/// A line up to its first NUL.
pub(crate) fn until_nul(line: &[u8]) -> &[u8] {
    match find::<0>(line) {
        Some(end) => &line[..end],
        None => line,
    }
}

/// The tokens of a line.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tokens<'a> {
    list: [&'a [u8]; TOKENS_MAX],
    len: usize,
}

impl<'a> Tokens<'a> {
    /// Cuts `command` at spaces (only those: other control characters are part of a token).
    pub(crate) fn of(command: &'a [u8]) -> Self {
        let mut tokens = Self { list: [&[]; TOKENS_MAX], len: 0 };
        for word in (Words { rest: command }).take(TOKENS_MAX) {
            tokens.list[tokens.len] = word;
            tokens.len += 1;
        }
        tokens
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// The token at `index`, empty if there is none.
    pub(crate) fn get(&self, index: usize) -> &'a [u8] {
        self.list.get(index).copied().unwrap_or(&[])
    }

    /// The tokens from `index` on.
    pub(crate) fn from(&self, index: usize) -> &[&'a [u8]] {
        self.list.get(index..self.len).unwrap_or(&[])
    }

    pub(crate) fn last(&self) -> &'a [u8] {
        self.get(self.len.wrapping_sub(1))
    }
}

/// The words of a line, cut at spaces.
#[derive(Debug, Clone)]
pub(crate) struct Words<'a> {
    /// What is not cut yet.
    pub(crate) rest: &'a [u8],
}

impl<'a> Iterator for Words<'a> {
    type Item = &'a [u8];

    #[inline]
    fn next(&mut self) -> Option<&'a [u8]> {
        let mut rest = self.rest;
        while let [b' ', tail @ ..] = rest {
            rest = tail;
        }
        if rest.is_empty() {
            self.rest = rest;
            return None;
        }
        let (word, tail) = rest.split_at(find::<b' '>(rest).unwrap_or(rest.len()));
        self.rest = tail;
        Some(word)
    }
}

fn is_c_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | 0x0b | 0x0c | b'\r')
}

/// Sign and magnitude of the number at the start of `bytes`; none if there are no digits, something
/// other than white space follows them, or they exceed 64 bits.
fn parse_integer(bytes: &[u8]) -> Option<(bool, u64)> {
    let mut rest = bytes;
    while let [first, tail @ ..] = rest
        && is_c_space(*first)
    {
        rest = tail;
    }
    let negative = rest.first() == Some(&b'-');
    if let [b'-' | b'+', tail @ ..] = rest {
        rest = tail;
    }
    let digits = rest.iter().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || rest.get(digits).is_some_and(|&byte| !is_c_space(byte)) {
        return None;
    }
    let mut value: u64 = 0;
    for digit in &rest[..digits] {
        value = value.checked_mul(10)?.checked_add(u64::from(digit - b'0'))?;
    }
    Some((negative, value))
}

/// An unsigned 64-bit number (`safe_strtoull`).
pub(crate) fn parse_u64(bytes: &[u8]) -> Option<u64> {
    let (negative, magnitude) = parse_integer(bytes)?;
    let value = if negative { magnitude.wrapping_neg() } else { magnitude };
    // A minus sign is refused only where the result looks negative, as in memcached.
    (!negative || value.cast_signed() >= 0).then_some(value)
}

/// An unsigned number of which the low 32 bits count (`safe_strtoul` with 64-bit longs).
pub(crate) fn parse_u32(bytes: &[u8]) -> Option<u32> {
    parse_u64(bytes).map(|value| value as u32)
}

/// A signed number of which the low 32 bits count (`safe_strtol` with 64-bit longs).
pub(crate) fn parse_i32(bytes: &[u8]) -> Option<i32> {
    let (negative, magnitude) = parse_integer(bytes)?;
    let limit = i64::MAX.unsigned_abs() + u64::from(negative);
    if magnitude > limit {
        return None;
    }
    let value = if negative { magnitude.wrapping_neg() } else { magnitude };
    Some(value as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn newline_is_found_at_every_position() {
        for len in 0..40 {
            for at in 0..len {
                let mut bytes = vec![0x8a_u8; len];
                bytes[at] = b'\n';
                assert_eq!(find::<b'\n'>(&bytes), Some(at));
                if at + 1 < len {
                    bytes[len - 1] = b'\n';
                    assert_eq!(find::<b'\n'>(&bytes), Some(at));
                }
            }
            assert_eq!(find::<b'\n'>(&vec![b'\t'; len]), None);
            assert_eq!(find::<b'\n'>(&vec![b'\x0b'; len]), None);
        }
    }

    #[test]
    fn lines_are_cut_as_memcached_cuts_them() {
        assert_eq!(command_of(b"get a\r"), b"get a");
        assert_eq!(command_of(b"get a"), b"get a");
        assert_eq!(command_of(b"\r"), b"\r");
        assert_eq!(command_of(b"get a\0b\r"), b"get a");
        let tokens = Tokens::of(b"  a bc\t d  ");
        assert_eq!((tokens.len(), tokens.get(1), tokens.last()), (3, &b"bc\t"[..], &b"d"[..]));
        assert_eq!(tokens.get(99), b"");
        assert_eq!(Tokens::of(b"").last(), b"");
        assert_eq!(Tokens::of(&b"x ".repeat(50)).len(), TOKENS_MAX);
    }

    #[test]
    fn numbers_follow_c() {
        assert_eq!(parse_u64(b"18446744073709551615"), Some(u64::MAX));
        assert_eq!(parse_u64(b"18446744073709551616"), None);
        assert_eq!(parse_u64(b"-1"), None);
        assert_eq!(parse_u64(b" +12 x"), Some(12));
        assert_eq!(parse_u64(b"12x"), None);
        assert_eq!(parse_u64(b""), None);
        assert_eq!(parse_u64(b"-"), None);
        assert_eq!(parse_u32(b"4294967297"), Some(1));
        assert_eq!(parse_i32(b"-5"), Some(-5));
        assert_eq!(parse_i32(b"4294967299"), Some(3));
        assert_eq!(parse_i32(b"9223372036854775808"), None);
        assert_eq!(parse_i32(b"-9223372036854775808"), Some(0));
    }
}
