//! The word of sleepers, and both sides of the handshake on it.

use core::fmt;
use core::marker::PhantomData;
use core::sync::atomic::Ordering;

use crate::mutants::{Mutant, mutated};
use crate::sources::Sources;
use crate::word::{Word, look};

/// How look and publication are kept from missing each other; see the crate's front page.
pub trait Pairing {
    /// After the announcement, before the look.
    fn before_look<W: Word>();
    /// After the publication, before the read of the sleepers' word.
    fn before_notify<W: Word>();
}

/// A sequentially consistent fence on both sides: for work of any kind.
#[derive(Clone, Copy, Debug)]
pub enum ByFence {}

impl Pairing for ByFence {
    #[inline(always)]
    fn before_look<W: Word>() {
        if !mutated(Mutant::NoFenceBeforeLook) {
            W::fence(Ordering::SeqCst);
        }
    }
    #[inline(always)]
    fn before_notify<W: Word>() {
        if !mutated(Mutant::NoFenceBeforeNotify) {
            W::fence(Ordering::SeqCst);
        }
    }
}

/// No fence: wakers publish by a read-modify-write with acquire semantics, and sleepers [look](crate::look) by one.
#[derive(Clone, Copy, Debug)]
pub enum ByExchange {}

impl Pairing for ByExchange {
    #[inline(always)]
    fn before_look<W: Word>() {}
    #[inline(always)]
    fn before_notify<W: Word>() {}
}

/// What the look before a sleep found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "where there is work, no waker will end the sleep"]
pub enum Armed {
    /// No source has work, and a waker that publishes from now on finds the announcement.
    Quiet,
    /// A source has work. The announcement is withdrawn.
    Work {
        /// A waker had claimed the sleeper meanwhile: see [`Sleepers::disarm`].
        was_claimed: bool,
    },
}

impl Armed {
    /// Whether the sleeper may block.
    pub fn is_quiet(self) -> bool {
        self == Self::Quiet
    }
}

/// A word with a bit for each thread that sleeps or is about to, which are woken for the sources `S`.
pub struct Sleepers<W, S, P> {
    word: W,
    of: PhantomData<fn(S, P)>,
}

impl<W, S, P> Sleepers<W, S, P> {
    /// The sleepers of this word: an atomic, or a reference to one in shared memory.
    #[inline]
    pub const fn over(word: W) -> Self {
        Self { word, of: PhantomData }
    }
}

impl<W: Default, S, P> Default for Sleepers<W, S, P> {
    fn default() -> Self {
        Self::over(W::default())
    }
}

impl<W: Word, S, P> fmt::Debug for Sleepers<W, S, P> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Sleepers({:#x})", self.asleep())
    }
}

impl<W: Word, S: Sources, P: Pairing> Sleepers<W, S, P> {
    /// Announces that the owner of `bit` is about to sleep, then looks at every source. The owner may block where
    /// this answers [`Armed::Quiet`], and [disarms](Self::disarm) after that.
    pub fn arm(&self, bit: u64, has_work: impl FnMut(S) -> bool) -> Armed {
        if mutated(Mutant::LookBeforeAnnouncement) {
            let work = self.finds_work(has_work);
            self.announce(bit);
            return if work { Armed::Work { was_claimed: self.disarm(bit) } } else { Armed::Quiet };
        }
        self.announce(bit);
        if self.finds_work(has_work) {
            return Armed::Work { was_claimed: self.disarm(bit) };
        }
        Armed::Quiet
    }

    /// Sets the sleeper's bit without a look: for a thread that goes on looking by itself, and calls
    /// [`finds_work`](Self::finds_work) before it blocks.
    ///
    /// Release: a thread that [withdraws](Self::disarm) this announcement, in a word that it shares with the announcer,
    /// acquires what the announcer did before. (No model misses it: loom executes the read-modify-writes of all words
    /// in one order.)
    #[inline]
    pub fn announce(&self, bit: u64) {
        self.word.fetch_or(bit, Ordering::Release);
    }

    /// Whether a source has work, for a sleeper that announced itself before.
    #[inline]
    pub fn finds_work(&self, has_work: impl FnMut(S) -> bool) -> bool {
        P::before_look::<W>();
        let forgotten = usize::from(mutated(Mutant::ForgottenSource));
        S::ALL[forgotten..].iter().copied().any(has_work)
    }

    /// Withdraws the announcement: the sleeper is awake. True where a waker had claimed it. The sleeper then sees
    /// what that waker published; one that does not serve it has to wake another.
    pub fn disarm(&self, bit: u64) -> bool {
        let relaxed = mutated(Mutant::RelaxedWithdrawal);
        let order = if relaxed { Ordering::Relaxed } else { Ordering::Acquire };
        self.word.fetch_and(!bit, order) & bit == 0
    }

    /// The waker's side, after it published work to `source`: the bits of those that sleep, to be
    /// [claimed](Self::claim).
    #[inline]
    pub fn notify(&self, _source: S) -> u64 {
        P::before_notify::<W>();
        self.asleep()
    }

    /// Takes the duty to wake the owner of `bit`. False: another waker has it, or the owner is awake, and looks
    /// again before it sleeps.
    pub fn claim(&self, bit: u64) -> bool {
        let relaxed = mutated(Mutant::RelaxedClaim);
        let order = if relaxed { Ordering::Relaxed } else { Ordering::Release };
        self.word.fetch_and(!bit, order) & bit != 0
    }

    /// Claims one of the sleepers `seen`, the lowest number first, so that the others can sleep deeper. None where
    /// all of them are awake, or other wakers claimed them.
    #[cold]
    pub fn claim_lowest(&self, mut seen: u64) -> Option<u32> {
        while seen != 0 {
            let bit = seen & seen.wrapping_neg();
            if self.claim(bit) {
                return Some(bit.trailing_zeros());
            }
            seen &= !bit;
        }
        None
    }
}

impl<W: Word, S, P> Sleepers<W, S, P> {
    /// The bits of those that sleep or are about to, without the fence of [`notify`](Self::notify): a hint.
    #[inline]
    pub fn asleep(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    /// The same by an exchange, as in a [look]: not a hint. An announcement that is not among these comes after
    /// whatever the caller did before.
    pub fn look_asleep(&self) -> u64 {
        look(&self.word)
    }
}
