//! The client, at the second core: its elastic thread's loop and its service's spinning call it whenever
//! something is due. A thread of its own would cost that core a switch and a timer for each request, ten times
//! what the client itself takes.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use clock::{Clock, Duration, Instant};
use dataplane::{Elastic, ElasticConfig, ElasticThread, ForwardPorts};
use mem::{Pool, Region};
use nic::shm::ShmNic;
use stack::Shared;
use wire::Endpoint;

use super::client::Client;
use super::config::{Config, OPEN_MAX, RUN_MAX};
use super::ends::{CLIENT, MACS, PORT, SERVER, shared};
use super::found::{Found, TwoCoresError};
use super::interruptions::Interruptions;
use super::split::Split;
use super::told::Told;

/// See the module's comment.
pub struct Guest<'a> {
    config: Config,
    told: &'a Told,
    thread: ElasticThread<Split>,
    client: Client,
    /// When connections began to be opened, and requests to be made.
    began: Instant,
    asking: Option<Instant>,
    /// When it wants to look again.
    look_at: Instant,
    /// The time that it has had since requests were made.
    spent: Duration,
}

impl<'a> Guest<'a> {
    /// Joined by `ends` to the cores of the dataplane that `server` describes.
    pub fn new(config: &Config, told: &'a Told, server: &Arc<Shared>, ends: Vec<ShmNic>) -> Self {
        let region = Region::heap(16_384);
        let (pool, now) = (Pool::new(&region, 16_384), told.clock.now());
        let own = shared(CLIENT, MACS[1], 1, config.seed ^ 1);
        let nic = Split::new(Arc::clone(server), ends);
        let (ports, elastic) = (ForwardPorts::default(), ElasticConfig::default());
        Self {
            config: *config,
            told,
            thread: ElasticThread::new(0, own, nic, pool, ports, elastic, now),
            client: Client::new(config, Endpoint::new(SERVER, PORT)),
            began: now,
            asking: None,
            look_at: Instant::ZERO,
            spent: Duration::ZERO,
        }
    }

    /// Does what is due, if anything is. Its time is not the elastic thread's.
    pub fn look(&mut self, now: Instant, interruptions: &mut Interruptions) {
        if now < self.look_at {
            return;
        }
        self.thread.run_cycle(now, &mut self.client);
        let clock = self.told.clock;
        let done = clock.now();
        self.client.left(done);
        match self.asking {
            None if self.client.open() == self.config.connections => {
                self.told.ready.store(true, Ordering::Relaxed);
                let now = clock.now();
                self.asking = Some(now);
                self.client.begin(now);
            }
            None if now.since(self.began) > OPEN_MAX => self.told.stop(),
            None => {}
            Some(since) => {
                self.spent += done.since(now);
                interruptions.took(now, done);
                let late = self.config.realtime && now.since(since) > RUN_MAX;
                if late || self.client.is_over() {
                    self.told.stop();
                }
            }
        }
        self.look_at = self.client.looks_at(done);
    }

    /// What was found, and when requests began.
    pub fn found(self) -> Result<(Found, Instant), TwoCoresError> {
        let (open, wanted) = (self.client.open(), self.config.connections);
        let began = self.asking.ok_or(TwoCoresError::Connections { open, wanted })?;
        let mut found = self.client.found(self.told.clock.now().since(began));
        found.client_us = self.spent.as_nanos() as f64 / 1e3 / found.answered.max(1) as f64;
        Elastic::leave(self.thread);
        Ok((found, began))
    }
}
