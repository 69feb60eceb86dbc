//! What a dataplane says, taken by a thread of the starter that may wait for it.
//!
//! Whoever takes a message closes the descriptors that came with it, and the kernel lets the owner of such a file decide
//! how long that takes (a socket that lingers, a file of FUSE). So no other thread of the starter reads the socket: it
//! goes on, and ends, beside one that is held up.

use std::os::fd::OwnedFd;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context;
use endpoint::printable;

use super::Told;
use super::control::receive;

/// Words that wait to be taken; then the dataplane's own wait in its socket.
const WORDS_MAX: usize = 8;
/// Descriptors that come with a word: the statistics segment.
const DESCRIPTORS_MAX: usize = 1;

/// A message with its descriptors, or why it is none.
type Message = Result<(Told, Vec<OwnedFd>), String>;

/// What comes next.
#[derive(Debug)]
pub enum Word {
    /// A message with its descriptors.
    Told(Told, Vec<OwnedFd>),
    /// Something that is no message, as text that a terminal can show. Nothing comes after it.
    Broken(String),
    /// Nothing within the time.
    None,
    /// The dataplane has hung up.
    HungUp,
}

/// The words of a dataplane, in their order.
#[derive(Debug)]
pub struct Words(Receiver<Message>);

impl Words {
    /// Of the dataplane at the other end of `control`.
    ///
    /// # Errors
    /// No descriptors, no threads.
    pub fn of(control: &OwnedFd) -> anyhow::Result<Self> {
        let control = control.try_clone().context("duplicating the control socket")?;
        let (sender, words) = sync_channel(WORDS_MAX);
        let listen = move || listen(&control, &sender);
        std::thread::Builder::new()
            .name("dataplane-words".to_owned())
            .spawn(listen)
            .context("starting a thread that hears the dataplane")?;
        Ok(Self(words))
    }

    /// The next word, waited for so long at most.
    pub fn next(&self, within: Duration) -> Word {
        match self.0.recv_timeout(within) {
            Ok(Ok((told, descriptors))) => Word::Told(told, descriptors),
            Ok(Err(why)) => Word::Broken(why),
            Err(RecvTimeoutError::Timeout) => Word::None,
            Err(RecvTimeoutError::Disconnected) => Word::HungUp,
        }
    }
}

fn listen(control: &OwnedFd, sender: &SyncSender<Message>) {
    loop {
        let message = match receive(control, DESCRIPTORS_MAX) {
            Ok(None) => return,
            Ok(Some(message)) => Ok(message),
            Err(error) => Err(printable(&format!("{error:#}"))),
        };
        let is_last = message.is_err();
        // Nobody listens to a dataplane that is not believed any more.
        if sender.send(message).is_err() || is_last {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd;
    use std::time::Instant;

    use rustix::net::sockopt::set_socket_linger;

    use super::super::control::{pair, send};
    use super::*;

    const WITHIN: Duration = Duration::from_secs(2);

    #[test]
    fn words_come_in_their_order_and_nonsense_is_the_last() {
        let (near, far) = pair().expect("sockets");
        let words = Words::of(&near).expect("a thread");
        assert!(matches!(words.next(Duration::from_millis(1)), Word::None));
        send(&far, &Told::Ready { movable: true }, &[near.as_fd()]).expect("sent");
        let ready = words.next(WITHIN);
        assert!(matches!(&ready, Word::Told(Told::Ready { .. }, with) if with.len() == 1));
        rustix::net::send(&far, b"\"\x1b[2J\"", rustix::net::SendFlags::empty()).expect("sent");
        let broken = words.next(WITHIN);
        assert!(matches!(&broken, Word::Broken(why) if !why.contains('\x1b')), "{broken:?}");
        send(&far, &Told::Ended, &[]).expect("sent");
        assert!(matches!(words.next(WITHIN), Word::HungUp));
    }

    #[test]
    fn more_descriptors_than_one_are_nonsense() {
        let (near, far) = pair().expect("sockets");
        let words = Words::of(&near).expect("a thread");
        send(&far, &Told::Ended, &[near.as_fd(); 40]).expect("sent");
        let broken = words.next(WITHIN);
        assert!(matches!(&broken, Word::Broken(why) if why.contains("descriptors")), "{broken:?}");
    }

    /// The last close of a TCP socket that lingers waits until its peer has acknowledged all, or for so long.
    #[test]
    fn a_descriptor_whose_close_waits_holds_up_its_listener_alone() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("let in");
        let (_peer, _) = listener.accept().expect("it came");
        stream.set_nonblocking(true).expect("a socket of ours");
        while stream.write(&[0; 1 << 16]).is_ok() {}
        stream.set_nonblocking(false).expect("a socket of ours");
        set_socket_linger(&stream, Some(4 * WITHIN)).expect("a socket of ours");
        let (near, far) = pair().expect("sockets");
        let words = Words::of(&near).expect("a thread");
        let bytes = b"\"Ended\"";
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = rustix::net::SendAncillaryBuffer::new(&mut space);
        let passed = [stream.as_fd(), near.as_fd()];
        ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(&passed));
        let flags = rustix::net::SendFlags::empty();
        rustix::net::sendmsg(&far, &[std::io::IoSlice::new(bytes)], &mut ancillary, flags)
            .expect("sent");
        drop(stream);
        let began = Instant::now();
        // What it says is not known yet; that this thread goes on is what counts.
        let _ = words.next(Duration::from_millis(100));
        assert!(began.elapsed() < WITHIN, "{:?}", began.elapsed());
    }
}
