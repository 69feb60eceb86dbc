//! Values of the configuration: names that are chosen among, users, and ranges of numbers.

use anyhow::bail;
use runtime::{ServicePolicy, WhileAway};
use serde::{Deserialize, Serialize};

/// The built-in services.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum App {
    /// None of them: a program that the command line names.
    #[default]
    Program,
    /// Sends back what comes, over TCP and UDP.
    Echo,
    /// The memcached protocol.
    Kv,
    /// Spins for as long as each request asks: ZygOS's synthetic service.
    Spin,
    /// Answers each request of the same protocol after the time that it asks for, however many there are: to try load
    /// generators against.
    Delay,
    /// Answers sockperf's clients, over TCP and UDP.
    Sockperf,
}

/// `dataplane.scheduler`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, strum::AsRefStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum SchedulerName {
    /// The connection's home core, all that came at once (IX): best for short requests that are alike.
    RunToCompletion,
    /// Any core that has nothing else to do (ZygOS): best for requests of different lengths.
    WorkConserving,
    /// Any core, the class of connections that is next by `dataplane.policy` first (HyperPlane): for
    /// priorities and many tenants.
    ReadySet,
}

/// `application.stdin`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum InputName {
    /// Nothing.
    #[default]
    Null,
    /// The starter's: with a terminal, what is typed there.
    Inherit,
}

/// `dataplane.domain`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DomainName {
    /// The application is another process, which can only hurt itself.
    #[default]
    Process,
    /// The application is linked into the dataplane, and trusted.
    Inline,
}

/// `dataplane.placement`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, strum::AsRefStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum PlacementName {
    /// Of the two below, whichever suits what others use of the processors, also when that changes.
    #[default]
    Auto,
    /// The application's threads run on other processors than the elastic threads.
    Split,
    /// Each runs on its elastic thread's processor, which is the thread's whenever that has something to do.
    SameCore,
}

impl From<PlacementName> for process::Placement {
    fn from(name: PlacementName) -> Self {
        match name {
            PlacementName::Split => Self::Split,
            // Until it is known what others use.
            PlacementName::SameCore | PlacementName::Auto => Self::SameCore,
        }
    }
}

/// `dataplane.policy`
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, strum::AsRefStr)]
#[serde(rename_all = "kebab-case")]
#[strum(serialize_all = "kebab-case")]
pub enum PolicyName {
    /// One turn of each class after the other.
    RoundRobin,
    /// As many turns of a class in a row as `dataplane.weights` says.
    Weighted,
    /// Always the most urgent class that has something.
    StrictPriority,
}

/// `dataplane.while_away`
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum AwayName {
    /// It waits.
    Wait,
    /// A thread that has nothing to do runs it.
    #[default]
    Borrow,
    /// Such a thread interrupts the application: takes `dataplane.realtime`.
    Kick,
}

impl From<AwayName> for WhileAway {
    fn from(name: AwayName) -> Self {
        match name {
            AwayName::Wait => Self::Wait,
            AwayName::Borrow => Self::Borrow,
            AwayName::Kick => Self::Kick,
        }
    }
}

impl From<PolicyName> for ServicePolicy {
    fn from(name: PolicyName) -> Self {
        match name {
            PolicyName::RoundRobin => Self::RoundRobin,
            PolicyName::Weighted => Self::WeightedRoundRobin,
            PolicyName::StrictPriority => Self::StrictPriority,
        }
    }
}

/// An algorithm of congestion control, as it is written.
#[derive(Deserialize)]
#[serde(remote = "runtime::CongestionAlgorithm", rename_all = "lowercase")]
pub enum CongestionName {
    /// RFC 5681.
    NewReno,
    /// RFC 9438.
    Cubic,
    /// RFC 8257.
    Dctcp,
}

/// Whether routers may mark packets, as it is written.
#[derive(Deserialize)]
#[serde(remote = "runtime::Ecn", rename_all = "lowercase")]
pub enum EcnName {
    /// Never.
    Off,
    /// Where the peer asks for it.
    Accept,
    /// Asked for.
    Ask,
}

/// Whether packet memory lies in huge pages, as it is written.
#[derive(Deserialize)]
#[serde(remote = "mem::HugePages", rename_all = "lowercase")]
pub enum HugePagesName {
    /// If there are some.
    Try,
    /// Or the service does not start.
    Require,
    /// Not.
    No,
}

/// A user in the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase", expecting = "allowed: the number of a user, or \"inherit\"")]
pub enum UserName {
    /// The one that started the command.
    Inherit,
    /// By number.
    #[serde(untagged)]
    Number(u32),
}

impl UserName {
    /// Whether `section` names a group that has no user.
    ///
    /// # Errors
    /// The keys, and what is allowed.
    pub fn check_group(
        section: &str,
        user: Option<Self>,
        group: Option<u32>,
    ) -> anyhow::Result<()> {
        match user {
            None if group.is_some() => bail!(
                "`{section}.group` is given without `{section}.user`: give both, or the user alone"
            ),
            Some(Self::Inherit) if group.is_some() => bail!(
                "`{section}.group` is given, and `{section}.user` is \"inherit\", which inherits the groups too: \
                 give the user's number, or leave the group out"
            ),
            // No box is root: taking capabilities away leaves root's files.
            Some(Self::Number(0)) => {
                bail!("`{section}.user` is 0; allowed: 1 to {}, or \"inherit\"", u32::MAX - 1)
            }
            // The kernel takes it for "no change".
            Some(Self::Number(u32::MAX)) => bail!(
                "`{section}.user` is {}; allowed: 1 to {}, or \"inherit\"",
                u32::MAX,
                u32::MAX - 1
            ),
            _ => Ok(()),
        }
    }
}
