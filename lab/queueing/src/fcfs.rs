//! First come, first served: by recursion, without events.
//!
//! A request's departure is known when it arrives. With one server it is Lindley's recursion: the
//! request begins when it has come and the one before it has left. With n of them it is Kiefer and
//! Wolfowitz's: it begins when it has come and the first of the servers is free, the times at which
//! they become free being kept in order.

use crate::observer::{Departure, Observer};
use crate::station::{Station, greater, lesser};

/// One server (Lindley 1952).
#[derive(Debug, Clone, Default)]
pub(crate) struct SingleServer {
    free_at: f64,
}

/// Several servers behind one queue (Kiefer and Wolfowitz 1955).
#[derive(Debug, Clone)]
pub(crate) struct ManyServers {
    /// When each is free, the first of them first. There is always one.
    free_at: Box<[f64]>,
}

impl ManyServers {
    pub fn new(servers: u32) -> Self {
        Self { free_at: vec![0.0; servers.max(1) as usize].into_boxed_slice() }
    }
}

/// Tells of a request that is served from `start` to `departure`.
#[inline]
fn told<O: Observer>(arrival: f64, start: f64, size: f64, observer: &mut O) -> f64 {
    let departure = start + size;
    observer.span(arrival, departure, 1.0, 0.0);
    observer.span(start, departure, 0.0, 1.0);
    observer.departed(&Departure { arrival, departure, size });
    departure
}

impl Station for SingleServer {
    #[inline]
    fn arrive<O: Observer>(&mut self, now: f64, size: f64, observer: &mut O) {
        self.free_at = told(now, greater(now, self.free_at), size, observer);
    }
}

impl Station for ManyServers {
    #[inline]
    fn arrive<O: Observer>(&mut self, now: f64, size: f64, observer: &mut O) {
        let free_at = &mut *self.free_at;
        let departure = told(now, greater(now, free_at[0]), size, observer);
        // The first leaves the order and `departure` enters it. Each place keeps its time, takes the
        // one after it, or the new one, whichever of the three is in the middle: no comparison
        // decides a jump, and several places move in one instruction.
        let last = free_at.len() - 1;
        for place in 0..last {
            free_at[place] = greater(free_at[place], lesser(departure, free_at[place + 1]));
        }
        free_at[last] = greater(free_at[last], departure);
        debug_assert!(free_at[0] <= free_at[last]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[derive(Default)]
    struct Departures(Vec<f64>);

    impl Observer for Departures {
        fn departed(&mut self, request: &Departure) {
            self.0.push(request.departure);
        }
    }

    fn departures(station: &mut impl Station, requests: &[(f64, f64)]) -> Vec<f64> {
        let mut found = Departures::default();
        for &(arrival, size) in requests {
            station.advance(arrival, &mut found);
            station.arrive(arrival, size, &mut found);
        }
        found.0
    }

    #[test]
    fn two_servers_serve_in_the_order_of_arrival() {
        let requests = [(0.0, 5.0), (1.0, 1.0), (1.5, 1.0), (1.6, 9.0), (20.0, 1.0)];
        let found = departures(&mut ManyServers::new(2), &requests);
        assert_eq!(found, [5.0, 2.0, 3.0, 12.0, 21.0]);
        let found = departures(&mut SingleServer::default(), &requests);
        assert_eq!(found, [5.0, 6.0, 7.0, 16.0, 21.0]);
    }

    proptest! {
        #[test]
        fn the_order_is_that_of_looking_for_the_first_free_server(
            servers in 1u32..20,
            steps in prop::collection::vec((0.0f64..1.0, 0.0f64..20.0), 1..200),
        ) {
            let mut now = 0.0;
            let requests: Vec<(f64, f64)> =
                steps.iter().map(|&(gap, size)| { now += gap; (now, size) }).collect();
            let mut free_at = vec![0.0f64; servers as usize];
            let expected: Vec<f64> = requests.iter().map(|&(arrival, size)| {
                let first = (0..free_at.len()).min_by(|&a, &b| free_at[a].total_cmp(&free_at[b]));
                let first = first.expect("there is one");
                free_at[first] = free_at[first].max(arrival) + size;
                free_at[first]
            }).collect();
            prop_assert_eq!(departures(&mut ManyServers::new(servers), &requests), expected.clone());
            if servers == 1 {
                prop_assert_eq!(departures(&mut SingleServer::default(), &requests), expected);
            }
        }
    }
}
