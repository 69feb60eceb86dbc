//! What the runtime refuses before it serves anybody.

use std::sync::atomic::AtomicBool;

use mem::Region;
use nic::shm::{ShmConfig, ShmNic};
use runtime::{
    ConservingConfig, ElasticConfig, IdlePolicy, ModerationPolicy, ReadySetConfig, StackConfig,
    WhileAway,
};
use runtime::{RuntimeConfig, RuntimeError, Scheduler, run};
use tailplane::{Flow, Instant, Ipv4Addr, MacAddr, Opened, Output, Protocol, Server};

struct Quiet;

impl Protocol for Quiet {
    type Connection = ();
    fn open(&mut self, _: Instant, _: Opened) -> Option<()> {
        Some(())
    }
    fn receive(&mut self, _: Instant, _: &mut (), _: &[u8], _: &mut Output<'_, '_>) -> Flow {
        Flow::Continue
    }
}

fn refusal(scheduler: Scheduler, realtime: Option<u8>) -> RuntimeError {
    let wire = ShmConfig::default();
    let (near, _far) = ShmNic::pair(&wire, &wire.far()).expect("memory");
    let config = RuntimeConfig {
        stack: StackConfig::new(Ipv4Addr::new(10, 9, 0, 1), 24, MacAddr([2, 0, 0, 0, 0, 1])),
        elastic: ElasticConfig::default(),
        scheduler,
        idle: IdlePolicy::default(),
        moderation: ModerationPolicy::default(),
        cpus: Vec::new(),
        realtime,
        pool_keep: 512,
        segment: None,
        register: None,
    };
    let stop = AtomicBool::new(false);
    let refused = run(&config, &Region::heap(4_096), vec![near], |_| Server::new(Quiet), &stop);
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
        assert!(matches!(refused, RuntimeError::KeepsToItsCore), "{refused}");
        assert!(refused.to_string().contains("run to completion"), "{refused}");
    }
}

#[test]
fn kicks_without_priority_are_refused() {
    let kick = ConservingConfig { while_away: WhileAway::Kick, ..ConservingConfig::default() };
    for realtime in [None, Some(99)] {
        let refused = refusal(Scheduler::WorkConserving(kick), realtime);
        assert!(matches!(refused, RuntimeError::KicksNeedPriority { .. }), "{refused}");
        assert!(refused.to_string().contains("1 to 98"), "{refused}");
    }
}
