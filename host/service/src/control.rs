//! A running service's control socket: what is asked for there is carried out by the elastic threads.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use endpoint::{
    Answer, Ask, Description, Done, Door, Outcome, PROTOCOL_VERSION, Refused, RefusedKind, Request,
    Server, Steering,
};
use runtime::{Controls, FLOW_GROUPS};
use statseg::Segment;

use super::config::RunConfig;

/// A control socket, from before the service serves until it has ended.
#[derive(Debug)]
pub struct ControlSocket {
    door: Mutex<Option<Door>>,
    server: OnceLock<Server>,
    /// For people: where it is, or why there is none.
    pub told: String,
}

impl ControlSocket {
    /// Reserves the socket of a configuration's service.
    ///
    /// # Errors
    /// It cannot be had, and the configuration insists on it.
    pub fn open(config: &RunConfig) -> anyhow::Result<Self> {
        let none = |told: String| Self { door: Mutex::default(), server: OnceLock::new(), told };
        let Some(name) = config.control.service_name(&config.path) else {
            return Ok(none("none (`control.socket` is false)".into()));
        };
        match Door::open(&endpoint::run_dir(), &name) {
            Ok(door) => {
                let told = format!("{} (`tailplane status {name}`)", door.path().display());
                Ok(Self { door: Mutex::new(Some(door)), ..none(told) })
            }
            Err(error) if config.control.socket == Some(true) => {
                Err(error).context("`control.socket` is true")
            }
            Err(error) => Ok(none(format!("none: {error}"))),
        }
    }

    /// Serves it from now on, once, if there is one.
    ///
    /// # Errors
    /// No descriptors, no threads.
    pub fn serve(&self, steering: impl Steering) -> anyhow::Result<()> {
        let door = self.door.lock().unwrap_or_else(|broken| broken.into_inner()).take();
        if let Some(door) = door {
            _ = self.server.set(door.serve(steering)?);
        }
        Ok(())
    }
}

/// What a service of this configuration is.
pub fn describe(config: &RunConfig, driver: &str) -> Description {
    let plane = &config.dataplane;
    let began = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let path = std::path::absolute(&config.path).unwrap_or_else(|_| config.path.clone());
    Description {
        name: config.control.service_name(&config.path).unwrap_or_default(),
        pid: std::process::id(),
        started_unix_ms: began.as_millis() as u64,
        config_path: path.to_string_lossy().into_owned(),
        config_text: config.text.clone(),
        threads: plane.threads as u16,
        cpus: (0..plane.threads as usize).map(|at| plane.cpus.get(at).copied()).collect(),
        batch_max: plane.batch as u32,
        groups: FLOW_GROUPS as u16,
        scheduler: plane.describe_scheduler(),
        domain: plane.describe_domain(),
        driver: driver.to_owned(),
        steers: false,
        movable: plane.is_movable(),
        version: PROTOCOL_VERSION,
    }
}

/// Steers elastic threads of this process.
#[derive(Debug)]
pub struct Steered {
    /// What the service is.
    pub description: Description,
    /// What it shows.
    pub segment: Arc<Segment>,
    /// What its threads are steered by.
    pub controls: Arc<Controls>,
    /// Set where it is to end.
    pub stop: Arc<AtomicBool>,
}

impl Steering for Steered {
    fn describe(&self) -> Description {
        Description { steers: self.controls.steers(), ..self.description.clone() }
    }
    fn segment(&self) -> io::Result<OwnedFd> {
        self.segment.descriptor()
    }
    fn begin(&mut self, ask: Ask) -> Option<Outcome> {
        if ask.request == Request::End {
            self.controls.end(&self.stop);
            return Some(Ok(Done::Ending));
        }
        if self.stop.load(Ordering::Relaxed) {
            return Some(Err(Refused::new(RefusedKind::Leaving, "the service is ending")));
        }
        self.controls.begin(ask).err().map(Err)
    }
    fn reports(&mut self) -> Vec<Answer> {
        self.controls.reports()
    }
}
