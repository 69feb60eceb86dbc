//! The generator of one thread as its transport sees it, whichever the load asks for.

use std::sync::Arc;

use crate::churn::{ChurnEngine, Dialer};
use crate::config::{LoadConfig, Mode};
use crate::course::{Phase, Poll};
use crate::engine::Engine;
use crate::measurement::Measurement;
use crate::setting::ConfigError;
use crate::workload::Workload;

/// Connections over which the keys are stored before a churn.
const PRELOAD_CONNECTIONS: u32 = 4;
/// Requests outstanding on each of these.
const PRELOAD_DEPTH: u32 = 16;

/// Which generator is at work.
#[derive(Debug)]
pub(crate) enum Generator {
    /// On connections that the transport opens before the load.
    Load(Engine),
    /// On connections that come and go.
    Churn(ChurnEngine),
}

impl Generator {
    /// The generator that `load` begins with, and the connections that it needs open. Connections that
    /// come and go cannot store the keys: a small generator does before a churn.
    pub fn first(load: &LoadConfig, workload: &Arc<Workload>) -> Result<(Self, u32), ConfigError> {
        let churns = matches!(load.mode, Mode::Churn { .. });
        let stores = load.preloads() && workload.keys() > 0;
        if churns && !stores {
            return Ok((Self::churn(load, workload)?, 0));
        }
        let preload = LoadConfig {
            mode: Mode::closed(PRELOAD_DEPTH),
            connections: PRELOAD_CONNECTIONS,
            series: false,
            hdr_log: None,
            ..load.clone()
        };
        let load = if churns { &preload } else { load };
        let engine = Engine::new(load, Arc::clone(workload))?;
        Ok((Self::Load(engine), load.connections_in_all()))
    }

    /// The generator of a churn whose keys are stored.
    pub fn churn(load: &LoadConfig, workload: &Arc<Workload>) -> Result<Self, ConfigError> {
        Ok(Self::Churn(ChurnEngine::new(load, Arc::clone(workload))?))
    }

    /// Starts the load at `at_ns`.
    pub fn start(&mut self, at_ns: u64) {
        match self {
            Self::Load(engine) => engine.start(at_ns),
            Self::Churn(engine) => engine.start(at_ns),
        }
    }

    /// Sends or opens what is due, and moves on through the phases.
    pub fn poll(&mut self, now_ns: u64, dialer: &mut impl Dialer) -> Poll {
        match self {
            Self::Load(engine) => engine.poll(now_ns, dialer),
            Self::Churn(engine) => engine.poll(now_ns, dialer),
        }
    }

    /// Bytes arrived on `connection`.
    pub fn on_received(
        &mut self,
        connection: u32,
        bytes: &[u8],
        now_ns: u64,
        dialer: &mut impl Dialer,
    ) {
        match self {
            Self::Load(engine) => engine.on_received(connection, bytes, now_ns, dialer),
            Self::Churn(engine) => engine.on_received(connection, bytes, now_ns, dialer),
        }
    }

    /// The transport has room for bytes of `connection` again.
    pub fn on_writable(&mut self, connection: u32, dialer: &mut impl Dialer) {
        match self {
            Self::Load(engine) => engine.on_writable(connection, dialer),
            Self::Churn(engine) => engine.on_writable(connection, dialer),
        }
    }

    /// `connection` broke; the transport has let go of it.
    pub fn on_lost(&mut self, connection: u32, now_ns: u64) {
        match self {
            Self::Load(engine) => engine.on_closed(connection),
            Self::Churn(engine) => engine.on_failed(connection, now_ns),
        }
    }

    /// Where the run stands.
    pub fn phase(&self) -> Phase {
        match self {
            Self::Load(engine) => engine.phase(),
            Self::Churn(engine) => engine.phase(),
        }
    }

    /// Ends the run and gives what was counted.
    pub fn finish(&mut self, now_ns: u64) -> Measurement {
        match self {
            Self::Load(engine) => engine.finish(now_ns),
            Self::Churn(engine) => engine.finish(now_ns),
        }
    }
}
