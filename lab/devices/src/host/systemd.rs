//! systemd in the image: its programs with their libraries, the few units that it needs, and one that starts the task.

use std::path::{Path, PathBuf};

use anyhow::{Context, bail};

use super::image::{Image, find_below};

/// Programs of the package, and whether each release has it.
const PROGRAMS: [(&str, bool); 4] = [
    ("lib/systemd/systemd", true),
    ("lib/systemd/systemd-executor", false),
    ("bin/systemctl", true),
    ("bin/systemd-sysusers", true),
];
/// Where systemd's package has its libraries, and those that it needs.
const LIBRARY_DIRECTORIES: [&str; 4] = [
    "usr/lib/x86_64-linux-gnu/systemd",
    "lib/x86_64-linux-gnu/systemd",
    "usr/lib/x86_64-linux-gnu",
    "lib/x86_64-linux-gnu",
];
/// Units of the package: what a service needs by default, and where the daemon's unit is installed.
const UNITS: [&str; 5] =
    ["basic.target", "sysinit.target", "shutdown.target", "multi-user.target", "network.target"];
/// Where units lie in the image.
const UNIT_DIRECTORY: &str = "lib/systemd/system";
/// The unit of the guest's task. The machine powers off however it ends.
const TASK_UNIT: &str = "\
[Unit]
Description=the task of this boot
SuccessAction=poweroff-immediate
FailureAction=poweroff-immediate
[Service]
ExecStart=/init guest
Environment=PATH=/bin HOME=/tmp TERM=linux LC_ALL=C
StandardOutput=tty
StandardError=tty
TasksMax=infinity
";
/// Without a number of its own the machine would be at its first boot, for which systemd has more to do.
const MACHINE_ID: &str = "7461696c706c616e6564657669636573\n";

/// Adds what was unpacked below `root`.
///
/// # Errors
/// The package has another shape; a library is missing; the image cannot be written.
pub fn add(image: &mut Image, root: &Path) -> anyhow::Result<()> {
    let libraries: Vec<PathBuf> =
        LIBRARY_DIRECTORIES.iter().map(|directory| root.join(directory)).collect();
    for (name, is_in_each) in PROGRAMS {
        match find_below(root, name) {
            Some(file) => image.program_of(&file, name, root, &libraries)?,
            None if is_in_each => bail!("systemd's package has no program '{name}'"),
            None => {}
        }
    }
    for unit in UNITS {
        let path = format!("{UNIT_DIRECTORY}/{unit}");
        let file = find_below(root, &path)
            .with_context(|| format!("systemd's package has no unit '{unit}'"))?;
        image.archive.file(&path, 0o644, &std::fs::read(file)?)?;
    }
    image.archive.file(&format!("{UNIT_DIRECTORY}/task.service"), 0o644, TASK_UNIT.as_bytes())?;
    let wanted = format!("{UNIT_DIRECTORY}/multi-user.target.wants/task.service");
    image.archive.link(&wanted, "../task.service")?;
    image.archive.link(&format!("{UNIT_DIRECTORY}/default.target"), "multi-user.target")?;
    image.archive.link("usr/lib", "/lib")?;
    image.archive.file("etc/machine-id", 0o444, MACHINE_ID.as_bytes())?;
    Ok(())
}
