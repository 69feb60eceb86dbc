//! The first words on a connection: who speaks what, and whether both have the secret.
//!
//! ```text
//! coordinator  Challenge {version, nonce c, secret: yes}
//! agent        Answer    {version, name, nonce a, proof: HMAC(secret, "agent" c a name host)}
//! coordinator  Verdict   {proof: HMAC(secret, "coordinator" c a name host)}
//! ```
//!
//! Each direction's frames are sealed from then on, with a key that is a proof of the words "frames from the agent" or
//! "frames from the coordinator", which is never sent. HMAC-SHA-256 (RFC 2104). Both nonces are fresh, so that no proof serves twice, and the two proofs
//! differ in their first word, so that none can be sent back. A name in a proof is a name that its
//! owner said.

use std::io::Read;
use std::net::TcpStream;
use std::path::Path;
use std::time::{Duration, Instant};

use hmac::{Hmac, KeyInit, Mac};
use rustix::io::retry_on_intr;
use sha2::Sha256;

use super::carried::{from_hex, to_hex};
use super::error::RemoteError;
use super::frame::{self, FrameError, HANDSHAKE_BYTES_MAX, Seal, Until};
use super::link::Seals;
use super::message::{Answer, Challenge, PROTOCOL, VERSION, Verdict};
use crate::error::LoadError;

/// A handshake must be over within this.
pub(super) const HANDSHAKE_MAX: Duration = Duration::from_secs(5);
/// Shortest secret: fewer bytes could be guessed.
pub const SECRET_BYTES_MIN: usize = 16;
/// Longest secret: a file beyond this is another file.
const SECRET_BYTES_MAX: u64 = 4 << 10;
/// Longest name of an agent or a host, in bytes.
const NAME_BYTES_MAX: usize = 64;
const NONCE_BYTES: usize = 32;

/// What coordinator and agents have in common, and strangers have not.
#[derive(Clone)]
pub struct Secret(Vec<u8>);

impl std::fmt::Debug for Secret {
    /// Not the secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

impl Secret {
    /// The secret `bytes`.
    ///
    /// # Errors
    /// Fewer than [`SECRET_BYTES_MIN`].
    pub fn new(bytes: &[u8]) -> Result<Self, String> {
        if bytes.len() < SECRET_BYTES_MIN {
            return Err(format!(
                "it has {} bytes, at least {SECRET_BYTES_MIN} are needed; `openssl rand -hex 32` \
                 makes a good one",
                bytes.len()
            ));
        }
        Ok(Self(bytes.to_vec()))
    }

    /// The secret in the file `path`, without white space at its end.
    ///
    /// # Errors
    /// A file that cannot be read, or that is no secret.
    pub fn read(path: &Path) -> Result<Self, RemoteError> {
        let fail = |reason: String| {
            let path = path.display();
            RemoteError::Peer(format!("cannot use the secret file '{path}': {reason}"))
        };
        let file = std::fs::File::open(path).map_err(|error| fail(error.to_string()))?;
        let mut bytes = Vec::new();
        file.take(SECRET_BYTES_MAX + 1)
            .read_to_end(&mut bytes)
            .map_err(|error| fail(error.to_string()))?;
        if bytes.len() as u64 > SECRET_BYTES_MAX {
            return Err(fail(format!("it is longer than {SECRET_BYTES_MAX} bytes")));
        }
        Self::new(bytes.trim_ascii_end()).map_err(fail)
    }

    /// The keyed hash of who says it, and of all that was said.
    fn mac(&self, who: &str, challenge: &Challenge, answer: &Answer) -> Option<Hmac<Sha256>> {
        // HMAC takes a key of any length (RFC 2104 §2), so there always is one.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0).ok()?;
        for part in [who, &challenge.nonce, &answer.nonce, &answer.name, &answer.host] {
            // With their lengths, so that no two lists of parts look alike.
            mac.update(&(part.len() as u64).to_be_bytes());
            mac.update(part.as_bytes());
        }
        Some(mac)
    }

    fn proof(&self, who: &str, challenge: &Challenge, answer: &Answer) -> Option<String> {
        Some(to_hex(&self.mac(who, challenge, answer)?.finalize().into_bytes()))
    }

    /// How the frames of a connection are sealed, at the end that sends as the first of these and receives as the
    /// second.
    fn seals(&self, ends: [&str; 2], said: (&Challenge, &Answer)) -> Option<Seals> {
        let of = |end| {
            let mac = self.mac(&format!("frames from the {end}"), said.0, said.1)?;
            Seal::new(&mac.finalize().into_bytes())
        };
        Some(Seals { sent: of(ends[0])?, received: of(ends[1])? })
    }

    /// Whether `proof` is right, in a time that does not tell how much of it is.
    fn accepts(&self, proof: Option<&str>, who: &str, said: (&Challenge, &Answer)) -> bool {
        let bytes = proof.and_then(from_hex);
        let mac = self.mac(who, said.0, said.1);
        mac.zip(bytes).is_some_and(|(mac, bytes)| mac.verify_slice(&bytes).is_ok())
    }
}

/// Random bytes of the kernel's, in hexadecimal digits.
fn nonce() -> Result<String, LoadError> {
    let mut bytes = [0; NONCE_BYTES];
    let flags = rustix::rand::GetRandomFlags::empty();
    // Requests of up to 256 bytes are filled whole (getrandom(2)).
    let filled = retry_on_intr(|| rustix::rand::getrandom(&mut bytes[..], flags))
        .map_err(LoadError::system("getrandom"))?;
    assert_eq!(filled, NONCE_BYTES, "a nonce is random in all of its bytes");
    Ok(to_hex(&bytes))
}

/// Whether a name can stand in a line of a report.
fn is_name(name: &str) -> bool {
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(|byte| byte.is_ascii_graphic())
}

/// `name` as [`is_name`] wants it.
fn into_name(name: &str) -> String {
    let clean: String = name.chars().filter(char::is_ascii_graphic).take(NAME_BYTES_MAX).collect();
    if clean.is_empty() { "unnamed".to_owned() } else { clean }
}

/// An agent that belongs to the run.
#[derive(Debug, Clone)]
pub(super) struct Introduced {
    /// What it is called.
    pub name: String,
    /// The machine it runs on.
    pub host: String,
    /// How what follows is sealed: where there is a secret.
    pub seals: Option<Seals>,
}

/// The coordinator's side: who has connected, or why it is refused, which it is told where it speaks
/// our protocol. `full` says why no more agents are wanted, where that is so.
pub(super) fn introduce(
    stream: &TcpStream,
    secret: Option<&Secret>,
    full: impl Fn() -> Option<String>,
) -> Result<Introduced, String> {
    let deadline = Instant::now() + HANDSHAKE_MAX;
    stream.set_write_timeout(Some(HANDSHAKE_MAX)).map_err(|error| error.to_string())?;
    let challenge = Challenge {
        protocol: PROTOCOL.to_owned(),
        version: VERSION,
        nonce: nonce().map_err(|error| error.to_string())?,
        secret: secret.is_some(),
    };
    let mut out = stream;
    frame::write(&mut out, &challenge, None).map_err(|error| error.to_string())?;
    let answer: Answer = read(stream, deadline).map_err(|error| error.to_string())?;
    let judged = judge(&challenge, &answer, secret).map_or_else(|| full().map_or(Ok(()), Err), Err);
    let verdict = match &judged {
        Ok(()) => Verdict::Welcome {
            proof: secret.and_then(|secret| secret.proof("coordinator", &challenge, &answer)),
        },
        Err(reason) => Verdict::Refused { reason: reason.clone() },
    };
    frame::write(&mut out, &verdict, None).map_err(|error| error.to_string())?;
    let seals =
        secret.and_then(|secret| secret.seals(["coordinator", "agent"], (&challenge, &answer)));
    judged.map(|()| Introduced { name: answer.name, host: answer.host, seals })
}

/// Why the agent does not belong to the run.
fn judge(challenge: &Challenge, answer: &Answer, secret: Option<&Secret>) -> Option<String> {
    if answer.protocol != PROTOCOL {
        return Some(format!("it does not speak {PROTOCOL}"));
    }
    if answer.version != VERSION {
        return Some(format!(
            "it speaks version {} of the protocol, the coordinator version {VERSION}; use the same \
             release of tailplane on both machines",
            answer.version
        ));
    }
    if !(is_name(&answer.name) && is_name(&answer.host)) {
        return Some(format!(
            "its name or host is none; allowed: 1 to {NAME_BYTES_MAX} visible ASCII letters"
        ));
    }
    let said = (challenge, answer);
    match (secret, &answer.proof) {
        (Some(_), None) => Some(
            "the coordinator has a secret, the agent has none; give the agent the same `--secret-file`"
                .to_owned(),
        ),
        (Some(secret), Some(proof)) if !secret.accepts(Some(proof), "agent", said) => Some(
            "its secret is not the coordinator's; give both the same `--secret-file`".to_owned(),
        ),
        _ => None,
    }
}

/// The agent's side: introduces it as `name` on `host`. How what follows is sealed, where it has a secret.
///
/// # Errors
/// A peer that is no coordinator, or does not want this agent.
pub(super) fn present(
    stream: &TcpStream,
    (name, host): (&str, &str),
    secret: Option<&Secret>,
    coordinator: &str,
) -> Result<Option<Seals>, RemoteError> {
    let not_ours = |reason: String| {
        RemoteError::Peer(format!("{coordinator} is no coordinator for this agent: {reason}"))
    };
    let broken = |error: FrameError| not_ours(error.to_string());
    let deadline = Instant::now() + HANDSHAKE_MAX;
    let challenge: Challenge = read(stream, deadline).map_err(broken)?;
    if challenge.protocol != PROTOCOL {
        return Err(not_ours(format!("it does not speak {PROTOCOL}")));
    }
    if challenge.version == VERSION && secret.is_some() && !challenge.secret {
        return Err(not_ours(
            "it has no secret, this agent has one; give the coordinator the same `--secret-file`, \
             or the agent none"
                .to_owned(),
        ));
    }
    // An answer of ours, also where the versions differ: so that the coordinator can say it too.
    let mut answer = Answer {
        protocol: PROTOCOL.to_owned(),
        version: VERSION,
        name: into_name(name),
        host: into_name(host),
        nonce: nonce()?,
        proof: None,
    };
    if challenge.secret {
        answer.proof = secret.and_then(|secret| secret.proof("agent", &challenge, &answer));
    }
    let mut out = stream;
    frame::write(&mut out, &answer, None).map_err(broken)?;
    if challenge.version != VERSION {
        return Err(not_ours(format!(
            "it speaks version {} of the protocol, this agent version {VERSION}; use the same \
             release of tailplane on both machines",
            challenge.version
        )));
    }
    match read::<Verdict>(stream, deadline).map_err(broken)? {
        Verdict::Refused { reason } => Err(RemoteError::Peer(format!(
            "the coordinator at {coordinator} refused this agent: {reason}"
        ))),
        Verdict::Welcome { proof } => match secret {
            Some(secret)
                if !secret.accepts(proof.as_deref(), "coordinator", (&challenge, &answer)) =>
            {
                Err(not_ours("it could not prove that it has the secret".to_owned()))
            }
            _ => Ok(secret
                .and_then(|secret| secret.seals(["agent", "coordinator"], (&challenge, &answer)))),
        },
    }
}

/// The next frame of a handshake.
fn read<M: serde::de::DeserializeOwned>(
    stream: &TcpStream,
    deadline: Instant,
) -> Result<M, FrameError> {
    frame::read(&mut Until { stream, deadline }, HANDSHAKE_BYTES_MAX, None)?
        .ok_or_else(|| FrameError::Malformed("an empty frame".to_owned()))
}

/// This machine's name.
pub(super) fn host_name() -> String {
    into_name(&rustix::system::uname().nodename().to_string_lossy())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hash_is_that_of_rfc_4231() {
        // Test case 2: key "Jefe".
        let mut mac = Hmac::<Sha256>::new_from_slice(b"Jefe").expect("any length");
        mac.update(b"what do ya want for nothing?");
        assert_eq!(
            to_hex(&mac.finalize().into_bytes()),
            "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843"
        );
    }

    #[test]
    fn a_proof_is_of_who_said_what_with_which_secret() {
        let secret = Secret::new(b"0123456789abcdef").expect("long enough");
        let other = Secret::new(b"0123456789abcdeF").expect("long enough");
        let challenge = Challenge {
            protocol: PROTOCOL.into(),
            version: VERSION,
            nonce: nonce().expect("the kernel has some"),
            secret: true,
        };
        let answer = Answer {
            protocol: PROTOCOL.into(),
            version: VERSION,
            name: "a".into(),
            host: "h".into(),
            nonce: nonce().expect("the kernel has some"),
            proof: None,
        };
        assert_ne!(challenge.nonce, answer.nonce);
        let proof = secret.proof("agent", &challenge, &answer);
        let proof = proof.as_deref();
        assert!(secret.accepts(proof, "agent", (&challenge, &answer)));
        assert!(!secret.accepts(proof, "coordinator", (&challenge, &answer)));
        assert!(!other.accepts(proof, "agent", (&challenge, &answer)));
        let renamed = Answer { name: "b".into(), ..answer.clone() };
        assert!(!secret.accepts(proof, "agent", (&challenge, &renamed)));
        assert!(!secret.accepts(None, "agent", (&challenge, &answer)));
        assert!(Secret::new(b"short").is_err_and(|reason| reason.contains("5 bytes")));
        assert!(!format!("{secret:?}").contains("0123"));
    }

    #[test]
    fn names_are_short_and_visible() {
        assert_eq!(into_name("a b\n"), "ab");
        assert_eq!(into_name(" \u{7}"), "unnamed");
        assert!(is_name(&into_name(&"x".repeat(1_000))));
        assert!(!is_name("") && !is_name("a b") && !is_name("ä"));
    }
}
