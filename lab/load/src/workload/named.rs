//! The names under which a user asks for a workload.
//!
//! ```
//! use load::{SizeDistribution, WorkloadConfig};
//! let workload = WorkloadConfig::named("memcached:get=0.9,keys=1000,key=uniform:10:40,value=64")?;
//! let WorkloadConfig::Memcached { keys, value_size, .. } = workload else { panic!() };
//! assert_eq!((keys, value_size), (1_000, SizeDistribution::Fixed(64)));
//! assert!(WorkloadConfig::named("spin:exponential:10").is_ok());
//! # Ok::<(), load::ConfigError>(())
//! ```

use std::collections::HashSet;

use super::WorkloadConfig;
use crate::setting::{ConfigError, parse_number};

/// What can be asked for.
const ALLOWED: &str = "usr, etc, etc-facebook, memcached:get=SHARE,keys=N,key=SIZE,value=SIZE, \
                       echo:BYTES, spin:DIST:MEAN_US, spin:trace:FILE";
const MEMCACHED_ALLOWED: &str =
    "memcached: and any of get=SHARE (0 to 1), keys=N, key=SIZE, value=SIZE, each once";

impl WorkloadConfig {
    /// The workload that a user names: `usr`, `etc`, `etc-facebook`, `echo:BYTES`,
    /// `spin:DIST:MEAN_US` (as [`crate::ServiceTimes`] are written), or
    /// `memcached:get=SHARE,keys=N,key=SIZE,value=SIZE`, where what is not given is as in `usr`
    /// (sizes as [`crate::SizeDistribution`]s are written).
    ///
    /// # Errors
    /// Any other name, and settings that cannot be read. [`WorkloadConfig::validate`] checks their
    /// ranges.
    pub fn named(name: &str) -> Result<Self, ConfigError> {
        match name.split_once(':') {
            None => match name {
                "usr" => Ok(Self::usr()),
                "etc" => Ok(Self::etc()),
                "etc-facebook" => Ok(Self::etc_facebook()),
                _ => Err(ConfigError::new("workload", name, ALLOWED)),
            },
            Some(("echo", bytes)) => {
                Ok(Self::Echo { bytes: parse_number("workload", name, bytes, ALLOWED)? })
            }
            Some(("spin", times)) => Ok(Self::Spin { times: times.parse()? }),
            Some(("memcached", settings)) => memcached(name, settings),
            Some(_) => Err(ConfigError::new("workload", name, ALLOWED)),
        }
    }
}

/// `get=SHARE,keys=N,key=SIZE,value=SIZE`, in any order.
fn memcached(name: &str, settings: &str) -> Result<WorkloadConfig, ConfigError> {
    let error = || ConfigError::new("workload", name, MEMCACHED_ALLOWED);
    let mut workload = WorkloadConfig::usr();
    let WorkloadConfig::Memcached { get_share, keys, key_size, value_size } = &mut workload else {
        return Err(error());
    };
    let mut seen = HashSet::new();
    for setting in settings.split(',').filter(|setting| !setting.is_empty()) {
        let (key, value) = setting.split_once('=').ok_or_else(error)?;
        match key {
            "get" => *get_share = parse_number("get", value, value, "a share, 0 to 1")?,
            "keys" => *keys = parse_number("keys", value, value, "a whole number")?,
            "key" => *key_size = value.parse()?,
            "value" => *value_size = value.parse()?,
            _ => return Err(error()),
        }
        if !seen.insert(key) {
            return Err(error());
        }
    }
    Ok(workload)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ServiceTimes, SizeDistribution};

    #[test]
    fn names_are_what_they_say() {
        let named = |name: &str| WorkloadConfig::named(name).expect(name);
        assert_eq!(named("usr"), WorkloadConfig::usr());
        assert_eq!(named("etc"), WorkloadConfig::etc());
        assert_eq!(named("etc-facebook"), WorkloadConfig::etc_facebook());
        assert_eq!(named("echo:64"), WorkloadConfig::Echo { bytes: 64 });
        let times = ServiceTimes::Law { law: queueing::Law::Bimodal2, mean_us: 10.0 };
        assert_eq!(named("spin:bimodal-2:10"), WorkloadConfig::Spin { times });
        let times = ServiceTimes::Trace { file: "a/b".into() };
        assert_eq!(named("spin:trace:a/b"), WorkloadConfig::Spin { times });
        assert_eq!(named("memcached:"), WorkloadConfig::usr());
        assert_eq!(
            named("memcached:value=pareto:200:0.3:1:900,get=0.5,key=uniform:8:30,keys=77"),
            WorkloadConfig::Memcached {
                get_share: 0.5,
                keys: 77,
                key_size: SizeDistribution::Uniform { min: 8, max: 30 },
                value_size: SizeDistribution::Pareto { scale: 200.0, shape: 0.3, min: 1, max: 900 },
            }
        );
        for name in ["usr", "etc", "etc-facebook", "spin:fixed:3", "memcached:keys=5,key=2"] {
            named(name).validate().expect(name);
        }
    }

    #[test]
    fn what_cannot_be_read_is_said() {
        for (name, part) in [
            ("us", "allowed: usr, etc"),
            ("echo:", "`echo:`"),
            ("echo:x", "`echo:x`"),
            ("kv:1", "`kv:1`"),
            ("spin:10", "`service times` is `10`"),
            ("spin:normal:10", "exponential:MEAN_US"),
            ("memcached:get", "each once"),
            ("memcached:get=1,get=1", "each once"),
            ("memcached:size=1", "each once"),
            ("memcached:get=x", "`get` is `x`; allowed: a share, 0 to 1"),
            ("memcached:key=normal:1:2", "uniform:MIN:MAX"),
        ] {
            let error = WorkloadConfig::named(name).expect_err(name).to_string();
            assert!(error.contains(part), "{error}");
        }
        let bad = WorkloadConfig::named("memcached:get=1.5").expect("reads");
        assert_eq!(bad.validate().expect_err("a share").key, "get_share");
    }
}
