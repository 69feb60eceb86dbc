//! A coordinator and its agents as threads on loopback, against an echo in this process. Nothing
//! asserted depends on how fast the machine is.

use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::agent::may_obey;
use super::frame::{self, HANDSHAKE_BYTES_MAX};
use super::message::{Answer, Challenge, PROTOCOL, ToAgent, ToCoordinator, Verdict};
use super::*;
use crate::config::{LoadConfig, Mode};
use crate::kernel::{KernelConfig, Wait};
use crate::report::LoadReport;
use crate::test_peers::EchoServer;

fn secret() -> Secret {
    Secret::new(b"a secret of the tests").expect("long enough")
}

fn coordinator(agents: u32, secret: Option<Secret>) -> Coordinator {
    let listen = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let config = CoordinatorConfig { listen, agents, wait: Duration::from_secs(20), secret };
    Coordinator::bind(config).expect("a loopback port")
}

fn agent_config(address: SocketAddr, secret: Option<Secret>) -> AgentConfig {
    AgentConfig {
        coordinator: address.to_string(),
        name: Some("a".to_owned()),
        cores: Vec::new(),
        wait: Duration::from_secs(20),
        secret,
    }
}

type AgentThread = JoinHandle<Result<(), RemoteError>>;

fn start_agent(config: AgentConfig) -> AgentThread {
    std::thread::spawn(move || serve(&config, &mut |_| {}))
}

fn load() -> LoadConfig {
    let mut load = LoadConfig::echo(64);
    load.mode = Mode::open(1_000.0);
    load.connections = 5;
    load.warmup_ms = 20;
    load.measure_ms = 200;
    load.verify_share = 1.0;
    load.lag_limit_us = 1_000_000;
    load
}

fn job(target: SocketAddr) -> KernelConfig {
    KernelConfig { wait: Wait::Block, ..KernelConfig::new(target) }
}

fn ended(agent: AgentThread) -> Result<(), RemoteError> {
    agent.join().expect("does not panic")
}

/// Gathers `agents` agents in threads of this process.
fn fleet(agents: u32) -> (Fleet, Vec<AgentThread>) {
    let coordinator = coordinator(agents, None);
    let address = coordinator.address();
    let threads = (0..agents).map(|_| start_agent(agent_config(address, None))).collect();
    (coordinator.gather(&mut |_| {}).expect("all come"), threads)
}

fn sum<T: std::iter::Sum>(report: &LoadReport, of: fn(&AgentReport) -> T) -> T {
    report.agents.iter().map(of).sum()
}

#[test]
fn two_agents_are_one_load_and_can_be_asked_again() {
    let server = EchoServer::start(|byte| byte);
    let (mut fleet, agents) = fleet(2);
    assert_eq!(fleet.names().len(), 2);
    for _ in 0..2 {
        let report = fleet.run(&load(), &job(server.address)).expect("runs");
        assert!(report.valid, "{:?}", report.invalid_reason);
        assert!(!report.partial && report.partial_reason.is_none());
        assert_eq!(report.offered_rps, Some(1_000.0));
        assert_eq!(report.conditions.threads, 2);
        let mut names: Vec<_> = report.agents.iter().map(|a| a.name.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["a", "a-2"]);
        // Three connections and two; the rate with them.
        assert_eq!(sum(&report, |a| a.connections), 5);
        let offered: f64 = sum(&report, |a| a.offered_rps.expect("open loop"));
        assert!((offered - 1_000.0).abs() < 1e-6, "{offered}");
        assert_eq!(sum(&report, |a| a.requests), report.requests);
        assert!((sum(&report, |a| a.achieved_rps) - report.achieved_rps).abs() < 1e-6);
        // 200 arrivals, give or take six standard deviations.
        assert!(report.requests.abs_diff(200) < 6 * 15, "{}", report.requests);
        let slowest = report.agents.iter().map(|a| a.p99_us).fold(0.0, f64::max);
        assert!(report.p99_us <= slowest * 1.001, "{} of {slowest}", report.p99_us);
        let bound_us = report.start_skew_bound_us.expect("agents have one");
        assert!(bound_us > 0.0 && bound_us < 1e6, "{bound_us}");
        let json: serde_json::Value = serde_json::from_str(&report.to_json()).expect("JSON");
        assert_eq!(json["agents"].as_array().map(Vec::len), Some(2));
        assert!(report.to_table().contains("started within"), "{}", report.to_table());
    }
    fleet.finish();
    agents.into_iter().for_each(|agent| ended(agent).expect("ends without an error"));
}

#[test]
fn closed_loop_and_churn_and_keys_are_shared_too() {
    let server = EchoServer::start(|byte| byte);
    let (mut fleet, agents) = fleet(2);
    for mode in [
        Mode::closed(2),
        Mode::Churn { requests: 3, close: crate::CloseMode::Rst },
        Mode::Open { rps: 400.0, arrivals: crate::ArrivalProcess::Deterministic, depth: 4 },
    ] {
        let report = fleet.run(&LoadConfig { mode, ..load() }, &job(server.address));
        let report = report.expect("runs");
        assert!(report.agents.iter().all(|a| a.requests > 0), "{mode}: {report:?}");
        assert_eq!((report.errors, report.wrong_bytes), (0, 0), "{mode}");
    }
    if let Some(server) = crate::test_peers::RealMemcached::start() {
        let mut load = LoadConfig { connections: 4, ..load() };
        load.workload = crate::WorkloadConfig::usr();
        let report = fleet.run(&load, &job(server.address)).expect("runs");
        // Each agent has stored half of the keys, and asks for all of them.
        assert_eq!((report.misses, report.wrong_bytes, report.errors), (0, 0, 0));
        let again = LoadConfig { keys_stored: true, ..load };
        assert_eq!(fleet.run(&again, &job(server.address)).expect("runs").misses, 0);
    }
    fleet.finish();
    agents.into_iter().for_each(|agent| ended(agent).expect("ends without an error"));
}

/// Starts really lie within the bound: both agents' first bytes come to one server, whose clock is
/// the judge. What the machine's scheduler adds is not the clocks'; it is given 50 ms.
#[test]
fn agents_start_within_the_bound() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    let target = listener.local_addr().expect("bound");
    let (sender, first_bytes) = mpsc::channel();
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let sender = sender.clone();
            std::thread::spawn(move || {
                let mut stream = stream;
                let mut buffer = [0; 4_096];
                let mut first = true;
                while let Ok(bytes @ 1..) = stream.read(&mut buffer) {
                    if first {
                        let _ = sender.send(Instant::now());
                        first = false;
                    }
                    if stream.write_all(&buffer[..bytes]).is_err() {
                        return;
                    }
                }
            });
        }
    });
    let (mut fleet, agents) = fleet(2);
    // Closed loop: the first request leaves at the start.
    let load = LoadConfig { mode: Mode::closed(1), connections: 2, ..load() };
    let report = fleet.run(&load, &job(target)).expect("runs");
    let moments: Vec<Instant> = first_bytes.iter().take(2).collect();
    let apart = moments[1].saturating_duration_since(moments[0]);
    let bound_us = report.start_skew_bound_us.expect("agents have one");
    let allowed = Duration::from_nanos((bound_us * 1e3) as u64) + Duration::from_millis(50);
    assert!(apart <= allowed, "{apart:?} apart, {bound_us} us is the bound");
    fleet.finish();
    agents.into_iter().for_each(|agent| ended(agent).expect("ends without an error"));
}

/// An agent as far as the start, played by hand: then it is gone.
fn dying_agent(address: SocketAddr) -> JoinHandle<()> {
    std::thread::spawn(move || {
        let stream = TcpStream::connect(address).expect("listens");
        handshake::present(&stream, ("dying", "nowhere"), None, "here").expect("is welcome");
        let (mut from, mut to) = (&stream, &stream);
        let mut job = 0;
        loop {
            let message = frame::read::<ToAgent>(&mut from, frame::FRAME_BYTES_MAX, None);
            let what = match message.expect("the coordinator is there") {
                Some(ToAgent::Task(task)) => {
                    job = task.job;
                    message::Said::Ready
                }
                Some(ToAgent::Ping) => message::Said::Pong { now_ns: 5_000_000_000 },
                Some(ToAgent::Start { .. }) => return,
                Some(_) | None => continue,
            };
            frame::write(&mut to, &ToCoordinator { job, what }, None).expect("is taken");
        }
    })
}

#[test]
fn an_agent_lost_in_mid_run_leaves_a_partial_result() {
    let server = EchoServer::start(|byte| byte);
    let coordinator = coordinator(2, None);
    let address = coordinator.address();
    let dying = dying_agent(address);
    let agent = start_agent(agent_config(address, None));
    let mut fleet = coordinator.gather(&mut |_| {}).expect("both come");
    let report = fleet.run(&load(), &job(server.address)).expect("the other one has a result");
    dying.join().expect("does as it should");
    assert!(report.partial && !report.valid);
    let reason = report.partial_reason.as_deref().expect("says why");
    assert!(reason.contains("agent dying: lost: the connection was closed"), "{reason}");
    assert!(report.requests > 0 && report.achieved_rps > 0.0);
    let lost: Vec<_> = report.agents.iter().filter(|a| a.lost).map(|a| &*a.name).collect();
    assert_eq!(lost, ["dying"]);
    assert!(report.to_table().contains("partial"));
    // It stays lost.
    let error = fleet.run(&load(), &job(server.address)).expect_err("one is missing").to_string();
    assert!(error.contains("agent dying was lost"), "{error}");
    fleet.finish();
    ended(agent).expect("ends without an error");
}

#[test]
fn without_any_result_there_is_an_error_that_names_all() {
    let coordinator = coordinator(1, None);
    let dying = dying_agent(coordinator.address());
    let mut fleet = coordinator.gather(&mut |_| {}).expect("it comes");
    let error = fleet.run(&load(), &job("127.0.0.1:9".parse().expect("an address")));
    let error = error.expect_err("nobody is left").to_string();
    assert!(error.contains("no agent has sent a result: dying: lost"), "{error}");
    dying.join().expect("does as it should");
}

#[test]
fn a_lost_coordinator_stops_the_load_at_once() {
    let server = EchoServer::start(|byte| byte);
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    let agent = start_agent(agent_config(listener.local_addr().expect("bound"), None));
    let (stream, _) = listener.accept().expect("the agent comes");
    handshake::introduce(&stream, None, || None).expect("it is ours");
    let load = LoadConfig { measure_ms: 600_000, ..load() };
    let transport = job(server.address);
    let task = message::Task { job: 1, load, index: 0, agents: 1, transport };
    frame::write(&mut &stream, &ToAgent::Task(Box::new(task)), None).expect("is taken");
    loop {
        let said = frame::read::<ToCoordinator>(&mut &stream, frame::FRAME_BYTES_MAX, None);
        match said.expect("the agent is there").map(|said| said.what) {
            Some(message::Said::Ready) => break,
            Some(other) => panic!("{other:?}"),
            None => {}
        }
    }
    frame::write(&mut &stream, &ToAgent::Start { at_ns: 1 }, None).expect("is taken");
    std::thread::sleep(Duration::from_millis(50));
    let gone = Instant::now();
    drop(stream);
    let error = ended(agent).expect_err("the coordinator is gone").to_string();
    assert!(error.contains("was lost, the load is stopped"), "{error}");
    assert!(gone.elapsed() < Duration::from_secs(60), "{:?}", gone.elapsed());
}

#[test]
fn what_agents_cannot_do_they_say_and_can_be_asked_again() {
    let server = EchoServer::start(|byte| byte);
    let (mut fleet, agents) = fleet(2);
    let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    let address = nobody.local_addr().expect("bound");
    drop(nobody);
    let error = fleet.run(&load(), &job(address)).expect_err("nobody listens").to_string();
    assert!(error.starts_with("agent a") && error.contains("does a service listen"), "{error}");
    let few = LoadConfig { connections: 1, ..load() };
    let error = fleet.run(&few, &job(server.address)).expect_err("too few").to_string();
    assert_eq!(error, "`agents` is `2`; allowed: 1 to 1");
    let report = fleet.run(&load(), &job(server.address)).expect("runs");
    assert!(report.valid, "{:?}", report.invalid_reason);
    fleet.give_up("that is enough");
    for agent in agents {
        let error = ended(agent).expect_err("was given up").to_string();
        assert!(error.contains("ended the run: that is enough"), "{error}");
    }
}

/// Reads what a stranger is told before the connection ends.
fn said_to_stranger(address: SocketAddr, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).expect("listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("can be set");
    stream.write_all(bytes).expect("is taken");
    let mut said = Vec::new();
    let _ = stream.read_to_end(&mut said);
    said
}

#[test]
fn strangers_are_refused_and_the_agents_run_all_the_same() {
    let server = EchoServer::start(|byte| byte);
    let coordinator = coordinator(1, None);
    let address = coordinator.address();
    let (sender, notes) = mpsc::channel();
    let gathering = std::thread::spawn(move || {
        coordinator.gather(&mut |note| drop(sender.send(note.to_owned())))
    });
    said_to_stranger(address, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n");
    said_to_stranger(address, &[&20u32.to_be_bytes()[..], b"{\"protocol\": [[[[[[[ "].concat());
    // Both were heard out before anybody else comes, who would end the gathering.
    let patience = std::time::Duration::from_secs(30);
    let refusals: Vec<String> =
        (0..2).map(|_| notes.recv_timeout(patience).expect("each stranger is told of")).collect();
    // One that says nothing keeps nobody waiting.
    let silent = TcpStream::connect(address).expect("listens");
    let agent = start_agent(agent_config(address, None));
    let mut fleet = gathering.join().expect("does not panic").expect("the agent comes");
    // Too late.
    let late = TcpStream::connect(address).expect("listens");
    let error = handshake::present(&late, ("late", "host"), None, "it").expect_err("is full");
    assert!(error.to_string().contains("all 1 agents of the run are there already"), "{error}");
    said_to_stranger(address, &[0xFF; 64]);
    let report = fleet.run(&load(), &job(server.address)).expect("runs");
    assert!(report.valid && report.agents.len() == 1, "{:?}", report.invalid_reason);
    fleet.finish();
    ended(agent).expect("ends without an error");
    drop(silent);
    let notes: Vec<String> = refusals.into_iter().chain(notes.iter()).collect();
    let refused = notes.iter().filter(|note| note.starts_with("refused 127.0.0.1")).count();
    assert_eq!(refused, 2, "{notes:?}");
    assert!(notes.iter().any(|note| note.contains("not a peer of this protocol")), "{notes:?}");
}

#[test]
fn the_wrong_secret_or_none_is_refused_and_the_right_one_taken() {
    let server = EchoServer::start(|byte| byte);
    let coordinator = coordinator(1, Some(secret()));
    let address = coordinator.address();
    let gathering = std::thread::spawn(move || coordinator.gather(&mut |_| {}));
    let wrong = Secret::new(b"not the one of the tests").expect("long enough");
    for (given, part) in
        [(Some(wrong), "its secret is not the coordinator's"), (None, "the agent has none")]
    {
        let error = serve(&agent_config(address, given), &mut |_| {}).expect_err("is refused");
        assert!(error.to_string().contains(" refused this agent: "), "{error}");
        assert!(error.to_string().contains(part), "{error}");
    }
    let agent = start_agent(agent_config(address, Some(secret())));
    let mut fleet = gathering.join().expect("does not panic").expect("the agent comes");
    assert!(fleet.run(&load(), &job(server.address)).expect("runs").requests > 0);
    fleet.finish();
    ended(agent).expect("ends without an error");
}

#[test]
fn an_agent_with_a_secret_serves_no_coordinator_without() {
    let coordinator = coordinator(1, None);
    let address = coordinator.address();
    let gathering = std::thread::spawn(move || coordinator.gather(&mut |_| {}));
    let error = serve(&agent_config(address, Some(secret())), &mut |_| {}).expect_err("no secret");
    assert!(error.to_string().contains("it has no secret, this agent has one"), "{error}");
    // It did not take the place of one that does.
    let agent = start_agent(agent_config(address, None));
    gathering.join().expect("does not panic").expect("the agent comes").finish();
    ended(agent).expect("ends without an error");
}

#[test]
fn an_agent_without_a_secret_obeys_only_its_own_machine() {
    for (peer, without) in
        [("127.0.0.1", true), ("127.9.9.9", true), ("::1", true), ("::ffff:127.0.0.1", true)]
            .into_iter()
            .chain([("10.0.0.1", false), ("fe80::1", false), ("::ffff:10.0.0.1", false)])
    {
        let peer = peer.parse().expect("an address");
        assert_eq!(may_obey(peer, None), without, "{peer}");
        assert!(may_obey(peer, Some(&secret())), "{peer}");
    }
}

/// An address of this machine that is not a loopback address, where it has one.
fn own_address() -> Option<IpAddr> {
    // The kernel chooses the address from which it would reach another machine; nothing is sent.
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).ok()?;
    socket.connect((Ipv4Addr::new(192, 0, 2, 1), 9)).ok()?;
    Some(socket.local_addr().ok()?.ip()).filter(|address| !address.is_loopback())
}

#[test]
fn an_agent_without_a_secret_answers_no_coordinator_on_another_address() {
    let Some(address) = own_address() else {
        println!("skipped: this machine has no address but loopback ones");
        return;
    };
    let listener = TcpListener::bind((address, 0)).expect("an address of ours");
    let config = agent_config(listener.local_addr().expect("bound"), None);
    let agent = start_agent(config.clone());
    let (mut stream, _) = listener.accept().expect("it dials");
    let mut said = Vec::new();
    stream.read_to_end(&mut said).expect("it hangs up");
    assert!(said.is_empty(), "it said {} bytes to a stranger", said.len());
    let error = ended(agent).expect_err("refuses");
    assert!(error.to_string().starts_with("cannot obey the coordinator at "), "{error}");
}

/// Bytes of one direction that are changed on their way, each of the same length.
type Change = (&'static [u8], &'static [u8]);

/// Carries bytes from one connection to the other, changed. Answers how often they were.
fn carry(mut from: TcpStream, mut to: TcpStream, (old, new): Change) -> JoinHandle<usize> {
    assert_eq!(old.len(), new.len());
    std::thread::spawn(move || {
        let (mut bytes, mut changed) = (vec![0; 1 << 20], 0);
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            let mut part = &mut bytes[..count];
            while let Some(at) = part.windows(old.len()).position(|window| window == old) {
                part[at..at + new.len()].copy_from_slice(new);
                part = &mut part[at + new.len()..];
                changed += 1;
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
        // Whichever end hangs up, the other one hears of it.
        let _ = (to.shutdown(Shutdown::Both), from.shutdown(Shutdown::Both));
        changed
    })
}

/// An agent and its coordinator, both with the secret, and between them one who changes what they say. Answers how
/// the run and the agent ended, and how often each direction was changed.
fn run_through_a_man_in_the_middle(
    [to_agent, to_coordinator]: [Change; 2],
) -> (Result<LoadReport, RemoteError>, Result<(), RemoteError>, [usize; 2]) {
    let server = EchoServer::start(|byte| byte);
    let coordinator = coordinator(1, Some(secret()));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    let middle = listener.local_addr().expect("bound");
    let agent = start_agent(agent_config(middle, Some(secret())));
    let near = TcpStream::connect(coordinator.address()).expect("it listens");
    let (far, _) = listener.accept().expect("the agent dials");
    let twin = |stream: &TcpStream| stream.try_clone().expect("a descriptor");
    let carriers =
        [carry(twin(&near), twin(&far), to_agent), carry(twin(&far), twin(&near), to_coordinator)];
    let mut fleet = coordinator.gather(&mut |_| {}).expect("nothing is changed in the handshake");
    let ran = fleet.run(&load(), &job(server.address));
    fleet.finish();
    let agent = ended(agent);
    (ran, agent, carriers.map(|carrier| carrier.join().expect("does not panic")))
}

const UNCHANGED: Change = (b"no frame has this", b"no frame has this");
const FORGED: &str = "something between the two machines changed the connection";

#[test]
fn frames_between_ends_with_a_secret_pass_whole() {
    let (ran, agent, changed) = run_through_a_man_in_the_middle([UNCHANGED; 2]);
    assert!(ran.expect("runs").requests > 0);
    agent.expect("ends without an error");
    assert_eq!(changed, [0, 0]);
}

#[test]
fn an_agent_does_not_obey_a_frame_that_was_changed_on_its_way() {
    // It would send its load for so much longer.
    let change: Change = (b"\"measure_ms\":200", b"\"measure_ms\":999");
    let (ran, agent, changed) = run_through_a_man_in_the_middle([change, UNCHANGED]);
    assert_eq!(changed, [1, 0]);
    let error = agent.expect_err("refuses the frame").to_string();
    assert!(error.contains(FORGED), "{error}");
    ran.expect_err("the agent is gone");
}

#[test]
fn a_coordinator_does_not_believe_a_frame_that_was_changed_on_its_way() {
    let change: Change = (b"\"say\":\"ready\"", b"\"say\":\"Ready\"");
    let (ran, _, changed) = run_through_a_man_in_the_middle([UNCHANGED, change]);
    assert_eq!(changed, [0, 1]);
    let error = ran.expect_err("refuses the frame").to_string();
    assert!(error.contains(FORGED), "{error}");
}

#[test]
fn other_versions_are_told_so_on_both_sides() {
    let coordinator = coordinator(1, None);
    let address = coordinator.address();
    let stream = TcpStream::connect(address).expect("listens");
    let challenge: Option<Challenge> =
        frame::read(&mut &stream, HANDSHAKE_BYTES_MAX, None).expect("is asked");
    assert_eq!(challenge.expect("a challenge").version, VERSION);
    let answer = Answer {
        protocol: PROTOCOL.into(),
        version: VERSION + 1,
        name: "new".into(),
        host: "h".into(),
        nonce: String::new(),
        proof: None,
    };
    frame::write(&mut &stream, &answer, None).expect("is taken");
    let verdict: Option<Verdict> =
        frame::read(&mut &stream, HANDSHAKE_BYTES_MAX, None).expect("is told");
    let Some(Verdict::Refused { reason }) = verdict else { panic!("{verdict:?}") };
    let (other, own) = (VERSION + 1, VERSION);
    let expected = format!("speaks version {other} of the protocol, the coordinator version {own}");
    assert!(reason.contains(&expected), "{reason}");
    drop(coordinator);

    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a loopback port");
    let agent = start_agent(agent_config(listener.local_addr().expect("bound"), None));
    let (stream, _) = listener.accept().expect("the agent comes");
    let text = br#"{"protocol": "tailplane-load", "version": 9, "else": {"new": 1}}"#;
    let length = (text.len() as u32).to_be_bytes();
    (&stream).write_all(&[&length[..], text].concat()).expect("is taken");
    let error = ended(agent).expect_err("another version").to_string();
    let expected = format!("speaks version 9 of the protocol, this agent version {VERSION}");
    assert!(error.contains(&expected), "{error}");
}

#[test]
fn nobody_there_is_an_error_on_both_sides() {
    let config = CoordinatorConfig {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        agents: 1,
        wait: Duration::from_millis(100),
        secret: None,
    };
    let coordinator = Coordinator::bind(config.clone()).expect("a loopback port");
    let address = coordinator.address();
    assert_eq!(coordinator.warning(), None);
    let listen = SocketAddr::from((Ipv4Addr::UNSPECIFIED, 0));
    for (secret, warned) in [(None, true), (Some(secret()), false)] {
        let open = Coordinator::bind(CoordinatorConfig { listen, secret, ..config.clone() });
        let warning = open.expect("a port").warning();
        assert_eq!(warning.is_some_and(|text| text.contains("--secret-file")), warned);
    }
    let error = coordinator.gather(&mut |_| {}).expect_err("nobody comes").to_string();
    assert!(
        error.contains("0 of 1 agents came") && error.contains("load-agent 127.0.0.1"),
        "{error}"
    );
    let config = AgentConfig { wait: Duration::from_millis(300), ..agent_config(address, None) };
    let error = serve(&config, &mut |_| {}).expect_err("nobody is there").to_string();
    assert!(error.contains("could not reach the coordinator"), "{error}");
}
