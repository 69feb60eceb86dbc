//! The loads of a sweep, as `--sweep` names them.

use std::str::FromStr;

use load::ConfigError;

/// Most loads of a sweep.
const STEPS_MAX: u32 = 1_000;

/// The loads of a sweep. Written `LOW:HIGH:STEPS`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sweep {
    /// The lowest, in requests per second.
    pub low_rps: f64,
    /// The highest.
    pub high_rps: f64,
    /// How many, both ends among them.
    pub steps: u32,
}

impl FromStr for Sweep {
    type Err = ConfigError;

    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let allowed = || {
            let allowed = "LOW:HIGH:STEPS, such as 10000:100000:10: loads of at least 1 request/s, \
                           HIGH above LOW, 2 to 1000 steps";
            ConfigError::new("sweep", text, allowed)
        };
        let [low, high, steps] = text.split(':').collect::<Vec<_>>()[..] else {
            return Err(allowed());
        };
        let number = |text: &str| text.parse::<f64>().ok().filter(|rps| rps.is_finite());
        let (Some(low_rps), Some(high_rps)) = (number(low), number(high)) else {
            return Err(allowed());
        };
        let steps = steps.parse().map_err(|_| allowed())?;
        let fits = low_rps >= 1.0 && high_rps > low_rps && (2..=STEPS_MAX).contains(&steps);
        if fits { Ok(Self { low_rps, high_rps, steps }) } else { Err(allowed()) }
    }
}

impl Sweep {
    /// The loads, in requests per second, equally far apart.
    pub fn loads(self) -> impl Iterator<Item = f64> {
        let step_rps = (self.high_rps - self.low_rps) / f64::from(self.steps - 1);
        (0..self.steps).map(move |step| self.low_rps + f64::from(step) * step_rps)
    }
}
