//! The kernel's congestion control in a lab, so that a comparison with the kernel is fair.
//!
//! A namespace may choose only among the algorithms that the *initial* namespace allows
//! (`net.ipv4.tcp_allowed_congestion_control`, one list for the machine). The first lab that needs
//! it widens the list and records the old one; the last such lab puts it back.

use std::fs;
use std::path::{Path, PathBuf};

use super::error::LabError;
use super::state::{StateDirectory, StateLock, file_error};

/// The directory of the kernel's TCP settings, of the calling thread's namespace.
const TCP_SETTINGS: &str = "/proc/sys/net/ipv4";
/// The name of the file that holds what to put back: the old list, then the widened one, a line each.
const RECORD: &str = "tcp_allowed_congestion_control";

/// The machine's list of allowed algorithms, and the record beside the labs'.
#[derive(Clone, Debug)]
pub struct AllowedList {
    settings: PathBuf,
    states: StateDirectory,
}

impl AllowedList {
    /// The kernel's list, recorded in `states`.
    pub fn of_the_kernel(states: StateDirectory) -> Self {
        Self { settings: PathBuf::from(TCP_SETTINGS), states }
    }

    fn allowed(&self) -> PathBuf {
        self.settings.join("tcp_allowed_congestion_control")
    }

    fn record(&self) -> PathBuf {
        self.states.file(RECORD)
    }

    /// Has the list contain `algorithm`. True where a lab widened it (this one or an earlier one):
    /// the caller then counts as one that relies on it. False where it needs no widening, or where
    /// it cannot be: the kernel lacks the algorithm, or this is not the initial namespace.
    ///
    /// # Errors
    /// [`LabError::Failed`] where the record cannot be written.
    pub fn claim(&self, _lock: &StateLock, algorithm: &str) -> Result<bool, LabError> {
        let before = fs::read_to_string(self.allowed()).unwrap_or_default();
        let before = before.trim();
        if contains(before, algorithm) {
            return Ok(self.record().exists());
        }
        let available = fs::read_to_string(self.settings.join("tcp_available_congestion_control"));
        if before.is_empty() || !contains(&available.unwrap_or_default(), algorithm) {
            return Ok(false);
        }
        let widened = format!("{before} {algorithm}");
        // The record first: a process killed in between leaves a record of a change that was not
        // made, which `release` recognises, instead of a change without a record.
        self.states.replace(&self.record(), &format!("{before}\n{widened}\n"))?;
        if fs::write(self.allowed(), &widened).is_err() {
            self.states.remove_file(&self.record())?;
            return Ok(false);
        }
        Ok(true)
    }

    /// Puts the old list back unless a recorded lab still relies on the widened one. A list that
    /// somebody else has changed meanwhile is left alone.
    ///
    /// # Errors
    /// [`LabError::Failed`] where the setting or the record cannot be written.
    pub fn release(&self, _lock: &StateLock) -> Result<(), LabError> {
        let path = self.record();
        let Ok(record) = fs::read_to_string(&path) else { return Ok(()) };
        if self.states.labs().iter().any(|lab| lab.claims_congestion_control) {
            return Ok(());
        }
        if let Some((before, widened)) = record.trim_end().split_once('\n')
            && let Ok(now) = fs::read_to_string(self.allowed())
            && same_set(&now, widened)
        {
            fs::write(self.allowed(), before).map_err(file_error("write", &self.allowed()))?;
        }
        self.states.remove_file(&path)
    }
}

/// The algorithm that new sockets of the calling thread's namespace use; empty where unreadable.
pub fn current() -> String {
    let path = Path::new(TCP_SETTINGS).join("tcp_congestion_control");
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

/// Sets the algorithm of the calling thread's namespace. Best effort: read [`current`] afterwards.
pub fn choose(algorithm: &str) {
    // Not allowed, or not there: the lab works all the same, and says what it got.
    let _ = fs::write(Path::new(TCP_SETTINGS).join("tcp_congestion_control"), algorithm);
}

fn contains(list: &str, word: &str) -> bool {
    list.split_whitespace().any(|other| other == word)
}

/// The kernel prints the list in an order of its own.
fn same_set(one: &str, other: &str) -> bool {
    one.split_whitespace().all(|word| contains(other, word))
        && other.split_whitespace().all(|word| contains(one, word))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::fixture_tests::TemporaryDirectory;
    use super::super::state::{LabState, StateDirectory};
    use super::*;

    struct Fixture {
        list: AllowedList,
        states: StateDirectory,
        directory: TemporaryDirectory,
    }

    impl Fixture {
        fn new(allowed: &str) -> Self {
            let directory = TemporaryDirectory::new();
            let states = StateDirectory::at(&directory.path);
            let list = AllowedList { settings: directory.path.clone(), states: states.clone() };
            fs::write(list.allowed(), format!("{allowed}\n")).unwrap();
            let available = directory.path.join("tcp_available_congestion_control");
            fs::write(available, "reno bbr cubic\n").unwrap();
            // The record would have the setting's name and place in this fixture: keep them apart.
            let states = StateDirectory::at(directory.path.join("states"));
            let list = AllowedList { states: states.clone(), ..list };
            Self { list, states, directory }
        }

        fn allowed(&self) -> String {
            fs::read_to_string(self.list.allowed()).unwrap().trim().to_owned()
        }

        fn lab(&self, lock: &StateLock, prefix: &str, claims_congestion_control: bool) {
            let prefix = prefix.to_owned();
            let lab = LabState { prefix, queues: 1, owner: None, claims_congestion_control };
            self.states.store(lock, &lab).unwrap();
        }
    }

    #[test]
    fn the_last_lab_that_relies_on_the_list_puts_it_back() {
        let fixture = Fixture::new("reno bbr");
        let lock = fixture.states.lock(Duration::ZERO).unwrap();
        for prefix in ["one", "two"] {
            assert!(fixture.list.claim(&lock, "cubic").unwrap());
            fixture.lab(&lock, prefix, true);
        }
        assert_eq!(fixture.allowed(), "reno bbr cubic");
        fixture.states.forget(&lock, "one").unwrap();
        fixture.list.release(&lock).unwrap();
        assert_eq!(fixture.allowed(), "reno bbr cubic", "lab two still relies on it");
        fixture.states.forget(&lock, "two").unwrap();
        fixture.list.release(&lock).unwrap();
        assert_eq!(fixture.allowed(), "reno bbr");
        assert!(!fixture.list.record().exists());
    }

    #[test]
    fn a_list_that_needs_no_widening_is_left_alone() {
        let fixture = Fixture::new("reno cubic");
        let lock = fixture.states.lock(Duration::ZERO).unwrap();
        assert!(!fixture.list.claim(&lock, "cubic").unwrap());
        fixture.list.release(&lock).unwrap();
        assert_eq!(fixture.allowed(), "reno cubic");
    }

    #[test]
    fn an_algorithm_that_the_kernel_lacks_is_not_claimed() {
        let fixture = Fixture::new("reno");
        let lock = fixture.states.lock(Duration::ZERO).unwrap();
        assert!(!fixture.list.claim(&lock, "vegas").unwrap());
        assert_eq!(fixture.allowed(), "reno");
        assert!(fixture.directory.path.exists());
    }

    #[test]
    fn a_change_by_somebody_else_is_not_undone() {
        let fixture = Fixture::new("reno bbr");
        let lock = fixture.states.lock(Duration::ZERO).unwrap();
        assert!(fixture.list.claim(&lock, "cubic").unwrap());
        fs::write(fixture.list.allowed(), "reno bbr cubic vegas").unwrap();
        fixture.list.release(&lock).unwrap();
        assert_eq!(fixture.allowed(), "reno bbr cubic vegas");
        assert!(!fixture.list.record().exists());
    }
}
