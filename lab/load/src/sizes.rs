//! Size distributions of keys and values, as a user writes them.
//!
//! ```
//! use load::SizeDistribution;
//! let sizes: SizeDistribution = "uniform:20:70".parse()?;
//! assert_eq!((sizes.min(), sizes.max()), (20, 70));
//! assert_eq!(sizes.at(0.0), 20);
//! # Ok::<(), load::ConfigError>(())
//! ```

use std::fmt;
use std::str::FromStr;

use crate::setting::{ConfigError, parse_number};

const ALLOWED: &str = "BYTES, uniform:MIN:MAX, pareto:SCALE:SHAPE:MIN:MAX, gev:LOCATION:SCALE:SHAPE:MIN:MAX \
     (MIN <= MAX, SCALE > 0, SHAPE > 0)";

/// How many bytes a key or a value has.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum SizeDistribution {
    /// Always this many bytes. Written `64`.
    Fixed(u32),
    /// Every size from `min` to `max` alike. Written `uniform:20:70`.
    Uniform {
        /// Smallest size, in bytes.
        min: u32,
        /// Greatest size, in bytes.
        max: u32,
    },
    /// Generalized Pareto with location zero, cut off at `min` and `max`: what Facebook's ETC
    /// values follow, with scale 214.476 and shape 0.348238 (Atikoglu et al., SIGMETRICS 2012,
    /// §5). Written `pareto:214.476:0.348238:1:1024`.
    Pareto {
        /// Scale, in bytes.
        scale: f64,
        /// Shape: the greater, the heavier the tail.
        shape: f64,
        /// Smallest size, in bytes.
        min: u32,
        /// Greatest size, in bytes.
        max: u32,
    },
    /// Generalized extreme value, cut off at `min` and `max`: what Facebook's ETC keys follow,
    /// with location 30.7984, scale 8.20449 and shape 0.078688 (Atikoglu et al., SIGMETRICS 2012,
    /// §5). Written `gev:30.7984:8.20449:0.078688:6:250`.
    Gev {
        /// Location, in bytes.
        location: f64,
        /// Scale, in bytes.
        scale: f64,
        /// Shape: the greater, the heavier the tail.
        shape: f64,
        /// Smallest size, in bytes.
        min: u32,
        /// Greatest size, in bytes.
        max: u32,
    },
}

impl SizeDistribution {
    /// Smallest size, in bytes.
    pub const fn min(&self) -> u32 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Uniform { min, .. } | Self::Pareto { min, .. } | Self::Gev { min, .. } => *min,
        }
    }

    /// Greatest size, in bytes.
    pub const fn max(&self) -> u32 {
        match self {
            Self::Fixed(bytes) => *bytes,
            Self::Uniform { max, .. } | Self::Pareto { max, .. } | Self::Gev { max, .. } => *max,
        }
    }

    /// The size at quantile `u`, 0 (included) to 1 (excluded).
    pub fn at(&self, u: f64) -> u32 {
        match *self {
            Self::Fixed(bytes) => bytes,
            Self::Uniform { min, max } => {
                let choices = f64::from(max - min) + 1.0;
                (min + (u * choices) as u32).min(max)
            }
            Self::Pareto { scale, shape, min, max } => {
                let size = scale * ((1.0 - u).powf(-shape) - 1.0) / shape;
                // The cast saturates, so that the tail's infinity becomes the cut-off.
                (size as u32).clamp(min, max)
            }
            Self::Gev { location, scale, shape, min, max } => {
                let size = location + scale * ((-u.ln()).powf(-shape) - 1.0) / shape;
                // As above; and what lies below zero becomes zero.
                (size as u32).clamp(min, max)
            }
        }
    }

    /// Checks the distribution for the setting `key`: sizes from `least` to `most` bytes.
    ///
    /// # Errors
    /// A size outside, an empty range, or a scale or shape that is not positive.
    pub fn validate(&self, key: &'static str, least: u32, most: u32) -> Result<(), ConfigError> {
        let in_order = self.min() <= self.max();
        let positive = match *self {
            // A NaN is not greater than zero.
            Self::Pareto { scale, shape, .. } => scale > 0.0 && shape > 0.0,
            Self::Gev { location, scale, shape, .. } => {
                location.is_finite() && scale > 0.0 && shape > 0.0
            }
            Self::Fixed(_) | Self::Uniform { .. } => true,
        };
        if !in_order || !positive {
            return Err(ConfigError::new(key, self, ALLOWED));
        }
        if self.min() < least || self.max() > most {
            let allowed = format_args!("sizes from {least} to {most} bytes").to_string();
            return Err(ConfigError::new(key, self, allowed));
        }
        Ok(())
    }
}

impl fmt::Display for SizeDistribution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Fixed(bytes) => write!(f, "{bytes}"),
            Self::Uniform { min, max } => write!(f, "uniform:{min}:{max}"),
            Self::Pareto { scale, shape, min, max } => {
                write!(f, "pareto:{scale}:{shape}:{min}:{max}")
            }
            Self::Gev { location, scale, shape, min, max } => {
                write!(f, "gev:{location}:{scale}:{shape}:{min}:{max}")
            }
        }
    }
}

impl FromStr for SizeDistribution {
    type Err = ConfigError;
    fn from_str(text: &str) -> Result<Self, ConfigError> {
        let number = |part: &str| parse_number::<u32>("size", text, part, ALLOWED);
        let real = |part: &str| parse_number::<f64>("size", text, part, ALLOWED);
        let parts: Vec<&str> = text.split(':').collect();
        match parts[..] {
            [bytes] | ["fixed", bytes] => Ok(Self::Fixed(number(bytes)?)),
            ["uniform", min, max] => Ok(Self::Uniform { min: number(min)?, max: number(max)? }),
            ["pareto", scale, shape, min, max] => Ok(Self::Pareto {
                scale: real(scale)?,
                shape: real(shape)?,
                min: number(min)?,
                max: number(max)?,
            }),
            ["gev", location, scale, shape, min, max] => Ok(Self::Gev {
                location: real(location)?,
                scale: real(scale)?,
                shape: real(shape)?,
                min: number(min)?,
                max: number(max)?,
            }),
            _ => Err(ConfigError::new("size", text, ALLOWED)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_written_is_what_is_read() {
        for text in
            ["64", "uniform:20:70", "pareto:214.476:0.348238:1:1024", "gev:30.8:8.2:0.08:6:250"]
        {
            let sizes: SizeDistribution = text.parse().expect(text);
            assert_eq!(sizes.to_string(), text);
            sizes.validate("value_size", 1, 1_024).expect(text);
        }
        assert_eq!("fixed:8".parse(), Ok(SizeDistribution::Fixed(8)));
    }

    #[test]
    fn nonsense_is_refused_with_what_is_allowed() {
        for text in ["", "x", "-1", "uniform:1", "uniform:1:2:3", "pareto:1:1:1", "a:b:c:d:e:f"] {
            let error = text.parse::<SizeDistribution>().expect_err(text);
            assert_eq!(error.value, text);
            assert_eq!(error.allowed, ALLOWED);
        }
        for text in [
            "uniform:9:3",
            "pareto:0:1:1:2",
            "pareto:NaN:1:1:2",
            "pareto:1:-1:1:2",
            "gev:1:0:1:1:2",
            "gev:NaN:1:1:1:2",
        ] {
            let sizes: SizeDistribution = text.parse().expect(text);
            assert!(sizes.validate("value_size", 1, 100).is_err(), "{text}");
        }
        let error = SizeDistribution::Fixed(2_000_000)
            .validate("value_size", 1, 1_000_000)
            .expect_err("too large");
        assert_eq!(
            error.to_string(),
            "`value_size` is `2000000`; allowed: sizes from 1 to 1000000 bytes"
        );
    }

    #[test]
    fn the_pareto_median_is_the_closed_form() {
        let sizes: SizeDistribution = "pareto:214.476:0.348238:1:100000".parse().expect("pareto");
        // scale * (2^shape - 1) / shape
        let median = 214.476 * (2f64.powf(0.348_238) - 1.0) / 0.348_238;
        assert_eq!(sizes.at(0.5), median as u32);
    }

    /// Mean and standard deviation of evenly spread draws, and the quartiles.
    fn moments(sizes: &SizeDistribution) -> (f64, f64, [u32; 3]) {
        const DRAWS: u32 = 1_000_000;
        let unit = |draw: u32| (f64::from(draw) + 0.5) / f64::from(DRAWS);
        let all = || (0..DRAWS).map(|draw| f64::from(sizes.at(unit(draw))));
        let mean = all().sum::<f64>() / f64::from(DRAWS);
        let variance = all().map(|size| (size - mean).powi(2)).sum::<f64>() / f64::from(DRAWS);
        (mean, variance.sqrt(), [sizes.at(0.25), sizes.at(0.5), sizes.at(0.75)])
    }

    /// Facebook's ETC pool, as published: closed forms of both distributions. Whole bytes cut half
    /// a byte off on average.
    #[test]
    fn facebooks_keys_and_values_have_the_published_moments() {
        let (location, scale, k) = (30.798_4, 8.204_49, 0.078_688);
        let keys: SizeDistribution = "gev:30.7984:8.20449:0.078688:1:250".parse().expect("gev");
        let (mean, deviation, quartiles) = moments(&keys);
        // g1 = Gamma(1 - k) = 1.052027, g2 = Gamma(1 - 2k) = 1.119588.
        let (g1, g2): (f64, f64) = (1.052_027, 1.119_588);
        let expected = location + scale * (g1 - 1.0) / k - 0.5;
        assert!((mean / expected - 1.0).abs() < 0.005, "{mean} of {expected}");
        let expected = scale * (g2 - g1 * g1).sqrt() / k;
        assert!((deviation / expected - 1.0).abs() < 0.02, "{deviation} of {expected}");
        let quantile = |u: f64| location + scale * ((-u.ln()).powf(-k) - 1.0) / k;
        assert_eq!(quartiles, [0.25, 0.5, 0.75].map(|u| quantile(u) as u32));

        let (scale, k) = (214.476, 0.348_238);
        let values: SizeDistribution = "pareto:214.476:0.348238:1:1000000".parse().expect("pareto");
        let (mean, _, quartiles) = moments(&values);
        let expected = scale / (1.0 - k) - 0.5;
        assert!((mean / expected - 1.0).abs() < 0.01, "{mean} of {expected}");
        let quantile = |u: f64| scale * ((1.0 - u).powf(-k) - 1.0) / k;
        assert_eq!(quartiles, [0.25, 0.5, 0.75].map(|u| quantile(u) as u32));
    }

    proptest! {
        #[test]
        fn sizes_stay_in_their_bounds(u in 0.0..1.0f64, min in 1u32..500, more in 0u32..500) {
            let max = min + more;
            let pareto = SizeDistribution::Pareto { scale: 214.0, shape: 0.35, min, max };
            let (location, scale, shape) = (30.8, 8.2, 0.08);
            let gev = SizeDistribution::Gev { location, scale, shape, min, max };
            for sizes in [SizeDistribution::Uniform { min, max }, pareto, gev] {
                prop_assert!((min..=max).contains(&sizes.at(u)));
            }
        }
    }
}
