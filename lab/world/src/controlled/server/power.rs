//! What the socket draws.
//!
//! A core that is granted draws f V(f)^2 in proportion, a little more with its second hyperthread, and a little
//! less where its threads poll in vain; a core that is not granted sleeps and draws nothing. Everything else of
//! the socket is one constant.

use serde::{Deserialize, Serialize};

use super::error::{ModelError, check};
use control::{Clock, Machine};

/// See the module's comment; the sources of the paper's numbers stand in `ix.toml`.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Power {
    /// Drawn whatever happens, in watts.
    pub static_watts: f64,
    /// A busy core's, in watts per gigahertz and square volt.
    pub core_watts_per_ghz_v2: f64,
    /// Volts at the lowest clock.
    pub volts_lowest: f64,
    /// Volts at the nominal clock.
    pub volts_nominal: f64,
    /// Volts in Turbo.
    pub volts_turbo: f64,
    /// What a second hyperthread draws more, as a share of its core.
    pub hyperthread_extra: f64,
    /// What a thread draws that polls in vain, over one that is busy.
    pub polling_share: f64,
    /// What Turbo draws more once the processor is hot, in watts.
    pub turbo_heat_watts: f64,
    /// How long that takes, as a time constant in seconds.
    pub turbo_heat_s: f64,
}

impl Power {
    /// Checks every number.
    ///
    /// # Errors
    /// The first that is negative, no number, or absurd.
    pub fn validate(&self) -> Result<(), ModelError> {
        let all = [
            ("static_watts", self.static_watts),
            ("core_watts_per_ghz_v2", self.core_watts_per_ghz_v2),
            ("volts_lowest", self.volts_lowest),
            ("volts_nominal", self.volts_nominal),
            ("volts_turbo", self.volts_turbo),
            ("hyperthread_extra", self.hyperthread_extra),
            ("polling_share", self.polling_share),
            ("turbo_heat_watts", self.turbo_heat_watts),
            ("turbo_heat_s", self.turbo_heat_s),
        ];
        all.into_iter().try_for_each(|(what, found)| check(what, found, 0.0, 1e4, "0 to 10000"))
    }

    fn volts(&self, machine: &Machine, clock: Clock) -> f64 {
        let ends = (machine.clocks_khz.first(), machine.clocks_khz.last());
        match (clock, ends) {
            (Clock::Turbo, _) => self.volts_turbo,
            (Clock::Khz(khz), (Some(&low), Some(&high))) if high > low => {
                let part = (f64::from(khz) - f64::from(low)) / f64::from(high - low);
                self.volts_lowest + part * (self.volts_nominal - self.volts_lowest)
            }
            (Clock::Khz(_) | Clock::Fixed, _) => self.volts_nominal,
        }
    }

    /// A granted core with one thread that is busy for the share `used` of the time, in watts.
    pub fn core_watts(&self, machine: &Machine, clock: Clock, ghz: f64, used: f64) -> f64 {
        let volts = self.volts(machine, clock);
        let busy = self.core_watts_per_ghz_v2 * ghz * volts * volts;
        busy * (self.polling_share + (1.0 - self.polling_share) * used)
    }

    /// A core's power with all of its hyperthreads, or one, over that with one.
    pub fn threads_factor(&self, hyperthreads: bool) -> f64 {
        if hyperthreads { 1.0 + self.hyperthread_extra } else { 1.0 }
    }
}
