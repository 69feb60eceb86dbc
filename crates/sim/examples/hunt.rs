//! Runs many seeds of a scenario and prints what fails: `hunt SCENARIO FIRST COUNT [plain]`.

use tailplane_sim::{Scenario, ScenarioConfig, run_many};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, or: u64| {
        arguments.get(index).and_then(|text| text.parse().ok()).unwrap_or(or)
    };
    let named = arguments.first().and_then(|name| Scenario::from_name(name));
    let (first, count) = (number(1, 0), number(2, 100));
    if let (Some(path), Some(scenario)) = (arguments.get(4), named) {
        let mut config = ScenarioConfig::new(scenario);
        config.capture = true;
        let outcome = tailplane_sim::run(first, &config);
        println!("{}", tailplane_sim::variation::Variation::draw(first).summary());
        println!("{:?}", outcome.failure);
        let mut file = std::fs::File::create(path).expect("a file");
        tailplane_sim::pcap::write(&mut file, &outcome.capture).expect("written");
        return;
    }
    let mut failed = 0;
    for scenario in named.map_or(Scenario::ALL.to_vec(), |one| vec![one]) {
        let mut config = ScenarioConfig::new(scenario);
        config.vary = arguments.get(3).is_none_or(|word| word != "plain");
        let started = std::time::Instant::now();
        let outcomes = run_many(first, count, &config, 2, |seed, outcome| {
            if let Some(failure) = &outcome.failure {
                println!("{} {seed}: {failure}", scenario.name());
            }
        });
        let passed = outcomes.iter().filter(|(_, outcome)| outcome.ok).count();
        let longest = outcomes.iter().map(|(_, outcome)| outcome.stats.took_us).max().unwrap_or(0);
        let steps = outcomes.iter().map(|(seed, outcome)| (outcome.stats.steps, *seed)).max();
        failed += outcomes.len() - passed;
        println!(
            "{}: {passed} of {} in {:?}; longest {} ms, most steps {steps:?}",
            scenario.name(),
            outcomes.len(),
            started.elapsed(),
            longest / 1000
        );
    }
    std::process::exit((failed > 0) as i32);
}
