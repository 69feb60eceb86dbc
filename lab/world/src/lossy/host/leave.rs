//! A host that leaves in the middle of whatever it does, and what must hold then: all packet memory is back.

use clock::{Duration, Instant};
use dataplane::Left;

use super::Host;
use crate::dice::Dice;
use crate::lossy::watch::ensure;

/// Most cycles for which a core withdraws, and for which others go on before the next one does.
const CYCLES: u64 = 8;
/// Time between them.
const STEP: Duration = Duration::from_micros(5);

impl Host {
    /// The cores leave one after the other, in the order that `dice` says, whether or not they have told all
    /// their peers; those that are left go on meanwhile.
    ///
    /// # Errors
    /// What did not come back, in words.
    pub fn leave(mut self, mut now: Instant, dice: &mut Dice) -> Result<Left, String> {
        let mut left = Left::default();
        while !self.cores.is_empty() {
            let first = dice.below(self.cores.len() as u64) as usize;
            let mut core = self.cores.swap_remove(first);
            for _ in 0..dice.below(CYCLES) {
                now += STEP;
                if !core.thread.withdraw(now) {
                    break;
                }
            }
            left += core.thread.leave();
            for _ in 0..dice.below(CYCLES) {
                now += STEP;
                self.cores.iter_mut().for_each(|core| core.run(now, self.config.cycle));
            }
        }
        let (name, chunks) = (self.config.stack.address(), self.region.chunks() as usize);
        let missing = chunks - self.region.depot_len();
        let is_whole = missing == 0 && left.memory.lost == 0;
        let what = || format!("{name} has left, and lacks {missing} of {chunks} chunks: {left:?}");
        ensure(is_whole, what).map(|()| left)
    }
}
