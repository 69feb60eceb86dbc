//! The threads of a work-conserving dataplane, made together with the floor that they share.

use alloc::boxed::Box;
use alloc::sync::Arc;
use alloc::vec::Vec;

use clock::Instant;
use domain::CallArray;
use mem::Pool;
use nic::{Nic, QueueSet};
use shuffle::{ReadySet, ShuffleLayer, Taker};
use stack::Shared;

use crate::classes::{ClassError, ClassTable, Classes};
use crate::conserving::ConservingThread;
use crate::cycle::ElasticConfig;
use crate::floor::{ConservingConfig, Floor, Hints, ReadySetConfig, Side};
use crate::forward::ForwardPorts;
use crate::home_layer::HomeLayer;
use crate::home_lock::HomeLock;
use crate::net_layer::NetLayer;
use crate::turn::{ConnectionTurn, calls_of};

/// In which of its two forms a floor is.
struct Form {
    shuffle: ShuffleLayer<ConnectionTurn>,
    /// Each core's place in the ready set, where there is one.
    takers: Vec<Option<Taker>>,
    classes: Option<Arc<Classes>>,
}

/// What an elastic thread is made of.
pub struct Parts<N: Nic> {
    /// Its queue pairs.
    pub queues: QueueSet<N>,
    /// The network layer's packet memory.
    pub pool: Pool,
    /// Its ends of the forwarding rings.
    pub ports: ForwardPorts,
}

impl<N: Nic> Floor<N> {
    /// The threads of the dataplane that `shared` describes, one for each of `parts`; at most
    /// [`shuffle::MAX_CORES`], further parts are left out.
    pub fn threads(
        shared: &Arc<Shared>,
        parts: Vec<Parts<N>>,
        elastic: ElasticConfig,
        config: ConservingConfig,
        now: Instant,
    ) -> Vec<ConservingThread<N>> {
        let cores = parts.len().min(shuffle::MAX_CORES);
        let (shuffle, takers) =
            (ShuffleLayer::new(cores, config.turns), (0..cores).map(|_| None).collect());
        let form = Form { shuffle, takers, classes: None };
        Self::build(shared, parts, elastic, config, form, now)
    }

    /// The same with one ready set for all cores.
    ///
    /// # Errors
    /// [`ClassError::Set`].
    pub fn ready_set(
        shared: &Arc<Shared>,
        parts: Vec<Parts<N>>,
        elastic: ElasticConfig,
        config: &ReadySetConfig,
        now: Instant,
    ) -> Result<Vec<ConservingThread<N>>, ClassError> {
        let ReadySetConfig { sharing, classes } = config;
        let cores = parts.len().min(shuffle::MAX_CORES);
        let (policy, weights) = (classes.policy(), classes.weights());
        let ready = ReadySet::new(classes.count(), policy, weights, sharing.turns)?;
        let takers = (0..cores).map(|_| ready.taker().map(Some)).collect::<Result<_, _>>()?;
        let shuffle = ShuffleLayer::by_class(cores, sharing.turns, ready);
        let form = Form { shuffle, takers, classes: Some(Arc::new(classes.clone())) };
        Ok(Self::build(shared, parts, elastic, *sharing, form, now))
    }

    fn build(
        shared: &Arc<Shared>,
        parts: Vec<Parts<N>>,
        elastic: ElasticConfig,
        config: ConservingConfig,
        form: Form,
        now: Instant,
    ) -> Vec<ConservingThread<N>> {
        let Form { shuffle, takers, classes } = form;
        let mut own = Vec::new();
        let side = |(core, parts): (usize, Parts<N>)| {
            let Parts { queues, pool, ports } = parts;
            own.push(Pool::new(pool.region(), config.pool_keep));
            let core = core as u8;
            let mut net =
                NetLayer::new(core, Arc::clone(shared), queues, pool, ports, elastic, now);
            net.classes = classes.clone().map(ClassTable::new);
            let layer = HomeLock::new(HomeLayer::new(net, core, now));
            Side { hints: Hints::default(), layer }
        };
        let sides: Box<[_]> =
            parts.into_iter().take(shuffle::MAX_CORES).enumerate().map(side).collect();
        let floor = Arc::new(Self { shuffle, sides, config });
        let thread = |(core, (pool, taker))| {
            let calls = calls_of(CallArray::new, elastic.calls.max(1), &shared.config);
            ConservingThread::new(Arc::clone(&floor), core, pool, taker, calls, now)
        };
        own.into_iter().zip(takers).enumerate().map(thread).collect()
    }
}
