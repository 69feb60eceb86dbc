//! Proportional rate reduction (RFC 6937): during a recovery as much is sent as has arrived, less what brings the flight
//! down to the new threshold by its end; where too much is lost, no faster than slow start would.

/// See the module's comment. All are bytes.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Prr {
    /// In flight when the recovery began (RecoverFS).
    flight: u32,
    /// Arrived at the peer since.
    delivered: u32,
    /// Sent since.
    pub sent: u32,
}

impl Prr {
    /// A recovery begins with `flight` bytes in flight.
    pub fn new(flight: u32) -> Self {
        Self { flight, ..Self::default() }
    }

    /// The congestion window after an acknowledgment that says of `delivered` bytes more that they have arrived.
    /// `is_good`: it acknowledged data, and no further loss was found.
    pub fn window(
        &mut self,
        delivered: u32,
        pipe: u32,
        ssthresh: u32,
        mss: u32,
        is_good: bool,
    ) -> u32 {
        self.delivered = self.delivered.saturating_add(delivered);
        let mut more = if pipe > ssthresh {
            let share = u64::from(self.delivered) * u64::from(ssthresh);
            let share = share.div_ceil(u64::from(self.flight.max(1)));
            share.saturating_sub(self.sent.into()).min(u32::MAX.into()) as u32
        } else {
            let conserving = self.delivered.saturating_sub(self.sent).max(delivered);
            let growing = conserving + if is_good { mss } else { 0 };
            growing.min(ssthresh - pipe)
        };
        // What began the recovery is sent again at once.
        if self.sent == 0 {
            more = more.max(mss);
        }
        pipe + more
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const MSS: u32 = 1000;

    /// Twenty segments, the first lost: the RFC's first example. Half of them are in flight at the end, and one is sent for
    /// two that arrive.
    #[test]
    fn a_single_loss_halves_the_rate() {
        let (mut prr, ssthresh) = (Prr::new(20 * MSS), 10 * MSS);
        // Three have arrived, and the first is lost.
        let (mut pipe, mut sent, mut delivered) = (16 * MSS, Vec::new(), 3 * MSS);
        for _ in 0..17 {
            let window = prr.window(delivered, pipe, ssthresh, MSS, false);
            let segments = (window - pipe) / MSS;
            prr.sent += segments * MSS;
            pipe += segments * MSS;
            sent.push(segments);
            (pipe, delivered) = (pipe - MSS, MSS);
        }
        assert_eq!(sent.iter().sum::<u32>(), 10, "{sent:?}");
        // One for two, then one for one, as the flight is where it should be.
        assert!(sent[..13].windows(4).all(|four| four.iter().sum::<u32>() <= 3), "{sent:?}");
        assert_eq!(sent[14..], [1, 1, 1]);
        assert!((9 * MSS..=10 * MSS).contains(&pipe), "{pipe}");
    }

    /// Most of the flight is lost: for what arrives as much is sent, and one more where the loss is over.
    #[test]
    fn a_burst_of_losses_is_filled_as_in_slow_start() {
        let (mut prr, ssthresh) = (Prr::new(20 * MSS), 10 * MSS);
        let pipe = 4 * MSS;
        assert_eq!(prr.window(MSS, pipe, ssthresh, MSS, false), 5 * MSS);
        prr.sent += MSS;
        assert_eq!(prr.window(MSS, pipe, ssthresh, MSS, false), 5 * MSS, "packet for packet");
        prr.sent += MSS;
        assert_eq!(prr.window(MSS, pipe, ssthresh, MSS, true), 6 * MSS, "and one more");
        assert_eq!(prr.window(9 * MSS, pipe, ssthresh, MSS, true), ssthresh);
    }
}
