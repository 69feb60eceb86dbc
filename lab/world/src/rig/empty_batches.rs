//! Batches of nothing: what a crossing takes whatever is in it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use domain::{CallArray, Calls, EventArray, Service};
use mem::{Pool, Region};

/// Runs `service` on `count` batches without an event, and answers how long each took. `region` is its packet memory.
pub fn empty_batches<S: Service>(
    service: &mut S,
    region: &Arc<Region>,
    count: usize,
) -> Vec<Duration> {
    let (mut pool, mut calls) = (Pool::new(region, 0), CallArray::new(16, 1_448));
    let mut events = EventArray::new(1);
    let taken = (0..count).map(|_| {
        let began = Instant::now();
        let calls = &mut Calls::new(&mut calls, &mut pool);
        service.on_batch(clock::Instant::ZERO, events.view(&()), calls);
        events.conclude();
        began.elapsed()
    });
    taken.collect()
}
