//! The round trip of 64 bytes as sockperf sees it: a tool that nobody here wrote, in its non-blocking
//! ping-pong mode, against our service and against its own server on the kernel's stack, in turn.

use std::net::SocketAddrV4;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use measure::{QUIET, Tried, contest, until_quiet, watched};
use reproduce::{Measured, Progress};

use super::child::Killed;
use super::processors::{CLIENT_CPU, SERVER_CPU};
use super::report::Sockperf;
use super::systems::Tailplane;
use super::window::{TRIES, disturbed_words, every_round};
use service::config::App;
use service::lab::constants::{DATAPLANE_ADDRESS, DATAPLANE_KERNEL_ADDRESS};
use service::lab::{Lab, spawn_in};

const PORT: u16 = 11_111;
const BYTES: u32 = 64;
pub(super) const ROUNDS: usize = 5;
/// What the server needs until it listens.
const START: Duration = Duration::from_millis(300);

/// Measures; `None` where sockperf is not installed.
///
/// # Errors
/// What could not be started, or an output that is not sockperf's.
pub fn measure(
    lab: &Lab,
    seed: u64,
    progress: &mut dyn Progress,
) -> anyhow::Result<Option<Sockperf>> {
    let installed = Command::new("sockperf").arg("--version").output().is_ok();
    if !installed {
        progress
            .detail("sockperf is not installed (package sockperf): its round trip is not measured");
        return Ok(None);
    }
    let (mut windows, mut left_out) = (0, 0);
    let kept = contest(&mut [true, false], every_round(ROUNDS, seed), |is_ours| {
        windows += 1;
        progress.step(&format!("sockperf's round trip: {windows} of {}", 2 * ROUNDS));
        let tried = match is_ours {
            true => {
                let _service = Tailplane::start_spinning(lab, App::Sockperf)?;
                round_trip_p50_us(lab, &[], SocketAddrV4::new(DATAPLANE_ADDRESS, PORT))?
            }
            false => {
                let server = kernel_server(lab)?;
                let target = SocketAddrV4::new(DATAPLANE_KERNEL_ADDRESS, PORT);
                round_trip_p50_us(lab, &[server.0.id()], target)?
            }
        };
        left_out += tried.left_out;
        anyhow::Ok((tried.found, tried.disturbance))
    })?;
    let [ours, kernels] = kept.as_slice() else { bail!("two servers had no two results") };
    let p50: fn(&f64) -> f64 = |p50_us| *p50_us;
    Ok(Some(Sockperf {
        rounds: ours.paired(kernels).count(),
        tailplane_p50_us: Measured::windows(ours, seed, p50),
        linux_p50_us: Measured::windows(kernels, seed, p50),
        ratio: Measured::ratio_of((kernels, p50), (ours, p50), seed),
        disturbed: disturbed_words(&kept, left_out),
    }))
}

/// sockperf's server, as our service: on its own core, and spinning.
fn kernel_server(lab: &Lab) -> anyhow::Result<Killed> {
    let target = SocketAddrV4::new(DATAPLANE_KERNEL_ADDRESS, PORT);
    let mut command = sockperf(SERVER_CPU, "server", target);
    command.stdout(Stdio::null()).stderr(Stdio::null());
    let child = spawn_in(lab.dataplane(), command).context("cannot start sockperf's server")?;
    let mut server = Killed(child);
    std::thread::sleep(START);
    match server.0.try_wait()? {
        Some(status) => bail!("sockperf's server ended at once ({status})"),
        None => Ok(server),
    }
}

fn sockperf(cpu: usize, mode: &str, target: SocketAddrV4) -> Command {
    let mut command = Command::new("taskset");
    command.args(["-c", &cpu.to_string(), "sockperf", mode, "--tcp", "--nonblocked"]);
    command.args(["-i", &target.ip().to_string(), "-p", &target.port().to_string()]);
    command.stdin(Stdio::null());
    command
}

/// One window of a second; again where somebody else used the machine, a few times.
fn round_trip_p50_us(
    lab: &Lab,
    others: &[u32],
    target: SocketAddrV4,
) -> anyhow::Result<Tried<f64>> {
    // The client's time is that of a child of ours that has ended.
    let window = || {
        let mut command = sockperf(CLIENT_CPU, "ping-pong", target);
        command.args(["-t", "1", "-m", &BYTES.to_string()]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let client = spawn_in(lab.client(), command).context("cannot start sockperf's client")?;
        let output = client.wait_with_output()?;
        let text = String::from_utf8_lossy(&output.stdout);
        let half = half_round_trip_p50_us(&text).with_context(|| {
            format!("sockperf against {target} told no median: {}", text.trim())
        })?;
        anyhow::Ok(2.0 * half)
    };
    until_quiet(TRIES, &QUIET, || watched(others, window))
}

/// sockperf tells halves of round trips.
fn half_round_trip_p50_us(text: &str) -> Option<f64> {
    let line = text.lines().find(|line| line.contains("percentile 50.000"))?;
    line.split_once('=')?.1.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::half_round_trip_p50_us;

    #[test]
    fn the_median_is_read_from_sockperfs_lines() {
        let text = "sockperf: ---> percentile 75.000 =    4.974\n\
                    sockperf: ---> percentile 50.000 =    4.222\n";
        assert_eq!(half_round_trip_p50_us(text), Some(4.222));
        assert_eq!(half_round_trip_p50_us("sockperf: No messages were received"), None);
    }
}
