//! Domains and schedulers: each starts and serves.

use anyhow::{Context, bail};

use super::{expect_answers, passed};
use crate::guest::service::{CHUNKS, Config, START_LIMIT, Service, quoted};
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
    // What the schedulers that share keep for each core, the product's own choice has room for.
    let config = Config { domain, scheduler, chunks: None, ..Config::with_threads(threads) };
    let service = suite.start(&config)?;
    expect_answers(CONNECTIONS)?;
    let ended = service.terminate();
    match ended.status {
        Some(status) if status.success() => passed(format!("{CONNECTIONS} connections")),
        _ => bail!("it {}: {}", ended.how(), quoted(&ended.output)),
    }
}

/// A scheduler that shares, with few chunks: it serves, or the start is refused for that reason.
pub fn small_memory(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    drop(suite.take_service());
    let (scheduler, threads) = (Some("work-conserving"), suite.threads());
    let config = Config { scheduler, ..Config::with_threads(threads) };
    let service = match Service::start(suite.task, &config) {
        Ok(service) => service,
        Err(error) if format!("{error:#}").contains("chunks") => {
            return passed(format!("refused: {error:#}"));
        }
        Err(error) => return Err(error),
    };
    if !suite.wait_for_answer() {
        bail!("announced, and answers no ping within {} s", START_LIMIT.as_secs());
    }
    expect_answers(CONNECTIONS).with_context(|| {
        format!("work-conserving, {threads} threads, {CHUNKS} chunks: neither refused nor served")
    })?;
    drop(service);
    passed(format!("{CONNECTIONS} connections"))
}
