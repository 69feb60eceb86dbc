//! Many idle connections: what each costs in bytes, and what their presence costs the others.

use std::time::Instant;

use clock::Duration;
use measure::process::resident_bytes;
use serde::Serialize;
use tailplane::Server;

use world::rig::{Rig, RigConfig, RigError};

/// Bytes of the stack's state that one idle connection may cost: hot and cold part, its share of
/// free slots, of the look-up table and of the flow groups. 50,000 connections or more.
pub const IDLE_BYTES_LIMIT: f64 = 256.0;
/// Unanswered requests at a time.
const IN_FLIGHT: usize = 64;
/// Connections that are open where few are.
const FEW: usize = 64;

/// Longer than the first retransmission time-out: the handshakes' timers have fired.
const REST: Duration = Duration::from_secs(3);

/// What a run found. Echoes per second are of this machine and its neighbours at that moment: only
/// their ratio tells something.
#[derive(Clone, Debug, Serialize)]
pub struct Found {
    /// Connections established, all at the same time.
    pub connections: usize,
    /// Real seconds that opening them took, both ends together.
    pub opening_s: f64,
    /// Bytes of stack state per connection at the server, tables included.
    pub server_bytes: f64,
    /// Bytes of stack state per connection at the client.
    pub client_bytes: f64,
    /// Resident memory that the process gained, per connection: both dataplanes, the server layer's
    /// state and the client's list. Absent where the kernel does not tell.
    pub resident_bytes: Option<f64>,
    /// Connections, spread over all, on each of which one 64-byte echo came back.
    pub echoed: u64,
    /// Echoes per second of the server's processor time with all connections open.
    pub echoes_per_s_all: f64,
    /// As many echoes with 64 open. As with all, each reply is acknowledged by a packet of its own.
    pub echoes_per_s_few: f64,
}

/// Bytes per connection, from a footprint.
fn each((connections, bytes): (usize, usize)) -> f64 {
    bytes as f64 / connections.max(1) as f64
}

/// Opens `connections` connections, and has one echo on each of `sample` of them.
///
/// # Errors
/// [`RigError`] where a connection does not open or an echo does not come back.
pub fn run(connections: usize, sample: usize) -> Result<Found, RigError> {
    let config = RigConfig {
        connections,
        in_flight: IN_FLIGHT,
        // A tenth of the longest delay of an acknowledgment.
        round: Duration::from_millis(4),
        ..RigConfig::default()
    };
    let mut rig = Rig::new(config, Server::new(echo::Echo));
    let before = resident_bytes();
    let began = Instant::now();
    rig.open_all()?;
    let opening_s = began.elapsed().as_secs_f64();
    let resident = resident_bytes().zip(before).map(|(after, before)| after.saturating_sub(before));

    rig.rest(REST);
    let sample = sample.min(connections);
    let busy_before = rig.server_busy;
    rig.exchange(true, spread(connections, sample))?;
    let busy = rig.server_busy - busy_before;
    let few = few_open(sample)?;
    Ok(Found {
        connections: rig.server.stack().connections() as usize,
        opening_s,
        server_bytes: each(rig.server.stack().footprint()),
        client_bytes: each(rig.client.stack().footprint()),
        resident_bytes: resident.map(|bytes| bytes as f64 / connections.max(1) as f64),
        echoed: rig.caller.answered,
        echoes_per_s_all: sample as f64 / busy.as_secs_f64(),
        echoes_per_s_few: few,
    })
}

/// `sample` different numbers below `connections`, in an order that no cache foresees: steps of a
/// number prime to `connections`, near its golden section.
pub fn spread(connections: usize, sample: usize) -> impl Iterator<Item = u32> {
    let gcd = |mut a: usize, mut b: usize| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let golden = (connections as f64 * 0.618) as usize;
    let step = (golden.max(1)..).find(|&step| gcd(step, connections) == 1).unwrap_or(1);
    (0..sample).map(move |index| ((index as u128 * step as u128) % connections as u128) as u32)
}

/// Echoes per second of the server's processor time with [`FEW`] connections open.
fn few_open(echoes: usize) -> Result<f64, RigError> {
    let config = RigConfig {
        connections: FEW,
        in_flight: IN_FLIGHT,
        // Longer than the delay of an acknowledgment: it finds no request to ride on, as with many.
        round: Duration::from_millis(50),
        ..RigConfig::default()
    };
    let mut rig = Rig::open(config, Server::new(echo::Echo))?;
    rig.rest(REST);
    let rounds = echoes.div_ceil(FEW);
    let before = rig.server_busy;
    for _ in 0..rounds {
        rig.exchange_all()?;
    }
    Ok((rounds * FEW) as f64 / (rig.server_busy - before).as_secs_f64())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_is_of_different_connections() {
        for connections in [1, 2, 10, 64, 997] {
            let mut numbers: Vec<u32> = spread(connections, connections).collect();
            numbers.sort_unstable();
            assert!(numbers.into_iter().eq(0..connections as u32), "{connections}");
        }
    }
}
