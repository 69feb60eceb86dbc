//! The attacks: what the hostile application does, each a function of its own.
//!
//! An act runs until it is killed, until the dataplane goes, or until it has done what it is about. What it can
//! find out by itself (memory that it may not write to, and can) it tells by ending with [`GOT_IN`].

mod calls;
mod joining;
mod memory;
mod processes;
mod waking;

use std::time::{Duration, Instant};

use anyhow::Context;
use process::Placement;
use process::layout;
use rand::RngExt;
use rand::seq::SliceRandom;
use rustix::io::Errno;
use rustix::process::Signal;
use tailplane::application::DOMAIN_VARIABLE;
use wire::Ipv4Addr;

use crate::crowd::{DATAGRAM_PORT, PORT};
use crate::joined::{Greeted, Joined};
use crate::lies::{self, Call, Falsehood, Liar, MIXED};
use crate::unsafe_os;

/// The status of an act that got where nobody may.
pub const GOT_IN: i32 = 42;
/// How long an act waits for a batch before it looks whether the dataplane is there.
const PATIENCE: Duration = Duration::from_millis(100);
/// An act that nobody ends ends after so many seconds.
const LONGEST_SECONDS: u32 = 60;

/// What an application does with what the dataplane shows, before an answer; the seed is the last.
type Unanswered = fn(Greeted, Liar, u64) -> anyhow::Result<()>;
/// What an application does that has joined.
type Joins = fn(&mut Attacker) -> anyhow::Result<()>;

/// How an act begins.
#[derive(Clone, Copy)]
pub enum Act {
    /// Before an answer.
    Unanswered(Unanswered),
    /// As an application that has joined.
    Joined(Joins),
}

/// A dataplane's scheduler, in a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shares {
    /// Run to completion.
    Nothing,
    /// Work-conserving.
    Work,
    /// A ready set.
    Ready,
}

/// What the operator of an attacked dataplane allows on the network.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Allowed {
    /// Everything.
    Everything,
    /// The client may connect and send datagrams; the application may answer.
    Client,
    /// Nothing: neither side may reach the other.
    Nothing,
}

/// One attack.
#[derive(Clone, Copy)]
pub struct Attack {
    /// Its name.
    pub name: &'static str,
    /// What it does, in a line.
    pub what: &'static str,
    /// Where its dataplane's application runs.
    pub placement: Placement,
    /// The policy of its dataplane's operator.
    pub allowed: Allowed,
    /// Who runs the application: the attacker says that it runs anywhere, where that is asked for.
    pub shares: Shares,
    /// It is over soon, and is done again and again, with another seed each.
    pub short: bool,
    /// It is to get no further than the dataplane's door, and this is among the words with which it is refused there:
    /// one that fails before has not been tried.
    pub refusal: Option<&'static str>,
    /// What it does.
    pub act: Act,
}

impl Attack {
    /// Elastic threads that it can attack at once: it answers the greeting for one alone, or doubles itself, which a
    /// program of several threads cannot.
    pub fn threads_max(&self) -> u32 {
        let alone = matches!(self.act, Act::Unanswered(_)) || self.name == "fork";
        if alone { 1 } else { 2 }
    }

    /// The dataplanes that it attacks: one that waits for its application, and one that goes on without it, where the
    /// attack is not for another kind.
    pub fn kinds(&self) -> Vec<Self> {
        let other = Self { placement: Placement::Split, ..*self };
        let either = self.placement == Placement::SameCore && self.shares == Shares::Nothing;
        if either { vec![*self, other] } else { vec![*self] }
    }
}

const fn attack(name: &'static str, what: &'static str, act: Act) -> Attack {
    Attack {
        name,
        what,
        placement: Placement::SameCore,
        allowed: Allowed::Everything,
        shares: Shares::Nothing,
        short: false,
        refusal: None,
        act,
    }
}

/// What an application that has joined does.
const fn joined(name: &'static str, what: &'static str, act: Joins) -> Attack {
    attack(name, what, Act::Joined(act))
}

/// What an application does in place of an answer.
const fn unanswered(name: &'static str, what: &'static str, act: Unanswered) -> Attack {
    Attack { short: true, ..attack(name, what, Act::Unanswered(act)) }
}

const fn short(attack: Attack) -> Attack {
    Attack { short: true, ..attack }
}

const fn refused(words: &'static str, attack: Attack) -> Attack {
    Attack { refusal: Some(words), ..attack }
}

const fn split(attack: Attack) -> Attack {
    Attack { placement: Placement::Split, ..attack }
}

/// Where the operator allows nothing, and under a scheduler.
const fn denied(name: &'static str, shares: Shares, what: &'static str, act: Joins) -> Attack {
    let what = match shares {
        Shares::Nothing => what,
        Shares::Work => "the same where any core executes the calls",
        Shares::Ready => "the same with a ready set",
    };
    Attack { allowed: Allowed::Nothing, shares, ..joined(name, what, act) }
}

const ACCEPTS: &str = "accepts and sends on guessed handles, before a knock and after its refusal";
const REACHES: &str = "connects and sends datagrams to a peer that the policy denies";

/// All of them.
pub const ATTACKS: &[Attack] = &[
    joined(
        "forged-handles",
        "calls on handles of nobody: random, beside others, generation 0 and highest",
        calls::forged_handles,
    ),
    joined("stale-handles", "calls on connections that it has closed", calls::stale_handles),
    joined(
        "replayed-calls",
        "the same calls again and again; done without a batch, far ahead, far behind",
        calls::replayed,
    ),
    joined(
        "reordered-calls",
        "what an honest application asks for, in any other order",
        calls::reordered,
    ),
    joined(
        "lengths-and-offsets",
        "every boundary of offset, length, count and piece",
        calls::lengths_and_offsets,
    ),
    joined(
        "outside-arena",
        "bytes that are partly or wholly outside of its arena",
        calls::outside_arena,
    ),
    split(joined(
        "changed-while-read",
        "a second thread changes calls, pieces and bytes all the time",
        memory::changed_while_read,
    )),
    joined(
        "call-flood",
        "full arrays in every batch, on all connections and with datagrams",
        calls::flood,
    ),
    joined(
        "connect-flood",
        "connections to peers, to nobody and to itself, as many as fit",
        calls::connect_flood,
    ),
    Attack {
        allowed: Allowed::Client,
        ..joined(
            "forbidden-flood",
            "connects, without an end, to peers that the policy denies",
            calls::connect_flood,
        )
    },
    denied("accept-unannounced", Shares::Nothing, ACCEPTS, calls::accept_unannounced),
    denied("accept-unannounced-shared", Shares::Work, ACCEPTS, calls::accept_unannounced),
    denied("accept-unannounced-ready", Shares::Ready, ACCEPTS, calls::accept_unannounced),
    denied("reach-denied", Shares::Nothing, REACHES, calls::reach_denied),
    denied("reach-denied-shared", Shares::Work, REACHES, calls::reach_denied),
    denied("reach-denied-ready", Shares::Ready, REACHES, calls::reach_denied),
    split(joined(
        "random-corruption",
        "a second thread writes random words over the call array",
        memory::random_corruption,
    )),
    joined(
        "never-consuming",
        "accepts, and neither answers nor gives back what it received",
        calls::never_consuming,
    ),
    joined(
        "hold-everything",
        "answers, and never gives back a buffer, nor a knock",
        calls::hold_everything,
    ),
    short(joined(
        "write-received-packets",
        "tries every way to write to what it may only read; ends with a store there",
        memory::write_received_packets,
    )),
    joined(
        "exhaust-transmit",
        "every call sends the whole arena, and more than there is memory for",
        calls::exhaust_transmit,
    ),
    joined(
        "many-events",
        "makes more events than go over at once, and answers them with endless sends",
        calls::many_events,
    ),
    joined(
        "arena-games",
        "tries to take the pages of its arena and its calls away while it sends",
        memory::unsettled_arena,
    ),
    unanswered(
        "arena-joining",
        "joins with an arena that is none: small, unsealed, a pipe, the dataplane's own memory",
        joining::arenas,
    ),
    unanswered(
        "calls-joining",
        "joins with calls that are none: unsealed, small, large, the dataplane's own memory",
        joining::calls,
    ),
    split(unanswered(
        "bell-joining",
        "joins with a bell that is none: a pipe, a file, a socket of another kind; or one that is full, or shared",
        joining::bells,
    )),
    refused(
        "arenas of 1073741824 bytes",
        unanswered(
            "arena-oversized",
            "joins with an arena of a gigabyte in which nothing is",
            joining::oversized,
        ),
    ),
    refused(
        "no sealed memory of ordinary pages",
        unanswered(
            "arena-huge-pages",
            "joins with an arena of huge pages, and takes the pages away",
            joining::huge_pages,
        ),
    ),
    Attack {
        shares: Shares::Work,
        ..joined(
            "shared-turns",
            "lies about every turn to a scheduler that hands turns to any core",
            Attacker::lie,
        )
    },
    Attack {
        shares: Shares::Ready,
        ..joined("ready-turns", "the same to a scheduler with a ready set", Attacker::lie)
    },
    joined("fork", "doubles itself: both write", processes::fork),
    unanswered(
        "exit-in-every-state",
        "ends at once, before its answer, in a batch, with calls half written",
        processes::exit_in_every_state,
    ),
    joined("stop", "stops itself, again and again", processes::stop),
    short(joined(
        "stop-for-ever",
        "stops itself in a batch; only its death ends that",
        processes::stopped,
    )),
    short(joined("kill", "is killed at a random moment", processes::kill)),
    joined(
        "futex-lies",
        "says that it sleeps when it does not; wakes by the thousand",
        waking::lies,
    ),
    joined("futex-requeue", "has the dataplane's sleeper wait for something else", waking::requeue),
    joined(
        "futex-owner",
        "makes the word that the dataplane sleeps on a lock that it owns",
        waking::owner,
    ),
    joined("wish-lies", "wishes to be run in the past, now, and never", waking::wishes),
    short(joined(
        "socket-games",
        "sends garbage to the dataplane; shuts down the socket, closes it, goes on",
        processes::socket_games,
    )),
];

/// An application that has joined, and means no good.
pub struct Attacker {
    /// The memories.
    pub joined: Joined,
    /// What it writes.
    pub liar: Liar,
    /// What else its act depends on.
    pub seed: u64,
    seen: u32,
}

impl Attacker {
    /// Waits for a batch and hears it. False: there is no dataplane any more.
    pub fn hear(&mut self) -> bool {
        let began = Instant::now();
        loop {
            if let Some(batch) = self.joined.wait(self.seen, PATIENCE) {
                self.seen = batch;
                self.liar.listen(&self.joined);
                return true;
            }
            if began.elapsed() > Duration::from_secs(u64::from(LONGEST_SECONDS)) {
                return false;
            }
        }
    }

    /// Writes calls, and says that the batch is done.
    pub fn ask(&mut self, calls: &[Call]) {
        let count = calls.len().min(self.joined.geometry.call_records());
        self.hand_over(&calls[..count], count as u32, 0, u64::MAX);
    }

    /// Writes calls and whatever counts and wish, and says that the batch is done.
    pub fn hand_over(&mut self, calls: &[Call], count: u32, pieces: u32, wish: u64) {
        for (index, call) in calls.iter().enumerate() {
            self.joined.call(index, *call);
        }
        self.joined.counts(count, pieces, wish);
        self.done();
    }

    /// Says that the batch is done.
    pub fn done(&self) {
        self.joined.done(self.seen);
    }

    /// The number of the batch that was heard last.
    pub fn batch(&self) -> u32 {
        self.seen
    }

    /// Serves as an honest application for so many batches. False: there is no dataplane any more.
    pub fn serve(&mut self, batches: u32) -> bool {
        for _ in 0..batches {
            if !self.hear() {
                return false;
            }
            let answers = self.liar.answers();
            self.ask(&answers);
        }
        true
    }

    /// Serves with each batch's honest calls turned into others, until there is no dataplane any more.
    ///
    /// # Errors
    /// None: so ends an act.
    pub fn serve_turned(
        &mut self,
        mut turn: impl FnMut(&mut Liar, &mut Vec<Call>),
    ) -> anyhow::Result<()> {
        while self.hear() {
            let mut calls = self.liar.answers();
            turn(&mut self.liar, &mut calls);
            self.ask(&calls);
        }
        Ok(())
    }

    /// Lies, about calls that are nearly right, until there is no dataplane any more.
    ///
    /// # Errors
    /// None: so ends an act.
    pub fn lie(&mut self) -> anyhow::Result<()> {
        self.liar.set_falsehood(MIXED);
        while self.hear() {
            self.liar.lie(&self.joined);
            self.done();
        }
        Ok(())
    }
}

/// The attack of this name.
///
/// # Errors
/// There is none; which there are.
pub fn find(name: &str) -> anyhow::Result<&'static Attack> {
    ATTACKS.iter().find(|attack| attack.name == name).with_context(|| {
        let names: Vec<&str> = ATTACKS.iter().map(|attack| attack.name).collect();
        format!("there is no attack '{name}'; there are: {}", names.join(", "))
    })
}

/// How an act is started.
#[derive(Clone, Copy, Debug)]
pub struct Started {
    /// What its choices follow from.
    pub seed: u64,
    /// It says that it runs anywhere, as schedulers that share want it.
    pub anywhere: bool,
    /// Its dataplane's address, and that of the client there.
    pub server: Ipv4Addr,
    /// See above.
    pub client: Ipv4Addr,
}

/// What `tailplane-attack act` does: joins the dataplane that it was started with, and attacks.
///
/// # Errors
/// There is no such attack or no dataplane.
pub fn perform(name: &str, started: Started) -> anyhow::Result<()> {
    let attack = find(name)?;
    let seed = started.seed;
    unsafe_os::end_after(LONGEST_SECONDS);
    // Whoever started it ends: so does it. A starter has seen to that itself, and refuses the call.
    match rustix::process::set_parent_process_death_signal(Some(Signal::KILL)) {
        Ok(()) | Err(Errno::PERM) => {}
        Err(errno) => return Err(errno).context("asking to end with the starter"),
    }
    let said = std::env::var(DOMAIN_VARIABLE);
    let number = said.ok().and_then(|said| said.parse().ok());
    let number = number.with_context(|| {
        format!("an act is started by a dataplane, which names its socket in {DOMAIN_VARIABLE}")
    })?;
    let socket = unsafe_os::inherited(number);
    let liar = |seed| {
        let mut liar =
            Liar::new(seed, Falsehood { changed: 0, nonsense: 0, counts: 0, long: 1_000 });
        liar.peers = peers(started.server, started.client);
        liar
    };
    if seed.is_multiple_of(10) && name == "exit-in-every-state" {
        return Ok(());
    }
    let greeted = Greeted::receive(socket)?;
    let act = match attack.act {
        Act::Unanswered(act) => return act(greeted, liar(seed), seed),
        Act::Joined(act) => act,
    };
    // One attacker for each elastic thread. Like the program itself they end when the first one has done its act.
    let mut attackers = greeted
        .answer(started.anywhere)?
        .into_iter()
        .zip(seed..)
        .map(|(joined, seed)| Attacker { joined, liar: liar(seed), seed, seen: 0 });
    let mut first = attackers.next().context("a dataplane without elastic threads")?;
    for mut attacker in attackers {
        std::thread::spawn(move || act(&mut attacker));
    }
    act(&mut first)
}

/// A random order.
pub fn shuffle(liar: &mut Liar, calls: &mut [Call]) {
    calls.shuffle(&mut liar.random);
}

/// One of some.
pub fn pick<T: Copy>(liar: &mut Liar, from: &[T]) -> T {
    from[liar.random.random_range(0..from.len())]
}

/// A word of the call array that is no count and no number of a batch.
pub fn any_word(liar: &mut Liar, joined: &Joined) -> usize {
    let words = joined.geometry.call_bytes() / 8;
    8 * liar.random.random_range(layout::HEADER / 8..words)
}

/// A call that sends a piece on a connection.
pub fn send(handle: u64, piece: u64) -> Call {
    [lies::SEND | 1 << 32, handle, piece, 0]
}

/// Addresses that an attacker connects and sends to: its dataplane's peer, itself, nobody, everybody.
pub fn peers(server: Ipv4Addr, client: Ipv4Addr) -> Vec<u64> {
    let word =
        |addr: Ipv4Addr, port: u64| u64::from(u32::from_be_bytes(addr.octets())) << 16 | port;
    let [a, b, c, _] = server.octets();
    vec![
        word(client, DATAGRAM_PORT.into()),
        word(client, PORT.into()),
        word(client, 0),
        word(server, PORT.into()),
        word(Ipv4Addr::new(a, b, c, 77), 7),
        word(Ipv4Addr::new(a, b, c, 255), 9),
        word(Ipv4Addr::new(255, 255, 255, 255), 9),
        word(Ipv4Addr::new(224, 0, 0, 1), 9),
        word(Ipv4Addr::new(8, 8, 8, 8), 53),
        0,
    ]
}
