//! Any order of calls, of acts of the peers and of time, against the [model](crate::model).

use std::cell::RefCell;

use clock::{Duration, Instant};
use domain::{CallError, ConnectError, Handle};
use proptest::prelude::*;
use proptest::test_runner::{FailurePersistence, FileFailurePersistence, TestRunner};
use stack::{Direction, NetworkPolicy, Rule, Transport};
use wire::{Endpoint, Ipv4Addr, Prefix};

use crate::START;
use crate::application::{Call, Heard, MESSAGE};
use crate::model::{Model, Verdict, flow_of};
use crate::peer::Act;
use crate::world::{BOUND, CORES, Domain, LISTEN, MODES, Mode, PEER_PORTS, PEERS, Sent, World};

/// Ports from which peers connect: few, so that slots and flows come again.
const OWN_PORTS: [u16; 2] = [4_000, 4_001];
/// The port from which the last connection of a case comes.
const LAST_PORT: u16 = 5_000;

/// Where the seeds of failed cases are kept.
const FAILED_SEEDS: &str =
    concat!(env!("CARGO_MANIFEST_DIR"), "/tests/proptest-regressions/policy.txt");

/// A handle, as an application comes by it.
#[derive(Clone, Copy, Debug)]
enum Pick {
    /// One that it has heard of, alive or not.
    Heard(usize),
    /// That of a connection between these ends, or of one before or after it there.
    Guess { peer: usize, own: usize, port: usize, slot: u32, generation: u32 },
}

/// A call on a connection.
#[derive(Clone, Copy, Debug)]
enum On {
    Accept,
    Send,
    RecvDone(usize),
    Close,
    Abort,
    Again,
}

/// One step of a case. Numbers are indices, some of them beyond what there is.
#[derive(Clone, Copy, Debug)]
enum Step {
    Call(usize, On, Pick),
    Connect { core: usize, peer: usize, port: usize },
    Datagram { core: usize, from: usize, peer: usize, port: usize },
    PeerConnect { peer: usize, own: usize, port: usize },
    PeerDatagram { peer: usize, own: usize, port: usize },
    PeerSend { peer: usize, connection: usize },
    PeerClose { peer: usize, connection: usize },
    PeerAbort { peer: usize, connection: usize },
    Migrate { peer: usize, own: usize, port: usize },
    Pass(usize),
}

/// Time that passes at once.
const PAUSES: [Duration; 3] = [Duration::from_millis(1), Duration::from_secs(1), LONG];
/// No datagram may be answered any more.
const LONG: Duration = Duration::from_secs(31);

#[derive(Clone, Debug)]
struct Case {
    mode: usize,
    policy: NetworkPolicy,
    /// Each step, and how many rounds follow it.
    steps: Vec<(Step, usize)>,
    /// Whom the last, honest steps are about: a peer, and ports of both sides.
    last: (usize, usize, usize),
}

fn rule() -> impl Strategy<Value = Rule> {
    let networks = prop::sample::select(vec![
        (Ipv4Addr::new(0, 0, 0, 0), 0),
        (Ipv4Addr::new(10, 1, 0, 0), 16),
        (PEERS[0], 32),
        (Ipv4Addr::new(10, 1, 0, 3), 31),
        (Ipv4Addr::new(10, 2, 77, 1), 15),
        (Ipv4Addr::new(11, 0, 0, 0), 8),
    ]);
    let ports =
        prop::sample::select(vec![0..=u16::MAX, 7..=7, 8..=9, 53..=53, 80..=81, 0..=6, 54..=80]);
    let direction = prop::sample::select(vec![Direction::In, Direction::Out]);
    let transport = prop::sample::select(vec![None, Some(Transport::Tcp), Some(Transport::Udp)]);
    (any::<bool>(), direction, transport, networks, ports).prop_map(
        |(allow, direction, transport, (network, bits), ports)| Rule {
            allow,
            direction,
            transport,
            network: Some(Prefix::new(network.into(), bits)),
            ports,
        },
    )
}

fn policy() -> impl Strategy<Value = NetworkPolicy> {
    let source_ports =
        prop::sample::select(vec![None, Some(vec![7..=7]), Some(vec![7..=7, 9..=9])]);
    (prop::collection::vec(rule(), 0..4), any::<bool>(), any::<bool>(), source_ports).prop_map(
        |(rules, allow_out, allow_in, source_ports)| NetworkPolicy {
            rules,
            allow_out,
            allow_in,
            source_ports,
            listen: Vec::new(),
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let (peer, port, own, core) =
        (0..PEERS.len(), 0..PEER_PORTS.len(), 0..OWN_PORTS.len(), 0..CORES);
    let ends = || (0..PEERS.len(), 0..OWN_PORTS.len(), 0..LISTEN.len());
    let pick = prop_oneof![
        (0..8_usize).prop_map(Pick::Heard),
        (ends(), 0..2_u32, 0..3_u32).prop_map(|((peer, own, port), slot, generation)| {
            Pick::Guess { peer, own, port, slot, generation }
        }),
    ];
    let on = prop_oneof![
        4 => Just(On::Accept),
        4 => Just(On::Send),
        1 => (0..2 * MESSAGE).prop_map(On::RecvDone),
        1 => Just(On::Close),
        1 => Just(On::Abort),
        1 => Just(On::Again),
    ];
    let of_peer = || (0..PEERS.len(), 0..3_usize);
    prop_oneof![
        8 => (core.clone(), on, pick).prop_map(|(core, on, pick)| Step::Call(core, on, pick)),
        2 => (core.clone(), peer.clone(), port.clone())
            .prop_map(|(core, peer, port)| Step::Connect { core, peer, port }),
        2 => (core, 0..3_usize, peer.clone(), port.clone()).prop_map(
            |(core, from, peer, port)| Step::Datagram { core, from, peer, port }
        ),
        4 => ends().prop_map(|(peer, own, port)| Step::PeerConnect { peer, own, port }),
        2 => (peer, own, port).prop_map(|(peer, own, port)| Step::PeerDatagram { peer, own, port }),
        3 => of_peer().prop_map(|(peer, connection)| Step::PeerSend { peer, connection }),
        1 => of_peer().prop_map(|(peer, connection)| Step::PeerClose { peer, connection }),
        1 => of_peer().prop_map(|(peer, connection)| Step::PeerAbort { peer, connection }),
        1 => ends().prop_map(|(peer, own, port)| Step::Migrate { peer, own, port }),
        1 => (0..PAUSES.len()).prop_map(Step::Pass),
    ]
}

fn case() -> impl Strategy<Value = Case> {
    // Each scheduler with each placement, equally often.
    let mode = 0..MODES.len();
    let steps = prop::collection::vec((step(), 0..4_usize), 1..12);
    let last = (0..PEERS.len(), 0..PEER_PORTS.len(), 0..LISTEN.len());
    (mode, policy(), steps, last).prop_map(|(mode, policy, steps, last)| Case {
        mode,
        policy,
        steps,
        last,
    })
}

/// A case under way.
struct Run<'d> {
    world: World<'d>,
    model: Model,
    /// Handles that the application has heard of.
    handles: Vec<Handle>,
    /// Peers of the application's connections, by cookie.
    connects: Vec<Endpoint>,
    /// All that it heard, by core.
    heard: Vec<(usize, Heard)>,
}

type Checked = Result<(), String>;

impl Run<'_> {
    fn step(&mut self, step: Step) {
        let world = &mut self.world;
        match step {
            Step::Call(core, on, pick) => {
                let handle = match pick {
                    Pick::Heard(index) => match self.handles.len() {
                        0 => Handle::new(0, 0, 0),
                        count => self.handles[index % count],
                    },
                    Pick::Guess { peer, own, port, slot, generation } => {
                        let peer = Endpoint::new(PEERS[peer], OWN_PORTS[own]);
                        world.guess(peer, LISTEN[port], slot, generation)
                    }
                };
                world.call(core, call(on, handle));
            }
            Step::Connect { core, peer, port } => {
                self.connect(core, Endpoint::new(PEERS[peer], PEER_PORTS[port]));
            }
            Step::Datagram { core, from, peer, port } => {
                let peer = Endpoint::new(PEERS[peer], PEER_PORTS[port]);
                world.call(core, Call::Datagram(7 + from as u16, peer));
            }
            Step::PeerConnect { peer, own, port } => {
                world.peers[peer].acts.push(Act::Connect(OWN_PORTS[own], LISTEN[port]));
            }
            Step::PeerDatagram { peer, own, port } => {
                self.datagram_of(peer, PEER_PORTS[own], 7 + port as u16);
            }
            Step::PeerSend { peer, connection } => {
                world.peers[peer].acts.push(Act::Send(connection));
            }
            Step::PeerClose { peer, connection } => {
                world.peers[peer].acts.push(Act::Close(connection));
            }
            Step::PeerAbort { peer, connection } => {
                world.peers[peer].acts.push(Act::Abort(connection));
            }
            Step::Migrate { peer, own, port } => {
                world.migrate(Endpoint::new(PEERS[peer], OWN_PORTS[own]), LISTEN[port]);
            }
            Step::Pass(pause) => {
                // What a peer has sent arrives before: the model counts from then.
                world.round();
                world.round();
                world.pass(PAUSES[pause]);
            }
        }
    }

    /// Answers the cookie.
    fn connect(&mut self, core: usize, peer: Endpoint) -> u64 {
        let cookie = self.connects.len() as u64;
        self.connects.push(peer);
        self.world.call(core, Call::Connect(cookie, peer));
        cookie
    }

    fn datagram_of(&mut self, peer: usize, own: u16, port: u16) {
        if BOUND.contains(&port) {
            let now = self.world.now;
            self.model.note_datagram(Endpoint::new(PEERS[peer], own), port, now);
        }
        self.world.peers[peer].acts.push(Act::Datagram(own, port));
    }

    /// Nothing passed that the model denies.
    fn check(&mut self) -> Checked {
        for (at, sent) in self.world.sent.drain(..) {
            let passes = match sent {
                Sent::Tcp { peer, local_port, is_reset } => {
                    is_reset || self.model.is_connection(peer, local_port)
                }
                Sent::Udp { peer, local_port } => {
                    self.model.leaves(peer, local_port, at) != Verdict::MustNot
                }
                Sent::Other => true,
            };
            if !passes {
                return Err(format!("{sent:?} left"));
            }
        }
        for core in 0..CORES {
            let heard = self.world.application(core, |own| std::mem::take(&mut own.heard));
            for heard in heard {
                self.check_heard(&heard)?;
                self.heard.push((core, heard));
            }
        }
        for peer in &self.world.peers {
            for connection in peer.connections.iter().filter(|one| one.received > 0) {
                let (own, port) = connection.ports;
                if !self.model.is_connection(Endpoint::new(peer.address, own), port) {
                    return Err(format!("bytes reached {} at {own}", peer.address));
                }
            }
        }
        Ok(())
    }

    fn check_heard(&mut self, heard: &Heard) -> Checked {
        let model = &self.model;
        let passes = match *heard {
            Heard::Knock { handle, peer, local_port } => {
                self.handles.push(handle);
                model.peer_connects(peer, local_port)
            }
            Heard::Connected { cookie, outcome } => {
                self.handles.extend(outcome.ok());
                let connects = model.connects(self.connects[cookie as usize]);
                connects != (outcome == Err(ConnectError::Forbidden))
            }
            Heard::Bytes { handle, ref data } => {
                self.handles.push(handle);
                return model.check_bytes(data);
            }
            Heard::Datagram { peer, local_port, ref data } => {
                flow_of(data) == (peer, local_port) && model.comes_in(peer, local_port)
            }
            // Handles of connections that were accepted before their knock.
            Heard::Dead(handle) | Heard::Of(handle) => {
                self.handles.push(handle);
                true
            }
            Heard::Failed(_) => true,
        };
        if passes { Ok(()) } else { Err(format!("the application heard {heard:?}")) }
    }

    fn settle(&mut self) -> Checked {
        self.world.settle();
        self.check()
    }

    /// From here on the application accepts each knock and gives all bytes back: what the model permits works.
    fn last(&mut self, (peer, peer_port, port): (usize, usize, usize)) -> Checked {
        for core in 0..CORES {
            self.world.application(core, |application| application.is_honest = true);
        }
        let far = Endpoint::new(PEERS[peer], PEER_PORTS[peer_port]);
        self.last_datagrams(peer, far, BOUND[port])?;
        self.last_connection_in(peer, LISTEN[port])?;
        self.last_connection_out(peer, far)
    }

    /// A datagram to the peer, one of the peer's, an answer to that, and one that comes too late.
    fn last_datagrams(&mut self, peer: usize, far: Endpoint, port: u16) -> Checked {
        self.last_datagram_out(peer, far, port)?;
        let before = self.heard.len();
        self.datagram_of(peer, far.port, port);
        self.settle()?;
        let came = self.heard[before..].iter().any(|(_, heard)| {
            matches!(heard, Heard::Datagram { peer, local_port, .. } if (*peer, *local_port) == (far, port))
        });
        ensure(came == self.model.comes_in(far, port), || format!("datagram of {far}: {came}"))?;
        self.last_datagram_out(peer, far, port)?;
        self.world.pass(LONG);
        self.settle()?;
        self.last_datagram_out(peer, far, port)
    }

    fn last_datagram_out(&mut self, peer: usize, far: Endpoint, port: u16) -> Checked {
        let (before, expected) = (self.heard.len(), self.model.leaves(far, port, self.world.now));
        self.world.peers[peer].datagrams.clear();
        self.world.call(0, Call::Datagram(port, far));
        self.settle()?;
        let came = self.world.peers[peer].datagrams.contains(&(port, far.port));
        let is_refused = self.heard[before..].contains(&(0, Heard::Failed(CallError::Forbidden)));
        ensure(came != is_refused, || format!("datagram to {far}: {came}, {is_refused}"))?;
        let fits = expected == Verdict::May || came == (expected == Verdict::Must);
        ensure(fits, || format!("datagram to {far} from {port}: {expected:?}, and {came}"))
    }

    fn last_connection_in(&mut self, peer: usize, port: u16) -> Checked {
        let (number, before) = (self.world.peers[peer].connections.len(), self.heard.len());
        let far = Endpoint::new(PEERS[peer], LAST_PORT);
        self.world.peers[peer].acts.push(Act::Connect(LAST_PORT, port));
        self.settle()?;
        let is_open = self.world.peers[peer].connections[number].handle.is_some();
        let expected = self.model.peer_connects(far, port);
        ensure(is_open == expected, || format!("{far} connects to {port}: {is_open}"))?;
        let knocked = self.heard[before..].iter().find_map(|(core, heard)| match *heard {
            Heard::Knock { handle, peer, local_port } if (peer, local_port) == (far, port) => {
                Some((*core, handle))
            }
            _ => None,
        });
        ensure(knocked.is_some() == expected, || format!("knock of {far}: {knocked:?}"))?;
        match knocked {
            Some((core, handle)) => self.exchange(core, handle, peer, number),
            None => Ok(()),
        }
    }

    fn last_connection_out(&mut self, peer: usize, far: Endpoint) -> Checked {
        let (number, before) = (self.world.peers[peer].connections.len(), self.heard.len());
        let cookie = self.connect(1, far);
        self.settle()?;
        let outcome = self.heard[before..].iter().find_map(|(core, heard)| match *heard {
            Heard::Connected { cookie: of, outcome } if of == cookie => Some((*core, outcome)),
            _ => None,
        });
        match outcome {
            Some((core, Ok(handle))) => self.exchange(core, handle, peer, number),
            Some((_, Err(ConnectError::Forbidden))) => Ok(()),
            _ => Err(format!("the connection to {far} ended so: {outcome:?}")),
        }
    }

    /// A message each way.
    fn exchange(&mut self, core: usize, handle: Handle, peer: usize, number: usize) -> Checked {
        let before = self.heard.len();
        self.world.peers[peer].acts.push(Act::Send(number));
        self.world.call(core, Call::Send(handle));
        self.settle()?;
        let bytes = self.heard[before..].iter().filter_map(|(_, heard)| match heard {
            Heard::Bytes { handle: of, data } if *of == handle => Some(data.len()),
            _ => None,
        });
        let (came, went) =
            (bytes.sum::<usize>(), self.world.peers[peer].connections[number].received);
        ensure((came, went) == (MESSAGE, MESSAGE), || format!("{came} bytes in, {went} out"))
    }
}

fn ensure(holds: bool, otherwise: impl FnOnce() -> String) -> Checked {
    if holds { Ok(()) } else { Err(otherwise()) }
}

fn call(on: On, handle: Handle) -> Call {
    match on {
        On::Accept => Call::Accept(handle),
        On::Send => Call::Send(handle),
        On::RecvDone(bytes) => Call::RecvDone(handle, bytes),
        On::Close => Call::Close(handle),
        On::Abort => Call::Abort(handle),
        On::Again => Call::Again(handle),
    }
}

fn run(case: &Case, domain: &mut Domain, now: Instant) -> Checked {
    let mut run = Run {
        world: World::new(domain, &case.policy, now),
        model: Model::new(&case.policy),
        handles: Vec::new(),
        connects: Vec::new(),
        heard: Vec::new(),
    };
    for (step, rounds) in &case.steps {
        run.step(*step);
        for _ in 0..*rounds {
            run.world.round();
        }
        run.check()?;
    }
    run.settle()?;
    run.last(case.last)?;
    run.world.end();
    Ok(())
}

/// `PROPTEST_CASES=1000000` is the long run (`scripts/nightly.sh policy`). The seeds of failed cases are kept in
/// [`FAILED_SEEDS`], and every run tries these first.
#[test]
fn no_order_of_calls_passes_the_policy() {
    let kept: Box<dyn FailurePersistence> = Box::new(FileFailurePersistence::Direct(FAILED_SEEDS));
    let mut config =
        ProptestConfig { failure_persistence: Some(kept), ..ProptestConfig::default() };
    // Each case is short; the default number is for a run of a few seconds.
    if std::env::var_os("PROPTEST_CASES").is_none() {
        config.cases = 1_000;
    }
    let domains: RefCell<[Option<Domain>; MODES.len()]> = RefCell::new([const { None }; _]);
    let ran = TestRunner::new(config).run(&case(), |case| {
        let mode: Mode = MODES[case.mode];
        // A domain in which a case fails is not used again.
        let domain = domains.borrow_mut()[case.mode].take();
        let mut domain = domain.unwrap_or_else(|| Domain::new(mode));
        run(&case, &mut domain, START)
            .map_err(|found| TestCaseError::fail(format!("{mode:?}: {found}")))?;
        domains.borrow_mut()[case.mode] = Some(domain);
        Ok(())
    });
    if let Err(failure) = ran {
        panic!("{failure}");
    }
}
