//! What the arguments of `tailplane load` become.

use clap::Parser;
use load::{ArrivalProcess, PatternShape};

use super::*;

#[derive(Debug, Parser)]
struct Command {
    #[command(flatten)]
    args: Args,
}

fn config(line: &str) -> Result<LoadConfig, String> {
    let words = ["load", "10.0.0.2:7"].into_iter().chain(line.split_whitespace());
    let command = Command::try_parse_from(words).map_err(|error| error.to_string())?;
    load_config(&command.args).map_err(|error| format!("{error:#}"))
}

#[test]
fn every_option_reaches_the_load() {
    let load = config(
        "--workload spin:bimodal-1:10 --rate 5000 --arrivals bursty:4 --pattern sine+noise \
         --low 100 --period 2.5 --probe --probe-connections 8 --probe-rate 0 --series \
         --hdr-log x.hlog --seed 9 --late-us 50 --resolution-us 3",
    )
    .expect("can be used");
    let arrivals = ArrivalProcess::Bursty { burst: 4 };
    assert_eq!(load.mode, Mode::Open { rps: 5_000.0, arrivals, depth: 4 });
    let shape = PatternShape::SineNoise;
    let pattern = Pattern { shape, low_rps: 100.0, period_ms: 2_500, seed: 9 };
    assert_eq!(load.pattern, Some(pattern));
    assert_eq!(load.probe, Some(ProbeConfig { connections: 8, rps: 0.0 }));
    assert!(load.series);
    assert_eq!(load.hdr_log.as_deref(), Some("x.hlog"));
    assert_eq!((load.lag_limit_us, load.resolution_us), (50, Some(3)));
    let plain = config("").expect("can be used");
    assert_eq!((plain.mode, plain.pattern, plain.probe), (Mode::closed(1), None, None));
}

#[test]
fn options_that_need_another_say_so() {
    for (line, part) in [
        ("--pattern step", "--rate"),
        ("--rate 10 --low 5", "--pattern"),
        ("--probe-rate 5", "--probe"),
        ("--probe --churn 1", "--churn"),
        ("--rate 10 --pattern saw", "`pattern` is `saw`; allowed: slope, step, square, sine+noise"),
        ("--rate 10 --pattern step --low 11", "`low` is `11`; allowed: 0 to 10"),
        ("--rate 10 --pattern step --period 0", "`--period` is 0"),
        ("--rate 10 --arrivals normal", "bursty:N"),
        ("--workload spin:exponential", "exponential:MEAN_US"),
    ] {
        let error = config(line).expect_err(line);
        assert!(error.contains(part), "{line}: {error}");
    }
}
