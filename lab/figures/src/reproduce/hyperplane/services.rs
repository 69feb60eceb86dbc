//! HyperPlane's six services (§V-A) as tasks: for each item the service serves the next of its requests.

use std::net::Ipv4Addr;

use notify::{Item, Work};
use services::{
    DispatchConfig, Dispatcher, Encapsulation, Encryption, KEY_LEN, Raid, ReedSolomon,
    RequestHeader, Service, Steering, SteeringConfig, TunnelConfig,
};
use wire::{Endpoint, emit_udp_packet};

use super::task::Task;

/// Requests of a service that differ; more than one, so that not all of it is predicted.
const REQUESTS: usize = 64;
/// Bytes of a small packet.
const PACKET: usize = 64;

/// Small packets into a tunnel.
pub const ENCAPSULATION: Task = Task {
    name: "encapsulation of 64 B",
    slug: "encapsulation",
    make: |_| {
        let config = TunnelConfig::new([1; 16].into(), [2; 16].into());
        let tunnel = Encapsulation::new(config);
        serving(tunnel, packets(Ipv4Addr::new(10, 0, 0, 2)))
    },
};

/// All six.
pub const SERVICES: [Task; 6] = [
    ENCAPSULATION,
    Task {
        name: "AES-256-CBC of 1 KB",
        slug: "encryption",
        make: |_| {
            let service = Encryption::new(&[1; KEY_LEN], &[2; KEY_LEN]);
            serving(Ok::<_, &str>(service), blocks(1_024))
        },
    },
    Task {
        name: "steering of 64 B",
        slug: "steering",
        make: |_| {
            let to = Ipv4Addr::new(10, 0, 0, 100);
            let steering = Steering::new(SteeringConfig::new(to, [7; 16])).and_then(|mut made| {
                for number in 0..16 {
                    made.add_backend(Ipv4Addr::new(10, 0, 1, number))?;
                }
                Ok(made)
            });
            serving(steering, packets(to))
        },
    },
    Task {
        name: "Reed-Solomon 10+4 of 4 KB",
        slug: "reed-solomon",
        make: |_| serving(ReedSolomon::new(10, 4), blocks(4_080)),
    },
    Task {
        name: "P + Q of 8 blocks of 512 B",
        slug: "raid",
        make: |_| serving(Raid::new(8), blocks(8 * 512)),
    },
    Task { name: "dispatching of 64 B", slug: "dispatch", make: |_| Box::new(Dispatching::new()) },
];

/// A service with its requests.
struct Serving<S> {
    service: S,
    requests: Vec<Vec<u8>>,
    reply: Vec<u8>,
}

/// The services' settings stand above and are theirs to accept: one that does not is a mistake here.
fn serving<S, E>(service: Result<S, E>, requests: Vec<Vec<u8>>) -> Box<dyn Work>
where
    S: Service + Send + 'static,
    E: std::fmt::Debug,
{
    let service = service.expect("the settings of a service of the figures");
    let longest = requests.iter().map(Vec::len).max().unwrap_or(0);
    let reply = vec![0; service.reply_len_max(longest)];
    Box::new(Serving { service, requests, reply })
}

impl<S: Service + Send> Work for Serving<S> {
    fn serve(&mut self, item: &Item) {
        let request = &self.requests[item.number as usize % self.requests.len()];
        let served = self.service.serve(request, &mut self.reply);
        // A refusal is cheaper than the service: a figure of it must not come about.
        assert!(served.is_ok(), "{}: {served:?}", self.service.name());
        std::hint::black_box(&mut self.reply);
    }
}

/// A dispatcher whose workers are done at once.
struct Dispatching {
    dispatcher: Dispatcher,
    request: [u8; 64],
    reply: [u8; 96],
}

impl Dispatching {
    fn new() -> Self {
        let mut config = DispatchConfig::new(16, 2, [7; 16]);
        config.pools.push((0..16).collect());
        config.methods.push((1, 0));
        let dispatcher = Dispatcher::new(&config).expect("the settings of the figures");
        let mut request = [0; 64];
        let (payload_len, request_id) = (48, 1);
        RequestHeader { flags: 0, method: 1, key_len: 0, payload_len, request_id }
            .emit(&mut request);
        Self { dispatcher, request, reply: [0; 96] }
    }
}

impl Work for Dispatching {
    fn serve(&mut self, _: &Item) {
        let served = self.dispatcher.serve(&self.request, &mut self.reply);
        assert!(served.is_ok(), "dispatching: {served:?}");
        // The worker stands in the reply's header.
        let worker = u16::from_be_bytes([self.reply[6], self.reply[7]]);
        let done = self.dispatcher.done(worker);
        assert!(done.is_ok(), "dispatching: {done:?}");
    }
}

/// Datagrams of different senders.
fn packets(dst: Ipv4Addr) -> Vec<Vec<u8>> {
    let packet = |number: usize| {
        let from = Endpoint::new(Ipv4Addr::new(10, 0, 9, number as u8), 53);
        let mut bytes = vec![0; PACKET];
        emit_udp_packet(&mut bytes, from, Endpoint::new(dst, 53), &[0x5a; PACKET - 28]);
        bytes
    };
    (0..REQUESTS).map(packet).collect()
}

/// Data of so many bytes.
fn blocks(bytes: usize) -> Vec<Vec<u8>> {
    (0..REQUESTS)
        .map(|number| (0..bytes).map(|at| (at * 7 + number * 13) as u8).collect())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_service_serves_all_of_its_requests() {
        for task in SERVICES {
            let mut work = (task.make)(1.0);
            for number in 0..2 * REQUESTS as u32 {
                // A request that is refused fails here.
                work.serve(&Item { number, ..Item::default() });
            }
        }
    }
}
