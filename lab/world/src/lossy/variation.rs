//! What differs from seed to seed: most runs are ordinary, some have tiny windows, segments, pools,
//! rings or batches, slow applications, many cores.

use clock::Duration;
use dataplane::{
    ClassError, Classes, ConservingConfig, ElasticConfig, MigrationConfig, Mistake, ReadySetConfig,
    ServicePolicy, WhileAway,
};
use stack::{Ecn, StackConfig};
use wire::{Address, Ipv4Addr, Ipv6Addr, MacAddr, Prefix};

use crate::dice::Dice;
use crate::lossy::host::{DistantConfig, HostConfig, LAG, MovesConfig, Sharing, Steering};
use crate::lossy::scenario::PORT;
use crate::path::Path;
use crate::port::PortConfig;

/// Who runs the server's application.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, clap::ValueEnum)]
pub enum SchedulerChoice {
    /// Some seeds have the one, some the other.
    #[default]
    BySeed,
    /// The connection's home core, all that came at once (IX).
    RunToCompletion,
    /// Any core that has nothing else to do (ZygOS).
    WorkConserving,
    /// Any core, by the classes of connections, which come in at several ports.
    ReadySet,
}

/// How one run is set up.
#[derive(Clone, Debug)]
pub struct Variation {
    /// The server.
    pub server: HostConfig,
    /// The clients.
    pub clients: Vec<HostConfig>,
    /// How long clients hold received bytes back.
    pub hold: Duration,
    /// Most bytes of one `sendv` of a client.
    pub piece: usize,
    /// Longest pause between the connections of a client's slot.
    pub open_within: Duration,
    /// Whether each client has many connections at a time.
    pub crowded: bool,
    /// What frames pass on their way to each host, in place of links without a rate.
    pub path: Option<Path>,
    /// Whether all hosts speak IPv6 too.
    pub ipv6: bool,
}

/// Address and link address of host `number`.
pub fn addresses(number: u8) -> (Ipv4Addr, MacAddr) {
    (Ipv4Addr::new(10, 9, 0, number + 1), MacAddr([2, 0, 0, 0, 0, number + 1]))
}

/// Its IPv6 address, where it has one.
pub fn address_v6(number: u8) -> Address {
    Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, u16::from(number) + 1).into()
}

/// What the links of IPv6 carry at least (RFC 8200 §5).
const LEAST_MTU_V6: u16 = 1_280;

/// As everybody has it, but with patience where memory is short, and for a peer whose rings of a few frames lose most SYNs
/// where many come at a time: all peers here are honest, and many frames are lost.
fn patient(number: u8) -> StackConfig {
    let (address, mac) = addresses(number);
    let mut stack = StackConfig::new(address, 24, mac);
    stack.syn_retries = 40;
    stack.user_timeout_least = stack.user_timeout.unwrap_or(stack.user_timeout_least);
    stack
}

fn stack(number: u8, dice: &mut Dice) -> StackConfig {
    let mut stack = patient(number);
    if number == 0 {
        stack.tcp_listen = vec![PORT];
    }
    if dice.chance(0.25) {
        // Down to a window of a few hundred bytes.
        stack.receive_window_bytes = dice.spread(200, 20_000) as u32;
    }
    if dice.chance(0.25) {
        stack.mtu_bytes = dice.between(120, 1500) as u16;
    }
    if dice.chance(0.3) {
        stack.delayed_ack = Duration::from_micros(dice.spread(20, 40_000));
    }
    if dice.chance(0.3) {
        stack.rto_min = Duration::from_micros(dice.spread(1_000, 200_000));
    }
    stack
}

fn elastic(dice: &mut Dice) -> ElasticConfig {
    let mut elastic = ElasticConfig::default();
    if dice.chance(0.2) {
        elastic.batch = dice.spread(1, 64) as usize;
    }
    if dice.chance(0.2) {
        // Often fewer than the packets of a batch ask for.
        elastic.calls = dice.spread(6, 256) as usize;
    }
    if dice.chance(0.2) {
        elastic.tx_frames = dice.spread(2, 64) as usize;
    }
    elastic
}

fn plain_host(number: u8) -> HostConfig {
    let stack = patient(number);
    HostConfig {
        cores: 1,
        queues: None,
        chunks: 4096,
        pool_keep: 1024,
        forward_ring: 1024,
        elastic: ElasticConfig::default(),
        sharing: Sharing::Not,
        nic: PortConfig {
            max_frame_bytes: stack.mtu_bytes as usize + 14,
            ring_frames: 1024,
            longest_read: Duration::from_micros(5),
            rx_checksums_verified: false,
            tx_checksum_offload: false,
        },
        stack,
        cycle: (Duration::from_nanos(300), Duration::from_micros(3)),
        moves: None,
        distant: None,
    }
}

fn host(number: u8, cores: u8, dice: &mut Dice) -> HostConfig {
    let mut chunks = 4096;
    if dice.chance(0.2) {
        // Not enough for what the windows allow.
        chunks = dice.spread(48, 512) as u32;
    }
    if cores > 1 {
        // A pool may keep two batches and one that it gives back next: no core must starve others.
        chunks = cores as u32 * (chunks / cores as u32 + 192);
    }
    let stack = stack(number, dice);
    let nic = PortConfig {
        max_frame_bytes: stack.mtu_bytes as usize + 14,
        ring_frames: if dice.chance(0.2) { dice.spread(2, 64) } else { 1024 } as usize,
        longest_read: Duration::from_micros(if dice.chance(0.1) { 2_000 } else { 5 }),
        rx_checksums_verified: false,
        tx_checksum_offload: false,
    };
    let slowest = if dice.chance(0.1) { 200 } else { 3 };
    HostConfig {
        cores,
        chunks,
        pool_keep: (chunks as usize / cores as usize).min(1024),
        forward_ring: if dice.chance(0.2) { dice.spread(2, 64) } else { 1024 } as usize,
        elastic: elastic(dice),
        nic,
        stack,
        cycle: (Duration::from_nanos(300), Duration::from_micros(slowest)),
        ..plain_host(number)
    }
}

/// Congestion control and marks, drawn apart.
fn control(host: &mut HostConfig, dice: &mut Dice) {
    use stack::CongestionAlgorithm::{Cubic, Dctcp, NewReno};
    let any = |dice: &mut Dice| dice.between(0, 2) as usize;
    host.stack.congestion = [Cubic, NewReno, Dctcp][any(dice)];
    host.stack.ecn = [Ecn::Off, Ecn::Accept, Ecn::Ask][any(dice)];
}

/// In some runs a path: 1 Mbit/s to 10 Gbit/s, round trips of 5 us to 2 s, a queue of 10 KB to 1 MB that marks or does not, or a
/// policer; and an MTU that changes, which the hop reports or does not.
fn path(seed: u64) -> Option<Path> {
    let mut dice = Dice::new(seed, "path", 0);
    if !dice.chance(0.2) {
        return None;
    }
    let path = Path::new(seed, Duration::from_nanos(dice.spread(2_500, 1_000_000_000)));
    let queue = dice.spread(10_000, 1_000_000);
    let mut mtu = || if dice.chance(0.3) { dice.between(600, 1_500) as u16 } else { 1_500 };
    Some(Path {
        mtu: [mtu(), mtu()],
        mtu_at: Duration::from_micros(dice.spread(1_000, 10_000_000)),
        reports: dice.chance(0.7),
        rate: dice.spread(1_000_000, 10_000_000_000),
        mark: dice.chance(0.5).then(|| queue / dice.between(2, 10)),
        polices: dice.chance(0.1),
        reorder: if dice.chance(0.3) { 0.05 } else { 0.0 },
        queue,
        ..path
    })
}

/// The smallest receive window where round trips take seconds, in bytes.
const LEAST_WINDOW_OF_PATHS: u32 = 20_000;

/// Many tiny segments and a small array of events: what a filled gap makes ready does not fit.
fn press(host: &mut HostConfig) {
    host.stack.mtu_bytes = 110;
    host.nic.max_frame_bytes = host.stack.mtu_bytes as usize + 14;
    host.elastic.batch = 1;
    host.elastic.calls = 12;
}

/// That a server's flow groups move, and how.
#[derive(Clone, Copy, Debug, Default)]
pub struct Migrations {
    /// Where frames come; drawn, where nothing is said.
    pub steering: Option<Steering>,
    /// Whether all that has to be parked has room, on slow cores with long queues.
    pub room: bool,
    /// A mistake that is to be found.
    pub mistake: Option<Mistake>,
}

/// How a work-conserving server shares its work: mostly in the usual way, sometimes at once, or late, or
/// with hardly any room in its queues.
fn conserving(dice: &mut Dice) -> ConservingConfig {
    let usual = ConservingConfig { pool_keep: 128, ..ConservingConfig::default() };
    let mut span = |usual: Duration, most: u64| match dice.chance(0.3) {
        true => Duration::from_nanos(dice.between(0, most)),
        false => usual,
    };
    let crossing = span(usual.crossing, 30_000);
    let idle_after = span(usual.idle_after, 10_000);
    let borrow_after = span(usual.borrow_after, 10_000);
    let turns = if dice.chance(0.3) { dice.spread(2, 64) as usize } else { usual.turns };
    let while_away = match dice.between(0, 9) {
        0..5 => WhileAway::Borrow,
        5..8 => WhileAway::Kick,
        _ => WhileAway::Wait,
    };
    ConservingConfig { crossing, idle_after, borrow_after, turns, while_away, ..usual }
}

/// Several cores, where the host has one, and memory for them.
fn have_cores(host: &mut HostConfig, dice: &mut Dice) {
    if host.cores < 2 {
        host.cores = dice.between(2, 4) as u8;
        host.chunks += 192 * u32::from(host.cores);
        host.pool_keep = (host.chunks as usize / host.cores as usize).min(1024);
    }
}

/// Ports at which a server with classes listens.
const PORTS: u16 = 3;

/// A ready set for connections of any classes.
fn ready_set(dice: &mut Dice) -> Result<ReadySetConfig, ClassError> {
    let policy = match dice.between(0, 2) {
        0 => ServicePolicy::RoundRobin,
        1 => ServicePolicy::WeightedRoundRobin,
        _ => ServicePolicy::StrictPriority,
    };
    let mut classes = Classes::new(policy).others(dice.between(0, 2) as u8)?;
    // One port may be left to the others.
    for port in PORT..PORT + dice.between(1, PORTS.into()) as u16 {
        classes = classes.port(port, dice.between(0, 3) as u8)?;
    }
    for class in 0..4 {
        classes = classes.weight(class, dice.spread(1, 20) as u32)?;
    }
    Ok(ReadySetConfig { sharing: conserving(dice), classes })
}

impl Variation {
    /// Chooses the server's scheduler. Drawn apart, so that what else a seed means does not depend on it.
    pub fn schedule(&mut self, seed: u64, choice: SchedulerChoice) {
        let mut dice = Dice::new(seed, "scheduler", 0);
        let share = match choice {
            SchedulerChoice::RunToCompletion => return,
            SchedulerChoice::WorkConserving | SchedulerChoice::ReadySet => 1.0,
            SchedulerChoice::BySeed if self.server.cores > 1 => 0.6,
            SchedulerChoice::BySeed => 0.1,
        };
        if dice.chance(share) {
            self.server.sharing = Sharing::Conserving(conserving(&mut dice));
            // Each core has a further pool.
            self.server.chunks += 192 * u32::from(self.server.cores);
            let by_class = match choice {
                SchedulerChoice::BySeed => dice.chance(0.4),
                _ => choice == SchedulerChoice::ReadySet,
            };
            if by_class {
                let set = ready_set(&mut dice).expect("classes below eight, weights above zero");
                self.server.sharing = Sharing::ReadySet(set);
                self.server.stack.tcp_listen = (PORT..PORT + PORTS).collect();
            }
        }
    }

    /// The server has several cores. Drawn apart, as above.
    pub fn spread_out(&mut self, seed: u64) {
        have_cores(&mut self.server, &mut Dice::new(seed, "cores", 0));
    }

    /// The server has another number of queue pairs than cores: in one run of four, or where `always`. A device with an
    /// indirection table has one for each. Drawn apart, as above.
    pub fn deal_queues(&mut self, seed: u64, always: bool) {
        let mut dice = Dice::new(seed, "queues", 0);
        let server = &mut self.server;
        let steering = server.moves.map(|moves| moves.steering);
        let is_free = matches!(steering, None | Some(Steering::Random | Steering::Fixed));
        if is_free && (always || dice.chance(0.25)) {
            let queues = dice.between(1, 6) as u8;
            server.queues = Some(if queues == server.cores { queues + 1 } else { queues });
            // Chunks come to few cores, and stay with those that packets are forwarded to.
            server.chunks += 192 * u32::from(server.cores);
        }
    }

    /// The queues of a server whose cores share their work hold so many turns, and each crossing lasts long: more
    /// comes for its connections meanwhile than the queues hold. Drawn apart, as above.
    pub fn crowd(&mut self, seed: u64, turns: usize) {
        let mut dice = Dice::new(seed, "crowd", 0);
        let sharing = match &mut self.server.sharing {
            Sharing::Not => return,
            Sharing::Conserving(sharing) => sharing,
            Sharing::ReadySet(set) => &mut set.sharing,
        };
        let longest = dice.spread(20, 500);
        sharing.turns = turns;
        // Many events share a crossing, however long it takes.
        sharing.crossing = Duration::from_micros(longest * dice.spread(1, 100));
        sharing.idle_after = Duration::from_micros(dice.spread(1, 2_000));
        self.server.cycle.1 = Duration::from_micros(longest);
        // Clients with hardly any room would give so many connections up.
        self.clients = (1..=3).map(plain_host).collect();
        // Queues fill within microseconds here, not round trips.
        self.path = None;
        self.crowded = true;
    }

    /// The server has several cores, and its flow groups move between them all the time. Drawn apart, as
    /// above.
    pub fn migrate(&mut self, seed: u64, choice: &Migrations) {
        let mut dice = Dice::new(seed, "migrations", 0);
        let server = &mut self.server;
        have_cores(server, &mut dice);
        let every = Duration::from_micros(dice.spread(5, 2_000));
        let drawn = dice.pick(&[
            Steering::Random,
            Steering::Fixed,
            Steering::Home,
            Steering::Table { probes: true },
            Steering::Table { probes: false },
        ]);
        let steering = choice.steering.unwrap_or(drawn);
        server.moves = Some(MovesConfig { every, steering });
        let migration = &mut server.elastic.migration;
        migration.timer = Duration::from_micros(dice.spread(1, 2_000));
        if let Steering::Table { .. } = steering {
            // Where a probe is lost, it is all that there is.
            migration.timer = migration.timer.max(2 * LAG);
        }
        if dice.chance(0.2) {
            migration.parked = dice.spread(1, 64) as usize;
        }
        migration.mistake = choice.mistake;
        if choice.room {
            *migration = MigrationConfig { parked: 4_096, ..*migration };
            // Slow cores, with long queues: what could overtake has time to.
            server.cycle = (Duration::from_micros(1), Duration::from_micros(dice.spread(4, 80)));
            server.elastic.batch = dice.spread(1, 16) as usize;
            server.moves = Some(MovesConfig { every: Duration::from_micros(100), steering });
            self.clients = (1..=3).map(plain_host).collect();
            // Overtaking takes microseconds here, not round trips.
            self.path = None;
        }
    }

    /// The server's application is elsewhere, and has each batch for some time. Drawn apart, as above.
    pub fn go_apart(&mut self, seed: u64) {
        let mut dice = Dice::new(seed, "distance", 0);
        let longest = Duration::from_micros(dice.spread(1, 20_000));
        let shortest = longest * dice.between(0, 100) as u32 / 100;
        let server = &mut self.server;
        server.distant = Some(DistantConfig { shortest, longest });
        // Each core has a further pool.
        server.chunks += 256 * u32::from(server.cores);
    }

    /// All hosts have an MTU of 9,000 bytes, and a path has it until it changes.
    pub fn grow_frames(&mut self) {
        const MTU: u16 = 9_000;
        const CHUNKS: u8 = 16;
        for host in std::iter::once(&mut self.server).chain(&mut self.clients) {
            (host.stack.mtu_bytes, host.stack.frame_chunks) = (MTU, CHUNKS);
            host.nic.max_frame_bytes = usize::from(MTU) + 14;
            // A device has room for a frame.
            host.nic.ring_frames = host.nic.ring_frames.max(CHUNKS.into());
        }
        if let Some(path) = &mut self.path {
            path.mtu[0] = MTU;
        }
    }

    /// In half of the runs all hosts speak IPv6 too, where links carry what that needs. Drawn apart, behind all else.
    pub fn speak_ipv6(&mut self, seed: u64) {
        let mut hosts = std::iter::once(&mut self.server).chain(&mut self.clients);
        let carries = |mtu: u16| mtu >= LEAST_MTU_V6;
        let is_wide = hosts.all(|host| carries(host.stack.mtu_bytes))
            && self.path.is_none_or(|path| path.mtu.into_iter().all(carries));
        self.ipv6 = is_wide && Dice::new(seed, "ipv6", 0).chance(0.5);
        if self.ipv6 {
            let hosts = std::iter::once(&mut self.server).chain(&mut self.clients);
            for (number, host) in (0..).zip(hosts) {
                host.stack.addresses.push(Prefix::new(address_v6(number), 64));
            }
        }
    }

    /// Where a client connects to: one of two over IPv6, where there is any.
    pub fn target(&self, seed: u64, client: u64) -> Address {
        match self.ipv6 && Dice::new(seed, "target", client).chance(0.5) {
            true => address_v6(0),
            false => addresses(0).0.into(),
        }
    }

    /// The variation of a seed.
    pub fn draw(seed: u64) -> Self {
        let mut dice = Dice::new(seed, "variation", 0);
        let cores = if dice.chance(0.4) { dice.between(2, 4) } else { 1 } as u8;
        let mut server = host(0, cores, &mut dice);
        let clients = if dice.chance(0.3) { dice.between(2, 3) } else { 1 } as u8;
        let client = |number| {
            let cores = if dice.chance(0.2) { dice.between(2, 3) } else { 1 } as u8;
            host(number, cores, &mut dice)
        };
        let mut clients: Vec<HostConfig> = (1..=clients).map(client).collect();
        let hold_us = if dice.chance(0.25) { dice.spread(10, 20_000) } else { 0 };
        if Dice::new(seed, "pressure", 0).chance(0.06) {
            std::iter::once(&mut server).chain(&mut clients).for_each(press);
        }
        let path = path(seed);
        if path.is_some() {
            // A request of some kilobytes comes within the time that the service gives it, however far the client is.
            for host in std::iter::once(&mut server).chain(&mut clients) {
                let window = &mut host.stack.receive_window_bytes;
                *window = (*window).max(LEAST_WINDOW_OF_PATHS);
            }
        }
        let mut dice_of_control = Dice::new(seed, "congestion", 0);
        let mut dice_of_offload = Dice::new(seed, "offload", 0);
        for host in std::iter::once(&mut server).chain(&mut clients) {
            control(host, &mut dice_of_control);
            let offloads = dice_of_offload.chance(0.3);
            host.nic.tx_checksum_offload = offloads;
            host.stack.tx_checksum_offload = offloads;
        }
        Self {
            server,
            clients,
            hold: Duration::from_micros(hold_us),
            piece: if dice.chance(0.3) { dice.spread(1, 4_000) as usize } else { usize::MAX },
            open_within: Duration::from_micros(dice.spread(1, 20_000)),
            crowded: false,
            path,
            ipv6: false,
        }
    }

    /// The variation in which nothing is unusual: one client, one core each.
    pub fn ordinary() -> Self {
        let mut plain = Self {
            server: plain_host(0),
            clients: vec![plain_host(1)],
            hold: Duration::ZERO,
            piece: usize::MAX,
            open_within: Duration::from_millis(1),
            crowded: false,
            path: None,
            ipv6: false,
        };
        plain.server.stack.tcp_listen = vec![PORT];
        plain
    }

    /// What is unusual about it, in a few words.
    pub fn summary(&self) -> String {
        let of = |host: &HostConfig| {
            format!(
                "cores {} queues {} {} chunks {} window {} mtu {} batch {} calls {} tx {} ring {} fwd {}",
                host.cores,
                host.queues.unwrap_or(host.cores),
                host.sharing.name(),
                host.chunks,
                host.stack.receive_window_bytes,
                host.stack.mtu_bytes,
                host.elastic.batch,
                host.elastic.calls,
                host.elastic.tx_frames,
                host.nic.ring_frames,
                host.forward_ring
            )
        };
        let clients: Vec<String> = self.clients.iter().map(of).collect();
        let path = self.path.map_or(String::new(), |path| format!("; {path:?}"));
        let ipv6 = if self.ipv6 { "; IPv6 too" } else { "" };
        format!(
            "server: {}; clients: {}; hold {:?}, pieces {}{path}{ipv6}",
            of(&self.server),
            clients.join(", "),
            self.hold,
            self.piece
        )
    }
}
