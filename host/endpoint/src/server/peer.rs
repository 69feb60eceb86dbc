//! One client, as the server sees it: who it is, what it says, what it has not read.

use std::collections::VecDeque;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::net::sockopt::socket_peercred;
use serde::Deserialize;

use crate::packet::{self, MESSAGE_MAX, Received, Sent};
use crate::protocol::{Answer, Ask};

/// Answers that a client may leave unread, beside those that its socket holds.
const UNREAD_MAX: usize = 64;

/// See the module's comment.
#[derive(Debug)]
pub(super) struct Peer {
    socket: OwnedFd,
    unread: VecDeque<(Vec<u8>, Option<OwnedFd>)>,
    /// Requests without an answer.
    pub open: usize,
    /// It is to go: it has gone, or has broken the rules.
    pub is_over: bool,
}

/// What a client says.
#[derive(Debug)]
pub(super) enum Said {
    /// Something to be carried out.
    Ask(Ask),
    /// Something of this number that makes no sense, and why.
    Nonsense(u64, String),
}

/// All that is read of a message that is no request.
#[derive(Deserialize)]
struct Numbered {
    id: u64,
}

impl Peer {
    pub fn new(socket: OwnedFd) -> Self {
        Self { socket, unread: VecDeque::new(), open: 0, is_over: false }
    }

    /// Whether this client may control a service of user `own`; else its user.
    pub fn check(&self, own: u32) -> Result<(), u32> {
        // Who cannot be told is nobody.
        let uid = socket_peercred(&self.socket).map_or(u32::MAX, |peer| peer.uid.as_raw());
        if uid == 0 || uid == own { Ok(()) } else { Err(uid) }
    }

    pub fn socket(&self) -> (BorrowedFd<'_>, PollFlags) {
        let mut flags = PollFlags::IN;
        flags.set(PollFlags::OUT, !self.unread.is_empty());
        (self.socket.as_fd(), flags)
    }

    /// The next thing that it says.
    pub fn listen(&mut self, buffer: &mut [u8]) -> Option<Said> {
        if self.is_over {
            return None;
        }
        let len = match packet::receive(&self.socket, buffer, None) {
            Ok(Received::Nothing) => return None,
            Ok(Received::Message(len)) => len,
            Ok(Received::HungUp) | Err(_) => {
                self.is_over = true;
                return None;
            }
        };
        let said = understand(&buffer[..len]);
        self.is_over = said.is_none();
        said
    }

    /// Tells it something. A client that does not read is dropped in the end.
    pub fn tell(&mut self, answer: &Answer, descriptor: Option<OwnedFd>) {
        if self.is_over || self.unread.len() >= UNREAD_MAX {
            self.is_over = true;
            return;
        }
        // What we say is plain data, and fits: the desk sees to the only long one.
        let bytes = serde_json::to_vec(answer).unwrap_or_default();
        debug_assert!((1..=MESSAGE_MAX).contains(&bytes.len()));
        self.unread.push_back((bytes, descriptor));
        self.flush();
    }

    /// Sends what it has room for.
    pub fn flush(&mut self) {
        while let Some((bytes, descriptor)) = self.unread.front()
            && !self.is_over
        {
            match packet::send(&self.socket, bytes, descriptor.as_ref().map(AsFd::as_fd)) {
                Ok(Sent::Whole) => drop(self.unread.pop_front()),
                Ok(Sent::NotNow) => return,
                Ok(Sent::HungUp) | Err(_) => self.is_over = true,
            }
        }
    }
}

/// What a message says. None where it has not even a number to answer to.
fn understand(message: &[u8]) -> Option<Said> {
    if message.len() > MESSAGE_MAX {
        let id = leading_id(message)?;
        return Some(Said::Nonsense(id, format!("it has more than {MESSAGE_MAX} bytes")));
    }
    match serde_json::from_slice::<Ask>(message) {
        Ok(Ask { id: 0, .. }) => Some(Said::Nonsense(0, "requests are numbered from 1".into())),
        Ok(ask) => Some(Said::Ask(ask)),
        Err(error) => {
            let numbered = serde_json::from_slice::<Numbered>(message).ok();
            let id = numbered.map(|numbered| numbered.id).or_else(|| leading_id(message))?;
            Some(Said::Nonsense(id, error.to_string()))
        }
    }
}

/// The number with which a message begins that cannot be read as a whole.
fn leading_id(message: &[u8]) -> Option<u64> {
    let rest = message.strip_prefix(b"{\"id\":")?;
    let digits = rest.iter().take(20).take_while(|byte| byte.is_ascii_digit()).count();
    std::str::from_utf8(&rest[..digits]).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::Request;

    proptest::proptest! {
        /// What a client sends is a request, nonsense with a number, or the end of the connection.
        #[test]
        fn any_bytes_are_understood_or_refused(
            bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300),
            request in "(\"end\"|\\{\"(grant|park|move|place)\":\\{(\"(thread|cpu|from|to|groups)\":(-?[0-9]{1,22}|\\[[0-9,]{0,9}\\]),?){0,4}\\}\\}|.{0,30})",
            id in "-?[0-9]{0,25}",
        ) {
            let _ = understand(&bytes);
            let message = format!("{{\"id\":{id},\"request\":{request}}}");
            match understand(message.as_bytes()) {
                Some(Said::Ask(ask)) => proptest::prop_assert_ne!(ask.id, 0),
                Some(Said::Nonsense(id, why)) => {
                    proptest::prop_assert!(!why.is_empty());
                    proptest::prop_assert!(message.contains(&id.to_string()));
                }
                None => {}
            }
            // As a client hears a server.
            let answer = format!("{{\"id\":{id},\"result\":{request}}}");
            let _ = serde_json::from_slice::<Answer>(answer.as_bytes());
            let _ = serde_json::from_slice::<Answer>(&bytes);
        }
    }

    fn nonsense(message: &[u8]) -> Option<u64> {
        match understand(message)? {
            Said::Nonsense(id, _) => Some(id),
            Said::Ask(ask) => panic!("{ask:?} makes sense"),
        }
    }

    #[test]
    fn what_has_a_number_can_be_answered() {
        let ask = br#"{"id":3,"request":{"grant":{"thread":1}}}"#;
        let Some(Said::Ask(ask)) = understand(ask) else { panic!("it is a request") };
        assert_eq!(ask, Ask { id: 3, request: Request::Grant { thread: 1 } });
        for (message, id) in [
            (&br#"{"id":4,"request":{"grant":{"thread":70000}}}"#[..], Some(4)),
            (br#"{"request":"fly","id":5}"#, Some(5)),
            (br#"{"id":6,"request":"end","hurry":true}"#, Some(6)),
            (br#"{"id":7,"request":"#, Some(7)),
            (br#"{"id":0,"request":"end"}"#, Some(0)),
            (br#"{"id":-1,"request":"end"}"#, None),
            (br#"{"id":99999999999999999999,"request":"end"}"#, None),
            (br#"{"request":"end"}"#, None),
            (b"\xff\xfe", None),
            (b"{\"id\":", None),
        ] {
            assert_eq!(nonsense(message), id, "{}", String::from_utf8_lossy(message));
        }
        let mut long = br#"{"id":8,"request":"#.to_vec();
        long.resize(MESSAGE_MAX + 1, b'[');
        assert_eq!(nonsense(&long), Some(8));
        assert_eq!(nonsense(&vec![b'['; MESSAGE_MAX]), None, "deep, and no stack overflow");
    }
}
