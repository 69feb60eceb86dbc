//! The machine that a result was measured on, as far as it shows.
//!
//! ```
//! use std::{path::Path, time::SystemTime};
//! use measure::conditions::collect;
//! let conditions = collect(Path::new("/"), "0123456789ab", SystemTime::now());
//! assert_eq!(conditions["commit"], "0123456789ab");
//! ```
//!
//! A condition that cannot be read says so; none is guessed. The seed is stamped by the recorder,
//! and what only a figure knows (driver, scheduler, batch bound) by the figure.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::time::SystemTime;

use time::OffsetDateTime;

/// Most that is read of one file: the description of one processor is a few kilobytes, and some
/// machines have hundreds.
const READ_MAX: u64 = 4 << 20;
/// Longest value that is kept.
const VALUE_MAX: usize = 200;
/// What stands for a condition that cannot be read.
const UNKNOWN: &str = "unknown";

/// The conditions of the machine whose `/proc` and `/sys` stand under `root`, for a build of
/// `commit`, at `now`.
pub fn collect(root: &Path, commit: &str, now: SystemTime) -> BTreeMap<String, String> {
    let machine = Machine { root };
    let cpu = |name: &str| machine.line(&format!("sys/devices/system/cpu/{name}"));
    let info = machine.text("proc/cpuinfo").unwrap_or_default();
    let online = cpu("online");
    let mut conditions = BTreeMap::new();
    let mut put = |name: &str, value: String| {
        conditions.insert(name.to_owned(), value.chars().take(VALUE_MAX).collect());
    };
    put("kernel", or_unknown(machine.kernel()));
    put("processor", or_unknown(machine.processor()));
    let cores = online.as_deref().and_then(count).or_else(|| processors(&info));
    put("cores", or_unknown(cores.map(|cores| cores.to_string())));
    let allowed = machine.text("proc/self/status");
    let allowed = allowed.and_then(|status| field(&status, "Cpus_allowed_list"));
    put("cores allowed", or_unknown(allowed));
    if let Some(isolated) = cpu("isolated").filter(|list| !list.is_empty()) {
        put("cores isolated", isolated);
    }
    put("hyperthreads", or_unknown(cpu("smt/active").map(|active| on_off(&active).to_owned())));
    put("governor", machine.governors(online.as_deref()));
    put("turbo", turbo(cpu("intel_pstate/no_turbo"), cpu("cpufreq/boost")));
    put("virtual machine", virtual_machine(&info).to_owned());
    let clock = machine.line("sys/devices/system/clocksource/clocksource0/current_clocksource");
    put("clock source", or_unknown(clock));
    let memory = machine.text("proc/meminfo").unwrap_or_default();
    put("memory", or_unknown(gib(&memory, "MemTotal")));
    put("huge pages", or_unknown(field(&memory, "HugePages_Total")));
    let load = machine.line("proc/loadavg");
    let load = load.and_then(|line| line.split(' ').next().map(str::to_owned));
    put("load average before", or_unknown(load));
    put("commit", commit.to_owned());
    put("date", date(now));
    conditions
}

/// The conditions of this machine now, for a build of the commit that the command runs in.
pub fn here() -> BTreeMap<String, String> {
    collect(Path::new("/"), &commit(), SystemTime::now())
}

/// The commit of the tree that the command runs in, with `+` where it has changes.
pub fn commit() -> String {
    let git = |arguments: &[&str]| {
        let output = Command::new("git").args(arguments).output().ok()?;
        output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
    };
    let Some(commit) = git(&["rev-parse", "--short=12", "HEAD"]) else {
        return "unknown (not in a git checkout)".to_owned();
    };
    match git(&["status", "--porcelain", "--untracked-files=no"]) {
        Some(changes) if !changes.is_empty() => format!("{commit}+"),
        _ => commit,
    }
}

/// The kernel's release and the first processor's name, each `unknown` where it cannot be read.
pub fn kernel_and_processor() -> [String; 2] {
    let machine = Machine { root: Path::new("/") };
    [machine.kernel(), machine.processor()].map(or_unknown)
}

fn or_unknown(value: Option<String>) -> String {
    value.unwrap_or_else(|| UNKNOWN.to_owned())
}

/// Files below a root.
struct Machine<'a> {
    root: &'a Path,
}

impl Machine<'_> {
    fn text(&self, path: &str) -> Option<String> {
        let mut bytes = Vec::new();
        File::open(self.root.join(path)).ok()?.take(READ_MAX).read_to_end(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn line(&self, path: &str) -> Option<String> {
        Some(self.text(path)?.lines().next().unwrap_or_default().trim().to_owned())
    }

    fn kernel(&self) -> Option<String> {
        self.line("proc/sys/kernel/osrelease")
    }

    fn processor(&self) -> Option<String> {
        let info = self.text("proc/cpuinfo")?;
        field(&info, "model name").or_else(|| field(&info, "CPU part"))
    }

    /// The frequency governors of the cores that are online, each once.
    fn governors(&self, online: Option<&str>) -> String {
        let mut found: Vec<String> = Vec::new();
        for core in online.into_iter().flat_map(cores) {
            let path = format!("sys/devices/system/cpu/cpu{core}/cpufreq/scaling_governor");
            match self.line(&path) {
                Some(governor) if !found.contains(&governor) => found.push(governor),
                _ => {}
            }
        }
        if found.is_empty() { "none (no cpufreq)".to_owned() } else { found.join(", ") }
    }
}

/// Most cores of a list that are looked at, so that a wrong one does not keep us.
const CORES_MAX: usize = 4_096;

/// The cores of a list such as `0-3,8`.
fn cores(list: &str) -> impl Iterator<Item = usize> {
    let range = |part: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    };
    list.split(',').filter_map(range).flatten().take(CORES_MAX)
}

fn count(list: &str) -> Option<usize> {
    Some(cores(list).count()).filter(|count| *count > 0)
}

/// Processors that `/proc/cpuinfo` describes.
fn processors(info: &str) -> Option<usize> {
    let count = info.lines().filter(|line| line.starts_with("processor")).count();
    Some(count).filter(|count| *count > 0)
}

/// The value of the first `name : value` line.
pub(crate) fn field(text: &str, name: &str) -> Option<String> {
    text.lines().find_map(|line| {
        let (key, value) = line.split_once(':')?;
        (key.trim() == name).then(|| value.trim().to_owned())
    })
}

fn gib(memory: &str, name: &str) -> Option<String> {
    let kib: f64 = field(memory, name)?.strip_suffix("kB")?.trim().parse().ok()?;
    Some(format!("{:.1} GiB", kib / f64::from(1 << 20)))
}

fn on_off(flag: &str) -> &'static str {
    match flag {
        "1" => "on",
        "0" => "off",
        _ => UNKNOWN,
    }
}

/// Whether the processor may exceed its nominal frequency: one driver says it with `no_turbo`, the
/// others with `boost`.
fn turbo(no_turbo: Option<String>, boost: Option<String>) -> String {
    match (no_turbo.as_deref(), boost.as_deref()) {
        (Some("0"), _) | (_, Some("1")) => "on",
        (Some("1"), _) | (_, Some("0")) => "off",
        _ => UNKNOWN,
    }
    .to_owned()
}

/// On x86 the processor's flags tell; elsewhere nothing does.
fn virtual_machine(info: &str) -> &'static str {
    match field(info, "flags") {
        Some(flags) if flags.split(' ').any(|flag| flag == "hypervisor") => "yes",
        Some(_) => "no",
        None => UNKNOWN,
    }
}

/// `2026-11-21T08:30:41Z`.
fn date(now: SystemTime) -> String {
    let now = OffsetDateTime::from(now);
    let (date, (hour, minute, second)) = (now.date(), now.time().as_hms());
    format!("{date}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::PathBuf;
    use std::time::{Duration, UNIX_EPOCH};

    /// A directory of its own for each test, gone afterwards.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str, files: &[(&str, &str)]) -> Self {
            let name = format!("tailplane-conditions-{}-{name}", std::process::id());
            let root = Self(std::env::temp_dir().join(name));
            for (path, text) in files {
                let path = root.0.join(path);
                fs::create_dir_all(path.parent().unwrap()).unwrap();
                fs::write(path, text).unwrap();
            }
            root
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn at(seconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(seconds)
    }

    #[test]
    fn a_machine_that_shows_all() {
        let cpu = "sys/devices/system/cpu";
        let governor = |core: u32| format!("{cpu}/cpu{core}/cpufreq/scaling_governor");
        let root = Root::new(
            "all",
            &[
                ("proc/sys/kernel/osrelease", "6.18.5\n"),
                (
                    "proc/cpuinfo",
                    "processor\t: 0\nmodel name\t: Fast <1>\nflags\t\t: fpu hypervisor sse\n",
                ),
                ("proc/self/status", "Name:\tx\nCpus_allowed_list:\t0-1,3\n"),
                ("proc/meminfo", "MemTotal:       25165824 kB\nHugePages_Total:     512\n"),
                ("proc/loadavg", "0.25 0.30 0.10 1/200 77\n"),
                (&format!("{cpu}/online"), "0-2,5\n"),
                (&format!("{cpu}/isolated"), "2\n"),
                (&format!("{cpu}/smt/active"), "1\n"),
                (&format!("{cpu}/intel_pstate/no_turbo"), "1\n"),
                (&governor(0), "performance\n"),
                (&governor(1), "performance\n"),
                (&governor(5), "powersave\n"),
                ("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc\n"),
            ],
        );
        let conditions = collect(&root.0, "abc+", at(1_795_249_841));
        for (name, value) in [
            ("kernel", "6.18.5"),
            ("processor", "Fast <1>"),
            ("cores", "4"),
            ("cores allowed", "0-1,3"),
            ("cores isolated", "2"),
            ("hyperthreads", "on"),
            ("governor", "performance, powersave"),
            ("turbo", "off"),
            ("virtual machine", "yes"),
            ("clock source", "tsc"),
            ("memory", "24.0 GiB"),
            ("huge pages", "512"),
            ("load average before", "0.25"),
            ("commit", "abc+"),
            ("date", "2026-11-21T08:30:41Z"),
        ] {
            assert_eq!(conditions.get(name).map(String::as_str), Some(value), "{name}");
        }
        assert_eq!(conditions.len(), 15);
    }

    #[test]
    fn a_machine_that_shows_nothing() {
        let conditions = collect(Path::new("/nowhere-at-all"), "", at(0));
        assert_eq!(conditions["governor"], "none (no cpufreq)");
        assert_eq!(conditions["date"], "1970-01-01T00:00:00Z");
        for name in ["kernel", "processor", "cores", "memory", "turbo", "virtual machine"] {
            assert_eq!(conditions[name], UNKNOWN, "{name}");
        }
    }

    #[test]
    fn nonsense_is_bounded() {
        let long = "9".repeat(10_000);
        let root = Root::new(
            "nonsense",
            &[
                ("proc/sys/kernel/osrelease", &long),
                ("sys/devices/system/cpu/online", "7-3,x,0-18446744073709551615"),
                ("proc/meminfo", "MemTotal: lots\n"),
            ],
        );
        let conditions = collect(&root.0, &long, at(0));
        assert_eq!(conditions["kernel"].len(), VALUE_MAX);
        assert_eq!(conditions["cores"], CORES_MAX.to_string());
        assert_eq!(conditions["memory"], UNKNOWN);
    }

    #[test]
    fn dates_know_leap_years() {
        for (seconds, text) in [
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_251_199, "2024-02-29T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(date(at(seconds)), text);
        }
    }
}
