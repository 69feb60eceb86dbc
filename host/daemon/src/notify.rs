//! What systemd is told of a service of `Type=notify`: one datagram each (`sd_notify(3)`).
//!
//! The protocol is a few words to a socket whose path stands in the environment, so it is written here rather than
//! taken from a library.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

/// Tells systemd, where there is one.
#[derive(Debug)]
pub struct Notifier(Option<(UnixDatagram, SocketAddr)>);

impl Notifier {
    /// `socket` is `$NOTIFY_SOCKET`: a path, or `@` and an abstract name. Without it nothing is told to anybody.
    ///
    /// # Errors
    /// The name is none, or no descriptors are left.
    pub fn new(socket: Option<&OsStr>) -> io::Result<Self> {
        let Some(socket) = socket.filter(|socket| !socket.is_empty()) else {
            return Ok(Self(None));
        };
        let address = match socket.as_bytes() {
            [b'@', name @ ..] => SocketAddr::from_abstract_name(name)?,
            _ => SocketAddr::from_pathname(socket)?,
        };
        let datagram = UnixDatagram::unbound()?;
        datagram.set_nonblocking(true)?;
        Ok(Self(Some((datagram, address))))
    }

    /// It serves; with a line on how things stand.
    pub fn ready(&self, status: &str) {
        self.tell(&format!("READY=1\nSTATUS={}", one_line(status)));
    }

    /// How things stand.
    pub fn status(&self, status: &str) {
        self.tell(&format!("STATUS={}", one_line(status)));
    }

    /// It lives.
    pub fn watchdog(&self) {
        self.tell("WATCHDOG=1");
    }

    /// It reads its files again; ready is told when it has.
    pub fn reloading(&self, monotonic_ns: u64) {
        self.tell(&format!("RELOADING=1\nMONOTONIC_USEC={}", monotonic_ns / 1_000));
    }

    /// It ends.
    pub fn stopping(&self) {
        self.tell("STOPPING=1\nSTATUS=ending; services go on");
    }

    fn tell(&self, text: &str) {
        if let Some((datagram, address)) = &self.0 {
            // A systemd that does not listen must not stop the daemon; a watchdog that is not told says so itself.
            let _ = datagram.send_to_addr(text.as_bytes(), address);
        }
    }
}

fn one_line(text: &str) -> String {
    text.replace('\n', " ")
}

/// How often the watchdog must be told at least, from `$WATCHDOG_USEC` and `$WATCHDOG_PID`; none where there is none
/// for this process.
pub fn watchdog_interval(
    usec: Option<&OsStr>,
    pid: Option<&OsStr>,
    own_pid: u32,
) -> Option<Duration> {
    let number = |text: &OsStr| text.to_str()?.parse::<u64>().ok();
    let is_ours = pid.is_none_or(|pid| number(pid) == Some(own_pid.into()));
    let usec = usec.and_then(number).filter(|&usec| usec > 0 && is_ours)?;
    Some(Duration::from_micros(usec))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake::Directory;

    fn heard(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 1_024];
        let len = socket.recv(&mut bytes).expect("a datagram");
        String::from_utf8_lossy(&bytes[..len]).into_owned()
    }

    fn say_all(notifier: &Notifier, socket: &UnixDatagram) {
        socket.set_read_timeout(Some(Duration::from_secs(20))).expect("set");
        notifier.ready("1 of 2\nup");
        assert_eq!(heard(socket), "READY=1\nSTATUS=1 of 2 up");
        notifier.status("x");
        assert_eq!(heard(socket), "STATUS=x");
        notifier.watchdog();
        assert_eq!(heard(socket), "WATCHDOG=1");
        notifier.reloading(5_000_000);
        assert_eq!(heard(socket), "RELOADING=1\nMONOTONIC_USEC=5000");
        notifier.stopping();
        assert_eq!(heard(socket), "STOPPING=1\nSTATUS=ending; services go on");
    }

    #[test]
    fn each_datagram_says_what_it_should() {
        let directory = Directory::new("notify");
        let path = directory.path().join("notify");
        let socket = UnixDatagram::bind(&path).expect("bound");
        say_all(&Notifier::new(Some(path.as_os_str())).expect("made"), &socket);
        let name = format!("tailplaned-test-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).expect("a name");
        let socket = UnixDatagram::bind_addr(&address).expect("bound");
        say_all(&Notifier::new(Some(OsStr::new(&format!("@{name}")))).expect("made"), &socket);
    }

    #[test]
    fn without_systemd_nothing_is_told() {
        for socket in [None, Some(OsStr::new(""))] {
            Notifier::new(socket).expect("made").ready("x");
        }
        Notifier::new(Some(OsStr::new("/nonexistent/x"))).expect("made").ready("nobody hears");
        let long = "x".repeat(200);
        assert!(Notifier::new(Some(OsStr::new(&long))).is_err());
    }

    #[test]
    fn the_watchdog_is_ours_or_none() {
        let os = |text: &'static str| Some(OsStr::new(text));
        let three = Some(Duration::from_secs(3));
        assert_eq!(watchdog_interval(os("3000000"), os("7"), 7), three);
        assert_eq!(watchdog_interval(os("3000000"), None, 7), three);
        for (usec, pid) in
            [(os("3000000"), os("8")), (os("0"), None), (os("x"), None), (None, None)]
        {
            assert_eq!(watchdog_interval(usec, pid, 7), None);
        }
    }
}
