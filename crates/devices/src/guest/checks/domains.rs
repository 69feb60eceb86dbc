//! Domains and schedulers: each starts and serves.

use anyhow::bail;

use super::{expect_answers, passed};
use crate::guest::service::{Config, quoted};
use crate::guest::suite::Suite;
use crate::protocol::Outcome;

/// Connections that are enough to reach each thread.
const CONNECTIONS: usize = 16;

/// A service with this domain and scheduler serves, and ends in order.
pub fn serves(
    suite: &mut Suite<'_>,
    domain: &'static str,
    scheduler: &'static str,
) -> anyhow::Result<Outcome> {
    drop(suite.take_service());
    let threads = suite.threads();
    let (domain, scheduler) = (Some(domain), Some(scheduler));
    let config = Config { domain, scheduler, ..Config::with_threads(threads) };
    let service = suite.start(&config)?;
    expect_answers(CONNECTIONS)?;
    let ended = service.terminate();
    match ended.status {
        Some(status) if status.success() => passed(format!("{CONNECTIONS} connections")),
        status => bail!("ended with {status:?}: {}", quoted(&ended.output)),
    }
}
