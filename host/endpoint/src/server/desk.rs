//! Who asked what: requests go to the steering, what becomes of them goes back to whoever asked, if that client
//! is still there.

use std::collections::{BTreeMap, HashMap};
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::event::PollFlags;
use rustix::process::geteuid;

use super::Steering;
use super::peer::{Peer, Said};
use crate::packet::{self, MESSAGE_MAX};
use crate::protocol::{Answer, Ask, Description, Done, Outcome, Refused, RefusedKind, Request};

/// Most clients at a time.
const CLIENTS_MAX: usize = 128;
/// Requests of one client that may be without an answer.
const OPEN_MAX: usize = 64;
/// Messages of one client that are read before the others have their turn.
const READ_MAX: usize = 16;
/// What an answer has around a description, at most, in bytes.
const AROUND: usize = 64;

/// See the module's comment.
pub(super) struct Desk<S> {
    steering: S,
    own_user: u32,
    peers: BTreeMap<u64, Peer>,
    next_peer: u64,
    next_token: u64,
    /// By our number for a request: the client and its number for it.
    open: HashMap<u64, (u64, u64)>,
    buffer: Vec<u8>,
}

impl<S: Steering> Desk<S> {
    pub fn new(steering: S) -> Self {
        Self {
            steering,
            own_user: geteuid().as_raw(),
            peers: BTreeMap::new(),
            next_peer: 0,
            next_token: 0,
            open: HashMap::new(),
            buffer: packet::buffer(),
        }
    }

    /// Whether outcomes are to come.
    pub fn is_waiting(&self) -> bool {
        !self.open.is_empty()
    }

    /// What to wait for.
    pub fn peers(&self) -> impl Iterator<Item = (BorrowedFd<'_>, PollFlags)> {
        self.peers.values().map(Peer::socket)
    }

    /// Somebody has come in: who may not is told so, and goes.
    pub fn welcome(&mut self, socket: OwnedFd) {
        let mut peer = Peer::new(socket);
        if let Err(refused) = self.admit(&peer) {
            peer.tell(&Answer { id: 0, result: Err(refused) }, None);
            return;
        }
        self.peers.insert(self.next_peer, peer);
        self.next_peer += 1;
    }

    fn admit(&self, peer: &Peer) -> Result<(), Refused> {
        let own = self.own_user;
        peer.check(own).map_err(|user| {
            let reason = format!(
                "user {user} may not control this service: only root and user {own}, whose it is, may"
            );
            Refused::new(RefusedKind::System, reason)
        })?;
        if self.peers.len() >= CLIENTS_MAX {
            let reason = format!("{CLIENTS_MAX} clients control this service already");
            return Err(Refused::new(RefusedKind::TooMany, reason));
        }
        Ok(())
    }

    /// Hears everybody, and tells what there is to tell.
    pub fn turn(&mut self) {
        for number in self.peers.keys().copied().collect::<Vec<_>>() {
            self.hear(number);
        }
        for Answer { id: token, result } in self.steering.reports() {
            // Nobody is told twice, and nobody of what nobody asked for.
            let Some((number, id)) = self.open.remove(&token) else { continue };
            if let Some(peer) = self.peers.get_mut(&number) {
                peer.open -= 1;
                peer.tell(&Answer { id, result }, None);
            }
        }
        self.peers.values_mut().for_each(Peer::flush);
        self.peers.retain(|_, peer| !peer.is_over);
    }

    /// The end: what the sockets have room for is said.
    pub fn farewell(&mut self) {
        self.peers.values_mut().for_each(Peer::flush);
    }

    fn hear(&mut self, number: u64) {
        for _ in 0..READ_MAX {
            let Some(peer) = self.peers.get_mut(&number) else { return };
            match peer.listen(&mut self.buffer) {
                None => return,
                Some(Said::Nonsense(id, why)) => {
                    let reason = format!("the message makes no sense: {why}");
                    let refused = Refused::new(RefusedKind::Unsupported, reason);
                    peer.tell(&Answer { id, result: Err(refused) }, None);
                }
                Some(Said::Ask(Ask { id, request })) => self.take(number, id, request),
            }
        }
    }

    fn take(&mut self, number: u64, id: u64, request: Request) {
        let Some(peer) = self.peers.get_mut(&number) else { return };
        if peer.open >= OPEN_MAX {
            let reason = format!("{OPEN_MAX} requests have no answer yet: wait for one");
            let result = Err(Refused::new(RefusedKind::TooMany, reason));
            return peer.tell(&Answer { id, result }, None);
        }
        if request == Request::Describe {
            let (result, segment) = described(&self.steering);
            return peer.tell(&Answer { id, result }, segment);
        }
        let token = self.next_token;
        self.next_token += 1;
        match self.steering.begin(Ask { id: token, request }) {
            Some(result) => peer.tell(&Answer { id, result }, None),
            None => {
                peer.open += 1;
                self.open.insert(token, (number, id));
            }
        }
    }
}

/// The description, in a form that fits into a message.
fn described(steering: &impl Steering) -> (Outcome, Option<OwnedFd>) {
    let refuse = |reason: String| (Err(Refused::new(RefusedKind::System, reason)), None);
    let mut description = steering.describe();
    if !fits(&description) {
        description.config_text.clear();
    }
    if !fits(&description) {
        return refuse(format!("the description is longer than {MESSAGE_MAX} bytes"));
    }
    match steering.segment() {
        Ok(segment) => (Ok(Done::Described(Box::new(description))), Some(segment)),
        Err(error) => refuse(format!("the statistics segment cannot be handed over: {error}")),
    }
}

fn fits(description: &Description) -> bool {
    serde_json::to_vec(description).is_ok_and(|bytes| bytes.len() + AROUND <= MESSAGE_MAX)
}
