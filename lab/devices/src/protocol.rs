//! What host and guest say to each other: one [`Task`] in the image, then [`Event`]s as JSON lines on the second serial
//! port.
//!
//! ```text
//! {"event":"booted","kernel":"6.12.0-amd64","uptime_s":3.1}
//! {"event":"check","name":"start","outcome":{"kind":"passed","text":"zero-copy"},"took_s":0.8}
//! {"event":"done"}
//! ```

use std::fmt;

use serde::{Deserialize, Serialize};

/// Where the image holds the task.
pub const TASK_FILE: &str = "/task.json";
/// Where the image holds the script of [`Work::Script`].
pub const SCRIPT_FILE: &str = "/script";
/// Where modules lie in the image; the list of them in the order of insertion.
pub const MODULES_DIRECTORY: &str = "/modules";
/// The link address of the dataplane's NIC.
pub const DATAPLANE_MAC: &str = "52:54:00:00:00:01";
/// The link address of the client's NIC.
pub const CLIENT_MAC: &str = "52:54:00:00:00:02";
/// How often the guest reports that it is alive, in seconds.
pub const HEARTBEAT_S: u64 = 2;

/// What the guest is to do.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Task {
    /// The driver of both NICs.
    pub driver: Driver,
    /// How frames should travel.
    pub expected: Mode,
    /// `network.mode` of the configuration; absent: the product's own choice.
    pub demanded: Option<Mode>,
    /// Whether systemd is the first process, and starts what follows as a unit.
    pub systemd: bool,
    /// What follows once both NICs are up.
    pub work: Work,
}

/// What the guest does once both NICs are up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Work {
    /// All checks; with less traffic where `short`.
    Suite {
        /// Whether it is the short form.
        short: bool,
        /// The names of the checks to run; empty: all.
        only: Vec<String>,
    },
    /// The script in the image.
    Script,
    /// A shell on the console.
    Shell,
}

/// The driver of a NIC.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::IntoStaticStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "snake_case")]
pub enum Driver {
    /// Intel 82576, emulated: native XDP; zero-copy since Linux 6.14.
    Igb,
    /// Intel 82574, emulated: no XDP of its own, one queue.
    E1000e,
    /// virtio-net with several queue pairs: native XDP; zero-copy since Linux 6.11 where the device uses the DMA API.
    VirtioNet,
    /// A veth pair: native XDP in copy mode.
    Veth,
}

impl Driver {
    /// The module's name.
    pub fn module(self) -> &'static str {
        self.into()
    }

    /// Queue pairs that the dataplane's NIC has here.
    pub fn queues(self) -> u32 {
        if self == Self::E1000e { 1 } else { 4 }
    }
}

/// How frames travel between a device and packet memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, strum::Display)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum Mode {
    /// The device reads and writes packet memory.
    ZeroCopy,
    /// Native XDP; the kernel copies.
    Copy,
    /// XDP on socket buffers; the kernel copies.
    Generic,
}

/// What a check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "text", rename_all = "kebab-case")]
pub enum Outcome {
    /// It holds; the text may give a value.
    Passed(String),
    /// It does not hold: expected and found.
    Failed(String),
    /// This driver, mode or kernel cannot do it, and why.
    NotPossible(String),
    /// A check that it depends on failed.
    NotTried(String),
}

impl Outcome {
    /// The outcome in a word.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Passed(_) => "passed",
            Self::Failed(_) => "FAILED",
            Self::NotPossible(_) => "not possible",
            Self::NotTried(_) => "not tried",
        }
    }

    /// Whether the product is at fault.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::Failed(_) | Self::NotTried(_))
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed(value) if value.is_empty() => f.write_str(self.word()),
            Self::Passed(text)
            | Self::Failed(text)
            | Self::NotPossible(text)
            | Self::NotTried(text) => write!(f, "{}: {text}", self.word()),
        }
    }
}

/// What the guest reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum Event {
    /// The kernel runs, and the guest's part of this program.
    Booted {
        /// Its release.
        kernel: String,
        /// Seconds since the kernel began.
        uptime_s: f64,
    },
    /// Both NICs are up.
    Rigged {
        /// Seconds since the kernel began.
        uptime_s: f64,
    },
    /// The guest is alive.
    Heartbeat,
    /// A check begins.
    Begins {
        /// Its name.
        name: String,
    },
    /// A check has ended.
    Check {
        /// Its name.
        name: String,
        /// What it found.
        outcome: Outcome,
        /// Seconds that it took.
        took_s: f64,
    },
    /// What a script printed.
    Output {
        /// One line, or what came before the end.
        text: String,
    },
    /// A script has ended.
    Exit {
        /// Its status; absent where a signal or the time limit ended it.
        status: Option<i32>,
    },
    /// The guest could not do what was asked.
    Broken {
        /// What, and why.
        reason: String,
    },
    /// The guest powers off.
    Done,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_is_one_line_and_comes_back() {
        let outcome = Outcome::Failed("expected a\nfound \"b\"".into());
        let event = Event::Check { name: "start".into(), outcome, took_s: 0.25 };
        let line = serde_json::to_string(&event).expect("serialises");
        assert!(!line.contains('\n'), "{line}");
        assert_eq!(serde_json::from_str::<Event>(&line).expect("parses"), event);
    }

    #[test]
    fn a_cell_is_never_blank() {
        let outcomes = [
            (Outcome::Passed(String::new()), "passed"),
            (Outcome::Passed("20 MB".into()), "passed: 20 MB"),
            (Outcome::Failed("x".into()), "FAILED: x"),
            (Outcome::NotPossible("y".into()), "not possible: y"),
            (Outcome::NotTried("it did not start".into()), "not tried: it did not start"),
        ];
        for (outcome, text) in outcomes {
            assert_eq!(outcome.to_string(), text);
        }
    }
}
