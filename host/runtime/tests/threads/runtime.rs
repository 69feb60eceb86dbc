//! What the runtime refuses before it serves anybody, and what it counts from then on.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant as Wall};

use mem::{Pool, Region};
use nic::Nic;
use nic::shm::{ShmConfig, ShmNic};
use runtime::{ConservingConfig, ReadySetConfig, WhileAway};
use runtime::{RuntimeConfig, RuntimeError, Scheduler, run, run_controlled};
use statseg::{Layout, Segment};
use tailplane::{
    Calls, Cookie, Event, Events, Flow, Instant, MacAddr, Opened, Output, Protocol, Server, Service,
};

use crate::common::{self, CLIENT, Ends, SERVER, wire};

/// Does the same with each connection that says anything.
struct Always(Flow);

impl Protocol for Always {
    type Connection = ();
    fn open(&mut self, _: Instant, _: Opened) -> Option<()> {
        Some(())
    }
    fn receive(&mut self, _: Instant, _: &mut (), _: &[u8], _: &mut Output<'_, '_>) -> Flow {
        self.0
    }
}

const MAC: MacAddr = MacAddr([2, 0, 0, 0, 0, 1]);

fn config(scheduler: Scheduler, realtime: Option<u8>) -> RuntimeConfig {
    RuntimeConfig { realtime, ..common::config(SERVER.addr, MAC, scheduler) }
}

fn refusal(scheduler: Scheduler, realtime: Option<u8>) -> RuntimeError {
    let wire = ShmConfig::default();
    let (near, _far) = ShmNic::pair(&wire, &wire.far()).expect("memory");
    let config = config(scheduler, realtime);
    let stop = AtomicBool::new(false);
    let refused = run(
        &config,
        &Region::heap(4_096),
        vec![near],
        |_| Server::new(Always(Flow::Continue)),
        &stop,
    );
    refused.map(|_| ()).expect_err("it is refused")
}

#[test]
fn a_service_that_keeps_to_its_core_is_not_shared() {
    let sharing = [
        Scheduler::WorkConserving(ConservingConfig::default()),
        Scheduler::ReadySet(ReadySetConfig::default()),
    ];
    for scheduler in sharing {
        let refused = refusal(scheduler, None);
        assert!(refused.to_string().contains("runs anywhere"), "{refused}");
        assert!(refused.to_string().contains("run to completion"), "{refused}");
    }
}

#[test]
fn kicks_without_priority_are_refused() {
    let kick = ConservingConfig { while_away: WhileAway::Kick, ..ConservingConfig::default() };
    for realtime in [None, Some(99)] {
        let refused = refusal(Scheduler::WorkConserving(kick), realtime);
        assert!(refused.to_string().contains("allowed with kicks"), "{refused}");
        assert!(refused.to_string().contains("1 to 98"), "{refused}");
    }
}

/// Packets that wait when a thread begins count as those that come later.
#[test]
fn the_first_cycle_counts() {
    let wire = ShmConfig::default();
    let (near, mut far) = ShmNic::pair(&wire, &wire.far()).expect("memory");
    let (region, client) = (Region::heap(4_096), Region::heap(512));
    let mut pool = Pool::new(&client, 64);
    let mut frame = pool.alloc().expect("a chunk");
    // Of no protocol that the stack has.
    frame.append(&[0xff; 60]).expect("room");
    let mut frames = vec![frame.into_tx()];
    assert_eq!(far.transmit(Instant::ZERO, &mut pool, &mut frames), 1);
    let layout = Layout { threads: 1, groups: runtime::FLOW_GROUPS as u16, batch_max: 64 };
    let segment = Arc::new(Segment::create("first-cycle", &layout).expect("memory"));
    let config = RuntimeConfig {
        segment: Some(Arc::clone(&segment)),
        ..config(Scheduler::RunToCompletion, None)
    };
    let stop = AtomicBool::new(false);
    let ready = || stop.store(true, Ordering::Relaxed);
    let make = |_| Server::new(Always(Flow::Continue));
    let reports =
        run_controlled(&config, &region, vec![near], make, ready, None, &stop).expect("it runs");
    let shown = segment.reading().threads()[0].packets;
    assert_eq!((shown, reports[0].0.cycle.packets), (1, 1));
}

/// Opens one connection, says something, and closes once its peer has.
#[derive(Default)]
struct Caller {
    has_called: bool,
}

impl Service for Caller {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            match event {
                Event::Connected { outcome, .. } => {
                    let (handle, _) = outcome.expect("it is let in");
                    calls.sendv(handle, &[b"quit"]).expect("room");
                }
                Event::Eof { handle, .. } => calls.close(handle).expect("room"),
                _ => {}
            }
        }
        if !self.has_called {
            self.has_called = calls.connect(Cookie(0), SERVER).is_ok();
        }
    }
    fn wake_at(&self) -> Option<Instant> {
        (!self.has_called).then_some(Instant::ZERO)
    }
}

/// The end of a TIME-WAIT is a timer's, in a cycle that does nothing else: it is shown all the same.
#[test]
fn a_connection_that_only_a_timer_ends_is_no_longer_shown() {
    let (near, far) = wire();
    let [server, client] = [Region::heap(4_096), Region::heap(4_096)];
    let layout = Layout { threads: 1, groups: runtime::FLOW_GROUPS as u16, batch_max: 64 };
    let segment = Arc::new(Segment::create("time-wait", &layout).expect("memory"));
    let mut near_config = config(Scheduler::RunToCompletion, None);
    near_config.segment = Some(Arc::clone(&segment));
    near_config.stack.time_wait = Duration::from_millis(300);
    let far_config =
        common::config(CLIENT, MacAddr([2, 0, 0, 0, 0, 2]), Scheduler::RunToCompletion);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _ends = Ends([&stop, &stop]);
        scope.spawn(|| {
            run(&near_config, &server, vec![near], |_| Server::new(Always(Flow::Close)), &stop)
        });
        scope.spawn(|| run(&far_config, &client, vec![far], |_| Caller::default(), &stop));
        let shows = |connections| {
            let began = Wall::now();
            while segment.reading().threads()[0].totals.connections != connections {
                assert!(began.elapsed() < Duration::from_secs(30), "never {connections}");
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        shows(1);
        shows(0);
    });
}
