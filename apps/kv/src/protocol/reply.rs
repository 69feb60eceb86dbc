//! Where replies go, and how a line is composed without allocating.

/// Takes reply bytes. They are copied before `put` returns.
pub trait Output {
    /// Appends `bytes` to the reply stream.
    fn put(&mut self, bytes: &[u8]);

    /// Bytes that may be put before the peer has taken some: with 0, a long reply is broken off to be gone on
    /// with.
    fn room(&self) -> usize {
        usize::MAX
    }
}

impl Output for Vec<u8> {
    fn put(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }
}

/// A reply line under composition, or a part of a request that is kept: at most `N` bytes, in place.
#[derive(Debug, Clone)]
pub(crate) struct Line<const N: usize> {
    bytes: [u8; N],
    len: usize,
}

impl<const N: usize> Line<N> {
    pub(crate) fn new() -> Self {
        Self { bytes: [0; N], len: 0 }
    }

    /// Appends; what does not fit is dropped, and no caller's longest line is longer than `N`.
    pub(crate) fn push(&mut self, bytes: &[u8]) {
        debug_assert!(bytes.len() <= N - self.len, "a reply line of more than {N} bytes");
        let take = bytes.len().min(N - self.len);
        self.bytes[self.len..self.len + take].copy_from_slice(&bytes[..take]);
        self.len += take;
    }

    /// Appends a decimal number.
    pub(crate) fn number(&mut self, number: u64) {
        self.push(itoa::Buffer::new().format(number).as_bytes());
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_library_does() {
        for number in [0, 1, 9, 10, 99, 100, 12_345_678_901, u64::from(u32::MAX), u64::MAX] {
            let mut line = Line::<20>::new();
            line.number(number);
            assert_eq!(line.as_bytes(), number.to_string().as_bytes());
        }
    }
}
