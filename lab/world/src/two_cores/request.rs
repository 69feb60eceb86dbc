//! A request's bytes, for the client that writes them and the service that reads them.

/// A request: the connection's number, its own number there, and its service time in nanoseconds.
pub const REQUEST: usize = 24;

/// The number of a request that asks for the core at which its connection is at home, which is not counted.
pub const ASKS_HOME: u64 = u64::MAX;

/// The request with these parts.
pub fn request(connection: u64, number: u64, service_ns: u64) -> [u8; REQUEST] {
    let mut bytes = [0; REQUEST];
    for (part, word) in bytes.chunks_exact_mut(8).zip([connection, number, service_ns]) {
        part.copy_from_slice(&word.to_le_bytes());
    }
    bytes
}

/// The parts of a request.
pub fn parts(bytes: &[u8]) -> [u64; 3] {
    let word = |at: usize| {
        bytes
            .get(8 * at..8 * at + 8)
            .map_or(0, |part| u64::from_le_bytes(core::array::from_fn(|index| part[index])))
    };
    [word(0), word(1), word(2)]
}
