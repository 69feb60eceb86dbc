//! The simulations against what is known exactly.
//!
//! Where a closed form is compared, the tolerance is the interval of independent replications itself
//! (99.9 %, Student's t), and it must be narrow enough to have found a fault.

mod closed_forms;

use queueing::{
    Departure, Discipline, Law, MeanInterval, Model, Observer, Queues, Replications, Run, Service,
    Tally, Window, estimate, observe, replicate, simulate, theory,
};

const SERVERS: u32 = 16;

fn runs(count: u32, jobs: u64) -> Replications {
    Replications { count, level: 0.999, ..Replications::new().of_jobs(jobs) }
}

fn model(queues: Queues, discipline: Discipline) -> Model {
    Model { servers: SERVERS, queues, discipline }
}

const PARTITIONED: Model =
    Model { servers: SERVERS, queues: Queues::Partitioned, discipline: Discipline::Fcfs };
const CENTRALIZED: Model = Model { queues: Queues::Centralized, ..PARTITIONED };
const PARTITIONED_PS: Model = Model { discipline: Discipline::ProcessorSharing, ..PARTITIONED };

/// The interval holds what theory says, and is no wider than `width` times it either way.
fn agrees(what: &str, found: &MeanInterval, theory: f64, width: f64) {
    assert!(found.holds(theory), "{what}: {found:?} against {theory}");
    assert!(found.half_width() <= width * theory, "{what}: {found:?} says too little");
}

/// The interval of what `of` says of each run.
fn interval(tallies: &[Tally], of: impl Fn(&Tally) -> f64) -> MeanInterval {
    let values: Vec<f64> = tallies.iter().map(of).collect();
    MeanInterval::of(&values, 0.999).expect("several runs")
}

fn tallies(model: &Model, law: Law, load: f64, jobs: u64) -> Vec<Tally> {
    replicate(model, &Service::unit(law), load, &runs(8, jobs)).expect("runs")
}

fn estimated(model: &Model, law: Law, load: f64, jobs: u64, of: fn(&Tally) -> f64) -> MeanInterval {
    estimate(model, &Service::unit(law), load, &runs(8, jobs), of).expect("runs")
}

#[test]
fn mm1_sojourn_times_are_exponential() {
    for load in [0.3, 0.8] {
        let tallies = tallies(&PARTITIONED, Law::Exponential, load, 1_000_000);
        for share in [0.5, 0.9, 0.99] {
            let found = interval(&tallies, |tally| tally.sojourn.quantile(share));
            agrees("M/M/1", &found, theory::mm1_sojourn_quantile(load, share), 0.06);
        }
        let found = interval(&tallies, |tally| tally.sojourn.share_above(5.0));
        agrees("M/M/1 above 5", &found, closed_forms::mm1_sojourn_tail(load, 5.0), 0.06);
    }
}

#[test]
fn mmn_sojourn_times_are_those_of_erlang() {
    // At 15/16 the formula is at its limit θ = 1.
    for load in [0.5, 0.8, 0.9375] {
        let tallies = tallies(&CENTRALIZED, Law::Exponential, load, 1_000_000);
        for share in [0.5, 0.99] {
            let found = interval(&tallies, |tally| tally.sojourn.quantile(share));
            agrees("M/M/16", &found, theory::mmn_sojourn_quantile(SERVERS, load, share), 0.06);
        }
        let found = interval(&tallies, |tally| tally.sojourn.mean());
        agrees("M/M/16 mean", &found, 1.0 + closed_forms::mmn_mean_wait(SERVERS, load), 0.05);
    }
}

#[test]
fn md1_waits_are_distributed_as_franx_says() {
    for (load, jobs) in [(0.5, 500_000), (0.9, 1_000_000), (0.98, 3_000_000)] {
        let theory = theory::Md1::new(load);
        let tallies = tallies(&PARTITIONED, Law::Deterministic, load, jobs);
        for share in [0.9, 0.99] {
            let found = interval(&tallies, |tally| tally.sojourn.quantile(share));
            agrees("M/D/1", &found, theory.sojourn_quantile(share), 0.2);
        }
    }
}

#[test]
fn mean_waits_are_those_of_pollaczek_and_khinchine() {
    for (law, width) in
        [(Law::Deterministic, 0.02), (Law::Exponential, 0.02), (Law::Bimodal1, 0.04)]
    {
        let found =
            estimated(&PARTITIONED, law, 0.7, 1_000_000, |tally| tally.sojourn.mean() - 1.0);
        agrees(law.name(), &found, closed_forms::mg1_mean_wait(0.7, law.moment(2)), width);
    }
    // Its rare long requests need a low load and many of them to be told in short time.
    let law = Law::Bimodal2;
    let found = estimated(&PARTITIONED, law, 0.3, 2_000_000, |tally| tally.sojourn.mean() - 1.0);
    agrees(law.name(), &found, closed_forms::mg1_mean_wait(0.3, law.moment(2)), 0.3);
}

/// Mean sojourn times of short and of long requests.
struct BySize {
    window: Window,
    bound: f64,
    sums: [(f64, f64); 2],
}

impl Observer for BySize {
    fn departed(&mut self, request: &Departure) {
        if self.window.holds(request.arrival) {
            let (sum, count) = &mut self.sums[usize::from(request.size > self.bound)];
            *sum += request.sojourn();
            *count += 1.0;
        }
    }
}

#[test]
fn sharing_slows_all_sizes_alike_whatever_the_law() {
    let load = 0.6;
    for law in [Law::Deterministic, Law::Exponential, Law::Bimodal1] {
        let found = estimated(&PARTITIONED_PS, law, load, 1_000_000, |tally| tally.sojourn.mean());
        agrees(law.name(), &found, closed_forms::mg1_ps_mean_sojourn(load), 0.02);
    }
    let service = Service::unit(Law::Bimodal1);
    let mut means = [Vec::new(), Vec::new()];
    for index in 0..8 {
        let run = runs(8, 1_000_000).run(index, &service, load);
        let window = run.window(&PARTITIONED_PS);
        let mut by_size = BySize { window, bound: 1.0, sums: [(0.0, 0.0); 2] };
        observe(&PARTITIONED_PS, &run, &mut by_size).expect("runs");
        for (means, (sum, count)) in means.iter_mut().zip(by_size.sums) {
            means.push(sum / count);
        }
    }
    for (means, size) in means.iter().zip([0.5, 5.5]) {
        let found = MeanInterval::of(means, 0.999).expect("eight runs");
        agrees("of one size", &found, closed_forms::mg1_ps_mean_sojourn_of_size(load, size), 0.03);
    }
}

/// Of two hundred intervals of 95 % about 190 hold what theory says, and their centre is there too:
/// neither the simulation nor Student's t leans to a side.
#[test]
fn intervals_hold_the_truth_as_often_as_they_say() {
    let (service, load) = (Service::unit(Law::Exponential), 0.8);
    let theory = 1.0 + closed_forms::mmn_mean_wait(SERVERS, load);
    let intervals: Vec<MeanInterval> = (0..200)
        .map(|seed| {
            let runs = Replications { count: 5, seed, ..Replications::new().of_jobs(20_000) };
            let found = estimate(&CENTRALIZED, &service, load, &runs, |tally| tally.sojourn.mean());
            found.expect("runs")
        })
        .collect();
    let held = intervals.iter().filter(|interval| interval.holds(theory)).count();
    // Four standard deviations, each of three.
    assert!((178..=200).contains(&held), "{held}");
    let centres: Vec<f64> = intervals.iter().map(|interval| interval.mean).collect();
    let centre = MeanInterval::of(&centres, 0.999).expect("two hundred");
    agrees("centre", &centre, theory, 0.005);
}

/// How long so many requests were present, of a station with one server.
struct Lengths {
    window: Window,
    time: [f64; 8],
}

impl Observer for Lengths {
    fn departed(&mut self, _request: &Departure) {}

    fn span(&mut self, from: f64, to: f64, present: f64, _busy: f64) {
        if let Some(time) = self.time.get_mut(present as usize) {
            *time += self.window.overlap(from, to);
        }
    }
}

#[test]
fn the_queue_of_one_that_shares_is_geometric_whatever_the_law() {
    let one = Model { servers: 1, ..PARTITIONED_PS };
    let load = 0.5;
    for law in [Law::Deterministic, Law::Exponential, Law::Bimodal1] {
        let mut shares = vec![Vec::new(); 8];
        for index in 0..8 {
            let run = runs(8, 200_000).run(index, &Service::unit(law), load);
            let window = run.window(&one);
            let mut lengths = Lengths { window, time: [0.0; 8] };
            observe(&one, &run, &mut lengths).expect("runs");
            for (shares, time) in shares.iter_mut().zip(lengths.time).skip(1) {
                shares.push(time / window.length());
            }
        }
        for (present, shares) in shares.iter().enumerate().skip(1) {
            let found = MeanInterval::of(shares, 0.999).expect("eight runs");
            let theory = closed_forms::geometric_share(load, present as u32);
            agrees(&format!("{} {present}", law.name()), &found, theory, 0.2);
        }
    }
}

/// Sharing by many is insensitive as well: as many are present as in M/M/n, whatever the law.
#[test]
fn as_many_share_as_wait_at_mmn_whatever_the_law() {
    let (shared, load) = (model(Queues::Centralized, Discipline::ProcessorSharing), 0.9);
    let waiting = f64::from(SERVERS) * load * closed_forms::mmn_mean_wait(SERVERS, load);
    let present = f64::from(SERVERS) * load + waiting;
    for law in [Law::Deterministic, Law::Exponential, Law::Bimodal1] {
        let found = estimated(&shared, law, load, 400_000, Tally::mean_present);
        agrees(law.name(), &found, present, 0.05);
    }
}

/// What each arrival finds before it, of one server that serves in order.
struct Found {
    leaving: std::collections::VecDeque<f64>,
    found: [u64; 8],
    arrivals: u64,
}

impl Observer for Found {
    fn departed(&mut self, request: &Departure) {
        while self.leaving.front().is_some_and(|&at| at <= request.arrival) {
            self.leaving.pop_front();
        }
        self.arrivals += 1;
        if let Some(count) = self.found.get_mut(self.leaving.len()) {
            *count += 1;
        }
        self.leaving.push_back(request.departure);
    }
}

#[test]
fn arrivals_at_mm1_find_a_geometric_queue_and_at_md1_the_recursions() {
    let one = Model { servers: 1, ..PARTITIONED };
    let load = 0.6;
    let deterministic = theory::Md1::new(load);
    for law in [Law::Exponential, Law::Deterministic] {
        let mut shares = vec![Vec::new(); 8];
        for index in 0..8 {
            let run = runs(8, 400_000).run(index, &Service::unit(law), load);
            let mut found = Found { leaving: Default::default(), found: [0; 8], arrivals: 0 };
            observe(&one, &run, &mut found).expect("runs");
            for (shares, count) in shares.iter_mut().zip(found.found) {
                shares.push(count as f64 / found.arrivals as f64);
            }
        }
        for (length, shares) in shares.iter().enumerate() {
            let found = MeanInterval::of(shares, 0.999).expect("eight runs");
            let below =
                length.checked_sub(1).map_or(0.0, |below| deterministic.length_share(below));
            let theory = match law {
                Law::Exponential => closed_forms::geometric_share(load, length as u32),
                _ => deterministic.length_share(length) - below,
            };
            agrees(&format!("{} {length}", law.name()), &found, theory, 0.2);
        }
    }
}

const DISCIPLINES: [Discipline; 4] = [
    Discipline::Fcfs,
    Discipline::ProcessorSharing,
    Discipline::RoundRobin { quantum: 0.7, cost: 0.0 },
    Discipline::RoundRobin { quantum: 0.4, cost: 0.05 },
];

/// λW is L in every run, and no policy that never idles changes how long servers are busy.
#[test]
fn nobody_is_lost_and_no_work_is_made() {
    for queues in [Queues::Partitioned, Queues::Centralized] {
        for law in [Law::Deterministic, Law::Exponential, Law::Bimodal1] {
            for load in [0.2, 0.85] {
                let service = Service::unit(law);
                let run = Run { load, jobs: 200_000, warmup: 20_000, ..Run::new(service) };
                let mut busy = Vec::new();
                for discipline in DISCIPLINES {
                    let model = model(queues, discipline);
                    let tally = simulate(&model, &run).expect("runs");
                    let what = format!("{} {} {load}", model.notation(), law.name());
                    // Who is present at the ends of the window is counted on one side only: at most
                    // some thirty times the mean, in a window of 200,000 arrivals.
                    let (little, present) = (tally.little(), tally.mean_present());
                    let edges = 30.0 * present * tally.sojourn.mean() / tally.window.length();
                    assert!((little - present).abs() <= edges, "{what}: {little} {present}");
                    assert!(edges < 0.1 * present, "{what}: {edges} says too little");
                    if discipline == DISCIPLINES[3] {
                        // Preemption that costs is more work, where requests wait at all.
                        let more = if load > 0.5 { 0.005 } else { -0.003 };
                        assert!(tally.busy_fraction(SERVERS) > busy[0] + more, "{what}: {busy:?}");
                    } else {
                        busy.push(tally.busy_fraction(SERVERS));
                    }
                }
                // The work unfinished at the ends of the window is all that can differ.
                for other in &busy {
                    assert!((other - busy[0]).abs() < 0.003, "{busy:?}");
                }
                assert!((busy[0] / load - 1.0).abs() < 0.03, "{law:?} {load}: {busy:?}");
            }
        }
    }
}

#[test]
fn a_quantum_leads_from_sharing_to_first_come_first_served() {
    for queues in [Queues::Partitioned, Queues::Centralized] {
        let run = Run { load: 0.7, jobs: 100_000, ..Run::new(Service::unit(Law::Bimodal1)) };
        let p99 = |discipline| {
            let tally = simulate(&model(queues, discipline), &run).expect("runs");
            (tally.sojourn.quantile(0.99), tally.sojourn.mean())
        };
        // Longer than any request: the very same departures.
        let (fcfs, long) =
            (p99(Discipline::Fcfs), p99(Discipline::RoundRobin { quantum: 6.0, cost: 9.0 }));
        assert!((fcfs.0 / long.0 - 1.0).abs() < 1e-6 && (fcfs.1 / long.1 - 1.0).abs() < 1e-6);
        let sharing = p99(Discipline::ProcessorSharing);
        let fine = p99(Discipline::RoundRobin { quantum: 0.02, cost: 0.0 });
        assert!((fine.0 / sharing.0 - 1.0).abs() < 0.02, "{fine:?} {sharing:?}");
        assert!((fine.1 / sharing.1 - 1.0).abs() < 0.02, "{fine:?} {sharing:?}");
        // A price on each preemption makes all of it slower, the more the shorter the quantum.
        let dear = p99(Discipline::RoundRobin { quantum: 0.25, cost: 0.05 });
        let free = p99(Discipline::RoundRobin { quantum: 0.25, cost: 0.0 });
        assert!(dear.1 > 1.05 * free.1, "{dear:?} {free:?}");
    }
}

#[test]
fn preemption_that_costs_too_much_is_told() {
    let discipline = Discipline::RoundRobin { quantum: 0.01, cost: 50.0 };
    let run = Run { load: 0.99, jobs: 20_000_000, ..Run::new(Service::unit(Law::Deterministic)) };
    let error = simulate(&model(Queues::Centralized, discipline), &run).expect_err("overloaded");
    assert!(error.to_string().contains("the cost of preemption"), "{error}");
}

#[test]
fn a_seed_replays_its_run() {
    for discipline in DISCIPLINES {
        for queues in [Queues::Partitioned, Queues::Centralized] {
            let model = model(queues, discipline);
            let run = Run { jobs: 20_000, warmup: 100, ..Run::new(Service::unit(Law::Bimodal2)) };
            let of = |seed| {
                let tally = simulate(&model, &Run { seed, ..run }).expect("runs");
                let sojourn = &tally.sojourn;
                (sojourn.count(), sojourn.mean().to_bits(), sojourn.quantile(0.99).to_bits())
            };
            assert_eq!(of(7), of(7));
            assert_ne!(of(7), of(8));
        }
    }
}

#[test]
fn without_load_the_tail_is_that_of_the_service() {
    // ZygOS §2.3: 1, 4.6, 5.5 and 0.5.
    for (law, least) in Law::ALL.into_iter().zip([1.0, 4.605, 5.5, 0.5]) {
        for model in Model::zygos(SERVERS) {
            let run = Run { load: 1e-4, jobs: 500_000, ..Run::new(Service::unit(law)) };
            let p99 = simulate(&model, &run).expect("runs").sojourn.quantile(0.99);
            let what = format!("{} {}: {p99}", model.notation(), law.name());
            assert!((p99 / least - 1.0).abs() < 0.01, "{what}");
        }
    }
}

#[test]
fn lee_and_longton_are_near_for_many_servers() {
    for law in [Law::Deterministic, Law::Bimodal1] {
        let found = estimated(&CENTRALIZED, law, 0.9, 400_000, |tally| tally.sojourn.mean() - 1.0);
        let band = closed_forms::lee_longton_mean_wait(SERVERS, 0.9, law.scv());
        assert!(found.mean > 0.6 * band && found.mean < 1.4 * band, "{found:?} {band}");
    }
}

#[test]
fn a_closed_form_beside_an_overhead_is_that_of_the_longer_service() {
    // Deterministic work with an overhead is deterministic service of both together.
    let service = Service { law: Law::Deterministic, mean: 4.0, overhead: 1.0 };
    let tallies = replicate(&PARTITIONED, &service, 0.7, &runs(8, 500_000)).expect("runs");
    let found = interval(&tallies, |tally| tally.sojourn.quantile(0.99));
    agrees("M/D/1", &found, 5.0 * theory::Md1::new(0.7).sojourn_quantile(0.99), 0.03);
}
