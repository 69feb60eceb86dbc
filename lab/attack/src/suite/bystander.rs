//! A second dataplane on the same machine, with its own application: each of its requests is checked, and timed in
//! short windows, before, between and during the attacks on the first.

use std::time::Duration;

use world::rig::{RawEcho, Rig, RigConfig};

use super::requests::{Requests, Window};

/// A request that takes longer is slow: some fifty times the usual. Neighbours of the machine stall a thread so, and an
/// attack may: hence such a window counts like any other, and the suite compares how many there are of either kind.
const SLOW: Duration = Duration::from_micros(50);

/// Before each window: what ran here meanwhile is not what is measured.
const WARM: u32 = 20;

/// See the module's comment.
pub struct Bystander {
    rig: Rig<RawEcho>,
    /// What was asked so far.
    pub requests: Requests,
}

impl Bystander {
    /// Both of its sides, connected.
    ///
    /// # Errors
    /// They do not connect.
    pub fn new() -> anyhow::Result<Self> {
        let config = RigConfig { connections: 1, chunks: 512, ..RigConfig::default() };
        let rig = Rig::open(config, RawEcho::default())?;
        Ok(Self { rig, requests: Requests::new(SLOW) })
    }

    /// Asks for so long, one request after the other.
    pub fn window(&mut self, length: Duration) -> Window {
        let Self { rig, requests } = self;
        requests.window(length, WARM, |bytes| {
            rig.caller.set_request(bytes, bytes);
            rig.exchange_all().is_ok()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_answer_is_the_loss_of_one_request() {
        let mut bystander = Bystander::new().expect("both connect");
        bystander.rig.caller.set_request(b"asked", b"wrong");
        assert!(bystander.rig.exchange_all().is_err());
        bystander.window(Duration::from_millis(2));
        assert!(bystander.requests.asked > u64::from(WARM));
        assert_eq!(bystander.requests.lost, 0);
    }
}
