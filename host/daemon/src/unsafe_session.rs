//! Programs in a session of their own: what ends the daemon, or its terminal, does not end them.
//!
//! This module holds `unsafe` because what runs between fork and exec must be safe there.
#![allow(unsafe_code)]

use std::os::unix::process::CommandExt;
use std::process::Command;

/// The command's process leads a session, and a process group, of its own.
pub fn own_session(command: &mut Command) {
    let hook = || rustix::process::setsid().map(drop).map_err(std::io::Error::from);
    // SAFETY: the hook is one system call; it allocates nothing and takes no lock.
    unsafe {
        command.pre_exec(hook);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_program_leads_its_own_session() {
        let mut command = Command::new("sh");
        command.args(["-c", "cut -d' ' -f1,5,6 /proc/$$/stat"]);
        own_session(&mut command);
        let output = command.output().expect("sh");
        let text = String::from_utf8(output.stdout).expect("numbers");
        let numbers: Vec<&str> = text.split_whitespace().collect();
        assert_eq!(numbers.len(), 3, "{text}");
        assert!(numbers[0] == numbers[1] && numbers[1] == numbers[2], "{text}");
    }
}
