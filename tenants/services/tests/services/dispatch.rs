//! The dispatcher against a model that looks at every worker, and what it refuses.

use proptest::prelude::*;
use services::{
    DispatchConfig, Dispatcher, FLAG_KEYED, FLAG_ONE_WAY, Layer, NotOutstanding, Refused,
    RequestHeader,
};

use crate::packets::serve;

fn request(method: u16, flags: u8, key: &[u8], payload: &[u8]) -> Vec<u8> {
    let header = RequestHeader {
        flags,
        method,
        key_len: key.len() as u16,
        payload_len: payload.len() as u32,
        request_id: 0xdead_beef,
    };
    let mut request = vec![0xee; 16];
    header.emit(&mut request);
    [&request[..], key, payload].concat()
}

/// Pool 0: workers 0 to 3, methods 10 and 11. Pool 1: workers 3 and 4, method 20.
fn config(bound: usize) -> DispatchConfig {
    let mut config = DispatchConfig::new(5, bound, [7; 16]);
    config.pools = vec![vec![0, 1, 2, 3], vec![4, 3]];
    config.methods = vec![(10, 0), (11, 0), (20, 1)];
    config
}

fn worker_of(reply: &[u8]) -> u16 {
    u16::from_be_bytes([reply[6], reply[7]])
}

#[test]
fn the_reply_is_the_request_with_worker_and_number() {
    let mut dispatcher = Dispatcher::new(&config(2)).expect("a configuration");
    let request = request(20, FLAG_ONE_WAY, b"", b"payload");
    for sequence in 0..2u64 {
        let reply = serve(&mut dispatcher, &request).expect("dispatched");
        let mut expected = request[..16].to_vec();
        expected[6..8].copy_from_slice(&(3 + sequence as u16).to_be_bytes());
        expected.extend(sequence.to_be_bytes());
        expected.extend(b"payload");
        assert_eq!(reply, expected);
    }
}

proptest! {
    #[test]
    fn the_shortest_queue_is_joined_and_the_bound_is_kept(
        bound in 1usize..5,
        steps in prop::collection::vec((0usize..3, any::<bool>(), 0u16..5), 1..200),
    ) {
        let config = config(bound);
        let mut dispatcher = Dispatcher::new(&config).expect("a configuration");
        let mut depths = [0usize; 5];
        let mut sequence = 0u64;
        for (kind, is_request, worker) in steps {
            if !is_request {
                let expected = depths[usize::from(worker)].checked_sub(1);
                prop_assert_eq!(dispatcher.done(worker).is_ok(), expected.is_some());
                depths[usize::from(worker)] = expected.unwrap_or(0);
                continue;
            }
            let (method, pool) = config.methods[kind];
            let members = &config.pools[usize::from(pool)];
            let least = members.iter().map(|&w| depths[usize::from(w)]).min().expect("members");
            let outcome = serve(&mut dispatcher, &request(method, 0, b"", b"x"));
            if least >= bound {
                prop_assert_eq!(outcome, Err(Refused::Busy { pool }));
                continue;
            }
            let reply = outcome.expect("a worker is below the bound");
            let worker = worker_of(&reply);
            prop_assert!(members.contains(&worker));
            prop_assert_eq!(depths[usize::from(worker)], least);
            prop_assert_eq!(&reply[16..24], &sequence.to_be_bytes());
            sequence += 1;
            depths[usize::from(worker)] += 1;
            for (worker, &depth) in depths.iter().enumerate() {
                prop_assert_eq!(dispatcher.outstanding(worker as u16), depth);
            }
        }
    }
}

#[test]
fn equals_take_turns() {
    let mut dispatcher = Dispatcher::new(&config(3)).expect("a configuration");
    let mut workers = Vec::new();
    for _ in 0..8 {
        let reply = serve(&mut dispatcher, &request(10, 0, b"", b"")).expect("dispatched");
        workers.push(worker_of(&reply));
    }
    assert_eq!(workers, [0, 1, 2, 3, 0, 1, 2, 3]);
    // Also when each is done at once: the next one still is another.
    (0..4).for_each(|worker| (0..2).for_each(|_| dispatcher.done(worker).expect("outstanding")));
    for expected in [0, 1, 2, 3, 0] {
        let reply = serve(&mut dispatcher, &request(11, 0, b"", b"")).expect("dispatched");
        assert_eq!(worker_of(&reply), expected);
        dispatcher.done(expected).expect("outstanding");
    }
}

#[test]
fn a_key_belongs_to_one_worker() {
    let mut dispatcher = Dispatcher::new(&config(1)).expect("a configuration");
    let mut used = [0; 5];
    for key in 0..400u32 {
        let request = request(10, FLAG_KEYED, &key.to_be_bytes(), b"payload");
        let worker = worker_of(&serve(&mut dispatcher, &request).expect("dispatched"));
        // Others are idle, but the key is this one's.
        assert_eq!(serve(&mut dispatcher, &request), Err(Refused::Busy { pool: 0 }));
        dispatcher.done(worker).expect("outstanding");
        let again = worker_of(&serve(&mut dispatcher, &request).expect("dispatched"));
        assert_eq!(again, worker);
        dispatcher.done(worker).expect("outstanding");
        used[usize::from(worker)] += 1;
    }
    assert!(used[..4].iter().all(|&keys| keys > 60) && used[4] == 0, "{used:?}");
}

#[test]
fn what_is_wrong_is_named() {
    let mut dispatcher = Dispatcher::new(&config(1)).expect("a configuration");
    let good = request(10, FLAG_KEYED, b"key", b"payload");
    let malformed = |field| Refused::Malformed { layer: Layer::Dispatch, field };
    let truncated = Refused::Truncated { layer: Layer::Dispatch };
    let cases = [
        (0, 2, Refused::Version { layer: Layer::Dispatch, found: 2, expected: 1 }),
        (1, 4, malformed("flags")),
        (2, 1, Refused::Method { method: 266 }),
        (3, 12, Refused::Method { method: 12 }),
        (5, 0, malformed("key length")),
        (5, 2, malformed("payload length")),
        (5, 4, truncated),
        (7, 1, malformed("reserved field")),
        (8, 0xff, truncated),
        (11, 6, malformed("payload length")),
    ];
    for (at, value, refused) in cases {
        let mut wrong = good.clone();
        wrong[at] = value;
        assert_eq!(serve(&mut dispatcher, &wrong), Err(refused), "byte {at}");
    }
    assert_eq!(serve(&mut dispatcher, &good[..15]), Err(truncated));
    for worker in [0, 4, 5, 63, 64, u16::MAX] {
        assert_eq!(dispatcher.done(worker), Err(NotOutstanding { worker }));
    }
    assert!(serve(&mut dispatcher, &good).is_ok());
}

#[test]
fn what_cannot_be_set_up_is_said() {
    type Change = fn(&mut DispatchConfig);
    let changes: [(Change, &str); 8] = [
        (|config| config.workers = 0, "workers 0"),
        (|config| config.workers = 65, "workers 65"),
        (|config| config.bound = 0, "a bound of 0"),
        (|config| config.bound = 65, "a bound of 65"),
        (|config| config.pools[1].push(5), "a pool with worker 5"),
        (|config| config.pools[1].clear(), "pool 1"),
        (|config| config.methods.push((30, 2)), "a method of pool 2"),
        (|config| config.methods.push((10, 1)), "method 10"),
    ];
    for (change, what) in changes {
        let mut config = config(2);
        change(&mut config);
        let error = Dispatcher::new(&config).err().expect("out of range").to_string();
        assert!(error.contains(&format!("with {what}:")), "{error}");
    }
    let mut all = DispatchConfig::new(64, 64, [0; 16]);
    all.pools.push((0..64).collect());
    all.methods.push((u16::MAX, 0));
    let mut dispatcher = Dispatcher::new(&all).expect("the largest");
    for _ in 0..64 * 64 {
        serve(&mut dispatcher, &request(u16::MAX, 0, b"", b"")).expect("below the bound");
    }
    let refused = serve(&mut dispatcher, &request(u16::MAX, 0, b"", b""));
    assert_eq!(refused, Err(Refused::Busy { pool: 0 }));
}
