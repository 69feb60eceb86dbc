//! What the runtime refuses before it serves anybody.

use std::sync::atomic::AtomicBool;

use dataplane::{ConservingConfig, ReadySetConfig};
use mem::Region;
use nic::shm::{ShmConfig, ShmNic};
use tailplane::runtime::{RuntimeConfig, RuntimeError, Scheduler, run};
use tailplane::{
    ElasticConfig, Flow, IdlePolicy, Instant, Ipv4Addr, MacAddr, ModerationPolicy, Opened, Output,
    Protocol, Server, StackConfig,
};

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

#[test]
fn a_service_that_keeps_to_its_core_is_not_shared() {
    keeps_to_its_core(Scheduler::WorkConserving(ConservingConfig::default()));
    keeps_to_its_core(Scheduler::ReadySet(ReadySetConfig::default()));
}

fn keeps_to_its_core(scheduler: Scheduler) {
    let wire = ShmConfig::default();
    let (near, _far) = ShmNic::pair(&wire, &wire.far()).expect("memory");
    let config = RuntimeConfig {
        stack: StackConfig::new(Ipv4Addr::new(10, 9, 0, 1), 24, MacAddr([2, 0, 0, 0, 0, 1])),
        elastic: ElasticConfig::default(),
        scheduler,
        idle: IdlePolicy::default(),
        moderation: ModerationPolicy::default(),
        cpus: Vec::new(),
        realtime: None,
        pool_keep: 512,
        meters: Vec::new(),
    };
    let stop = AtomicBool::new(false);
    let refused = run(&config, &Region::heap(4_096), vec![near], |_| Server::new(Quiet), &stop);
    let refused = refused.map(|_| ()).expect_err("it keeps its connections' state");
    assert!(matches!(refused, RuntimeError::KeepsToItsCore), "{refused}");
    assert!(refused.to_string().contains("run to completion"), "{refused}");
}
