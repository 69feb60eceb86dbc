//! The service that is not attacked: each of its requests is checked, and timed in short windows.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, ensure};
use service::lab::constants::{CLIENT_ADDRESS, DATAPLANE_ADDRESS};
use service::lab::{Lab, in_namespace};

use super::super::requests::{BYTES, Requests, Window};
use super::PATIENCE;
use super::process::Service;
use crate::crowd::PORT;

/// A request that takes longer is slow: some twenty times the usual.
const SLOW: Duration = Duration::from_millis(1);
/// A request that takes longer is lost.
const LOST: Duration = Duration::from_secs(2);
/// Above the elastic thread beside it, which looks for packets all the time; this thread blocks for each answer.
const PRIORITY: u8 = 2;

/// See the module's comment. Fields end in this order.
pub struct Neighbour {
    stream: TcpStream,
    /// What was asked so far.
    pub requests: Requests,
    _service: Service,
    _lab: Lab,
}

impl Neighbour {
    /// Starts one in `lab` on a processor, on which the calling thread stays too.
    ///
    /// # Errors
    /// It does not serve.
    pub fn start(lab: Lab, folder: &Path, cpu: usize) -> anyhow::Result<Self> {
        let config = format!(
            "[service]\napp = \"echo\"\n[network]\nlab = \"{}\"\ngateway = \"{CLIENT_ADDRESS}\"\n\
             [dataplane]\nspin_us = 20\n[memory]\nchunks = 8192\n",
            lab.prefix()
        );
        let mut service = Service::start(folder, "beside", &config, &[], cpu)?;
        ensure!(service.serves(PATIENCE)?, "the second service ended: {}", service.refusal());
        let stream = in_namespace(lab.client(), || TcpStream::connect((DATAPLANE_ADDRESS, PORT)))?;
        let stream = stream.context("connecting to the second service")?;
        stream.set_read_timeout(Some(LOST))?;
        stream.set_nodelay(true)?;
        measure::pin(cpu)?;
        if let Err(error) = runtime::set_realtime(PRIORITY) {
            crate::say(&format!("latencies are measured without priority: {error}"));
        }
        Ok(Self { stream, requests: Requests::new(SLOW), _service: service, _lab: lab })
    }

    /// Asks for so long, one request after the other.
    pub fn window(&mut self, length: Duration) -> Window {
        let Self { stream, requests, .. } = self;
        requests.window(length, 0, |request| {
            let mut answer = [0; BYTES];
            let asked = stream.write_all(request).and_then(|()| stream.read_exact(&mut answer));
            asked.is_ok() && answer == *request
        })
    }
}
