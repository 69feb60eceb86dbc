//! The service of `docs/first-service.md`: answers each line in capitals.

use tailplane::{Flow, Instant, Opened, Output, Protocol, Server, application};

/// Longest line, in bytes: a peer that never ends one must not fill the memory.
const LINE_MAX_BYTES: usize = 4 << 10;

/// Answers each line in capitals.
struct Capitals;

impl Protocol for Capitals {
    /// What a connection keeps between two packets: the beginning of its next line.
    type Connection = Vec<u8>;

    /// A peer connects: the state that its connection begins with, or none, which refuses it.
    fn open(&mut self, _: Instant, _: Opened) -> Option<Vec<u8>> {
        Some(Vec::new())
    }

    /// Bytes came, as many as the network brought: part of a line, or several lines.
    fn receive(
        &mut self,
        _: Instant,
        line: &mut Vec<u8>,
        data: &[u8],
        output: &mut Output<'_, '_>,
    ) -> Flow {
        for &byte in data {
            line.push(byte.to_ascii_uppercase());
            if byte == b'\n' {
                output.put(line);
                line.clear();
            }
        }
        if line.len() > LINE_MAX_BYTES { Flow::Close } else { Flow::Continue }
    }
}

/// `tailplane run` starts this program, and serves its connections.
fn main() -> Result<(), application::ApplicationError> {
    application::serve(|_thread| Server::new(Capitals))?;
    Ok(())
}
