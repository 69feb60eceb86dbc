//! What tenants may have, in all and for each user, and how fast they may join: the accounts.
//!
//! ```
//! use sdp::Limits;
//! let limits = Limits::default();
//! // Eight users fit, however much each of them takes.
//! assert!(limits.per_uid.bytes * 8 <= limits.all.bytes);
//! // A plane for one user alone.
//! assert_eq!(Limits::default().of_one_user().per_uid, limits.all);
//! ```
//!
//! The account is that of the user whom the kernel names at the other end of the connection
//! (`SO_PEERCRED`). An account outlives its tenants until its token bucket is full again: leaving does
//! not refill it.

use std::collections::HashMap;
use std::time::Duration;

use clock::{Clock, MonotonicClock};
use qwait::TENANTS_MAX;

use crate::bucket::{Limiter, RateLimit};

/// Users that the default limits leave room for, each with its whole share.
pub(crate) const USERS: u32 = 8;
/// Descriptors of a plane beside those for tenants: its streams and sockets, and what its cores sleep on.
const OWN_DESCRIPTORS: u64 = 128;
/// Descriptors that a tenant of the default shape takes at most, on four cores that share its queue.
const TENANT_DESCRIPTORS: u64 = 8;
/// Tenants of a user that can begin to join at one moment.
const JOINING_PER_UID: u32 = 64;
/// Accounts that are kept at most. One more user is refused.
const ACCOUNTS_MAX: usize = 4_096;

/// How much tenants may have. The plane refuses what is over a limit, and names the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// All tenants together. [`Plane::start`](crate::Plane::start) raises the process's soft limit to what their
    /// descriptors need, and lowers these where the hard limit is below.
    pub all: Usage,
    /// The tenants of one user.
    pub per_uid: Usage,
    /// Bytes of one tenant: mapping them, and unmapping them when it leaves, is work of the plane.
    pub bytes_per_tenant: u64,
    /// Joins a second, and bytes of memory a second that these have mapped, in all.
    pub joins: RateLimit,
    /// The same of one user.
    pub joins_per_uid: RateLimit,
    /// Connections that have not joined yet. One more drops the oldest of them.
    pub joining: u32,
    /// The same of one user.
    pub joining_per_uid: u32,
    /// How long a connection may take to ask, and to map what it was offered.
    pub ask_timeout: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let tenants = u64::from(TENANTS_MAX);
        let all = Usage { tenants, queues: 16_384, bytes: 1 << 30, descriptors: 8_192 };
        let share = |whole: u64| whole / u64::from(USERS);
        let rate = |joins: u64, bytes: u64| RateLimit {
            requests_per_s: joins,
            burst_requests: 2 * joins,
            bytes_per_s: bytes,
            burst_bytes: 2 * bytes,
        };
        Self {
            all,
            per_uid: Usage {
                tenants: share(all.tenants),
                queues: share(all.queues),
                bytes: share(all.bytes),
                descriptors: share(all.descriptors),
            },
            bytes_per_tenant: 64 << 20,
            joins: rate(512, 256 << 20),
            joins_per_uid: rate(64, 64 << 20),
            joining: JOINING_PER_UID * USERS,
            joining_per_uid: JOINING_PER_UID,
            ask_timeout: Duration::from_secs(1),
        }
    }
}

impl Limits {
    /// The same totals, without shares: for a plane whose tenants are all of one user, as a bench's.
    pub fn of_one_user(self) -> Self {
        Self {
            per_uid: self.all,
            bytes_per_tenant: self.all.bytes,
            joins_per_uid: self.joins,
            joining_per_uid: self.joining,
            ..self
        }
    }

    /// Descriptors that a plane with these limits opens at most.
    pub fn open_files(&self) -> u64 {
        OWN_DESCRIPTORS + u64::from(self.joining) + self.all.descriptors
    }

    /// These limits where the process can open no more than `open_files`, with the same shares.
    ///
    /// # Errors
    /// Not one tenant would have room.
    pub(crate) fn lowered_to(self, open_files: u64) -> Result<Self, u64> {
        let own = OWN_DESCRIPTORS + u64::from(self.joining);
        let least = own + u64::from(USERS) * TENANT_DESCRIPTORS;
        if open_files < least {
            return Err(least);
        }
        let descriptors = self.all.descriptors.min(open_files - own);
        let share = self.per_uid.descriptors.saturating_mul(descriptors);
        let share = (share / self.all.descriptors.max(1))
            .clamp(TENANT_DESCRIPTORS.min(descriptors), descriptors);
        let all = Usage { descriptors, ..self.all };
        Ok(Self { all, per_uid: Usage { descriptors: share, ..self.per_uid }, ..self })
    }
}

/// A refusal as the tenant reads it.
pub(crate) fn refusal(found: impl std::fmt::Display, advice: &str) -> String {
    format!("cannot join: found {found}; {advice}")
}

/// What a tenant takes, or what tenants take or may have together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Tenants.
    pub tenants: u64,
    /// Queue pairs.
    pub queues: u64,
    /// Bytes of shared memory.
    pub bytes: u64,
    /// Descriptors of the plane.
    pub descriptors: u64,
}

impl Usage {
    fn add(&mut self, more: Self) {
        self.tenants += more.tenants;
        self.queues += more.queues;
        self.bytes += more.bytes;
        self.descriptors += more.descriptors;
    }

    fn sub(&mut self, less: Self) {
        self.tenants -= less.tenants;
        self.queues -= less.queues;
        self.bytes -= less.bytes;
        self.descriptors -= less.descriptors;
    }

    /// What of a limit so much more would exceed.
    fn within(self, more: Self, limit: Self, whose: &str) -> Result<(), String> {
        let kinds = [
            ("tenants", self.tenants, more.tenants, limit.tenants),
            ("queues", self.queues, more.queues, limit.queues),
            ("bytes of shared memory", self.bytes, more.bytes, limit.bytes),
            ("descriptors", self.descriptors, more.descriptors, limit.descriptors),
        ];
        match kinds.into_iter().find(|(_, have, more, limit)| have + more > *limit) {
            None => Ok(()),
            Some((what, have, more, limit)) => Err(refusal(
                format_args!(
                    "{whose} with {have} {what}, {more} more are over the limit of {limit}"
                ),
                "ask for less, or let tenants leave first",
            )),
        }
    }
}

/// One user.
#[derive(Debug)]
struct Account {
    usage: Usage,
    joins: Limiter,
}

/// All users, and the sum of them.
#[derive(Debug)]
pub(crate) struct Accounts {
    limits: Limits,
    clock: MonotonicClock,
    total: Usage,
    joins: Limiter,
    by_uid: HashMap<u32, Account>,
}

impl Accounts {
    pub(crate) fn new(limits: Limits) -> Self {
        Self {
            limits,
            clock: MonotonicClock::new(),
            total: Usage::default(),
            joins: Limiter::new(limits.joins),
            by_uid: HashMap::new(),
        }
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Charges a user for a tenant, or says which limit keeps it out; then nothing was charged but, where
    /// all users together join too fast, the user's own rate.
    pub(crate) fn charge(&mut self, uid: u32, more: Usage) -> Result<(), String> {
        let limits = &self.limits;
        if more.bytes > limits.bytes_per_tenant {
            return Err(refusal(
                format_args!(
                    "{} bytes of shared memory, over the limit of {} for one tenant",
                    more.bytes, limits.bytes_per_tenant
                ),
                "ask for fewer queues, or smaller ones",
            ));
        }
        let now = self.clock.now();
        if !self.by_uid.contains_key(&uid) && self.by_uid.len() >= ACCOUNTS_MAX {
            return Err(refusal(format_args!("{ACCOUNTS_MAX} other users"), "try again later"));
        }
        let account = self.by_uid.entry(uid).or_insert_with(|| Account {
            usage: Usage::default(),
            joins: Limiter::new(limits.joins_per_uid),
        });
        let whose = format!("user {uid}");
        account.usage.within(more, limits.per_uid, &whose)?;
        self.total.within(more, limits.all, "this plane")?;
        let too_fast = |whose: &str, rate: RateLimit| {
            refusal(
                format_args!(
                    "{whose} over {} joins or {} bytes a second",
                    rate.requests_per_s, rate.bytes_per_s
                ),
                "wait a second, then try again",
            )
        };
        let taken = account.joins.take(now, more.bytes);
        taken.map_err(|_| too_fast(&whose, limits.joins_per_uid))?;
        let taken = self.joins.take(now, more.bytes);
        taken.map_err(|_| too_fast("this plane", limits.joins))?;
        account.usage.add(more);
        self.total.add(more);
        Ok(())
    }

    /// Takes a tenant off its user's account.
    pub(crate) fn release(&mut self, uid: u32, less: Usage) {
        self.total.sub(less);
        if let Some(account) = self.by_uid.get_mut(&uid) {
            account.usage.sub(less);
        }
    }

    /// Forgets users without tenants whose buckets are full again.
    pub(crate) fn prune(&mut self) {
        let now = self.clock.now();
        self.by_uid.retain(|_, account| account.usage.tenants > 0 || account.joins.full_at() > now);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: Usage = Usage { tenants: 1, queues: 1, bytes: 4_096, descriptors: 5 };

    #[test]
    fn several_users_fit_though_each_takes_all_it_can() {
        let slow = Limits::default();
        let limits = Limits { joins: RateLimit::NONE, joins_per_uid: RateLimit::NONE, ..slow };
        let mut accounts = Accounts::new(limits);
        let greedy = Usage { bytes: 1 << 20, queues: 16, descriptors: 8, ..ONE };
        for uid in 0..USERS {
            let joined = (0..).take_while(|_| accounts.charge(uid, greedy).is_ok()).count();
            assert_eq!(joined, 128, "user {uid} gets its share and no more");
        }
        let refused = accounts.charge(0, greedy).expect_err("over the share");
        assert!(refused.starts_with("cannot join: found user 0 with"), "{refused}");
        let refused = accounts.charge(USERS, greedy).expect_err("over the whole");
        assert!(refused.starts_with("cannot join: found this plane with"), "{refused}");
        accounts.release(3, greedy);
        assert!(accounts.charge(3, greedy).is_ok(), "what is released is free");
    }

    #[test]
    fn a_low_limit_of_open_files_lowers_the_shares_alike() {
        let limits = Limits::default();
        assert_eq!(limits.lowered_to(limits.open_files()), Ok(limits));
        let low = limits.lowered_to(1_024).expect("room for some");
        assert!(low.open_files() <= 1_024 && low.all.descriptors >= 384, "{low:?}");
        let share = low.per_uid.descriptors;
        assert!(share * u64::from(USERS) <= low.all.descriptors && share >= 48);
        let least = limits.lowered_to(600).expect_err("not one tenant");
        assert!(limits.lowered_to(least).is_ok_and(|low| low.per_uid.descriptors >= 8), "{least}");
        let alone = limits.of_one_user().lowered_to(1_024).expect("room for some");
        assert_eq!(alone.per_uid, alone.all);
    }

    #[test]
    fn a_rate_survives_leaving_and_is_each_users_own() {
        let rate = RateLimit { requests_per_s: 1, burst_requests: 3, ..RateLimit::NONE };
        let mut accounts = Accounts::new(Limits { joins_per_uid: rate, ..Limits::default() });
        for _ in 0..3 {
            accounts.charge(7, ONE).expect("within the burst");
            accounts.release(7, ONE);
            accounts.prune();
        }
        let refused = accounts.charge(7, ONE).expect_err("leaving does not refill the bucket");
        assert!(refused.contains("user 7 over 1 joins"), "{refused}");
        assert_eq!(accounts.by_uid.len(), 1, "kept until its bucket is full");
        accounts.charge(8, ONE).expect("another user's bucket is full");
        let huge = Usage { bytes: (64 << 20) + 1, ..ONE };
        let refused = accounts.charge(8, huge).expect_err("over the limit of a tenant");
        assert!(refused.contains("67108865 bytes") && refused.contains("one tenant"), "{refused}");
    }
}
