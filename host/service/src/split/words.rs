//! What a process that is not trusted says, taken by a thread that may wait for it.
//!
//! Whoever takes a message closes the descriptors that came with it, and the kernel lets the owner of such a file decide
//! how long that takes (a socket that lingers, a file of FUSE). So no other thread of the starter reads the socket or
//! sees a descriptor from it: it goes on, and ends, beside one that is held up. What the starter needs of a descriptor,
//! a [`Take`] makes of it on that thread.

use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::Duration;

use anyhow::Context;
use endpoint::printable;
use serde::de::DeserializeOwned;
use statseg::{Reading, Segment};

use super::control::receive;
use super::orders::Told;

/// Words that wait to be taken; then the process's own wait in its socket.
const WORDS_MAX: usize = 8;
/// Causes of a failure that are printed.
const CAUSES_MAX: usize = 16;
/// Descriptors that come with a word: the statistics segment.
const DESCRIPTORS_MAX: usize = 1;

/// Makes of a message and its descriptor what the starter sees of it; or says why it is no message.
pub type Take<T, W> = fn(T, Option<OwnedFd>) -> Result<W, String>;

/// What a dataplane says.
#[derive(Debug)]
pub struct Said {
    /// Its word.
    pub told: Told,
    /// The statistics that came with the word that it serves, or why there are none: of memory that can neither be cut off
    /// nor keep who closes it waiting.
    pub shown: Result<Arc<Reading>, String>,
}

/// The [`Take`] of a dataplane's words.
///
/// # Errors
/// A descriptor came with a word that has none.
pub fn said(told: Told, descriptor: Option<OwnedFd>) -> Result<Said, String> {
    let shown = match (&told, descriptor) {
        // It is not trusted to have made a segment.
        (Told::Ready { .. }, Some(shown)) => {
            Segment::join(shown).map_err(|error| error.to_string())
        }
        (_, Some(_)) => return Err("it sent a descriptor with an answer".to_owned()),
        (_, None) => Err("the dataplane shows no statistics".to_owned()),
    };
    Ok(Said { told, shown })
}

/// The error of a process that ended for these causes, the outermost first: as many as are printed, as text that a terminal
/// can show.
pub fn failure(who: &str, causes: &[String]) -> anyhow::Error {
    let mut causes = causes.iter().take(CAUSES_MAX).map(|cause| printable(cause)).rev();
    let first = causes.next().unwrap_or_else(|| format!("{who} did not say why it ended"));
    causes.fold(anyhow::Error::msg(first), anyhow::Error::context)
}

/// What comes next.
#[derive(Debug)]
pub enum Word<W> {
    /// A message.
    Said(W),
    /// Something that is no message, as text that a terminal can show. Nothing comes after it.
    Broken(String),
    /// Nothing within the time.
    None,
    /// The process has hung up.
    HungUp,
}

/// The words of a process, in their order: messages, or why one is none.
#[derive(Debug)]
pub struct Words<W>(Receiver<Result<W, String>>);

impl<W: Send + 'static> Words<W> {
    /// Of the process at the other end of `control`.
    ///
    /// # Errors
    /// No descriptors, no threads.
    pub fn of<T>(control: &OwnedFd, take: Take<T, W>) -> anyhow::Result<Self>
    where
        T: DeserializeOwned + 'static,
    {
        let control = control.try_clone().context("duplicating the control socket")?;
        let (sender, words) = sync_channel(WORDS_MAX);
        let listen = move || listen(&control, take, &sender);
        std::thread::Builder::new()
            .name("words".to_owned())
            .spawn(listen)
            .context("starting a thread that hears another process")?;
        Ok(Self(words))
    }

    /// The next word, waited for so long at most.
    pub fn next(&self, within: Duration) -> Word<W> {
        match self.0.recv_timeout(within) {
            Ok(Ok(said)) => Word::Said(said),
            Ok(Err(why)) => Word::Broken(why),
            Err(RecvTimeoutError::Timeout) => Word::None,
            Err(RecvTimeoutError::Disconnected) => Word::HungUp,
        }
    }
}

fn listen<T: DeserializeOwned, W>(
    control: &OwnedFd,
    take: Take<T, W>,
    sender: &SyncSender<Result<W, String>>,
) {
    loop {
        let message = match receive(control, DESCRIPTORS_MAX) {
            Ok(None) => return,
            Ok(Some((told, mut descriptors))) => take(told, descriptors.pop()),
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
        let words = Words::of(&near, said).expect("a thread");
        assert!(matches!(words.next(Duration::from_millis(1)), Word::None));
        send(&far, &Told::Ready { movable: true }, &[near.as_fd()]).expect("sent");
        let ready = words.next(WITHIN);
        // A socket is no segment.
        assert!(
            matches!(&ready, Word::Said(Said { told: Told::Ready { .. }, shown: Err(_) })),
            "{ready:?}"
        );
        send(&far, &Told::Ready { movable: true }, &[]).expect("sent");
        let bare = words.next(WITHIN);
        assert!(
            matches!(&bare, Word::Said(Said { told: Told::Ready { .. }, shown: Err(why) }) if why.contains("no statistics"))
        );
        rustix::net::send(&far, b"\"\x1b[2J\"", rustix::net::SendFlags::empty()).expect("sent");
        let broken = words.next(WITHIN);
        assert!(matches!(&broken, Word::Broken(why) if !why.contains('\x1b')), "{broken:?}");
        send(&far, &Told::Ended, &[]).expect("sent");
        assert!(matches!(words.next(WITHIN), Word::HungUp));
    }

    #[test]
    fn more_descriptors_than_one_are_nonsense() {
        let (near, far) = pair().expect("sockets");
        let words = Words::of(&near, said).expect("a thread");
        send(&far, &Told::Ended, &[near.as_fd(); 40]).expect("sent");
        let broken = words.next(WITHIN);
        assert!(matches!(&broken, Word::Broken(why) if why.contains("descriptors")), "{broken:?}");
    }

    #[test]
    fn a_descriptor_with_an_answer_is_nonsense() {
        let (near, far) = pair().expect("sockets");
        let words = Words::of(&near, said).expect("a thread");
        send(&far, &Told::Ended, &[near.as_fd()]).expect("sent");
        let broken = words.next(WITHIN);
        assert!(
            matches!(&broken, Word::Broken(why) if why.contains("with an answer")),
            "{broken:?}"
        );
        assert!(matches!(words.next(WITHIN), Word::HungUp));
    }

    /// The last close of a TCP socket that lingers waits until its peer has acknowledged all, or for so long.
    fn lingering() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let mut stream = TcpStream::connect(listener.local_addr().expect("bound")).expect("let in");
        let (peer, _) = listener.accept().expect("it came");
        stream.set_nonblocking(true).expect("a socket of ours");
        while stream.write(&[0; 1 << 16]).is_ok() {}
        stream.set_nonblocking(false).expect("a socket of ours");
        set_socket_linger(&stream, Some(4 * WITHIN)).expect("a socket of ours");
        (stream, peer)
    }

    /// How long whoever takes the next word is held up by it, where a lingering descriptor comes with `bytes`, and what
    /// else is passed.
    fn held_up(bytes: &[u8], others: &[std::os::fd::BorrowedFd<'_>]) -> Duration {
        let (stream, _peer) = lingering();
        let (near, far) = pair().expect("sockets");
        let words = Words::of(&near, said).expect("a thread");
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(2))];
        let mut ancillary = rustix::net::SendAncillaryBuffer::new(&mut space);
        let passed = [&[stream.as_fd()][..], others].concat();
        ancillary.push(rustix::net::SendAncillaryMessage::ScmRights(&passed));
        let flags = rustix::net::SendFlags::empty();
        rustix::net::sendmsg(&far, &[std::io::IoSlice::new(bytes)], &mut ancillary, flags)
            .expect("sent");
        drop(stream);
        let began = Instant::now();
        // What it says is not known yet; that this thread goes on is what counts.
        drop(words.next(Duration::from_millis(100)));
        began.elapsed()
    }

    #[test]
    fn a_descriptor_whose_close_waits_holds_up_its_listener_alone() {
        let (other, _) = pair().expect("sockets");
        let ready = serde_json::to_vec(&Told::Ready { movable: true }).expect("plain data");
        for (bytes, others) in [
            (&b"\"Ended\""[..], &[other.as_fd()][..]),
            (b"\"Ended\"", &[]),
            (&ready, &[]),
            (b"no message", &[]),
        ] {
            let took = held_up(bytes, others);
            assert!(took < WITHIN, "{took:?} for {}", String::from_utf8_lossy(bytes));
        }
    }
}
