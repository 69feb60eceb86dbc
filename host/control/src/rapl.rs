//! What the processor draws, as it tells itself (RAPL), through the kernel's powercap: IX §5.1 measures its server in
//! the same way.
//!
//! ```no_run
//! use control::rapl::Rapl;
//! use std::path::Path;
//! let rapl = Rapl::open(Path::new("/sys"), &[0])?; // socket 0, or what is missing
//! let before = rapl.read()?;
//! // ... what is to be measured ...
//! let watts = rapl.watts_since(&before)?;
//! # Ok::<(), control::actuator::ActuatorError>(())
//! ```
//!
//! A socket's number is that of all of its cores, busy or idle, whoever keeps them busy. Nothing is ever written.

use std::path::{Path, PathBuf};
use std::time::Instant;

use crate::actuator::{ActuatorError, Missing};
use crate::sysfs::{FileError, malformed, read};

/// Where the kernel shows them; each socket is `intel-rapl:N` also on AMD's processors.
const CLASS: &str = "class/powercap";
const PREFIX: &str = "intel-rapl:";
const ENERGY: &str = "energy_uj";
const RANGE: &str = "max_energy_range_uj";
/// What a socket's zone is called: `package-0`, `package-1-die-0`.
const SOCKET: &str = "package-";

/// The counters of some sockets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rapl {
    zones: Vec<Zone>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Zone {
    energy: PathBuf,
    /// The counter begins anew after this.
    range_uj: u64,
}

/// What all counters said at a moment.
#[derive(Debug, Clone)]
pub struct Reading {
    at: Instant,
    energy_uj: Vec<u64>,
}

impl Rapl {
    /// The counters of these sockets under `sys`, which is `/sys` but in tests.
    ///
    /// # Errors
    /// There is none for one of the sockets, or it may not be read (only root may, since 2020).
    pub fn open(sys: &Path, sockets: &[u32]) -> Result<Self, ActuatorError> {
        let class = sys.join(CLASS);
        let mut found: Vec<(u32, Zone)> = Vec::new();
        for entry in std::fs::read_dir(&class).into_iter().flatten().flatten() {
            let name = entry.file_name();
            // `intel-rapl:0:1` is a part of `intel-rapl:0`.
            let number = name.to_str().and_then(|name| name.strip_prefix(PREFIX));
            if number.is_none_or(|number| number.contains(':')) {
                continue;
            }
            let directory = entry.path();
            let Some(socket) = socket_of(&directory)? else { continue };
            if sockets.contains(&socket) {
                let range_uj = read_u64(&directory.join(RANGE))?;
                found.push((socket, Zone { energy: directory.join(ENERGY), range_uj }));
            }
        }
        let has = |socket: &u32| found.iter().any(|(of, _)| of == socket);
        if sockets.is_empty() || !sockets.iter().all(has) {
            return Err(Missing {
                what: "power counter of each socket (RAPL)",
                looked_at: vec![class.join("intel-rapl:*/energy_uj")],
                costs: "throughput can be measured, power cannot",
            }
            .into());
        }
        let rapl = Self { zones: found.into_iter().map(|(_, zone)| zone).collect() };
        rapl.read()?;
        Ok(rapl)
    }

    /// Now.
    ///
    /// # Errors
    /// A counter may not be read.
    pub fn read(&self) -> Result<Reading, FileError> {
        let energy_uj =
            self.zones.iter().map(|zone| read_u64(&zone.energy)).collect::<Result<_, _>>()?;
        Ok(Reading { at: Instant::now(), energy_uj })
    }

    /// The mean power of all sockets together since a reading, in watts. The counters must not have begun anew
    /// more than once since: they take a quarter of an hour and longer.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn watts_since(&self, before: &Reading) -> Result<f64, FileError> {
        let now = self.read()?;
        let seconds = now.at.duration_since(before.at).as_secs_f64().max(1e-9);
        let pairs = before.energy_uj.iter().zip(&now.energy_uj).zip(&self.zones);
        let spent = pairs.map(|((&before, &now), zone)| spent_uj(before, now, zone.range_uj));
        Ok(spent.sum::<u64>() as f64 / 1e6 / seconds)
    }
}

fn spent_uj(before: u64, now: u64, range_uj: u64) -> u64 {
    now.checked_sub(before).unwrap_or_else(|| range_uj.saturating_sub(before).saturating_add(now))
}

/// Which socket a zone is; none where it is something else (`psys`, the whole machine).
fn socket_of(directory: &Path) -> Result<Option<u32>, FileError> {
    let name = read(&directory.join("name"), "what draws the power")?;
    let Some(number) = name.strip_prefix(SOCKET) else { return Ok(None) };
    Ok(number.split('-').next().and_then(|number| number.parse().ok()))
}

fn read_u64(path: &Path) -> Result<u64, FileError> {
    let text = read(path, "a counter of microjoules")?;
    text.parse().map_err(|_| malformed(path, &text, "a number of microjoules was expected"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sysfs::fake::Root;

    fn zone(root: &Root, directory: &str, name: &str, energy: &str) {
        root.put(&format!("{CLASS}/{directory}/name"), name);
        root.put(&format!("{CLASS}/{directory}/{ENERGY}"), energy);
        root.put(&format!("{CLASS}/{directory}/{RANGE}"), "1000000");
    }

    #[test]
    fn only_the_sockets_that_are_asked_for_count() {
        let root = Root::new(&[]);
        zone(&root, "intel-rapl:0", "package-0", "100");
        zone(&root, "intel-rapl:1", "package-1-die-0", "2000");
        zone(&root, "intel-rapl:2", "psys", "30000");
        zone(&root, "intel-rapl:0:0", "core", "400000");
        let read = |sockets: &[u32]| {
            let rapl = Rapl::open(root.path(), sockets).expect("they are there");
            let mut found = rapl.read().expect("readable").energy_uj;
            found.sort_unstable();
            found
        };
        assert_eq!(
            (read(&[0]), read(&[1]), read(&[0, 1])),
            (vec![100], vec![2000], vec![100, 2000])
        );
    }

    #[test]
    fn power_is_energy_over_time_also_where_a_counter_begins_anew() {
        assert_eq!((spent_uj(5, 9, 100), spent_uj(95, 3, 100), spent_uj(200, 3, 100)), (4, 8, 3));
        let root = Root::new(&[]);
        zone(&root, "intel-rapl:0", "package-0", "999000");
        let rapl = Rapl::open(root.path(), &[0]).expect("it is there");
        let before = rapl.read().expect("readable");
        root.put(&format!("{CLASS}/intel-rapl:0/{ENERGY}"), "4000");
        std::thread::sleep(std::time::Duration::from_millis(2));
        let watts = rapl.watts_since(&before).expect("readable");
        // 5 mJ in at least 2 ms.
        assert!(watts > 0.0 && watts <= 2.5, "{watts}");
    }

    #[test]
    fn what_is_missing_or_no_number_is_said() {
        let root = Root::new(&[]);
        let error = |sockets: &[u32]| Rapl::open(root.path(), sockets).unwrap_err().to_string();
        assert!(
            error(&[0]).contains("RAPL") && error(&[0]).contains("energy_uj"),
            "{}",
            error(&[0])
        );
        zone(&root, "intel-rapl:0", "package-0", "many");
        assert!(error(&[0, 1]).contains("each socket"), "{}", error(&[0, 1]));
        assert!(error(&[0]).contains("microjoules was expected"), "{}", error(&[0]));
    }
}
