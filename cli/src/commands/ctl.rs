//! `tailplane ctl`: elastic threads and flow groups of a running service, by hand.
//!
//! ```text
//! tailplane ctl kv move 1 0 all    all flow groups of thread 1 to thread 0
//! tailplane ctl kv park 1          its processor is for others now
//! tailplane ctl kv grant 1
//! tailplane ctl kv move 0 1 64-127
//! tailplane ctl kv place 1 3       on processor 3
//! tailplane ctl kv end
//! ```

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context, bail};
use control::sysfs::parse_cpus;
use endpoint::{ClientError, Done, Request};

use service::watch::Service;

/// Arguments of `tailplane ctl`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "A daemon that has a policy for the service undoes what is not its own doing: suspend the \
policy first. Only root and the user that the service runs as may control it."
)]
pub struct Args {
    /// A service's name (`tailplane status` lists them), or its control socket's path.
    #[arg(value_name = "NAME")]
    pub name: String,
    /// What to do.
    #[command(subcommand)]
    pub action: Action,
    /// How long to wait for it, in seconds.
    #[arg(long, value_name = "N", default_value_t = 10, global = true, value_parser = clap::value_parser!(u64).range(1..=3_600))]
    pub timeout_s: u64,
}

/// What can be done.
#[derive(Debug, Clone, PartialEq, Eq, clap::Subcommand)]
pub enum Action {
    /// Have an elastic thread serve: it polls as `dataplane.spin_us` says.
    Grant {
        /// Its number.
        thread: u16,
    },
    /// Have a thread without flow groups leave its processor to others: it sleeps whenever it can, and takes no work
    /// of other threads.
    Park {
        /// Its number.
        thread: u16,
    },
    /// Have a thread run on another processor.
    Place {
        /// Its number.
        thread: u16,
        /// The processor's number.
        cpu: usize,
    },
    /// Move flow groups, with all their connections, from their home to another thread: all that are named, or none.
    Move {
        /// Their home.
        from: u16,
        /// Their home from then on.
        to: u16,
        /// Which: `all` of that home, `half` of them, or numbers as in `0-15,20`.
        #[arg(value_name = "GROUPS", default_value = "all")]
        groups: String,
    },
    /// Have the service end, as a SIGTERM does: connections are reset, and its processes end.
    End,
}

/// Runs `tailplane ctl`.
///
/// # Errors
/// The service cannot be reached, refuses, or does not answer.
pub fn run(args: &Args) -> anyhow::Result<ExitCode> {
    let mut service = Service::named(&args.name)?;
    let request = request(&args.action, &service.reading.homes())?;
    let id = service.client.ask(request)?;
    let done = service.client.wait(id, Duration::from_secs(args.timeout_s));
    println!("{}", told(&args.action, done)?);
    Ok(ExitCode::SUCCESS)
}

/// The request that an action is, where flow groups have these homes.
fn request(action: &Action, homes: &[Option<u16>]) -> anyhow::Result<Request> {
    Ok(match *action {
        Action::Grant { thread } => Request::Grant { thread },
        Action::Park { thread } => Request::Park { thread },
        Action::Place { thread, cpu } => Request::Place { thread, cpu },
        Action::Move { from, to, ref groups } => {
            Request::Move { from, to, groups: chosen(groups, from, homes)? }
        }
        Action::End => Request::End,
    })
}

/// The flow groups that a choice names.
fn chosen(choice: &str, from: u16, homes: &[Option<u16>]) -> anyhow::Result<Vec<u16>> {
    let at_home: Vec<u16> = homes
        .iter()
        .enumerate()
        .filter(|(_, home)| **home == Some(from))
        .map(|(group, _)| group as u16)
        .collect();
    let chosen = match choice {
        "all" => at_home,
        "half" => at_home.into_iter().step_by(2).collect(),
        numbers => return numbered(numbers, homes.len()),
    };
    match chosen.is_empty() {
        true => bail!("thread {from} is home to no flow group (`tailplane status` shows homes)"),
        false => Ok(chosen),
    }
}

/// `0-15,20`
fn numbered(text: &str, count: usize) -> anyhow::Result<Vec<u16>> {
    let is_whole =
        text.split(',').map(str::trim).all(|part| !part.is_empty() && !part.contains(' '));
    let fits = |all: &Vec<u32>| is_whole && all.iter().all(|&group| (group as usize) < count);
    let all = parse_cpus(text).filter(fits).with_context(|| {
        format!(
            "'{text}' names no flow groups; allowed: all, half, or numbers from 0 to {} as in 0-15,20",
            count.saturating_sub(1)
        )
    })?;
    Ok(all.into_iter().map(|group| group as u16).collect())
}

/// What became of it, in words.
fn told(action: &Action, done: Result<Done, ClientError>) -> anyhow::Result<String> {
    let done = done.with_context(|| match action {
        Action::Grant { thread } => format!("thread {thread} was not granted"),
        Action::Park { thread } => format!("thread {thread} was not parked"),
        Action::Place { thread, cpu } => format!("thread {thread} was not placed on {cpu}"),
        Action::Move { from, to, .. } => format!("nothing was moved from thread {from} to {to}"),
        Action::End => "the service was not asked to end".to_owned(),
    })?;
    Ok(match (done, action) {
        (Done::Moved(moved), _) => {
            let [prepare, wait, rpc, deferred] = moved.phase_ns.map(|ns| ns as f64 / 1e3);
            format!(
                "{} flow groups with {} connections moved in {:.0} us (prepare {prepare:.0}, wait {wait:.0}, rpc \
                 {rpc:.0}, deferred {deferred:.0}), {} packets deferred",
                moved.groups,
                moved.connections,
                prepare + wait + rpc + deferred,
                moved.packets_deferred,
            )
        }
        (Done::Granted, Action::Grant { thread }) => format!("thread {thread} is granted"),
        (Done::Parked, Action::Park { thread }) => format!("thread {thread} is parked"),
        (Done::Placed, Action::Place { thread, cpu }) => {
            format!("thread {thread} runs on processor {cpu}")
        }
        (Done::Ending, Action::End) => "the service is ending".to_owned(),
        (other, _) => bail!("the service answered something else: {other:?}"),
    })
}

#[cfg(test)]
mod tests {
    use endpoint::{MoveSummary, Refused, RefusedKind};

    use super::*;

    #[test]
    fn flow_groups_are_chosen_by_home_or_number() {
        let homes: Vec<Option<u16>> = (0..8).map(|group| Some(group / 4)).collect();
        let of = |choice: &str, from| chosen(choice, from, &homes).expect("is fine");
        assert_eq!((of("all", 1), of("half", 0)), (vec![4, 5, 6, 7], vec![0, 2]));
        assert_eq!((of("0-2,7", 0), of("3, 1-3", 0)), (vec![0, 1, 2, 7], vec![1, 2, 3]));
        for wrong in ["", " ", "x", "8", "3-1", "0-8", "1,,2", "1, ,2", "0-3 4", "-1"] {
            let error = chosen(wrong, 0, &homes).expect_err(wrong).to_string();
            assert!(error.contains("from 0 to 7"), "{error}");
        }
        let error = chosen("all", 5, &homes).expect_err("nothing is there").to_string();
        assert!(error.contains("thread 5 is home to no flow group"), "{error}");
    }

    #[test]
    fn what_became_of_it_is_told_in_words() {
        let action = Action::Move { from: 0, to: 1, groups: "all".into() };
        let summary = MoveSummary {
            groups: 64,
            connections: 1_000,
            packets_deferred: 3,
            phase_ns: [1_000, 900_000, 20_000, 4_000],
        };
        let text = told(&action, Ok(Done::Moved(summary))).expect("done");
        assert!(text.starts_with("64 flow groups with 1000 connections moved in 925 us"), "{text}");
        let park = Action::Park { thread: 1 };
        assert_eq!(told(&park, Ok(Done::Parked)).expect("done"), "thread 1 is parked");
        let refused = Refused::new(RefusedKind::HasGroups, "it has 64: move them away first");
        let error = format!("{:#}", told(&park, Err(refused.into())).expect_err("refused"));
        assert_eq!(error, "thread 1 was not parked: it has 64: move them away first");
        assert!(told(&park, Ok(Done::Granted)).is_err());
    }
}
