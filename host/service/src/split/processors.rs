//! What others use of the processors, from outside of the dataplane: by `/proc`.

use std::collections::{BTreeMap, HashMap};
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use control::sysfs::stat_field;

use super::plan::Foreign;

/// Ticks per second of `/proc` (USER_HZ, which is 100 on every architecture that we run on).
const TICKS_PER_S: f64 = 100.0;
/// Most that is read of `/proc/stat`: its lines on processors come first.
const READ_MAX: u64 = 256 << 10;
/// Most tasks of a process that are looked at. One that has more is not its own use any more.
const TASKS_MAX: usize = 256;
/// A tick of `/proc/stat` is a tenth of it.
const SPAN_MIN: Duration = Duration::from_millis(50);

/// Sees what others use between two looks.
#[derive(Debug)]
pub struct Processors {
    root: PathBuf,
    /// The kernel's threads for interrupts that take long. What they do for the service's device is its own use, and
    /// they get out of nobody's way.
    interrupts: Vec<u32>,
    before: Option<Seen>,
}

#[derive(Debug)]
struct Seen {
    at: Instant,
    /// Seconds for which each processor had nothing to do, or a hypervisor had it.
    idle_s: BTreeMap<u32, f64>,
    /// Our own tasks.
    own: HashMap<String, Task>,
    /// Seconds for which somebody waited for one.
    waited_s: f64,
}

/// How long a task has run, and has waited for a processor, in seconds; and where it ran last.
#[derive(Clone, Copy, Debug)]
struct Task {
    ran_s: f64,
    waited_s: f64,
    cpu: u32,
}

impl Processors {
    /// Of the machine whose root directory this is.
    pub fn new(root: &Path) -> Self {
        // All of the kernel's threads are children of the second process.
        let children = fs::read_to_string(root.join("proc/2/task/2/children")).unwrap_or_default();
        let is_for_interrupts = |thread: &u32| {
            let name = fs::read_to_string(root.join(format!("proc/{thread}/comm")));
            name.is_ok_and(|name| name.starts_with("ksoftirqd/"))
        };
        let interrupts = children.split_whitespace().filter_map(|word| word.parse().ok());
        let interrupts = interrupts.filter(is_for_interrupts).collect();
        Self { root: root.to_owned(), interrupts, before: None }
    }

    /// What others than `processes` and their children used of each processor since the last look, which was a while
    /// ago. None at first, and where the machine does not tell.
    pub fn look(&mut self, now: Instant, processes: &[u32]) -> Option<Foreign> {
        let idle_s = self.idle()?;
        let waited_s = self.waited().unwrap_or(0.0);
        let mut own = HashMap::new();
        for process in processes.iter().chain(&self.interrupts) {
            self.tasks(*process, true, &mut own);
        }
        let before = self.before.replace(Seen { at: now, idle_s, own, waited_s });
        let (before, seen) = (before?, self.before.as_ref()?);
        let span = now.saturating_duration_since(before.at).max(SPAN_MIN).as_secs_f64();
        let mut waited = seen.waited_s - before.waited_s;
        let mut used = seen.idle_s.clone();
        for (cpu, share) in &mut used {
            // One that has just come is not known to be free.
            *share = before.idle_s.get(cpu).map_or(span, |before| span - (*share - before));
        }
        let idle =
            used.iter().map(|(cpu, busy)| (*cpu, (1.0 - busy / span).clamp(0.0, 1.0))).collect();
        for (name, now) in &seen.own {
            let before = before.own.get(name).unwrap_or(now);
            // Where it ran last it is taken to have run all the time: these threads stay where they are.
            if let Some(used) = used.get_mut(&now.cpu) {
                *used -= now.ran_s - before.ran_s;
            }
            waited -= now.waited_s - before.waited_s;
        }
        used.values_mut().for_each(|used| *used = (*used / span).clamp(0.0, 1.0));
        Some(Foreign { used, idle, waited: (waited / span).clamp(0.0, 1.0) })
    }

    /// Seconds for which some task of the machine waited for a processor, where the kernel counts pressure.
    fn waited(&self) -> Option<f64> {
        let text = fs::read_to_string(self.root.join("proc/pressure/cpu")).ok()?;
        let total = text.lines().find_map(|line| line.strip_prefix("some ")?.rsplit_once("total="));
        Some(total?.1.parse::<f64>().ok()? / 1e6)
    }

    fn idle(&self) -> Option<BTreeMap<u32, f64>> {
        let mut text = String::new();
        File::open(self.root.join("proc/stat"))
            .ok()?
            .take(READ_MAX)
            .read_to_string(&mut text)
            .ok()?;
        let idle = text.lines().filter_map(|line| {
            // The first line has no number: it is of all of them.
            let (cpu, fields) = line.strip_prefix("cpu")?.split_once(' ')?;
            let cpu = cpu.parse().ok()?;
            let fields: Vec<f64> =
                fields.split_whitespace().filter_map(|word| word.parse().ok()).collect();
            // user nice system idle iowait irq softirq steal. The kernel knows of idle time exactly when it began;
            // of the others it knows who had a processor at each tick.
            let ticks: f64 = [3, 4, 7].iter().filter_map(|&index| fields.get(index)).sum();
            Some((cpu, ticks / TICKS_PER_S))
        });
        let idle: BTreeMap<u32, f64> = idle.collect();
        (!idle.is_empty()).then_some(idle)
    }

    /// Adds the tasks of a process to `all`.
    fn tasks(&self, process: u32, with_children: bool, all: &mut HashMap<String, Task>) {
        let directory = self.root.join(format!("proc/{process}/task"));
        for task in fs::read_dir(directory).into_iter().flatten().flatten().take(TASKS_MAX) {
            let read = |name: &str| fs::read_to_string(task.path().join(name)).unwrap_or_default();
            let name = task.file_name().to_string_lossy().into_owned();
            let scheduled = read("schedstat");
            let mut nanos = scheduled.split_whitespace().map_while(|word| word.parse::<f64>().ok());
            let nanos = nanos.next().zip(nanos.next());
            if let (Some((ran, waited)), Some(cpu)) = (nanos, processor(&read("stat"))) {
                all.insert(name, Task { ran_s: ran / 1e9, waited_s: waited / 1e9, cpu });
            }
            if with_children {
                let children = read("children");
                let children = children.split_whitespace().filter_map(|word| word.parse().ok());
                children.for_each(|child| self.tasks(child, false, all));
            }
        }
    }
}

/// The processor that a task ran on last, by its line of proc(5).
fn processor(stat: &str) -> Option<u32> {
    // The 39th field of all.
    stat_field(stat, 39 - 3)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(cpu: u32) -> String {
        let zeros = vec!["0"; 35].join(" ");
        format!("77 (a) b (c) R {zeros} {cpu} 0 0")
    }

    #[test]
    fn what_is_not_ours_is_foreign() {
        let root = std::env::temp_dir().join(format!("tailplane-shares-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join("proc").join(path);
            fs::create_dir_all(path.parent().expect("inside")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("2/task/2/children", "3 14 ");
        write("3/comm", "rcu_preempt\n");
        write("14/comm", "ksoftirqd/0\n");
        let mut processors = Processors::new(&root);
        let start = Instant::now();
        let mut look = |at_ms| processors.look(start + Duration::from_millis(at_ms), &[70, 80]);
        assert_eq!(look(0), None, "nothing is there");
        write("stat", "cpu  0 0\ncpu0 100 0 0 500 0 0 0 900\ncpu1 50 0 0 500 0 0 0 0\nintr 7\n");
        write("pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=1000\nfull total=7\n");
        write("70/task/70/schedstat", "1000000000 5 5\n");
        write("70/task/70/stat", &stat(0));
        write("14/task/14/schedstat", "0 0 0\n");
        write("14/task/14/stat", &stat(0));
        // The first process of a namespace, and what runs in that.
        write("80/task/80/schedstat", "1 1 1\n");
        write("80/task/80/stat", &stat(1));
        write("80/task/80/children", "81 ");
        write("81/task/81/schedstat", "0 0 0\n");
        write("81/task/81/stat", &stat(1));
        assert_eq!(look(100), None, "the first look");
        // Of one second processor 0 was busy for 0.8 s, half of it by ours; processor 1 for 0.3, all of it ours.
        write("stat", "cpu  0 0\ncpu0 150 0 30 515 5 0 0 900\ncpu1 50 0 10 540 0 10 10 30\n");
        // For 0.6 s somebody waited: for 0.1 s one of ours.
        write(
            "pressure/cpu",
            "some avg10=9.00 avg60=0.00 avg300=0.00 total=601000\nfull total=7\n",
        );
        write("70/task/70/schedstat", "1300000000 100000005 5\n");
        write("14/task/14/schedstat", "100000000 0 0\n");
        write("81/task/81/schedstat", "310000000 0 0\n");
        let foreign = look(1_100).expect("the second look");
        let near = |found: f64, share: f64| (found - share).abs() < 1e-6;
        let (used, waited) = (&foreign.used, foreign.waited);
        assert!(near(used[&0], 0.4) && near(used[&1], 0.0) && near(waited, 0.5), "{foreign:?}");
        assert!(used.len() == 2 && near(foreign.idle[&0], 0.2) && near(foreign.idle[&1], 0.7));
        fs::remove_dir_all(&root).expect("removed");
        assert_eq!(look(2_000), None);
    }

    #[test]
    fn this_machine_tells() {
        let mut processors = Processors::new(Path::new("/"));
        let own = [std::process::id()];
        let start = Instant::now();
        assert_eq!(processors.look(start, &own), None);
        while start.elapsed() < Duration::from_millis(100) {
            std::hint::spin_loop();
        }
        let foreign = processors.look(Instant::now(), &own).expect("procfs");
        let used = &foreign.used;
        assert!(!used.is_empty() && used.values().all(|share| (0.0..=1.0).contains(share)));
    }
}
