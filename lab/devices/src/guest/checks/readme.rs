//! README's first commands, as it prints them.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, anyhow, bail, ensure};

use super::outcome::{not_possible, passed};
use crate::guest::command::{one_line, run_words, wait_until};
use crate::guest::service::{END_MS, START_LIMIT, Service, quoted};
use crate::guest::suite::Suite;
use crate::protocol::{Driver, Outcome};

const README: &str = include_str!("../../../../../README.md");
const KV_CONFIG: &str = include_str!("../../../../../docs/kv.toml");
/// The heading over the commands.
const HEADING: &str = "## See it within a minute";
/// Longest time for one of the commands, emulated.
const COMMAND_LIMIT: Duration = Duration::from_secs(90);
/// What a reader types into `nc`.
const TYPED: &str = "version\\r\\nquit\\r\\n";

/// The commands below [`HEADING`] that need no compiler.
fn commands() -> Vec<&'static str> {
    let section = README.split_once(HEADING).map_or("", |(_, after)| after);
    let block = section.split("```").nth(1).unwrap_or_default();
    let lines = block.lines().map(|line| line.split_once(" #").map_or(line, |(line, _)| line));
    lines.map(str::trim).filter(|line| line.starts_with("sudo target/release/tailplane ")).collect()
}

/// The commands work as printed. They make a lab of their own, so the NIC does not matter.
pub fn readme(suite: &mut Suite<'_>) -> anyhow::Result<Outcome> {
    if suite.task.driver != Driver::Veth {
        return not_possible("its commands use a veth pair: tried in the boots with veth");
    }
    drop(suite.take_service());
    let commands = commands();
    let (first, rest) = commands.split_first().context("README has no commands")?;
    let start = first.strip_suffix(" &").context("README's first command is no service")?;
    lay_out().context("laying out what README's reader has")?;
    // Not by a shell, which would not pass SIGTERM on.
    let mut words = start.split_whitespace().skip(1);
    let mut command = Command::new(words.next().context("README's first command has no program")?);
    command.args(words).current_dir("/");
    let mut service = Service::spawn(command)?;
    wait_until(START_LIMIT, || service.is_announced() || service.has_ended());
    let done = match service.is_announced() {
        true => rest.iter().try_for_each(|line| follow(line)),
        false => Err(anyhow!("`{start}` announced nothing: {}", quoted(&service.output()))),
    };
    let ended = service.terminate();
    done?;
    match ended.status {
        Some(status) if status.success() => passed(format!("{} commands", commands.len())),
        _ => bail!("`{start}` did not end in order: {}", quoted(&ended.output)),
    }
}

/// The program, its configuration and `sudo`, where README's reader has them.
fn lay_out() -> anyhow::Result<()> {
    for directory in ["/target/release", "/docs"] {
        fs::create_dir_all(directory)?;
    }
    // Emulated, it takes longer to end.
    let slower = format!("[dataplane]\nend_ms = {END_MS}\n");
    fs::write("/docs/kv.toml", KV_CONFIG.replacen("[dataplane]\n", &slower, 1))?;
    let program = "/target/release/tailplane";
    if fs::symlink_metadata(program).is_err() {
        symlink("/bin/tailplane", program)?;
    }
    Ok(())
}

/// Runs one command, and looks for what it is to show.
fn follow(line: &str) -> anyhow::Result<()> {
    let (typed, shows) = match line {
        line if line.contains(" ping ") => (line.to_owned(), " 0% packet loss"),
        line if line.contains(" nc ") => (format!("printf '{TYPED}' | {line}"), "VERSION "),
        line => (line.to_owned(), "p99"),
    };
    let script = format!("sudo() {{ \"$@\"; }}; cd /; {typed}");
    let printed = run_words(&["sh", "-c", &script], COMMAND_LIMIT)?;
    ensure!(printed.contains(shows), "`{line}`: expected '{shows}', found: {}", one_line(&printed));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn readme_has_the_commands_that_the_check_knows() {
        let commands = commands();
        assert!(commands.len() > 3, "{commands:?}");
        assert!(commands[0].ends_with("run docs/kv.toml &"), "{commands:?}");
        for word in [" ping ", " nc ", " load "] {
            assert!(commands.iter().any(|line| line.contains(word)), "{word}: {commands:?}");
        }
    }
}
