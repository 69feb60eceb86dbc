//! The two ends by themselves, and two threads with all that is between them.

use alloc::rc::Rc;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::cell::RefCell;

use clock::{Duration, Instant};
use domain::{Calls, Cookie, Event, Events, Handle, Service};
use mem::{Pool, Region};
use stack::{FORWARDED, GroupSet, Shared};
use wire::MacAddr;

use super::*;
use crate::leave_tests::{CHUNKS, CLIENT, CLIENT_CHUNKS, CORES, Port, SERVER, Wire, parts, shared};
use crate::{
    ConservingConfig, Elastic, ElasticConfig, ElasticThread, Floor, ForwardPorts, MigrationConfig,
    Parts,
};

const AT: fn(u64) -> Instant = Instant::from_micros;

fn command(groups: GroupSet, to: u8) -> MoveCommand {
    MoveCommand { token: 9, groups, to }
}

fn departures() -> Departures {
    let timer = Duration::from_micros(100);
    Departures::new(0, &MigrationConfig { timer, ..MigrationConfig::default() })
}

fn some() -> GroupSet {
    [3, 5].into_iter().collect()
}

#[test]
fn groups_are_sealed_when_nothing_can_come_any_more() {
    let mut ends = departures();
    let (sets, alive) = ([some(), GroupSet::NONE], 0b111);
    let id = ends.begin(AT(1), &command(some(), 1), sets, 3, alive).expect("fine").id;
    ends.met(id);
    ends.fenced(id, 1);
    assert!(ends.step(AT(5), 7, 0).is_empty(), "core 2 has not said so");
    ends.fenced(id, 2);
    assert!(ends.step(AT(10), 7, 0).is_empty(), "seven packets are still to be processed");
    ends.processed(6, false);
    assert!(ends.step(AT(11), 9, 0).is_empty());
    ends.processed(1, false);
    assert_eq!(ends.step(AT(12), 9, 0), some());
    assert_eq!(ends.sealed().collect::<Vec<_>>(), [(id, some(), 1)]);
    ends.handed(id, 4);
    assert!(!ends.has_sealed() && !ends.is_empty());
    let done = ends.done(id).expect("under way");
    assert_eq!((done.prepared_at, done.sealed_at, done.connections), (AT(10), AT(12), 4));
    assert!(ends.is_empty());
}

#[test]
fn the_timer_ends_a_wait_and_an_empty_ring_a_drain() {
    let mut ends = departures();
    let id = ends.begin(AT(1), &command(some(), 1), [some(), GroupSet::NONE], 2, 0b11);
    let id = id.expect("fine").id;
    ends.fenced(id, 1);
    assert!(ends.step(AT(10), 50, 0).is_empty());
    assert_eq!(ends.next_deadline(), Some(AT(110)));
    assert!(ends.step(AT(109), 50, 0).is_empty() && !ends.is_pending());
    assert!(ends.step(AT(110), 50, 0).is_empty() && ends.is_pending());
    ends.processed(2, true);
    assert_eq!(ends.step(AT(111), 0, 0), some());
}

#[test]
fn a_core_that_answers_no_fence_is_not_waited_for() {
    let mut ends = departures();
    let (sets, alive) = ([some(), GroupSet::NONE], 0b111);
    let id = ends.begin(AT(1), &command(some(), 1), sets, 3, alive).expect("fine").id;
    ends.fenced(id, 1);
    ends.met(id);
    assert!(ends.step(AT(5_000), 0, 0).is_empty(), "core 2 may be about to answer");
    assert_eq!((ends.next_deadline(), ends.unanswered()), (Some(AT(5_001)), 0));
    ends.step(AT(5_001), 0, 0);
    ends.processed(1, true);
    assert_eq!((ends.step(AT(5_002), 0, 0), ends.unanswered()), (some(), 1));
}

#[test]
fn a_probe_ends_a_wait_once_what_came_before_it_is_processed() {
    let mut ends = departures();
    let sets = [some(), GroupSet::NONE];
    let id = ends.begin(AT(1), &command(some(), 1), sets, 2, 0b11).expect("fine").id;
    assert!(!ends.awaits_probes());
    ends.probing(id, 77);
    assert!(ends.awaits_probes() && !ends.probed(78));
    // Though a packet has come to the new home: older ones may still be on their way here.
    ends.met(id);
    ends.fenced(id, 1);
    assert!(ends.step(AT(10), 50, 3).is_empty() && !ends.is_pending());
    assert_eq!(ends.next_deadline(), Some(AT(110)));
    assert!(ends.probed(77) && !ends.probed(77) && !ends.awaits_probes());
    // The fifty in the ring are younger than the probe; the three are not.
    assert!(ends.step(AT(11), 50, 3).is_empty() && ends.is_pending());
    ends.processed(2, false);
    assert!(ends.step(AT(12), 50, 1).is_empty());
    ends.processed(9, false);
    assert_eq!(ends.step(AT(13), 50, 0), some());
}

#[test]
fn a_probe_may_come_before_the_fences_and_may_be_lost() {
    let begin = |ends: &mut Departures| {
        let sets = [some(), GroupSet::NONE];
        let id = ends.begin(AT(1), &command(some(), 1), sets, 2, 0b11).expect("fine").id;
        ends.probing(id, 5);
        id
    };
    let mut ends = departures();
    let id = begin(&mut ends);
    assert!(ends.probed(5));
    assert!(ends.step(AT(2), 0, 0).is_empty(), "core 1 may still send");
    ends.fenced(id, 1);
    assert_eq!(ends.step(AT(3), 9, 0), some(), "at once");

    let mut ends = departures();
    let id = begin(&mut ends);
    ends.fenced(id, 1);
    ends.met(id);
    assert!(ends.step(AT(10), 0, 0).is_empty() && ends.step(AT(109), 0, 0).is_empty());
    assert!(ends.step(AT(110), 4, 0).is_empty() && ends.is_pending());
    ends.processed(4, false);
    assert_eq!(ends.step(AT(111), 0, 0), some());
}

#[test]
fn whoever_has_left_is_not_waited_for() {
    let mut ends = departures();
    let id = ends.begin(AT(1), &command(some(), 1), [some(), GroupSet::NONE], 3, 0b111);
    let id = id.expect("fine").id;
    ends.fenced(id, 1);
    ends.met(id);
    assert!(ends.alive(0b011).is_empty());
    ends.step(AT(2), 0, 0);
    ends.processed(0, true);
    assert_eq!(ends.step(AT(3), 0, 0), some());
    let gone = ends.alive(0b001);
    assert_eq!((gone.len(), gone[0].is_sealed(), ends.is_empty()), (1, true, true));
}

#[test]
fn what_cannot_be_moved_is_refused_with_its_reason() {
    let mut ends = departures();
    let here: GroupSet = (0..40).collect();
    let coming = GroupSet::one(50);
    let mut begin = |groups: GroupSet, to| {
        let begun = ends.begin(AT(1), &command(groups, to), [here, coming], 3, 0b011);
        begun.map(|_| ()).map_err(|error| alloc::format!("{error}"))
    };
    let refused = |text: &str| Err(text.to_owned());
    assert_eq!(begin(GroupSet::NONE, 1), refused("no flow group was named"));
    let text = "there is no elastic thread 3: there are 3, from 0 on";
    assert_eq!(begin(some(), 3), refused(text));
    assert_eq!(begin(some(), 0), refused("thread 0 is their home already"));
    assert_eq!(begin(some(), 2), refused("thread 2 has left"));
    let text = "flow group 60 is not at home here: ask its home";
    assert_eq!(begin(some().union(GroupSet::one(60)), 1), refused(text));
    let under_way = "under way: wait for the report";
    assert_eq!(begin(coming, 1), refused(&alloc::format!("flow group 50 is {under_way}")));
    assert_eq!(begin(some(), 1), Ok(()));
    assert_eq!(begin(GroupSet::one(5), 1), refused(&alloc::format!("flow group 5 is {under_way}")));
    for group in (6..).take(MOVES_MAX - 1) {
        assert_eq!(begin(GroupSet::one(group), 1), Ok(()));
    }
    assert!(begin(GroupSet::one(39), 1).expect_err("too many").contains("wait for a report"));
}

#[test]
fn parked_packets_keep_their_order_and_go_first() {
    let mut pool = Pool::new(&Region::heap(16), 16);
    let mut packet = |number, forwarded: bool| {
        let mut mbuf = pool.alloc().expect("a chunk");
        mbuf.append(&[number]).expect("room");
        mbuf.tag = if forwarded { FORWARDED } else { 0 };
        mbuf
    };
    let mut ends = Arrivals::new(4);
    let id = |number| MoveId { from: 0, number };
    assert_eq!(ends.park(5, packet(1, true)).ok(), Some(None));
    assert!(!ends.expect(id(1), some()), "what came was forwarded");
    assert_eq!(ends.park(9, packet(2, false)).ok(), Some(None));
    assert!(ends.expect(id(2), GroupSet::one(9)), "it came before the word did");
    assert_eq!(ends.park(3, packet(3, true)).ok(), Some(None));
    assert_eq!(ends.park(5, packet(4, false)).ok(), Some(Some(id(1))), "the first of its own ring");
    let full = ends.park(5, packet(5, false)).expect_err("there is room for four");
    assert_eq!(ends.coming(), some().union(GroupSet::one(9)));
    assert_eq!(ends.adopted(id(1), some(), AT(7)), 3);
    assert!(ends.finish(AT(8)).is_none());
    let mut out = Vec::new();
    assert_eq!(ends.take_deferred(&mut out, 2), 2);
    assert!(ends.finish(AT(8)).is_none() && ends.has_deferred());
    assert_eq!(ends.take_deferred(&mut out, 2), 1);
    let finished = Finished { packets: 3, adopted_at: AT(7), done_at: AT(9) };
    assert_eq!(ends.finish(AT(9)), Some((id(1), finished)));
    // The other one does not come: its packet goes where the group is.
    ends.cancel(id(2));
    assert_eq!(ends.take_deferred(&mut out, 9), 1);
    let order: Vec<u8> = out.iter().map(|mbuf| mbuf.bytes()[0]).collect();
    assert_eq!((order, ends.is_empty(), ends.waiting()), (alloc::vec![1, 3, 4, 2], true, 0));
    out.into_iter().chain([full]).for_each(|mbuf| pool.free(mbuf));
    assert_eq!(pool.available(), 16);
}

#[test]
fn phases_are_counted_by_their_length() {
    let mut stats = MigrationStats::default();
    let moments = [0, 3, 10, 11, 1_000].map(AT);
    let times = PhaseTimes::between(moments);
    assert_eq!(Phase::ALL.map(|phase| times.of_ns(phase)), [3_000, 7_000, 1_000, 989_000]);
    for _ in 0..2 {
        stats.complete(&Moved { groups: 2, connections: 3, packets: 4, times });
    }
    assert_eq!((stats.groups, stats.connections, stats.packets), (4, 6, 8));
    let wait = stats.phases[Phase::Wait as usize];
    assert_eq!((wait.count, wait.sum_ns, wait.max_ns, wait.histogram[2]), (2, 14_000, 7_000, 2));
    assert_eq!(wait.mean(), Duration::from_micros(7));
    assert_eq!((stats.total.max_ns, stats.total.histogram[9]), (1_000_000, 2));
    let mut both = stats;
    both += stats;
    assert_eq!((both.total.count, both.phases[0].histogram[1]), (4, 4));
}

/// Echoes on any core; core 0 also says numbered words on connections by its own wish, wherever they are.
struct Speaker {
    core: u8,
    lines: Rc<RefCell<Vec<(Handle, u8)>>>,
    speaks: Rc<RefCell<bool>>,
    failures: Rc<RefCell<usize>>,
}

impl Service for Speaker {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            match event {
                Event::Knock { handle, .. } => {
                    calls.accept(handle, Cookie(1)).expect("room");
                    self.lines.borrow_mut().push((handle, 0));
                }
                Event::Recv { handle, data, .. } => {
                    calls.recv_done(handle, data.len()).expect("room");
                }
                Event::Failed { .. } => *self.failures.borrow_mut() += 1,
                _ => {}
            }
        }
        if self.core == 0 && *self.speaks.borrow() {
            for (handle, next) in self.lines.borrow_mut().iter_mut() {
                // What has no acknowledgment yet takes memory.
                if calls.sendv(*handle, &[&[*next]]).is_ok() {
                    *next = next.wrapping_add(1);
                }
            }
        }
    }
    fn wake_at(&self) -> Option<Instant> {
        (self.core == 0 && *self.speaks.borrow()).then_some(Instant::ZERO)
    }
    fn runs_anywhere(&self) -> bool {
        true
    }
}

/// Opens connections, and checks the numbers that it hears.
#[derive(Default)]
struct Listener {
    asked: usize,
    lines: Vec<(Handle, u8)>,
    heard: usize,
    wrong: usize,
    dead: usize,
}

/// A cycle takes so many times as long under Miri, where it takes fewer of them to end a move.
const TIMES: u32 = if cfg!(miri) { 5 } else { 1 };
/// Cycles that end every move.
const LONG: usize = 300 / TIMES as usize;
const LINES: usize = if cfg!(miri) { 8 } else { 24 };

impl Service for Listener {
    fn on_batch(&mut self, _: Instant, events: Events<'_>, calls: &mut Calls<'_>) {
        for event in events.iter() {
            match event {
                Event::Connected { outcome, .. } => {
                    self.lines.push((outcome.expect("it is let in").0, 0));
                }
                Event::Recv { handle, data, .. } => {
                    let line = self.lines.iter_mut().find(|(line, _)| *line == handle);
                    let (_, next) = line.expect("a line");
                    for &byte in data {
                        self.wrong += usize::from(byte != *next);
                        *next = next.wrapping_add(1);
                    }
                    self.heard += data.len();
                    calls.recv_done(handle, data.len()).expect("room");
                }
                Event::Dead { .. } => self.dead += 1,
                _ => {}
            }
        }
        while self.asked < LINES && calls.connect(Cookie(0), SERVER).is_ok() {
            self.asked += 1;
        }
    }
    fn wake_at(&self) -> Option<Instant> {
        (self.asked < LINES).then_some(Instant::ZERO)
    }
}

struct Rig<T> {
    threads: Vec<T>,
    speakers: Vec<Speaker>,
    controls: Vec<MoveControl>,
    shared: Arc<Shared>,
    region: Arc<Region>,
    client: ElasticThread<Port>,
    listener: Listener,
    now: Instant,
}

type Make<T> = fn(&Arc<Shared>, Vec<Parts<Port>>, ElasticConfig) -> Vec<T>;

fn completing(
    shared: &Arc<Shared>,
    parts: Vec<Parts<Port>>,
    config: ElasticConfig,
) -> Vec<ElasticThread<Port>> {
    let thread = |(core, Parts { queues, pool, ports })| {
        let shared = Arc::clone(shared);
        ElasticThread::new(core as u8, shared, queues, pool, ports, config, Instant::ZERO)
    };
    parts.into_iter().enumerate().map(thread).collect()
}

fn conserving(
    shared: &Arc<Shared>,
    parts: Vec<Parts<Port>>,
    config: ElasticConfig,
) -> Vec<crate::ConservingThread<Port>> {
    Floor::threads(shared, parts, config, ConservingConfig::default(), Instant::ZERO)
}

impl<T: Elastic> Rig<T> {
    fn new(make: Make<T>, mistake: Option<Mistake>) -> Self {
        let wire = Wire::default();
        let (region, client_region) = (Region::heap(CHUNKS), Region::heap(CLIENT_CHUNKS));
        let client = ElasticThread::new(
            0,
            shared(CLIENT, MacAddr([2, 0, 0, 0, 0, 2]), 1),
            Port::new(&wire, CORES, 0),
            Pool::new(&client_region, 256),
            ForwardPorts::default(),
            ElasticConfig::default(),
            Instant::ZERO,
        );
        let shared = shared(SERVER.addr, MacAddr([2, 0, 0, 0, 0, 1]), CORES);
        let migration = MigrationConfig { mistake, ..MigrationConfig::default() };
        let config = ElasticConfig { migration, ..ElasticConfig::default() };
        let mut threads = make(&shared, parts(&region, &wire), config);
        let (lines, speaks, failures) = Default::default();
        let speaker = |core| Speaker {
            core,
            lines: Rc::clone(&lines),
            speaks: Rc::clone(&speaks),
            failures: Rc::clone(&failures),
        };
        let speakers = (0..CORES as u8).map(speaker).collect();
        let obey = |thread: &mut T| {
            let (control, mailbox) = move_mailbox(4);
            thread.obey(mailbox);
            control
        };
        let controls = threads.iter_mut().map(obey).collect();
        let (listener, now) = (Listener::default(), AT(1_000));
        let mut rig = Self { threads, speakers, controls, shared, region, client, listener, now };
        rig.go_on(LONG / 5);
        assert_eq!(rig.listener.lines.len(), LINES);
        rig
    }

    fn go_on(&mut self, cycles: usize) {
        for _ in 0..cycles {
            self.now += Duration::from_micros(5) * TIMES;
            while self.client.run_cycle(self.now, &mut self.listener).pending {}
            for (thread, speaker) in self.threads.iter_mut().zip(&mut self.speakers) {
                self.now += Duration::from_micros(1) * TIMES;
                thread.cycle(self.now, &mut self.now, speaker);
            }
        }
    }

    fn speak(&self, speaks: bool) {
        *self.speakers[0].speaks.borrow_mut() = speaks;
    }

    fn home_of(&self, core: u8) -> GroupSet {
        (0..128).filter(|&group| self.shared.home_of(group) == core).collect()
    }

    fn connections(&self) -> Vec<u32> {
        self.threads.iter().map(|one| one.inspect(|stack, _| stack.connections())).collect()
    }

    fn post(&mut self, core: usize, groups: GroupSet, to: u8) {
        self.controls[core].post(command(groups, to)).expect("room");
    }

    fn migrations(&self) -> MigrationStats {
        let mut total = MigrationStats::default();
        self.threads.iter().for_each(|thread| total += thread.migrations());
        total
    }

    /// All of the server's memory comes back.
    fn account(mut self) {
        for thread in core::mem::take(&mut self.threads) {
            thread.leave();
        }
        assert_eq!(self.region.depot_len(), self.region.chunks() as usize);
        Elastic::leave(self.client);
    }
}

/// Core 0 speaks in every cycle, before, while and after its connections become core 1's.
fn calls_follow_a_connection<T: Elastic>(make: Make<T>) {
    let mut rig = Rig::new(make, None);
    rig.speak(true);
    rig.go_on(20);
    let mine = rig.home_of(0);
    rig.post(0, mine, 1);
    rig.go_on(LONG);
    let report = rig.controls[0].report().expect("it is done");
    let moved = report.outcome.expect("nothing stands against it");
    assert_eq!((report.token, moved.groups), (9, mine.len()));
    assert_eq!(rig.connections(), [0, LINES as u32]);
    assert!(moved.connections > 0 && moved.times.of_ns(Phase::Wait) >= 1_000_000, "{moved:?}");
    rig.go_on(20);
    rig.speak(false);
    // Words beyond those in flight wait for acknowledgments, which are delayed.
    rig.go_on(20 * LONG);
    assert!(rig.listener.heard > 5 * LINES, "{} words", rig.listener.heard);
    assert_eq!(
        (rig.listener.wrong, rig.listener.dead, *rig.speakers[0].failures.borrow()),
        (0, 0, 0)
    );
    // Each word that was said was heard.
    let ends = |lines: &[(Handle, u8)]| lines.iter().map(|(_, next)| *next).collect::<Vec<_>>();
    let (mut said, mut heard) = (ends(&rig.speakers[0].lines.borrow()), ends(&rig.listener.lines));
    said.sort_unstable();
    heard.sort_unstable();
    assert_eq!(said, heard);
    let stats = rig.migrations();
    assert!(stats.calls_forwarded > 50 && stats.calls_refused == 0, "{stats:?}");
    rig.account();
}

#[test]
fn calls_follow_a_connection_under_either_scheduler() {
    calls_follow_a_connection(completing);
    calls_follow_a_connection(conserving);
}

#[test]
fn calls_that_are_refused_are_missed() {
    let mut rig = Rig::new(completing, Some(Mistake::RefuseCalls));
    rig.speak(true);
    let mine = rig.home_of(0);
    rig.post(0, mine, 1);
    rig.go_on(LONG);
    assert!(rig.listener.wrong + *rig.speakers[0].failures.borrow() > 0);
    assert!(rig.migrations().calls_refused > 0);
    rig.account();
}

/// All groups of each core to the other, in one moment; and again.
/// A command that came while its thread was about to sleep: the thread sees it and stays awake.
fn a_command_keeps_awake<T: Elastic>(make: Make<T>) {
    let mut rig = Rig::new(make, None);
    rig.go_on(if cfg!(miri) { 20 } else { 200 });
    assert!(rig.threads[0].sleeps(rig.now), "nothing is left");
    rig.threads[0].disarm();
    rig.post(0, rig.home_of(0), 1);
    assert!(!rig.threads[0].sleeps(rig.now), "there is a command");
    rig.go_on(if cfg!(miri) { LONG } else { 4_000 });
    assert_eq!(rig.migrations().completed, 1);
    rig.account();
}

#[test]
fn a_command_keeps_its_thread_awake() {
    a_command_keeps_awake(completing);
    a_command_keeps_awake(conserving);
}

fn moves_cross<T: Elastic>(make: Make<T>) {
    let mut rig = Rig::new(make, None);
    let before = rig.connections();
    assert!(before.iter().all(|&count| count > 0), "{before:?}");
    let rounds = if cfg!(miri) { 2 } else { 4 };
    for round in 1..=rounds {
        let (left, right) = (rig.home_of(0), rig.home_of(1));
        rig.post(0, left, 1);
        rig.post(1, right, 0);
        rig.speak(true);
        rig.go_on(LONG - LONG / 6);
        rig.speak(false);
        rig.go_on(20);
        assert_eq!((rig.home_of(0), rig.home_of(1)), (right, left));
        let now = rig.connections();
        let expected = if round % 2 == 1 { [before[1], before[0]] } else { [before[0], before[1]] };
        assert_eq!(now, expected);
        for control in &mut rig.controls {
            assert!(control.report().expect("done").outcome.is_ok());
        }
    }
    assert_eq!((rig.listener.wrong, rig.listener.dead), (0, 0));
    assert_eq!(
        (rig.migrations().completed, rig.migrations().groups),
        (2 * rounds, 2 * rounds * 64)
    );
    rig.account();
}

#[test]
fn moves_that_cross_each_other_both_come_to_their_end() {
    moves_cross(completing);
    moves_cross(conserving);
}

#[test]
fn a_second_move_of_a_group_that_is_under_way_is_refused() {
    let mut rig = Rig::new(completing, None);
    let mine = rig.home_of(0);
    rig.post(0, mine, 1);
    rig.post(0, GroupSet::one(2), 1);
    rig.go_on(1);
    let refused = rig.controls[0].report().expect("at once");
    assert_eq!(refused.outcome, Err(MoveError::UnderWay { group: 2 }));
    // Nor can its new home send it on before it has it.
    rig.post(1, GroupSet::one(2), 0);
    rig.go_on(1);
    let refused = rig.controls[1].report().expect("at once");
    assert_eq!(refused.outcome, Err(MoveError::UnderWay { group: 2 }));
    rig.go_on(LONG);
    assert!(rig.controls[0].report().expect("done").outcome.is_ok());
    assert_eq!(rig.controls[0].open(), 0);
    rig.account();
}

/// The new home leaves while the groups are under way: they stay, and their connections go on.
fn a_new_home_leaves<T: Elastic>(make: Make<T>, cycles: usize) {
    let mut rig = Rig::new(make, None);
    let mine = rig.home_of(0);
    let stay = rig.connections()[0];
    rig.speak(true);
    rig.post(0, mine, 1);
    rig.go_on(cycles);
    let mut leaving = rig.threads.pop().expect("two of them");
    rig.speak(false);
    while leaving.withdraw(rig.now) {
        rig.go_on(1);
    }
    leaving.leave();
    rig.go_on(LONG);
    let report = rig.controls[0].report().expect("it is given up");
    assert_eq!(report.outcome, Err(MoveError::HasLeft { to: 1 }));
    assert_eq!((rig.home_of(0), rig.connections()), (mine, alloc::vec![stay]));
    assert_eq!(rig.listener.dead, LINES - stay as usize);
    // Those that are left still talk.
    let heard = rig.listener.heard;
    let known = rig.listener.lines.clone();
    let here = |handle: &Handle| mine.has(handle.group());
    rig.speakers[0].lines.borrow_mut().retain(|(handle, _)| here(handle));
    rig.speak(true);
    rig.go_on(10);
    rig.speak(false);
    rig.go_on(20);
    assert!(rig.listener.heard - heard >= stay as usize);
    assert_eq!((rig.listener.wrong, known.len()), (0, LINES));
    rig.account();
}

#[test]
fn groups_stay_whose_new_home_leaves() {
    for &cycles in if cfg!(miri) { &[20][..] } else { &[1, 2, 5, 100] } {
        a_new_home_leaves(completing, cycles);
        a_new_home_leaves(conserving, cycles);
    }
}

/// The old home leaves while the groups are under way: whoever has them tells their peers.
fn an_old_home_leaves<T: Elastic>(make: Make<T>, cycles: usize) {
    let mut rig = Rig::new(make, None);
    let mine = rig.home_of(0);
    rig.post(0, mine, 1);
    rig.go_on(cycles);
    let mut left = crate::Left::default();
    for mut thread in core::mem::take(&mut rig.threads) {
        while thread.withdraw(rig.now) {
            rig.now += Duration::from_micros(5);
            while rig.client.run_cycle(rig.now, &mut rig.listener).pending {}
        }
        left += thread.leave();
    }
    rig.go_on(3);
    assert_eq!((left.connections.reset, left.connections.untold), (LINES as u64, 0));
    assert_eq!(rig.listener.dead, LINES);
    rig.account();
}

#[test]
fn whoever_has_the_groups_tells_their_peers_of_the_end() {
    let all = [1, 2, 3, 169, 170, 171, 172, 173, 174, 300];
    for &cycles in if cfg!(miri) { &[35][..] } else { &all } {
        an_old_home_leaves(completing, cycles);
        an_old_home_leaves(conserving, cycles);
    }
}
