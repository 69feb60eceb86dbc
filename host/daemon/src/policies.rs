//! From a service's `[control]` table to a policy and the control loop's numbers.

use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use control::policy::{LatencyTarget, Policy, Sequence, Target};
use control::{LoopConfig, Machine, Scaling};

use configfile::{ControlConfig, PolicyName};

/// Longest file of a sequence, in bytes.
const SEQUENCE_BYTES_MAX: u64 = 1 << 20;
/// Time limits that count turns are at least so many of them.
const TURNS: u64 = 4;

/// The policy that a table asks for, on a machine; none where it asks for none.
///
/// # Errors
/// The file of a sequence cannot be read or is wrong: what, and on which line.
pub fn policy(
    control: &ControlConfig,
    machine: &Machine,
    scaling: Scaling,
) -> Result<Option<Box<dyn Policy>>, String> {
    let bound_ns = control.slo_us.map(|slo_us| slo_us * 1e3);
    match control.policy {
        PolicyName::None => Ok(None),
        PolicyName::LatencyTarget => {
            let over = control.over.unwrap_or(PolicyName::Energy);
            let sequence = sequence(over, control, machine, scaling)?;
            let objective_ns = bound_ns.ok_or("`control.slo_us` is needed")?;
            let target = Target::of_objective(objective_ns, control.floor_us * 1e3);
            Ok(Some(Box::new(LatencyTarget::new(sequence, machine.threads_per_core, target))))
        }
        name => {
            let mut sequence = sequence(name, control, machine, scaling)?;
            if let Some(bound_ns) = bound_ns {
                // Calm is a quarter of the bound, as in the authors' numbers.
                let thresholds = &mut sequence.thresholds;
                (thresholds.delay_ns, thresholds.calm_delay_ns) = (bound_ns, bound_ns / 4.0);
            }
            Ok(Some(Box::new(sequence)))
        }
    }
}

/// A policy that moves one step at a time.
fn sequence(
    name: PolicyName,
    control: &ControlConfig,
    machine: &Machine,
    scaling: Scaling,
) -> Result<Sequence, String> {
    match name {
        PolicyName::Consolidation => Ok(Sequence::consolidation(machine, scaling)),
        PolicyName::File => {
            let path = control.sequence.as_deref().ok_or("`control.sequence` is needed")?;
            read_sequence(path, machine, scaling)
        }
        PolicyName::Energy | PolicyName::None | PolicyName::LatencyTarget => {
            Ok(Sequence::energy(machine, scaling))
        }
    }
}

fn read_sequence(path: &Path, machine: &Machine, scaling: Scaling) -> Result<Sequence, String> {
    let shown = path.display();
    let unread = |error: std::io::Error| format!("cannot read the sequence '{shown}': {error}");
    // A FIFO without a writer would hold the daemon up in open.
    let file = std::fs::File::options().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = file.map_err(unread)?;
    if !file.metadata().map_err(unread)?.is_file() {
        return Err(unread(std::io::Error::other("it is no regular file")));
    }
    let mut text = String::new();
    file.take(SEQUENCE_BYTES_MAX + 1).read_to_string(&mut text).map_err(unread)?;
    if text.len() as u64 > SEQUENCE_BYTES_MAX {
        return Err(format!("the sequence '{shown}' has more than {SEQUENCE_BYTES_MAX} bytes"));
    }
    Sequence::from_toml(&text, machine, scaling)
        .map_err(|error| format!("in the sequence '{shown}': {error}"))
}

/// The loop's numbers for a table: those of its policy, with time limits that the period lets it keep.
pub fn loop_config(control: &ControlConfig) -> LoopConfig {
    let config = match control.policy {
        PolicyName::LatencyTarget => LoopConfig::predicting(),
        _ => LoopConfig::ixcp(),
    };
    let period_ns = control.period_ms * 1_000_000;
    let some_turns_ns = TURNS * period_ns;
    LoopConfig {
        // An average over less than a period is the period's value alone: it would follow every jitter.
        horizons_ns: config.horizons_ns.map(|horizon_ns| horizon_ns.max(period_ns as f64)),
        timeout_ns: config.timeout_ns.max(some_turns_ns),
        gap_ns: config.gap_ns.max(some_turns_ns),
        vanished_ns: config.vanished_ns.max(some_turns_ns),
        ..config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(text: &str) -> ControlConfig {
        ControlConfig::of_service(&format!("[control]\n{text}")).expect("is fine")
    }

    fn made(text: &str) -> Result<Option<Box<dyn Policy>>, String> {
        policy(&control(text), &Machine::ix(), Scaling::ix())
    }

    #[test]
    fn each_name_has_its_policy() {
        let steps = |text: &str| {
            let policy = made(text).expect("made")?;
            Some((policy.name().to_owned(), policy.steps().len()))
        };
        assert_eq!(steps(""), None);
        assert_eq!(steps("policy = \"energy\""), Some(("energy".to_owned(), 22)));
        assert_eq!(steps("policy = \"consolidation\""), Some(("consolidation".to_owned(), 9)));
        let target = "policy = \"latency-target\"\nslo_us = 500";
        let name = |over: &str| format!("latency-target over {over}");
        assert_eq!(steps(target), Some((name("energy"), 22)));
        let over = format!("{target}\nover = \"consolidation\"");
        assert_eq!(steps(&over), Some((name("consolidation"), 9)));
    }

    #[test]
    fn a_sequence_that_is_wrong_is_said_with_file_and_line() {
        let error = |text: &str| made(text).err().expect("refused");
        let text = "policy = \"file\"\nsequence = \"/nonexistent/steps.toml\"";
        assert!(error(text).contains("'/nonexistent/steps.toml'"), "{}", error(text));
        let path = std::env::temp_dir().join(format!("tailplaned-steps-{}", std::process::id()));
        std::fs::write(&path, "[[step]]\ncores = 9\n").expect("a file");
        let text = format!("policy = \"file\"\nsequence = \"{}\"", path.display());
        let found = error(&text);
        std::fs::write(&path, "[[step]]\ncores = 8\n").expect("a file");
        let fine = made(&text);
        std::fs::remove_file(&path).expect("it was there");
        assert!(found.contains("line 2: step 1 has 9 cores"), "{found}");
        assert_eq!(fine.expect("made").expect("a policy").steps().len(), 1);
    }

    #[test]
    fn time_limits_leave_some_turns() {
        let config = loop_config(&control("period_ms = 5000"));
        assert!(config.gap_ns >= 20_000_000_000 && config.vanished_ns >= 20_000_000_000);
        assert_eq!(loop_config(&control("")).gap_ns, LoopConfig::ixcp().gap_ns);
        let fast =
            loop_config(&control("policy = \"latency-target\"\nslo_us = 500\nperiod_ms = 1"));
        assert_eq!(fast, LoopConfig::predicting());
    }
}
