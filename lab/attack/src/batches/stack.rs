//! Batches against a whole dataplane on a virtual clock, with a client that opens, asks, closes and aborts all the
//! time, so that the liar has connections in every state to lie about.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::ensure;
use clock::{Clock, VirtualClock};
use dataplane::{Elastic, ElasticConfig, ElasticThread, ForwardPorts};
use domain::{Calls, Events, Service};
use mem::{HugePages, Pool, Region};
use nic::loopback::{LoopbackConfig, LoopbackNic, WhenFull, pair};
use process::Geometry;
use stack::{Secrets, Shared, StackConfig};

use super::{Domain, Progress, Tally, lock};
use crate::crowd::{CLIENT, Crowd, DATAGRAM_PORT, MACS, PORT, SERVER};
use crate::lies::{MIXED, PLAUSIBLE};

const CHUNKS: u32 = 2_048;
/// Virtual time of a cycle.
const CYCLE: Duration = Duration::from_micros(10);
/// Cycles for a batch beyond which nothing happens any more.
const CYCLES_PER_BATCH: u64 = 1_000;

fn thread(index: usize, nic: LoopbackNic, region: &Arc<Region>) -> ElasticThread<LoopbackNic> {
    let mut settings = StackConfig::new([SERVER, CLIENT][index], 24, MACS[index]);
    settings.tcp_listen = vec![PORT];
    settings.udp_bind = vec![DATAGRAM_PORT];
    settings.max_connections = 256;
    settings.max_time_wait = 64;
    settings.time_wait = Duration::from_millis(1);
    settings.fin_wait = Duration::from_millis(5);
    settings.rto_min = Duration::from_millis(1);
    settings.rto_max = Duration::from_millis(10);
    (settings.retries, settings.syn_retries) = (3, 2);
    // No stranger sends to this dataplane: the secrets may be known, so that runs are alike.
    let secrets =
        Secrets { rss_key: wire::MICROSOFT_KEY, isn_key: [1; 16], port_key: [2; 16], offset: 3 };
    let shared = Arc::new(Shared::new(settings, &secrets, 1));
    let pool = Pool::new(region, region.chunks() as usize);
    let (ports, elastic) = (ForwardPorts::default(), ElasticConfig::default());
    ElasticThread::new(0, shared, nic, pool, ports, elastic, clock::Instant::ZERO)
}

/// The domain's side as a service that has its application lie about each batch.
struct Lied<'a> {
    domain: Domain,
    batches: u64,
    tally: &'a mut Tally,
    progress: &'a mut Progress,
}

impl Service for Lied<'_> {
    fn on_batch(&mut self, now: clock::Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        lock(&self.domain.other).begin(now);
        let began = Instant::now();
        self.domain.near.on_batch(now, events, calls);
        self.tally.took(began.elapsed(), self.progress.done);
        self.batches += 1;
        self.progress.step();
    }

    fn wake_at(&self) -> Option<clock::Instant> {
        self.domain.near.wake_at()
    }
}

/// In each round both dataplanes are new; every second one has a more plausible liar.
pub(super) fn one_round(
    batches: u64,
    round: u64,
    seed: u64,
    progress: &mut Progress,
    tally: &mut Tally,
) -> anyhow::Result<()> {
    let wire = LoopbackConfig { macs: MACS, when_full: WhenFull::Drop, ..Default::default() };
    let (near, far) = pair(wire);
    let regions = [Region::map(CHUNKS as usize, HugePages::No)?, Region::heap(CHUNKS)];
    let mut server = thread(0, near, &regions[0]);
    let mut client = thread(1, far, &regions[1]);
    let seed = seed ^ round << 56;
    let geometry = Geometry { events: 256, calls: 512, arena_chunks: 64 };
    let falsehood = if round % 2 == 1 { PLAUSIBLE } else { MIXED };
    let domain = Domain::new(&regions[0], geometry, seed, falsehood)?;
    lock(&domain.other).liar.peers = crate::acts::peers(crate::crowd::SERVER, crate::crowd::CLIENT);
    let stats = domain.near.stats();
    let mut crowd = Crowd::new(!seed, Duration::ZERO);
    let mut lied = Lied { domain, batches: 0, tally: &mut *tally, progress };
    let mut clock = VirtualClock::default();
    let mut cycles = 0;
    while lied.batches < batches {
        client.run_cycle(clock.now(), &mut crowd);
        server.run_cycle(clock.now(), &mut lied);
        lied.domain.check_ends()?;
        clock.advance(CYCLE);
        cycles += 1;
        ensure!(cycles < CYCLES_PER_BATCH * batches.max(100), "nothing happens any more");
    }
    let told = lock(&lied.domain.other).liar.heard;
    drop(lied);
    tally.answered += crowd.seen.answered;
    tally.add(&stats, told);
    leave(server, client, &mut clock, &regions)
}

/// Both leave the network; all packet memory is where it was.
fn leave(
    mut server: ElasticThread<LoopbackNic>,
    mut client: ElasticThread<LoopbackNic>,
    clock: &mut VirtualClock,
    regions: &[Arc<Region>; 2],
) -> anyhow::Result<()> {
    for _ in 0..10_000 {
        let both = [server.withdraw(clock.now()), client.withdraw(clock.now())];
        clock.advance(CYCLE);
        if both == [false, false] {
            break;
        }
    }
    for (name, thread, region) in [("server", server, &regions[0]), ("client", client, &regions[1])]
    {
        let left = thread.leave();
        ensure!(left.memory.lost == 0, "the {name} lost {} chunks", left.memory.lost);
        let (back, all) = (region.depot_len(), region.chunks() as usize);
        ensure!(back == all, "{back} of {all} chunks of the {name} came back");
    }
    Ok(())
}
