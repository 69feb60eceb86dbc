//! Whatever a request holds, and however little room there is: a reply or a refusal, never a panic.

use std::net::Ipv4Addr;

use proptest::prelude::*;
use services::{
    Decryption, DispatchConfig, Dispatcher, Encryption, Raid, ReedSolomon, Refused, RequestHeader,
    Service, Steering, SteeringConfig,
};
use wire::Endpoint;

use crate::packets::{serve, tcp, tunnel, udp};

/// Every service, each with a request that it takes.
fn all() -> Vec<(Box<dyn Service>, Vec<u8>)> {
    let (mut entry, exit) = tunnel(|config| {
        config.key = Some(1);
        (config.sequence, config.checksum) = (true, true);
    });
    let virtual_addr = Ipv4Addr::new(10, 0, 0, 100);
    let client = Endpoint::new(Ipv4Addr::new(10, 0, 0, 1), 1_000);
    let server = Endpoint::new(virtual_addr, 80);
    let packet = udp(client, server, 2, &[1; 30]);
    let encapsulated = serve(&mut entry, &packet).expect("served");
    let mut encryption = Encryption::new(&[1; 32], &[2; 32]);
    let encrypted = serve(&mut encryption, &packet).expect("served");
    let mut steering =
        Steering::new(SteeringConfig::new(virtual_addr, [3; 16])).expect("a configuration");
    steering.add_backend(Ipv4Addr::new(10, 0, 1, 1)).expect("room");
    let code = ReedSolomon::new(4, 2).expect("a shape");
    let repair = code.repair(&[1, 4]).expect("two of two");
    let mut config = DispatchConfig::new(64, 64, [0; 16]);
    config.pools.push((0..64).collect());
    config.methods.push((1, 0));
    let dispatcher = Dispatcher::new(&config).expect("a configuration");
    let mut request = vec![0; 40];
    RequestHeader { flags: 1, method: 1, key_len: 4, payload_len: 20, request_id: 1 }
        .emit(&mut request);
    vec![
        (Box::new(entry), packet),
        (Box::new(exit), encapsulated),
        (Box::new(encryption), vec![1; 50]),
        (Box::new(Decryption::new(&[1; 32])), encrypted),
        (Box::new(steering), tcp(client, server, b"hello")),
        (Box::new(code), vec![1; 48]),
        (Box::new(repair), vec![1; 48]),
        (Box::new(Raid::new(3).expect("a number")), vec![1; 48]),
        (Box::new(dispatcher), request),
    ]
}

/// Serves and checks what is promised of every outcome.
fn check(service: &mut dyn Service, request: &[u8], room: usize) -> Result<usize, Refused> {
    let mut reply = vec![0; room];
    let outcome = service.serve(request, &mut reply);
    match outcome {
        Ok(length) => {
            assert!(length <= room && length <= service.reply_len_max(request.len()));
        }
        Err(Refused::ReplyRoom { needed, room: found }) => {
            assert_eq!(found, room);
            assert!(needed > room && needed <= service.reply_len_max(request.len()));
        }
        Err(other) => assert!(!other.to_string().is_empty()),
    }
    outcome
}

#[test]
fn each_serves_its_own_request() {
    for (mut service, request) in all() {
        let room = service.reply_len_max(request.len());
        let outcome = check(&mut *service, &request, room);
        assert!(outcome.is_ok(), "{}: {outcome:?}", service.name());
    }
}

#[test]
fn too_little_room_is_said_and_costs_nothing() {
    for (mut service, request) in all() {
        let Err(Refused::ReplyRoom { needed, .. }) = check(&mut *service, &request, 0) else {
            panic!("{}: every reply here has bytes", service.name());
        };
        for room in 0..needed {
            let refused = Err(Refused::ReplyRoom { needed, room });
            assert_eq!(check(&mut *service, &request, room), refused, "{}", service.name());
        }
        // The tunnels' sequence numbers, the workers' credits and the rest are where they were.
        let (mut fresh, _) = all()
            .into_iter()
            .find(|(fresh, _)| fresh.name() == service.name())
            .expect("the same services");
        let one = serve(&mut *service, &request).expect("room enough");
        assert_eq!(one, serve(&mut *fresh, &request).expect("served"), "{}", service.name());
    }
}

#[test]
fn every_cut_is_refused_or_served() {
    for (mut service, request) in all() {
        for length in 0..request.len() {
            let room = service.reply_len_max(request.len());
            let _ = check(&mut *service, &request[..length], room);
        }
    }
}

proptest! {
    #[test]
    fn any_bytes(request in prop::collection::vec(any::<u8>(), 0..200), room in 0usize..400) {
        for (mut service, _) in all() {
            let _ = check(&mut *service, &request, room);
        }
    }

    #[test]
    fn any_damage(changes in prop::collection::vec((any::<u16>(), any::<u8>()), 1..4), longer in 0usize..40) {
        for (mut service, mut request) in all() {
            request.resize(request.len() + longer, 0);
            for &(at, value) in &changes {
                let at = usize::from(at) % request.len();
                request[at] = value;
            }
            let room = service.reply_len_max(request.len());
            let _ = check(&mut *service, &request, room);
        }
    }
}
