//! Tenants in processes of their own, for the containment tests: this test binary, run once more.
//!
//! A child is `a_tenant_process` with a role in its environment. It joins, says `@joined`, waits for a
//! line, does its part until it is done or its standard input ends, and says `@done COUNT`.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use crate::geometry::WAITING;
use crate::{DoorbellLayout, Shape, Tenant};

const ROLE: &str = "TAILPLANE_SDP_ROLE";
const SOCKET: &str = "TAILPLANE_SDP_SOCKET";
/// Requests outstanding on each queue.
const WINDOW: u32 = 8;
/// Between two lines about progress.
const PROGRESS: Duration = Duration::from_millis(100);
/// Longest that anything here takes; a hung test is a failed one.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// What a child does.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Role {
    /// Numbered requests on each of its queues, each reply checked; zero requests: until told.
    Honest { queues: u32, requests: u32, paged: bool },
    /// Every lie there is, until told.
    Liar { seed: u64 },
    /// One attack, by its place in [`ATTACKS`](crate::hostile_tests::ATTACKS), until told.
    Hostile { attack: u64 },
}

impl Role {
    fn name(self) -> String {
        match self {
            Self::Honest { queues, requests, paged } => {
                format!("honest {queues} {requests} {}", u32::from(paged))
            }
            Self::Liar { seed } => format!("liar {seed}"),
            Self::Hostile { attack } => format!("hostile {attack}"),
        }
    }

    fn parse(text: &str) -> Self {
        let mut words = text.split(' ');
        let name = words.next();
        let mut number = || words.next().and_then(|word| word.parse().ok()).expect("a number");
        match name {
            Some("honest") => Self::Honest {
                queues: number() as u32,
                requests: number() as u32,
                paged: number() == 1,
            },
            Some("liar") => Self::Liar { seed: number() },
            _ => Self::Hostile { attack: number() },
        }
    }
}

/// A child of ours. Dropping it kills it.
pub(crate) struct Process {
    child: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
}

impl Process {
    pub(crate) fn spawn(socket: &Path, role: Role) -> Self {
        let mut child = Command::new(std::env::current_exe().expect("this binary"))
            .args(["--exact", "processes_tests::a_tenant_process", "--ignored", "--nocapture"])
            .env(ROLE, role.name())
            .env(SOCKET, socket)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("started");
        let output = BufReader::new(child.stdout.take().expect("piped"));
        Self { input: child.stdin.take(), child, output }
    }

    /// The rest of the next line that begins so; `None` where the child ended without one.
    fn line(&mut self, prefix: &str) -> Option<String> {
        let mut line = String::new();
        loop {
            line.clear();
            if self.output.read_line(&mut line).ok()? == 0 {
                return None;
            }
            if let Some(rest) = line.trim_end().strip_prefix(prefix) {
                return Some(rest.trim().to_owned());
            }
        }
    }

    pub(crate) fn joined(mut self) -> Self {
        self.line("@joined").expect("the child joined");
        self
    }

    /// How many requests it has had answered so far, from the line that it prints now and then.
    pub(crate) fn progress(&mut self) -> u64 {
        let count = self.line("@progress").expect("the child goes on");
        count.parse().expect("a count")
    }

    /// The same from a line that was not there before the call.
    pub(crate) fn fresh_progress(&mut self) -> u64 {
        loop {
            let asked = Instant::now();
            let count = self.progress();
            if asked.elapsed() > PROGRESS / 4 {
                return count;
            }
        }
    }

    pub(crate) fn go(&mut self) {
        let input = self.input.as_mut().expect("not told to stop");
        input.write_all(b"go\n").expect("the child reads");
    }

    /// How many requests it had answered, each as it should be.
    pub(crate) fn done(mut self) -> u64 {
        let count = self.line("@done").expect("the child came to an end");
        assert!(self.child.wait().expect("waited for").success(), "the child found nothing wrong");
        count.parse().expect("a count")
    }

    /// Tells it to stop; how many.
    pub(crate) fn stop(mut self) -> u64 {
        self.input = None;
        self.done()
    }

    /// Kills it in the middle of everything.
    pub(crate) fn kill(mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("waited for");
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may be gone already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A path for a socket that no other test has.
pub(crate) fn socket_path(name: &str) -> PathBuf {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let next = NEXT.fetch_add(1, Ordering::Relaxed);
    std::env::temp_dir().join(format!("tailplane-sdp-{}-{name}-{next}", std::process::id()))
}

#[test]
#[ignore = "the containment tests run it in other processes, with a role"]
fn a_tenant_process() {
    let role = Role::parse(&std::env::var(ROLE).expect("a role"));
    let socket = PathBuf::from(std::env::var(SOCKET).expect("a socket"));
    let stop = Arc::new(AtomicBool::new(false));
    let count = match role {
        Role::Honest { queues, requests, paged } => {
            let doorbells = if paged { DoorbellLayout::Paged } else { DoorbellLayout::Packed };
            let shape = Shape { queues, depth: 32, slot_bytes: 64, doorbells };
            let tenant = Tenant::join(&socket, shape).expect("joined");
            wait_for_go(&stop);
            honest(tenant, requests, &stop)
        }
        Role::Liar { seed } => {
            let tenant = Tenant::join(&socket, LIAR).expect("joined");
            wait_for_go(&stop);
            lie(tenant, seed, &stop)
        }
        Role::Hostile { attack } => {
            become_another_user();
            wait_for_go(&stop);
            crate::hostile_tests::attack(attack as usize, &socket, &stop)
        }
    };
    println!("\n@done {count}");
}

/// A user of the attackers' own, where the tests run as root: the limits are each user's.
pub(crate) const ATTACKER: u32 = 61_899;

fn become_another_user() {
    if rustix::process::geteuid().is_root() {
        let user = rustix::thread::Uid::from_raw(ATTACKER);
        // This thread and those that it starts: the kernel takes the connection's user from it.
        rustix::thread::set_thread_res_uid(user, user, user).expect("root may");
    }
}

fn wait_for_go(stop: &Arc<AtomicBool>) {
    println!("\n@joined");
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).expect("readable");
    assert_eq!(line, "go\n", "told to begin");
    let stop = Arc::clone(stop);
    std::thread::spawn(move || {
        let _ = std::io::stdin().read_line(&mut String::new());
        stop.store(true, Ordering::Relaxed);
    });
}

/// Each request says its queue and number; each reply must be the next of its queue.
fn honest(mut tenant: Tenant, requests: u32, stop: &AtomicBool) -> u64 {
    let queues = tenant.geometry().shape().queues;
    let (mut sent, mut got) = (vec![0_u32; queues as usize], vec![0_u32; queues as usize]);
    let request = |queue: u32, number: u32| {
        let mut bytes = [0; 12];
        bytes[..4].copy_from_slice(&std::process::id().to_le_bytes());
        bytes[4..8].copy_from_slice(&queue.to_le_bytes());
        bytes[8..].copy_from_slice(&number.to_le_bytes());
        bytes
    };
    let mut deadline = Instant::now() + PATIENCE;
    let mut told = Instant::now();
    loop {
        if requests == 0 && told.elapsed() > PROGRESS {
            told = Instant::now();
            // Each line is progress: a long test is not a stuck one.
            deadline = told + PATIENCE;
            println!("\n@progress {}", got.iter().map(|&count| u64::from(count)).sum::<u64>());
        }
        let stopped = stop.load(Ordering::Relaxed);
        for queue in 0..queues {
            let sent = &mut sent[queue as usize];
            let more = if requests == 0 { !stopped } else { *sent < requests };
            while more && tenant.outstanding(queue) < WINDOW && (requests == 0 || *sent < requests)
            {
                tenant.submit(queue, &request(queue, *sent)).expect("a credit");
                *sent += 1;
            }
        }
        if sent == got {
            return got.iter().map(|&count| u64::from(count)).sum();
        }
        tenant.wait(Duration::from_millis(500)).expect("the plane is there");
        for queue in 0..queues {
            while let Some(reply) = tenant.poll(queue) {
                assert!(!reply.refused);
                assert_eq!(reply.bytes, request(queue, got[queue as usize]), "in order, once");
                got[queue as usize] += 1;
            }
        }
        assert!(Instant::now() < deadline, "stuck: sent {sent:?}, got {got:?}");
    }
}

const LIAR: Shape =
    Shape { queues: 8, depth: 32, slot_bytes: 256, doorbells: DoorbellLayout::Packed };

/// Writes all over its own memory and rings, in a random order; how many lies.
fn lie(mut tenant: Tenant, seed: u64, stop: &AtomicBool) -> u64 {
    let (geometry, memory) = (tenant.geometry(), Arc::clone(&tenant.memory));
    let queues = geometry.shape().queues;
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let word = |at| memory.word(at).expect("inside");
    let word64 = |at| memory.word64(at).expect("inside");
    let mut lies = 0;
    // It begins as an honest one would: afterwards its own numbers are soon in disorder.
    for queue in 0..queues {
        while tenant.submit(queue, &[7; 256]).is_ok() {}
    }
    while !stop.load(Ordering::Relaxed) {
        let queue = (random() % u64::from(queues)) as u32;
        let (index, _) = geometry.word_of(queue);
        let ready = geometry.word(index).expect("it has queues");
        match random() % 10 {
            // A doorbell without work, and work without a doorbell.
            0 => tenant.ring(queue),
            1 => drop(memory.copy_in(geometry.submissions(queue), &random().to_le_bytes())),
            // Counts, bits and indices of any kind.
            2 => word(geometry.doorbell(queue)).store(random() as u32, Ordering::SeqCst),
            3 => word64(ready.ready).store(random(), Ordering::SeqCst),
            4 => word64(ready.ready).store(0, Ordering::SeqCst),
            5 => word(geometry.consumed(queue)).store(random() as u32, Ordering::SeqCst),
            // "I wait", and does not.
            6 => word(WAITING).store(1, Ordering::SeqCst),
            // Floods with well-formed requests, without consuming anything, or everything at once;
            // and writes over them while they are served.
            7 => {
                while tenant.submit(queue, &[7; 256]).is_ok() {}
                for _ in 0..8 {
                    let at = geometry.submissions(queue) + (random() % 2048) as usize * 8;
                    let _ = memory.copy_in(at, &random().to_le_bytes());
                }
            }
            8 => while tenant.poll(queue).is_some() {},
            // Garbage everywhere.
            _ => {
                let at = random() as usize % geometry.memory_bytes();
                let len = (random() % 64) as usize;
                let _ = memory.copy_in(at, &[random() as u8; 64][..len]);
            }
        }
        lies += 1;
    }
    lies
}
