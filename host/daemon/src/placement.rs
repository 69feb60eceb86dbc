//! Which processor each elastic thread has, and what machine the policy sees of it.

use control::{Machine, Place, Topology};

/// Threads, processors and cores of one service.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// Where each thread runs, for the control loop.
    pub places: Vec<Place>,
    /// Each thread's processor; none where it is not pinned.
    pub cpus: Vec<Option<usize>>,
    /// What can be granted.
    pub machine: Machine,
    /// Processors of each core in the order of allocation: what a background job can get. Empty where threads are not
    /// pinned.
    pub cores: Vec<Vec<u32>>,
}

/// Places `shown.len()` threads: on `wanted` in that order, or, where that is empty, where they are. Of threads that
/// are not pinned each counts as a core of its own, without clocks.
///
/// # Errors
/// Too few processors are named, one is not there, or two threads would share one.
pub fn placement(
    topology: &Topology,
    wanted: &[u32],
    shown: &[Option<usize>],
) -> Result<Placement, String> {
    let threads = shown.len();
    if !wanted.is_empty() && wanted.len() < threads {
        return Err(format!(
            "`control.cores` names {} processors and the service has {threads} elastic threads; allowed: one for \
             each, or none to take those that the service shows",
            wanted.len()
        ));
    }
    let number = |cpu: usize| u32::try_from(cpu).unwrap_or(u32::MAX);
    let pinned: Option<Vec<u32>> = shown.iter().map(|cpu| cpu.map(number)).collect();
    let cpus = match (wanted.is_empty(), pinned) {
        (false, _) => wanted[..threads].to_vec(),
        (true, Some(pinned)) => pinned,
        (true, None) => return Ok(unpinned(threads)),
    };
    let mut cores: Vec<((u32, u32), Vec<u32>)> = Vec::new();
    let mut places = Vec::with_capacity(threads);
    for &id in &cpus {
        let cpu = topology.cpus.iter().find(|cpu| cpu.id == id);
        let cpu = cpu.ok_or_else(|| {
            format!(
                "processor {id} is not there, or not online; `control.cores` or `dataplane.cpus` names it"
            )
        })?;
        let key = (cpu.package, cpu.core);
        let core = cores.iter().position(|core| core.0 == key).unwrap_or_else(|| {
            cores.push((key, Vec::new()));
            cores.len() - 1
        });
        let of_core = &mut cores[core].1;
        if of_core.contains(&id) {
            return Err(format!(
                "two elastic threads are on processor {id}; one each is needed for cores to be granted"
            ));
        }
        places.push(Place { core: core as u32, sibling: of_core.len() as u32 });
        of_core.push(id);
    }
    let clocks = topology.restricted_to(&cpus).machine();
    let machine = Machine {
        cores: cores.len() as u32,
        threads_per_core: places.iter().map(|place| place.sibling + 1).max().unwrap_or(1),
        ..clocks
    };
    let cores = cores.into_iter().map(|core| core.1).collect();
    Ok(Placement {
        places,
        cpus: cpus.into_iter().map(|cpu| Some(cpu as usize)).collect(),
        machine,
        cores,
    })
}

fn unpinned(threads: usize) -> Placement {
    let cores = threads as u32;
    let machine = Machine { cores, threads_per_core: 1, clocks_khz: Vec::new(), turbo: false };
    let places = (0..cores).map(|core| Place { core, sibling: 0 }).collect();
    Placement { places, cpus: vec![None; threads], machine, cores: Vec::new() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use control::{ClockDomain, Cpu};

    /// Two cores of two hyperthreads: processors 0 and 2, 1 and 3; one clock domain.
    fn topology() -> Topology {
        let cpu = |id: u32| Cpu { id, package: 0, core: id % 2, sibling: id / 2 };
        let domain = ClockDomain {
            directory: "policy0".into(),
            cpus: vec![0, 1, 2, 3],
            clocks_khz: vec![1_000, 2_000],
        };
        Topology { cpus: (0..4).map(cpu).collect(), domains: vec![domain], boost: None }
    }

    #[test]
    fn the_order_of_the_file_is_the_order_of_allocation() {
        let placed = placement(&topology(), &[3, 0, 1, 2], &[None; 3]).expect("fine");
        let place = |core, sibling| Place { core, sibling };
        assert_eq!(placed.places, [place(0, 0), place(1, 0), place(0, 1)]);
        assert_eq!(placed.cpus, [Some(3), Some(0), Some(1)]);
        assert_eq!(placed.cores, [vec![3, 1], vec![0]]);
        assert_eq!((placed.machine.cores, placed.machine.threads_per_core), (2, 2));
        assert_eq!(placed.machine.clocks_khz, [1_000, 2_000]);
        placed.machine.validate().expect("a machine that there can be");
    }

    #[test]
    fn without_an_order_threads_stay_where_they_are() {
        let placed = placement(&topology(), &[], &[Some(1), Some(0)]).expect("fine");
        assert_eq!(placed.cpus, [Some(1), Some(0)]);
        let free = placement(&topology(), &[], &[Some(1), None]).expect("fine");
        assert_eq!((free.machine.cores, free.cores.len()), (2, 0));
        assert!(free.machine.clocks_khz.is_empty());
    }

    #[test]
    fn what_cannot_be_is_said() {
        let error = |wanted: &[u32], shown: &[Option<usize>]| {
            placement(&topology(), wanted, shown).expect_err("refused").to_string()
        };
        assert!(error(&[0], &[None; 2]).contains("names 1 processors and the service has 2"));
        assert!(error(&[9], &[None]).contains("processor 9 is not there"));
        assert!(error(&[], &[Some(1), Some(1)]).contains("on processor 1"));
    }
}
