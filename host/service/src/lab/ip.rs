//! Runs iproute2's `ip`, and says what to do where it fails.

use std::io;
use std::process::{Command, Stdio};

use super::error::LabError;

/// Runs `ip` with these arguments and returns its standard output.
///
/// # Errors
/// [`LabError::Failed`] with the command line, what `ip` wrote, and a hint where there is one.
pub fn ip(arguments: &[&str]) -> Result<String, LabError> {
    // Messages are matched for hints below, hence the locale.
    let output =
        Command::new("ip").args(arguments).env("LC_ALL", "C").stdin(Stdio::null()).output();
    let failed = |found: String, hint: &str| {
        LabError::Failed(format!("`ip {}` failed: {found}{hint}", arguments.join(" ")))
    };
    let output = output.map_err(|error| {
        let is_absent = error.kind() == io::ErrorKind::NotFound;
        let hint = if is_absent { "; install the package iproute2" } else { "" };
        failed(error.to_string(), hint)
    })?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        let found = format!("{}: {}", output.status, stderr.trim());
        return Err(failed(found, hint_for(&stderr)));
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}

fn hint_for(stderr: &str) -> &'static str {
    // "Operation not supported" is also what an absent veth module reads like.
    const HINTS: [(&str, &str); 5] = [
        (
            "Operation not permitted",
            "; run it as root, in a container with CAP_SYS_ADMIN and CAP_NET_ADMIN",
        ),
        (
            "Permission denied",
            "; run it as root, in a container with CAP_SYS_ADMIN and CAP_NET_ADMIN",
        ),
        ("Unknown device type", "; this kernel has no veth: load the module or use another kernel"),
        ("Operation not supported", "; this kernel lacks veth or network namespaces"),
        ("File exists", "; something of that name exists: `tailplane lab down` removes a lab"),
    ];
    HINTS.iter().find(|(text, _)| stderr.contains(text)).map_or("", |(_, hint)| hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_failures_have_a_hint() {
        assert!(hint_for("mkdir /run/netns failed: Permission denied").contains("root"));
        assert!(hint_for("RTNETLINK answers: File exists").contains("lab down"));
        assert_eq!(hint_for("something else"), "");
    }

    #[test]
    fn a_failure_names_the_command_and_the_answer() {
        let Err(error) = ip(&["link", "show", "dev", "tp-absent"]) else {
            panic!("an absent interface was shown")
        };
        assert!(error.to_string().contains("ip link show dev tp-absent"), "{error}");
    }
}
