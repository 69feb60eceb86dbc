//! The parts of the `tailplane` command: [`commands`] has one file per subcommand, the only place that knows about
//! arguments and printing. What measures, simulates and reproduces is another program, `tailplane-lab`.

pub mod commands;

use std::process::ExitCode;

use service::terminal::Output;

/// How a program of this name ends after its subcommand. An error goes to standard error, in one line.
pub fn exit_code(program: &str, ended: anyhow::Result<ExitCode>) -> ExitCode {
    ended.unwrap_or_else(|error| {
        // Where the reader has closed its end, this process ends all the same.
        Output::Error.print(&format!("{program}: {}\n", in_one_line(&error)));
        ExitCode::FAILURE
    })
}

/// The whole chain: the outermost message alone names the action, not what was found. A message that
/// already ends with its cause does not say it twice.
fn in_one_line(error: &anyhow::Error) -> String {
    let mut line = String::new();
    for message in error.chain().map(ToString::to_string) {
        if line.is_empty() {
            line = message;
        } else if !line.contains(&message) {
            line = format!("{line}: {message}");
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use anyhow::anyhow;

    use super::*;

    #[test]
    fn each_cause_is_said_once() {
        let error = anyhow!("no such file").context("cannot read 'x': no such file; make one");
        assert_eq!(in_one_line(&error), "cannot read 'x': no such file; make one");
        let error = anyhow!("no such file").context("cannot read 'x'");
        assert_eq!(in_one_line(&error), "cannot read 'x': no such file");
    }
}
