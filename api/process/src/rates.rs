//! The rates that an application is kept to: what comes too fast is not lost, the application gets its next batch later
//! ([`Toll`]). With which peers it may speak is the stack's to judge (`stack::policy`).

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use clock::Instant;

/// How much an application may do; without a limit where there is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Rates {
    /// Bytes that it sends, in a second.
    pub bytes: Option<u64>,
    /// Packets that it sends (one at least for each call that sends), in a second.
    pub packets: Option<u64>,
    /// Connections that it opens or accepts, in a second.
    pub connections: Option<u64>,
}

/// What a batch used of the rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Used {
    /// See [`Rates`].
    pub bytes: u64,
    /// See [`Rates`].
    pub packets: u64,
    /// See [`Rates`].
    pub connections: u64,
}

/// Keeps an application, with all its elastic threads, to its rates. Each batch is paid for after it: the next one
/// waits until the application is out of debt, so that an average is kept, nothing is lost, and one batch is the
/// most that comes at once beyond the [burst](Self::BURST).
#[derive(Debug)]
pub struct Toll {
    rates: Rates,
    /// Until when what was used is paid for, in nanoseconds of the dataplane's clock: bytes, packets, connections.
    paid_until: [AtomicU64; 3],
}

impl Toll {
    /// What has not been used for so long does not count any more.
    pub const BURST: Duration = Duration::from_millis(10);

    /// For all elastic threads of one application; `None` where nothing is limited.
    pub fn new(rates: Rates) -> Option<Arc<Self>> {
        (rates != Rates::default())
            .then(|| Arc::new(Self { rates, paid_until: Default::default() }))
    }

    /// Has what a batch used paid for.
    pub(crate) fn charge(&self, now: Instant, used: Used) {
        let Rates { bytes, packets, connections } = self.rates;
        let from = now.as_nanos().saturating_sub(Self::BURST.as_nanos() as u64);
        let all = [(bytes, used.bytes), (packets, used.packets), (connections, used.connections)];
        for (paid_until, (rate, used)) in self.paid_until.iter().zip(all) {
            let Some(rate) = rate.filter(|_| used > 0) else { continue };
            let price = u128::from(used) * 1_000_000_000 / u128::from(rate.max(1));
            let price = u64::try_from(price).unwrap_or(u64::MAX);
            // Several threads of the application pay into one purse, once for each batch.
            let pay = |paid: u64| Some(paid.max(from).saturating_add(price));
            let _ = paid_until.fetch_update(Ordering::Relaxed, Ordering::Relaxed, pay);
        }
    }

    /// When the application is out of debt.
    pub(crate) fn free_at(&self) -> Instant {
        let latest = self.paid_until.iter().map(|paid| paid.load(Ordering::Relaxed)).max();
        Instant::from_nanos(latest.unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_kept_on_average_and_a_pause_is_worth_one_burst() {
        let rates = Rates { bytes: Some(1_000_000), ..Rates::default() };
        let toll = Toll::new(rates).expect("limited");
        let (mut now, mut sent) = (Instant::from_nanos(1_000_000_000), 0_u64);
        let begun = now;
        let seconds = if cfg!(miri) { 1 } else { 10 };
        while now.since(begun) < Duration::from_secs(seconds) {
            if toll.free_at() <= now {
                toll.charge(now, Used { bytes: 3_000, ..Used::default() });
                sent += 3_000;
            }
            now += Duration::from_micros(100);
        }
        let burst = 10_000 + 3_000;
        let paid = 1_000_000 * seconds;
        assert!((paid..=paid + burst).contains(&sent), "{sent}");
        // A minute later no more than a burst is saved up.
        now += Duration::from_secs(60);
        toll.charge(now, Used { bytes: 20_000, packets: 9, connections: 9 });
        assert_eq!(toll.free_at().since(now), Duration::from_millis(10));
        assert!(Toll::new(Rates::default()).is_none());
    }

    #[test]
    fn rates_and_amounts_of_any_size_are_reckoned() {
        let toll = Toll::new(Rates { packets: Some(0), ..Rates::default() }).expect("limited");
        toll.charge(Instant::from_nanos(5), Used { packets: u64::MAX, ..Used::default() });
        toll.charge(Instant::from_nanos(6), Used { packets: 1, ..Used::default() });
        assert_eq!(toll.free_at(), Instant::from_nanos(u64::MAX));
    }
}
