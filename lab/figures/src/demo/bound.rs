//! The bound: what a bare AF_XDP reflector, without any stack, does on the same pair.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context;
use measure::{Places, SetsAtEnd, Watch, together};
use mem::Pool;
use nic::af_xdp::{blaster, reflector};
use tailplane::{Clock, MonotonicClock};

use super::ends::port_of;
use super::processors::{CLIENT_CPU, REALTIME, SERVER_CPU};
use service::lab::Lab;
use service::lab::constants::{
    CLIENT_DATAPLANE_ADDRESS, CLIENT_INTERFACE, DATAPLANE_ADDRESS, DATAPLANE_INTERFACE,
};
use service::port::{Port, PortConfig};

/// Of frames of 64 B with their check sequence.
pub const FRAME_BYTES: usize = 60;
/// Frames under way at a time: more than the service has requests, fewer than the rings hold.
const WINDOW: u64 = 256;

fn port(lab: &Lab, server: bool) -> anyhow::Result<Port> {
    let (interface, namespace, address) = match server {
        true => (DATAPLANE_INTERFACE, lab.dataplane(), DATAPLANE_ADDRESS),
        false => (CLIENT_INTERFACE, lab.client(), CLIENT_DATAPLANE_ADDRESS),
    };
    // As many as are under way, and as many again: what the caches hold, for the highest rate.
    let rx_buffers = Some(2 * WINDOW as u32);
    Port::open(&PortConfig { rx_buffers, ..port_of(interface, namespace, address, 1) })
}

/// Frames per second that a reflector on the server's core returns to a generator on the client's,
/// over `window` of time, which must stay well below a second: both run at real-time priority. Frames are of so many
/// bytes, without their check sequence.
///
/// # Errors
/// What could not be opened.
pub fn reflector_rps(lab: &Lab, window: Duration, frame_bytes: usize) -> anyhow::Result<f64> {
    let (mut server, mut client) = (port(lab, true)?, port(lab, false)?);
    let (server_mac, client_mac) = (server.mac(), client.mac());
    let (stop, clock) = (AtomicBool::new(false), MonotonicClock::new());
    let blast = |_: &mut Watch| -> anyhow::Result<f64> {
        let _ends = SetsAtEnd(&stop);
        let mut queues = client.take_queues().pop().context("one queue was opened")?;
        let nic = queues.sender().context("it sends its own frames")?;
        let mut pool = Pool::new(&client.region, 4_096);
        let mut blaster = blaster::Blaster::new(blaster::BlasterConfig {
            source_mac: client_mac,
            target_mac: server_mac,
            source: std::net::SocketAddrV4::new(CLIENT_DATAPLANE_ADDRESS, 20_000),
            target: std::net::SocketAddrV4::new(DATAPLANE_ADDRESS, 9),
            frame_bytes,
            flows: 16,
            window: WINDOW,
            batch: 64,
        });
        let mut blast = |span: Duration| {
            let (begin, before) = (Instant::now(), blaster.reflected);
            let mut last_progress = begin;
            while begin.elapsed() < span {
                if blaster.blast_once(clock.now(), nic, &mut pool) > 0 {
                    last_progress = Instant::now();
                } else if last_progress.elapsed() > Duration::from_millis(20) {
                    // Lost frames must not stop the measurement.
                    blaster.write_off();
                    last_progress = Instant::now();
                }
            }
            (blaster.reflected - before) as f64 / begin.elapsed().as_secs_f64()
        };
        blast(window / 5);
        let rate = blast(window);
        blaster.drain(&mut pool);
        queues.close(&mut pool);
        Ok(rate)
    };
    let reflect = |_: &mut Watch| -> anyhow::Result<()> {
        let mut queues = server.take_queues().pop().context("one queue was opened")?;
        let nic = queues.sender().context("it sends its own frames")?;
        let mut pool = Pool::new(&server.region, 4_096);
        let mut reflector = reflector::Reflector::new(64);
        while !stop.load(Ordering::Relaxed) {
            reflector.reflect_once(clock.now(), nic, &mut pool);
        }
        reflector.drain(&mut pool);
        queues.close(&mut pool);
        Ok(())
    };
    let places = Places::new([CLIENT_CPU, SERVER_CPU], REALTIME);
    let (rate, reflected, _) = together(&|side| places.take(side), blast, reflect)?;
    reflected?;
    rate
}
