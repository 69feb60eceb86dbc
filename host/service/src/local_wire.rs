//! A wire between two processes of one machine: the creator waits at a Unix socket, a joiner gets the
//! memory's descriptors there. One joiner at a time; the next may come when it has gone.

use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use anyhow::{Context, bail};
use mem::{HugePages, Region};
use nic::shm::{ShmConfig, ShmNic, ShmOffer};
use nic::{Nic, shm_offer};
use rustix::event::PollFlags;

use crate::ready::is_ready;

/// How often the waiting thread looks whether it is to end.
const LOOK: Duration = Duration::from_millis(50);

/// One end of the wire, with packet memory of its own.
#[derive(Debug)]
pub struct LocalWire {
    /// The packet memory.
    pub region: Arc<Region>,
    /// The link address of this end.
    pub mac: tailplane::MacAddr,
    /// How frames travel, for conditions.
    pub description: String,
    nic: Option<ShmNic>,
    /// At the creator's end: who waits for joiners. At the joiner's: held, as its end tells the creator.
    _peer: Box<dyn std::fmt::Debug + Send>,
}

impl LocalWire {
    /// The near end of a wire that is offered, driven in this process. Its other end is offered until this is dropped.
    ///
    /// # Errors
    /// No memory.
    pub fn of(offered: OfferedWire) -> anyhow::Result<Self> {
        let OfferedWire { region, description, near, door } = offered;
        let config = ShmConfig::default();
        let nic = Some(ShmNic::take_over(near, &config)?);
        Ok(Self { region, mac: config.mac, description, nic, _peer: Box::new(door) })
    }

    /// Joins the wire that is offered at `path`.
    ///
    /// # Errors
    /// Nobody offers one there, or another has joined it.
    pub fn join(path: &Path, chunks: usize, huge_pages: HugePages) -> anyhow::Result<Self> {
        let stream = UnixStream::connect(path).with_context(|| {
            format!(
                "no wire is offered at '{}': is a service running whose `network.shm` is this path?",
                path.display()
            )
        })?;
        let offer = shm_offer::receive(&stream).with_context(|| {
            format!(
                "'{}' offers no wire, or its one end is taken by another process",
                path.display()
            )
        })?;
        let config = ShmConfig::default().far();
        let nic = ShmNic::join(offer, &config)?;
        let region = Region::map(chunks, huge_pages)?;
        let (description, mac) = (describe(&nic, &region), config.mac);
        Ok(Self { region, mac, description, nic: Some(nic), _peer: Box::new(stream) })
    }

    /// The queue pair, to be given to its thread. The second call answers none.
    pub fn take_queues(&mut self) -> Vec<ShmNic> {
        self.nic.take().into_iter().collect()
    }
}

/// A wire that is offered and whose near end is for another process.
#[derive(Debug)]
pub struct OfferedWire {
    /// The near end's packet memory.
    pub region: Arc<Region>,
    /// How frames travel, for conditions.
    pub description: String,
    /// The wire's descriptors, for [`ShmNic::take_over`].
    pub near: ShmOffer,
    /// What stays with who offers the wire once the near end is another process's.
    pub(crate) door: Door,
}

impl OfferedWire {
    /// Makes the wire, and offers its other end at `path` until this is dropped.
    ///
    /// # Errors
    /// The path is taken or cannot be used; no memory.
    pub fn open(path: &Path, chunks: usize, huge_pages: HugePages) -> anyhow::Result<Self> {
        let (nic, offer) = ShmNic::create(&ShmConfig::default())?;
        let region = Region::map(chunks, huge_pages)?;
        let description = describe(&nic, &region);
        let again = |descriptor: &OwnedFd| {
            descriptor.try_clone().context("duplicating a descriptor of the wire")
        };
        let near = ShmOffer {
            memory: again(&offer.memory)?,
            wake_creator: again(&offer.wake_creator)?,
            wake_joiner: again(&offer.wake_joiner)?,
        };
        let door = Door::open(path, offer)?;
        Ok(Self { region, description, near, door })
    }
}

fn describe(nic: &ShmNic, region: &Region) -> String {
    let pages = if region.is_huge() { "2 MB" } else { "4 KiB" };
    let capabilities = nic.capabilities();
    format!("{} {}, {pages} pages", capabilities.driver, capabilities.mode)
}

/// Where joiners knock.
#[derive(Debug)]
pub(crate) struct Door {
    path: PathBuf,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Door {
    fn open(path: &Path, offer: ShmOffer) -> anyhow::Result<Self> {
        let listener =
            listen(path).with_context(|| format!("offering a wire at '{}'", path.display()))?;
        // Whoever joins may send packets: only those who may write the file.
        std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let thread = std::thread::Builder::new()
            .name("wire-door".into())
            .spawn(move || wait(&listener, &offer, &flag))?;
        Ok(Self { path: path.to_owned(), stop, thread: Some(thread) })
    }
}

impl Drop for Door {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // It only waits.
            let _ = thread.join();
        }
        // Gone already, perhaps: then there is nothing to do.
        let _ = std::fs::remove_file(&self.path);
    }
}

/// Listens at a path. A socket that nobody listens at any more is in nobody's way.
fn listen(path: &Path) -> anyhow::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let is_socket = std::fs::symlink_metadata(path)?.file_type().is_socket();
            if !is_socket || UnixStream::connect(path).is_ok() {
                bail!("the path is in use: choose another, or end what uses it");
            }
            std::fs::remove_file(path)?;
            Ok(UnixListener::bind(path)?)
        }
        other => Ok(other?),
    }
}

/// Lets one joiner in at a time. A stream stands for its joiner: it ends with the process.
fn wait(listener: &UnixListener, offer: &ShmOffer, stop: &AtomicBool) {
    let mut inside: Option<UnixStream> = None;
    while !stop.load(Ordering::Relaxed) {
        let _ = is_ready(listener, PollFlags::IN, LOOK);
        if inside.as_ref().is_some_and(is_over) {
            inside = None;
        }
        // No one at the door, or an error of one who has gone again.
        let Ok((stream, _)) = listener.accept() else { continue };
        if inside.is_none() {
            match shm_offer::send(&stream, offer) {
                Ok(()) => inside = Some(stream),
                Err(error) => tracing::warn!(%error, "a joiner of the wire could not be answered"),
            }
        }
    }
}

/// Whether the joiner's process has closed its end.
fn is_over(stream: &UnixStream) -> bool {
    let closed = |stream: &UnixStream| -> io::Result<bool> {
        stream.set_nonblocking(true)?;
        match io::Read::read(&mut &*stream, &mut [0; 16]) {
            Ok(count) => Ok(count == 0),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(false),
            Err(error) => Err(error),
        }
    };
    closed(stream).unwrap_or(true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("tailplane-{}-{name}", std::process::id()))
    }

    fn create(path: &Path) -> anyhow::Result<LocalWire> {
        LocalWire::of(OfferedWire::open(path, 1_024, HugePages::No)?)
    }

    #[test]
    fn one_joins_at_a_time_and_the_next_when_it_has_gone() {
        let path = path("join");
        let near = create(&path).expect("a free path");
        let first = LocalWire::join(&path, 1_024, HugePages::No).expect("nobody has joined");
        let error = LocalWire::join(&path, 1_024, HugePages::No).expect_err("taken");
        assert!(format!("{error:#}").contains("taken by another"), "{error:#}");
        let error = create(&path).expect_err("in use");
        assert!(format!("{error:#}").contains("is in use"), "{error:#}");
        drop(first);
        // The creator sees it the next time that somebody knocks.
        LocalWire::join(&path, 1_024, HugePages::No).expect("free again");
        drop(near);
        assert!(!path.exists());
        let error = LocalWire::join(&path, 1_024, HugePages::No).expect_err("nobody there");
        assert!(format!("{error:#}").contains("network.shm"), "{error:#}");
    }

    #[test]
    fn a_stale_socket_is_no_hindrance_and_a_file_is() {
        let path = path("stale");
        drop(UnixListener::bind(&path).expect("a free path"));
        drop(create(&path).expect("a stale socket goes"));
        std::fs::write(&path, "mine").expect("a free path");
        let error = create(&path).expect_err("a file");
        assert!(format!("{error:#}").contains("in use"), "{error:#}");
        assert_eq!(std::fs::read(&path).expect("still there"), b"mine");
        std::fs::remove_file(&path).expect("it was there");
    }
}
