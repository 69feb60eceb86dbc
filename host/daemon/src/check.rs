//! `tailplaned --check`: reads everything that the daemon would, and says what is wrong and what the machine lacks.

use std::io::{self, Write};
use std::path::Path;

use control::actuator::{Cpufreq, Cpuset};
use control::{Machine, Topology};

use crate::config::Config;
use crate::manager::service_files;
use crate::placement::placement;
use crate::policies;
use crate::run::access;
use configfile::{ControlConfig, PolicyName};

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Found {
    /// All is there.
    Well,
    /// The machine lacks something; the daemon does without.
    Lacking,
    /// Something is wrong: the daemon would not start, or not govern a service.
    Wrong,
}

impl Found {
    /// The exit status: 0, 3, 1. (2 is that of a command line that is wrong.)
    pub fn status(self) -> u8 {
        match self {
            Self::Well => 0,
            Self::Lacking => 3,
            Self::Wrong => 1,
        }
    }
}

struct Report<'a> {
    out: &'a mut dyn Write,
    worst: Found,
}

impl Report<'_> {
    fn say(&mut self, found: Found, what: &str, text: &str) -> io::Result<()> {
        self.worst = self.worst.max(found);
        let mark = match found {
            Found::Well => "ok     ",
            Found::Lacking => "lacking",
            Found::Wrong => "WRONG  ",
        };
        writeln!(self.out, "{mark} {what}: {text}")
    }

    /// What is there; or what is amiss, which is so bad.
    fn tell(&mut self, bad: Found, what: &str, found: Result<String, String>) -> io::Result<()> {
        match found {
            Ok(text) => self.say(Found::Well, what, &text),
            Err(text) => self.say(bad, what, &text),
        }
    }
}

/// Looks at everything, and writes a line on each.
///
/// # Errors
/// `out` cannot be written to.
pub fn check(config: &Config, out: &mut dyn Write) -> io::Result<Found> {
    let mut report = Report { out, worst: Found::Well };
    sockets(config, &mut report)?;
    let topology = machine(config, &mut report)?;
    services(config, topology.as_ref(), &mut report)?;
    let text = match report.worst {
        Found::Well => "nothing is missing",
        Found::Lacking => "tailplaned runs, and does without what is lacking",
        Found::Wrong => "mend what is wrong",
    };
    writeln!(report.out, "{text}")?;
    Ok(report.worst)
}

fn sockets(config: &Config, report: &mut Report<'_>) -> io::Result<()> {
    let socket = access(config).map(|(access, _)| {
        let text = access.describe(crate::varlink::Role::Change);
        format!("{}; {text}", config.control_socket().display())
    });
    report.tell(Found::Wrong, "control socket", socket.map_err(|error| format!("{error:#}")))?;
    let directory = &config.run_directory;
    let shown = directory.display().to_string();
    let nearest = directory.ancestors().find(|one| one.exists()).unwrap_or(Path::new("/"));
    let found = match rustix::fs::access(nearest, rustix::fs::Access::WRITE_OK) {
        Ok(()) => Ok(shown),
        Err(error) => {
            Err(format!("{shown} cannot be written: {error}; run as root, or name another"))
        }
    };
    report.tell(Found::Wrong, "run directory", found)?;
    let program = find_program(&config.command).map(|path| path.display().to_string());
    let program = program.ok_or_else(|| {
        let command = config.command.display();
        format!("\"{command}\" is not there (looked in $PATH): services cannot be started")
    });
    report.tell(Found::Lacking, "command", program)
}

/// Where a program is, as `execvp` looks for it.
fn find_program(program: &Path) -> Option<std::path::PathBuf> {
    if program.components().count() > 1 {
        return program.is_file().then(|| program.to_owned());
    }
    let paths = std::env::var_os("PATH")?;
    std::env::split_paths(&paths).map(|one| one.join(program)).find(|path| path.is_file())
}

fn machine(config: &Config, report: &mut Report<'_>) -> io::Result<Option<Topology>> {
    let topology = match Topology::read(&config.machine.sys) {
        Ok(topology) => topology,
        Err(error) => {
            report.say(Found::Wrong, "processors", &error.to_string())?;
            return Ok(None);
        }
    };
    let Machine { cores, threads_per_core, .. } = topology.machine();
    let text = format!("{cores} cores with up to {threads_per_core} threads each");
    report.say(Found::Well, "processors", &text)?;
    let clocks = Cpufreq::new(&topology).map(|_| {
        let count = topology.machine().clocks_khz.len();
        match (config.machine.set_clocks, &topology.boost) {
            (false, _) => "left alone (`machine.set_clocks`)".to_owned(),
            (true, Some(_)) => format!("{count} steps, and Turbo"),
            (true, None) => format!("{count} steps, no Turbo"),
        }
    });
    report.tell(Found::Lacking, "clocks", clocks.map_err(|error| error.to_string()))?;
    let cpusets = Cpuset::find(&config.machine.cgroup)
        .map(|(hierarchy, mount)| format!("{hierarchy:?} at {}", mount.display()));
    report.tell(Found::Lacking, "cpusets", cpusets.map_err(|missing| missing.to_string()))?;
    if !rustix::process::geteuid().is_root() {
        let text = "not root: clocks, cpusets and services of others are out of reach";
        report.say(Found::Lacking, "privilege", text)?;
    }
    Ok(Some(topology))
}

fn services(
    config: &Config,
    topology: Option<&Topology>,
    report: &mut Report<'_>,
) -> io::Result<()> {
    let directory = config.services_directory.display().to_string();
    let files = match service_files(&config.services_directory) {
        Ok(files) => files,
        Err(error) => return report.say(Found::Wrong, &directory, &error.to_string()),
    };
    if files.is_empty() {
        report.say(Found::Lacking, &directory, "no *.toml: no service is configured")?;
    }
    for file in files {
        let loaded = ControlConfig::load(&file).map_err(|error| format!("{error:#}"));
        let found = loaded.and_then(|(name, control)| {
            let text = policy_of(config, topology, &control)?;
            Ok(format!("service {name}: {text}"))
        });
        report.tell(Found::Wrong, &file.display().to_string(), found)?;
    }
    Ok(())
}

/// The policy that a service's table asks for, on the processors that it names; in words.
fn policy_of(
    config: &Config,
    topology: Option<&Topology>,
    control: &ControlConfig,
) -> Result<String, String> {
    if control.policy == PolicyName::None {
        return Ok("watched, not governed".to_owned());
    }
    let topology = topology.ok_or("the machine's processors cannot be read")?;
    // How many threads it will have is in the part of the file that is not ours: as many as processors are named.
    let machine = match control.cores.len() {
        0 => topology.machine(),
        threads => placement(topology, &control.cores, &vec![None; threads])?.machine,
    };
    let policy = policies::policy(control, &machine, config.machine.scaling())?;
    let (name, steps) =
        policy.map_or(("none".to_owned(), 0), |one| (one.name().to_owned(), one.steps().len()));
    Ok(format!("policy {name}, {steps} steps, every {} ms", control.period_ms))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::fake::Directory;

    fn checked(directory: &Directory) -> (String, Found) {
        let path = |name: &str| directory.path().join(name);
        let mut config = Config {
            run_directory: path("run"),
            services_directory: path("services"),
            command: "/bin/sh".into(),
            ..Config::default()
        };
        (config.machine.sys, config.machine.cgroup) = (path("sys"), path("cg"));
        let mut out = Vec::new();
        let found = check(&config, &mut out).expect("written");
        (String::from_utf8(out).expect("text"), found)
    }

    #[test]
    fn what_is_there_what_is_lacking_and_what_is_wrong_is_said() {
        let directory = Directory::new("check");
        directory.machine(4, true);
        directory.put("cg/cgroup.controllers", "cpuset");
        directory.put("services/kv.toml", "[control]\npolicy = \"energy\"\ncores = [0, 1]\n");
        let (text, found) = checked(&directory);
        assert!(text.contains("service kv: policy energy, 3 steps, every 100 ms"), "{text}");
        assert!(text.contains("2 steps, no Turbo") && text.contains("V2 at"), "{text}");
        let expected =
            if rustix::process::geteuid().is_root() { Found::Well } else { Found::Lacking };
        assert_eq!((found, found.status() == 1), (expected, false), "{text}");
        std::fs::remove_dir_all(directory.path().join("cg")).expect("there");
        std::fs::remove_dir_all(directory.path().join("sys/devices/system/cpu/cpufreq"))
            .expect("there");
        let (text, found) = checked(&directory);
        assert_eq!((found, found.status()), (Found::Lacking, 3), "{text}");
        assert!(text.contains("lacking cpusets: no cgroup hierarchy"), "{text}");
        assert!(text.contains("lacking clocks: no clocks that can be set"), "{text}");
        directory.put("services/bad.toml", "[control]\npolicy = \"energy\"\ncores = [9]\n");
        directory.put("services/worse.toml", "[control]\nperiod_ms = 0\n");
        let (text, found) = checked(&directory);
        assert_eq!((found, found.status()), (Found::Wrong, 1), "{text}");
        assert!(text.contains("processor 9 is not there"), "{text}");
        assert!(text.contains("`control.period_ms` is 0"), "{text}");
    }
}
