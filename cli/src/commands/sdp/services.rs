//! The services of `tailplane sdp serve` that are functions of a request, by their names.

use sdp::{Handler, Outcome, TenantQueue, handler};

/// A service of HyperPlane's six, for tenants. A request that it refuses has an empty reply.
struct Served<S>(S);

impl<S: services::Service> Handler for Served<S> {
    fn handle(&mut self, _: TenantQueue, request: &[u8], reply: &mut [u8]) -> Outcome {
        Outcome::Reply(self.0.serve(request, reply).unwrap_or(0))
    }
}

/// A service by its name.
pub fn service(name: &str) -> Option<Box<dyn Handler>> {
    if let Some(disks) = name.strip_prefix("raid:") {
        return Some(Box::new(Served(services::Raid::new(disks.parse().ok()?).ok()?)));
    }
    if let Some(shape) = name.strip_prefix("reed-solomon:") {
        let (data, parity) = shape.split_once('+')?;
        let code = services::ReedSolomon::new(data.parse().ok()?, parity.parse().ok()?);
        return Some(Box::new(Served(code.ok()?)));
    }
    if name == "encryption" {
        // Keys of this run, which nobody can decrypt with: what is tried here is the service's cost.
        let mut keys = [[0; services::KEY_LEN]; 2];
        for key in &mut keys {
            rustix::rand::getrandom(key, rustix::rand::GetRandomFlags::empty()).ok()?;
        }
        return Some(Box::new(Served(services::Encryption::new(&keys[0], &keys[1]))));
    }
    handler(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn services_are_found_by_name() {
        let mut reply = [0; 256];
        let from = TenantQueue { tenant: 1, queue: 0 };
        for (name, request, expected) in [
            ("echo", 64, 64),
            ("encryption", 64, 16 + 64 + 16),
            ("raid:4", 64, 32),
            ("raid:4", 63, 0),
            ("reed-solomon:4+2", 64, 32),
        ] {
            let mut service = service(name).expect("known");
            let outcome = service.handle(from, &[7; 256][..request], &mut reply);
            assert_eq!(outcome, Outcome::Reply(expected), "{name} {request}");
        }
        for unknown in ["raid", "raid:x", "raid:0", "reed-solomon:4", "aes", ""] {
            assert!(service(unknown).is_none(), "{unknown}");
        }
    }
}
